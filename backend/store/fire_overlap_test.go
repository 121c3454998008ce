package store_test

import (
	"errors"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/store"
	"carillon/backend/store/storetest"
)

func TestOverlapOfFirings(t *testing.T) {
	slots := func(t *testing.T, overlap cron.Overlap, change ...func(*cron.Job)) (storetest.DB, cron.Job, cron.Claim) {
		t.Parallel()
		db := storetest.Open(t, "Asia/Tokyo")
		row := firing(t, db, 1, db.Now().Truncate(time.Second).Add(-time.Minute), overlap, change...)[0]
		return db, row, fireClaim(row)
	}
	t.Run("skip", func(t *testing.T) {
		db, row, c := slots(t, cron.OverlapSkip)
		first := fire(t, db, c)[0]
		run := claimJob(t, db, first.Made)
		c = next(c)
		if f := fire(t, db, c); len(f) != 1 || f[0].Made.N != 0 {
			t.Fatalf("beside a running job: %+v", f)
		}
		_, err := db.FinishJobs(t.Context(), []job.End{{ID: first.Made.N, Run: run, Outcome: job.Outcome{Verdict: cron.Succeeded}, Step: job.Step{State: job.Succeeded, Counted: true}}})
		if err != nil {
			t.Fatal(err)
		}
		c = next(c)
		if f := fire(t, db, c); len(f) != 1 || f[0].Made.N == 0 {
			t.Errorf("after its end: %+v", f)
		}
		runs := history(t, db, row.ID)
		if len(runs) != 3 || runs[1].Verdict != cron.SkippedOverlap || runs[1].Count != 1 || !runs[1].ID.IsZero() || runs[1].Made.N != 0 {
			t.Errorf("ledger %+v", runs)
		}
	})
	t.Run("skip under catchup all", func(t *testing.T) {
		db, row, c := slots(t, cron.OverlapSkip, func(j *cron.Job) { j.Catchup = cron.CatchupAll })
		for range 3 {
			if f := fire(t, db, c); len(f) != 1 || f[0].Made.N == 0 {
				t.Fatalf("%+v", f)
			}
			c = next(c)
		}
		if runs := history(t, db, row.ID); len(runs) != 3 {
			t.Errorf("ledger %+v", runs)
		}
	})
	t.Run("allow, up to a bound", func(t *testing.T) {
		db, row, c := slots(t, cron.OverlapAllow)
		first := fire(t, db, c)[0]
		db.Exec(`INSERT INTO carillon.jobs (due_at, cron_job_id, queue_id, shard, salt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload)
			SELECT now(), $1, $2, 0, 0, 1, 1, 1, 1, 500, '' FROM generate_series(1, $3)`, row.ID, first.Queue, cron.MaxLive-2)
		c = next(c)
		if f := fire(t, db, c); f[0].Made.N == 0 {
			t.Error("skipped below the bound")
		}
		c = next(c)
		if f := fire(t, db, c); f[0].Made.N != 0 {
			t.Error("fired beyond the bound")
		}
		if _, _, err := db.FireManualRun(t.Context(), "c1", row.Ref, newRun()); !errors.Is(err, cron.ErrPrecond) {
			t.Errorf("run now beyond the bound: %v", err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		db, row, c := slots(t, cron.OverlapCancel)
		runs := fire(t, db, c)[0]
		run := claimJob(t, db, runs.Made)
		c = next(c)
		waits := fire(t, db, c)[0]
		want := []cron.CancelledRun{{Made: runs.Made, Run: run, Controller: "c2"}}
		if len(waits.Cancelled) != 1 || waits.Cancelled[0] != want[0] {
			t.Fatalf("cancelled %+v, want %+v", waits.Cancelled, want)
		}
		c = next(c)
		last := fire(t, db, c)[0]
		states := map[cron.Made]job.State{runs.Made: job.Running, waits.Made: job.Cancelled, last.Made: job.Ready}
		for made, state := range states {
			j, err := db.GetJob(t.Context(), job.ID(made))
			if err != nil || j.State != state || j.CancelAsked != (state != job.Ready) {
				t.Errorf("%+v, %v; want %s", j, err, state)
			}
		}
		// As if the answer had been lost.
		found, err := db.LookupFired(t.Context(), []cron.Claim{c, {JobID: row.ID, Slot: c.Slot, RunID: newRun(), Fires: true}})
		if err != nil || len(found) != 1 || found[0].Made != last.Made || found[0].Queue != last.Queue || len(found[0].Cancelled) != 1 || found[0].Cancelled[0] != want[0] {
			t.Errorf("looked up %+v, %v; want %+v", found, err, last)
		}
		if n := len(history(t, db, row.ID)); n != 3 {
			t.Errorf("%d ledger rows", n)
		}
	})
	t.Run("cancel leaves others alone", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t, "")
		rows := firing(t, db, 3, db.Now().Truncate(time.Second).Add(-time.Minute), cron.OverlapCancel)
		for _, r := range rows {
			fire(t, db, fireClaim(r))
		}
		fire(t, db, next(fireClaim(rows[1])))
		var live int
		db.Scan("SELECT count(*) FROM carillon.jobs", nil, &live)
		if live != 3 {
			t.Errorf("%d jobs live", live)
		}
	})
}

// The limit that the deployer sets makes the jobs of overlap queue run one at a time, in slot order.
func TestQueuedSlotsRunOneAtATime(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	first := db.Now().Truncate(time.Second).Add(-time.Minute)
	row := firing(t, db, 1, first, cron.OverlapQueue)[0]
	if _, err := db.UpdateModule(t.Context(), "m", 0, func(deployment.Module) (deployment.Update, error) {
		return deployment.Update{Limits: map[string]int{row.Ref: 1}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	var queue int32
	for c, i := fireClaim(row), 0; i < 5; i++ {
		queue = fire(t, db, c)[0].Queue
		c = next(c)
	}
	waiting, _, err := db.FetchWindow(t.Context(), []job.Cut{{Queue: queue}}, allShards, time.Second, 10)
	if err != nil || len(waiting) != 5 {
		t.Fatalf("%+v, %v", waiting, err)
	}
	for i, w := range waiting {
		claims := []job.Claim{{ID: w.ID, Run: newRun(), Deployment: 1}}
		if i+1 < len(waiting) {
			claims = append(claims, job.Claim{ID: waiting[i+1].ID, Run: newRun(), Deployment: 1})
		}
		won, _, err := db.ClaimJobs(t.Context(), "c2", time.Minute, claims[:1], row.Ref)
		if err != nil || len(won) != 1 || !won[0].Slot.Equal(first.Add(time.Duration(i)*time.Second)) {
			t.Fatalf("the %dth: %+v, %v", i, won, err)
		}
		if both, _, err := db.ClaimJobs(t.Context(), "c2", time.Minute, claims[1:], row.Ref); err != nil || len(both) != 0 {
			t.Fatalf("two at a time: %+v, %v", both, err)
		}
		if _, err := db.FinishJobs(t.Context(), []job.End{{ID: w.ID, Run: won[0].Run, Step: job.Step{State: job.Succeeded, Counted: true}, Outcome: job.Outcome{Verdict: cron.Succeeded}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// What a deploy writes about limits and firing: the queue, the limit, and their end.
func TestDeployWritesLimits(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	row := firing(t, db, 2, db.Now().Add(time.Hour), cron.OverlapAllow)[1]
	limit := func(limits map[string]int) {
		t.Helper()
		if _, err := db.UpdateModule(t.Context(), "m", 0, func(deployment.Module) (deployment.Update, error) {
			return deployment.Update{Limits: limits}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.PutLimit(t.Context(), "mm.v1", 3); err != nil { // another module's
		t.Fatal(err)
	}
	expect := func(want int) {
		t.Helper()
		queues, err := db.ListQueues(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queues {
			if q.Ref == row.Ref && q.Limit != want {
				t.Errorf("limit %d, want %d", q.Limit, want)
			}
		}
		var marked bool
		var limits int
		db.Scan("SELECT bool_or(limited) FROM carillon.queues WHERE ref = $1", []any{row.Ref}, &marked)
		db.Scan("SELECT count(*) FROM carillon.limits WHERE ref = 'mm.v1'", nil, &limits)
		if marked != (want > 0) || limits != 1 {
			t.Errorf("marked %t with the limit %d; %d of the other module", marked, want, limits)
		}
	}
	limit(map[string]int{row.Ref: 2, "m.plain": 7})
	expect(2)
	limit(nil)
	expect(2)
	// Runs in flight count under a limit that comes later.
	limit(map[string]int{})
	expect(0)
	c := fireClaim(get(t, db, row.ID))
	db.Exec("UPDATE carillon.cron_jobs SET next_execution = date_trunc('second', now()) WHERE id = $1", row.ID)
	r := get(t, db, row.ID)
	c.Expected, c.Slot, c.Next = r.Next, r.Next, r.Next.Add(time.Second)
	claimJob(t, db, fire(t, db, c)[0].Made)
	limit(map[string]int{row.Ref: 1})
	expect(1)
	var running int
	db.Scan("SELECT running FROM carillon.limits WHERE ref = $1", []any{row.Ref}, &running)
	if running != 1 {
		t.Errorf("%d running", running)
	}
}

// Each firing is HOT, and so are the claims and ends of the jobs beside the index on their cron jobs.
func TestFiringsStayHot(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	slot := db.Now().Truncate(time.Second).Add(-time.Minute)
	rows := firing(t, db, 50, slot, cron.OverlapAllow)
	var claims []cron.Claim
	for _, r := range rows {
		claims = append(claims, fireClaim(r))
	}
	var made []cron.Made
	for range 4 {
		for _, f := range fire(t, db, claims...) {
			made = append(made, f.Made)
		}
		for i := range claims {
			claims[i] = next(claims[i])
		}
	}
	for _, m := range made {
		claimJob(t, db, m)
	}
	db.Store.Close() // sessions report what they counted as they end
	var updates, hot, jobUpdates, jobHot int
	waitFor(t, func() bool {
		db.Scan("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'cron_jobs'", nil, &updates, &hot)
		db.Scan("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'", nil, &jobUpdates, &jobHot)
		return updates >= 250 && jobUpdates >= 200
	})
	// A page that is full costs an update its place; an index on what changes would cost all of them.
	if hot < updates/3 || jobHot < jobUpdates/3 {
		t.Errorf("HOT are %d of %d updates of cron jobs, %d of %d of jobs", hot, updates, jobHot, jobUpdates)
	}
}

// What lives below a job that a later slot cancels is cancelled as well, whether it waits or runs.
func TestALaterSlotCancelsTheWholeTree(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	row := firing(t, db, 1, db.Now().Truncate(time.Second).Add(-time.Minute), cron.OverlapCancel)[0]
	c := fireClaim(row)
	first := fire(t, db, c)[0]
	run := claimJob(t, db, first.Made)
	q := putQueue(t, db, job.DefaultTenant, "m.child", 2)
	var children []job.Enqueue
	for range 3 {
		child := aJob(q)
		child.Parent, child.ParentRun = job.ID(first.Made), run
		children = append(children, child)
	}
	made := enqueue(t, db, children...)
	childRun := claimJob(t, db, cron.Made(made[0].ID))
	c = next(c)
	f := fire(t, db, c)[0]
	told := map[cron.RunID]bool{}
	for _, r := range f.Cancelled {
		told[r.Run] = r.Controller == "c2"
	}
	if len(f.Cancelled) != 2 || !told[run] || !told[childRun] {
		t.Errorf("told %+v, want the runs %s and %s", f.Cancelled, run, childRun)
	}
	for i, want := range []job.State{job.Running, job.Cancelled, job.Cancelled} {
		if j, err := db.GetJob(t.Context(), made[i].ID); err != nil || j.State != want || !j.CancelAsked {
			t.Errorf("child %d: %+v, %v; want %s", i, j, err, want)
		}
	}
}

func TestTheFireMigrationGoesBack(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	row := firing(t, db, 1, db.Now().Truncate(time.Second), cron.OverlapCancel)[0]
	fire(t, db, fireClaim(row))
	for {
		m, err := store.MigrateDown(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		if m.Version == 3 {
			break
		}
	}
	var overlap string
	var ledger int
	db.Scan("SELECT overlap::text, (SELECT count(*) FROM carillon.runs) FROM carillon.cron_jobs", nil, &overlap, &ledger)
	if overlap != "skip" || ledger != 0 {
		t.Errorf("overlap %s, %d ledger rows", overlap, ledger)
	}
	if _, err := store.Migrate(t.Context(), db.URL); err != nil {
		t.Fatal(err)
	}
	db.Exec("UPDATE carillon.cron_jobs SET overlap = 'allow'")
	if err := store.CheckSchema(t.Context(), db.URL); err != nil {
		t.Error(err)
	}
}
