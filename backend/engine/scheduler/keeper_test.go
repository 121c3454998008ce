package scheduler

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
)

func TestGainedShardsAreFetchedUntilItWorksAndLostOnesKeptForTheirGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "* * * * * *") // of shard 1
		a := d.controller(t, "a", succeed)
		lists := 0
		a.store.fault = func(statement string, done bool) error {
			if statement == "list" && !done {
				if lists++; lists <= 3 {
					return errAway
				}
			}
			return nil
		}
		a.OnRing([]int32{1}, nil)
		wait(1900 * time.Millisecond)
		if st := a.Stats(); !st.Loaded || st.Rows != 1 || lists != 4 {
			t.Fatalf("after %d lists: %+v", lists, st)
		}
		a.OnRing([]int32{2}, nil)
		wait(4 * time.Second)
		if got, want := d.story(job, start), "succeeded 1s, succeeded 2s, succeeded 3s, succeeded 4s, succeeded 5s"; got != want {
			t.Errorf("in the grace: %s", got)
		}
		wait(5 * time.Second)
		if st := a.Stats(); st.Rows != 0 {
			t.Errorf("after the grace: %+v", st)
		}
		if got, want := d.story(job, start), "succeeded 1s, succeeded 2s, succeeded 3s, succeeded 4s, succeeded 5s, succeeded 6s"; got != want {
			t.Errorf("after the grace: %s", got)
		}
	})
}

func TestTheResetFindsWhatNobodyTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		gone, jumped := d.add("m.gone", "0 0 1 1 *"), d.add("m.jumped", "*/5 * * * * *")
		a := d.controller(t, "a", succeed)
		a.OnRing(allShards, nil)
		wait(30 * time.Second)
		d.mu.Lock()
		delete(d.jobs, gone.ID)
		jumped.Next = jumped.Next.AddDate(0, 0, 10)
		jumped.Current.Slot = jumped.Current.Slot.AddDate(0, 0, 10)
		d.mu.Unlock()
		added := d.add("m.added", "* * * * * *")
		wait(70 * time.Second)
		d.mu.Lock()
		if !added.Current.Slot.After(time.Now().Add(-2*time.Second)) || !jumped.Current.Slot.After(time.Now().Add(-6*time.Second)) || jumped.Next.After(time.Now().Add(6*time.Second)) {
			t.Errorf("added ran last at %v, jumped at %v", added.Current.Slot, jumped.Current.Slot)
		}
		d.mu.Unlock()
		if st := a.Stats(); st.Rows != 2 || st.Resets == 0 || st.Repaired != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestARepairNeedsTheDatabasesOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.add("m.v", "* * * * *")
		a := d.controller(t, "a", succeed, func(c *Config) { c.Clock = clock{d, -time.Hour, 0} }) // an hour behind
		a.OnRing(allShards, nil)
		wait(5 * time.Minute)
		if n := d.count("repair"); n != 0 {
			t.Errorf("a slow clock repaired %d times", n)
		}
	})
}

func TestChangesWhileItRunsAreReadAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "* * * * * *")
		var deployments []string
		a := d.controller(t, "a", func(c Call) Outcome {
			deployments = append(deployments, c.Deployment)
			return lasting(1500 * time.Millisecond)(c)
		})
		a.OnRing(allShards, nil)
		wait(1200 * time.Millisecond)
		d.mu.Lock()
		job.Version, job.Schedule, job.Deployment = 2, "*/5 * * * * *", "dpl-2"
		job.Next = start.Add(5 * time.Second).UTC()
		d.mu.Unlock()
		if err := a.Hint(t.Context(), []string{"m"}); err != nil {
			t.Fatal(err)
		}
		wait(6 * time.Second)
		if got := d.story(job, start); got != "succeeded 1s, succeeded 5s" || fmt.Sprint(deployments) != "[dpl-1 dpl-2]" {
			t.Errorf("%s by %v", got, deployments)
		}
		if n := a.Stats().Lost; n != 0 {
			t.Errorf("%d claims were made from what was known before the change", n)
		}
	})
}

func TestRowsOfOtherOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		a := d.controller(t, "a", succeed)
		a.OnRing([]int32{3}, nil)
		job := d.add("m.v", "* * * * * *") // of shard 1
		if err := a.Hint(t.Context(), []string{"m"}); err != nil {
			t.Fatal(err)
		}
		wait(2500 * time.Millisecond)
		if got := d.story(job, start); got != "" || a.Stats().Rows != 0 {
			t.Errorf("a hint alone: %s", got)
		}
		if err := a.Adopt(t.Context(), []string{"m"}); err != nil {
			t.Fatal(err)
		}
		wait(time.Second)
		want := "skipped_missed 1s-1s x1, succeeded 2s, succeeded 3s"
		if got := d.story(job, start); got != want {
			t.Errorf("adopted: %s", got)
		}
		a.Release([]string{"m"})
		wait(2 * time.Second)
		if got := d.story(job, start); got != want || a.Stats().Rows != 0 {
			t.Errorf("released: %s", got)
		}
		a.Overdue([]int64{job.ID})
		wait(time.Second)
		if got, want := d.story(job, start), want+", skipped_missed 4s-4s x1, succeeded 5s"; got != want || a.Stats().Rows != 0 {
			t.Errorf("overdue: %s, want %s", got, want)
		}
		if err := a.Adopt(t.Context(), []string{"m"}); err != nil {
			t.Fatal(err)
		}
		wait(3 * time.Minute)
		if a.Stats().Rows != 0 {
			t.Error("an adoption outlived two resets")
		}
	})
}

func TestAManualRunLeavesTheScheduleAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "* * * * * *")
		paused := d.add("m.paused", "* * * * * *", func(j *cron.Job) { j.Enabled = false })
		keys := map[string]string{}
		a := d.controller(t, "a", func(c Call) Outcome {
			if c.Kind == cron.ManualRun {
				keys[c.Ref] = c.IdempotencyKey
				return lasting(2200 * time.Millisecond)(c)
			}
			keys[c.Ref] = c.IdempotencyKey
			return succeed(c)
		})
		a.OnRing(allShards, nil)
		wait(1500 * time.Millisecond)
		for _, j := range []*cron.Job{job, paused} {
			d.mu.Lock()
			j.State = cron.Executing
			j.Current = cron.Run{ID: mintRunID(), JobID: j.ID, Ref: j.Ref, Slot: d.now(), Kind: cron.ManualRun, Controller: "a", StartedAt: d.now()}
			started := *j
			d.mu.Unlock()
			a.Started(started)
			synctest.Wait()
			if keys[j.Ref] != started.Current.ID.String() || !a.Known(started.Current.ID) {
				t.Errorf("key %q of run %v", keys[j.Ref], started.Current.ID)
			}
		}
		wait(3 * time.Second)
		if got, want := d.story(job, start), "succeeded 1s, succeeded 1.5s, skipped_overlap 2s-3s x2, succeeded 4s"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := d.story(paused, start), "succeeded 1.5s"; got != want {
			t.Errorf("paused: got %s, want %s", got, want)
		}
		if want := "m.v@" + start.Add(4*time.Second).UTC().Format(time.RFC3339Nano); keys["m.v"] != want {
			t.Errorf("key %q, want %q", keys["m.v"], want)
		}
	})
}

func TestARunOfAScheduleThatCannotBeReadEndsAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		next := start.Add(time.Second).UTC()
		job := d.add("m.v", "61 * * * *", func(j *cron.Job) {
			j.Next, j.State = next, cron.Executing
			j.Current = cron.Run{ID: mintRunID(), JobID: j.ID, Slot: start.UTC(), Kind: cron.ManualRun, Controller: "a", StartedAt: start.UTC()}
		})
		a := d.controller(t, "a", lasting(3*time.Second))
		a.Started(*job)
		wait(4 * time.Second)
		if got := d.story(job, start); got != "succeeded 0s" || !job.Next.Equal(next) {
			t.Errorf("%s, next %v", got, job.Next)
		}
	})
}

func TestEndsOfAHerdAreHeldBackTwentyMilliseconds(t *testing.T) {
	for jobs, held := range map[int]time.Duration{1: 0, herd - 1: 0, herd: 20 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			d := newDatabase()
			var due time.Time
			for i := range jobs {
				due = d.add(fmt.Sprint("m.v", i), "* * * * *").Next
			}
			a := d.controller(t, "a", succeed)
			a.OnRing(allShards, nil)
			wait(time.Until(due) + time.Second)
			if took := d.ledger[0].EndedAt.Sub(due); took != held {
				t.Errorf("of %d runs one ended after %v, want %v", jobs, took, held)
			}
		})
	}
}

func TestALookForARunnerEndsBeforeTheNextSlot(t *testing.T) {
	for expr, want := range map[string]time.Duration{"* * * * * *": time.Second - beforeNext, "* * * * *": 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d := newDatabase()
			d.add("m.v", expr)
			got := time.Duration(-1)
			a := d.controller(t, "a", func(c Call) Outcome { got = c.GiveUp; return succeed(c) })
			a.OnRing(allShards, nil)
			wait(61 * time.Second)
			if got != want {
				t.Errorf("%s: %v, want %v", expr, got, want)
			}
		})
	}
}
