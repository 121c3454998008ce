package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/ring"
	"carillon/backend/store/internal/sqlc"
)

// CheckShardCount refuses to join a cluster whose rows carry shards of another count.
func (s *Store) CheckShardCount(ctx context.Context, count int) error {
	n, err := s.q(s.upkeep).GetShardCount(ctx)
	if err != nil {
		return wrap("read the shard count", err)
	}
	if int(n) != count {
		return wrap("join the cluster", fmt.Errorf("%w: the database's rows are divided into %d shards, this binary was built for %d", cron.ErrPrecond, n, count))
	}
	return nil
}

// RegisterController adds a controller, and supersedes an earlier one of the same endpoint.
func (s *Store) RegisterController(ctx context.Context, c ring.Controller) (time.Time, error) {
	now, err := s.q(s.beat).RegisterController(ctx, sqlc.RegisterControllerParams{
		Key: c.Key, Endpoint: c.Endpoint, Version: c.Version, Host: c.Host, Pid: int32(c.PID),
	})
	return now.Time.UTC(), wrap("register the controller", err)
}

// BeatController writes one heartbeat and reads everybody's in the same statement, with the database's time. The
// state is Absent when the controller is not registered.
func (s *Store) BeatController(ctx context.Context, key string, silence time.Duration) (ring.Beat, error) {
	rows, err := s.q(s.beat).BeatController(ctx, sqlc.BeatControllerParams{Key: key, SilenceSecs: silence.Seconds()})
	if err != nil {
		return ring.Beat{}, wrap("beat", err)
	}
	var b ring.Beat
	for _, r := range rows {
		b.Now = r.Now.Time.UTC()
		if r.Self {
			b.State, b.AliveSince = ring.State(r.State), r.AliveSince.Time.UTC()
		}
		if r.Fresh && ring.State(r.State) == ring.Live {
			b.Members = append(b.Members, ring.Member{Key: r.Key, Endpoint: r.Endpoint})
		}
	}
	return b, nil
}

// SetControllerState says that a controller drains.
func (s *Store) SetControllerState(ctx context.Context, key string, state ring.State) error {
	err := s.q(s.beat).SetControllerState(ctx, sqlc.SetControllerStateParams{Key: key, State: sqlc.CarillonControllerState(state)})
	return wrap("set the controller's state", err)
}

// DeregisterController takes a controller out. It must have ended its runs before.
func (s *Store) DeregisterController(ctx context.Context, key string) error {
	return wrap("deregister the controller", s.q(s.beat).DeregisterController(ctx, key))
}

// CountUnsweptControllers counts controllers whose lease ran out and that may still hold runs.
func (s *Store) CountUnsweptControllers(ctx context.Context, lease time.Duration) (int, error) {
	n, err := s.q(s.upkeep).CountUnsweptControllers(ctx, lease.Seconds())
	return int(n), wrap("count silent controllers", err)
}

// RetireControllers marks silent controllers that hold no run any more.
func (s *Store) RetireControllers(ctx context.Context, lease time.Duration) error {
	_, err := s.q(s.upkeep).RetireControllers(ctx, lease.Seconds())
	return wrap("retire silent controllers", err)
}

// ListControllers shows all controllers, with the number of runs in their name.
func (s *Store) ListControllers(ctx context.Context, silence time.Duration) ([]ring.Status, time.Time, error) {
	rows, err := s.q(s.upkeep).ListControllers(ctx, silence.Seconds())
	if err != nil {
		return nil, time.Time{}, wrap("list controllers", err)
	}
	counts, err := s.q(s.upkeep).CountExecutingByController(ctx)
	if err != nil {
		return nil, time.Time{}, wrap("count runs of controllers", err)
	}
	executing := map[string]int{}
	for _, c := range counts {
		if c.Controller != nil {
			executing[*c.Controller] = int(c.Executing)
		}
	}
	var now time.Time
	all := make([]ring.Status, len(rows))
	for i, r := range rows {
		c := r.Controller
		all[i] = ring.Status{
			Controller: ring.Controller{
				Member: ring.Member{Key: c.Key, Endpoint: c.Endpoint}, Version: c.Version, Host: c.Host, PID: int(c.Pid),
			},
			State: ring.State(c.State), Fresh: r.Fresh, StartedAt: c.StartedAt.Time.UTC(), HeartbeatAt: c.HeartbeatAt.Time.UTC(),
			AliveSince: c.AliveSince.Time.UTC(), Executing: executing[c.Key],
		}
		now = r.Now.Time.UTC()
	}
	return all, now, nil
}

// LiveControllers are those that take part now. Each change of a trigger asks for them: unlike ListControllers it looks at
// no run, so that it costs the same however many rows there are.
func (s *Store) LiveControllers(ctx context.Context, silence time.Duration) ([]ring.Member, error) {
	rows, err := s.q(s.upkeep).ListControllers(ctx, silence.Seconds())
	if err != nil {
		return nil, wrap("list live controllers", err)
	}
	var members []ring.Member
	for _, r := range rows {
		if c := r.Controller; r.Fresh && ring.State(c.State) == ring.Live {
			members = append(members, ring.Member{Key: c.Key, Endpoint: c.Endpoint})
		}
	}
	return members, nil
}

// Forget removes old runners and deployments that never became live.
func (s *Store) Forget(ctx context.Context) error {
	_, err1 := s.q(s.upkeep).ForgetRunners(ctx)
	_, err2 := s.q(s.upkeep).ForgetDeployments(ctx)
	return wrap("forget old runners and deployments", errors.Join(err1, err2))
}
