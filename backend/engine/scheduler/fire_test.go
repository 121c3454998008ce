package scheduler

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
)

func fires(overlap cron.Overlap) func(*cron.Job) {
	return func(j *cron.Job) { j.Fires, j.Overlap = true, overlap }
}

// told is what OnFired heard, by job; a job that was told twice is a fault.
type told struct {
	mu   sync.Mutex
	jobs map[cron.Made]int
}

func (h *told) hear(c *Config) {
	h.jobs = map[cron.Made]int{}
	c.OnFired = func(fired []cron.Firing) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, f := range fired {
			if f.Made.N != 0 {
				h.jobs[f.Made]++
			}
		}
	}
}

func (h *told) once(t *testing.T, n int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for made, times := range h.jobs {
		if times != 1 {
			t.Errorf("job %v was told %d times", made, times)
		}
	}
	if len(h.jobs) != n {
		t.Errorf("heard of %d jobs, want %d", len(h.jobs), n)
	}
}

func neverCalled(t *testing.T) verbs {
	return func(c Call) Outcome {
		t.Errorf("%s was called for %v: its row fires", c.Ref, c.Slot)
		return succeed(c)
	}
}

func TestRowsThatFireNeverExecute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		var jobs []*cron.Job
		for i := range 12 {
			jobs = append(jobs, d.add(fmt.Sprintf("m.v%d", i), "* * * * * *", fires([]cron.Overlap{cron.OverlapQueue, cron.OverlapAllow, cron.OverlapCancel}[i%3])))
		}
		var heard [2]told
		a := d.controller(t, "a", neverCalled(t), heard[0].hear)
		b := d.controller(t, "b", neverCalled(t), heard[1].hear)
		a.OnRing(allShards[:2], allShards[2:])
		b.OnRing(allShards[2:], allShards[:2])
		wait(10*time.Second + 300*time.Millisecond)
		a.stop()
		wait(10 * time.Second)
		for _, j := range jobs {
			d.everySlotOnce(t, j, start.Add(time.Second))
		}
		if got, want := len(d.made), 12*20; got != want {
			t.Errorf("%d jobs, want %d", got, want)
		}
		for _, r := range d.made {
			if late := r.StartedAt.Sub(r.Slot); late != 0 && late != 250*time.Millisecond {
				t.Errorf("slot %v fired %v late", r.Slot, late)
			}
		}
		heard[1].once(t, len(d.made)-len(heard[0].jobs))
		if st := b.Stats(); st.Fired != int64(len(heard[1].jobs)) || st.Won != 0 || st.InFlight != 0 || st.Claiming != 0 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestALiveJobSkipsTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "* * * * * *", fires(cron.OverlapSkip))
		a := d.controller(t, "a", neverCalled(t))
		a.OnRing(allShards, nil)
		wait(2500 * time.Millisecond)
		d.done()
		wait(2 * time.Second)
		if got, want := d.story(job, start), "fired 1s, skipped_overlap 2s-2s x1, fired 3s, skipped_overlap 4s-4s x1"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestFiringCatchesUp(t *testing.T) {
	for catchup, want := range map[cron.Catchup]string{
		cron.CatchupLast: "skipped_missed -3m0s--2m0s x2, fired -1m0s",
		cron.CatchupNone: "skipped_missed -3m0s--1m0s x3",
		cron.CatchupAll:  "fired -3m0s, fired -2m0s, fired -1m0s",
	} {
		t.Run(string(catchup), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDatabase()
				minute := time.Now().Truncate(time.Minute).Add(time.Minute)
				wait(time.Until(minute) - time.Second)
				job := d.add("m.v", "* * * * *", fires(cron.OverlapQueue), func(j *cron.Job) { j.Catchup, j.Next = catchup, minute.Add(-3*time.Minute).UTC() })
				a := d.controller(t, "a", neverCalled(t))
				a.OnRing(allShards, nil)
				wait(500 * time.Millisecond)
				if got := d.story(job, minute); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				wait(time.Second)
				if got := d.story(job, minute); got != want+", fired 0s" {
					t.Errorf("and then: %s", got)
				}
			})
		})
	}
}

func TestOfAHugeBacklogAHundredFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.add("m.v", "* * * * * *", fires(cron.OverlapQueue), func(j *cron.Job) { j.Catchup, j.Next = cron.CatchupAll, j.Next.Add(-time.Hour) })
		a := d.controller(t, "a", neverCalled(t))
		a.OnRing(allShards, nil)
		wait(900 * time.Millisecond)
		if len(d.made) != cron.AllBacklog {
			t.Errorf("%d jobs", len(d.made))
		}
		for i, r := range d.made {
			if i > 0 && !r.Slot.After(d.made[i-1].Slot) {
				t.Fatalf("slot %v was fired after %v", r.Slot, d.made[i-1].Slot)
			}
		}
	})
}

// A firing whose answer is lost makes one job all the same, and is told once.
func TestALostFiringIsToldOnce(t *testing.T) {
	for name, committed := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, start := newDatabase(), time.Now()
				job := d.add("m.v", "* * * * * *", fires(cron.OverlapCancel))
				var heard told
				a := d.controller(t, "a", neverCalled(t), heard.hear)
				var mu sync.Mutex
				faults := 1
				a.store.fault = func(statement string, done bool) error {
					mu.Lock()
					defer mu.Unlock()
					if statement == "fire" && done == committed && faults > 0 {
						faults--
						return fmt.Errorf("fire: %w", lostAnswer{})
					}
					if statement == "lookup fired" && !done && faults == 0 {
						faults-- // the first look fails too
						return errAway
					}
					return nil
				}
				a.OnRing(allShards, nil)
				wait(3900 * time.Millisecond)
				if got, want := d.story(job, start), "fired 1s, fired 2s, fired 3s"; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				heard.once(t, 3)
				wait(10 * time.Second)
				heard.once(t, 13)
			})
		})
	}
}

// A firing that reaches the database only after it was looked up is told at the second look, unless the row was tried
// again before: then it lost.
func TestAFiringThatArrivesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "0 * * * * *", fires(cron.OverlapAllow))
		first := job.Next
		var heard told
		a := d.controller(t, "a", neverCalled(t), heard.hear)
		var late []cron.Claim
		a.store.fault = func(statement string, done bool) error {
			if statement != "fire" || done {
				return nil
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if late != nil {
				return nil
			}
			a.Scheduler.mu.Lock()
			id := a.plan.rows[job.ID].claim
			a.Scheduler.mu.Unlock()
			late = []cron.Claim{{JobID: job.ID, Version: 1, Expected: first, Slot: first, Next: first.Add(time.Minute), RunID: id, Fires: true}}
			job.Enabled = false // so that nobody fires it meanwhile
			return fmt.Errorf("fire: %w", lostAnswer{})
		}
		a.OnRing(allShards, nil)
		wait(first.Sub(start) + time.Second)
		heard.once(t, 0)
		d.mu.Lock()
		job.Enabled = true
		claims := late
		d.mu.Unlock()
		other := &store{database: d, controller: "a"} // the same statement, late
		if fired, err := other.FireCronJobs(t.Context(), claims); err != nil || len(fired) != 1 {
			t.Fatalf("%v, %v", fired, err)
		}
		wait(10 * time.Second)
		heard.once(t, 1)
		if got := d.story(job, first); got != "fired 0s" {
			t.Errorf("got %s", got)
		}
	})
}

// A row that becomes one that fires while it executes: its run ends normally, and then it fires.
func TestARowBecomesOneThatFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		job := d.add("m.v", "* * * * * *")
		a := d.controller(t, "a", lasting(1500*time.Millisecond))
		a.OnRing(allShards, nil)
		wait(1200 * time.Millisecond)
		d.mu.Lock()
		job.Fires, job.Overlap, job.Version = true, cron.OverlapQueue, job.Version+1
		d.mu.Unlock()
		if err := a.Hint(t.Context(), []string{"m"}); err != nil {
			t.Fatal(err)
		}
		wait(3 * time.Second)
		if got, want := d.story(job, start), "succeeded 1s, fired 2s, fired 3s, fired 4s"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
