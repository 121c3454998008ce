// Package trigger is how one controller makes jobs of what it does not start by the clock: it reads the events of its
// shards, finds the triggers that wait for them, and has jobs or windows made of both; and it closes the windows of
// debounced triggers when they end.
//
// It must never know SQL, the ring's hash, or what becomes of a job: events and windows come and go by Store, the shards
// by OnRing, the jobs are told to OnMade. It decides nothing by the local clock, and nothing by having seen an event:
// what is made of it and its removal are one transaction, which passes over what somebody else has. An event is matched
// with at least the triggers that were committed before it, because their epoch is read after it was.
//
// On failure: nothing is lost or doubled by a statement that fails or whose outcome is unknown, for what is still there
// is read again. What the first owner of a shard leaves for 5 s, the second one takes. An event or a window that the
// database refuses is given up by the store, with a note at its trigger, so that its neighbours go on.
//
// Everything is bounded: an event that very many triggers wait for makes a part of its jobs, is left in its place with
// the note how far it is, and has its next turn after the others.
//
// The files: rules.go holds the index, parts.go is pure; lanes.go and windows.go have a goroutine each (lanes: one per lane),
// all of them started by Run.
package trigger

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/engine/loop"
)

// Store is what events need of the database. Each method is one attempt; it may be called concurrently.
type Store interface {
	// FetchEvents reads events of some shards after a number, in order, those that were published longer ago than older
	// (0: all); more: there may be others behind them.
	FetchEvents(ctx context.Context, shards []int32, older time.Duration, after int64, page int) (events []trigger.Published, more bool, err error)
	// ReadEpoch reads the number that grows with every change of an event trigger; FetchEventTriggers reads those that
	// changed after one, deleted ones included, and all for a negative one.
	ReadEpoch(ctx context.Context) (int64, error)
	FetchEventTriggers(ctx context.Context, since int64) ([]trigger.EventTrigger, error)
	// MakeOfEvents makes jobs and windows of events and removes them, in one transaction; those that somebody else has
	// make nothing.
	MakeOfEvents(ctx context.Context, matched []trigger.Matched) (trigger.Made, error)
}

// Windows is what debounced triggers, and those of clients, need of the database.
type Windows interface {
	// CloseDebounces makes the jobs of windows that are over, some at a time.
	CloseDebounces(ctx context.Context, page int) (trigger.Made, error)
	// NextDebounce says how long it is until the next window ends; not ok: none is open.
	NextDebounce(ctx context.Context) (wait time.Duration, ok bool, err error)
	// EndLateClientJobs fails jobs that their clients did not end in time, some at a time.
	EndLateClientJobs(ctx context.Context, page int) (int, error)
	// DropIdleRates forgets limits that nobody has used for hours, some at a time.
	DropIdleRates(ctx context.Context, page int) (int, error)
}

// Config joins the triggers of a controller. Store and Windows are required; zero values of the rest mean the default.
type Config struct {
	Store   Store
	Windows Windows

	Lanes      int           // that read and make, each for its part of the shards; 2
	Page       int           // events read by one statement; 200
	Pairs      int           // jobs made by one statement; 1000
	Bytes      int           // of documents in the jobs of one statement; 16 MiB
	Slow       time.Duration // what matching has found after so long is made first; 100 ms
	Poll       time.Duration // own shards are read, and windows looked for, so often without a hint; 1 s
	Older      time.Duration // the second owner takes what is older, and looks for it so often; 5 s
	CloseBatch int           // windows closed by one statement; 100

	Logger *slog.Logger

	// OnMade is told the jobs that were made, so that their owners look at once; nil is nobody. It must not block.
	OnMade func([]job.Waiting)
}

func (c Config) withDefaults() Config {
	c.Lanes = cmp.Or(c.Lanes, 2)
	c.Page = cmp.Or(c.Page, 200)
	c.Pairs = cmp.Or(c.Pairs, 1000)
	c.Bytes = cmp.Or(c.Bytes, 16<<20)
	c.Slow = cmp.Or(c.Slow, 100*time.Millisecond)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Older = cmp.Or(c.Older, 5*time.Second)
	c.CloseBatch = cmp.Or(c.CloseBatch, 100)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.OnMade == nil {
		c.OnMade = func([]job.Waiting) {}
	}
	return c
}

// Triggers is one controller's part of the events, and of the windows. Its methods may be called concurrently, also
// before Run.
type Triggers struct {
	cfg      Config
	log      *slog.Logger
	rules    *rules
	counters counters

	mu       sync.Mutex
	own      [][]int32 // shards of which this controller is the first owner, by lane
	second   []int32   // and the second one
	closesAt time.Time // local: the windows are looked at then

	bells   []loop.Bell // of the lanes
	windows loop.Bell
}

// New returns triggers that own nothing yet.
func New(cfg Config) *Triggers {
	t := &Triggers{cfg: cfg.withDefaults(), windows: loop.NewBell()}
	t.log = t.cfg.Logger
	t.rules = newRules(t.cfg.Store, t.log)
	t.own = make([][]int32, t.cfg.Lanes)
	for range t.cfg.Lanes {
		t.bells = append(t.bells, loop.NewBell())
	}
	return t
}

// Run works until ctx ends, and returns nil; a statement that is under way is finished.
func (t *Triggers) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for i := range t.cfg.Lanes {
		wg.Go(func() { t.lane(ctx, i) })
	}
	wg.Go(func() { t.visit(ctx) })
	wg.Go(func() { t.closeWindows(ctx) })
	wg.Wait()
	return nil
}

// OnRing sets the shards of which this controller is the first and the second owner.
func (t *Triggers) OnRing(first, second []int32) {
	own := make([][]int32, t.cfg.Lanes)
	for _, s := range first {
		lane := int(s) % t.cfg.Lanes
		own[lane] = append(own[lane], s)
	}
	t.mu.Lock()
	t.own, t.second = own, append([]int32(nil), second...)
	t.mu.Unlock()
	t.Heard()
}

// Hinted says that there are new events in some shards. It does not block.
func (t *Triggers) Hinted(shards []int32) {
	for _, s := range shards {
		if s >= 0 {
			t.bells[int(s)%t.cfg.Lanes].Ring()
		}
	}
}

// Heard says that there may be new events, of any shard. It does not block.
func (t *Triggers) Heard() {
	for _, b := range t.bells {
		b.Ring()
	}
}

// Opened says that a window was opened, or appended to, that ends after so long (trigger.Delivery, trigger.Made). It
// does not block.
func (t *Triggers) Opened(closes time.Duration) {
	if closes <= 0 {
		return
	}
	t.mu.Lock()
	sooner := time.Now().Add(closes).Before(t.closesAt)
	t.mu.Unlock()
	if sooner {
		t.windows.Ring()
	}
}

// Stats counts since New.
type Stats struct {
	Events   int64 // dealt with here
	Jobs     int64 // made, of events and of windows
	Windows  int64 // closed here
	Failures int64 // statements that failed
	Triggers int   // known, that wait for events
}

type counters struct{ events, jobs, windows, failures atomic.Int64 }

// Stats may be asked at any time.
func (t *Triggers) Stats() Stats {
	return Stats{
		Events: t.counters.events.Load(), Jobs: t.counters.jobs.Load(), Windows: t.counters.windows.Load(), Failures: t.counters.failures.Load(), Triggers: t.rules.count(),
	}
}

// made tells what a statement made.
func (t *Triggers) made(m trigger.Made) {
	t.counters.jobs.Add(int64(len(m.Jobs)))
	t.Opened(m.Closes)
	if len(m.Jobs) > 0 {
		t.cfg.OnMade(m.Jobs)
	}
}
