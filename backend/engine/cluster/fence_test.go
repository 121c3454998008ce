package cluster

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// All controllers of a cell beat on the full second; the good beat before a cut at 1.5 s was sent at 1 s.

func TestTheOneThatIsCutOffFencesBeforeItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b", "c")
		c.at(1500 * ms)
		c.forget()
		c.cut("a")
		c.at(4900 * ms)
		c.wantHeard("a")
		c.at(20 * time.Second)
		// 4 s after sending the last good beat it asks; a neighbour that says no is asked twice, 250 ms apart.
		c.wantHeard("a", "fence 5.25s") // once, however long it lasts
		c.wantHeard("b", "ring bc")
		c.wantRing("a", "abc")
		c.mend()
		c.at(21 * time.Second)
		c.wantHeard("a", "heal")
		if s := c.all["a"].Stats(); s.Fences != 1 || s.Spared != 0 || s.Interrupted {
			t.Errorf("stats %+v, want one fence, healed", s)
		}
		c.cut("a")
		c.at(40 * time.Second)
		if got := c.all["a"].Stats().Fences; got != 2 {
			t.Errorf("%d fences after a second silence, want 2", got)
		}
	})
}

func TestAShortSilenceIsNoEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b")
		c.at(1500 * ms)
		c.forget()
		c.cut("a")
		c.at(2500 * ms)
		c.mend()
		c.at(20 * time.Second)
		c.wantHeard("a")
		c.wantHeard("b")
	})
}

func TestNobodyFencesWhileTheDatabaseIsAwayForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b", "c")
		c.at(1500 * ms)
		c.forget()
		c.cut("a", "b", "c")
		c.at(60 * time.Second)
		for key, x := range c.all {
			c.wantHeard(key)
			if s := x.Stats(); s.Spared != 1 || s.Fences != 0 || !s.Interrupted {
				t.Errorf("%s: stats %+v, want one spared silence and no fence", key, s)
			}
		}
		c.mend()
		c.at(62 * time.Second)
		for key := range c.all {
			c.wantHeard(key, "heal")
		}
	})
}

func TestBeatsOutOfStepDoNotFenceInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a")
		c.at(990 * ms)
		c.run("b", Config{})
		c.at(5995 * ms) // the last good beats: a at 5.000, b at 5.990, so b is silent for 3.01 s when a asks at 9.000
		c.forget()
		c.cut("a", "b")
		c.at(30 * time.Second)
		c.wantHeard("a")
		c.wantHeard("b")
	})
}

func TestWhoIsAboutToFallSilentIsAskedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a")
		c.at(100 * ms)
		c.run("b", Config{})
		c.at(5900 * ms)
		c.forget()
		c.cut("a") // last good beat at 5 s
		c.at(6150 * ms)
		c.cut("b") // last good beat at 6.1 s: not yet silent when asked at 9 s, but at 9.25 s
		c.at(30 * time.Second)
		c.wantHeard("a")
		c.wantHeard("b")
	})
}

func TestTheFirstThatReachesTheDatabaseAgainFencesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b")
		c.at(1500 * ms)
		c.forget()
		c.cut("a", "b")
		c.at(10500 * ms)
		c.wantHeard("a")
		c.db.set(func() { delete(c.db.cut, "b") }) // b beats again at 11 s, and may sweep from 17 s on
		c.at(16 * time.Second)
		c.wantHeard("b", "heal", "ring b")
		heard := c.all["a"].heard()
		if len(heard) != 1 || (heard[0] != "fence 11.25s" && heard[0] != "fence 12.25s") {
			t.Errorf("heard %q, want one fence within a beat after b came back", heard)
		}
	})
}

func TestAMemberThatDoesNotAnswerMayHaveSwept(t *testing.T) {
	for name, hide := range map[string]func(*network){
		"hangs":   func(n *network) { n.hidden["http://c"] = true },
		"refuses": func(n *network) { delete(n.at, "http://c") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCell(t, "a", "b", "c")
				c.at(1500 * ms)
				c.forget()
				c.cut("a", "b", "c")
				c.net.set(func() { hide(c.net) })
				c.at(5500*ms + 1)
				heard := c.all["a"].heard()
				if len(heard) != 1 || (heard[0] != "fence 5.25s" && heard[0] != "fence 5.5s") {
					t.Errorf("heard %q, want a fence within 500 ms of 5 s", heard)
				}
			})
		})
	}
}

func TestAloneNobodyCanSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a")
		c.at(1500 * ms)
		c.forget()
		c.cut("a")
		c.at(60 * time.Second)
		c.wantHeard("a")
		if c.net.asked != 0 {
			t.Errorf("asked %d times, with nobody to ask", c.net.asked)
		}
		if s := c.all["a"].Stats(); s.Spared != 0 || s.Fences != 0 {
			t.Errorf("stats %+v: there was no question to decide", s)
		}
		c.mend()
		c.at(62 * time.Second)
		c.wantHeard("a", "heal")
	})
}

func TestSilenceCountsFromSendingNotFromTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b")
		c.at(1500 * ms)
		c.db.set(func() { c.db.trip = 800 * ms }) // good, but slow: sent at 2 s, answered at 2.8 s
		c.at(2900 * ms)
		c.forget()
		c.cut("a")
		c.at(6100 * ms)
		if got := c.all["a"].LastGood().Sub(c.start); got != 2*time.Second {
			t.Errorf("last good beat sent at %s, want 2s", got)
		}
		c.at(8 * time.Second)
		c.wantHeard("a", "fence 6.25s")
	})
}

func TestInterruptedIsSaidAfterTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t)
		c.cut("a")
		a := c.run("a", Config{})
		if !a.Interrupted() {
			t.Error("not interrupted before the first good beat")
		}
		c.mend()
		c.at(1500 * ms)
		if a.Interrupted() {
			t.Error("interrupted right after a good beat")
		}
		c.cut("a")
		c.at(3900 * ms)
		if a.Interrupted() {
			t.Errorf("interrupted %s after the last good beat: it could still sweep", a.Silent())
		}
		c.at(4000 * ms)
		if !a.Interrupted() {
			t.Errorf("not interrupted %s after the last good beat", a.Silent())
		}
	})
}

func TestAProcessThatStoodStillFencesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "b")
		c.db.trip = 200 * ms
		stand := sync.OnceFunc(func() { time.Sleep(30 * time.Second) }) // nothing of a's watch goes on meanwhile
		c.run("a", Config{OnHeal: stand})
		c.at(1500 * ms)
		c.forget()
		c.cut("a")
		c.at(3900 * ms)
		c.mend()
		c.at(4300 * ms)
		c.wantHeard("a", "heal")
		c.at(36 * time.Second)
		// The next beat succeeds before anybody is asked, but the others had all the time to declare its runs lost.
		c.wantHeard("a", "fence 34.4s", "heal")
		if s := c.all["a"].Stats(); s.Fences != 1 || s.Beats != 5 {
			t.Errorf("stats %+v: want one fence, and no rush of beats that were slept through", s)
		}
	})
}

func TestWhichSilenceIsFencedLate(t *testing.T) {
	start := time.Date(2026, 3, 8, 2, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	fresh := func() *vigil {
		v := &vigil{beat: time.Second, silence: 3 * time.Second, fence: 4 * time.Second, lease: 6 * time.Second}
		v.good(at(0), at(0.1), 2)
		return v
	}
	for name, c := range map[string]struct {
		before       func(*vigil)
		back         float64
		others       int
		late, healed bool
	}{
		"next beat":               {back: 1, others: 2},
		"within the silence":      {back: 2.9, others: 2},
		"past the silence":        {back: 3.5, others: 2, healed: true},
		"within the lease":        {back: 5.9, others: 2, healed: true},
		"stood still past it":     {back: 60, others: 2, late: true, healed: true},
		"alone":                   {before: func(v *vigil) { v.alone = true }, back: 60, healed: true},
		"fenced in time":          {before: func(v *vigil) { v.judge(at(4), at(4.2), false) }, back: 60, others: 2, healed: true},
		"all were cut off":        {before: func(v *vigil) { v.judge(at(59), at(59.1), true) }, back: 60, others: 2, healed: true},
		"all were, long ago":      {before: func(v *vigil) { v.judge(at(5), at(5.1), true) }, back: 60, others: 2, late: true, healed: true},
		"no in time for the beat": {before: func(v *vigil) { v.judge(at(3), at(3.9), false) }, back: 5, others: 2, healed: true},
	} {
		v := fresh()
		if c.before != nil {
			c.before(v)
		}
		if late, healed := v.good(at(c.back), at(c.back), c.others); late != c.late || healed != c.healed {
			t.Errorf("%s: late %t, healed %t, want %t, %t", name, late, healed, c.late, c.healed)
		}
		if v.fenced || !v.spared.IsZero() {
			t.Errorf("%s: the next silence does not begin afresh: %+v", name, v)
		}
	}
}
