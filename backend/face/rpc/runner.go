package rpc

import (
	"context"
	"net/url"

	"carillon/backend/core/deployment"
	carillonv1 "carillon/proto/carillon/v1"
)

func (s *server) Register(ctx context.Context, req *carillonv1.RegisterRequest) (*carillonv1.RegisterResponse, error) {
	m, err := fromSchema(req.GetSchema())
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(req.GetEndpoint()); err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil {
		return nil, invalid("endpoint", "%q is not http://host:port", req.GetEndpoint())
	}
	// The row of the runner first, so that a deploy that waits for a runner finds it; then, perhaps, the deploy.
	d, err := s.Config.Deploy.Register(ctx, m, req.GetDigest(), false)
	if err != nil {
		return nil, err
	}
	err = s.Runners.RegisterRunner(ctx, d.ID, deployment.Runner{
		Key: req.GetRunner(), Endpoint: req.GetEndpoint(), Capacity: int(req.GetCapacity()), Stream: req.GetStream(),
	})
	if err != nil {
		return nil, err
	}
	if req.GetDeploy() && !d.Active {
		if d, err = s.Config.Deploy.Register(ctx, m, req.GetDigest(), true); err != nil {
			return nil, err
		}
	}
	s.House.Hint(ctx, nil, nil, true) // others see it at their next look, within a second
	return &carillonv1.RegisterResponse{Deployment: d.Key, Active: d.Active, Heartbeat: length(s.RunnerBeat), Controllers: s.endpoints()}, nil
}

func (s *server) Heartbeat(ctx context.Context, req *carillonv1.HeartbeatRequest) (*carillonv1.HeartbeatResponse, error) {
	active, err := s.Runners.BeatRunner(ctx, req.GetRunner())
	if err != nil {
		return nil, err
	}
	return &carillonv1.HeartbeatResponse{Active: active, Controllers: s.endpoints()}, nil
}

func (s *server) Deregister(ctx context.Context, req *carillonv1.DeregisterRequest) (*carillonv1.DeregisterResponse, error) {
	if err := s.Runners.DeregisterRunner(ctx, req.GetRunner()); err != nil {
		return nil, err
	}
	s.House.Hint(ctx, nil, nil, true)
	return &carillonv1.DeregisterResponse{}, nil
}

func (s *server) endpoints() []string {
	var all []string
	for _, m := range s.House.Ring().Members() {
		all = append(all, m.Endpoint)
	}
	return all
}
