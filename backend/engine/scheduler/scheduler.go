// Package scheduler starts cron jobs: it knows when the rows of its shards are due, claims their slots, has them
// called, and writes how they ended.
//
// It must never know SQL, the ring, or how a verb is called: the shards come by OnRing, the statements are Store and
// Lists, the calls are Caller. It decides nothing by the local clock: Clock estimates the database's time and says when
// to try, and the compare-and-set of the claim decides. What a claim takes and what it skips is package cron's.
//
// On failure: a claim without an answer is looked up by its run id before anything else, other failed claims are tried
// again with backoff, and an end is repeated until it is answered. What this controller leaves undone when it dies is
// done by the other owner of the shard 250 ms after the slot, and by the sweep.
//
// A row that fires never executes: its claim makes a job of the slot in the same statement, and the row goes on with its
// next slot at once. What becomes of the job is not known here.
//
// The rows of triggers differ in that no module has them: they are learned one by one (Learn), and their schedules are
// texts of package schedule. What has one slot is gone when that has fired.
//
// The files: plan.go, take.go, guests.go, row.go and heap.go are pure; claims.go, fire.go, ends.go, keeper.go and
// reload.go have a goroutine each (or two), all of them started by Run.
package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"carillon/backend/core/cron"
	"carillon/backend/engine/loop"
)

// Store is what claims and ends need of the database. Each method is one attempt; it may be called concurrently.
//
// An error may offer `Unknown() bool`: true means that the statement may have been done all the same. Answers that
// come along with an error count.
type Store interface {
	// StartCronJobs claims slots and returns the claims that were won.
	StartCronJobs(ctx context.Context, claims []cron.Claim) ([]cron.Claimed, error)
	// SkipCronJobs decides missed slots of which none runs.
	SkipCronJobs(ctx context.Context, claims []cron.Claim) error
	// GetCronJobs reads rows as they are; deleted ones are missing. The time is the database's, after the read began.
	GetCronJobs(ctx context.Context, ids []int64) ([]cron.Job, time.Time, error)
	// LookupCronJobs is GetCronJobs behind every claim that is under way on these rows.
	LookupCronJobs(ctx context.Context, ids []int64) ([]cron.Job, time.Time, error)
	// EndCronJobs ends runs; every end gets an answer.
	EndCronJobs(ctx context.Context, ends []cron.End) ([]cron.Ended, error)
	// FireCronJobs claims slots of rows that fire, makes jobs of them, and returns the claims that were won.
	FireCronJobs(ctx context.Context, claims []cron.Claim) ([]cron.Firing, error)
	// LookupFired returns those of these claims that the ledger has as fired.
	LookupFired(ctx context.Context, claims []cron.Claim) ([]cron.Firing, error)
}

// Lists is what the reset needs of the database.
type Lists interface {
	// ListShards hands out all rows of some shards page by page, and returns the database's time after the last.
	ListShards(ctx context.Context, shards []int32, yield func([]cron.Job) error) (time.Time, error)
	// ListModules reads all rows of some modules, also removed ones.
	ListModules(ctx context.Context, modules []string) ([]cron.Job, error)
	// SetAsideCronJob takes a row off the clock, unless its version changed.
	SetAsideCronJob(ctx context.Context, id, version int64, reason string) error
	// RepairCronJob sets the next slot of an idle row, unless version or next slot changed.
	RepairCronJob(ctx context.Context, id, version int64, expected, next time.Time) error
}

// Caller calls verbs. Call must not block, and calls done exactly once, from any goroutine.
type Caller interface {
	Call(call Call, done func(Outcome))
}

// Clock estimates the database's time. Both methods are called often and concurrently.
type Clock interface {
	Now() time.Time
	Error() time.Duration // how far Now may be off, in either direction
}

// Call is one run to be called.
type Call struct {
	Run            cron.RunID
	JobID          int64
	Ref            string
	Slot           time.Time
	Attempt        int
	Timeout        time.Duration // soft, from the start of the call
	Deployment     string        // key
	IdempotencyKey string
	GiveUp         time.Duration // how long to look for a runner
	Kind           cron.Kind
	Traceparent    string // empty unless Config.Span says otherwise
}

// Outcome is how a call ended.
type Outcome struct {
	Verdict cron.Verdict // succeeded, failed, timed_out, cancelled or lost; anything else counts as failed
	Error   string
}

// Config joins a scheduler. Store, Lists, Caller and Clock are required; zero values of the rest mean the default.
type Config struct {
	Store  Store
	Lists  Lists
	Caller Caller
	Clock  Clock

	// Cancel makes Caller end all calls in flight as cancelled, for a reason; Drain uses it. Nil: Drain ends the runs
	// without waiting for their calls.
	Cancel func(reason string)

	StealDelay  time.Duration // the second owner tries so long after the slot; 250 ms
	Lanes       int           // claim statements at a time; 2
	BatchSize   int           // claims in a statement; 250
	EndLanes    int           // end statements at a time; 2
	EndBatch    int           // ends in a statement; 1000
	Hold        time.Duration // ends wait so long while a herd is claimed; 20 ms, negative: not at all
	MaxInFlight int           // claims and calls in flight; 20,000
	Reset       time.Duration // all rows are read again; 1 min, ±10 %
	Grace       time.Duration // the rows of a lost shard are tried so long; 5 s
	Lookup      time.Duration // a lost claim whose outcome was unknown is looked up once more after this; 6 s

	Logger *slog.Logger

	// Callbacks; nil is none. They must not block.
	OnStart   func(lateness time.Duration) // of each run, by the database's clock
	OnVerdict func(verdict cron.Verdict)   // of each call
	OnFired   func([]cron.Firing)          // each once at most: the queues have jobs, and cancelled runs are to be told
	Span      func(Call) (traceparent string, end func(Outcome))
}

func (c Config) withDefaults() Config {
	c.StealDelay = cmp.Or(c.StealDelay, 250*time.Millisecond)
	c.Lanes = cmp.Or(c.Lanes, 2)
	c.BatchSize = cmp.Or(c.BatchSize, 250)
	c.EndLanes = cmp.Or(c.EndLanes, 2)
	c.EndBatch = cmp.Or(c.EndBatch, 1000)
	c.Hold = cmp.Or(c.Hold, 20*time.Millisecond)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 20_000)
	c.Reset = cmp.Or(c.Reset, time.Minute)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	c.Lookup = cmp.Or(c.Lookup, 6*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Scheduler is one controller's part of the schedule. Its methods may be called concurrently, also before Run.
type Scheduler struct {
	cfg      Config
	log      *slog.Logger
	counters counters

	ring sync.Mutex // held over one change of the ring

	mu       sync.Mutex
	plan     *plan
	ends     []waitingEnd
	doubt    map[cron.RunID]struct{} // claims whose outcome is unknown
	gained   map[int32]struct{}      // shards to be fetched
	reloads  map[int64]struct{}      // rows to be read again
	visits   map[int64]struct{}      // overdue rows, to be tried once
	asides   map[int64]badRow        // rows to be set aside
	wakeAt   micros                  // a waiting claim lane wakes by itself at this instant
	lead     micros                  // how far the clock was seen ahead of the database beyond its error
	leadAt   time.Time               // local: when that was
	herdAt   time.Time               // local: when a herd of claims began
	lookups  int                     // claims in doubt that nobody has looked up yet
	full     bool                    // a lane waits for calls to end
	fenced   bool
	draining bool
	resetDue bool // somebody asked for a reset
	loaded   bool // the shards of the first ring are here

	claimBells []loop.Bell
	endBells   []loop.Bell
	keeperBell loop.Bell
	reloadBell loop.Bell
	quiet      loop.Bell // rings when less is in flight
}

// New returns a scheduler that owns nothing yet.
func New(cfg Config) *Scheduler {
	s := &Scheduler{
		cfg: cfg.withDefaults(), doubt: map[cron.RunID]struct{}{}, gained: map[int32]struct{}{},
		reloads: map[int64]struct{}{}, visits: map[int64]struct{}{}, asides: map[int64]badRow{},
		keeperBell: loop.NewBell(), reloadBell: loop.NewBell(), quiet: loop.NewBell(),
	}
	s.log = s.cfg.Logger
	s.plan = newPlan(s.cfg.StealDelay)
	for range s.cfg.Lanes {
		s.claimBells = append(s.claimBells, loop.NewBell())
	}
	for range s.cfg.EndLanes {
		s.endBells = append(s.endBells, loop.NewBell())
	}
	return s
}

// Run works until ctx ends, and returns nil. Calls in flight are then not waited for (call Drain before); the ends
// that are there get one more attempt.
func (s *Scheduler) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, b := range s.claimBells {
		wg.Go(func() { s.claimLane(ctx, b, &wg) })
	}
	for _, b := range s.endBells {
		wg.Go(func() { s.endLane(ctx, b) })
	}
	wg.Go(func() { s.keep(ctx) })
	wg.Go(func() { s.reload(ctx) })
	wg.Wait()
	return nil
}

// now is the database's time as far as it has surely come, in microseconds; s.mu is held.
func (s *Scheduler) now() micros {
	if s.lead > 0 && time.Since(s.leadAt) > leadFor {
		s.lead = 0 // the clock may have been set right meanwhile
	}
	return s.rawNow() - s.lead
}

// leadFor is how long an observation of the clock's lead counts; every claim renews it.
const leadFor = 5 * time.Second

// observe compares the estimate before a statement with the database's time during it. An estimate that was later is
// ahead by the difference at least, and all tries are put off by it; s.mu is held.
func (s *Scheduler) observe(before micros, dbNow time.Time) {
	if !dbNow.IsZero() {
		s.lead, s.leadAt = max(0, before-dbNow.UnixMicro()), time.Now()
	}
}

func (s *Scheduler) rawNow() micros {
	return s.cfg.Clock.Now().Add(-s.cfg.Clock.Error()).UnixMicro()
}

// armed wakes the claim lanes if something is due before they would wake by themselves; s.mu is held.
func (s *Scheduler) armed() {
	if at := s.plan.nextAt(); at != 0 && at < s.wakeAt {
		loop.RingAll(s.claimBells)
	}
}

func mintRunID() cron.RunID { return cron.RunID(uuid.Must(uuid.NewV7())) }
