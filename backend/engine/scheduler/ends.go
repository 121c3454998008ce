package scheduler

import (
	"context"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/engine/loop"
)

// An end lane sends the ends that gathered while its last statement was under way. While a herd is being claimed,
// ends are held back a little: they would take the database from claims that are late already.

// longestHold bounds how often a new herd may hold an end back once more.
const longestHold = 10

type waitingEnd struct {
	cron.End
	since time.Time // local
}

func (s *Scheduler) endLane(ctx context.Context, b loop.Bell) {
	limit, failures := s.cfg.EndBatch, 0
	for ctx.Err() == nil {
		batch, wait := s.takeEnds(limit, s.cfg.Hold)
		if len(batch) == 0 {
			loop.Rest(ctx, wait, b)
			continue
		}
		if err := s.sendEnds(ctx, batch); err != nil {
			// What the database refuses for good must not keep its neighbours: ever smaller batches part them.
			failures++
			limit = max(1, len(batch)/2)
			after := loop.Backoff(failures)
			s.log.WarnContext(ctx, "ends not written", "ends", len(batch), "error", err, "again_in", after)
			loop.Rest(ctx, after, nil)
			continue
		}
		failures, limit = 0, min(2*limit, s.cfg.EndBatch)
	}
	for {
		batch, _ := s.takeEnds(s.cfg.EndBatch, 0)
		if len(batch) == 0 {
			return
		}
		if err := s.sendEnds(ctx, batch); err != nil {
			s.log.WarnContext(ctx, "ends left to the sweep", "ends", len(batch), "error", err)
			return
		}
	}
}

// takeEnds returns the ends to send, or how long to wait for them.
func (s *Scheduler) takeEnds(limit int, hold time.Duration) ([]waitingEnd, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ends) == 0 {
		return nil, time.Minute
	}
	if !s.draining {
		// However many wait: in a herd of 10,000 that took its p99 from 200 to 150-180 ms.
		if left := min(hold-time.Since(s.herdAt), longestHold*hold-time.Since(s.ends[0].since)); left > 0 {
			return nil, left
		}
	}
	n := min(limit, len(s.ends))
	batch := append([]waitingEnd(nil), s.ends[:n]...)
	s.ends = append(s.ends[:0], s.ends[n:]...)
	return batch, 0
}

// sendEnds writes ends and takes in the answers. Those without an answer go back into the queue.
func (s *Scheduler) sendEnds(ctx context.Context, batch []waitingEnd) error {
	ends := make([]cron.End, len(batch))
	for i, w := range batch {
		ends[i] = w.End
	}
	stmt, cancel := loop.Statement(ctx)
	answers, err := s.cfg.Store.EndCronJobs(stmt, ends)
	cancel()
	answered := make(map[cron.RunID]bool, len(answers))
	for _, a := range answers {
		answered[a.RunID] = true
	}
	late := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range batch {
		switch {
		case answered[w.RunID]:
		case err != nil:
			s.ends = append(s.ends, w)
		default: // the store knows nothing of it, not even that it came late
			answers = append(answers, cron.Ended{JobID: w.JobID, RunID: w.RunID})
		}
	}
	now := s.now()
	for _, a := range answers {
		if !a.Accepted {
			late++
			s.log.WarnContext(ctx, "late end refused", "job", a.JobID, "run", a.RunID)
		}
		if s.plan.ended(a, now) {
			s.reloads[a.JobID] = struct{}{}
		}
	}
	s.counters.ended.Add(int64(len(answers) - late))
	s.counters.lateEnds.Add(int64(late))
	if len(s.reloads) > 0 {
		s.reloadBell.Ring()
	}
	s.armed()
	s.quiet.Ring()
	return err
}
