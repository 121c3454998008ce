package rpc

import (
	"context"

	"carillon/backend/core/deployment"
	"carillon/backend/engine/deploy"
	carillonv1 "carillon/proto/carillon/v1"
)

func (s *server) Plan(ctx context.Context, req *carillonv1.PlanRequest) (*carillonv1.PlanResponse, error) {
	m, err := fromSchema(req.GetSchema())
	if err != nil {
		return nil, err
	}
	r, err := s.Config.Deploy.Plan(ctx, m, req.GetDigest())
	if err != nil {
		return nil, err
	}
	return &carillonv1.PlanResponse{Deployment: r.Deployment, Replaces: r.Replaced, Changes: toChanges(r.Changes)}, nil
}

func (s *server) Deploy(ctx context.Context, req *carillonv1.DeployRequest) (*carillonv1.DeployResponse, error) {
	m, err := fromSchema(req.GetSchema())
	if err != nil {
		return nil, err
	}
	r, err := s.Config.Deploy.Deploy(ctx, m, req.GetDigest(), req.GetNow())
	if err != nil {
		return nil, err
	}
	return &carillonv1.DeployResponse{Deployment: r.Deployment, Replaced: r.Replaced, Changes: toChanges(r.Changes), Unchanged: r.Unchanged}, nil
}

func (s *server) Scale(ctx context.Context, req *carillonv1.ScaleRequest) (*carillonv1.ScaleResponse, error) {
	d, err := s.Config.Deploy.Scale(ctx, req.GetModule(), int(req.GetReplicas()))
	if err != nil {
		return nil, err
	}
	return &carillonv1.ScaleResponse{Deployment: toDeployment(d)}, nil
}

func (s *server) Kill(ctx context.Context, req *carillonv1.KillRequest) (*carillonv1.KillResponse, error) {
	d, err := s.Config.Deploy.Scale(ctx, req.GetModule(), 0)
	if err != nil {
		return nil, err
	}
	return &carillonv1.KillResponse{Deployment: toDeployment(d)}, nil
}

func (s *server) ListDeployments(ctx context.Context, req *carillonv1.ListDeploymentsRequest) (*carillonv1.ListDeploymentsResponse, error) {
	all, err := s.Reader.ListDeployments(ctx, "", req.GetAll())
	if err != nil {
		return nil, err
	}
	runners, err := s.Reader.ListRunners(ctx)
	if err != nil {
		return nil, err
	}
	res := &carillonv1.ListDeploymentsResponse{}
	for _, d := range all {
		for _, r := range runners {
			if r.Deployment == d.Key {
				d.Runners = append(d.Runners, r)
			}
		}
		res.Deployments = append(res.Deployments, toDeployment(d))
	}
	return res, nil
}

func toDeployment(d deployment.Deployment) *carillonv1.Deployment {
	out := &carillonv1.Deployment{
		Key: d.Key, Module: d.Module, Language: d.Language, Digest: d.Digest, Replicas: int32(d.MinReplicas), Active: d.Active,
		CreatedAt: stamp(d.CreatedAt), ActivatedAt: stamp(d.ActivatedAt), CronJobs: int32(d.CronJobs),
	}
	for _, r := range d.Runners {
		out.Runners = append(out.Runners, &carillonv1.Runner{
			Key: r.Key, Endpoint: r.Endpoint, Capacity: uint32(r.Capacity), Stream: r.Stream,
			RegisteredAt: stamp(r.RegisteredAt), HeartbeatAt: stamp(r.HeartbeatAt),
		})
	}
	return out
}

func toChanges(changes []deploy.Change) []*carillonv1.Change {
	out := make([]*carillonv1.Change, len(changes))
	for i, c := range changes {
		out[i] = &carillonv1.Change{Kind: carillonv1.Change_Kind(c.Kind), Ref: c.Ref, Schedule: c.Schedule, OldSchedule: c.OldSchedule, TimeZone: c.Zone}
		for _, t := range c.Next {
			out[i].NextSlots = append(out[i].NextSlots, stamp(t))
		}
	}
	return out
}
