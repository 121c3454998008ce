package sweep

import (
	"context"
	"math/rand/v2"
	"time"
)

// rota says which passes scan the table: the first, one every few seconds, and all while there is reason to.
type rota struct {
	next time.Time // zero: at once
}

func (r *rota) due(now time.Time, reason bool) bool { return reason || !now.Before(r.next) }

func (r *rota) done(now time.Time, wait time.Duration) { r.next = now.Add(wait) }

// jittered is within 20 % of d, so that controllers which started together do not stay together.
func jittered(d time.Duration) time.Duration {
	return d - d/5 + time.Duration(rand.Int64N(int64(2*d/5)+1))
}

// pause says false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
