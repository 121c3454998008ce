package scheduler

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/engine/loop"
)

// A claim lane sends a batch of claims, has what it won called, reads what it lost, and sends the next. Two lanes keep
// two connections busy; neither waits for a timer while anything is due.

// longestRest bounds a lane's sleep: the estimate of the database's clock may have changed meanwhile.
const longestRest = time.Second

// herd is the number of claims in a batch from which ends are held back. The ends of a few runs take nothing from
// anybody, and a run's end time should be when it ended.
const herd = 32

func (s *Scheduler) claimLane(ctx context.Context, b loop.Bell, wg *sync.WaitGroup) {
	failures := 0
	for ctx.Err() == nil {
		claims, wait := s.takeDue()
		if len(claims) == 0 {
			loop.Rest(ctx, wait, b)
			continue
		}
		after := loop.Backoff(failures + 1)
		if err := s.claim(ctx, claims, after, wg); err != nil {
			failures++
			s.log.WarnContext(ctx, "cron jobs not claimed", "claims", len(claims), "error", err, "again_in", after)
			loop.Rest(ctx, after, nil)
			continue
		}
		failures = 0
	}
}

// takeDue returns the next batch, or how long to wait for one.
func (s *Scheduler) takeDue() ([]cron.Claim, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	wait := longestRest
	s.wakeAt = 0
	if s.fenced || s.draining {
		return nil, wait
	}
	room := s.cfg.MaxInFlight - s.plan.claims - s.plan.calls
	if room <= 0 {
		s.full = true
		return nil, wait
	}
	claims := s.plan.take(now, min(s.cfg.BatchSize, room), mintRunID)
	if len(claims) > 0 {
		s.wakeAt = math.MaxInt64
		if len(claims) >= herd {
			s.herdAt = time.Now()
		}
		return claims, 0
	}
	if at := s.plan.nextAt(); at != 0 {
		wait = min(wait, time.Duration(at-now)*time.Microsecond)
	}
	s.wakeAt = now + wait.Microseconds()
	return nil, wait
}

// claim sends one batch. What failed is tried again after the given time, or looked up.
func (s *Scheduler) claim(ctx context.Context, claims []cron.Claim, after time.Duration, wg *sync.WaitGroup) error {
	var starts, fires, skips []cron.Claim
	for _, c := range claims {
		switch {
		case c.Slot.IsZero():
			skips = append(skips, c)
		case c.Fires:
			fires = append(fires, c)
		default:
			starts = append(starts, c)
		}
	}
	s.counters.claims.Add(int64(len(claims)))
	return errors.Join(s.start(ctx, starts, after, wg), s.fire(ctx, fires, after, wg), s.skip(ctx, skips, after))
}

func (s *Scheduler) start(ctx context.Context, claims []cron.Claim, after time.Duration, wg *sync.WaitGroup) error {
	if len(claims) == 0 {
		return nil
	}
	before := s.rawNow()
	stmt, cancel := loop.Statement(ctx)
	won, err := s.cfg.Store.StartCronJobs(stmt, claims)
	cancel()
	lost := s.begin(claims, won, before)
	if loop.OutcomeUnknown(err) {
		s.mu.Lock()
		for _, c := range lost {
			s.doubt[c.RunID] = struct{}{}
		}
		s.mu.Unlock()
	}
	return s.notWon(ctx, lost, err, after, wg, s.lookUp)
}

// notWon deals with the claims of a statement that were not won: what may have been done all the same is looked up, what
// failed is tried again, and the rows that others won are read.
func (s *Scheduler) notWon(ctx context.Context, lost []cron.Claim, err error, after time.Duration, wg *sync.WaitGroup, lookUp func(context.Context, []cron.Claim)) error {
	switch {
	case loop.OutcomeUnknown(err):
		s.mu.Lock()
		s.lookups++
		s.mu.Unlock()
		wg.Go(func() { lookUp(ctx, lost) })
		return err
	case err != nil:
		s.failed(lost, after)
		return err
	case len(lost) == 0:
		return nil
	}
	s.counters.lost.Add(int64(len(lost)))
	return s.learnLost(ctx, lost, after)
}

// begin has the won claims called and returns the others.
func (s *Scheduler) begin(claims []cron.Claim, won []cron.Claimed, before micros) (lost []cron.Claim) {
	if len(won) == 0 {
		return claims
	}
	at := make(map[int64]time.Time, len(won))
	for _, w := range won {
		at[w.JobID] = w.StartedAt
	}
	runs := make([]*run, 0, len(won))
	s.mu.Lock()
	s.observe(before, won[0].StartedAt)
	for _, c := range claims {
		if started, ok := at[c.JobID]; !ok {
			lost = append(lost, c)
		} else if u, ok := s.plan.won(c, started); ok {
			runs = append(runs, u)
		}
	}
	s.mu.Unlock()
	s.counters.won.Add(int64(len(won)))
	s.call(runs)
	return lost
}

// learnLost reads the rows of claims that were not won.
func (s *Scheduler) learnLost(ctx context.Context, lost []cron.Claim, after time.Duration) error {
	before := s.rawNow()
	stmt, cancel := loop.Statement(ctx)
	jobs, dbNow, err := s.cfg.Store.GetCronJobs(stmt, idsOf(lost))
	cancel()
	if err != nil {
		s.failed(lost, after)
		return err
	}
	s.takeLost(lost, jobs, dbNow, before)
	return nil
}

// takeLost takes in rows that were asked for at the estimate before.
func (s *Scheduler) takeLost(lost []cron.Claim, jobs []cron.Job, dbNow time.Time, before micros) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe(before, dbNow)
	s.setAside(s.plan.lost(lost, jobs, toMicros(dbNow), s.now()))
	s.armed()
	s.calmer()
}

// calmer notes that less is in flight than before; s.mu is held.
func (s *Scheduler) calmer() {
	s.quiet.Ring()
	if s.full {
		s.full = false
		loop.RingAll(s.claimBells)
	}
}

func (s *Scheduler) failed(claims []cron.Claim, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters.failed.Add(int64(len(claims)))
	s.plan.failed(claims, s.now(), after)
	s.armed()
	s.calmer()
}

// skip decides slots of which none runs. Whether or not it worked, the rows tell what there is to do next.
func (s *Scheduler) skip(ctx context.Context, claims []cron.Claim, after time.Duration) error {
	if len(claims) == 0 {
		return nil
	}
	stmt, cancel := loop.Statement(ctx)
	err := s.cfg.Store.SkipCronJobs(stmt, claims)
	cancel()
	if err != nil {
		s.failed(claims, after)
		return err
	}
	return s.learnLost(ctx, claims, after)
}

// lookUp finds out what became of claims without an answer, behind everything that is under way on their rows. A
// claim that has not reached the database by then may still do so: it is looked up once more, while the row itself
// is tried on; the compare-and-set lets only one of the two through.
func (s *Scheduler) lookUp(ctx context.Context, claims []cron.Claim) {
	jobs, dbNow, before, ok := s.readLocked(ctx, claims)
	others := claims
	if ok {
		others = s.takeFound(claims, jobs)
		s.takeLost(others, jobs, dbNow, before)
	} else {
		s.failed(claims, 0)
	}
	s.mu.Lock()
	s.lookups--
	s.calmer()
	s.mu.Unlock()
	if len(others) == 0 || !ok {
		s.doubtless(claims)
		return
	}
	loop.Rest(ctx, s.cfg.Lookup, nil)
	if jobs, _, _, ok := s.readLocked(ctx, others); ok {
		s.takeFound(others, jobs)
	}
	s.doubtless(claims)
}

func (s *Scheduler) doubtless(claims []cron.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		delete(s.doubt, c.RunID)
	}
}

// readLocked asks until it is answered; false: ctx ended before.
func (s *Scheduler) readLocked(ctx context.Context, claims []cron.Claim) (jobs []cron.Job, dbNow time.Time, before micros, ok bool) {
	for failures := 1; ctx.Err() == nil; failures++ {
		before = s.rawNow()
		stmt, cancel := loop.Statement(ctx)
		jobs, dbNow, err := s.cfg.Store.LookupCronJobs(stmt, idsOf(claims))
		cancel()
		if err == nil {
			return jobs, dbNow, before, true
		}
		s.log.WarnContext(ctx, "claims not looked up", "claims", len(claims), "error", err)
		loop.Rest(ctx, loop.Backoff(failures), nil)
	}
	return nil, time.Time{}, 0, false
}

// takeFound has the claims called that were won after all, and returns the others.
func (s *Scheduler) takeFound(claims []cron.Claim, jobs []cron.Job) (others []cron.Claim) {
	found := make(map[int64]*cron.Job, len(jobs))
	for i := range jobs {
		found[jobs[i].ID] = &jobs[i]
	}
	var runs []*run
	s.mu.Lock()
	for _, c := range claims {
		job := found[c.JobID]
		if job == nil || job.State != cron.Executing || job.Current.ID != c.RunID {
			others = append(others, c)
			continue
		}
		if u, ok := s.plan.started(job); ok {
			runs = append(runs, u)
		}
		s.plan.settle(c)
	}
	s.mu.Unlock()
	s.counters.won.Add(int64(len(runs)))
	s.call(runs)
	return others
}

func idsOf(claims []cron.Claim) []int64 {
	ids := make([]int64, len(claims))
	for i, c := range claims {
		ids[i] = c.JobID
	}
	return ids
}
