package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"carillon/backend/engine/dispatch"
)

// lookForRunners has the list of runners read now: a deployment that just became live has runners that not every
// controller has a stream to.
func (h *house) lookForRunners() {
	select {
	case h.look <- struct{}{}:
	default:
	}
}

// forgetRunner is how long a runner is called on after it left the list: after an outage of the database, or of this
// process, its next heartbeat is still to come. One that is really gone has no stream and gets no call.
const forgetRunner = 10 * time.Second

// followRunners keeps the dispatcher's list of live runners and the catalog, read each second and when something was said.
func (h *house) followRunners(ctx context.Context) error {
	failing := false
	known := map[string]dispatch.Runner{}
	missing := map[string]time.Time{} // since when
	for {
		runners, err := noted{h.store, &h.upkeep}.ListRunners(ctx)
		switch {
		case err == nil:
			for key := range known {
				if _, counted := missing[key]; !counted {
					missing[key] = time.Now()
				}
			}
			for _, r := range runners {
				known[r.Key] = dispatch.Runner{Key: r.Key, Endpoint: r.Endpoint, Deployment: r.Deployment, Capacity: r.Capacity, Stream: r.Stream}
				delete(missing, r.Key)
			}
			for key, since := range missing {
				if time.Since(since) > forgetRunner {
					delete(known, key)
					delete(missing, key)
				}
			}
			h.dispatch.SetRunners(slices.Collect(maps.Values(known)))
			h.refresh(ctx)
		case ctx.Err() == nil && !failing: // those known are called on
			h.log.WarnContext(ctx, "runners not listed", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-h.look:
		case <-time.After(time.Second):
		}
	}
}
