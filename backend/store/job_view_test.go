package store_test

import (
	"errors"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

func TestHistoryIsPartitionedByDay(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		if n, err := db.CreateJobPartitions(ctx, 7); err != nil || n != 0 { // the migration made them
			t.Errorf("created %d, %v", n, err)
		}
		if n, err := db.CreateJobPartitions(ctx, 9); err != nil || n != 2 {
			t.Errorf("created %d, %v", n, err)
		}
		q := putQueue(t, db, "t", "m.v", 2)
		ids := ready(t, db, q, 2)
		for _, c := range claimAll(t, db, ids...) {
			finish(t, db, endOf(c, succeeded))
		}
		var part string
		db.Scan("SELECT DISTINCT c.relname FROM carillon.job_history h JOIN pg_class c ON c.oid = h.tableoid", nil, &part)
		if want := "job_history_" + db.Now().Format("20060102"); part != want {
			t.Errorf("in %s, want %s", part, want)
		}
		db.Exec(`CREATE TABLE carillon.job_history_20200101 (LIKE carillon.job_history INCLUDING DEFAULTS INCLUDING CONSTRAINTS)`)
		db.Exec(`ALTER TABLE carillon.job_history ATTACH PARTITION carillon.job_history_20200101 FOR VALUES FROM ('2020-01-01+0') TO ('2020-01-02+0')`)
		db.Exec("UPDATE carillon.job_history SET ended_at = '2020-01-01 12:00+0' WHERE id = $1", ids[0].N)
		if n, err := db.DropJobPartitions(ctx, 10); err != nil || n != 1 {
			t.Errorf("dropped %d, %v", n, err)
		}
		if _, err := db.GetJob(ctx, ids[0]); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("a dropped one: %v", err)
		}
		getJob(t, db, ids[1])
		if _, err := db.DropJobPartitions(ctx, 0); err == nil {
			t.Error("a history of no days was accepted")
		}
	})
}

func TestListsFilterAndPage(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "America/New_York")
	ctx := t.Context()
	a, b := putQueue(t, db, "t1", "m.a", 2), putQueue(t, db, "t2", "mm.a", 4)
	tagged := aJob(a)
	tagged.Tags = []string{"x"}
	ids := append(ready(t, db, a, 3), ready(t, db, b, 3)...)
	ids = append(ids, enqueue(t, db, tagged)[0].ID)
	for _, c := range claimAll(t, db, ids[0], ids[3], ids[4]) {
		finish(t, db, endOf(c, succeeded))
	}
	claimAll(t, db, ids[1])
	for name, tc := range map[string]struct {
		f           job.Filter
		live, ended int
	}{
		"all":           {job.Filter{}, 4, 3},
		"tenant":        {job.Filter{Tenant: "t1"}, 3, 1},
		"ref":           {job.Filter{Ref: "mm.a"}, 1, 2},
		"module":        {job.Filter{Module: "m"}, 3, 1},
		"tag":           {job.Filter{Tag: "x"}, 1, 0},
		"states":        {job.Filter{States: []job.State{job.Running, job.Succeeded}}, 1, 3},
		"dead":          {job.Filter{Dead: true}, 4, 0},
		"before it all": {job.Filter{To: db.Now().Add(-time.Hour)}, 0, 0},
		"since then":    {job.Filter{From: db.Now().Add(-time.Hour), To: db.Now().Add(time.Hour)}, 4, 3},
	} {
		live, err := db.ListJobs(ctx, tc.f, job.Cursor{}, 100)
		ended, err2 := db.ListEndedJobs(ctx, tc.f, job.Cursor{}, 100)
		if err != nil || err2 != nil || len(live) != tc.live || len(ended) != tc.ended {
			t.Errorf("%s: %d live, %d ended, want %d and %d (%v, %v)", name, len(live), len(ended), tc.live, tc.ended, err, err2)
		}
	}
	seen := map[job.ID]bool{}
	for after := (job.Cursor{}); ; {
		page, err := db.ListJobs(ctx, job.Filter{}, after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page {
			seen[j.ID], after = true, job.Cursor{ID: j.N}
		}
		if len(page) < 3 {
			break
		}
	}
	for after := (job.Cursor{}); ; {
		page, err := db.ListEndedJobs(ctx, job.Filter{}, after, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page {
			seen[j.ID], after = true, job.Cursor{Ended: j.Ended, ID: j.N}
		}
		if len(page) == 0 {
			break
		}
	}
	if len(seen) != len(ids) {
		t.Errorf("saw %d of %d", len(seen), len(ids))
	}
}
