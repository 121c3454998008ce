package trigger

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/trigger"
)

// What waits for events is told each pair once, in order, within the bounds of a statement, whatever these are; an event
// that goes beyond them has one part of its jobs in each round, between the others.
func TestParts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for n := range 300 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			maxPairs, maxBytes := 1+rnd.IntN(12), 1+rnd.IntN(2000)
			want := map[[2]int64]bool{}
			for id := range int64(rnd.IntN(20)) {
				id++
				doc := fmt.Appendf(nil, `{"a":"%s"}`, bytes.Repeat([]byte("x"), rnd.IntN(300)))
				f.publish(id, trigger.Change{Type: fmt.Sprint("t", rnd.IntN(4)), Doc: doc})
				e := f.events[id]
				if rnd.IntN(4) == 0 {
					e.Upto = rnd.Int64N(100)
				}
				f.events[id] = e
			}
			for id := range int64(rnd.IntN(60)) {
				doctype := fmt.Sprint("t", rnd.IntN(4))
				f.put(3*id+1, doctype, false)
				for _, e := range f.events {
					if e.Type == doctype && 3*id+1 > e.Upto {
						want[[2]int64{e.ID, 3*id + 1}] = true
					}
				}
			}
			turns := map[int64]int{}
			f.before = func(method string, matched []trigger.Matched) (bool, error) {
				if method != "make" {
					return true, nil
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				pairs, size := 0, 0
				for _, m := range matched {
					pairs += len(m.Triggers)
					size += len(m.Triggers) * (len(f.events[m.Event].Doc) + 1)
					turns[m.Event]++
				}
				if pairs > maxPairs || size > maxBytes && pairs > 1 || len(matched) == 0 {
					t.Errorf("a part of %d pairs and %d bytes, bounds %d and %d", pairs, size, maxPairs, maxBytes)
				}
				for _, m := range matched {
					for other := range f.events {
						if other < m.Event && turns[other] < turns[m.Event] || other > m.Event && turns[other] > turns[m.Event] {
							t.Errorf("event %d has its turn %d after %d turns of event %d", m.Event, turns[m.Event], turns[other], other)
						}
					}
				}
				return true, nil
			}
			tr := start(t, f, func(c *Config) { c.Pairs, c.Bytes, c.Lanes = maxPairs, maxBytes, 1 })
			tr.OnRing(every(), nil)
			synctest.Wait()
			if events, jobs := f.left(); events != 0 || int(jobs) != len(want) {
				t.Errorf("%d: %d events are left, %d jobs, want %d", n, events, jobs, len(want))
			}
			f.once(t)
			for pair := range want {
				if f.made[pair] != 1 {
					t.Errorf("%d: no job of event %d for trigger %d", n, pair[0], pair[1])
				}
			}
		})
	}
}

// One event that 100,000 triggers wait for takes neither the room of a transaction nor the turn of the events behind it,
// the rules change meanwhile, and each trigger makes one job.
func TestAnEventThatVeryManyTriggersWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, late = 100_000, 5
		f := newFake()
		for id := range int64(n) {
			f.triggers = append(f.triggers, trigger.EventTrigger{ID: id + 1, Tenant: "t", Arguments: "io.cozy.hot", Epoch: 1})
		}
		f.epoch = 1
		f.publish(1, trigger.Change{Type: "io.cozy.hot"})
		f.publish(2, trigger.Change{Type: "io.cozy.other"})
		f.before = func(method string, matched []trigger.Matched) (bool, error) {
			pairs := 0
			for _, m := range matched {
				pairs += len(m.Triggers)
			}
			if pairs > 1000 {
				t.Errorf("%d jobs in one transaction", pairs)
			}
			if made := f.count("make"); method == "make" && made == late {
				if events, _ := f.left(); events != 1 {
					t.Errorf("%d events are left after %d transactions: the one behind has waited", events, made)
				}
				f.put(2*n, "io.cozy.hot", false) // comes late, and counts
				f.put(n, "io.cozy.hot", true)    // is gone before its turn
			} else if method == "make" && made%7 == 0 {
				return made%2 == 0, errDown // before the commit, or after
			}
			return true, nil
		}
		tr := start(t, f, func(c *Config) { c.Lanes = 1 })
		tr.OnRing(every(), nil)
		time.Sleep(time.Hour)
		if events, jobs := f.left(); events != 0 || jobs != n {
			t.Errorf("%d events are left, %d jobs, want %d", events, jobs, n)
		}
		f.once(t)
		if f.made[[2]int64{1, 2 * n}] != 1 || f.made[[2]int64{1, n}] != 0 {
			t.Errorf("%d jobs of the late trigger, %d of the one that was gone", f.made[[2]int64{1, 2 * n}], f.made[[2]int64{1, n}])
		}
	})
}

// What matching has found for long is made before it goes on; a shutdown ends it between two events.
func TestSlowMatching(t *testing.T) {
	f := newFake()
	f.put(1, "io.cozy.hot", false)
	for id := range int64(50) {
		f.publish(id+1, trigger.Change{Type: "io.cozy.hot"})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	most := 0
	f.before = func(_ string, matched []trigger.Matched) (bool, error) {
		most = max(most, len(matched))
		if f.count("make") == 10 {
			cancel()
		}
		return true, nil
	}
	tr := New(Config{Store: f, Windows: f, Slow: 1, Logger: slog.New(slog.DiscardHandler)})
	if left, err := tr.round(ctx, every(), 0); err != nil || left {
		t.Errorf("left %v, %v", left, err)
	}
	if events, _ := f.left(); most != 1 || events != 40 {
		t.Errorf("%d events in one transaction, %d are left after the shutdown, want 1 and 40", most, events)
	}
}
