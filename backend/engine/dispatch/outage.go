package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"carillon/backend/core/cron"
)

// outage is the time in which no stream to a runner holds. Only the goroutine that keeps the stream touches it, and of the
// runner it reads what never changes.
type outage struct {
	began time.Time             // zero: a stream holds
	calm  bool                  // it began with the runner's own will, or the runner has never been reached
	told  map[string]slog.Level // causes
}

const (
	calmFor  = 10 * time.Second // a runner that starts or stops is no trouble for so long
	mostTold = 20               // causes of one outage
)

// tell logs each cause of an outage once, and once more where it has become a warning.
func (o *outage) tell(log *slog.Logger, r *runner, err error, now time.Time) {
	if o.began.IsZero() {
		*o = outage{began: now, calm: errors.Is(err, errClosed)}
	}
	level, cause := slog.LevelWarn, cron.SafeText(err.Error())
	if o.calm && now.Sub(o.began) < calmFor {
		level = slog.LevelInfo
	}
	if was, known := o.told[cause]; known && was >= level || !known && len(o.told) >= mostTold {
		return
	}
	if o.told == nil {
		o.told = map[string]slog.Level{}
	}
	o.told[cause] = level
	log.Log(context.Background(), level, "no stream to a runner", "runner", r.Key, "endpoint", r.Endpoint, "cause", cause)
}

// over ends the outage: a stream holds.
func (o *outage) over(log *slog.Logger, r *runner, now time.Time) {
	log.Info("runner attached", "runner", r.Key, "endpoint", r.Endpoint, "deployment", r.Deployment, "after", now.Sub(o.began))
	*o = outage{}
}
