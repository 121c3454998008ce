package cluster

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheClockFollowsTheDatabaseWhateverTheLocalOneSays(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			c := newCell(t)
			c.db.ahead = 37 * time.Minute
			c.db.trip = 4 * ms
			a := c.run("a", Config{Skew: skew})
			clock := a.Clock()
			if clock.Known() || clock.Error() != 0 {
				t.Error("known before the first answer")
			}
			c.at(10500 * ms)
			want := time.Now().Add(c.db.ahead)
			if got := clock.Now(); !got.Equal(want) {
				t.Errorf("skew %s: clock is off by %s", skew, got.Sub(want))
			}
			if got := clock.Error(); got < 2*ms || got > 3*ms {
				t.Errorf("skew %s: error %s, want half of a 4 ms trip, a little more", skew, got)
			}
			if got := a.Stats().Offset; got != c.db.ahead-skew {
				t.Errorf("skew %s: offset %s, want %s", skew, got, c.db.ahead-skew)
			}
		})
	}
}

// The true offset lies within Error of the estimate, for trips that are slow in one direction only, and clocks that
// drift.
func TestErrorBoundsTheClock(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, drift := range []float64{0, 50e-6, -50e-6} {
		var rs readings
		epoch := time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)
		truth := func(local time.Time) time.Time {
			since := local.Sub(epoch)
			return local.Add(-3*time.Hour + time.Duration(drift*float64(since)))
		}
		improved := 0
		for second := range 500 {
			sent := epoch.Add(time.Duration(second) * time.Second)
			there := time.Duration(random.ExpFloat64() * float64(5*ms))
			back := time.Duration(random.ExpFloat64() * float64(ms))
			got := sent.Add(there + back)
			best := rs.add(reading{at: sent.Add(got.Sub(sent) / 2), db: truth(sent.Add(there)), trip: got.Sub(sent)})
			for _, later := range []time.Duration{0, 500 * ms, time.Second} {
				local := got.Add(later)
				if off := best.now(local).Sub(truth(local)).Abs(); off > best.doubt(local) {
					t.Fatalf("drift %g, second %d: off by %s, error %s", drift, second, off, best.doubt(local))
				}
			}
			if best.trip < got.Sub(sent) {
				improved++
			}
		}
		if len(rs) != keptReadings {
			t.Errorf("drift %g: %d readings kept, want %d", drift, len(rs), keptReadings)
		}
		if improved < 300 {
			t.Errorf("drift %g: an older, better reading was used %d times of 500", drift, improved)
		}
	}
}

func TestAJumpOfTheDatabasesClockIsFollowedAtOnce(t *testing.T) {
	for _, jump := range []time.Duration{10 * 24 * time.Hour, -time.Hour, 50 * ms} {
		synctest.Test(t, func(t *testing.T) {
			c := newCell(t)
			c.db.trip = 2 * ms
			a := c.run("a", Config{})
			c.at(20500 * ms)
			c.db.set(func() { c.db.ahead, c.db.trip = jump, 8*ms })
			c.at(21100 * ms)
			if off := a.Clock().Now().Sub(time.Now().Add(jump)); off.Abs() > a.Clock().Error() {
				t.Errorf("after a jump of %s: off by %s, error %s", jump, off, a.Clock().Error())
			}
		})
	}
}
