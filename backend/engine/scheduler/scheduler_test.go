package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
)

func TestEachSlotRunsOnceWhoeverDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		var jobs []*cron.Job
		for i := range 20 {
			jobs = append(jobs, d.add(fmt.Sprintf("m.v%d", i), "* * * * * *"))
		}
		a := d.controller(t, "a", succeed)
		b := d.controller(t, "b", succeed)
		a.OnRing(allShards[:2], allShards[2:])
		b.OnRing(allShards[2:], allShards[:2])
		wait(10*time.Second + 100*time.Millisecond)
		lateness := func(from time.Time) (worst time.Duration) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, r := range d.ledger {
				if r.Slot.After(from) {
					worst = max(worst, r.Lateness())
				}
			}
			return worst
		}
		if worst := lateness(start); worst != 0 {
			t.Errorf("both alive: a run began %v after its slot", worst)
		}
		died := time.Now()
		a.stop()
		wait(10 * time.Second)
		if worst := lateness(died); worst != 250*time.Millisecond {
			t.Errorf("one died: a run began %v after its slot, want the steal delay", worst)
		}
		for _, j := range jobs {
			d.everySlotOnce(t, j, start.Add(time.Second))
		}
		promoted := time.Now()
		b.OnRing(allShards, nil)
		wait(5 * time.Second)
		if worst := lateness(promoted); worst != 0 {
			t.Errorf("sole owner: a run began %v after its slot", worst)
		}
	})
}

func TestOverlapIsOneRangeWrittenByTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.slow", "* * * * * *")
		a := d.controller(t, "a", lasting(3500*time.Millisecond))
		b := d.controller(t, "b", succeed)
		a.OnRing(allShards, nil)
		b.OnRing(nil, allShards)
		wait(5100 * time.Millisecond)
		if got, want := d.story(job, start), "succeeded 1s, skipped_overlap 2s-4s x3"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		// The second owner probes once per slot, and only after its delay.
		if got := d.count("start"); got > 2+5 {
			t.Errorf("%d claim statements for 5 slots and one prober", got)
		}
		wait(20 * time.Second)
		d.everySlotOnce(t, job, start.Add(time.Second))
	})
}

func TestCatchupAfterAnOutage(t *testing.T) {
	for catchup, want := range map[cron.Catchup]string{
		cron.CatchupLast: "skipped_missed -3m0s--2m0s x2, succeeded -1m0s",
		cron.CatchupNone: "skipped_missed -3m0s--1m0s x3",
		cron.CatchupAll:  "succeeded -3m0s, succeeded -2m0s, succeeded -1m0s",
	} {
		t.Run(string(catchup), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDatabase()
				minute := time.Now().Truncate(time.Minute).Add(time.Minute)
				wait(time.Until(minute) - time.Second) // one second to the full minute: the latest slot is 59 s old
				job := d.add("m.v", "* * * * *", func(j *cron.Job) { j.Catchup, j.Next = catchup, minute.Add(-3*time.Minute).UTC() })
				a := d.controller(t, "a", succeed)
				a.OnRing(allShards, nil)
				wait(500 * time.Millisecond)
				if got := d.story(job, minute); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				wait(time.Second)
				if got := d.story(job, minute); got != want+", succeeded 0s" {
					t.Errorf("and then: %s", got)
				}
			})
		})
	}
}

func TestALostClaimIsLookedUpByItsRunID(t *testing.T) {
	for name, tc := range map[string]struct {
		done bool // the claim was committed, its answer got lost
		want string
	}{"committed": {true, "succeeded 1s, succeeded 2s"}, "not committed": {false, "succeeded 1s, succeeded 2s"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, start := newDatabase(), time.Now()
				job := d.add("m.v", "* * * * * *")
				var calls atomic.Int32
				a := d.controller(t, "a", func(c Call) Outcome { calls.Add(1); return succeed(c) })
				faults := 1
				a.store.fault = func(statement string, done bool) error {
					if statement == "start" && done == tc.done && faults > 0 {
						faults--
						return fmt.Errorf("claim: %w", lostAnswer{})
					}
					if statement == "lookup" && !done && d.count("lookup") == 0 && faults == 0 {
						faults-- // the first look fails too
						return errAway
					}
					return nil
				}
				a.OnRing(allShards, nil)
				wait(2900 * time.Millisecond)
				if got := d.story(job, start); got != tc.want || calls.Load() != 2 {
					t.Errorf("%d calls: %s, want %s", calls.Load(), got, tc.want)
				}
			})
		})
	}
}

// A claim that reaches the database only after it was looked up must still be called, or end.
func TestAClaimThatArrivesLateIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "0 0 0 1 * *", func(j *cron.Job) { j.Next = time.Now().Add(time.Second).UTC() })
		a := d.controller(t, "a", succeed)
		held := false
		a.store.fault = func(statement string, done bool) error {
			if statement == "start" && !done && !held {
				held = true
				return lostAnswer{}
			}
			if statement == "start" && !done {
				return errAway // the row stays as it is until the held claim arrives
			}
			return nil
		}
		a.OnRing(allShards, nil)
		wait(1100 * time.Millisecond)
		a.mu.Lock()
		var id cron.RunID
		for id = range a.doubt {
		}
		a.mu.Unlock()
		if !a.Known(id) {
			t.Fatal("a claim in doubt is not known")
		}
		d.mu.Lock()
		job.State, job.Next = cron.Executing, time.Now().AddDate(0, 1, 0).UTC()
		job.Current = cron.Run{ID: id, JobID: job.ID, Slot: start.Add(time.Second).UTC(), Kind: cron.SlotRun, Controller: "a", StartedAt: time.Now().UTC()}
		d.mu.Unlock()
		wait(7 * time.Second)
		if got := d.story(job, start); got != "succeeded 1s" || a.Known(id) {
			t.Errorf("got %q, still known: %v", got, a.Known(id))
		}
	})
}

func TestEndsAreRepeatedUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		hourly := func(j *cron.Job) { j.Next = time.Now().Add(time.Second).UTC() }
		job, other := d.add("m.v", "0 * * * *", hourly), d.add("m.w", "0 * * * *", hourly)
		a := d.controller(t, "a", succeed)
		failures := 0
		a.store.fault = func(statement string, done bool) error {
			if statement == "end" && done == (failures == 2) && failures < 4 { // the third is done, its answer lost
				failures++
				return lostAnswer{}
			}
			return nil
		}
		a.OnRing(allShards, nil)
		wait(1050 * time.Millisecond)
		if st := a.Stats(); st.UnsentEnds != 2 || !a.Known(job.Current.ID) {
			t.Errorf("%d unsent ends, known %v", st.UnsentEnds, a.Known(job.Current.ID))
		}
		wait(5 * time.Second)
		for _, j := range []*cron.Job{job, other} {
			if got := d.story(j, start); got != "succeeded 1s" {
				t.Errorf("got %s", got)
			}
		}
		if st := a.Stats(); st.UnsentEnds != 0 || st.LateEnds != 0 || failures != 4 {
			t.Errorf("%+v after %d failures", st, failures)
		}
	})
}

func TestALateEndIsRefusedAndTheRowReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "*/10 * * * * *", func(j *cron.Job) { j.Next = time.Now().Add(time.Second).UTC() })
		a := d.controller(t, "a", lasting(5*time.Second))
		a.OnRing(allShards, nil)
		wait(2 * time.Second)
		d.sweep("a")
		wait(15 * time.Second)
		if got := d.story(job, start); got != "lost 1s, succeeded 10s" || a.Stats().LateEnds != 1 || d.count("get") != 1 {
			t.Errorf("%s, %d late ends, %d rows read", got, a.Stats().LateEnds, d.count("get"))
		}
	})
}

func TestAnOutcomeWithoutAVerdictIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "* * * * * *")
		a := d.controller(t, "a", func(Call) Outcome { return Outcome{Error: "\x00"} })
		a.OnRing(allShards, nil)
		wait(1500 * time.Millisecond)
		if got := d.story(job, start); got != "failed 1s" || strings.Contains(d.ledger[0].Error, "\x00") {
			t.Errorf("%s: %q", got, d.ledger[0].Error)
		}
	})
}

func TestARowThatCannotBeWonIsNotTriedInABusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.add("m.v", "0 0 * * *", func(j *cron.Job) { j.Next = time.Now().Add(-time.Minute).UTC() })
		a := d.controller(t, "a", succeed)
		a.store.fault = func(statement string, done bool) error {
			if statement == "start" && !done {
				for _, j := range d.jobs { // no claim ever matches
					j.Next = j.Next.Add(time.Microsecond)
				}
			}
			if statement == "get" && !done {
				for _, j := range d.jobs {
					j.Next = j.Next.Add(-time.Microsecond)
				}
			}
			return nil
		}
		a.OnRing(allShards, nil)
		wait(30 * time.Second)
		if n := d.count("start"); n < 10 || n > 25 {
			t.Errorf("%d claim statements in 30 s, want a step that doubles from 1 ms to 5 s", n)
		}
	})
}

func TestAScheduleThatCannotBeReadIsSetAsideAndItsNeighboursRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		next := func(j *cron.Job) { j.Next = time.Now().Add(time.Second).UTC() }
		bad := d.add("m.bad", "61 * * * *", next)
		zone := d.add("m.zone", "* * * * *", next, func(j *cron.Job) { j.Zone = "Mars/Base" })
		good := d.add("m.good", "* * * * * *")
		a := d.controller(t, "a", succeed)
		a.OnRing(allShards, nil)
		wait(1500 * time.Millisecond)
		if got := d.story(good, start); got != "succeeded 1s" {
			t.Errorf("the neighbour: %q", got)
		}
		if bad.Enabled || zone.Enabled || !strings.Contains(d.aside[bad.ID], "61") || !strings.Contains(d.aside[zone.ID], "Mars") {
			t.Errorf("not set aside: %v", d.aside)
		}
		wait(3 * time.Minute)
		if n := a.Stats().SetAside; n != 2 {
			t.Errorf("set aside %d times", n)
		}
	})
}

func TestTenThousandAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		d, start := newDatabase(), time.Now()
		for i := range n {
			d.add(fmt.Sprintf("m.v%d", i), "* * * * *")
		}
		minute := start.Truncate(time.Minute).Add(time.Minute)
		var most, now atomic.Int64
		a := d.controller(t, "a", func(c Call) Outcome {
			for v := now.Add(1); ; {
				if m := most.Load(); m >= v || most.CompareAndSwap(m, v) {
					break
				}
			}
			time.Sleep(100 * time.Millisecond)
			now.Add(-1)
			return succeed(c)
		}, func(c *Config) { c.MaxInFlight = 2990 })
		a.store.fault = func(_ string, done bool) error {
			if !done {
				time.Sleep(2 * time.Millisecond) // as long as a statement takes
			}
			return nil
		}
		a.OnRing(allShards, nil)
		wait(time.Until(minute) + 10*time.Second)
		if st := a.Stats(); st.Ended != n || st.InFlight != 0 || most.Load() > 2990 {
			t.Errorf("%d ended, at most %d in flight: %+v", st.Ended, most.Load(), st)
		}
		if got := d.count("start"); got < n/250 || got > n/250+200 {
			t.Errorf("%d claim statements", got)
		}
		if got := d.count("end"); got > 100 {
			t.Errorf("%d end statements", got)
		}
	})
}

func TestDrainWaitsThenCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		quick, slow, deaf := d.add("m.quick", "* * * * * *"), d.add("m.slow", "* * * * * *"), d.add("m.deaf", "* * * * * *")
		cancelled := make(chan struct{})
		var once sync.Once
		a := d.controller(t, "a", func(c Call) Outcome {
			switch c.Ref {
			case "m.quick":
				time.Sleep(2 * time.Second)
			case "m.slow":
				<-cancelled
				return Outcome{Verdict: cron.Cancelled, Error: "controller draining"}
			case "m.deaf":
				time.Sleep(time.Hour)
			}
			return succeed(c)
		}, func(c *Config) { c.Cancel = func(string) { once.Do(func() { close(cancelled) }) } })
		a.OnRing(allShards, nil)
		wait(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := a.Drain(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 8*time.Second {
			t.Errorf("drained after %v", took)
		}
		for job, want := range map[*cron.Job]string{quick: "succeeded 1s, skipped_overlap 2s-3s x2",
			slow: "cancelled 1s, skipped_overlap 2s-6s x5", deaf: "cancelled 1s, skipped_overlap 2s-7s x6",
		} {
			if got := d.story(job, start); got != want {
				t.Errorf("%s: got %s, want %s", job.Ref, got, want)
			}
		}
		a.stop()
		time.Sleep(2 * time.Hour) // the deaf verb returns, too late to matter
	})
}

func TestFencedControllersClaimNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "* * * * * *")
		a := d.controller(t, "a", succeed)
		a.OnRing(allShards, nil)
		wait(1500 * time.Millisecond)
		a.Fence()
		wait(3 * time.Second)
		if got := d.story(job, start); got != "succeeded 1s" {
			t.Errorf("while fenced: %s", got)
		}
		a.Unfence()
		wait(600 * time.Millisecond)
		if got, want := d.story(job, start), "succeeded 1s, skipped_missed 2s-3s x2, succeeded 4s, succeeded 5s"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
