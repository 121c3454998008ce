package queue

import (
	"context"
	"fmt"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/engine/loop"
)

// The keeper lists the queues each second and reads every window from its start: jobs that committed late, retries,
// and what a hint missed. The refiller reads on where a window runs low, and where somebody hinted.
//
// While somebody holds a snapshot, a read from the start goes through all that ended since then. So reads of that kind
// take a twentieth of the time at most; in between only what became due lately is looked for.

const (
	lately      = 5 * time.Second // transactions that made jobs have committed after so long, nearly always
	thrift      = 19              // times as long as a read from the start took no other one begins,
	longestCare = 2 * time.Minute // but for no longer
	maxChunk    = 500             // windows read by one statement
	chunkRows   = 20_000          // rows of one statement, at most
	leastGap    = 50 * time.Millisecond
	expireSize  = 1000
	expirePages = 20 // of a round
)

func (q *Queue) keep(ctx context.Context) {
	failures := 0
	nextVisit := time.Now().Add(loop.Jittered(q.cfg.Overdue))
	for ctx.Err() == nil {
		visit, began := !time.Now().Before(nextVisit), time.Now()
		err := q.round(ctx, visit)
		if visit {
			nextVisit = time.Now().Add(max(loop.Jittered(q.cfg.Overdue), care(time.Since(began))))
		}
		if err != nil {
			failures++
			q.log.WarnContext(ctx, "queues not read", "error", err)
			loop.Rest(ctx, loop.Backoff(failures), nil)
			continue
		}
		failures = 0
		gap := min(max(leastGap, 4*time.Since(began)), q.cfg.Refetch)
		loop.Rest(ctx, gap, nil) // whoever rings often is heard a little later, and takes a fifth of the time at most
		loop.Rest(ctx, q.cfg.Refetch-gap, q.fetchBell)
	}
}

// round reads everything once.
func (q *Queue) round(ctx context.Context, visit bool) error {
	q.mu.Lock()
	reach, asked := recent, q.refetch
	if asked || visit || !time.Now().Before(q.wholeAt) {
		reach = whole
	}
	q.refetch = false
	q.mu.Unlock()
	stmt, cancel := loop.Statement(ctx)
	queues, err := q.cfg.Lists.ListQueues(stmt)
	cancel()
	if err != nil {
		return fmt.Errorf("list queues: %w", err)
	}
	probes, fetches, page := q.takeQueues(queues)
	began := time.Now()
	err = q.fetchAll(ctx, probes, reach, min(page, probePage))
	if err == nil {
		err = q.fetchAll(ctx, fetches, reach, page)
	}
	if reach == whole { // also one that took too long
		q.mu.Lock()
		q.wholeAt = time.Now().Add(care(time.Since(began)))
		q.refetch = q.refetch || asked && err != nil
		q.mu.Unlock()
	}
	if err != nil {
		return err
	}
	if visit {
		if err := q.visit(ctx); err != nil {
			return err
		}
		if err := q.expireHidden(ctx); err != nil {
			return err
		}
	}
	q.mu.Lock()
	q.loaded = q.loaded || !q.refetch
	q.mu.Unlock()
	return q.expire(ctx)
}

// care is how long to leave alone what took so long.
func care(took time.Duration) time.Duration { return min(thrift*took, longestCare) }

// reach is from where a window is read.
type reach int

const (
	onward reach = iota // from where it ends
	recent              // from what became due lately, where the window comes that far
	whole               // from its start
)

// start is from where to read a window; false: not at all.
func (r reach) start(w *window, now micros) (from key, ok bool) {
	switch late := (key{due: now - lately.Microseconds()}); {
	case r == whole:
		return key{}, true
	case r == onward, !w.complete && w.upto.before(late):
		return w.upto, r == onward || len(w.jobs) == 0 // what waits in it comes first
	default:
		return late, true
	}
}

// takeQueues takes in the list of queues, and says which windows are to be read (those that are empty, and the others),
// and how much of each.
func (q *Queue) takeQueues(queues []job.Queue) (probes, fetches []*window, page int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	busy := 1
	for _, qu := range queues {
		w, _ := q.learn(qu)
		if len(w.jobs) > 0 {
			busy++
		}
	}
	q.plan.share = min(max(maxEntries/busy, leastPage), maxPage)
	for _, v := range q.plan.verbs {
		id, deployment, ok := q.cfg.Capacity.Deployment(v.ref)
		q.plan.deploy(v, id, deployment, ok)
	}
	for _, w := range q.plan.windows {
		switch {
		case w.paused || len(q.own) == 0:
		case len(w.jobs) == 0:
			probes = append(probes, w)
		default:
			fetches = append(fetches, w)
		}
	}
	return probes, fetches, min(firstPage, q.plan.share)
}

// fetch reads windows from their start, on from where they end, or what came lately.
func (q *Queue) fetch(ctx context.Context, windows []*window, r reach, page int) error {
	asked, cuts, froms := make([]*window, 0, len(windows)), make([]job.Cut, 0, len(windows)), make([]key, 0, len(windows))
	q.mu.Lock()
	own, began, before := q.own, q.plan.lastStamp, q.rawNow()
	for _, w := range windows {
		from, ok := r.start(w, q.now())
		if !ok || w.fetching || w.paused || len(own) == 0 {
			continue
		}
		q.plan.begins(w)
		asked, froms = append(asked, w), append(froms, from)
		cuts = append(cuts, job.Cut{Queue: w.id, Due: fromMicros(from.due), ID: from.id})
	}
	q.mu.Unlock()
	if len(asked) == 0 {
		return nil
	}
	stmt, cancel := loop.Statement(ctx)
	rows, dbNow, err := q.cfg.Lists.FetchWindow(stmt, cuts, own, q.cfg.Ahead, page)
	cancel()
	q.counters.fetches.Add(1)
	byQueue := byQueue(rows)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		for _, w := range asked {
			q.plan.returns(w)
		}
		return fmt.Errorf("fetch windows: %w", err)
	}
	q.observe(before, dbNow)
	q.plan.advance(q.now())
	for i, w := range asked {
		q.plan.fetched(w, froms[i], began, page, byQueue[w.id])
	}
	loop.RingAll(q.claimBells)
	if len(q.plan.wants)+len(q.asked) > 0 {
		q.refillBell.Ring()
	}
	return nil
}

func byQueue(rows []job.Waiting) map[int32][]job.Waiting {
	m := map[int32][]job.Waiting{}
	for _, r := range rows {
		m[r.Queue] = append(m[r.Queue], r)
	}
	return m
}

// visit reads jobs that are long overdue, whatever their shard: their owner may be in trouble.
func (q *Queue) visit(ctx context.Context) error {
	q.mu.Lock()
	began := q.plan.lastStamp
	q.mu.Unlock()
	stmt, cancel := loop.Statement(ctx)
	rows, _, err := q.cfg.Lists.FetchOverdue(stmt, q.cfg.Overdue, probePage)
	cancel()
	if err != nil {
		return fmt.Errorf("fetch overdue jobs: %w", err)
	}
	byQueue := byQueue(rows)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.plan.advance(q.now())
	for id, w := range q.plan.windows {
		q.plan.visited(w, began, byQueue[id], q.owns)
	}
	loop.RingAll(q.claimBells)
	return nil
}

// expire ends jobs of the windows that must not begin any more.
func (q *Queue) expire(ctx context.Context) error {
	q.mu.Lock()
	q.plan.advance(q.now())
	ids := q.plan.expired(expireSize)
	q.mu.Unlock()
	return q.expired(ctx, ids)
}

// expireHidden ends those that no window shows: of paused queues, or behind many others.
func (q *Queue) expireHidden(ctx context.Context) error {
	for range expirePages {
		q.mu.Lock()
		own := q.own
		q.mu.Unlock()
		if len(own) == 0 {
			return nil
		}
		stmt, cancel := loop.Statement(ctx)
		ids, err := q.cfg.Lists.FetchExpired(stmt, own, expireSize)
		cancel()
		if err != nil {
			return fmt.Errorf("fetch expired jobs: %w", err)
		}
		if err := q.expired(ctx, ids); err != nil || len(ids) < expireSize {
			return err
		}
	}
	return nil
}

func (q *Queue) expired(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	stmt, cancel := loop.Statement(ctx)
	defer cancel()
	_, woken, err := q.cfg.Lists.ExpireJobs(stmt, ids)
	if err != nil {
		return fmt.Errorf("expire jobs: %w", err) // they come back with the next fetch
	}
	if len(woken) > 0 {
		q.counters.woken.Add(int64(len(woken)))
		q.Arrived(woken)
	}
	return nil
}

func (q *Queue) refill(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		hungry, hinted, page := q.takeWants()
		err := q.fetchAll(ctx, hungry, onward, page)
		if err == nil {
			err = q.fetchAll(ctx, hinted, recent, firstPage)
		}
		if err != nil {
			failures++
			q.log.WarnContext(ctx, "windows not read", "error", err)
			loop.Rest(ctx, loop.Backoff(failures), nil)
			continue
		}
		failures = 0
		loop.Rest(ctx, time.Minute, q.refillBell)
	}
}

func (q *Queue) fetchAll(ctx context.Context, windows []*window, r reach, page int) error {
	chunk := min(max(chunkRows/max(page, 1), 1), maxChunk)
	for len(windows) > 0 && ctx.Err() == nil {
		n := min(chunk, len(windows))
		if err := q.fetch(ctx, windows[:n], r, page); err != nil {
			return err
		}
		windows = windows[n:]
	}
	return nil
}

// takeWants returns the windows that run low, how much to read of each, and those that somebody hinted at. A window
// that ran dry reads more the next time.
func (q *Queue) takeWants() (hungry, hinted []*window, page int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := range q.plan.wants {
		delete(q.plan.wants, w)
		if !q.plan.hungry(w) {
			continue
		}
		if len(w.jobs) == 0 && w.upto != (key{}) {
			w.page = min(2*w.page, maxPage)
		}
		page = max(page, q.plan.page(w))
		hungry = append(hungry, w)
	}
	for id := range q.asked {
		w := q.plan.windows[id]
		switch {
		case w == nil || w.paused || !w.complete && len(w.jobs) > 0: // what waits there comes first
		case w.fetching:
			continue // asked again when that has come back
		default:
			hinted = append(hinted, w)
		}
		delete(q.asked, id)
	}
	return hungry, hinted, page
}
