package store

import (
	"context"

	"carillon/backend/core/deployment"
)

// ListLive lists the live deployment of every module, with id, key, module, replicas and schema; the schema is empty for
// the known ones.
func (s *Store) ListLive(ctx context.Context, known []int64) ([]deployment.Deployment, error) {
	if known == nil {
		known = []int64{}
	}
	rows, err := s.q(s.upkeep).ListLiveDeployments(ctx, known)
	if err != nil {
		return nil, wrap("list live deployments", err)
	}
	out := make([]deployment.Deployment, len(rows))
	for i, r := range rows {
		out[i] = deployment.Deployment{ID: r.ID, Key: r.Key, Module: r.Module, MinReplicas: int(r.MinReplicas), Schema: r.Schema, Active: true}
	}
	return out, nil
}
