package controller

import (
	"context"
	"testing"
	"time"

	"carillon/backend/engine/cluster"
	"carillon/backend/face/rpc"
	"carillon/backend/store"
	"carillon/backend/store/storetest"
)

// patient is a house whose parts do not run, so that nobody mends what the test spoils.
func patient(t *testing.T, db storetest.DB) *house {
	t.Helper()
	cfg := DefaultConfig()
	cfg.DatabaseURL = db.URL
	h := &house{cfg: cfg, key: "doctor", store: named{db.Store, "doctor", cfg.Timing}}
	var err error
	if h.cluster, err = cluster.New(cluster.Config{Key: "doctor", Endpoint: "http://doctor"}, beats{h.store}, newPeers("")); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDoctorFindsWhatMustNotBe(t *testing.T) {
	for name, c := range map[string]struct{ spoil, check string }{
		"nothing":                {"SELECT 1", ""},
		"due a little":           {"UPDATE carillon.cron_jobs SET next_execution = now() - interval '10 s'", ""},
		"overdue":                {"UPDATE carillon.cron_jobs SET next_execution = now() - interval '20 s' WHERE ref = 'm.v0'", "overdue"},
		"overdue, but paused":    {"UPDATE carillon.cron_jobs SET next_execution = now() - interval '20 s', enabled = false, paused_at = now()", ""},
		"nobody's run":           {executingAs("nobody", "now() + interval '1 hour'"), "stuck"},
		"a live one's run":       {executingAs("alive", "now() + interval '1 hour'"), ""},
		"a live one's, for ever": {executingAs("alive", "now() - interval '20 s'"), "stuck"},
		"set aside":              {"UPDATE carillon.cron_jobs SET enabled = false, set_aside_at = now()", "set aside"},
		"two verdicts": {`INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at)
			SELECT id, now() - make_interval(secs => 60 - i * 10), now() - make_interval(secs => 20 - i * 10), 4, 'skipped_missed', now()
			FROM carillon.cron_jobs, generate_series(0, 1) i WHERE ref = 'm.v0'`, "double verdicts"},
		"neighbours": {`INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at)
			SELECT id, now() - make_interval(secs => 60 - i * 10), now() - make_interval(secs => 51 - i * 10), 9, 'skipped_missed', now()
			FROM carillon.cron_jobs, generate_series(0, 3) i`, ""},
		"other schema": {"INSERT INTO carillon.schema_versions (version_id, is_applied) VALUES (99999, true)", "migrations"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "America/New_York")
			db.Deploy(3, db.Now().Add(time.Hour))
			db.Controller("alive", time.Minute)
			db.Exec(c.spoil)
			found := map[string]rpc.Check{}
			for _, k := range patient(t, db).Health(t.Context()) {
				if found[k.Name] = k; !k.OK && k.Hint == "" {
					t.Errorf("%+v has no hint", k)
				}
			}
			for _, name := range []string{"database", "migrations", "overdue", "stuck", "set aside", "double verdicts"} {
				if k, there := found[name]; !there || k.OK == (name == c.check) || k.Detail == "" {
					t.Errorf("%s: %+v", name, k)
				}
			}
			if found["ring"].OK {
				t.Error("it is no member of any ring")
			}
		})
	}
}

func executingAs(controller, deadline string) string {
	return `UPDATE carillon.cron_jobs SET state = 'executing', run_id = gen_random_uuid(), run_slot = now(), started_at = now(), attempt = 1,
		run_deployment = deployment_id, controller = '` + controller + `', deadline_at = ` + deadline + ` WHERE ref = 'm.v1'`
}

func TestDoctorWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	h := patient(t, db)
	s, err := store.Open(t.Context(), store.Config{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	h.store.Store = s
	for _, k := range h.Health(context.Background()) {
		if k.OK && k.Name != "migrations" { // those are read over a connection of their own
			t.Errorf("%+v", k)
		}
	}
}
