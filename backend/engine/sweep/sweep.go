// Package sweep finds what the ring left behind: runs whose controller died or whose hard timeout passed, runs in this
// controller's own name that it knows nothing of, and rows long overdue, whatever their shard. It also keeps the
// ledger's partitions and forgets what is old. Every controller sweeps; there is no leader.
//
// It must never decide that somebody is dead: the statement that frees a run checks run id, deadline, the heartbeat of
// the run's controller and the sweeper's own, all by the database's clock. What the scan found is only a list of
// candidates. A pass that fails is logged and tried again with the next; Run does not end for it.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"carillon/backend/core/cron"
)

// Store is what a pass asks of the database, in the name of this controller.
type Store interface {
	// Unswept counts the controllers whose lease has run out and that are not yet known to hold no run.
	Unswept(ctx context.Context) (int, error)
	// Scan reads the table once, up to some bound: the ids of rows overdue for anybody; the runs in this controller's
	// name that started a while ago; and the runs past their deadline or under a silent controller. The runs carry id,
	// job, ref, slot and controller. A run may be both of the latter.
	Scan(ctx context.Context) (overdue []int64, mine, stuck []cron.Run, err error)
	// Sweep frees those of the runs that still are stuck, and returns them with their verdict, timed_out or lost.
	Sweep(ctx context.Context, stuck []cron.Run) (freed []cron.Run, err error)
	// Retire marks silent controllers that hold no run, so that they are not looked at any more.
	Retire(ctx context.Context) error
	// EndCronJobs ends runs by their id, as a call's end does.
	EndCronJobs(ctx context.Context, ends []cron.End) ([]cron.Ended, error)
}

// Keeper is what housekeeping asks of the database. Several controllers may do it at the same time.
type Keeper interface {
	// Partitions makes the ledger's partitions for so many days ahead, and drops what ended more than keep days ago.
	Partitions(ctx context.Context, ahead, keep int) error
	// Forget deletes runners and deployments that are of no use any more.
	Forget(ctx context.Context) error
}

// Config of a Sweeper. Durations that are zero get their default.
type Config struct {
	Interval time.Duration // between passes; 1 s
	Scan     time.Duration // between scans of the table while every controller beats; 5 s
	Chores   time.Duration // between rounds of housekeeping; 1 h
	Keep     int           // days for which the ledger is kept; 30

	// Known says whether this controller executes the run, claims it at present, or has yet to send its end. Needed.
	Known func(cron.RunID) bool
	// Overdue takes rows that are more than a few seconds late: try them now, whoever owns them. It must not wait.
	Overdue func(ids []int64)
	// Freed takes runs that were ended here, with their verdict; their rows are idle. It must not wait.
	Freed func(runs []cron.Run)

	Logger *slog.Logger // slog.Default() when nil
}

// UnknownHere is the reason on runs that stood in a controller's name without its knowing of them.
const UnknownHere = "unknown here"

const (
	ahead        = 7                // days of partitions
	batch        = 1000             // runs in one statement
	passDeadline = 10 * time.Second // of one pass, or of one chore
)

// Sweeper is safe for concurrent use. Run must be called once.
type Sweeper struct {
	cfg    Config
	store  Store
	keeper Keeper

	// Only Run's goroutine touches these.
	rota     rota
	suspects map[cron.RunID]bool // own runs that were unknown in the last scan
	failing  bool

	counting sync.Mutex
	stats    Stats
}

// New checks the Config. Nothing happens before Run.
func New(cfg Config, store Store, keeper Keeper) (*Sweeper, error) {
	if cfg.Known == nil {
		return nil, errors.New("sweep: nobody says which runs are known")
	}
	for d, standard := range map[*time.Duration]time.Duration{
		&cfg.Interval: time.Second, &cfg.Scan: 5 * time.Second, &cfg.Chores: time.Hour,
	} {
		if *d == 0 {
			*d = standard
		}
	}
	if cfg.Keep == 0 {
		cfg.Keep = 30
	}
	if cfg.Interval < 0 || cfg.Scan < 0 || cfg.Chores < 0 || cfg.Keep < 1 {
		return nil, fmt.Errorf("sweep: interval %s, scan %s, chores %s and keep %d must be positive", cfg.Interval, cfg.Scan, cfg.Chores, cfg.Keep)
	}
	if cfg.Overdue == nil {
		cfg.Overdue = func([]int64) {}
	}
	if cfg.Freed == nil {
		cfg.Freed = func([]cron.Run) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Sweeper{cfg: cfg, store: store, keeper: keeper}, nil
}

// Run sweeps until ctx ends, then returns nil.
func (s *Sweeper) Run(ctx context.Context) error {
	var chores sync.WaitGroup
	defer chores.Wait()
	chores.Go(func() { s.keepHouse(ctx) })
	for {
		if !pause(ctx, jittered(s.cfg.Interval)) {
			return nil
		}
		err := s.pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !s.failing {
			s.cfg.Logger.WarnContext(ctx, "sweep interrupted", "error", err)
		}
		s.failing = err != nil
	}
}

// Stats are counts since the start, and what the last scan found.
type Stats struct {
	Passes, FailedPasses, Scans int64
	TimedOut, Lost, Unknown     int64 // runs ended here
	Overdue, Stuck              int   // in the last scan
	Unswept                     int   // controllers, in the last pass
}

// Stats is a snapshot for metrics.
func (s *Sweeper) Stats() Stats {
	s.counting.Lock()
	defer s.counting.Unlock()
	return s.stats
}

func (s *Sweeper) count(add func(*Stats)) {
	s.counting.Lock()
	defer s.counting.Unlock()
	add(&s.stats)
}

// pass looks whether there is reason to scan, and does.
func (s *Sweeper) pass(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, passDeadline)
	defer cancel()
	s.count(func(c *Stats) { c.Passes++ })
	defer func() {
		if err != nil {
			s.count(func(c *Stats) { c.FailedPasses++ })
		}
	}()
	unswept, err := s.store.Unswept(ctx)
	if err != nil {
		return fmt.Errorf("count unswept controllers: %w", err)
	}
	s.count(func(c *Stats) { c.Unswept = unswept })
	if !s.rota.due(time.Now(), unswept > 0 || len(s.suspects) > 0) {
		return nil
	}
	if err := s.scan(ctx); err != nil {
		return err
	}
	s.rota.done(time.Now(), jittered(s.cfg.Scan))
	if unswept > 0 {
		if err := s.store.Retire(ctx); err != nil {
			return fmt.Errorf("retire controllers: %w", err)
		}
	}
	return nil
}

// scan reads the table and deals with what it finds. The overdue rows come first: they need nothing but a word, and a
// statement that fails below must not keep them waiting.
func (s *Sweeper) scan(ctx context.Context) error {
	overdue, mine, stuck, err := s.store.Scan(ctx)
	if err != nil {
		return fmt.Errorf("scan cron jobs: %w", err)
	}
	s.count(func(c *Stats) { c.Scans++; c.Overdue, c.Stuck = len(overdue), len(stuck) })
	if len(overdue) > 0 {
		s.cfg.Overdue(overdue)
	}
	return errors.Join(s.free(ctx, stuck), s.disown(ctx, mine))
}

// free ends stuck runs, in batches.
func (s *Sweeper) free(ctx context.Context, stuck []cron.Run) error {
	for len(stuck) > 0 {
		n := min(batch, len(stuck))
		freed, err := s.store.Sweep(ctx, stuck[:n])
		if err != nil {
			return fmt.Errorf("sweep cron jobs: %w", err)
		}
		for _, r := range freed {
			s.cfg.Logger.WarnContext(ctx, "cron job swept", "ref", r.Ref, "run", r.ID, "slot", r.Slot, "controller", r.Controller, "verdict", r.Verdict)
		}
		s.count(func(c *Stats) {
			for _, r := range freed {
				if r.Verdict == cron.TimedOut {
					c.TimedOut++
				} else {
					c.Lost++
				}
			}
		})
		if len(freed) > 0 {
			s.cfg.Freed(freed)
		}
		stuck = stuck[n:]
	}
	return nil
}

// disown ends runs in this controller's name that it knows nothing of: their claim was committed, but its answer never
// came back. A run must be unknown in two scans running. One is not enough: a process that stood still between a claim
// and its answer would scan first, and end a run that it is about to call.
func (s *Sweeper) disown(ctx context.Context, mine []cron.Run) error {
	before := s.suspects
	s.suspects = map[cron.RunID]bool{}
	var ends []cron.End
	ending := map[cron.RunID]cron.Run{}
	for _, r := range mine {
		switch {
		case s.cfg.Known(r.ID):
		case before[r.ID] && len(ends) < batch:
			ends = append(ends, cron.End{JobID: r.JobID, RunID: r.ID, Slot: r.Slot, Verdict: cron.Lost, Error: UnknownHere})
			ending[r.ID] = r
		default:
			s.suspects[r.ID] = true
		}
	}
	if len(ends) == 0 {
		return nil
	}
	ended, err := s.store.EndCronJobs(ctx, ends)
	if err != nil {
		for id := range ending {
			s.suspects[id] = true // still is, and has been seen twice
		}
		return fmt.Errorf("end unknown runs: %w", err)
	}
	var freed []cron.Run
	for _, e := range ended {
		if r, ok := ending[e.RunID]; ok && e.Accepted && !e.Repeated {
			s.cfg.Logger.WarnContext(ctx, "unknown run ended", "ref", r.Ref, "run", r.ID, "slot", r.Slot)
			r.Verdict, r.Error = cron.Lost, UnknownHere
			freed = append(freed, r)
		}
	}
	s.count(func(c *Stats) { c.Unknown += int64(len(freed)) })
	if len(freed) > 0 {
		s.cfg.Freed(freed)
	}
	return nil
}
