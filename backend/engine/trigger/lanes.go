package trigger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/backend/core/trigger"
)

// A lane reads the events of its part of the shards, from the first one on, and has jobs made of them; it begins anew
// when it has come to the end: an event may commit after others with higher numbers. The visitor does the same for the
// shards of which this controller is the second owner, with what has been there for too long.

const (
	maxFailures = 10 // statements in a row, before a round is given up: the database is in trouble, not an event
	choreEvery  = time.Hour
	chorePage   = 1000
)

func (t *Triggers) lane(ctx context.Context, n int) {
	failures := 0
	for ctx.Err() == nil {
		t.mu.Lock()
		shards := t.own[n]
		t.mu.Unlock()
		if err := t.round(ctx, shards, 0); err != nil {
			failures++
			t.log.WarnContext(ctx, "events not dealt with", "error", err)
			rest(ctx, backoff(failures), nil)
			continue
		}
		failures = 0
		rest(ctx, jittered(t.cfg.Poll), t.bells[n])
	}
}

func (t *Triggers) visit(ctx context.Context) {
	next := time.Now().Add(jittered(choreEvery))
	for ctx.Err() == nil {
		rest(ctx, jittered(t.cfg.Older), nil)
		t.mu.Lock()
		shards := t.second
		t.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err := t.round(ctx, shards, t.cfg.Older); err != nil {
			t.log.WarnContext(ctx, "old events not dealt with", "error", err)
		}
		if !time.Now().Before(next) {
			next = time.Now().Add(jittered(choreEvery))
			t.dropIdleRates(ctx)
		}
	}
}

// round goes through the events of some shards once.
func (t *Triggers) round(ctx context.Context, shards []int32, older time.Duration) error {
	if len(shards) == 0 {
		return nil
	}
	r := round{t: t}
	for after, more := int64(0), true; more && ctx.Err() == nil; {
		stmt, cancel := statement(ctx)
		events, further, err := t.cfg.Store.FetchEvents(stmt, shards, older, after, t.cfg.Page)
		cancel()
		if err != nil {
			t.counters.failures.Add(1)
			return errors.Join(r.err, fmt.Errorf("fetch events: %w", err))
		}
		if len(events) == 0 {
			break
		}
		if err := t.rules.refresh(ctx); err != nil {
			t.counters.failures.Add(1)
			return errors.Join(r.err, err)
		}
		for _, part := range parts(events, t.rules.match(events), t.cfg.Pairs, t.cfg.Bytes) {
			if !r.make(ctx, part) {
				return r.err
			}
		}
		after, more = events[len(events)-1].ID, further
	}
	return r.err
}

// round is one pass over events.
type round struct {
	t   *Triggers
	row int // failures in a row
	err error
}

// make makes a part; one that fails is halved, so that its neighbours do not wait for what is at fault. It returns false
// where the round is over.
func (r *round) make(ctx context.Context, part []trigger.Matched) bool {
	if ctx.Err() != nil || r.row >= maxFailures {
		return false
	}
	stmt, cancel := statement(ctx)
	made, err := r.t.cfg.Store.MakeOfEvents(stmt, part)
	cancel()
	r.t.counters.events.Add(int64(made.Taken))
	r.t.made(made) // also what came along with an error
	if err == nil {
		r.row = 0
		return true
	}
	r.t.counters.failures.Add(1)
	r.row++
	if r.err == nil {
		r.err = fmt.Errorf("make jobs of events: %w", err)
	}
	if len(part) == 1 {
		return r.row < maxFailures
	}
	half := len(part) / 2
	return r.make(ctx, part[:half]) && r.make(ctx, part[half:])
}

func (t *Triggers) dropIdleRates(ctx context.Context) {
	for ctx.Err() == nil {
		stmt, cancel := statement(ctx)
		n, err := t.cfg.Windows.DropIdleRates(stmt, chorePage)
		cancel()
		if err != nil {
			t.log.WarnContext(ctx, "idle limits not dropped", "error", err)
		}
		if err != nil || n < chorePage {
			return
		}
	}
}
