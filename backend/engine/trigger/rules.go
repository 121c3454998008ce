package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"carillon/backend/core/trigger"
	"carillon/backend/engine/loop"
)

// rules is the index of all event triggers, as of an epoch. Whoever matches holds a snapshot of it and no lock.
type rules struct {
	store Store
	log   *slog.Logger

	loading sync.Mutex // one reader of changes at a time
	known   atomic.Pointer[snapshot]
}

// snapshot has all changes up to an epoch; a negative one: nothing was read.
type snapshot struct {
	index *trigger.Index
	epoch int64
}

func newRules(store Store, log *slog.Logger) *rules {
	r := &rules{store: store, log: log}
	r.known.Store(&snapshot{&trigger.Index{}, -1})
	return r
}

func (r *rules) count() int { return r.known.Load().index.Len() }

// refresh takes in every trigger that is committed by now, and returns the index. Called after events were read, it covers
// all that were committed before any of them.
func (r *rules) refresh(ctx context.Context) (*trigger.Index, error) {
	stmt, cancel := loop.Statement(ctx)
	defer cancel()
	now, err := r.store.ReadEpoch(stmt)
	if err != nil {
		return nil, fmt.Errorf("read the triggers' epoch: %w", err)
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	known := r.known.Load()
	if now == known.epoch {
		return known.index, nil
	}
	if now < known.epoch { // a backup was restored, or another lane has read on in between: which one it was costs little
		again, err := r.store.ReadEpoch(stmt)
		if err != nil {
			return nil, fmt.Errorf("read the triggers' epoch: %w", err)
		}
		if again >= known.epoch {
			return known.index, nil
		}
		known = &snapshot{&trigger.Index{}, -1}
	}
	changed, err := r.store.FetchEventTriggers(stmt, known.epoch)
	if err != nil {
		return nil, fmt.Errorf("read event triggers: %w", err)
	}
	next := r.apply(ctx, known, changed, now)
	r.known.Store(next)
	return next.index, nil
}

// apply takes changes in; the epoch was read before them, so that it may be less than theirs. A rule that cannot be read
// never matches: it was checked when its trigger was made.
func (r *rules) apply(ctx context.Context, known *snapshot, changed []trigger.EventTrigger, epoch int64) *snapshot {
	entries := make([]trigger.Entry, len(changed))
	for i, c := range changed {
		epoch = max(epoch, c.Epoch)
		entries[i] = trigger.Entry{ID: c.ID, Tenant: c.Tenant}
		if c.Gone {
			continue
		}
		var err error
		if entries[i].Rules, err = trigger.ParseEvent(c.Arguments); err != nil {
			r.log.ErrorContext(ctx, "event trigger not read", "trigger", c.ID, "error", err)
		}
	}
	return &snapshot{known.index.With(entries), epoch}
}
