package loop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/engine/loop"
)

func TestRestEndsWithWhateverIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rested := func(ctx context.Context, b loop.Bell) time.Duration {
			began := time.Now()
			loop.Rest(ctx, time.Minute, b)
			return time.Since(began)
		}
		if d := rested(t.Context(), nil); d != time.Minute {
			t.Errorf("%s without a bell", d)
		}
		bells := []loop.Bell{loop.NewBell(), loop.NewBell()}
		time.AfterFunc(time.Second, func() { loop.RingAll(bells) })
		if d := rested(t.Context(), bells[1]); d != time.Second {
			t.Errorf("%s until the bell", d)
		}
		bells[0].Ring() // was rung and not heard
		if first, second := rested(t.Context(), bells[0]), rested(t.Context(), bells[0]); first != 0 || second != time.Minute {
			t.Errorf("a bell that was rung twice is heard after %s, and after %s", first, second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if d := rested(ctx, nil); d != 2*time.Second {
			t.Errorf("%s until the end of the context", d)
		}
	})
}

func TestBackoffGrowsToItsBound(t *testing.T) {
	for failures, most := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond, 7: 5 * time.Second, 1000: 5 * time.Second} {
		for range 100 {
			if d := loop.Backoff(failures); d > most || d < most*3/4 {
				t.Fatalf("%s after %d failures, want %s less up to a quarter", d, failures, most)
			}
			if d := loop.Jittered(most); d < most*9/10 || d > most*11/10 {
				t.Fatalf("%s for %s", d, most)
			}
		}
	}
}

func TestAStatementOutlivesAShutdown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stmt, done := loop.Statement(ctx)
	defer done()
	if _, bounded := stmt.Deadline(); stmt.Err() != nil || !bounded {
		t.Errorf("%v, bounded %v", stmt.Err(), bounded)
	}
}

type told bool

func (told) Error() string   { return "told" }
func (u told) Unknown() bool { return bool(u) }

func TestOutcomeUnknown(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {errors.New("refused"), false}, {told(true), true}, {told(false), false},
		{fmt.Errorf("claim: %w", told(true)), true}, {errors.Join(errors.New("refused"), fmt.Errorf("claim: %w", told(true))), true},
		{context.DeadlineExceeded, true}, {fmt.Errorf("claim: %w", context.Canceled), true},
	} {
		if got := loop.OutcomeUnknown(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
