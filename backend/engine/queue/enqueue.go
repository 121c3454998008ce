package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
	"carillon/backend/engine/loop"
)

// An enqueue lane inserts the jobs that gathered while its last statement was under way. There is no timer: alone, a
// job is inserted at once.

// piece is the part of one call of Enqueue that is inserted by one statement.
type piece struct {
	jobs    []job.New
	places  []int // of the jobs among the results
	size    int   // bytes
	answers []job.Enqueued
	err     error         // of those without an answer
	done    chan struct{} // closed when answers and err stand
	taken   bool          // by a lane; Queue.mu guards it
}

// outstanding is how many pieces of one call may be under way: a bulk uses all lanes, and leaves room between its
// pieces for those who enqueue one job.
const outstanding = 2

// Enqueue completes, checks and inserts jobs, and returns when all are in the database or refused; the results are in
// order, and one with an Err was refused alone. Some jobs may start at once. With an error, the jobs that carry it as
// their Err got no answer: they may be in the database or not, and a repetition wants an idempotency key. Many jobs
// are inserted by several statements. ErrUnavailable: too much waits already, or the controller is stopping.
func (q *Queue) Enqueue(ctx context.Context, jobs []job.New) ([]job.Enqueued, error) {
	results := make([]job.Enqueued, len(jobs))
	pieces := q.pieces(jobs, results)
	var under []*piece
	var first error
	for len(pieces)+len(under) > 0 {
		for first == nil && len(pieces) > 0 && len(under) < outstanding {
			if err := q.submit(pieces[0]); err != nil {
				first = err
				break
			}
			under, pieces = append(under, pieces[0]), pieces[1:]
		}
		if len(under) == 0 {
			break
		}
		p := under[0]
		under = under[1:]
		answers, err := q.await(ctx, p)
		for i, place := range p.places {
			if i < len(answers) {
				results[place] = answers[i]
			} else {
				results[place].Err = err
			}
		}
		first = errors.Join(first, err)
	}
	if first == nil {
		return results, nil
	}
	err := fmt.Errorf("enqueue jobs: %w", first)
	for _, p := range pieces {
		for _, place := range p.places {
			results[place].Err = err
		}
	}
	return results, err
}

// pieces cuts jobs into what one statement takes; what is not valid is refused here.
func (q *Queue) pieces(jobs []job.New, results []job.Enqueued) (pieces []*piece) {
	var p *piece
	for i, n := range jobs {
		n = job.Complete(n)
		if err := job.Validate(n); err != nil {
			results[i].Err = err
			continue
		}
		size := len(n.Payload) + len(n.Envelope)
		if p == nil || len(p.jobs) == q.cfg.EnqueueJobs || p.size+size > q.cfg.EnqueueSize {
			p = &piece{done: make(chan struct{})}
			pieces = append(pieces, p)
		}
		p.jobs, p.places, p.size = append(p.jobs, n), append(p.places, i), p.size+size
	}
	return pieces
}

func (q *Queue) submit(p *piece) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fmt.Errorf("%w: this controller is stopping", cron.ErrUnavailable)
	case q.waiting+len(p.jobs) > max(q.cfg.MaxWaiting, len(p.jobs)):
		return fmt.Errorf("%w: %d jobs wait to be inserted", cron.ErrUnavailable, q.waiting)
	case q.waitingSize+p.size > max(q.cfg.MaxWaitingSize, p.size):
		return fmt.Errorf("%w: jobs with %d bytes wait to be inserted", cron.ErrUnavailable, q.waitingSize)
	}
	q.intake = append(q.intake, p)
	q.waits(p, 1)
	loop.RingAll(q.enqueueBells)
	return nil
}

// waits counts a piece in (1) or out (-1); q.mu is held.
func (q *Queue) waits(p *piece, sign int) {
	q.waiting += sign * len(p.jobs)
	q.waitingSize += sign * p.size
}

// await waits for the answers to a piece. One that no lane has taken when ctx ends is withdrawn.
func (q *Queue) await(ctx context.Context, p *piece) ([]job.Enqueued, error) {
	select {
	case <-p.done:
		return p.answers, p.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !p.taken {
		for i, other := range q.intake {
			if other == p {
				q.intake = append(q.intake[:i:i], q.intake[i+1:]...)
				q.waits(p, -1)
				break
			}
		}
		q.quiet.Ring()
	}
	return nil, context.Cause(ctx)
}

func (q *Queue) enqueueLane(ctx context.Context, b loop.Bell) {
	for ctx.Err() == nil {
		batch := q.takeIntake()
		if len(batch) == 0 {
			loop.Rest(ctx, time.Minute, b)
			continue
		}
		if err := q.insert(ctx, batch); err != nil {
			q.log.WarnContext(ctx, "jobs not enqueued", "error", err)
		}
	}
}

// takeIntake takes the pieces that fit into one statement.
func (q *Queue) takeIntake() (batch []*piece) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for _, p := range q.intake {
		if n > 0 && (n+len(p.jobs) > q.cfg.EnqueueJobs || size+p.size > q.cfg.EnqueueSize) {
			break
		}
		p.taken = true
		q.waits(p, -1)
		batch = append(batch, p)
		n, size = n+len(p.jobs), size+p.size
	}
	if q.intake = q.intake[len(batch):]; len(q.intake) == 0 {
		q.intake = nil
	}
	if n > 0 {
		q.inserts++
	}
	return batch
}

// insert writes the jobs of some pieces, has those called that start at once, and answers the pieces.
func (q *Queue) insert(ctx context.Context, pieces []*piece) (err error) {
	var answers []job.Enqueued
	defer func() {
		q.mu.Lock()
		q.inserts--
		q.quiet.Ring()
		q.mu.Unlock()
		for _, p := range pieces {
			n := min(len(answers), len(p.jobs))
			p.answers, answers = answers[:n:n], answers[n:]
			if n < len(p.jobs) {
				p.err = err
			}
			close(p.done)
		}
	}()
	var jobs []job.New
	for _, p := range pieces {
		jobs = append(jobs, p.jobs...)
	}
	if err := q.resolve(ctx, jobs); err != nil {
		return err
	}
	batch, runs, before := q.prepare(jobs)
	stmt, cancel := loop.Statement(ctx)
	answers, err = q.cfg.Store.EnqueueJobs(stmt, batch)
	cancel()
	answers = answers[:min(len(answers), len(batch))]
	for i := range answers {
		if answers[i].N == 0 && answers[i].Err == nil {
			answers[i].Err = errors.New("the store gave no id") // never acknowledge what has none
		}
	}
	if err == nil && len(answers) < len(batch) {
		err = errors.New("the store left jobs without an answer")
	}
	q.call(q.inserted(batch, runs, answers, err, before))
	return err
}

// resolve makes sure that the queues of the jobs are known.
func (q *Queue) resolve(ctx context.Context, jobs []job.New) error {
	var unknown []job.Queue
	asked := map[queueKey]bool{}
	q.mu.Lock()
	for i := range jobs {
		k := keyOf(&jobs[i])
		if _, ok := q.ids[k]; !ok && !asked[k] {
			asked[k] = true
			unknown = append(unknown, job.Queue{Tenant: k.tenant, Ref: k.ref, Lane: k.lane})
		}
	}
	q.mu.Unlock()
	if len(unknown) == 0 {
		return nil
	}
	stmt, cancel := loop.Statement(ctx)
	queues, err := q.cfg.Lists.PutQueues(stmt, unknown)
	cancel()
	if err != nil {
		return fmt.Errorf("put queues: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, qu := range queues {
		q.learn(qu)
		delete(asked, queueKey{qu.Tenant, qu.Ref, qu.Lane})
	}
	if len(asked) > 0 {
		return fmt.Errorf("put queues: %d are missing in the answer", len(asked))
	}
	return nil
}

func keyOf(n *job.New) queueKey { return queueKey{n.Tenant, n.Ref, job.Lane(n.Priority)} }

// agedAfter: what has waited so long comes before a new job, whatever its lane.
const agedAfter = 100 * time.Millisecond

// prepare makes rows of jobs. Those that may start at once get a run and its place.
func (q *Queue) prepare(jobs []job.New) (batch []job.Enqueue, runs []*run, before micros) {
	batch, runs = make([]job.Enqueue, len(jobs)), make([]*run, len(jobs))
	q.mu.Lock()
	defer q.mu.Unlock()
	before = q.rawNow()
	q.plan.begin(q.now())
	old := q.plan.now - agedAfter.Microseconds()
	able := !q.fenced && !q.draining && q.loaded
	for i, n := range jobs {
		id := q.ids[keyOf(&n)]
		batch[i] = job.Enqueue{New: n, Queue: id}
		w := q.plan.windows[id]
		expires := toMicros(n.Expires)
		if !able || n.Delay > 0 || expires != 0 && expires <= q.plan.now || len(q.runs) >= q.cfg.MaxInFlight || !q.plan.startable(w, old, q.cfg.Capacity) {
			continue
		}
		r := &run{id: mintRunID(), verb: w.verb, pool: q.plan.reserve(w), deployment: w.verb.key}
		batch[i].Run, batch[i].Deployment = r.id, w.verb.deployment
		runs[i] = r
		q.runs[r.id] = r
		q.claims++
	}
	return batch, runs, before
}

// inserted takes in the answers and returns the runs that began.
func (q *Queue) inserted(batch []job.Enqueue, runs []*run, answers []job.Enqueued, err error, before micros) (begun []*run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ready := false
	var seen time.Time
	for i := range answers {
		seen = later(seen, answers[i].Created)
	}
	q.observe(before, seen)
	now := q.now()
	q.plan.advance(now)
	for i := range batch {
		r := runs[i]
		if i < len(answers) && r != nil && !answers[i].Started.IsZero() {
			r.claimed = claimed(&batch[i], &answers[i])
			q.plan.held[r.claimed.N] = struct{}{}
			q.begins(r)
			begun = append(begun, r)
			continue
		}
		if r != nil {
			q.unreserve(r)
			if i < len(answers) && loop.OutcomeUnknown(answers[i].Err) {
				q.doubt()
			}
		}
		if i >= len(answers) || answers[i].Existing || answers[i].Err != nil {
			continue
		}
		ready = true
		q.arrived(batch[i].Queue, answers[i].N, toMicros(answers[i].Due), toMicros(batch[i].Expires), now)
	}
	q.counters.enqueued.Add(int64(len(answers)))
	q.counters.inserts.Add(1)
	q.counters.startedAtOnce.Add(int64(len(begun)))
	if loop.OutcomeUnknown(err) && len(answers) < len(batch) {
		q.doubt()
	}
	if ready || len(begun) < len(runs) {
		q.calmer()
		loop.RingAll(q.claimBells)
	}
	return begun
}

// arrived puts a job that has just become ready into its window, or tells its owner; q.mu is held.
func (q *Queue) arrived(queue int32, id int64, due, expires, now micros) {
	if !q.owns(id) {
		q.hint(id, queue)
		return
	}
	if w := q.plan.windows[queue]; w != nil {
		q.plan.enter(w, id, due, expires, now+q.cfg.Ahead.Microseconds())
		if q.plan.hungry(w) {
			q.plan.wants[w] = struct{}{}
			q.refillBell.Ring()
		}
	}
}

// claimed is the job as a claim would have returned it.
func claimed(e *job.Enqueue, a *job.Enqueued) job.Claimed {
	return job.Claimed{
		ID: a.ID, Ref: e.Ref, Tenant: e.Tenant, Queue: e.Queue, Run: e.Run, Attempt: 1, Retry: e.Retry, Timeout: e.Timeout, Slot: e.Slot,
		Due: a.Due, Created: a.Created, Started: a.Started, Expires: e.Expires, Parent: e.Parent.N, Payload: e.Payload,
		TriggerID: e.TriggerID, Envelope: e.Envelope,
	}
}

// close refuses what waits; Run has ended.
func (q *Queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, p := range q.intake {
		p.err = fmt.Errorf("%w: this controller is stopping", cron.ErrUnavailable)
		close(p.done)
	}
	q.intake, q.waiting, q.waitingSize = nil, 0, 0
}

// learn takes in a queue as it stands in the database; q.mu is held.
func (q *Queue) learn(qu job.Queue) (w *window, fresh bool) {
	w, fresh = q.plan.learn(qu)
	if fresh {
		id, deployment, ok := q.cfg.Capacity.Deployment(qu.Ref)
		q.plan.deploy(w.verb, id, deployment, ok)
	}
	q.ids[queueKey{qu.Tenant, qu.Ref, qu.Lane}] = qu.ID
	q.plan.bound(w.verb, qu.Limit)
	return w, fresh
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// shardOf is the part of the ring of a job, as the insert computes it.
func shardOf(id int64) int32 { return int32(id % ring.Shards) }
