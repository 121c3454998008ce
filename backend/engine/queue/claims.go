package queue

import (
	"context"
	"math/rand/v2"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/engine/loop"
)

// A claim lane claims what is due for verbs whose runners have room: at once, and again when the last claim came back.

const (
	roomPoll = 50 * time.Millisecond  // while jobs wait for room that nobody announces; it asks no database
	fullPoll = 250 * time.Millisecond // a limit without a place is tried again, less up to a half
)

func (q *Queue) claimLane(ctx context.Context, b loop.Bell) {
	failures := 0
	for ctx.Err() == nil {
		batch, ok, wait := q.nextBatch()
		if !ok {
			loop.Rest(ctx, wait, b)
			continue
		}
		if err := q.claim(ctx, batch); err != nil {
			failures++
			after := loop.Backoff(failures)
			q.log.WarnContext(ctx, "jobs not claimed", "jobs", len(batch.picks), "error", err, "again_in", after)
			loop.Rest(ctx, after, nil)
			continue
		}
		failures = 0
	}
}

// nextBatch returns the claims of one statement; if there are none, how long to wait.
func (q *Queue) nextBatch() (b batch, ok bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.outbox) == 0 {
		if q.fenced || q.draining {
			return batch{}, false, time.Minute
		}
		limit := min(q.cfg.ClaimBatch, q.cfg.MaxInFlight-len(q.runs))
		if limit <= 0 {
			q.full = true
			return batch{}, false, time.Minute
		}
		q.takeBatches(limit)
	}
	if len(q.outbox) == 0 {
		return batch{}, false, q.restFor()
	}
	b = q.outbox[0]
	if q.outbox = q.outbox[1:]; len(q.outbox) > 0 {
		loop.RingAll(q.claimBells)
	}
	return b, true, 0
}

func (q *Queue) takeBatches(limit int) {
	q.outbox = q.plan.take(q.now(), limit, q.cfg.ClaimBatch, q.cfg.Capacity, mintRunID)
	n := 0
	for _, b := range q.outbox {
		for _, k := range b.picks {
			q.runs[k.run] = &run{id: k.run, verb: k.verb, pool: k.pool, deployment: k.verb.key}
		}
		n += len(b.picks)
	}
	q.claims += n
	if n == limit { // there may be more
		loop.RingAll(q.claimBells)
	}
	if len(q.plan.wants) > 0 {
		q.refillBell.Ring()
	}
}

// restFor is how long nothing becomes due, as far as is known.
func (q *Queue) restFor() time.Duration {
	at, stuck := q.plan.nextAt()
	wait := time.Minute
	if at != 0 {
		wait = min(wait, max(time.Duration(at-q.now())*time.Microsecond, 100*time.Microsecond))
	}
	if stuck {
		wait = min(wait, roomPoll)
	}
	return wait
}

// claim sends one statement and has the jobs called that were won.
func (q *Queue) claim(ctx context.Context, b batch) error {
	claims := make([]job.Claim, len(b.picks))
	for i, k := range b.picks {
		claims[i] = job.Claim{ID: k.id, Run: k.run, Deployment: k.deployment}
	}
	q.mu.Lock()
	before := q.rawNow()
	q.mu.Unlock()
	stmt, cancel := loop.Statement(ctx)
	won, over, err := q.cfg.Store.ClaimJobs(stmt, claims, b.ref)
	cancel()
	q.call(q.claimed(b, won, over, err, before))
	return err
}

// claimed takes in the answer to a claim and returns the runs that began. Jobs that were not won are somebody else's,
// and forgotten, unless there was no place for them.
func (q *Queue) claimed(b batch, won []job.Claimed, over []job.Claim, err error, before micros) (begun []*run) {
	byRun := make(map[cron.RunID]*job.Claimed, len(won))
	for i := range won {
		byRun[won[i].Run] = &won[i]
	}
	ready := make(map[cron.RunID]bool, len(over))
	for _, c := range over {
		ready[c.Run] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(won) > 0 {
		q.observe(before, won[0].Started)
	}
	q.plan.advance(q.now())
	unknown := loop.OutcomeUnknown(err)
	lost := 0
	for _, k := range b.picks {
		r := q.runs[k.run]
		if c := byRun[k.run]; c != nil {
			r.claimed = *c
			q.begins(r)
			begun = append(begun, r)
			continue
		}
		q.claims--
		delete(q.runs, k.run)
		q.plan.giveBack(k, ready[k.run] || err != nil && !unknown)
		if err == nil && !ready[k.run] {
			lost++
		}
	}
	if len(over) > 0 {
		b.picks[0].verb.fullUntil = q.now() + (fullPoll - rand.N(fullPoll/2)).Microseconds()
	}
	if unknown && len(begun) < len(b.picks) {
		q.doubt()
	}
	q.counters.claims.Add(int64(len(b.picks)))
	q.counters.won.Add(int64(len(begun)))
	q.counters.lost.Add(int64(lost))
	if err != nil {
		q.counters.failed.Add(int64(len(b.picks) - len(begun)))
	}
	if len(begun) < len(b.picks) {
		q.calmer()
	}
	return begun
}

// calmer notes that less is in flight than before; q.mu is held.
func (q *Queue) calmer() {
	q.quiet.Ring()
	if q.full {
		q.full = false
		loop.RingAll(q.claimBells)
	}
}

// doubt has the sweep look for runs in this controller's name that it does not know: a statement may have been done
// whose answer was lost; q.mu is held.
func (q *Queue) doubt() { q.doubtAt = time.Now() }
