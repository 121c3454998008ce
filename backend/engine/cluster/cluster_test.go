package cluster

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/ring"
)

const ms = time.Millisecond

func TestMembersSeeEachOtherWithinABeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a")
		select {
		case <-c.all["a"].Joined():
		default:
			t.Error("alone: not joined after the first beat")
		}
		c.wantHeard("a", "ring a")
		c.at(300 * ms)
		c.run("b", Config{})
		c.wantHeard("b", "ring ab")
		c.wantRing("a", "a")
		c.at(1000 * ms)
		c.wantHeard("a", "ring ab")
		for shard := range int32(ring.Shards) {
			a1, a2 := c.all["a"].Ring().Owners(shard)
			b1, b2 := c.all["b"].Ring().Owners(shard)
			if a1 != b1 || a2 != b2 {
				t.Fatalf("shard %d: a says %s, %s and b says %s, %s", shard, a1, a2, b1, b2)
			}
		}
		c.at(10 * time.Second)
		c.wantHeard("a") // nothing changes, nothing is said
		if s := c.all["a"].Stats(); s.Beats != 11 || s.FailedBeats != 0 || s.RingChanges != 2 || s.Members != 2 {
			t.Errorf("stats %+v, want 11 beats and 2 ring changes", s)
		}
	})
}

func TestADeadMemberLeavesTheRingAfterTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b", "c")
		c.at(5500 * ms)
		c.all["b"].stop()
		if err := <-c.all["b"].ended; err != nil {
			t.Errorf("stopped: %v, want nil", err)
		}
		c.at(7500 * ms)
		c.wantRing("a", "abc")
		c.at(8500 * ms)
		c.wantRing("a", "ac")
		c.wantRing("c", "ac")
	})
}

func TestDrainingLeavesAtOnceAndStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b")
		c.at(1500 * ms)
		c.forget()
		if err := c.all["b"].Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.wantHeard("b", "ring a") // its own ring follows without waiting for the next beat
		c.at(2000 * ms)
		c.wantHeard("a", "ring a")
		c.db.set(func() { c.db.rows["b"].state = ring.Live }) // was gone for a moment, and the beat revived it
		c.at(3000 * ms)
		c.wantRing("b", "a")
		c.db.set(func() {
			if got := c.db.rows["b"].state; got != ring.Draining {
				t.Errorf("state %q, want draining", got)
			}
			delete(c.db.rows, "b")
		})
		c.at(4000 * ms)
		c.db.set(func() {
			if r := c.db.rows["b"]; r == nil || r.state != ring.Draining {
				t.Errorf("row after it was deleted: %+v, want draining", r)
			}
		})
	})
}

func TestADrainThatFailsIsSaidWithTheNextBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b")
		c.at(1500 * ms)
		c.cut("b")
		ctx, cancel := contextFor(t, 100*ms)
		defer cancel()
		if err := c.all["b"].Drain(ctx); !errors.Is(err, errCut) {
			t.Errorf("drain without a database: %v, want the reason", err)
		}
		c.mend()
		c.at(4500 * ms)
		c.wantRing("a", "a")
		c.wantRing("b", "a")
	})
}

func TestDeregisterEndsRunAndDeletesTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b")
		c.at(1500 * ms)
		if err := c.all["b"].Deregister(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.at(2500 * ms)
		c.db.set(func() {
			if c.db.rows["b"] != nil {
				t.Error("a beat registered the controller that had left")
			}
		})
		if err := <-c.all["b"].ended; err != nil {
			t.Errorf("run ended with %v", err)
		}
		c.wantRing("a", "a")
	})
}

func TestADeletedRowIsRegisteredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b")
		c.at(1500 * ms)
		c.forget()
		c.db.set(func() { delete(c.db.rows, "a") })
		c.at(3500 * ms)
		c.wantHeard("a")
		c.wantRing("a", "ab")
		c.db.set(func() {
			if want := []string{"a register", "b register", "a register"}; !slices.Equal(c.db.said, want) {
				t.Errorf("statements %q, want %q", c.db.said, want)
			}
		})
	})
}

func TestALaterProcessOfTheSameEndpointSupersedes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b")
		c.at(1500 * ms)
		c.run("z", Config{Endpoint: "http://a"})
		err := <-c.all["a"].ended
		if !errors.Is(err, ErrSuperseded) {
			t.Errorf("run ended with %v, want ErrSuperseded", err)
		}
		c.at(2500 * ms)
		c.wantRing("b", "bz")
		c.wantRing("z", "bz")
	})
}

func TestFailedBeatsKeepTheRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b", "c")
		c.at(1500 * ms)
		c.forget()
		c.cut("a", "b", "c")
		c.at(20500 * ms)
		c.mend()
		c.at(30500 * ms)
		for key := range c.all {
			c.wantRing(key, "abc")
			c.wantHeard(key, "heal") // and no ring in between: the first one back does not call the others dead
		}
	})
}

func TestWhoWasAwayJudgesAfterASilenceOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a", "b", "c")
		c.at(1500 * ms)
		c.forget()
		c.cut("a", "b", "c")
		c.at(10500 * ms)
		c.all["c"].stop() // dies in the outage
		c.mend()
		c.at(13000 * ms)
		c.wantRing("a", "abc")
		c.at(14500 * ms)
		c.wantRing("a", "ab")
		c.wantRing("b", "ab")
	})
}

func TestAnAnswerWithoutItselfChangesNothing(t *testing.T) {
	w := &watcher{c: &Cluster{cfg: Config{Key: "a"}.withDefaults()}, members: make(chan []ring.Member, 1)}
	w.see(ring.Beat{State: ring.Live, Members: []ring.Member{{Key: "b"}}})
	w.offer(ring.Live)
	w.see(ring.Beat{State: ring.Live})
	w.offer(ring.Live)
	if len(w.members) != 0 {
		t.Errorf("offered %v", <-w.members)
	}
}

func TestASlowDatabaseDoesNotHalveTheTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "a")
		c.at(500 * ms)
		c.cut("a") // every beat takes its whole second, and fails
		c.at(10500 * ms)
		if s := c.all["a"].Stats(); s.FailedBeats < 9 {
			t.Errorf("%d tries in 10 s, want one each second", s.FailedBeats)
		}
	})
}

func TestConfigRefusesAnOrderThatWouldDoubleRuns(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no key":               func(c *Config) { c.Key = "" },
		"no endpoint":          func(c *Config) { c.Endpoint = "" },
		"two beats in silence": func(c *Config) { c.Beat = 1001 * ms },
		"fence = silence":      func(c *Config) { c.Fence = c.Silence },
		"fence = lease":        func(c *Config) { c.Fence = c.Lease },
		"negative grace":       func(c *Config) { c.Grace = -1 },
	} {
		cfg := Config{Key: "a", Endpoint: "http://a"}.withDefaults()
		if err := cfg.Validate(); err != nil {
			t.Fatalf("defaults: %v", err)
		}
		change(&cfg)
		if _, err := New(cfg, nil, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	cfg := Config{}.withDefaults()
	got := []time.Duration{cfg.Beat, cfg.Silence, cfg.Fence, cfg.Lease, cfg.Grace}
	want := []time.Duration{time.Second, 3 * time.Second, 4 * time.Second, 6 * time.Second, 5 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("defaults %v, want %v", got, want)
	}
}
