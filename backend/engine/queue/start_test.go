package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
)

func priority(p int) func(*job.New) { return func(n *job.New) { n.Priority = p } }

func TestANewJobOvertakesNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		waits  time.Duration
		newOne int // priority
		atOnce int64
	}{
		"of its own lane":                        {10 * time.Millisecond, 500, 0},
		"of a lower lane that came just now":     {10 * time.Millisecond, 900, 1},
		"of a lower lane that waited for longer": {time.Second, 900, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDatabase()
				c := d.sole(t, 0, lasting(time.Second), "m.v")
				c.enqueue(t, "m.v", priority(900)) // so that this queue is known
				d.cancel(1)
				wait(2 * time.Second)
				first := c.enqueue(t, "m.v")
				wait(tc.waits)
				c.runners.setRoom(1)
				next := c.enqueue(t, "m.v", priority(tc.newOne))
				if got := c.Stats().StartedAtOnce; got != tc.atOnce {
					t.Errorf("%d started at once, want %d", got, tc.atOnce)
				}
				wait(10 * time.Second)
				want := []int64{first, next}
				if tc.newOne == 900 {
					slices.Reverse(want)
				}
				if got := c.runners.ran(); !slices.Equal(got, want) {
					t.Errorf("ran %v, want %v", got, want)
				}
			})
		})
	}
}

// What a trigger gave a job reaches its verb, whether it is claimed or inserted already running, and in each attempt.
func TestTheEnvelopeReachesTheVerb(t *testing.T) {
	for name, limit := range map[string]int{"inserted running": 0, "claimed": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDatabase()
				if limit > 0 {
					d.limit("m.v", limit)
				}
				var mu sync.Mutex
				var got []string
				c := d.sole(t, 10, func(_ context.Context, c Call) job.Outcome {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, string(c.Envelope))
					return job.Outcome{Verdict: cron.Failed}
				}, "m.v")
				c.enqueue(t, "m.v", func(n *job.New) { n.TriggerID, n.Envelope = 7, []byte(`{"manual": true}`) })
				wait(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if len(got) != 3 || got[0] != `{"manual": true}` || got[2] != got[0] {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

// Errors that only the user of a konnector can mend end its job with the first of them; other jobs are tried again,
// whatever their errors say.
func TestHopelessErrorsOfAWorkerAreNotRepeated(t *testing.T) {
	of := func(envelope string) func(*job.New) {
		return func(n *job.New) { n.Envelope = []byte(envelope) }
	}
	for _, c := range []struct {
		text     string
		change   func(*job.New)
		attempts int
	}{
		{"LOGIN_FAILED", of(`{"trigger": "t"}`), 1},
		{"USER_ACTION_NEEDED.SCA_REQUIRED", of(`{"worker": "konnector"}`), 1},
		{trigger.NoMessage, of(`{"worker": "konnector"}`), 1},
		{"VENDOR_DOWN", of(`{"trigger": "t"}`), 3},
		{"LOGIN_FAILED", func(*job.New) {}, 3},
	} {
		for name, limit := range map[string]int{"inserted running": 0, "claimed": 1} {
			t.Run(c.text+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDatabase()
					if limit > 0 {
						d.limit("m.v", limit)
					}
					q := d.sole(t, 10, func(context.Context, Call) job.Outcome { return job.Outcome{Verdict: cron.Failed, Text: c.text} }, "m.v")
					id := q.enqueue(t, "m.v", c.change)
					wait(time.Minute)
					if at, want := q.runners.starts(id), fmt.Sprintf("failed x%d", c.attempts); len(at) != c.attempts || d.story(id) != want || q.Stats().Dead != 1 {
						t.Errorf("%d calls, %s; want %s", len(at), d.story(id), want)
					}
				})
			})
		}
	}
}

func TestAWaitingJobIsClaimedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.limit("m.v", 1) // so that it is not inserted running
		c := d.sole(t, 10, lasting(time.Millisecond), "m.v")
		begun := time.Now()
		id := c.enqueue(t, "m.v")
		wait(time.Second)
		if at := c.runners.starts(id); len(at) != 1 || at[0].Sub(begun) != 2*trip {
			t.Errorf("called after %v, want an insert and a claim", at[0].Sub(begun))
		}
		// A limit is tried again when one of its runs has ended, not only now and then.
		begun = time.Now()
		for range 20 {
			c.enqueue(t, "m.v")
		}
		for d.ended() < 21 {
			wait(time.Millisecond)
		}
		if took := time.Since(begun); took > 150*time.Millisecond {
			t.Errorf("20 short runs one by one took %v", took)
		}
	})
}

// A limit whose places nobody gets, because others have held its lock for long, counts as full: it is tried again soon, and
// not without a pause.
func TestAContendedLimitIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.limit("m.v", 1)
		c := d.sole(t, 10, succeed, "m.v")
		take := func(n int) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.taken["m.v"] = n
		}
		take(1)
		c.enqueue(t, "m.v")
		wait(10*time.Second + 333*time.Millisecond)
		if n := d.count("claim"); n < 20 || n > 100 || d.ended() != 0 {
			t.Errorf("%d claims in 10 s, %d ended", n, d.ended())
		}
		take(0)
		wait(300 * time.Millisecond)
		if d.ended() != 1 {
			t.Error("not claimed within 300 ms of the place")
		}
	})
}

func TestAFailedClaimIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v")
		faults := 1
		c.store.breaks(func(s string, done bool) error {
			if s == "claim" && faults > 0 {
				faults--
				return errAway
			}
			return nil
		})
		c.enqueue(t, "m.v", func(n *job.New) { n.Delay = 1500 * time.Millisecond })
		begun := time.Now()
		for d.ended() == 0 {
			wait(10 * time.Millisecond)
		}
		if took := time.Since(begun); took > 1500*time.Millisecond+250*time.Millisecond {
			t.Errorf("ended after %v", took)
		}
	})
}

func TestADoubtHurtsNoRunThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, lasting(time.Minute), "m.v")
		id := c.enqueue(t, "m.v")
		faults := 1
		c.store.breaks(func(s string, done bool) error {
			if s == "enqueue" && done && faults > 0 {
				faults--
				return lostAnswer{}
			}
			return nil
		})
		if _, err := c.Enqueue(t.Context(), []job.New{{Ref: "m.v", Priority: 500}}); err == nil {
			t.Fatal("no doubt")
		}
		wait(90 * time.Second)
		if st := c.Stats(); d.story(id) != "succeeded x1" || st.Late != 0 || st.Swept != 1 {
			t.Errorf("%s, %+v", d.story(id), st)
		}
	})
}

func TestWhatIsWonWhileFencedIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v")
		c.store.breaks(func(s string, done bool) error {
			if s == "claim" && done {
				c.Fence()
			}
			return nil
		})
		id := c.enqueue(t, "m.v", func(n *job.New) { n.Delay = time.Second })
		wait(3 * time.Second)
		if got := d.story(id); got != "ready x0" || len(c.runners.calls()) != 0 {
			t.Errorf("%s, %d calls", got, len(c.runners.calls()))
		}
	})
}

// One that ends with its context without a word from the runner is asked to end only after it was called.
func TestACancelBetweenClaimAndCallIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, func(ctx context.Context, call Call) job.Outcome { return lasting(time.Hour)(ctx, call) }, "m.v")
		c.store.breaks(func(s string, done bool) error {
			if s == "claim" && done {
				if !c.Cancel(d.cancel(1), "changed my mind") {
					t.Error("the run is not known")
				}
			}
			return nil
		})
		id := c.enqueue(t, "m.v", func(n *job.New) { n.Delay = time.Second })
		wait(3 * time.Second)
		if got := d.story(id); got != "cancelled x1" || len(c.runners.calls()) != 0 {
			t.Errorf("%s, %d calls", got, len(c.runners.calls()))
		}
	})
}
