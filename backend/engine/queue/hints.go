package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"carillon/backend/engine/loop"
)

// The teller tells the owners of other shards that there is something new in a queue. For each owner one call is under
// way at most; what gathers meanwhile is the next. A hint that is lost costs its job a second.

const hintTimeout = time.Second

// hint notes a job for its owner; q.mu is held.
func (q *Queue) hint(id int64, queue int32) {
	if q.cfg.Hints == nil {
		return
	}
	owner := q.cfg.Hints.Owner(shardOf(id))
	if owner == "" {
		return
	}
	if q.hints[owner] == nil {
		q.hints[owner] = map[int32]struct{}{}
	}
	q.hints[owner][queue] = struct{}{}
	if !q.hinting[owner] {
		q.hintBell.Ring()
	}
}

func (q *Queue) tell(ctx context.Context, wg *sync.WaitGroup) {
	for ctx.Err() == nil {
		q.mu.Lock()
		for owner := range q.hints {
			if !q.hinting[owner] {
				q.hinting[owner] = true
				wg.Go(func() { q.tellOne(ctx, owner) })
			}
		}
		q.mu.Unlock()
		loop.Rest(ctx, time.Minute, q.hintBell)
	}
}

func (q *Queue) tellOne(ctx context.Context, owner string) {
	for {
		q.mu.Lock()
		queues := slices.Sorted(maps.Keys(q.hints[owner]))
		delete(q.hints, owner)
		if len(queues) == 0 {
			delete(q.hinting, owner)
		}
		q.mu.Unlock()
		if len(queues) == 0 {
			return
		}
		call, cancel := context.WithTimeout(ctx, hintTimeout)
		err := q.cfg.Hints.Hint(call, owner, queues)
		cancel()
		q.counters.hints.Add(1)
		if err != nil && ctx.Err() == nil {
			q.log.DebugContext(ctx, "hint not heard", "owner", owner, "queues", len(queues), "error", err)
		}
	}
}
