package trigger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/backend/core/trigger"
	"carillon/backend/engine/loop"
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
		left, err := t.round(ctx, shards, 0)
		if err != nil {
			failures++
			t.log.WarnContext(ctx, "events not dealt with", "error", err)
			loop.Rest(ctx, loop.Backoff(failures), nil)
			continue
		}
		if failures = 0; !left {
			loop.Rest(ctx, loop.Jittered(t.cfg.Poll), t.bells[n])
		}
	}
}

func (t *Triggers) visit(ctx context.Context) {
	next := time.Now().Add(loop.Jittered(choreEvery))
	for ctx.Err() == nil {
		loop.Rest(ctx, loop.Jittered(t.cfg.Older), nil)
		for left := true; left && ctx.Err() == nil; {
			t.mu.Lock()
			shards := t.second
			t.mu.Unlock()
			var err error
			if left, err = t.round(ctx, shards, t.cfg.Older); err != nil {
				t.log.WarnContext(ctx, "old events not dealt with", "error", err)
				break
			}
		}
		if ctx.Err() != nil {
			return
		}
		t.chore(ctx, "late jobs of clients not ended", t.cfg.Windows.EndLateClientJobs)
		if !time.Now().Before(next) {
			next = time.Now().Add(loop.Jittered(choreEvery))
			t.chore(ctx, "idle limits not dropped", t.cfg.Windows.DropIdleRates)
		}
	}
}

// round goes through the events of some shards once. left: there are events that further triggers wait for.
func (t *Triggers) round(ctx context.Context, shards []int32, older time.Duration) (left bool, err error) {
	if len(shards) == 0 {
		return false, nil
	}
	r := round{t: t}
	for after, more := int64(0), true; more && ctx.Err() == nil; {
		stmt, cancel := loop.Statement(ctx)
		events, further, err := t.cfg.Store.FetchEvents(stmt, shards, older, after, t.cfg.Page)
		cancel()
		if err != nil {
			t.counters.failures.Add(1)
			return false, errors.Join(r.err, fmt.Errorf("fetch events: %w", err))
		}
		if len(events) == 0 {
			break
		}
		index, err := t.rules.refresh(ctx)
		if err != nil {
			t.counters.failures.Add(1)
			return false, errors.Join(r.err, err)
		}
		if !r.page(ctx, events, index) {
			break
		}
		after, more = events[len(events)-1].ID, further
	}
	return r.left, r.err
}

// round is one pass over events.
type round struct {
	t    *Triggers
	left bool
	row  int // failures in a row
	err  error
}

// page makes what the events of a page are to become, in parts. It returns false where the round is over.
func (r *round) page(ctx context.Context, events []trigger.Published, index *trigger.Index) bool {
	p := part{maxPairs: r.t.cfg.Pairs, maxBytes: r.t.cfg.Bytes}
	began := time.Now()
	cut := func() bool {
		ok := len(p.matched) == 0 || r.make(ctx, p.take())
		began = time.Now()
		return ok
	}
	for _, e := range events {
		if ctx.Err() != nil {
			return false
		}
		m := trigger.Matched{Event: e.ID, After: e.Upto}
		var more bool
		if m.Triggers, more = index.Match(e.Change, e.Upto, p.room(e)); more {
			m.Upto, r.left = m.Triggers[len(m.Triggers)-1], true
		}
		if (!p.fits(e, len(m.Triggers)) || time.Since(began) >= r.t.cfg.Slow) && !cut() {
			return false
		}
		p.add(e, m)
	}
	return cut()
}

// make makes a part; one that fails is halved, so that its neighbours do not wait for what is at fault. It returns false
// where the round is over.
func (r *round) make(ctx context.Context, part []trigger.Matched) bool {
	if ctx.Err() != nil || r.row >= maxFailures {
		return false
	}
	stmt, cancel := loop.Statement(ctx)
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

// chore does what is left to do, a page at a time.
func (t *Triggers) chore(ctx context.Context, failed string, do func(context.Context, int) (int, error)) {
	for ctx.Err() == nil {
		stmt, cancel := loop.Statement(ctx)
		n, err := do(stmt, chorePage)
		cancel()
		if err != nil {
			t.log.WarnContext(ctx, failed, "error", err)
		}
		if err != nil || n < chorePage {
			return
		}
	}
}
