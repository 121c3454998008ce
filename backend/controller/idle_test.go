package controller

import (
	"maps"
	"testing"
	"time"

	"carillon/backend/store/storetest"
)

func TestIdleScalesDownWhatNobodyServes(t *testing.T) {
	for name, c := range map[string]struct {
		served string
		runner bool
		want   map[string]int
	}{
		"nobody's":      {"other", false, map[string]int{"m": 1}},
		"served":        {"m", false, map[string]int{}},
		"with a runner": {"other", true, map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "UTC")
			db.Deploy(2, db.Now())
			if c.runner {
				db.Exec("INSERT INTO carillon.runners (key, deployment_id, endpoint, capacity, stream) SELECT 'r', id, 'http://r', 1, false FROM carillon.deployments")
			}
			idled, err := Idle(t.Context(), db.URL, func(module string) bool { return module == c.served })
			if err != nil || !maps.Equal(idled, c.want) {
				t.Errorf("idled %v, %v, want %v", idled, err, c.want)
			}
			var enabled int
			db.Scan("SELECT count(*) FROM carillon.cron_jobs WHERE enabled AND next_execution <= $1", []any{db.Now().Add(time.Hour)}, &enabled)
			if want := 2 - 2*len(c.want); enabled != want {
				t.Errorf("%d cron jobs start, want %d", enabled, want)
			}
			if again, err := Idle(t.Context(), db.URL, func(string) bool { return false }); err != nil || !c.runner && len(again)+len(idled) != 1 {
				t.Errorf("again: %v, %v", again, err)
			}
		})
	}
}

func TestDoctorFindsAModuleOfVerbsAloneWithoutARunner(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "UTC")
	db.Deploy(0, time.Time{})
	if k := patient(t, db).checkRunners(t.Context()); k.OK || k.Detail != "none of m" || k.Hint == "" {
		t.Errorf("finds %+v", k)
	}
}
