package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/engine/loop"
)

const (
	giveUpAfter  = 5 * time.Second // how long a call looks for a runner at most: there was room when it was claimed
	requeueAfter = time.Second     // a job that no runner took rests so long
	cancelGrace  = time.Second     // cancelled calls may take so long to say so
	unsentGrace  = 5 * time.Second // Drain waits so long for ends after that
	reasonDrain  = "controller draining"
	reasonFenced = "fenced"
)

// run is one attempt of a job here, from the mint of its id until its end is answered; Queue.mu guards it.
type run struct {
	id         cron.RunID
	claimed    job.Claimed // once it began
	verb       *verb
	pool       *pool // while it holds a place that the caller does not know of yet
	deployment string
	began      bool
	enveloped  bool      // the job is a trigger's, or the Cozy API's
	ended      bool      // the call returned; its end is under way
	given      string    // given up by drain or fence, for this reason: the job goes back
	cancelled  string    // the job was cancelled, for this reason
	progress   string    // what it said last
	toldAt     time.Time // local: when progress was written last
}

// begins notes that a claim or an insert was answered: the run is on; q.mu is held.
func (q *Queue) begins(r *run) {
	r.began = true
	q.claims--
	q.calls++
}

// unreserve forgets a run that did not begin; q.mu is held.
func (q *Queue) unreserve(r *run) {
	r.pool.reserved--
	r.verb.running--
	q.claims--
	delete(q.runs, r.id)
}

// call has runs called. Where no run may begin any more, the jobs go back.
func (q *Queue) call(runs []*run) {
	if len(runs) == 0 {
		return
	}
	type start struct {
		call Call
		wait time.Duration
		end  *job.Outcome // not called at all
	}
	starts := make([]start, len(runs))
	q.mu.Lock()
	for i, r := range runs {
		c := &r.claimed
		starts[i] = start{call: r.call(), wait: max(c.Started.Sub(c.Due), 0)}
		r.enveloped = len(c.Envelope) > 0
		c.Payload, c.Envelope = nil, nil // the caller has them
		switch {
		case r.cancelled != "":
			starts[i].end = &job.Outcome{Verdict: cron.Cancelled, Text: r.cancelled}
		case q.fenced || q.draining:
			r.given = reasonDrain
			if q.fenced {
				r.given = reasonFenced
			}
			starts[i].end = &job.Outcome{Verdict: cron.Cancelled, Text: r.given}
		}
	}
	q.mu.Unlock()
	for _, s := range starts {
		if s.end != nil {
			q.done(s.call.Run, *s.end)
			continue
		}
		if q.cfg.OnStart != nil {
			q.cfg.OnStart(s.call.Ref, s.wait)
		}
		end := func(job.Outcome) {}
		if q.cfg.Span != nil {
			s.call.Traceparent, end = q.cfg.Span(s.call)
		}
		id := s.call.Run
		q.cfg.Caller.Call(s.call, func(o job.Outcome) {
			end(o)
			q.done(id, o)
		})
	}
	q.mu.Lock()
	for _, r := range runs {
		if r.pool != nil {
			r.pool.reserved--
			r.pool = nil
		}
	}
	late := make([]cron.RunID, 0)
	for _, r := range runs { // a cancel or a fence that came in between found no call
		if !r.ended && (r.cancelled != "" || r.given != "") {
			late = append(late, r.id)
		}
	}
	q.mu.Unlock()
	loop.RingAll(q.claimBells)
	for _, id := range late {
		q.cfg.Caller.Cancel(id, reasonDrain)
	}
}

// call is what Caller is told of a run.
func (r *run) call() Call {
	c := &r.claimed
	call := Call{
		Run: r.id, Job: c.ID, Tenant: c.Tenant, Ref: c.Ref, Slot: c.Slot, Attempt: max(c.Attempt, 1), Timeout: c.Timeout, Deployment: r.deployment,
		IdempotencyKey: c.ID.String(), Payload: c.Payload, Envelope: c.Envelope,
	}
	if call.Timeout <= 0 {
		call.Timeout = cron.DefaultTimeout
	}
	call.GiveUp = min(giveUpAfter, call.Timeout)
	return call
}

// done takes the outcome of a call: what it makes of the job is decided now, and sent by an end lane.
func (q *Queue) done(id cron.RunID, o job.Outcome) {
	q.mu.Lock()
	r := q.runs[id]
	if r == nil || r.ended {
		q.mu.Unlock()
		return
	}
	r.ended = true
	q.calls--
	switch {
	case o.Verdict == "" && !o.Requeue && !o.Snooze && !o.Await:
		o.Verdict = cron.Failed
	case r.given != "" && o.Verdict == cron.Cancelled && r.cancelled == "":
		o = job.Outcome{Verdict: cron.Cancelled, Text: r.given, Requeue: true}
	}
	r.claimed.CancelAsked = r.claimed.CancelAsked || r.cancelled != ""
	// What only the user can mend is for good; of other jobs a failure's text says nothing.
	o.Final = o.Final || r.enveloped && o.Verdict == cron.Failed && trigger.Hopeless(o.Text)
	step := job.Decide(r.claimed, o, fromMicros(q.now()), rand.Float64())
	if step.State == job.Ready && o.Requeue && r.given == "" {
		step.Delay = max(step.Delay, requeueAfter)
	}
	q.end(waitingEnd{End: job.End{ID: r.claimed.N, Run: id, Outcome: o, Step: step, Parent: r.claimed.Parent, Progress: r.progress}, run: r})
	delete(q.told, r)
	q.calmer()
	ref := r.claimed.Ref
	q.mu.Unlock()
	loop.RingAll(q.endBells)
	loop.RingAll(q.claimBells)
	if q.cfg.OnEnd != nil {
		q.cfg.OnEnd(ref, o.Verdict)
	}
}

// Cancel ends a run because its job was cancelled; it says whether the run is this controller's. The job ends as
// cancelled unless the run succeeds all the same.
func (q *Queue) Cancel(id cron.RunID, reason string) bool {
	if reason == "" {
		reason = "cancelled"
	}
	q.mu.Lock()
	r := q.runs[id]
	if r != nil {
		r.cancelled = reason
	}
	ask := r != nil && r.began && !r.ended
	q.mu.Unlock()
	if ask {
		q.cfg.Caller.Cancel(id, reason)
	}
	return r != nil
}

// Known says whether a run is this controller's: it is being claimed, it executes here, or its end is not answered.
func (q *Queue) Known(id cron.RunID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.runs[id] != nil
}

// Fence stops all claims; the calls in flight, which whoever calls the verbs cancels, and what is won meanwhile go back
// to ready.
func (q *Queue) Fence() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fenced = true
	q.giveUp(reasonFenced)
}

// giveUp marks all runs as given up and returns those that are called; q.mu is held.
func (q *Queue) giveUp(reason string) (called []cron.RunID) {
	for id, r := range q.runs {
		if r.ended {
			continue
		}
		r.given = reason
		if r.began {
			called = append(called, id)
		}
	}
	return called
}

// Unfence lets claims go on, after all windows were read again: much may have changed.
func (q *Queue) Unfence() {
	q.mu.Lock()
	q.fenced = false
	for _, r := range q.runs {
		if !r.began {
			r.given = ""
		}
	}
	q.mu.Unlock()
	q.Wake()
}

// Drain stops all claims and waits for the runs in flight; jobs are still taken in. When ctx ends before them, the
// runs are cancelled and their jobs go back. It returns when all ends are written, or with an error when they could
// not be; Run has to work meanwhile.
func (q *Queue) Drain(ctx context.Context) error {
	q.mu.Lock()
	q.draining = true
	for _, b := range q.outbox {
		for _, k := range b.picks {
			q.claims--
			delete(q.runs, k.run)
			q.plan.giveBack(k, true)
		}
	}
	q.outbox = nil
	q.mu.Unlock()
	if !q.waitFor(ctx, func() bool { return q.claims == 0 && q.calls == 0 }) {
		q.cancelAll(context.WithoutCancel(ctx))
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsentGrace)
	defer cancel()
	if q.waitFor(last, func() bool { return len(q.runs) == 0 && len(q.intake) == 0 && q.inserts == 0 }) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return fmt.Errorf("drain the queue: %w", errors.Join(context.DeadlineExceeded,
		fmt.Errorf("%d ends not written, %d claims without an answer, %d jobs not inserted", len(q.runs)-q.claims, q.claims, q.waiting)))
}

// cancelAll ends all calls: first by asking for it, then without them.
func (q *Queue) cancelAll(ctx context.Context) {
	q.mu.Lock()
	called := q.giveUp(reasonDrain)
	q.mu.Unlock()
	for _, id := range called {
		q.cfg.Caller.Cancel(id, reasonDrain)
	}
	asked, cancel := context.WithTimeout(ctx, cancelGrace)
	defer cancel()
	if q.waitFor(asked, func() bool { return q.calls == 0 && q.claims == 0 }) {
		return
	}
	q.mu.Lock()
	called = q.giveUp(reasonDrain)
	q.mu.Unlock()
	for _, id := range called {
		q.done(id, job.Outcome{Verdict: cron.Cancelled, Text: reasonDrain})
	}
}

// waitFor waits until what is asked under q.mu is so; false: ctx ended before.
func (q *Queue) waitFor(ctx context.Context, reached func() bool) bool {
	for {
		q.mu.Lock()
		ok := reached()
		q.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-q.quiet:
		}
	}
}
