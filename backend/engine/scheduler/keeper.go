package scheduler

import (
	"context"
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/engine/loop"
)

// The keeper keeps the plan true: it fetches the rows of gained shards at once, drops those of lost shards after their
// grace, and reads everything again each minute (the reset): what a hint missed, what somebody changed by hand, what a
// clock that jumped left behind.

const loadChunk = 500 // rows taken in under one hold of the lock

func (s *Scheduler) keep(ctx context.Context) {
	failures := 0
	nextReset := time.Now().Add(loop.Jittered(s.cfg.Reset))
	for ctx.Err() == nil {
		nextDrop := s.dropLost()
		shards, reset := s.takeShards(!time.Now().Before(nextReset))
		if len(shards) > 0 || reset {
			if err := s.list(ctx, shards); err != nil {
				failures++
				s.missed(shards, reset)
				s.log.WarnContext(ctx, "cron jobs not listed", "shards", len(shards), "error", err)
				loop.Rest(ctx, loop.Backoff(failures), nil)
				continue
			}
			failures = 0
		}
		if reset {
			s.counters.resets.Add(1)
			nextReset = time.Now().Add(loop.Jittered(s.cfg.Reset))
			s.endAdoptions()
			continue
		}
		loop.Rest(ctx, min(time.Until(nextReset), nextDrop), s.keeperBell)
	}
}

// OnRing sets the shards that this controller owns, first and second. Gained shards are fetched at once; lost ones are
// tried on until their grace is over. It does not block.
func (s *Scheduler) OnRing(first, second []int32) {
	s.ring.Lock()
	defer s.ring.Unlock()
	roles := make(map[int32]role, len(first)+len(second))
	for _, id := range second {
		roles[id] = secondOwner
	}
	for _, id := range first {
		roles[id] = firstOwner
	}
	s.mu.Lock()
	for id := range s.plan.shards {
		if _, ok := roles[id]; !ok {
			roles[id] = none
		}
	}
	s.mu.Unlock()
	for id, to := range roles { // shard by shard: a claim lane need not wait for all of them
		s.mu.Lock()
		if s.plan.own(id, to, s.now(), time.Now()) {
			s.gained[id] = struct{}{}
		}
		s.armed()
		s.mu.Unlock()
	}
	s.keeperBell.Ring()
}

// Reset reads all rows again soon.
func (s *Scheduler) Reset() {
	s.mu.Lock()
	s.resetDue = true
	s.mu.Unlock()
	s.keeperBell.Ring()
}

// takeShards returns the shards to list: all of them for a reset, otherwise those that were gained.
func (s *Scheduler) takeShards(due bool) (shards []int32, reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reset = due || s.resetDue
	s.resetDue = false
	for id := range s.gained {
		shards = append(shards, id)
	}
	if reset {
		shards = shards[:0]
		for id, sh := range s.plan.shards {
			if sh.role != none {
				shards = append(shards, id)
			}
		}
	}
	clear(s.gained)
	return shards, reset
}

// missed puts shards back that could not be listed.
func (s *Scheduler) missed(shards []int32, reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetDue = s.resetDue || reset
	for _, id := range shards {
		s.gained[id] = struct{}{}
	}
}

// dropLost gives up the shards whose grace is over, and returns how long until the next one's is.
func (s *Scheduler) dropLost() time.Duration {
	s.mu.Lock()
	var over []int32
	next := time.Hour
	for id, sh := range s.plan.shards {
		if sh.lost.IsZero() {
			continue
		}
		if left := s.cfg.Grace - time.Since(sh.lost); left > 0 {
			next = min(next, left)
		} else {
			over = append(over, id)
		}
	}
	s.mu.Unlock()
	for _, id := range over {
		s.mu.Lock()
		if sh := s.plan.shards[id]; sh != nil && !sh.lost.IsZero() && time.Since(sh.lost) >= s.cfg.Grace {
			s.plan.drop(id, s.now())
		}
		s.mu.Unlock()
	}
	return next
}

// list reads all rows of some shards, and drops the ones that are not there any more.
func (s *Scheduler) list(ctx context.Context, shards []int32) error {
	s.mu.Lock()
	if len(shards) == 0 {
		s.loaded = true
		s.mu.Unlock()
		return nil
	}
	began := s.plan.stamp
	s.plan.listing++
	listing := s.plan.listing
	if len(s.plan.parsed) > 2*len(s.plan.rows)+1000 {
		clear(s.plan.parsed) // texts that no row has any more; rows keep what they point to
	}
	s.mu.Unlock()
	var far []cron.Job
	now, err := s.cfg.Lists.ListShards(ctx, shards, func(jobs []cron.Job) error {
		for len(jobs) > 0 {
			n := min(loadChunk, len(jobs))
			far = append(far, s.takeListed(jobs[:n], began, listing)...)
			jobs = jobs[n:]
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("list the rows of %d shards: %w", len(shards), err)
	}
	for _, id := range shards {
		s.mu.Lock()
		s.plan.missing(id, began, listing)
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.loaded = true
	s.mu.Unlock()
	return s.repair(ctx, far, now)
}

// takeListed takes in some rows, and returns those whose next slot looks wrong.
func (s *Scheduler) takeListed(jobs []cron.Job, began int64, listing int32) (far []cron.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.setAside(s.plan.load(jobs, began, listing, now))
	for _, job := range jobs {
		r := s.plan.rows[job.ID]
		if r == nil || r.busy() || r.version != job.Version {
			continue
		}
		if _, ok := cron.TooFar(job, r.sched.Schedule, fromMicros(now)); ok {
			far = append(far, job)
		}
	}
	s.armed()
	return far
}

// repair mends next slots that the schedule does not have, judged by the database's own time after the list.
func (s *Scheduler) repair(ctx context.Context, far []cron.Job, now time.Time) error {
	for _, job := range far {
		s.mu.Lock()
		r := s.plan.rows[job.ID]
		ok := r != nil && !r.busy() && r.version == job.Version
		var next time.Time
		if ok {
			next, ok = cron.TooFar(job, r.sched.Schedule, now)
		}
		s.mu.Unlock()
		if !ok {
			continue
		}
		s.log.WarnContext(ctx, "next slot repaired", "ref", job.Ref, "was", job.Next, "next", next)
		stmt, cancel := loop.Statement(ctx)
		err := s.cfg.Lists.RepairCronJob(stmt, job.ID, job.Version, job.Next, next)
		cancel()
		if err != nil {
			return fmt.Errorf("repair the next slot of %s: %w", job.Ref, err)
		}
		s.counters.repaired.Add(1)
		s.mu.Lock()
		s.reloads[job.ID] = struct{}{}
		s.reloadBell.Ring()
		s.mu.Unlock()
	}
	return nil
}

// Hint reads the rows of modules that changed, and returns when they are in the plan. Rows that this controller does
// not own are left out.
func (s *Scheduler) Hint(ctx context.Context, modules []string) error {
	if len(modules) == 0 {
		return nil
	}
	s.mu.Lock()
	began := s.plan.stamp
	s.mu.Unlock()
	jobs, err := s.cfg.Lists.ListModules(ctx, modules)
	if err != nil {
		return fmt.Errorf("read the cron jobs of changed modules: %w", err)
	}
	for len(jobs) > 0 {
		n := min(loadChunk, len(jobs))
		s.mu.Lock()
		s.setAside(s.plan.load(jobs[:n], began, s.plan.listing, s.now()))
		s.armed()
		s.mu.Unlock()
		jobs = jobs[n:]
	}
	return nil
}

// Adopt is Hint, and looks after all rows of the modules whatever their shards, until Release or the first reset
// that comes half a period later: the controller that deployed them, before their owners know.
func (s *Scheduler) Adopt(ctx context.Context, modules []string) error {
	s.mu.Lock()
	for _, m := range modules {
		s.plan.adopt(m, time.Now())
	}
	s.mu.Unlock()
	return s.Hint(ctx, modules)
}

// Learn reads single rows, as a new or changed trigger's, and returns when they are in the plan; those that are not this
// controller's are left out, and those that are gone are dropped.
func (s *Scheduler) Learn(ctx context.Context, ids []int64) error {
	_, err := s.learnRows(ctx, ids, false)
	return err
}

// AdoptRows is Learn, and looks after these rows whatever their shards, as Adopt does, until Release of the names that it
// returns: who made them, before their owners know.
func (s *Scheduler) AdoptRows(ctx context.Context, ids []int64) (names []string, err error) {
	return s.learnRows(ctx, ids, true)
}

func (s *Scheduler) learnRows(ctx context.Context, ids []int64, adopt bool) (names []string, err error) {
	for len(ids) > 0 {
		n := min(loadChunk, len(ids))
		s.mu.Lock()
		began := s.plan.stamp
		s.mu.Unlock()
		jobs, _, err := s.cfg.Store.GetCronJobs(ctx, ids[:n])
		if err != nil {
			return names, fmt.Errorf("read changed cron jobs: %w", err)
		}
		s.mu.Lock()
		for i := range jobs {
			if adopt && jobs[i].RemovedAt.IsZero() {
				names = append(names, moduleOf(jobs[i].Ref))
				s.plan.adopt(moduleOf(jobs[i].Ref), time.Now())
			}
		}
		s.setAside(s.plan.load(jobs, began, s.plan.listing, s.now()))
		s.forgetDeleted(ids[:n], jobs)
		s.armed()
		s.mu.Unlock()
		ids = ids[n:]
	}
	return names, nil
}

// Release ends Adopt: the owners have answered.
func (s *Scheduler) Release(modules []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range modules {
		s.plan.release(m, s.now())
	}
}

func (s *Scheduler) endAdoptions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan.releaseOld(time.Now().Add(-s.cfg.Reset/2), s.now())
}
