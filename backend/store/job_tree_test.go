package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// runningJob enqueues a job and claims it.
func runningJob(t *testing.T, db storetest.DB, q job.Queue) job.Claimed {
	t.Helper()
	return claimAll(t, db, ready(t, db, q, 1)...)[0]
}

// childOf is a job that a run makes.
func childOf(q job.Queue, parent job.Claimed) job.Enqueue {
	e := aJob(q)
	e.Parent, e.ParentRun = parent.ID, parent.Run
	return e
}

func children(t *testing.T, db storetest.DB, q job.Queue, parent job.Claimed, n int) []job.ID {
	t.Helper()
	var ids []job.ID
	for _, e := range enqueue(t, db, slices.Repeat([]job.Enqueue{childOf(q, parent)}, n)...) {
		if e.Err != nil || e.N == 0 {
			t.Fatalf("child %+v", e)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

var awaits = job.Outcome{Verdict: cron.Succeeded, Await: true}

// wrongCounts are jobs whose count of children is not the truth, and those that wait for nobody: in every snapshot none.
func wrongCounts(db storetest.DB) (wrong, wedged int) {
	db.Scan(`SELECT count(*) FILTER (WHERE p.children <> (SELECT count(*) FROM carillon.jobs c WHERE c.parent_id = p.id)),
		count(*) FILTER (WHERE p.state = 'blocked' AND p.children = 0) FROM carillon.jobs p`, nil, &wrong, &wedged)
	return wrong, wedged
}

func right(t *testing.T, db storetest.DB) {
	t.Helper()
	if wrong, wedged := wrongCounts(db); wrong != 0 || wedged != 0 {
		t.Fatalf("%d counts of children are wrong, %d jobs wait for nobody", wrong, wedged)
	}
}

func TestAParentWaitsForItsChildren(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q, kids := putQueue(t, db, "t", "m.v", 2), putQueue(t, db, "t", "m.child", 3)
		p := runningJob(t, db, q)
		ids := children(t, db, kids, p, 3)
		if j := getJob(t, db, p.ID); j.Children != 3 || j.State != job.Running {
			t.Fatalf("parent %+v", j)
		}
		if j := getJob(t, db, ids[0]); j.Parent != p.ID {
			t.Errorf("child %+v", j)
		}
		if list, err := db.ListJobs(t.Context(), job.Filter{Parent: p.ID}, job.Cursor{}, 10); err != nil || len(list) != 3 || list[2].ID != ids[0] || list[2].Parent != p.ID {
			t.Errorf("live children %+v, %v", list, err)
		}
		if done := retry(t, db, endOf(p, awaits)); !done[0].Accepted || done[0].State != job.Blocked {
			t.Fatalf("done %+v", done)
		}
		if j := getJob(t, db, p.ID); j.State != job.Blocked || j.Attempt != 0 || len(j.Errors) != 0 || !j.Run.IsZero() {
			t.Errorf("parent %+v", j)
		}
		if won := claimAll(t, db, p.ID); len(won) != 0 || len(window(t, db, job.Cut{Queue: q.ID}, 10)) != 0 {
			t.Fatalf("a blocked job is offered: %+v", won)
		}
		won := claimAll(t, db, ids...)
		if len(won) != 3 || won[0].Parent != p.N {
			t.Fatalf("won %+v", won)
		}
		// A failure that is retried is no end; a death, a success and a cancel are.
		if done := retry(t, db, endOf(won[0], failed)); done[0].State != job.Ready || done[0].Woken.ID != 0 {
			t.Errorf("done %+v", done)
		}
		db.Exec("UPDATE carillon.jobs SET due_at = now() - interval '1 second' WHERE state = 'ready'")
		again := claimAll(t, db, ids[0])[0]
		done := finish(t, db, endOf(again, job.Outcome{Verdict: cron.Failed, Final: true}), endOf(won[1], succeeded))
		if !done[0].Accepted || !done[1].Accepted || done[0].Woken.ID != 0 || done[1].Woken.ID != 0 || done[0].Parent != p.N {
			t.Errorf("done %+v", done)
		}
		right(t, db)
		last := finish(t, db, endOf(won[2], succeeded))[0]
		if w := last.Woken; w.ID != p.N || w.Queue != q.ID || int64(w.Shard) != p.N%1021 || w.Priority != 500 || db.Now().Sub(w.Due).Abs() > time.Minute {
			t.Errorf("last %+v", last)
		}
		if w := window(t, db, job.Cut{Queue: q.ID}, 10); len(w) != 1 || w[0].ID != p.N || !w[0].Due.Equal(last.Woken.Due) {
			t.Errorf("window %+v, woken %+v", w, last.Woken)
		}
		if again := finish(t, db, endOf(won[2], succeeded))[0]; !again.Accepted || !again.Repeated {
			t.Errorf("repeated %+v", again)
		}
		second := claimAll(t, db, p.ID)
		if len(second) != 1 || second[0].Attempt != 1 {
			t.Fatalf("the parent again: %+v", second)
		}
		// Without children it comes again, after a rest: it would turn in a circle otherwise.
		before := db.Now()
		if done := retry(t, db, endOf(second[0], awaits)); done[0].State != job.Ready || done[0].Due.Before(before.Add(job.MinRest)) || done[0].Due.After(db.Now().Add(job.MinRest)) {
			t.Errorf("done %+v; it began at %s", done, before)
		}
		db.Exec("UPDATE carillon.jobs SET due_at = now() WHERE id = $1", p.N)
		if again := claimAll(t, db, p.ID); len(again) != 1 || again[0].Attempt != 1 {
			t.Errorf("again %+v", again)
		}
		list, err := db.ListEndedJobs(t.Context(), job.Filter{Parent: p.ID}, job.Cursor{}, 10)
		if err != nil || len(list) != 3 || list[0].Parent != p.ID {
			t.Errorf("children %+v, %v", list, err)
		}
		if list, err := db.ListEndedJobs(t.Context(), job.Filter{Parent: job.ID{N: p.N, Salt: p.Salt + 1}}, job.Cursor{}, 10); err != nil || len(list) != 0 {
			t.Errorf("of a guessed parent: %+v, %v", list, err)
		}
	})
}

func TestOnlyTheParentsRunMakesChildren(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		p := runningJob(t, db, q)
		refused := func(why string, e job.Enqueue) {
			t.Helper()
			out := enqueue(t, db, aJob(q), e, aJob(q)) // its neighbours are in
			field := (*job.FieldError)(nil)
			if out[0].Err != nil || out[2].Err != nil || !errors.As(out[1].Err, &field) || field.Field != "parent" || !errors.Is(out[1].Err, cron.ErrPrecond) || out[1].N != 0 {
				t.Errorf("%s: %+v", why, out)
			}
		}
		guessed, other, waiting := childOf(q, p), childOf(q, p), childOf(q, p)
		guessed.Parent.Salt++
		other.ParentRun = newRun()
		waiting.Parent = ready(t, db, q, 1)[0]
		refused("a guessed id", guessed)
		refused("another run", other)
		refused("a job that waits", waiting)
		retry(t, db, endOf(p, job.Outcome{Requeue: true}))
		refused("a run that is over", childOf(q, p))
		p = claimAll(t, db, p.ID)[0]
		keyed := childOf(q, p)
		keyed.Idempotency = "k"
		first := enqueue(t, db, keyed)[0]
		if second := enqueue(t, db, keyed, keyed); !second[0].Existing || second[0].ID != first.ID || !second[1].Existing {
			t.Errorf("the same child twice: %+v", second)
		}
		if j := getJob(t, db, p.ID); j.Children != 1 {
			t.Errorf("%d children, want 1: what exists is not counted again", j.Children)
		}
		// Started at once, where a runner is free.
		at := childOf(q, p)
		at.Run, at.Deployment = newRun(), 7
		if out := enqueue(t, db, at)[0]; out.Err != nil || out.Started.IsZero() {
			t.Errorf("started %+v", out)
		} else {
			c := job.Claimed{ID: out.ID, Run: at.Run, Attempt: 1, Parent: p.N}
			finish(t, db, endOf(c, succeeded))
		}
		right(t, db)
		if _, err := db.CancelJob(t.Context(), p.ID, ""); err != nil {
			t.Fatal(err)
		}
		refused("a parent that is cancelled", childOf(q, p))
		finish(t, db, endOf(p, succeeded))
		refused("a parent that has ended", childOf(q, p))
		right(t, db)
	})
}

// An end that forgot whose child the job is changes nothing: it would leave the parent waiting for ever.
func TestAChildIsEndedAsOne(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	p := runningJob(t, db, q)
	c := claimAll(t, db, children(t, db, q, p, 1)...)[0]
	forgetful := endOf(c, succeeded)
	forgetful.Parent = 0
	if done := finish(t, db, forgetful); done[0].Accepted {
		t.Errorf("done %+v", done)
	}
	if done := finish(t, db, endOf(c, succeeded)); !done[0].Accepted {
		t.Errorf("done %+v", done)
	}
	// Sweeps know the parent.
	c = claimAll(t, db, children(t, db, q, p, 1)...)[0]
	db.Controller("sweeper", time.Minute)
	lost, err := db.FindLostJobs(t.Context(), "sweeper", lease, silence, 10)
	own, err2 := db.FindOwnJobs(t.Context(), "c1", 0, 0, 10)
	if err != nil || err2 != nil || len(lost) != 2 || len(own) != 2 || !slices.ContainsFunc(lost, func(l job.Lost) bool { return l.ID == c.ID && l.Parent == p.N }) ||
		!slices.ContainsFunc(own, func(o job.Claimed) bool { return o.ID == c.ID && o.Parent == p.N }) {
		t.Errorf("lost %+v, own %+v, %v, %v", lost, own, err, err2)
	}
}

// Two last children that end in the same instant: exactly one wakes the parent. Forced by the parent's lock that both
// wait for, then raced.
func TestTwoLastChildrenWakeOnce(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		for n := range 60 {
			p := runningJob(t, db, q)
			won := claimAll(t, db, children(t, db, q, p, 2)...)
			retry(t, db, endOf(p, awaits))
			var hold lockHold
			if n < 5 {
				hold = holdJob(t, db, p.ID)
			}
			begin := make(chan struct{})
			var wg sync.WaitGroup
			woken := make(chan job.Waiting, 2)
			for i := range won {
				wg.Go(func() {
					<-begin
					var w job.Waiting
					if n%3 == 2 && i == 0 { // one of them by a cancel in its run
						if _, err := db.CancelJob(context.Background(), won[i].ID, ""); err != nil {
							t.Error(err)
						}
					}
					done, err := db.FinishJobs(context.Background(), []job.End{endOf(won[i], succeeded)})
					if err != nil || len(done) != 1 || !done[0].Accepted {
						t.Error(done, err)
						return
					}
					if w = done[0].Woken; w.ID != 0 {
						woken <- w
					}
				})
			}
			close(begin)
			hold.release(t, db, 2)
			wg.Wait()
			j := getJob(t, db, p.ID)
			if len(woken) != 1 || (<-woken).ID != p.N || j.State != job.Ready || j.Children != 0 {
				t.Fatalf("round %d: %d woke it, job %+v", n, len(woken)+1, j)
			}
		}
	})
}

// lockHold is a row that is locked by somebody else until others wait for it.
type lockHold struct{ end func() }

func holdJob(t *testing.T, db storetest.DB, id job.ID) lockHold {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.jobs WHERE id = $1 FOR UPDATE", id.N); err != nil {
		t.Fatal(err)
	}
	return lockHold{func() { tx.Rollback(context.Background()) }}
}

func (h lockHold) release(t *testing.T, db storetest.DB, waiters int) {
	t.Helper()
	if h.end == nil {
		return
	}
	waitFor(t, func() bool {
		var waiting int
		db.Scan("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", nil, &waiting)
		return waiting >= waiters
	})
	h.end()
}

// The parent's await against its last child's end, and a new child against the parent's end.
func TestParentAgainstChild(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		blocked, at, late, in := 0, 0, 0, 0
		for n := range 80 {
			p := runningJob(t, db, q)
			c := claimAll(t, db, children(t, db, q, p, 1)...)[0]
			var hold lockHold
			if n < 8 {
				hold = holdJob(t, db, p.ID)
			}
			begin := make(chan struct{})
			var wg sync.WaitGroup
			var awaited, ended job.Ended
			var made job.Enqueued
			one := func(f func() error) {
				wg.Go(func() {
					<-begin
					if err := f(); err != nil {
						t.Error(err)
					}
				})
			}
			if n%2 == 0 {
				one(func() error {
					done, err := db.RetryJobs(context.Background(), []job.End{endOf(p, awaits)})
					awaited = done[0]
					return err
				})
				one(func() error {
					done, err := db.FinishJobs(context.Background(), []job.End{endOf(c, succeeded)})
					ended = done[0]
					return err
				})
			} else {
				one(func() error {
					done, err := db.FinishJobs(context.Background(), []job.End{endOf(p, succeeded)})
					ended = done[0]
					return err
				})
				one(func() error {
					out, err := db.EnqueueJobs(context.Background(), "c1", time.Minute, []job.Enqueue{childOf(q, p)})
					made = out[0]
					return err
				})
			}
			close(begin)
			hold.release(t, db, 2)
			wg.Wait()
			right(t, db)
			if n%2 == 1 {
				switch {
				case made.Err == nil && made.N != 0:
					in++
				case errors.Is(made.Err, cron.ErrPrecond):
					late++
				default:
					t.Fatalf("made %+v", made)
				}
				continue
			}
			if j := getJob(t, db, p.ID); j.State != job.Ready || !awaited.Accepted || !ended.Accepted || (awaited.State == job.Blocked) != (ended.Woken.ID == p.N) {
				t.Fatalf("awaited %+v, ended %+v, job %+v", awaited, ended, j)
			}
			if awaited.State == job.Blocked {
				blocked++
			} else {
				at++
			}
		}
		t.Logf("blocked and woken %d, ready at once %d; child made %d, too late %d", blocked, at, in, late)
	})
}
