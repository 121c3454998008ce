// Package heartbeat is the smallest module: one verb that the clock starts every two seconds. It knows nothing of the
// cluster that calls it; a panic or an error of its would end one run and leave the next alone.
package heartbeat

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// beats counts the calls of this process.
var beats atomic.Int64

// Beat says that it was called.
//
//carillon:cron */2 * * * * *
func Beat(ctx context.Context) error {
	slog.InfoContext(ctx, "beat", "n", beats.Add(1))
	return nil
}
