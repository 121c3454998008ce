package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/store/internal/sqlc"
)

// RegisterRunner makes a runner of a deployment known, or beats for it. An earlier runner of its endpoint goes.
func (s *Store) RegisterRunner(ctx context.Context, deploymentID int64, r deployment.Runner) error {
	err := s.q(s.upkeep).RegisterRunner(ctx, sqlc.RegisterRunnerParams{
		Key: r.Key, DeploymentID: deploymentID, Endpoint: r.Endpoint, Capacity: int32(r.Capacity), Stream: r.Stream,
	})
	return wrap("register a runner", err)
}

// BeatRunner says that a runner lives, and whether its deployment is the live one. ErrNotFound: register again.
func (s *Store) BeatRunner(ctx context.Context, key string) (active bool, err error) {
	active, err = s.q(s.upkeep).BeatRunner(ctx, key)
	if errors.Is(err, pgx.ErrNoRows) {
		err = cron.ErrNotFound
	}
	return active, wrap("beat for a runner", err)
}

// DeregisterRunner takes a runner out at once.
func (s *Store) DeregisterRunner(ctx context.Context, key string) error {
	_, err := s.q(s.upkeep).DeregisterRunner(ctx, key)
	return wrap("deregister a runner", err)
}

// ListRunners lists the runners whose last heartbeat is younger than silence.
func (s *Store) ListRunners(ctx context.Context, silence time.Duration) ([]deployment.Runner, error) {
	rows, err := s.q(s.upkeep).ListRunners(ctx, silence.Seconds())
	if err != nil {
		return nil, wrap("list runners", err)
	}
	all := make([]deployment.Runner, len(rows))
	for i, r := range rows {
		all[i] = deployment.Runner{
			Key: r.Runner.Key, Deployment: r.Deployment, Endpoint: r.Runner.Endpoint, Capacity: int(r.Runner.Capacity),
			Stream: r.Runner.Stream, RegisteredAt: r.Runner.RegisteredAt.Time.UTC(), HeartbeatAt: r.Runner.HeartbeatAt.Time.UTC(),
		}
	}
	return all, nil
}
