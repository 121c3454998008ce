package trigger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"carillon/backend/engine/loop"
)

// Every controller closes windows, whosever they are: the statement passes over those that another one is closing.

const (
	busyRest = 20 * time.Millisecond // where all that is over is being closed by others
	never    = 100 * 365 * 24 * time.Hour
)

func (t *Triggers) closeWindows(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		t.looks(never) // a window that is opened meanwhile rings
		wait, err := t.closeDue(ctx)
		if err != nil {
			failures++
			t.counters.failures.Add(1)
			t.log.WarnContext(ctx, "windows not closed", "error", err)
			wait = loop.Backoff(failures)
		} else {
			failures = 0
		}
		t.looks(wait)
		bell := t.windows
		if err != nil {
			bell = nil
		}
		loop.Rest(ctx, wait, bell)
	}
}

// looks notes that the windows are looked at after so long.
func (t *Triggers) looks(after time.Duration) {
	t.mu.Lock()
	t.closesAt = time.Now().Add(after)
	t.mu.Unlock()
}

// closeDue closes what is over, and says when to look again.
func (t *Triggers) closeDue(ctx context.Context) (wait time.Duration, err error) {
	stmt, cancel := loop.Statement(ctx)
	wait, open, err := t.cfg.Windows.NextDebounce(stmt)
	cancel()
	switch {
	case err != nil:
		return 0, fmt.Errorf("look for the next window: %w", err)
	case !open || wait > t.cfg.Poll:
		return loop.Jittered(t.cfg.Poll), nil
	case wait > 0:
		return wait, nil
	}
	for n := 0; ctx.Err() == nil; n++ {
		stmt, cancel := loop.Statement(ctx)
		made, err := t.cfg.Windows.CloseDebounces(stmt, t.cfg.CloseBatch)
		cancel()
		t.counters.windows.Add(int64(made.Taken))
		t.made(made)
		if err != nil {
			return 0, fmt.Errorf("close windows: %w", err)
		}
		if made.Taken == 0 {
			if n == 0 {
				return busyRest + rand.N(busyRest), nil
			}
			break
		}
	}
	return 0, nil // look for the next one at once
}
