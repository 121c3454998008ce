package scheduler

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSkewedClocksNeitherWedgeNorFireEarlyOrTwice(t *testing.T) {
	for _, offset := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		for _, wrong := range []time.Duration{0, -30 * time.Millisecond, 30 * time.Millisecond, 10 * time.Minute} {
			t.Run(fmt.Sprint(offset, " wrong by ", wrong), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDatabase()
					d.offset = offset
					first := d.now().Add(time.Second)
					job := d.add("m.v", "* * * * * *")
					a := d.controller(t, "a", succeed, func(c *Config) { c.Clock = clock{d, wrong, 2 * time.Millisecond} })
					a.OnRing(allShards, nil)
					wait(10500 * time.Millisecond)
					d.everySlotOnce(t, job, first)
					if n := d.count("start"); n > 40 {
						t.Errorf("%d claim statements for 10 slots", n)
					}
				})
			})
		}
	}
}

func TestTimersAimAtTheSlotPlusTheErrorOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.add("m.v", "* * * * * *")
		a := d.controller(t, "a", succeed, func(c *Config) { c.Clock = clock{d, 5 * time.Millisecond, 5 * time.Millisecond} })
		a.OnRing(allShards, nil)
		wait(10500 * time.Millisecond)
		if st := a.Stats(); st.Lost != 0 || st.Won != 10 {
			t.Errorf("an estimate within its error: %d lost, %d won", st.Lost, st.Won)
		}
	})
}

// An estimate that ran ahead, was found out by lost claims, and was then set right must not keep tries late.
func TestAClockThatWasSetRightIsBelievedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		job := d.add("m.v", "* * * * * *")
		wrong := &movingClock{d: d}
		wrong.ahead.Store(int64(10 * time.Minute))
		a := d.controller(t, "a", succeed, func(c *Config) { c.Clock = wrong })
		a.OnRing(allShards, nil)
		wait(3500 * time.Millisecond)
		wrong.ahead.Store(0)
		wait(7 * time.Second)
		d.mu.Lock()
		defer d.mu.Unlock()
		if late := job.Current.Lateness(); late != 0 || time.Since(job.Current.Slot) > time.Second {
			t.Errorf("the last run, of %v, began %v late", job.Current.Slot, late)
		}
	})
}

type movingClock struct {
	d     *database
	ahead atomic.Int64
}

func (c *movingClock) Now() time.Time       { return c.d.now().Add(time.Duration(c.ahead.Load())) }
func (c *movingClock) Error() time.Duration { return 0 }
