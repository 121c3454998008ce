package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/engine/loop"
)

// The reloader reads single rows again: those that changed while they ran, and those that the sweep found overdue. It
// also sets rows aside whose schedule cannot be used.

const (
	reloadBatch  = 1000
	warnedAtMost = 10_000
)

func (s *Scheduler) reload(ctx context.Context) {
	warned := map[int64]int64{} // row -> version that was logged
	failures := 0
	for ctx.Err() == nil {
		again, visit, aside := s.takeReloads()
		if len(again)+len(visit)+len(aside) == 0 {
			loop.Rest(ctx, time.Minute, s.reloadBell)
			continue
		}
		ok := s.read(ctx, again, false)
		ok = s.read(ctx, visit, true) && ok
		for _, b := range aside {
			ok = s.setOneAside(ctx, b, warned) && ok
		}
		if ok {
			failures = 0
		} else {
			failures++
			loop.Rest(ctx, loop.Backoff(failures), nil)
		}
	}
}

func (s *Scheduler) takeReloads() (again, visit []int64, aside []badRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.reloads {
		if again = append(again, id); len(again) == reloadBatch {
			break
		}
	}
	for id := range s.visits {
		if visit = append(visit, id); len(visit) == reloadBatch {
			break
		}
	}
	for _, id := range again {
		delete(s.reloads, id)
	}
	for _, id := range visit {
		delete(s.visits, id)
	}
	aside = slices.Collect(maps.Values(s.asides))
	clear(s.asides)
	return again, visit, aside
}

// read reads rows; false: they are to be read again. An overdue row that could not be read is the next sweep's.
func (s *Scheduler) read(ctx context.Context, ids []int64, visit bool) bool {
	if len(ids) == 0 {
		return true
	}
	s.mu.Lock()
	began := s.plan.stamp
	s.mu.Unlock()
	stmt, cancel := loop.Statement(ctx)
	jobs, _, err := s.cfg.Store.GetCronJobs(stmt, ids)
	cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && visit:
		s.log.WarnContext(ctx, "overdue cron jobs not read", "rows", len(ids), "error", err)
		return false
	case err != nil:
		s.log.WarnContext(ctx, "cron jobs not read again", "rows", len(ids), "error", err)
		for _, id := range ids {
			s.reloads[id] = struct{}{}
		}
		return false
	case visit:
		s.setAside(s.plan.visit(jobs, s.now()))
	default:
		s.setAside(s.plan.load(jobs, began, s.plan.listing, s.now()))
		s.forgetDeleted(ids, jobs)
	}
	s.armed()
	return true
}

// forgetDeleted drops rows that were asked for and not found; s.mu is held.
func (s *Scheduler) forgetDeleted(ids []int64, jobs []cron.Job) {
	if len(jobs) == len(ids) {
		return
	}
	found := make(map[int64]bool, len(jobs))
	for i := range jobs {
		found[jobs[i].ID] = true
	}
	for _, id := range ids {
		if r := s.plan.rows[id]; r != nil && !found[id] && !r.busy() {
			s.plan.forget(r)
		}
	}
}

// setAside notes rows for the reloader; s.mu is held.
func (s *Scheduler) setAside(bad []badRow) {
	for _, b := range bad {
		s.asides[b.id] = b
	}
	if len(bad) > 0 {
		s.reloadBell.Ring()
	}
}

func (s *Scheduler) setOneAside(ctx context.Context, b badRow, warned map[int64]int64) bool {
	if version, ok := warned[b.id]; !ok || version != b.version {
		s.log.ErrorContext(ctx, "cron job set aside", "ref", b.ref, "reason", b.reason)
		s.counters.setAside.Add(1)
		if len(warned) >= warnedAtMost {
			clear(warned)
		}
		warned[b.id] = b.version
	}
	stmt, cancel := loop.Statement(ctx)
	defer cancel()
	err := s.cfg.Lists.SetAsideCronJob(stmt, b.id, b.version, b.reason)
	if err == nil {
		return true
	}
	s.log.WarnContext(ctx, "cron job not set aside", "ref", b.ref, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, newer := s.asides[b.id]; !newer {
		s.asides[b.id] = b
	}
	return false
}

// Overdue tries rows once, whatever their shard: the sweep found that their slot is long past. It does not block.
func (s *Scheduler) Overdue(ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fenced || s.draining {
		return
	}
	for _, id := range ids {
		s.visits[id] = struct{}{}
	}
	s.counters.overdue.Add(int64(len(ids)))
	s.reloadBell.Ring()
}
