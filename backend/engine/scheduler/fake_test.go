package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/schedule"
)

// database is the compare-and-set of the cron_jobs table in memory, on a clock of its own.
type database struct {
	mu         sync.Mutex
	offset     time.Duration // of its clock to the local one
	jobs       map[int64]*cron.Job
	last       int64 // id
	ledger     []cron.Run
	made       []cron.Run // jobs of rows that fire, live as long as EndedAt is zero
	aside      map[int64]string
	statements map[string]int
}

func newDatabase() *database {
	return &database{jobs: map[int64]*cron.Job{}, aside: map[int64]string{}, statements: map[string]int{}}
}

func (d *database) now() time.Time { return time.Now().Add(d.offset).UTC() }

// add puts a job whose first slot is the first after now.
func (d *database) add(ref, expr string, change ...func(*cron.Job)) *cron.Job {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	id := d.last
	job := &cron.Job{
		ID: id, Ref: ref, Shard: int32(id % 4), Version: 1, Enabled: true, State: cron.Idle, Schedule: expr,
		Timeout: time.Minute, Catchup: cron.CatchupLast, Deployment: "dpl-1",
	}
	if sched, err := schedule.ParseText(expr, time.UTC); err == nil {
		job.Next = cron.FirstAfter(sched, d.now())
	}
	for _, c := range change {
		c(job)
	}
	d.jobs[id] = job
	return job
}

// store is one controller's connection to a database; fault may break a statement before or after it is done.
type store struct {
	*database
	controller string
	fault      func(statement string, done bool) error
}

type lostAnswer struct{}

func (lostAnswer) Error() string { return "connection lost" }
func (lostAnswer) Unknown() bool { return true }

// do runs one statement under the lock of the database.
func (s *store) do(name string, f func(now time.Time)) error {
	if s.fault != nil {
		if err := s.fault(name, false); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.statements[name]++
	f(s.now())
	s.mu.Unlock()
	if s.fault != nil {
		return s.fault(name, true)
	}
	return nil
}

func (s *store) StartCronJobs(_ context.Context, claims []cron.Claim) (won []cron.Claimed, err error) {
	err = s.do("start", func(now time.Time) {
		if !slices.IsSortedFunc(claims, func(a, b cron.Claim) int { return cmp.Compare(a.JobID, b.JobID) }) {
			panic("claims are not in id order")
		}
		for _, c := range claims {
			j := s.jobs[c.JobID]
			if j == nil || j.Version != c.Version || !j.Enabled || j.Fires || j.State != cron.Idle || !j.Next.Equal(c.Expected) || c.Slot.After(now) {
				continue
			}
			j.State, j.Next = cron.Executing, c.Next
			j.Current = cron.Run{ID: c.RunID, JobID: j.ID, Ref: j.Ref, Slot: c.Slot, Kind: cron.SlotRun, StartedAt: now, Controller: s.controller, Deployment: j.Deployment, Attempt: 1}
			s.skipped(j, c.Skip, cron.SkippedMissed)
			won = append(won, cron.Claimed{JobID: j.ID, StartedAt: now, DeadlineAt: now.Add(j.Timeout + cron.HardGrace)})
		}
	})
	if err != nil {
		won = nil
	}
	return won, err
}

// FireCronJobs makes jobs that live until the test ends them; their ids count from 1.
func (s *store) FireCronJobs(_ context.Context, claims []cron.Claim) (fired []cron.Firing, err error) {
	err = s.do("fire", func(now time.Time) {
		for _, c := range claims {
			j := s.jobs[c.JobID]
			if j == nil || j.Version != c.Version || !j.Enabled || !j.Fires || j.State != cron.Idle || !j.Next.Equal(c.Expected) || c.Slot.After(now) {
				continue
			}
			if c.Cancels != (j.Overlap == cron.OverlapCancel) || c.Limited != j.Limited {
				panic("the claim does not know whether its row cancels, or counts for a limit")
			}
			j.Next = c.Next
			if c.Next.IsZero() && strings.HasPrefix(j.Schedule, "@at ") {
				j.Enabled, j.RemovedAt = false, now
			}
			s.skipped(j, c.Skip, cron.SkippedMissed)
			f := cron.Firing{JobID: j.ID, Ref: j.Ref, RunID: c.RunID, Slot: c.Slot, At: now, Queue: 7}
			if j.Overlap == cron.OverlapSkip && s.alive(j.ID) {
				s.skipped(j, cron.Range{From: c.Slot, To: c.Slot, Count: 1}, cron.SkippedOverlap)
			} else {
				f.Made = cron.Made{N: int64(len(s.made) + 1)}
				run := cron.Run{ID: c.RunID, JobID: j.ID, Ref: j.Ref, Slot: c.Slot, SlotTo: c.Slot, StartedAt: now, Verdict: cron.Fired, Made: f.Made}
				s.made, s.ledger = append(s.made, run), append(s.ledger, run)
			}
			fired = append(fired, f)
		}
	})
	if err != nil {
		fired = nil
	}
	return fired, err
}

func (d *database) alive(id int64) bool {
	return slices.ContainsFunc(d.made, func(r cron.Run) bool { return r.JobID == id && r.EndedAt.IsZero() })
}

// done ends all jobs that were made.
func (d *database) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.made {
		d.made[i].EndedAt = d.now()
	}
}

func (s *store) LookupFired(_ context.Context, claims []cron.Claim) (fired []cron.Firing, err error) {
	err = s.do("lookup fired", func(time.Time) {
		for _, c := range claims {
			for _, r := range s.ledger {
				if r.ID == c.RunID && r.Verdict == cron.Fired {
					fired = append(fired, cron.Firing{JobID: r.JobID, Ref: r.Ref, RunID: r.ID, Slot: r.Slot, At: r.StartedAt, Made: r.Made, Queue: 7})
				}
			}
		}
	})
	return fired, err
}

func (d *database) skipped(j *cron.Job, r cron.Range, v cron.Verdict) {
	if !r.IsZero() {
		d.ledger = append(d.ledger, cron.Run{JobID: j.ID, Ref: j.Ref, Slot: r.From, SlotTo: r.To, Count: r.Count, Verdict: v})
	}
}

func (s *store) SkipCronJobs(_ context.Context, claims []cron.Claim) error {
	return s.do("skip", func(now time.Time) {
		for _, c := range claims {
			j := s.jobs[c.JobID]
			if j.Version == c.Version && j.Enabled && j.State == cron.Idle && j.Next.Equal(c.Skip.From) && !c.Skip.To.After(now) {
				j.Next = c.Next
				s.skipped(j, c.Skip, cron.SkippedMissed)
			}
		}
	})
}

func (s *store) GetCronJobs(_ context.Context, ids []int64) ([]cron.Job, time.Time, error) {
	return s.rows("get", func(j *cron.Job) bool { return slices.Contains(ids, j.ID) })
}

func (s *store) LookupCronJobs(_ context.Context, ids []int64) ([]cron.Job, time.Time, error) {
	return s.rows("lookup", func(j *cron.Job) bool { return slices.Contains(ids, j.ID) })
}

func (s *store) rows(name string, want func(*cron.Job) bool) (jobs []cron.Job, at time.Time, err error) {
	err = s.do(name, func(now time.Time) {
		at = now
		for _, j := range s.jobs {
			if want(j) {
				jobs = append(jobs, *j)
			}
		}
	})
	return jobs, at, err
}

func (s *store) EndCronJobs(_ context.Context, ends []cron.End) (answers []cron.Ended, err error) {
	err = s.do("end", func(now time.Time) {
		for _, e := range ends {
			j := s.jobs[e.JobID]
			if j == nil || j.State != cron.Executing || j.Current.ID != e.RunID {
				again := slices.ContainsFunc(s.ledger, func(r cron.Run) bool { return r.ID == e.RunID && r.Verdict == e.Verdict })
				answers = append(answers, cron.Ended{JobID: e.JobID, RunID: e.RunID, Accepted: again, Repeated: again})
				continue
			}
			j.State = cron.Idle
			apply := !e.Overlap.IsZero() && j.Version == e.Version && j.Next.Equal(e.Overlap.From) && !e.Overlap.To.After(now)
			if apply {
				j.Next = e.Next
				s.skipped(j, e.Overlap, cron.SkippedOverlap)
			}
			run := j.Current
			run.Verdict, run.Error, run.EndedAt, run.SlotTo = e.Verdict, e.Error, now, run.Slot
			s.ledger = append(s.ledger, run)
			answers = append(answers, cron.Ended{JobID: j.ID, RunID: e.RunID, Accepted: true, Next: j.Next, Version: j.Version, Enabled: j.Enabled, Skipped: apply})
		}
	})
	if err != nil {
		answers = nil
	}
	return answers, err
}

func (s *store) ListShards(_ context.Context, shards []int32, yield func([]cron.Job) error) (time.Time, error) {
	jobs, now, err := s.rows("list", func(j *cron.Job) bool { return slices.Contains(shards, j.Shard) && j.RemovedAt.IsZero() })
	if err == nil {
		err = yield(jobs)
	}
	return now, err
}

func (s *store) ListModules(_ context.Context, modules []string) ([]cron.Job, error) {
	jobs, _, err := s.rows("modules", func(j *cron.Job) bool { return slices.Contains(modules, moduleOf(j.Ref)) })
	return jobs, err
}

func (s *store) SetAsideCronJob(_ context.Context, id, version int64, reason string) error {
	return s.do("aside", func(now time.Time) {
		if j := s.jobs[id]; j.Version == version && j.Enabled {
			j.Enabled, j.SetAsideAt, s.aside[id] = false, now, reason
			j.Version++
		}
	})
}

func (s *store) RepairCronJob(_ context.Context, id, version int64, expected, next time.Time) error {
	return s.do("repair", func(time.Time) {
		if j := s.jobs[id]; j.Version == version && j.Enabled && j.State == cron.Idle && j.Next.Equal(expected) {
			j.Next = next
			j.Version++
		}
	})
}

// sweep frees the runs of a dead controller.
func (d *database) sweep(controller string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.jobs {
		if j.State == cron.Executing && j.Current.Controller == controller {
			j.State = cron.Idle
			run := j.Current
			run.Verdict, run.SlotTo = cron.Lost, run.Slot
			d.ledger = append(d.ledger, run)
		}
	}
}

// clock is a controller's estimate: the local clock (skewed or not cannot be told) plus the measured offset, with an
// error that the controller knows of and one that it does not.
type clock struct {
	d           *database
	wrong, says time.Duration
}

func (c clock) Now() time.Time       { return c.d.now().Add(c.wrong) }
func (c clock) Error() time.Duration { return c.says }

type verbs func(Call) Outcome

// caller calls verbs on goroutines of their own, where they sleep as long as they like in the bubble's time.
type caller struct {
	verbs
	wg sync.WaitGroup
}

func (c *caller) Call(call Call, done func(Outcome)) { c.wg.Go(func() { done(c.verbs(call)) }) }

func succeed(Call) Outcome { return Outcome{Verdict: cron.Succeeded} }

func lasting(d time.Duration) verbs {
	return func(Call) Outcome {
		time.Sleep(d)
		return Outcome{Verdict: cron.Succeeded}
	}
}

// controller is one scheduler that runs in the bubble.
type controller struct {
	*Scheduler
	store *store
	stop  func() // like kill -9, but that what is on its way arrives
}

var allShards = []int32{0, 1, 2, 3}

func (d *database) controller(t *testing.T, name string, v verbs, change ...func(*Config)) *controller {
	t.Helper()
	st := &store{database: d, controller: name}
	calls := &caller{verbs: v}
	t.Cleanup(calls.wg.Wait)
	cfg := Config{Store: st, Lists: st, Caller: calls, Clock: clock{d: d}, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	c := &controller{Scheduler: New(cfg), store: st}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}()
	c.stop = func() { cancel(); <-done }
	t.Cleanup(c.stop)
	return c
}

// wait lets the bubble's time pass and everything that is due happen.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// story is the ledger of a job in short: "succeeded 0s, skipped_overlap 1s-3s x3".
func (d *database) story(job *cron.Job, from time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	runs := slices.DeleteFunc(slices.Clone(d.ledger), func(r cron.Run) bool { return r.JobID != job.ID })
	slices.SortStableFunc(runs, func(a, b cron.Run) int { return a.Slot.Compare(b.Slot) })
	var lines []string
	for _, r := range runs {
		line := fmt.Sprintf("%s %v", r.Verdict, r.Slot.Sub(from))
		if r.ID.IsZero() {
			line += fmt.Sprintf("-%v x%d", r.SlotTo.Sub(from), r.Count)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

func (d *database) count(statement string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.statements[statement]
}

// everySlotOnce checks that each slot of a job until now is decided exactly once, and none began early.
func (d *database) everySlotOnce(t *testing.T, job *cron.Job, first time.Time) {
	t.Helper()
	sched, err := schedule.ParseText(job.Schedule, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	decided := map[time.Time]int{}
	for _, r := range d.ledger {
		if r.JobID == job.ID {
			for slot := range sched.Between(r.Slot, r.SlotTo) {
				decided[slot]++
			}
			if !r.ID.IsZero() && r.StartedAt.Before(r.Slot) {
				t.Errorf("%s %v began at %v, early", job.Ref, r.Slot, r.StartedAt)
			}
		}
	}
	if job.State == cron.Executing {
		decided[job.Current.Slot]++
	}
	for slot := range sched.Between(first, d.now().Add(-time.Second)) {
		if decided[slot] != 1 {
			t.Errorf("%s: slot %v was decided %d times", job.Ref, slot, decided[slot])
		}
	}
}

var errAway = errors.New("the database is away")
