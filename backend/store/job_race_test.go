package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

func TestCancel(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		ids := ready(t, db, q, 4)
		if c, err := db.CancelJob(ctx, ids[0], "not needed \x00"); err != nil || c.State != job.Cancelled {
			t.Fatalf("%+v, %v", c, err)
		}
		if j := getJob(t, db, ids[0]); j.State != job.Cancelled || len(j.Errors) != 1 || j.Errors[0].Text != "not needed \uFFFD" {
			t.Errorf("job %+v", j)
		}
		if _, err := db.CancelJob(ctx, ids[0], ""); !errors.Is(err, cron.ErrPrecond) || !strings.Contains(err.Error(), "cancelled") {
			t.Errorf("a second time: %v", err)
		}
		if _, err := db.CancelJob(ctx, job.ID{N: ids[1].N, Salt: ids[1].Salt + 1}, ""); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("a guessed id: %v", err)
		}
		won := claimAll(t, db, ids...)
		if len(won) != 3 {
			t.Fatalf("won %d", len(won))
		}
		for i, c := range won {
			got, err := db.CancelJob(ctx, c.ID, "")
			if err != nil || got.State != job.Running || got.Run != c.Run || got.Controller != "c1" {
				t.Fatalf("%+v, %v", got, err)
			}
			if j := getJob(t, db, c.ID); j.State != job.Running || !j.CancelAsked {
				t.Fatalf("job %+v", j)
			}
			// Whatever the run came to, the job does not come again; a success stays one.
			var done []job.Ended
			want := job.Cancelled
			switch i {
			case 0:
				done = retry(t, db, endOf(c, failed))
			case 1:
				done = finish(t, db, endOf(c, job.Outcome{Verdict: cron.Failed, Text: "no", Final: true}))
			case 2:
				done, want = finish(t, db, endOf(c, succeeded)), job.Succeeded
			}
			if j := getJob(t, db, c.ID); len(done) != 1 || !done[0].Accepted || done[0].State != want || j.State != want {
				t.Errorf("%d: done %+v, job %s, want %s", i, done, j.State, want)
			}
			if i == 0 {
				if again := retry(t, db, endOf(c, failed)); !again[0].Accepted || !again[0].Repeated {
					t.Errorf("repeated: %+v", again)
				}
			}
		}
	})
}

// A cancel in the instant of a claim comes before it or after it: the job is cancelled and not claimed, or claimed and
// the cancel is noted with the run. Forced by a lock that both wait for, then raced many times.
func TestCancelAgainstClaim(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		ids := ready(t, db, q, 60)
		before, after := 0, 0
		for n, id := range ids {
			forced := n < 4
			var release func()
			if forced {
				tx, err := db.Pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.jobs WHERE id = $1 FOR UPDATE", id.N); err != nil {
					t.Fatal(err)
				}
				release = func() { tx.Rollback(context.Background()) }
			}
			begin := make(chan struct{})
			var wg sync.WaitGroup
			var won []job.Claimed
			var cancelling job.Cancelling
			claims := func() {
				<-begin
				var err error
				if won, _, err = db.ClaimJobs(context.Background(), "c1", time.Minute, claimOf(id), ""); err != nil {
					t.Error(err)
				}
			}
			cancels := func() {
				<-begin
				var err error
				if cancelling, err = db.CancelJob(context.Background(), id, ""); err != nil {
					t.Error(err)
				}
			}
			if n%2 == 0 {
				claims, cancels = cancels, claims
			}
			wg.Go(claims)
			wg.Go(cancels)
			close(begin)
			if forced {
				waitFor(t, func() bool {
					var waiting int
					db.Scan("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", nil, &waiting)
					return waiting == 2
				})
				release()
			}
			wg.Wait()
			j := getJob(t, db, id)
			switch {
			case len(won) == 0 && cancelling.State == job.Cancelled && j.State == job.Cancelled:
				before++
			case len(won) == 1 && cancelling.State == job.Running && cancelling.Run == won[0].Run && j.State == job.Running && j.CancelAsked:
				after++
			default:
				t.Fatalf("won %+v, cancel %+v, job %s", won, cancelling, j.State)
			}
		}
		t.Logf("%d cancelled before the claim, %d after it", before, after)
	})
}

// Twelve at once claim and end jobs of a limited verb in every way there is, others cancel and sweep: at every instant
// the count is the truth and within the limit.
func TestLimitUnderTwelve(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		const most, workers, jobs = 7, 12, 400
		ctx := t.Context()
		queues := []job.Queue{putQueue(t, db, "t1", "m.v", 2), putQueue(t, db, "t2", "m.v", 4)}
		if err := db.PutLimit(ctx, "m.v", most); err != nil {
			t.Fatal(err)
		}
		db.Controller("sweeper", time.Minute)
		db.Controller("alive", time.Minute)
		var ids []job.ID
		for _, q := range queues {
			ids = append(ids, ready(t, db, q, jobs/2)...)
		}
		stop := make(chan struct{})
		var ended, lost, cancelled, reached atomic.Int64
		var wg, watch sync.WaitGroup
		watch.Go(func() {
			for {
				counted, running, _ := limits(db, "m.v")
				if counted != running || running > most {
					t.Errorf("counted %d, running %d, at most %d", counted, running, most)
				}
				if running == most {
					reached.Add(1)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		watch.Go(func() { // the sweep, as the engine does it
			for {
				db.Exec("UPDATE carillon.controllers SET heartbeat_at = now()")
				found, err := db.FindLostJobs(context.Background(), "sweeper", lease, silence, 100)
				if err != nil {
					t.Error(err)
				}
				for _, l := range found {
					end := endOf(l.Claimed, job.Outcome{Verdict: cron.Lost, After: time.Millisecond})
					act := db.RetryJobs
					if end.Step.State.Ended() {
						act = db.FinishJobs
					}
					if _, err := act(context.Background(), []job.End{end}); err != nil {
						t.Error(err)
					}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		for n := range workers {
			rnd := rand.New(rand.NewPCG(uint64(n), 7))
			wg.Go(func() {
				for live, began := 1, time.Now(); live > 0; {
					if time.Since(began) > 30*time.Second {
						t.Error("jobs are left after 30 s")
						return
					}
					pick := make([]job.ID, 1+rnd.IntN(6))
					for i := range pick {
						pick[i] = ids[rnd.IntN(len(ids))]
					}
					slices.SortFunc(pick, func(a, b job.ID) int { return int(a.N - b.N) })
					pick = slices.Compact(pick)
					rnd.Shuffle(len(pick), func(i, j int) { pick[i], pick[j] = pick[j], pick[i] })
					controller := "alive"
					if rnd.IntN(5) == 0 {
						controller = "gone" // never beats: the sweep frees its runs
					}
					won, _, err := db.ClaimJobs(context.Background(), controller, time.Minute, claimOf(pick...), "m.v")
					if err != nil {
						t.Error(err)
						return
					}
					var done, again []job.End
					for _, c := range won {
						if rnd.IntN(6) == 0 {
							if _, err := db.CancelJob(context.Background(), c.ID, ""); err == nil {
								cancelled.Add(1)
							}
						}
						if controller == "gone" && rnd.IntN(2) == 0 {
							lost.Add(1)
							continue
						}
						o := []job.Outcome{succeeded, succeeded, {Verdict: cron.Failed, After: time.Millisecond}, {Verdict: cron.Failed, Final: true}, {Requeue: true}}[rnd.IntN(5)]
						if e := endOf(c, o); e.Step.State.Ended() {
							done = append(done, e)
						} else {
							again = append(again, e)
						}
					}
					results, err := db.FinishJobs(context.Background(), done)
					retried, err2 := db.RetryJobs(context.Background(), again)
					if err != nil || err2 != nil {
						t.Error(err, err2)
						return
					}
					for _, r := range append(results, retried...) {
						if r.Accepted && r.State.Ended() {
							ended.Add(1)
						}
					}
					if len(won) > 0 && rnd.IntN(8) == 0 {
						db.CancelJob(context.Background(), ids[rnd.IntN(len(ids))], "")
					}
					db.Scan("SELECT count(*) FROM carillon.jobs", nil, &live)
				}
			})
		}
		wg.Wait()
		close(stop)
		watch.Wait()
		var history, twice int
		db.Scan("SELECT count(*), count(*) - count(DISTINCT id) FROM carillon.job_history", nil, &history, &twice)
		counted, running, _ := limits(db, "m.v")
		if history != jobs || twice != 0 || counted != 0 || running != 0 {
			t.Errorf("%d of %d in the history, %d twice; counted %d, running %d", history, jobs, twice, counted, running)
		}
		if n, err := db.MendLimits(ctx, ""); err != nil || n != 0 {
			t.Errorf("mended %d, %v", n, err)
		}
		if reached.Load() == 0 {
			t.Error("the limit was never reached: nothing is shown")
		}
		t.Logf("ended %d, lost %d, cancelled %d, full %d times", ended.Load(), lost.Load(), cancelled.Load(), reached.Load())
	})
}

// Who takes places waits for no job: one that somebody holds is passed over, and its neighbour is claimed.
func TestLimitedClaimsWaitForNobody(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	if err := db.PutLimit(t.Context(), "m.v", 5); err != nil {
		t.Fatal(err)
	}
	ids := ready(t, db, q, 2)
	hold := holdJob(t, db, ids[0])
	defer hold.end()
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond) // less than the connection's lock_timeout
	defer cancel()
	won, over, err := db.ClaimJobs(ctx, "c1", time.Minute, claimOf(ids...), "m.v")
	if err != nil || len(won) != 1 || won[0].ID != ids[1] || len(over) != 0 {
		t.Errorf("won %+v, over %v, %v", won, over, err)
	}
	if counted, running, _ := limits(db, "m.v"); counted != 1 || running != 1 {
		t.Errorf("counted %d, running %d", counted, running)
	}
}

// Twelve claimers, overlapping batches in different orders: each job has one winner.
func TestTwelveClaimersOneWinnerOfJobs(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		for range 3 {
			ids := ready(t, db, q, 60)
			var mu sync.Mutex
			winners := map[job.ID][]job.Claimed{}
			begin := make(chan struct{})
			var wg sync.WaitGroup
			for n := range 12 {
				wg.Go(func() {
					var mine []job.ID
					for i := range ids {
						if (i+n)%4 != 0 {
							mine = append(mine, ids[(i*7+n*5)%len(ids)])
						}
					}
					<-begin
					won, _, err := db.ClaimJobs(context.Background(), fmt.Sprint("c", n), time.Minute, claimOf(mine...), "")
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, w := range won {
						winners[w.ID] = append(winners[w.ID], w)
					}
				})
			}
			close(begin)
			wg.Wait()
			for _, id := range ids {
				if len(winners[id]) != 1 || getJob(t, db, id).Run != winners[id][0].Run {
					t.Fatalf("job %s won by %+v", id, winners[id])
				}
			}
		}
	})
}

// An end whose backend dies in the call is unknown; said again, it is accepted once.
func TestUnknownEndIsRepeated(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	c := claimAll(t, db, ready(t, db, q, 1)...)[0]
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.jobs FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		_, err := db.FinishJobs(context.Background(), []job.End{endOf(c, succeeded)})
		result <- err
	}()
	waitFor(t, func() bool {
		var killed bool
		db.Scan("SELECT COALESCE(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", nil, &killed)
		return killed
	})
	if u := interface{ Unknown() bool }(nil); !errors.As(<-result, &u) || !u.Unknown() {
		t.Fatal("the outcome is not said to be unknown")
	}
	tx.Rollback(t.Context())
	for range 2 {
		if done := finish(t, db, endOf(c, succeeded)); !done[0].Accepted {
			t.Errorf("done %+v", done)
		}
	}
	if own, err := db.FindOwnJobs(t.Context(), "c1", 0, 0, 10); err != nil || len(own) != 0 {
		t.Errorf("own %+v, %v", own, err)
	}
}
