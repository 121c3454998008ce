package scheduler

import (
	"context"
	"sync"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/engine/loop"
)

// Rows that fire: a claim that is won is done, for the database has made the job in the same statement. That a slot is
// fired once is the compare-and-set's matter, also when an answer is lost; what is looked up then is only whom to tell.

// fire sends claims of rows that fire, and reads what was lost.
func (s *Scheduler) fire(ctx context.Context, claims []cron.Claim, after time.Duration, wg *sync.WaitGroup) error {
	if len(claims) == 0 {
		return nil
	}
	before := s.rawNow()
	stmt, cancel := loop.Statement(ctx)
	fired, err := s.cfg.Store.FireCronJobs(stmt, claims)
	cancel()
	return s.notWon(ctx, s.takeFired(claims, fired, before), err, after, wg, s.lookUpFired)
}

// takeFired arms the rows that were won for their next slots and returns the other claims.
func (s *Scheduler) takeFired(claims []cron.Claim, fired []cron.Firing, before micros) (lost []cron.Claim) {
	if len(fired) == 0 {
		return claims
	}
	won := make(map[cron.RunID]bool, len(fired))
	for _, f := range fired {
		won[f.RunID] = true
	}
	s.mu.Lock()
	s.observe(before, fired[0].At)
	now := s.now()
	for _, c := range claims {
		if won[c.RunID] {
			s.plan.fired(c, now)
		} else {
			lost = append(lost, c)
		}
	}
	s.armed()
	s.calmer()
	s.mu.Unlock()
	s.tell(fired)
	return lost
}

// tell says what was fired.
func (s *Scheduler) tell(fired []cron.Firing) {
	made := 0
	for _, f := range fired {
		if f.Made.N != 0 {
			made++
		}
	}
	s.counters.fired.Add(int64(made))
	if s.cfg.OnFired != nil && len(fired) > 0 {
		s.cfg.OnFired(fired)
	}
}

// lookUpFired reads the rows of firings without an answer behind everything that is under way on them, tells what was
// fired, and goes on with the rows as they are. A firing that arrives later still is told at the second look.
func (s *Scheduler) lookUpFired(ctx context.Context, claims []cron.Claim) {
	jobs, dbNow, before, ok := s.readLocked(ctx, claims)
	if ok {
		s.takeLost(claims, jobs, dbNow, before)
	} else {
		s.failed(claims, 0)
	}
	others := claims
	if ok {
		others = s.askFired(ctx, claims)
	}
	s.mu.Lock()
	s.lookups--
	s.calmer()
	s.mu.Unlock()
	if len(others) == 0 || !ok {
		return
	}
	loop.Rest(ctx, s.cfg.Lookup, nil)
	s.askFired(ctx, others)
}

// askFired tells which of the claims were fired and returns the others. It asks until it is answered or ctx ends.
func (s *Scheduler) askFired(ctx context.Context, claims []cron.Claim) (others []cron.Claim) {
	for failures := 1; ctx.Err() == nil; failures++ {
		stmt, cancel := loop.Statement(ctx)
		fired, err := s.cfg.Store.LookupFired(stmt, claims)
		cancel()
		if err != nil {
			s.log.WarnContext(ctx, "firings not looked up", "claims", len(claims), "error", err)
			loop.Rest(ctx, loop.Backoff(failures), nil)
			continue
		}
		won := make(map[cron.RunID]bool, len(fired))
		for _, f := range fired {
			won[f.RunID] = true
		}
		for _, c := range claims {
			if !won[c.RunID] {
				others = append(others, c)
			}
		}
		s.tell(fired)
		return others
	}
	return claims
}
