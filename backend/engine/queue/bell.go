package queue

import (
	"context"
	"math/rand/v2"
	"time"
)

// bell wakes one goroutine; ringing it twice before it was heard is ringing it once.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

func ringAll(bells []bell) {
	for _, b := range bells {
		b.ring()
	}
}

// rest waits for d, the bell (nil: none) or the end of ctx, whichever is first.
func rest(ctx context.Context, d time.Duration, b bell) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-b:
	case <-t.C:
	}
}

// backoff is 100 ms after the first failure, doubled by each further one up to 5 s, less up to a quarter.
func backoff(failures int) time.Duration {
	d := min(100*time.Millisecond<<min(failures-1, 10), 5*time.Second)
	return d - rand.N(d/4)
}

// jittered is d ±10 %, so that controllers do not work in step.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(max(d/5, 1)) }

const statementTimeout = 10 * time.Second

// statement is a context for a statement that a shutdown must not cut off: its outcome would be unknown.
func statement(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
}
