package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"carillon/backend/core/trigger"
)

// rules is the index of all event triggers, as of an epoch.
type rules struct {
	store Store
	log   *slog.Logger

	loading sync.Mutex // one reader of changes at a time; taken before mu
	mu      sync.RWMutex
	index   *trigger.Index
	epoch   int64 // all changes up to it are in the index; negative: nothing was read
}

func newRules(store Store, log *slog.Logger) rules {
	return rules{store: store, log: log, index: &trigger.Index{}, epoch: -1}
}

func (r *rules) count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.index.Len()
}

// refresh takes in every trigger that is committed by now. Called after events were read, it covers all that were
// committed before any of them.
func (r *rules) refresh(ctx context.Context) error {
	stmt, cancel := statement(ctx)
	defer cancel()
	now, err := r.store.ReadEpoch(stmt)
	if err != nil {
		return fmt.Errorf("read the triggers' epoch: %w", err)
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	known := r.known()
	if now == known {
		return nil
	}
	if now < known { // a backup was restored, or another lane has read on in between: which one it was costs little
		if again, err := r.store.ReadEpoch(stmt); err != nil || again >= known {
			return err
		}
		known = -1
	}
	changed, err := r.store.FetchEventTriggers(stmt, known)
	if err != nil {
		return fmt.Errorf("read event triggers: %w", err)
	}
	r.apply(ctx, changed, known < 0, now)
	return nil
}

func (r *rules) known() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.epoch
}

// apply takes changes in; the epoch was read before them, so that it may be less than theirs. A rule that cannot be read
// never matches: it was checked when its trigger was made.
func (r *rules) apply(ctx context.Context, changed []trigger.EventTrigger, anew bool, epoch int64) {
	parsed := make([][]trigger.Rule, len(changed))
	for i, c := range changed {
		epoch = max(epoch, c.Epoch)
		if c.Gone {
			continue
		}
		var err error
		if parsed[i], err = trigger.ParseEvent(c.Arguments); err != nil {
			r.log.ErrorContext(ctx, "event trigger not read", "trigger", c.ID, "error", err)
		}
	}
	if anew { // built apart, so that nobody waits for it
		index := &trigger.Index{}
		fill(index, changed, parsed)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.index, r.epoch = index, epoch
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fill(r.index, changed, parsed)
	r.epoch = epoch
}

func fill(index *trigger.Index, changed []trigger.EventTrigger, parsed [][]trigger.Rule) {
	for i, c := range changed {
		if parsed[i] == nil {
			index.Remove(c.ID)
		} else {
			index.Set(c.ID, c.Tenant, parsed[i])
		}
	}
}

// match finds the triggers of each event.
func (r *rules) match(events []trigger.Published) [][]int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found := make([][]int64, len(events))
	for i, e := range events {
		found[i] = r.index.Match(e.Change)
	}
	return found
}
