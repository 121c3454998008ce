package sweep

import (
	"context"
	"fmt"
	"time"
)

// keepHouse does the chores a few seconds after the start and then every hour, sooner after a failure. It has a
// goroutine of its own: dropping a day of history may wait for locks, and no lost run shall wait for that.
func (s *Sweeper) keepHouse(ctx context.Context) {
	wait := min(10*time.Second, s.cfg.Chores)
	for pause(ctx, jittered(wait)) {
		wait = s.cfg.Chores
		for _, chore := range []struct {
			name string
			do   func(context.Context) error
		}{
			{"keep partitions", func(ctx context.Context) error { return s.keeper.Partitions(ctx, ahead, s.cfg.Keep) }},
			{"forget runners and deployments", s.keeper.Forget},
			{"retire controllers", s.store.Retire}, // also forgets those that were silent for long
		} {
			if err := bounded(ctx, chore.do); err != nil && ctx.Err() == nil {
				s.cfg.Logger.WarnContext(ctx, "housekeeping failed", "error", fmt.Errorf("%s: %w", chore.name, err))
				wait = min(s.cfg.Chores, time.Minute)
			}
		}
	}
}

func bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, passDeadline)
	defer cancel()
	return do(ctx)
}
