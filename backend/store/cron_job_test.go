package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"carillon/backend/core/cron"
	"carillon/backend/store/storetest"
)

// zones are the session zones that every statement must be right in: seed 003's casts were right in UTC alone.
var zones = []string{"UTC", "America/New_York", "Asia/Tokyo"}

func inZones(t *testing.T, test func(t *testing.T, db storetest.DB)) {
	for _, zone := range zones {
		t.Run(strings.ReplaceAll(zone, "/", "-"), func(t *testing.T) {
			t.Parallel()
			test(t, storetest.Open(t, zone))
		})
	}
}

func newRun() cron.RunID { return cron.RunID(uuid.Must(uuid.NewV7())) }

func claim(j cron.Job) cron.Claim {
	return cron.Claim{JobID: j.ID, Version: j.Version, Expected: j.Next, Slot: j.Next, Next: j.Next.Add(time.Second), RunID: newRun()}
}

func start(t *testing.T, db storetest.DB, claims ...cron.Claim) []cron.Claimed {
	t.Helper()
	won, err := db.StartCronJobs(t.Context(), "c1", time.Minute, claims)
	if err != nil {
		t.Fatal(err)
	}
	return won
}

func end(t *testing.T, db storetest.DB, ends ...cron.End) []cron.Ended {
	t.Helper()
	done, err := db.EndCronJobs(t.Context(), ends)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func get(t *testing.T, db storetest.DB, id int64) cron.Job {
	t.Helper()
	jobs, _, err := db.GetCronJobs(t.Context(), []int64{id})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("row %d: %v, %v", id, jobs, err)
	}
	return jobs[0]
}

func TestClaimEndLedger(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		slot := db.Now().Truncate(time.Second)
		j := db.Deploy(1, slot)[0]
		c := claim(j)
		won := start(t, db, c)
		if len(won) != 1 || won[0].StartedAt.Before(slot) {
			t.Fatalf("won %v", won)
		}
		if got, want := won[0].DeadlineAt.Sub(won[0].StartedAt), 65*time.Second; got != want {
			t.Errorf("hard timeout after %s, want %s", got, want)
		}
		if got := get(t, db, j.ID); got.State != cron.Executing || got.Current.ID != c.RunID || !got.Next.Equal(c.Next) || !got.Current.Slot.Equal(slot) {
			t.Fatalf("row %+v", got)
		}
		done := end(t, db, cron.End{JobID: j.ID, RunID: c.RunID, Slot: slot, Verdict: cron.Succeeded, Version: j.Version})
		if len(done) != 1 || !done[0].Accepted || done[0].Repeated || !done[0].Next.Equal(c.Next) {
			t.Fatalf("done %+v", done)
		}
		runs, err := db.ListHistory(t.Context(), j.ID, time.Time{}, 10)
		if err != nil || len(runs) != 1 {
			t.Fatalf("history %v, %v", runs, err)
		}
		r := runs[0]
		if r.ID != c.RunID || r.Verdict != cron.Succeeded || !r.Slot.Equal(slot) || r.Controller != "c1" || r.Attempt != 1 || r.Deployment != "m-abc" || r.EndedAt.Before(r.StartedAt) {
			t.Errorf("ledger %+v", r)
		}
		// The next slot can be claimed at once: nothing is left wedged, whatever the session's zone.
		if again := start(t, db, cron.Claim{JobID: j.ID, Version: j.Version, Expected: c.Next, Slot: slot, Next: c.Next.Add(time.Second), RunID: newRun()}); len(again) != 1 {
			t.Errorf("second claim lost")
		}
	})
}

func TestClaimIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(db storetest.DB, c *cron.Claim){
		"early":         func(db storetest.DB, c *cron.Claim) { c.Slot = db.Now().Add(time.Second) },
		"stale version": func(db storetest.DB, c *cron.Claim) { c.Version-- },
		"other slot":    func(db storetest.DB, c *cron.Claim) { c.Expected = c.Expected.Add(-time.Second) },
		"not enabled":   func(db storetest.DB, c *cron.Claim) { db.Exec("UPDATE carillon.cron_jobs SET enabled = false") },
		"paused meantime": func(db storetest.DB, c *cron.Claim) {
			db.Exec("UPDATE carillon.cron_jobs SET enabled = false, paused_at = now(), version = version + 1")
		},
		"exhausted": func(db storetest.DB, c *cron.Claim) { db.Exec("UPDATE carillon.cron_jobs SET next_execution = NULL") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "America/New_York")
			j := db.Deploy(1, db.Now().Truncate(time.Second))[0]
			c := claim(j)
			spoil(db, &c)
			if won := start(t, db, c); len(won) != 0 {
				t.Errorf("won %v", won)
			}
			if got := get(t, db, j.ID); got.State != cron.Idle {
				t.Errorf("state %s", got.State)
			}
		})
	}
}

// Twelve claimers, overlapping batches in different orders: each slot has one winner, and no deadlock is left over.
func TestTwelveClaimersOneWinner(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		const claimers, rows, rounds = 12, 60, 5
		slot := db.Now().Truncate(time.Second).Add(-time.Minute)
		jobs := db.Deploy(rows, slot)
		for round := range rounds {
			var mu sync.Mutex
			winners := map[int64][]int{}
			begin := make(chan struct{})
			var wg sync.WaitGroup
			for n := range claimers {
				wg.Go(func() {
					var claims []cron.Claim
					for i := range rows { // each its own cut and order
						if j := jobs[(i*7+n*5)%rows]; (i+n)%4 != 0 {
							claims = append(claims, cron.Claim{JobID: j.ID, Version: j.Version, Expected: j.Next.Add(time.Duration(round) * time.Second),
								Slot: j.Next.Add(time.Duration(round) * time.Second), Next: j.Next.Add(time.Duration(round+1) * time.Second), RunID: newRun()})
						}
					}
					<-begin
					won, err := db.StartCronJobs(context.Background(), fmt.Sprint("c", n), time.Minute, claims)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, w := range won {
						winners[w.JobID] = append(winners[w.JobID], n)
					}
				})
			}
			close(begin)
			wg.Wait()
			var ends []cron.End
			for _, j := range jobs {
				if len(winners[j.ID]) != 1 {
					t.Fatalf("round %d: job %d won by %v", round, j.ID, winners[j.ID])
				}
				row := get(t, db, j.ID)
				if row.Current.Controller != fmt.Sprint("c", winners[j.ID][0]) {
					t.Fatalf("row says %s, won by %v", row.Current.Controller, winners[j.ID])
				}
				ends = append(ends, cron.End{JobID: j.ID, RunID: row.Current.ID, Slot: row.Current.Slot, Verdict: cron.Succeeded})
			}
			end(t, db, ends...)
		}
		overlaps, err := db.FindOverlaps(t.Context(), slot)
		if err != nil || len(overlaps) != 0 {
			t.Errorf("overlaps %v, %v", overlaps, err)
		}
		var n int
		db.Scan("SELECT count(*) FROM carillon.runs", nil, &n)
		if n != rows*rounds {
			t.Errorf("%d verdicts for %d slots", n, rows*rounds)
		}
	})
}

// A loser that reads after the claim sees the winner's state: not the snapshot from before.
func TestLoserLearnsTheState(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	j := db.Deploy(1, db.Now().Truncate(time.Second))[0]
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	winner := newRun()
	_, err = tx.Exec(t.Context(), `UPDATE carillon.cron_jobs SET state = 'executing', run_id = $2, run_slot = next_execution, started_at = now(),
		deadline_at = now() + interval '1 minute', controller = 'other', run_deployment = deployment_id WHERE id = $1`, j.ID, winner[:])
	if err != nil {
		t.Fatal(err)
	}
	lost := make(chan []cron.Claimed)
	go func() {
		won, err := db.StartCronJobs(context.Background(), "c1", time.Minute, []cron.Claim{claim(j)})
		if err != nil {
			t.Error(err)
		}
		lost <- won
	}()
	waitFor(t, func() bool { // until the claim waits on the row
		var n int
		db.Scan("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", nil, &n)
		return n > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if won := <-lost; len(won) != 0 {
		t.Fatalf("won %v", won)
	}
	if got := get(t, db, j.ID); got.State != cron.Executing || got.Current.ID != winner || got.Current.Controller != "other" {
		t.Errorf("the loser reads %+v", got)
	}
}

func TestMissedSlotsAreSkippedInTheClaim(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		first := db.Now().Truncate(time.Second).Add(-10 * time.Second)
		j := db.Deploy(1, first)[0]
		c := claim(j)
		c.Slot, c.Next = first.Add(9*time.Second), first.Add(10*time.Second)
		c.Skip = cron.Range{From: first, To: first.Add(8 * time.Second), Count: 9}
		start(t, db, c)
		runs, _ := db.ListHistory(t.Context(), j.ID, time.Time{}, 10)
		if len(runs) != 1 || runs[0].Verdict != cron.SkippedMissed || runs[0].Count != 9 || !runs[0].SlotTo.Equal(c.Skip.To) || !runs[0].ID.IsZero() {
			t.Errorf("ledger %+v", runs)
		}
		// A loser's range is not written.
		start(t, db, c)
		if runs, _ := db.ListHistory(t.Context(), j.ID, time.Time{}, 10); len(runs) != 1 {
			t.Errorf("ledger %+v", runs)
		}
	})
}

func TestSkipWithoutARun(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Tokyo")
	first := db.Now().Truncate(time.Second).Add(-60 * time.Second)
	j := db.Deploy(1, first)[0]
	c := cron.Claim{JobID: j.ID, Version: j.Version, Skip: cron.Range{From: first, To: first.Add(59 * time.Second), Count: 60}, Next: first.Add(time.Minute)}
	for range 2 { // the second loses
		if err := db.SkipCronJobs(t.Context(), "c1", []cron.Claim{c}); err != nil {
			t.Fatal(err)
		}
	}
	got := get(t, db, j.ID)
	runs, _ := db.ListHistory(t.Context(), j.ID, time.Time{}, 10)
	if got.State != cron.Idle || !got.Next.Equal(c.Next) || len(runs) != 1 || runs[0].Count != 60 {
		t.Errorf("row %+v, ledger %+v", got, runs)
	}
}

func TestManualRun(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		next := db.Now().Truncate(time.Second).Add(time.Hour)
		j := db.Deploy(1, next)[0]
		db.Exec("UPDATE carillon.cron_jobs SET enabled = false, paused_at = now()") // allowed while paused
		id := newRun()
		got, err := db.StartManualRun(t.Context(), "c1", time.Minute, j.Ref, id)
		if err != nil || got.Current.ID != id || got.Current.Kind != cron.ManualRun || !got.Next.Equal(next) {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, err := db.StartManualRun(t.Context(), "c1", time.Minute, j.Ref, newRun()); err == nil || !strings.Contains(err.Error(), "is executing") {
			t.Errorf("a second one: %v", err)
		}
		if _, err := db.StartManualRun(t.Context(), "c1", time.Minute, "m.absent", newRun()); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("an absent one: %v", err)
		}
		end(t, db, cron.End{JobID: j.ID, RunID: id, Slot: got.Current.Slot, Verdict: cron.Succeeded, Version: j.Version})
		if got := get(t, db, j.ID); !got.Next.Equal(next) || got.State != cron.Idle {
			t.Errorf("row %+v", got)
		}
	})
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited for 10 s in vain")
		}
	}
}

// A claim whose backend dies in the call may have been committed: the store says so, and the lookup tells.
func TestUnknownOutcomeIsLookedUp(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	j := db.Deploy(1, db.Now().Truncate(time.Second))[0]
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.cron_jobs WHERE id = $1 FOR UPDATE", j.ID); err != nil {
		t.Fatal(err)
	}
	c := claim(j)
	claimed := make(chan error)
	go func() {
		_, err := db.StartCronJobs(context.Background(), "c1", time.Minute, []cron.Claim{c})
		claimed <- err
	}()
	waitFor(t, func() bool {
		var killed bool
		db.Scan("SELECT COALESCE(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", nil, &killed)
		return killed
	})
	err = <-claimed
	if u := interface{ Unknown() bool }(nil); !errors.As(err, &u) || !u.Unknown() || !errors.Is(err, cron.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobs, now, err := db.LookupCronJobs(t.Context(), []int64{j.ID})
	if err != nil || len(jobs) != 1 || jobs[0].State != cron.Idle || now.IsZero() {
		t.Errorf("looked up %+v, %v", jobs, err)
	}
	start(t, db, c)
	if jobs, _, _ := db.LookupCronJobs(t.Context(), []int64{j.ID}); jobs[0].Current.ID != c.RunID || jobs[0].State != cron.Executing {
		t.Errorf("looked up %+v", jobs)
	}
}

// Somebody's open transaction on one row holds up neither the claims nor the ends of its neighbours.
func TestALockedRowDoesNotHoldUpItsNeighbours(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	slot := db.Now().Truncate(time.Second)
	jobs := db.Deploy(5, slot)
	hold := func() (release func()) {
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.cron_jobs WHERE id = $1 FOR UPDATE", jobs[2].ID); err != nil {
			t.Fatal(err)
		}
		return func() { tx.Rollback(context.Background()) }
	}
	var claims []cron.Claim
	for _, j := range jobs {
		claims = append(claims, claim(j))
	}
	release := hold()
	if won := start(t, db, claims...); len(won) != 4 {
		t.Errorf("won %d of 4 beside a locked row", len(won))
	}
	release()
	if won := start(t, db, claims...); len(won) != 1 || won[0].JobID != jobs[2].ID {
		t.Errorf("afterwards won %v", won)
	}
	var ends []cron.End
	for i, j := range jobs {
		ends = append(ends, cron.End{JobID: j.ID, RunID: claims[i].RunID, Slot: slot, Verdict: cron.Succeeded})
	}
	release = hold()
	if done, err := db.EndCronJobs(t.Context(), ends); len(done) != 4 || err == nil {
		t.Errorf("ended %d of 4 beside a locked row, error %v", len(done), err)
	}
	release()
	for _, d := range end(t, db, ends...) {
		if !d.Accepted {
			t.Errorf("refused: %+v", d)
		}
	}
}
