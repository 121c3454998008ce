package trigger

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
)

// fake is a database with events, triggers and windows in memory; every method is one transaction. before may fail it.
type fake struct {
	mu       sync.Mutex
	events   map[int64]trigger.Published
	triggers []trigger.EventTrigger
	epoch    int64
	debounce map[int64]time.Duration // of triggers
	windows  map[int64]trigger.Window
	made     map[[2]int64]int // by event and trigger
	jobs     int64
	calls    map[string]int
	before   func(method string, matched []trigger.Matched) (done bool, err error) // done: the error comes after the commit
	after    func()                                                                // NextDebounce has read
	busy     bool                                                                  // somebody else has all windows
}

func newFake() *fake {
	return &fake{events: map[int64]trigger.Published{}, debounce: map[int64]time.Duration{}, windows: map[int64]trigger.Window{}, made: map[[2]int64]int{}, calls: map[string]int{}}
}

func (f *fake) enter(method string, matched []trigger.Matched) (done bool, err error) {
	f.mu.Lock()
	f.calls[method]++
	before := f.before
	f.mu.Unlock()
	if before != nil {
		return before(method, matched)
	}
	return true, nil
}

func (f *fake) publish(id int64, change trigger.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change.Tenant, change.Verb = "t", trigger.Created
	f.events[id] = trigger.Published{ID: id, At: time.Now(), Change: change}
}

func (f *fake) put(id int64, arguments string, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.triggers = slices.DeleteFunc(f.triggers, func(t trigger.EventTrigger) bool { return t.ID == id })
	f.triggers = append(f.triggers, trigger.EventTrigger{ID: id, Tenant: "t", Arguments: arguments, Epoch: f.epoch, Gone: gone})
}

func (f *fake) FetchEvents(_ context.Context, shards []int32, older time.Duration, after int64, page int) ([]trigger.Published, bool, error) {
	if _, err := f.enter("fetch", nil); err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []trigger.Published
	for _, e := range f.events {
		if e.ID > after && slices.Contains(shards, int32(e.ID%1021)) && time.Since(e.At) >= older {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b trigger.Published) int { return int(a.ID - b.ID) })
	more := len(out) >= page
	return out[:min(page, len(out))], more, nil
}

func (f *fake) ReadEpoch(context.Context) (int64, error) {
	if _, err := f.enter("epoch", nil); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, nil
}

func (f *fake) FetchEventTriggers(_ context.Context, since int64) ([]trigger.EventTrigger, error) {
	if _, err := f.enter("triggers", nil); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []trigger.EventTrigger
	for _, t := range f.triggers {
		if t.Epoch > since && (since >= 0 || !t.Gone) {
			out = append(out, t)
		}
	}
	return out, nil
}

func (f *fake) MakeOfEvents(_ context.Context, matched []trigger.Matched) (trigger.Made, error) {
	done, err := f.enter("make", matched)
	if err != nil && !done {
		return trigger.Made{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var made trigger.Made
	for _, m := range matched {
		e, there := f.events[m.Event]
		if !there || e.Upto != m.After {
			continue
		}
		made.Taken++
		if e.Upto = m.Upto; m.Upto == 0 {
			delete(f.events, m.Event)
		} else {
			f.events[m.Event] = e
		}
		for _, id := range m.Triggers {
			f.made[[2]int64{m.Event, id}]++
			if d := f.debounce[id]; d == 0 {
				f.makeJob(&made)
			} else if w, open := f.windows[id]; open {
				f.windows[id], _ = w.Arrive(time.Now(), d, trigger.Arrival{})
				made.Closes = time.Until(w.FireAt)
			} else {
				f.windows[id], made.Closes = trigger.Open(time.Now(), d, trigger.Arrival{}), d
			}
		}
	}
	if err != nil {
		made = trigger.Made{}
	}
	return made, err
}

func (f *fake) makeJob(made *trigger.Made) {
	f.jobs++
	made.Jobs = append(made.Jobs, job.Waiting{ID: f.jobs, Due: time.Now()})
}

func (f *fake) NextDebounce(context.Context) (time.Duration, bool, error) {
	if _, err := f.enter("next", nil); err != nil {
		return 0, false, err
	}
	f.mu.Lock()
	defer func() {
		after := f.after
		f.mu.Unlock()
		if after != nil {
			after()
		}
	}()
	var at time.Time
	for _, w := range f.windows {
		if at.IsZero() || w.FireAt.Before(at) {
			at = w.FireAt
		}
	}
	return time.Until(at), !at.IsZero(), nil
}

func (f *fake) CloseDebounces(_ context.Context, page int) (made trigger.Made, err error) {
	if _, err := f.enter("close", nil); err != nil {
		return made, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy {
		return made, nil
	}
	for id, w := range f.windows {
		if made.Taken < page && w.Due(time.Now()) {
			delete(f.windows, id)
			made.Taken++
			f.makeJob(&made)
		}
	}
	return made, nil
}

func (f *fake) DropIdleRates(context.Context, int) (int, error) {
	_, err := f.enter("rates", nil)
	return 0, err
}

func (f *fake) EndLateClientJobs(_ context.Context, page int) (int, error) {
	_, err := f.enter("late", nil)
	if f.count("late") <= 2 {
		return page, err
	}
	return 0, err
}

func (f *fake) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// left is how many events are there, and how many jobs were made in all.
func (f *fake) left() (events int, jobs int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events), f.jobs
}

// once fails the test where a pair of an event and a trigger became something twice.
func (f *fake) once(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for pair, n := range f.made {
		if n != 1 {
			t.Errorf("event %d was made of %d times for trigger %d", pair[0], n, pair[1])
		}
	}
}

var errDown = errors.New("the database is down")

func every() []int32 {
	all := make([]int32, 1021)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// start runs triggers that own everything, until the bubble's test ends.
func start(t *testing.T, f *fake, change ...func(*Config)) *Triggers {
	t.Helper()
	cfg := Config{Store: f, Windows: f, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	tr := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := tr.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return tr
}
