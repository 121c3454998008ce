package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

func TestFailuresAreRetriedWithBackoffUntilTheJobIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, failing, "m.v")
		id := c.enqueue(t, "m.v")
		wait(time.Minute)
		at := c.runners.starts(id)
		if len(at) != 3 || d.story(id) != "failed x3" || c.Stats().Dead != 1 || c.Stats().Retried != 2 {
			t.Fatalf("%d calls, %s, %+v", len(at), d.story(id), c.Stats())
		}
		for i, want := range []time.Duration{time.Second, 2 * time.Second} {
			if got := at[i+1].Sub(at[i]); got < want*9/10 || got > want*11/10+5*trip {
				t.Errorf("attempt %d came %v after the one before, want %v within a tenth", i+2, got, want)
			}
		}
	})
}

func TestCancelEndsARunningJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, lasting(time.Hour), "m.v")
		told, untold, stubborn := c.enqueue(t, "m.v"), c.enqueue(t, "m.v"), c.enqueue(t, "m.v")
		wait(time.Second)
		if !c.Cancel(d.cancel(told), "enough") || c.Cancel(mint(), "who?") {
			t.Error("Cancel does not know its own runs from others")
		}
		d.cancel(untold) // and nobody tells the controller
		c.runners.set(succeed)
		wait(time.Second)
		if got := d.story(told); got != "cancelled x1" {
			t.Errorf("told: %s", got)
		}
		c.Fence() // gives the others up: what was cancelled must not come back
		c.runners.cancelAll("fenced")
		wait(time.Second)
		if got := d.story(untold); got != "cancelled x1" {
			t.Errorf("untold: %s", got)
		}
		if got := d.story(stubborn); got != "ready x0" {
			t.Errorf("not cancelled: %s", got)
		}
	})
}

func TestADeadControllersRunsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a := d.sole(t, 10, lasting(time.Hour), "m.v")
		var unswept atomic.Int32
		b := d.controller(t, "b", 10, succeed, func(c *Config) { c.Unswept = func() int { return int(unswept.Load()) } })
		b.OnRing(nil, shards(0, 1))
		id := a.enqueue(t, "m.v")
		wait(time.Second)
		run := d.runOf(id)
		a.stop()
		b.OnRing(shards(0, 1), nil)
		wait(6 * time.Second)
		if got := d.story(id); got != "running x1" {
			t.Fatalf("before the lease is over: %s", got)
		}
		d.mu.Lock()
		d.silent["a"] = true
		d.mu.Unlock()
		unswept.Store(1)
		wait(4 * time.Second) // one for the sweep, one for the backoff
		if got := d.story(id); got != "succeeded x2" {
			t.Errorf("%s", got)
		}
		a.done(run, job.Outcome{Verdict: cron.Succeeded}) // the zombie speaks
		wait(time.Second)
		if got := d.story(id); got != "succeeded x2" {
			t.Errorf("after a late end: %s", got)
		}
		if b.Stats().Swept != 1 {
			t.Errorf("%+v", b.Stats())
		}
	})
}

func TestARunPastItsHardTimeoutIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, lasting(time.Hour), "m.v")
		id := c.enqueue(t, "m.v", func(n *job.New) { n.Timeout, n.Retry.Attempts = time.Second, 1 })
		wait(70 * time.Second)
		if got := d.story(id); got != "failed x1" || d.firstEnd().text != "hard timeout" {
			t.Errorf("%s", got)
		}
		if st := c.Stats(); st.InFlight != 0 || st.Late != 0 || c.unended() != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestALostAnswerLeavesNoRunBehind(t *testing.T) {
	for _, statement := range []string{"claim", "enqueue"} {
		for _, done := range []bool{true, false} {
			t.Run(fmt.Sprint(statement, " done ", done), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDatabase()
					c := d.sole(t, 10, succeed, "m.v")
					faults := 1
					c.store.breaks(func(s string, after bool) error {
						if s == statement && after == done && faults > 0 {
							faults--
							return fmt.Errorf("x: %w", lostAnswer{})
						}
						return nil
					})
					if statement == "claim" { // not at once, so that it is claimed
						c.enqueue(t, "m.v", func(n *job.New) { n.Delay = time.Second })
					} else {
						out, err := c.Enqueue(t.Context(), []job.New{{Ref: "m.v", Priority: 500}})
						if err == nil || out[0].Err == nil {
							t.Error("the caller was not told")
						}
						if !done {
							return
						}
					}
					wait(20 * time.Second)
					if got := d.story(1); got != "succeeded x1" {
						t.Errorf("%s", got)
					}
					if n := len(c.runners.calls()); n != 1 {
						t.Errorf("%d calls", n)
					}
				})
			})
		}
	}
}

func TestDrainFinishesWhatRunsAndGivesTheRestBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 2, lasting(time.Second), "m.v")
		c.runners.set(func(ctx context.Context, call Call) job.Outcome {
			if call.Job.N == 2 {
				return lasting(time.Hour)(ctx, call)
			}
			return lasting(time.Second)(ctx, call)
		})
		for range 3 {
			c.enqueue(t, "m.v")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		if err := c.Drain(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 5*time.Second+10*trip {
			t.Errorf("drained in %v", took)
		}
		if a, b, w := d.story(1), d.story(2), d.story(3); a != "succeeded x1" || b != "ready x0" || w != "ready x0" {
			t.Errorf("short %s, long %s, waiting %s", a, b, w)
		}
		c.enqueue(t, "m.v") // is still taken in
		if got := d.story(4); got != "ready x0" {
			t.Errorf("enqueued while draining: %s", got)
		}
		c.stop()
		if _, err := c.Enqueue(t.Context(), []job.New{{Ref: "m.v"}}); !errors.Is(err, cron.ErrUnavailable) {
			t.Errorf("enqueued after the end: %v", err)
		}
	})
}

func TestDrainDoesNotWaitForAVerbThatIgnoresItsCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		release := make(chan struct{})
		c := d.sole(t, 2, func(context.Context, Call) job.Outcome { <-release; return job.Outcome{} }, "m.v")
		id := c.enqueue(t, "m.v")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Drain(ctx); err != nil {
			t.Error(err)
		}
		if got := d.story(id); got != "ready x0" {
			t.Error(got)
		}
		close(release)
	})
}

func TestAFencedControllerGivesItsJobsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, lasting(time.Hour), "m.v")
		id := c.enqueue(t, "m.v")
		wait(time.Second)
		c.Fence()
		c.runners.cancelAll("fenced: heartbeats ended")
		later := c.enqueue(t, "m.v")
		wait(5 * time.Second)
		if a, b := d.story(id), d.story(later); a != "ready x0" || b != "ready x0" || len(c.runners.calls()) != 1 {
			t.Errorf("fenced: %s, %s", a, b)
		}
		c.runners.set(succeed)
		c.Unfence()
		wait(100 * time.Millisecond)
		if a, b := d.story(id), d.story(later); a != "succeeded x1" || b != "succeeded x1" {
			t.Errorf("healed: %s, %s", a, b)
		}
	})
}

func TestEndsAreRepeatedUntilTheyAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 50, succeed, "m.v")
		var away atomic.Bool
		c.store.breaks(func(s string, done bool) error {
			if away.Load() && s != "enqueue" {
				if done {
					return lostAnswer{}
				}
				return errAway
			}
			return nil
		})
		away.Store(true)
		for range 20 {
			c.enqueue(t, "m.v")
		}
		wait(30 * time.Second)
		if st := c.Stats(); st.UnsentEnds != 20 {
			t.Fatalf("%+v", st)
		}
		away.Store(false)
		wait(10 * time.Second)
		if st := c.Stats(); st.Succeeded != 20 || st.UnsentEnds != 0 || d.ended() != 20 || c.unended() != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAJobPastItsExpiryEndsWithoutARunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 0, succeed, "m.v")
		id := c.enqueue(t, "m.v", func(n *job.New) { n.Expires = time.Now().Add(10 * time.Second) })
		wait(9 * time.Second)
		if got := d.story(id); got != "ready x0" {
			t.Error(got)
		}
		wait(3 * time.Second)
		if got := d.story(id); got != "failed x0" {
			t.Error(got)
		}
	})
}

// A pause hides a job from the windows, not from its expiry.
func TestAPausedJobExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v")
		d.pause("m.v", true)
		c.Wake()
		wait(time.Second)
		id := c.enqueue(t, "m.v", func(n *job.New) { n.Expires = time.Now().Add(10 * time.Second) })
		wait(9 * time.Second)
		if got := d.story(id); got != "ready x0" {
			t.Error(got)
		}
		wait(8 * time.Second)
		if got := d.story(id); got != "failed x0" {
			t.Error(got)
		}
	})
}
