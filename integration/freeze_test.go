package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/integration/cluster"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// TestAFrozenControllersLateEndsAreRefused: SIGSTOP for longer than the hard timeout, then SIGCONT. What it was told
// while it stood still came too late, and is refused and counted.
func TestAFrozenControllersLateEndsAreRefused(t *testing.T) {
	c := settled(t)
	c.Age(t)
	verbs := slices.Concat(cluster.Verbs(40, "v"), cluster.Verbs(40, "nap700"))
	for i := range verbs {
		verbs[i].Timeout = 2 * time.Second // and HardGrace more
	}
	m, _ := c.Up(t, verbs...)
	cluster.Let(t, 2*time.Second)
	victim := c.Live()[2]
	before := victim.Metric(t, "carillon_late_ends_total")
	c.InFlight(t, m, "nap", victim.Key)
	frozen := c.Stop(t, victim)
	cluster.Let(t, max(seconds(t, 11), 11*time.Second)) // hard timeout is 4 s, the lease 6 s
	c.Cont(t, victim)
	thawed := time.Now()
	cluster.Eventually(t, 10*time.Second, "a late end that is counted", func() error {
		if n := victim.Metric(t, "carillon_late_ends_total"); n <= before {
			return errorf("%v late ends were refused", n)
		}
		return nil
	})
	cluster.Let(t, 4*time.Second)
	refused := victim.Metric(t, "carillon_late_ends_total") - before
	h := c.Judge(t, m)[0]

	freed := 0
	for _, r := range h.Rows {
		if r.Controller != victim.Key || r.RunID == "" || r.StartedAt.After(thawed) || r.EndedAt.Before(frozen) || r.EndedAt.After(thawed) && r.StartedAt.After(frozen) {
			continue
		}
		freed++
		if r.Verdict != "timed_out" && r.Verdict != "lost" {
			t.Errorf("%s slot %v was in flight at the freeze and ended as %s", r.Ref, r.Slot, r.Verdict)
		}
		if r.EndedAt.After(thawed) {
			t.Errorf("%s slot %v was freed only after the thaw", r.Ref, r.Slot)
		}
	}
	if freed == 0 {
		t.Error("nothing was in flight at the freeze")
	}
	if int(refused) != freed {
		t.Errorf("%v late ends were refused, %d runs had been freed", refused, freed)
	}
	t.Logf("SIGSTOP for %v: %d runs freed meanwhile, %v late ends refused", thawed.Sub(frozen).Round(time.Millisecond), freed, refused)
}

// TestAWrongClockStartsNothingEarlyOrNever: controllers whose clocks are ten minutes off, in either direction.
func TestAWrongClockStartsNothingEarlyOrNever(t *testing.T) {
	c := settled(t)
	fast := c.StartController(t, "--test-clock-skew", "10m")
	slow := c.StartController(t, "--test-clock-skew=-10m")
	c.Settle(t, members+2)
	m, _ := c.Up(t, append(cluster.Verbs(200, "v"), cluster.Verb{Name: "slow", Every: 5})...)
	cluster.Let(t, seconds(t, 5))
	h := c.Judge(t, m)[0]
	starts := map[string]int{}
	for _, r := range h.Rows {
		if r.RunID != "" {
			starts[r.Controller]++
		}
		if r.Verdict == "skipped_missed" {
			t.Errorf("%s missed %v", r.Ref, r.Slot)
		}
	}
	for _, k := range []*cluster.Controller{fast, slow} {
		if starts[k.Key] == 0 {
			t.Errorf("controller %s with a wrong clock started nothing: %v", k.Key, starts)
		}
	}
	offset := fast.Metric(t, "carillon_clock_offset_seconds")
	if offset > -590 || offset < -610 {
		t.Errorf("the fast controller measures an offset of %v s, want about -600", offset)
	}
	c.Term(t, slow)
	c.Term(t, fast)
}
