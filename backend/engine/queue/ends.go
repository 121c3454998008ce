package queue

import (
	"context"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/engine/loop"
)

// An end lane sends what gathered while its last statements were under way: the jobs that are over, and those that
// become ready again or wait for their children.

type waitingEnd struct {
	job.End
	run  *run // nil: swept from somebody else
	lost *job.Lost
	sent bool // before, without an answer
}

const endSize = 8 << 20 // bytes of outputs in one statement

// end notes an end for the lanes; q.mu is held.
func (q *Queue) end(w waitingEnd) {
	if w.Step.State == job.Ready || w.Step.State == job.Blocked {
		q.retries = append(q.retries, w)
	} else {
		q.finishes = append(q.finishes, w)
	}
}

func (q *Queue) endLane(ctx context.Context, b loop.Bell) {
	limit, failures := q.cfg.EndBatch, 0
	for ctx.Err() == nil {
		n, err := q.sendGathered(ctx, limit)
		switch {
		case err != nil:
			// What the database refuses for good must not keep its neighbours: ever smaller batches part them.
			failures++
			limit = max(1, n/2)
			after := loop.Backoff(failures)
			q.log.WarnContext(ctx, "ends of jobs not written", "ends", n, "error", err, "again_in", after)
			loop.Rest(ctx, after, nil)
		case n == 0:
			loop.Rest(ctx, time.Minute, b)
		default:
			failures, limit = 0, min(2*limit, q.cfg.EndBatch)
		}
	}
	for {
		n, err := q.sendGathered(ctx, q.cfg.EndBatch)
		if err != nil {
			q.log.WarnContext(ctx, "ends of jobs left to the sweep", "ends", n, "error", err)
		}
		if n == 0 || err != nil {
			return
		}
	}
}

// sendGathered sends one statement of each kind at most; n says how many ends they had.
func (q *Queue) sendGathered(ctx context.Context, limit int) (n int, err error) {
	q.mu.Lock()
	finishes := takeEnds(&q.finishes, limit)
	retries := takeEnds(&q.retries, limit)
	q.mu.Unlock()
	n = len(finishes) + len(retries)
	if len(finishes) > 0 {
		err = q.sendEnds(ctx, finishes, q.cfg.Store.FinishJobs)
	}
	if len(retries) == 0 {
		return n, err
	}
	if err != nil { // the database is away, most likely
		q.mu.Lock()
		q.retries = append(q.retries, retries...)
		q.mu.Unlock()
		return n, err
	}
	return n, q.sendEnds(ctx, retries, q.cfg.Store.RetryJobs)
}

func takeEnds(from *[]waitingEnd, limit int) []waitingEnd {
	n, size := 0, 0
	for n < min(limit, len(*from)) && size < endSize {
		size += len((*from)[n].Outcome.Output)
		n++
	}
	batch := append([]waitingEnd(nil), (*from)[:n]...)
	rest := copy(*from, (*from)[n:])
	clear((*from)[rest:])
	*from = (*from)[:rest]
	return batch
}

// sendEnds writes ends and takes in the answers. Those without an answer go back into the queue.
func (q *Queue) sendEnds(ctx context.Context, batch []waitingEnd, send func(context.Context, []job.End) ([]job.Ended, error)) error {
	ends := make([]job.End, len(batch))
	for i, w := range batch {
		ends[i] = w.End
	}
	stmt, cancel := loop.Statement(ctx)
	answers, err := send(stmt, ends)
	cancel()
	byRun := make(map[cron.RunID]*job.Ended, len(answers))
	for i := range answers {
		byRun[answers[i].Run] = &answers[i]
	}
	q.tellAsked(answers)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for i := range batch {
		w := &batch[i]
		a := byRun[w.Run]
		switch {
		case a != nil:
		case err != nil:
			w.sent = true
			q.end(*w)
			continue
		default: // the store knows nothing of it, not even that it came late
			a = &job.Ended{ID: w.ID, Run: w.Run}
		}
		q.ended(ctx, w, a, now)
	}
	q.quiet.Ring()
	q.calmer()
	loop.RingAll(q.claimBells)
	return err
}

// tellAsked has the runs end that a cancel reached through their parents.
func (q *Queue) tellAsked(answers []job.Ended) {
	for i := range answers {
		if asked := answers[i].Asked; len(asked) > 0 && q.cfg.OnAsked != nil {
			q.cfg.OnAsked(asked)
		}
	}
}

// ended takes in the answer to one end; q.mu is held.
func (q *Queue) ended(ctx context.Context, w *waitingEnd, a *job.Ended, now micros) {
	var queue int32
	var expires micros
	if r := w.run; r != nil {
		delete(q.runs, r.id)
		delete(q.told, r)
		delete(q.plan.held, w.ID)
		r.verb.running--
		r.verb.fullUntil = 0
		queue, expires = r.claimed.Queue, toMicros(r.claimed.Expires)
	} else {
		delete(q.sweeping, w.Run)
		queue, expires = w.lost.Queue, toMicros(w.lost.Expires)
	}
	if !a.Accepted {
		q.counters.late.Add(1)
		if w.run != nil && !w.sent { // otherwise it may well have been accepted the first time
			q.log.WarnContext(ctx, "late end of a job refused", "job", w.ID, "run", w.Run)
		}
		return
	}
	q.counters.count(w, a.State)
	if a.State == job.Ready && !a.Due.IsZero() {
		q.arrived(queue, w.ID, toMicros(a.Due), expires, now)
	}
	if p := a.Woken; p.ID != 0 {
		q.counters.woken.Add(1)
		q.arrived(p.Queue, p.ID, toMicros(p.Due), toMicros(p.Expires), now)
	}
}
