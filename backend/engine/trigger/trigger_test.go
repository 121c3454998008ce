package trigger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
)

func TestEventsBecomeJobsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var told []job.Waiting
		tr := start(t, f, func(c *Config) { c.OnMade = func(jobs []job.Waiting) { told = append(told, jobs...) } })
		tr.OnRing(every(), nil)
		synctest.Wait()
		f.put(7, "a.b", false)
		for id := range int64(10) {
			f.publish(id+1, trigger.Change{Type: []string{"a.b", "a.c"}[id%2]})
		}
		began := time.Now()
		tr.Hinted([]int32{1, 2})
		synctest.Wait()
		if events, jobs := f.left(); events != 0 || jobs != 5 || time.Since(began) != 0 || len(told) != 5 {
			t.Errorf("%d events left, %d jobs, %d told, after %s", events, jobs, len(told), time.Since(began))
		}
		if s := tr.Stats(); s.Events != 10 || s.Jobs != 5 || s.Triggers != 1 || s.Failures != 0 {
			t.Errorf("stats %+v", s)
		}
		f.once(t)
		// Without a hint, within the second and its jitter.
		f.publish(100, trigger.Change{Type: "a.b"})
		time.Sleep(1200 * time.Millisecond)
		if events, jobs := f.left(); events != 0 || jobs != 6 {
			t.Errorf("unheard: %d events left, %d jobs", events, jobs)
		}
	})
}

// A trigger that is committed right before an event matches it: in each interleaving of the two with the engine's
// statements the epoch is read after the event was.
func TestTriggerRightBeforeItsEventMatches(t *testing.T) {
	for _, at := range []string{"fetch", "epoch", "triggers", "make", "next"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.put(1, "x.y", false)
			n := int64(10)
			f.before = func(method string, _ []trigger.Matched) (bool, error) {
				if method == at && n < 40 {
					n++
					f.put(n, fmt.Sprintf("a.b:CREATED:id%d", n), false)
					f.publish(n, trigger.Change{Type: "a.b", ID: fmt.Sprint("id", n)})
				}
				return true, nil
			}
			tr := start(t, f, func(c *Config) { c.Lanes = 1 })
			tr.OnRing(every(), nil)
			f.publish(5, trigger.Change{Type: "x.y"})
			time.Sleep(time.Minute)
			if events, jobs := f.left(); events != 0 || jobs != n-10+1 || n < 11 {
				t.Errorf("%s: %d events left, %d jobs of %d events", at, events, jobs, n-10+1)
			}
			f.once(t)
		})
	}
}

func TestRulesFollowChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(1, "a.b", false)
		f.put(2, "no rule: at all", false)
		f.put(3, "gone.before", true)
		tr := start(t, f)
		tr.OnRing(every(), nil)
		id := int64(0)
		matches := func(doctype string) int64 {
			_, before := f.left()
			id++
			f.publish(id, trigger.Change{Type: doctype})
			tr.Heard()
			synctest.Wait()
			_, after := f.left()
			return after - before
		}
		if n, s := matches("a.b"), tr.Stats(); n != 1 || s.Triggers != 1 {
			t.Errorf("%d, %+v", n, s)
		}
		f.put(4, "a.b a.c", false)
		if a, b := matches("a.b"), matches("a.c"); a != 2 || b != 1 {
			t.Errorf("with another one: %d, %d", a, b)
		}
		f.put(1, "a.b", true)
		if n := matches("a.b"); n != 1 {
			t.Errorf("after a removal: %d", n)
		}
		reads := f.count("triggers")
		if matches("a.b"); f.count("triggers") != reads {
			t.Error("triggers are read though nothing changed")
		}
		// A restored database: all is read anew.
		f.mu.Lock()
		f.epoch, f.triggers = 1, []trigger.EventTrigger{{ID: 9, Tenant: "t", Arguments: "a.z", Epoch: 1}}
		f.mu.Unlock()
		if a, z := matches("a.b"), matches("a.z"); a != 0 || z != 1 || tr.Stats().Triggers != 1 {
			t.Errorf("restored: %d, %d, %+v", a, z, tr.Stats())
		}
	})
}

// What the first owner leaves for five seconds the second takes; nobody else does.
func TestSecondOwnerTakesWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(1, "a.b", false)
		tr := start(t, f)
		tr.OnRing([]int32{1}, []int32{2})
		for id := int64(1); id <= 3; id++ {
			f.publish(id, trigger.Change{Type: "a.b"})
		}
		tr.Heard()
		time.Sleep(4 * time.Second)
		if events, _ := f.left(); events != 2 {
			t.Errorf("%d events left after 4 s", events)
		}
		time.Sleep(7 * time.Second)
		if events, _ := f.left(); events != 1 || f.made[[2]int64{2, 1}] != 1 {
			t.Errorf("%d events left after 11 s", events)
		}
		tr.OnRing([]int32{3}, nil)
		synctest.Wait()
		if events, _ := f.left(); events != 0 {
			t.Errorf("%d events left for their new owner", events)
		}
	})
}

// Statements that fail, before or after their commit, neither lose nor double anything.
func TestFailuresLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for id := range int64(5) {
			f.put(id+1, "a.b", false)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		f.before = func(string, []trigger.Matched) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if rnd.IntN(3) == 0 {
				return rnd.IntN(2) == 0, errDown
			}
			return true, nil
		}
		tr := start(t, f, func(c *Config) { c.Page, c.Pairs = 7, 3 })
		tr.OnRing(every()[:500], every()[500:])
		other := start(t, f, func(c *Config) { c.Page = 20 })
		other.OnRing(every()[500:], every()[:500])
		for id := range int64(2000) {
			f.publish(id+1, trigger.Change{Type: "a.b"})
		}
		time.Sleep(5 * time.Minute)
		if events, jobs := f.left(); events != 0 || jobs != 10_000 || tr.Stats().Failures == 0 {
			t.Errorf("%d events left, %d jobs, %+v", events, jobs, tr.Stats())
		}
		f.once(t)
	})
}

// An event that cannot be made of keeps nobody waiting but itself.
func TestBadEventHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(1, "a.b", false)
		f.before = func(method string, matched []trigger.Matched) (bool, error) {
			if method == "make" && slices.ContainsFunc(matched, func(m trigger.Matched) bool { return m.Event == 50 }) {
				return false, errDown
			}
			return true, nil
		}
		for id := range int64(1000) {
			f.publish(id+1, trigger.Change{Type: "a.b"})
		}
		tr := start(t, f)
		tr.OnRing(every(), nil)
		time.Sleep(30 * time.Second)
		if events, jobs := f.left(); events != 1 || jobs != 999 {
			t.Errorf("%d events left, %d jobs", events, jobs)
		}
		if n := f.count("make"); n > 500 {
			t.Errorf("%d statements in half a minute", n)
		}
	})
}

// A database that is down is asked with pauses.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(string, []trigger.Matched) (bool, error) { return false, errDown }
		tr := start(t, f)
		tr.OnRing(every(), every())
		for range 600 {
			tr.Heard()
			tr.Opened(time.Millisecond)
			time.Sleep(100 * time.Millisecond)
		}
		if fetches, next := f.count("fetch"), f.count("next"); fetches > 80 || next > 40 {
			t.Errorf("asked %d and %d times in a minute", fetches, next)
		}
	})
}

// Windows are closed at their ends, by whoever comes first, and a burst is one job.
func TestWindowsCloseOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(1, "a.b", false)
		f.debounce[1] = 2500 * time.Millisecond
		var at []time.Duration
		began := time.Now()
		var mu sync.Mutex
		told := func(c *Config) {
			c.OnMade = func(jobs []job.Waiting) {
				mu.Lock()
				defer mu.Unlock()
				for range jobs {
					at = append(at, time.Since(began))
				}
			}
		}
		seen := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(at)
		}
		tr, other := start(t, f, told), start(t, f, told)
		tr.OnRing(every(), nil)
		other.OnRing(nil, every())
		for id := range int64(10_000) {
			f.publish(id+1, trigger.Change{Type: "a.b"})
		}
		tr.Heard()
		time.Sleep(10 * time.Second)
		if at := seen(); len(at) != 1 || at[0] != 2500*time.Millisecond || tr.Stats().Windows+other.Stats().Windows != 1 {
			t.Errorf("jobs at %v", at)
		}
		if n := f.count("next"); n > 60 {
			t.Errorf("looked for windows %d times", n)
		}
		// A short one that this controller hears of ends on time; one that it does not hear of, within the second.
		f.debounce[1] = 30 * time.Millisecond
		f.publish(20_000, trigger.Change{Type: "a.b"})
		published := time.Since(began)
		tr.Heard()
		time.Sleep(time.Second)
		if at := seen(); len(at) != 2 || at[1] != published+30*time.Millisecond {
			t.Errorf("jobs at %v, published at %s", at, published)
		}
		f.mu.Lock()
		f.windows[1] = trigger.Open(time.Now(), 10*time.Millisecond, trigger.Arrival{})
		f.mu.Unlock()
		time.Sleep(1200 * time.Millisecond)
		if at := seen(); len(at) != 3 {
			t.Errorf("jobs at %v", at)
		}
	})
}

// A window that is opened while this controller looks for the next one is not missed.
func TestWindowOpenedWhileLooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var tr *Triggers
		looks := 0
		f.after = func() {
			if looks++; looks == 3 {
				f.mu.Lock()
				f.windows[1] = trigger.Open(time.Now(), 30*time.Millisecond, trigger.Arrival{})
				f.mu.Unlock()
				tr.Opened(30 * time.Millisecond)
			}
		}
		var opened, closed time.Time
		tr = start(t, f, func(c *Config) { c.OnMade = func([]job.Waiting) { closed = time.Now() } })
		for closed.IsZero() {
			f.mu.Lock()
			if w, ok := f.windows[1]; ok {
				opened = w.FireAt.Add(-30 * time.Millisecond)
			}
			f.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		if late := closed.Sub(opened); late > 30*time.Millisecond {
			t.Errorf("closed %s after it was opened", late)
		}
	})
}

// Where somebody else is closing what is over, nobody asks without a pause.
func TestHeldWindowsAreAskedForWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.busy = true
		f.windows[1] = trigger.Open(time.Now(), 0, trigger.Arrival{})
		start(t, f)
		time.Sleep(time.Second)
		if n := f.count("close"); n > 60 {
			t.Errorf("%d statements in a second", n)
		}
	})
}

func TestChores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		start(t, f)
		time.Sleep(6 * time.Second)
		if n := f.count("late"); n != 3 { // as long as there is a full page
			t.Errorf("jobs of clients were looked for %d times", n)
		}
		time.Sleep(150 * time.Minute)
		if n := f.count("rates"); n != 2 {
			t.Errorf("%d times in two hours and a half", n)
		}
	})
}
