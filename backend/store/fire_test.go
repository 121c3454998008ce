package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// firing makes the rows of a deployment fire, with five attempts.
func firing(t *testing.T, db storetest.DB, n int, next time.Time, overlap cron.Overlap, change ...func(*cron.Job)) []cron.Job {
	t.Helper()
	db.Deploy(n, next)
	m, err := db.UpdateModule(t.Context(), "m", 0, func(m deployment.Module) (deployment.Update, error) {
		var u deployment.Update
		for _, j := range m.Jobs {
			j.Fires, j.Overlap, j.Retry = true, overlap, cron.Retry{Attempts: 5, Backoff: 2 * time.Second, Ceiling: time.Minute}
			for _, c := range change {
				c(&j)
			}
			u.Jobs = append(u.Jobs, deployment.JobUpdate{Job: j})
		}
		return u, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m.Jobs
}

func fireClaim(j cron.Job) cron.Claim {
	c := claim(j)
	c.Fires, c.Cancels = true, j.Overlap == cron.OverlapCancel
	return c
}

func fire(t *testing.T, db storetest.DB, claims ...cron.Claim) []cron.Firing {
	t.Helper()
	fired, err := db.FireCronJobs(t.Context(), "c1", claims)
	if err != nil {
		t.Fatal(err)
	}
	return fired
}

// next is the claim of the slot after.
func next(c cron.Claim) cron.Claim {
	c.Expected, c.Slot, c.Next, c.RunID = c.Next, c.Next, c.Next.Add(time.Second), newRun()
	return c
}

func history(t *testing.T, db storetest.DB, id int64) []cron.Run {
	t.Helper()
	runs, err := db.ListHistory(t.Context(), id, time.Time{}, 200)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// claimJob makes a fired job run, in the name of c2.
func claimJob(t *testing.T, db storetest.DB, made cron.Made) cron.RunID {
	t.Helper()
	run := newRun()
	won, _, err := db.ClaimJobs(t.Context(), "c2", time.Minute, []job.Claim{{ID: made.N, Run: run, Deployment: 1}}, "")
	if err != nil || len(won) != 1 {
		t.Fatalf("claim of job %d: %v, %v", made.N, won, err)
	}
	return run
}

func TestFiringMakesTheJobAndItsLedgerRow(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		slot := db.Now().Truncate(time.Second).Add(-10 * time.Second)
		row := firing(t, db, 1, slot, cron.OverlapAllow)[0]
		c := fireClaim(row)
		c.Slot, c.Next = slot.Add(4*time.Second), slot.Add(5*time.Second)
		c.Skip = cron.Range{From: slot, To: slot.Add(3 * time.Second), Count: 4}
		fired := fire(t, db, c)
		if len(fired) != 1 {
			t.Fatalf("fired %+v", fired)
		}
		f := fired[0]
		if f.JobID != row.ID || f.Ref != "m.v0" || f.RunID != c.RunID || !f.Slot.Equal(c.Slot) || f.At.Before(c.Slot) || f.Made.N == 0 || len(f.Cancelled) != 0 {
			t.Errorf("fired %+v", f)
		}
		if got := get(t, db, row.ID); got.State != cron.Idle || !got.Next.Equal(c.Next) || !got.Fires || got.Retry != row.Retry || !got.Current.Slot.Equal(c.Slot) {
			t.Errorf("row %+v", got)
		}
		made, err := db.GetJob(t.Context(), job.ID(f.Made))
		if err != nil {
			t.Fatal(err)
		}
		if made.State != job.Ready || made.Ref != "m.v0" || made.Tenant != job.DefaultTenant || made.Priority != job.DefaultPriority || !made.Slot.Equal(c.Slot) ||
			cron.Retry(made.Retry) != row.Retry || made.Timeout != row.Timeout || len(made.Payload) != 0 || made.Due.After(db.Now()) || made.Due.Before(c.Slot) {
			t.Errorf("job %+v", made)
		}
		var cronJob int64
		var queue, shard int32
		db.Scan("SELECT cron_job_id, queue_id, shard FROM carillon.jobs", nil, &cronJob, &queue, &shard)
		if cronJob != row.ID || queue != f.Queue || shard != int32(f.Made.N%1021) {
			t.Errorf("job of %d, queue %d, shard %d", cronJob, queue, shard)
		}
		runs := history(t, db, row.ID)
		if len(runs) != 2 || runs[1].Verdict != cron.SkippedMissed || runs[1].Count != 4 || !runs[1].ID.IsZero() {
			t.Fatalf("ledger %+v", runs)
		}
		if r := runs[0]; r.Verdict != cron.Fired || r.Made != f.Made || r.ID != c.RunID || !r.Slot.Equal(c.Slot) || r.Controller != "c1" || r.Deployment != "m-abc" || r.Lateness() <= 0 {
			t.Errorf("ledger %+v", r)
		}
		if run := claimJob(t, db, f.Made); run.IsZero() {
			t.Error("the job cannot be claimed")
		}
		if again := fire(t, db, c); len(again) != 0 || len(history(t, db, row.ID)) != 2 {
			t.Errorf("fired twice: %+v", again)
		}
	})
}

func TestFiringIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(db storetest.DB, c *cron.Claim){
		"early":         func(db storetest.DB, c *cron.Claim) { c.Slot = db.Now().Add(time.Second) },
		"stale version": func(db storetest.DB, c *cron.Claim) { c.Version-- },
		"other slot":    func(db storetest.DB, c *cron.Claim) { c.Expected = c.Expected.Add(-time.Second) },
		"not enabled":   func(db storetest.DB, c *cron.Claim) { db.Exec("UPDATE carillon.cron_jobs SET enabled = false") },
		"fires no more": func(db storetest.DB, c *cron.Claim) { db.Exec("UPDATE carillon.cron_jobs SET fires = false") },
		"cancels now":   func(db storetest.DB, c *cron.Claim) { db.Exec("UPDATE carillon.cron_jobs SET overlap = 'cancel'") },
		"still executing": func(db storetest.DB, c *cron.Claim) {
			db.Exec(`UPDATE carillon.cron_jobs SET state = 'executing', run_id = gen_random_uuid(), run_slot = now(), started_at = now(), deadline_at = now(), controller = 'c', run_deployment = 1`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "America/New_York")
			row := firing(t, db, 1, db.Now().Truncate(time.Second), cron.OverlapQueue)[0]
			c := fireClaim(row)
			spoil(db, &c)
			var jobs int
			if fired := fire(t, db, c); len(fired) != 0 {
				t.Errorf("fired %+v", fired)
			}
			db.Scan("SELECT count(*) FROM carillon.jobs", nil, &jobs)
			if got := get(t, db, row.ID); jobs != 0 || !got.Next.Equal(row.Next) || len(history(t, db, row.ID)) != 0 {
				t.Errorf("%d jobs, row %+v", jobs, got)
			}
		})
	}
	t.Run("a row that fires is not executed", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t, "")
		row := firing(t, db, 1, db.Now().Truncate(time.Second), cron.OverlapQueue)[0]
		if won := start(t, db, claim(row)); len(won) != 0 {
			t.Errorf("won %+v", won)
		}
		if _, err := db.StartManualRun(t.Context(), "c1", time.Minute, row.Ref, newRun()); !errors.Is(err, cron.ErrPrecond) {
			t.Errorf("run now: %v", err)
		}
	})
}

// Twelve controllers fire the same rows, in overlapping batches and different orders, round after round: one job and one
// ledger row for each slot, whichever the policy.
func TestTwelveFireOneJobPerSlot(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		const claimers, rows, rounds = 12, 40, 5
		slot := db.Now().Truncate(time.Second).Add(-time.Minute)
		jobs := firing(t, db, rows, slot, cron.OverlapAllow, func(j *cron.Job) {
			if j.ID%2 == 0 {
				j.Overlap = cron.OverlapCancel
			}
		})
		told := map[cron.Made]int{}
		for round := range rounds {
			var mu sync.Mutex
			begin := make(chan struct{})
			var wg sync.WaitGroup
			for n := range claimers {
				wg.Go(func() {
					var claims []cron.Claim
					for i := range rows { // each its own cut and order
						if j := jobs[(i*7+n*5)%rows]; (i+n)%4 != 0 {
							c := fireClaim(j)
							c.Expected = j.Next.Add(time.Duration(round) * time.Second)
							c.Slot, c.Next = c.Expected, c.Expected.Add(time.Second)
							claims = append(claims, c)
						}
					}
					<-begin
					fired, err := db.FireCronJobs(context.Background(), fmt.Sprint("c", n), claims)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, f := range fired {
						told[f.Made]++
					}
				})
			}
			close(begin)
			wg.Wait()
		}
		var slots, ledger, made, live, ended int
		db.Scan(`SELECT count(DISTINCT (cron_job_id, slot)), count(*), count(DISTINCT job_id) FROM carillon.runs WHERE verdict = 'fired'`, nil, &slots, &ledger, &made)
		db.Scan(`SELECT (SELECT count(*) FROM carillon.jobs), (SELECT count(*) FROM carillon.job_history WHERE state = 'cancelled')`, nil, &live, &ended)
		if want := rows * rounds; slots != want || ledger != want || made != want || len(told) != want || live+ended != want {
			t.Errorf("of %d: %d slots, %d ledger rows, %d jobs named, %d told, %d live, %d cancelled", want, slots, ledger, made, len(told), live, ended)
		}
		if want := rows/2*rounds + rows/2; live != want {
			t.Errorf("%d live jobs, want %d: all of overlap allow, the last of cancel", live, want)
		}
		for made, n := range told {
			if n != 1 {
				t.Errorf("job %v was told %d times", made, n)
			}
		}
		if double, err := db.FindOverlaps(t.Context(), slot); err != nil || len(double) != 0 {
			t.Errorf("overlaps %v, %v", double, err)
		}
	})
}

func TestFireManualRun(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		slot := db.Now().Truncate(time.Second).Add(time.Hour)
		row := firing(t, db, 1, slot, cron.OverlapSkip)[0]
		db.Exec("UPDATE carillon.cron_jobs SET enabled = false, paused_at = now()") // allowed while paused
		id := newRun()
		j, f, err := db.FireManualRun(t.Context(), "c1", row.Ref, id)
		if err != nil || f.Made.N == 0 || j.Current.ID != id || j.Current.Made != f.Made || j.Current.Kind != cron.ManualRun || !j.Next.Equal(slot) || j.State != cron.Idle {
			t.Fatalf("%+v, %+v, %v", j, f, err)
		}
		runs := history(t, db, row.ID)
		if len(runs) != 1 || runs[0].Verdict != cron.Fired || runs[0].Kind != cron.ManualRun || runs[0].Made != f.Made || runs[0].ID != id || !runs[0].Slot.Equal(f.Slot) {
			t.Errorf("ledger %+v", runs)
		}
		claimJob(t, db, f.Made)
		if _, _, err := db.FireManualRun(t.Context(), "c1", row.Ref, newRun()); !errors.Is(err, cron.ErrPrecond) || !strings.Contains(err.Error(), "has not ended") {
			t.Errorf("beside its job: %v", err)
		}
		db.Exec("UPDATE carillon.cron_jobs SET overlap = 'cancel'")
		if _, f2, err := db.FireManualRun(t.Context(), "c1", row.Ref, newRun()); err != nil || len(f2.Cancelled) != 1 || f2.Cancelled[0].Made != f.Made {
			t.Errorf("cancelling: %+v, %v", f2, err)
		}
		if _, _, err := db.FireManualRun(t.Context(), "c1", "m.absent", newRun()); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("an absent one: %v", err)
		}
	})
}

// A slot or a range that has a verdict already, by hand or by a restored backup, wedges neither its row nor its neighbours.
func TestLedgerConflictDoesNotWedgeFirings(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	slot := db.Now().Truncate(time.Second).Add(-10 * time.Second)
	rows := firing(t, db, 3, slot, cron.OverlapAllow)
	for _, r := range rows[:2] {
		db.Exec("INSERT INTO carillon.runs (cron_job_id, slot, slot_to, verdict, ended_at) VALUES ($1, $2, $2, 'skipped_missed', now())", r.ID, slot)
	}
	decided, skips, good := fireClaim(rows[0]), fireClaim(rows[1]), fireClaim(rows[2])
	skips.Slot, skips.Next = slot.Add(time.Second), slot.Add(2*time.Second)
	skips.Skip = cron.Range{From: slot, To: slot, Count: 1}
	fired := fire(t, db, decided, skips, good)
	if len(fired) != 2 || fired[0].JobID != rows[1].ID || fired[1].JobID != rows[2].ID {
		t.Errorf("fired %+v", fired)
	}
	for i, want := range []time.Time{decided.Next, skips.Next, good.Next} {
		if got := get(t, db, rows[i].ID); !got.Next.Equal(want) {
			t.Errorf("row %d: next %s, want %s", i, got.Next, want)
		}
	}
	var jobs int
	db.Scan("SELECT count(*) FROM carillon.jobs", nil, &jobs)
	if jobs != 2 {
		t.Errorf("%d jobs", jobs)
	}
}

func TestALockedRowDoesNotHoldUpFirings(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	rows := firing(t, db, 5, db.Now().Truncate(time.Second), cron.OverlapAllow)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.cron_jobs WHERE id = $1 FOR UPDATE", rows[2].ID); err != nil {
		t.Fatal(err)
	}
	var claims []cron.Claim
	for _, r := range rows {
		claims = append(claims, fireClaim(r))
	}
	if fired := fire(t, db, claims...); len(fired) != 4 {
		t.Errorf("fired %d of 4 beside a locked row", len(fired))
	}
}
