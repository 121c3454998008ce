package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

func TestPauseCoversLaterQueues(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		a, b := putQueue(t, db, "t1", "m.a", 2), putQueue(t, db, "t1", "m.b", 2)
		ids, others := ready(t, db, a, 2), ready(t, db, b, 1)
		must := func(ids []int32, err error) []int32 {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(ids)
			return ids
		}
		if got := must(db.PauseQueues(ctx, "", "m.a", "why")); !slices.Equal(got, []int32{a.ID}) {
			t.Fatalf("paused %v", got)
		}
		if won := claimAll(t, db, append(ids, others...)...); len(won) != 1 || won[0].ID != others[0] {
			t.Fatalf("won %+v", won)
		}
		later := putQueue(t, db, "t2", "m.a", 4)
		if !later.Paused || putQueue(t, db, "t2", "m.b", 4).Paused {
			t.Error("a queue that came later is not as its pause says")
		}
		// A job that would start at once waits, too.
		e := aJob(later)
		e.Run = newRun()
		if got := enqueue(t, db, e)[0]; !got.Started.IsZero() || getJob(t, db, got.ID).State != job.Ready {
			t.Errorf("started in a paused queue: %+v", got)
		}
		must(db.PauseQueues(ctx, "t2", "", ""))
		resume := func(tenant, ref string, want job.Resumed) {
			t.Helper()
			if got, err := db.ResumeQueues(ctx, tenant, ref); err != nil || got != want {
				t.Errorf("resumed tenant %q, ref %q: %+v, %v, want %+v", tenant, ref, got, err, want)
			}
		}
		resume("", "m.a", job.Resumed{Queues: 1, WasPaused: true, Held: 1}) // the tenant's pause covers the other
		resume("", "m.a", job.Resumed{Held: 1})
		if queues, err := db.ListQueues(ctx); err != nil || slices.ContainsFunc(queues, func(q job.Queue) bool { return q.ID == a.ID && q.Paused }) {
			t.Errorf("queues %+v, %v", queues, err)
		}
		if p, err := db.ListPauses(ctx); err != nil || len(p) != 1 || p[0].Tenant != "t2" {
			t.Errorf("pauses %+v, %v", p, err)
		}
		if won := claimAll(t, db, ids...); len(won) != 2 {
			t.Errorf("won %+v", won)
		}
		resume("t2", "", job.Resumed{Queues: 2, WasPaused: true})
		resume("t2", "", job.Resumed{})
		must(db.PauseQueues(ctx, "", "m.none", "early"))
		resume("", "m.none", job.Resumed{WasPaused: true})
		must(db.PauseQueues(ctx, "", "", "all"))
		queues, err := db.ListQueues(ctx)
		if err != nil || len(queues) != 4 || slices.ContainsFunc(queues, func(q job.Queue) bool { return !q.Paused }) {
			t.Errorf("queues %+v, %v", queues, err)
		}
	})
}

// A queue that is made while a pause or a limit comes is covered by it.
func TestQueuesMadeWhilePausing(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for n := range 30 {
		wg.Go(func() {
			<-begin
			if _, err := db.PutQueues(context.Background(), []job.Queue{{Tenant: fmt.Sprint("t", n), Ref: "m.v", Lane: n % 5}, {Tenant: "t", Ref: "m.v"}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() {
		<-begin
		if _, err := db.PauseQueues(context.Background(), "", "m.v", ""); err != nil {
			t.Error(err)
		}
		if err := db.PutLimit(context.Background(), "m.v", 3); err != nil {
			t.Error(err)
		}
	})
	close(begin)
	wg.Wait()
	var queues, covered int
	db.Scan("SELECT count(*), count(*) FILTER (WHERE paused_at IS NOT NULL AND limited) FROM carillon.queues", nil, &queues, &covered)
	if queues != 31 || covered != 31 {
		t.Errorf("%d queues, %d covered", queues, covered)
	}
}

// limits reads a verb's count and the truth, in one snapshot.
func limits(db storetest.DB, ref string) (counted, running, most int) {
	db.Scan(`SELECT l.running, (SELECT count(*) FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE q.ref = l.ref AND j.state = 'running'), l.max_running
		FROM carillon.limits l WHERE l.ref = $1`, []any{ref}, &counted, &running, &most)
	return counted, running, most
}

func TestLimitHolds(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		ids := ready(t, db, q, 10)
		before := claimAll(t, db, ids[0], ids[1]) // begun before there was a limit
		if err := db.PutLimit(ctx, "m.v", 4); err != nil {
			t.Fatal(err)
		}
		if counted, running, _ := limits(db, "m.v"); counted != 2 || running != 2 {
			t.Fatalf("counted %d, running %d", counted, running)
		}
		if won := claimAll(t, db, ids...); len(won) != 0 {
			t.Fatalf("claimed past the limit: %d", len(won))
		}
		claims := claimOf(ids[9], ids[8], ids[0], ids[7], ids[6])
		won, over, err := db.ClaimJobs(ctx, "c1", time.Minute, claims, "m.v")
		if err != nil || len(won) != 2 || won[0].ID != ids[8] || won[1].ID != ids[9] || !won[0].Limited || !slices.Equal(over, claims[2:]) {
			t.Fatalf("won %+v, over %+v, %v; the first in the order given go first", won, over, err)
		}
		if won, over, err := db.ClaimJobs(ctx, "c1", time.Minute, claims, "m.v"); err != nil || len(won) != 0 || len(over) != 5 {
			t.Fatalf("won %+v, over %+v, %v", won, over, err)
		}
		e := aJob(q)
		e.Run = newRun()
		if got := enqueue(t, db, e)[0]; !got.Started.IsZero() {
			t.Error("inserted running past the limit")
		}
		later := putQueue(t, db, "t2", "m.v", 4)
		if later.Limit != 4 || later.Running != 4 {
			t.Errorf("a queue that came later: %+v", later)
		}
		other := putQueue(t, db, "t", "m.other", 2)
		if won := claimAll(t, db, ready(t, db, other, 3)...); len(won) != 3 {
			t.Error("another verb is held back")
		}
		// Each way of an end gives its place back.
		finish(t, db, endOf(before[0], succeeded))
		retry(t, db, endOf(before[1], failed), endOf(won[0], job.Outcome{Requeue: true}))
		db.CancelJob(ctx, won[1].ID, "")
		if counted, running, _ := limits(db, "m.v"); counted != 1 || running != 1 {
			t.Errorf("counted %d, running %d", counted, running)
		}
		retry(t, db, endOf(won[1], failed))
		finish(t, db, endOf(before[0], succeeded), endOf(won[0], succeeded)) // late: nothing is given back twice
		if counted, running, _ := limits(db, "m.v"); counted != 0 || running != 0 {
			t.Errorf("counted %d, running %d", counted, running)
		}
		db.Exec("UPDATE carillon.limits SET running = 3")
		if n, err := db.MendLimits(ctx, ""); err != nil || n != 1 {
			t.Errorf("mended %d, %v", n, err)
		}
		if counted, _, _ := limits(db, "m.v"); counted != 0 {
			t.Errorf("counted %d after the mending", counted)
		}
		if err := db.DropLimit(ctx, "m.v"); err != nil {
			t.Fatal(err)
		}
		if won := claimAll(t, db, ids[2:6]...); len(won) != 4 {
			t.Errorf("without a limit won %d", len(won))
		}
	})
}
