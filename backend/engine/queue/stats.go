package queue

import (
	"sync/atomic"
	"time"

	"carillon/backend/core/job"
)

type counters struct {
	enqueued, inserts, startedAtOnce, claims, won, lost, failed, succeeded, dead, cancelled, retried, requeued, blocked, woken, late, swept, fetches, hints atomic.Int64
}

// count counts an end that was accepted.
func (c *counters) count(w *waitingEnd, state job.State) {
	switch state {
	case job.Succeeded:
		c.succeeded.Add(1)
	case job.Failed:
		c.dead.Add(1)
	case job.Cancelled:
		c.cancelled.Add(1)
	case job.Blocked:
		c.blocked.Add(1)
	case job.Ready:
		if w.Step.Counted {
			c.retried.Add(1)
		} else {
			c.requeued.Add(1)
		}
	}
	if w.run == nil {
		c.swept.Add(1)
	}
}

// Stats is a snapshot for metrics; the upper part counts from the start of the process.
type Stats struct {
	Enqueued      int64 // jobs answered, refused ones and existing ones included
	Inserts       int64 // statements that did it
	StartedAtOnce int64 // jobs inserted already running
	Claims        int64 // tried
	Won           int64
	Lost          int64 // claims that were not won: somebody else has the job
	Failed        int64 // claims whose statement failed
	Succeeded     int64 // ends accepted, by what became of the job
	Dead          int64
	Cancelled     int64
	Retried       int64 // ready again, the attempt counted
	Requeued      int64 // ready again, not counted: snoozed, no room, drained, fenced
	Blocked       int64 // waiting for their children, not counted
	Woken         int64 // parents, by the ends of their last children here
	Late          int64 // ends refused: the run was not current any more
	Swept         int64 // ends among the above of runs that others lost
	Fetches       int64 // statements that read windows
	Hints         int64 // sent

	Waiting    [5]int // jobs in the windows, by lane
	Windows    int    // queues known
	Intake     int    // jobs that wait to be inserted
	InFlight   int    // calls
	Claiming   int    // claims without an answer
	UnsentEnds int
	OldestDue  time.Duration // how long the job that has waited longest is due, paused ones left out; 0: none is
	Loaded     bool          // the windows of the present shards were read
}

// Stats may be called at any time.
func (q *Queue) Stats() Stats {
	c := &q.counters
	q.mu.Lock()
	defer q.mu.Unlock()
	st := Stats{
		Enqueued: c.enqueued.Load(), Inserts: c.inserts.Load(), StartedAtOnce: c.startedAtOnce.Load(), Claims: c.claims.Load(),
		Won: c.won.Load(), Lost: c.lost.Load(), Failed: c.failed.Load(), Succeeded: c.succeeded.Load(), Dead: c.dead.Load(),
		Cancelled: c.cancelled.Load(), Retried: c.retried.Load(), Requeued: c.requeued.Load(), Blocked: c.blocked.Load(), Woken: c.woken.Load(), Late: c.late.Load(),
		Swept: c.swept.Load(), Fetches: c.fetches.Load(), Hints: c.hints.Load(),
		Waiting: q.plan.waiting, Windows: len(q.plan.windows), Intake: q.waiting, InFlight: q.calls, Claiming: q.claims,
		UnsentEnds: len(q.finishes) + len(q.retries), Loaded: q.loaded,
	}
	now := q.now()
	for _, w := range q.plan.windows {
		if len(w.jobs) > 0 {
			st.OldestDue = max(st.OldestDue, time.Duration(now-w.jobs[0].due)*time.Microsecond)
		}
	}
	return st
}
