// Package loop is what the engines' loops have in common: how they wait, come again after a failure, and speak to the
// database. It knows no engine and keeps nothing.
package loop

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Bell wakes one goroutine; ringing it twice before it was heard is ringing it once. Any goroutine may ring.
type Bell chan struct{}

// NewBell is a bell that nobody has rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring never blocks.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// RingAll rings each of them.
func RingAll(bells []Bell) {
	for _, b := range bells {
		b.Ring()
	}
}

// Rest waits for d, the bell (nil: none) or the end of ctx, whichever is first.
func Rest(ctx context.Context, d time.Duration, b Bell) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-b:
	case <-t.C:
	}
}

// Backoff is 100 ms after the first failure, doubled by each further one up to 5 s, less up to a quarter.
func Backoff(failures int) time.Duration {
	d := min(100*time.Millisecond<<min(failures-1, 10), 5*time.Second)
	return d - rand.N(d/4)
}

// Jittered is d ±10 %, so that controllers do not work in step.
func Jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(max(d/5, 1)) }

// StatementTimeout bounds what Statement allows.
const StatementTimeout = 10 * time.Second

// Statement is a context for a statement that a shutdown must not cut off: its outcome would be unknown.
func Statement(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), StatementTimeout)
}

// OutcomeUnknown says that a failed statement may have been done all the same: the error, or one that it wraps, says so by
// a method Unknown() bool, or the time was over.
func OutcomeUnknown(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case interface{ Unknown() bool }:
		return e.Unknown()
	case interface{ Unwrap() error }:
		return OutcomeUnknown(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if OutcomeUnknown(part) {
				return true
			}
		}
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
