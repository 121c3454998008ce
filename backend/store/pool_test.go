package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store"
	"carillon/backend/store/storetest"
)

// TestBehindPooler runs the life of cron jobs and jobs through a pgbouncer that gives each transaction another
// connection: one that refuses settings at the start, and one that lets them vanish.
func TestBehindPooler(t *testing.T) {
	for name, more := range map[string][]string{
		"refuses settings": nil,
		"drops settings": {"ignore_startup_parameters = statement_timeout, lock_timeout, idle_in_transaction_session_timeout, jit, tcp_user_timeout, " +
			"tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count, enable_seqscan, enable_bitmapscan, enable_hashjoin, plan_cache_mode, random_page_cost"},
	} {
		t.Run(name, func(t *testing.T) {
			db := storetest.OpenPooled(t, more...)
			if err := store.CheckSchema(t.Context(), db.Way); err != nil {
				t.Fatal(err)
			}
			db.Controller("c1", time.Hour)
			var all sync.WaitGroup
			slot := db.Now().Truncate(time.Second)
			rows := db.Deploy(60, slot)
			for part := range 6 { // all at once, so that the connections change hands
				all.Go(func() { cronThrough(t, db, rows[part*10:part*10+10]) })
				all.Go(func() { jobsThrough(t, db, fmt.Sprintf("t%d", part)) })
			}
			all.Wait()
			var waits, lost int
			db.Scan("SELECT count(*) FROM carillon.cron_jobs WHERE state <> 'idle'", nil, &waits)
			db.Scan("SELECT count(*) FROM carillon.jobs", nil, &lost)
			if waits+lost != 0 {
				t.Errorf("%d cron jobs execute still, %d jobs are live", waits, lost)
			}
		})
	}
}

func cronThrough(t *testing.T, db storetest.DB, rows []cron.Job) {
	ctx := context.Background()
	var ends []cron.End
	for _, j := range rows {
		c := claim(j)
		won, err := db.StartCronJobs(ctx, "c1", time.Minute, []cron.Claim{c})
		if err != nil || len(won) != 1 {
			t.Errorf("claim: %v, %v", won, err)
			return
		}
		ends = append(ends, cron.End{JobID: j.ID, RunID: c.RunID, Slot: c.Slot, Verdict: cron.Succeeded, Version: j.Version})
	}
	done, err := db.EndCronJobs(ctx, ends)
	for _, d := range done {
		if !d.Accepted {
			t.Errorf("end %+v", d)
		}
	}
	if err != nil || len(done) != len(rows) {
		t.Errorf("ends: %d, %v", len(done), err)
	}
}

func jobsThrough(t *testing.T, db storetest.DB, tenant string) {
	ctx := context.Background()
	queues, err := db.PutQueues(ctx, []job.Queue{{Tenant: tenant, Ref: "m.work", Lane: 2}})
	if err != nil || len(queues) != 1 {
		t.Errorf("queues %v, %v", queues, err)
		return
	}
	var batch []job.Enqueue
	for i := range 20 {
		n := job.Complete(job.New{Tenant: tenant, Ref: "m.work", Priority: 500, Payload: []byte(`{"n":1}`), Tags: []string{"a", "b"}})
		if i%2 == 0 {
			n.Idempotency = fmt.Sprint(i)
		}
		batch = append(batch, job.Enqueue{New: n, Queue: queues[0].ID})
	}
	put, err := db.EnqueueJobs(ctx, "c1", time.Minute, batch)
	if err != nil {
		t.Errorf("enqueue: %v", err)
		return
	}
	var claims []job.Claim
	for _, p := range put {
		claims = append(claims, job.Claim{ID: p.N, Run: newRun(), Deployment: 1})
	}
	won, _, err := db.ClaimJobs(ctx, "c1", time.Minute, claims, "")
	if err != nil || len(won) != len(claims) {
		t.Errorf("claimed %d, %v", len(won), err)
		return
	}
	var ends []job.End
	for _, w := range won {
		ends = append(ends, job.End{ID: w.N, Run: w.Run, Outcome: job.Outcome{Verdict: cron.Succeeded, Output: []byte(`1`)}, Step: job.Step{State: job.Succeeded, Counted: true}})
	}
	done, err := db.FinishJobs(ctx, ends)
	if err != nil || len(done) != len(ends) {
		t.Errorf("finished %d, %v", len(done), err)
	}
	got, err := db.GetJob(ctx, put[0].ID)
	if err != nil || got.State != job.Succeeded || string(got.Output) != "1" || len(got.Tags) != 2 {
		t.Errorf("job %+v, %v", got, err)
	}
}
