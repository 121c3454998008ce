package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/engine/loop"
)

const (
	giveUpAfter  = 30 * time.Second      // how long a call looks for a runner at most
	beforeNext   = 50 * time.Millisecond // and so long before the next slot, so that its end is written by then
	cancelGrace  = time.Second           // cancelled calls may take so long to say so
	unsentGrace  = 5 * time.Second       // Drain waits so long for ends after that
	reasonDrain  = "controller draining"
	reasonFenced = "fenced"
)

// call has runs called. Where no run may begin any more, they end as cancelled.
func (s *Scheduler) call(runs []*run) {
	if len(runs) == 0 {
		return
	}
	s.mu.Lock()
	now, refused := s.now(), ""
	switch {
	case s.fenced:
		refused = reasonFenced
	case s.draining:
		refused = reasonDrain
	}
	calls := make([]Call, len(runs))
	for i, u := range runs {
		calls[i] = u.call(fromMicros(now))
	}
	s.mu.Unlock()
	for i, c := range calls {
		if s.cfg.OnStart != nil && c.Kind == cron.SlotRun {
			s.cfg.OnStart(runs[i].started.Sub(c.Slot))
		}
		if refused != "" {
			s.done(c.Run, Outcome{Verdict: cron.Cancelled, Error: refused})
			continue
		}
		end := func(Outcome) {}
		if s.cfg.Span != nil {
			c.Traceparent, end = s.cfg.Span(c)
		}
		s.cfg.Caller.Call(c, func(o Outcome) {
			end(o)
			s.done(c.Run, o)
		})
	}
}

// call is what Caller is told of a run.
func (u *run) call(now time.Time) Call {
	job, current := &u.job, &u.job.Current
	c := Call{
		Run: u.id, JobID: job.ID, Ref: job.Ref, Slot: current.Slot, Attempt: max(current.Attempt, 1), Timeout: job.Timeout,
		Deployment: current.Deployment, Kind: current.Kind,
	}
	if c.Timeout <= 0 {
		c.Timeout = cron.DefaultTimeout
	}
	c.GiveUp = min(giveUpAfter, c.Timeout)
	if c.Kind == cron.ManualRun {
		c.IdempotencyKey = u.id.String()
		return c
	}
	c.IdempotencyKey = job.Ref + "@" + c.Slot.UTC().Format(time.RFC3339Nano)
	next := fromMicros(u.next)
	if !next.After(now) {
		next = cron.FirstAfter(u.sched.Schedule, now)
	}
	if !next.IsZero() {
		c.GiveUp = min(c.GiveUp, max(next.Sub(now)-beforeNext, beforeNext))
	}
	return c
}

// done takes the outcome of a call: its end is computed now, and sent by an end lane.
func (s *Scheduler) done(id cron.RunID, o Outcome) {
	s.mu.Lock()
	end, ok := s.plan.finish(id, o, s.now())
	if ok {
		s.ends = append(s.ends, waitingEnd{End: end, since: time.Now()})
		s.calmer()
	}
	s.mu.Unlock()
	if !ok {
		return
	}
	loop.RingAll(s.endBells)
	if s.cfg.OnVerdict != nil {
		s.cfg.OnVerdict(end.Verdict)
	}
}

// Started has a run called that was started in this controller's name outside the schedule (run now): the row
// executes, and Current is the run.
func (s *Scheduler) Started(job cron.Job) {
	s.mu.Lock()
	u, ok := s.plan.started(&job)
	s.mu.Unlock()
	if ok {
		s.call([]*run{u})
	}
}

// Known says whether a run is this controller's: it executes here, its end is not written yet, or its claim is in
// doubt and being looked up.
func (s *Scheduler) Known(id cron.RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, doubted := s.doubt[id]
	return doubted || s.plan.runs[id] != nil
}

// Fence stops all claims; what is won meanwhile ends as cancelled. Whoever calls the verbs cancels the calls in flight.
func (s *Scheduler) Fence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced = true
}

// Unfence lets claims go on, after a reset: much may have changed.
func (s *Scheduler) Unfence() {
	s.mu.Lock()
	s.fenced = false
	loop.RingAll(s.claimBells)
	s.mu.Unlock()
	s.Reset()
}

// Drain stops all claims and waits for the runs in flight. When ctx ends before them, they are cancelled. It returns
// when all ends are written, or with an error when they could not be; Run has to work meanwhile.
func (s *Scheduler) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	if !s.waitFor(ctx, func() bool { return s.plan.claims == 0 && s.plan.calls == 0 && s.lookups == 0 }) {
		s.cancelAll(context.WithoutCancel(ctx))
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsentGrace)
	defer cancel()
	if s.waitFor(last, func() bool { return s.plan.claims == 0 && len(s.plan.runs) == 0 }) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("drain the scheduler: %w", errors.Join(context.DeadlineExceeded,
		fmt.Errorf("%d ends not written, %d claims without an answer", len(s.plan.runs), s.plan.claims)))
}

// cancelAll ends all calls: first by asking for it, then without them.
func (s *Scheduler) cancelAll(ctx context.Context) {
	if s.cfg.Cancel != nil {
		s.cfg.Cancel(reasonDrain)
		asked, cancel := context.WithTimeout(ctx, cancelGrace)
		defer cancel()
		if s.waitFor(asked, func() bool { return s.plan.calls == 0 }) {
			return
		}
	}
	var left []cron.RunID
	s.mu.Lock()
	for id, u := range s.plan.runs {
		if !u.ended {
			left = append(left, id)
		}
	}
	s.mu.Unlock()
	for _, id := range left {
		s.done(id, Outcome{Verdict: cron.Cancelled, Error: reasonDrain})
	}
}

// waitFor waits until what is asked under s.mu is so; false: ctx ended before.
func (s *Scheduler) waitFor(ctx context.Context, reached func() bool) bool {
	for {
		s.mu.Lock()
		ok := reached()
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.quiet:
		}
	}
}
