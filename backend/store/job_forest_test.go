package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// Eight at once let trees grow, end in every way there is, be cancelled and re-driven: in every snapshot the counts of
// children are the truth, nobody waits for nobody, and at last nothing is left.
func TestForestUnderEight(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		f := forest{db: db, q: putQueue(t, db, "t", "m.v", 2)}
		f.left.Store(500)
		ready(t, db, f.q, 20)
		stop := make(chan struct{})
		var workers, watch sync.WaitGroup
		watch.Go(func() {
			for {
				if wrong, wedged := wrongCounts(db); wrong != 0 || wedged != 0 {
					t.Errorf("%d counts of children are wrong, %d jobs wait for nobody", wrong, wedged)
				}
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
			}
		})
		for n := range 8 {
			workers.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(n), 11))
				for live, began := 1, time.Now(); live > 0; {
					if time.Since(began) > time.Minute {
						t.Error("jobs are left after a minute")
						return
					}
					if err := f.turn(rnd); err != nil {
						t.Error(err)
						return
					}
					db.Scan("SELECT count(*) FROM carillon.jobs", nil, &live)
				}
			})
		}
		workers.Wait()
		close(stop)
		watch.Wait()
		var jobs, twice int
		db.Scan("SELECT count(*), count(*) - count(DISTINCT id) FROM carillon.job_history WHERE NOT redriven", nil, &jobs, &twice)
		if want := 20 + int(f.made.Load()); jobs != want || twice != 0 || f.woken.Load() == 0 || f.felled.Load() == 0 || f.driven.Load() == 0 {
			t.Errorf("%d of %d ended, %d twice", jobs, want, twice)
		}
		t.Logf("made %d, woken %d, felled %d, re-driven %d", f.made.Load(), f.woken.Load(), f.felled.Load(), f.driven.Load())
	})
}

type forest struct {
	db                          storetest.DB
	q                           job.Queue
	left                        atomic.Int64 // children that may still be made
	made, woken, felled, driven atomic.Int64
}

// turn claims some jobs and ends them, and now and then cancels or re-drives one.
func (f *forest) turn(rnd *rand.Rand) error {
	ctx := context.Background()
	waiting, _, err := f.db.FetchWindow(ctx, []job.Cut{{Queue: f.q.ID}}, allShards, 0, 50)
	if err != nil {
		return err
	}
	rnd.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	var claims []job.Claim
	for _, w := range waiting[:min(len(waiting), 1+rnd.IntN(6))] {
		claims = append(claims, job.Claim{ID: w.ID, Run: newRun(), Deployment: 7})
	}
	won, _, err := f.db.ClaimJobs(ctx, "c1", time.Minute, claims, "")
	if err != nil {
		return err
	}
	var done, again []job.End
	for _, c := range won {
		end, err := f.run(ctx, rnd, c)
		if err != nil {
			return err
		}
		if end.Step.State.Ended() {
			done = append(done, end)
		} else {
			again = append(again, end)
		}
	}
	ended, err := f.db.FinishJobs(ctx, done)
	retried, err2 := f.db.RetryJobs(ctx, again)
	for _, e := range append(ended, retried...) {
		if e.Woken.ID != 0 {
			f.woken.Add(1)
		}
	}
	return errors.Join(err, err2, f.meddle(ctx, rnd))
}

func (f *forest) run(ctx context.Context, rnd *rand.Rand, c job.Claimed) (job.End, error) {
	o := []job.Outcome{succeeded, succeeded, {Verdict: cron.Failed, After: time.Millisecond}, {Verdict: cron.Failed, Final: true}, {Requeue: true}, {Verdict: cron.Cancelled}, awaits}[rnd.IntN(7)]
	if n := 1 + rnd.IntN(3); rnd.IntN(2) == 0 && f.left.Add(int64(-n)) > 0 {
		batch := []job.Enqueue{childOf(f.q, c), childOf(f.q, c), childOf(f.q, c)}[:n]
		out, err := f.db.EnqueueJobs(ctx, "c1", time.Minute, batch)
		if err != nil {
			return job.End{}, err
		}
		for _, e := range out {
			if e.Err == nil {
				f.made.Add(1)
			} else if !errors.Is(e.Err, cron.ErrPrecond) {
				return job.End{}, e.Err
			}
		}
		o = awaits
	}
	if rnd.IntN(20) == 0 {
		cancelled, err := f.db.CancelJob(ctx, c.ID, "")
		f.felled.Add(int64(cancelled.Tree.Ended))
		if err != nil {
			return job.End{}, err
		}
	}
	return endOf(c, o), nil
}

// meddle cancels some live job, or makes a dead one live again, while there is something to be made.
func (f *forest) meddle(ctx context.Context, rnd *rand.Rand) error {
	var id job.ID
	pick := "SELECT id, salt FROM carillon.jobs ORDER BY random() LIMIT 1"
	dead := rnd.IntN(2) == 0
	if dead {
		pick = "SELECT id, salt FROM carillon.job_history WHERE state = 'failed' AND NOT redriven ORDER BY random() LIMIT 1"
	}
	if rnd.IntN(4) > 0 || f.left.Load() < 0 || f.db.Pool.QueryRow(ctx, pick).Scan(&id.N, &id.Salt) != nil {
		return nil
	}
	if !dead {
		c, err := f.db.CancelJob(ctx, id, "")
		f.felled.Add(int64(c.Tree.Ended))
		if errors.Is(err, cron.ErrPrecond) {
			err = nil
		}
		return err
	}
	_, err := f.db.RedriveJob(ctx, id)
	if err == nil {
		f.driven.Add(1)
	}
	if errors.Is(err, cron.ErrPrecond) {
		err = nil
	}
	return err
}
