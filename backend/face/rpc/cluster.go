package rpc

import (
	"context"

	"carillon/backend/core/cron"
	"carillon/backend/core/ring"
	carillonv1 "carillon/proto/carillon/v1"
)

func (s *server) ListControllers(ctx context.Context, req *carillonv1.ListControllersRequest) (*carillonv1.ListControllersResponse, error) {
	all, _, err := s.Reader.ListControllers(ctx)
	if err != nil {
		return nil, err
	}
	res := &carillonv1.ListControllersResponse{}
	for _, c := range all {
		state := string(c.State)
		if c.State == ring.Live && !c.Fresh {
			state = "silent"
		}
		if !req.GetAll() && (c.State == ring.Gone || c.State == ring.Superseded) {
			continue
		}
		res.Controllers = append(res.Controllers, &carillonv1.Controller{
			Key: c.Key, Endpoint: c.Endpoint, State: state, StartedAt: stamp(c.StartedAt), HeartbeatAt: stamp(c.HeartbeatAt),
			AliveSince: stamp(c.AliveSince), Version: c.Version, Host: c.Host, Pid: int32(c.PID), Executing: int32(c.Executing),
		})
	}
	return res, nil
}

func (s *server) GetRing(context.Context, *carillonv1.GetRingRequest) (*carillonv1.GetRingResponse, error) {
	r := s.House.Ring()
	res := &carillonv1.GetRingResponse{Shards: ring.Shards}
	for _, m := range r.Members() {
		res.Members = append(res.Members, &carillonv1.RingMember{Key: m.Key, Endpoint: m.Endpoint, First: r.First(m.Key), Second: r.Second(m.Key)})
	}
	return res, nil
}

func (s *server) GetHealth(ctx context.Context, _ *carillonv1.GetHealthRequest) (*carillonv1.GetHealthResponse, error) {
	res := &carillonv1.GetHealthResponse{Ok: true, Version: s.Version, Controller: s.Key}
	for _, c := range s.House.Health(ctx) {
		res.Ok = res.Ok && c.OK
		res.Checks = append(res.Checks, &carillonv1.Check{Name: c.Name, Ok: c.OK, Detail: c.Detail, Hint: c.Hint})
	}
	return res, nil
}

func (s *server) Hint(ctx context.Context, req *carillonv1.HintRequest) (*carillonv1.HintResponse, error) {
	if err := s.House.Hint(ctx, req.GetModules(), req.GetCronJobs(), req.GetRunners()); err != nil {
		return nil, err
	}
	return &carillonv1.HintResponse{Controller: s.Key}, nil
}

func (s *server) HintJobs(_ context.Context, req *carillonv1.HintJobsRequest) (*carillonv1.HintJobsResponse, error) {
	s.House.HintJobs(req.GetQueues(), req.GetChanged(), req.GetEvents())
	return &carillonv1.HintJobsResponse{}, nil
}

func (s *server) CancelRuns(_ context.Context, req *carillonv1.CancelRunsRequest) (*carillonv1.CancelRunsResponse, error) {
	runs := make([]cron.RunID, len(req.GetRunIds()))
	for i, text := range req.GetRunIds() {
		var err error
		if runs[i], err = cron.ParseRunID(text); err != nil {
			return nil, invalid("run_ids", "%.64q is no run id", text)
		}
	}
	return &carillonv1.CancelRunsResponse{Known: int32(s.House.CancelRuns(runs, req.GetReason()))}, nil
}

func (s *server) Interrupted(context.Context, *carillonv1.InterruptedRequest) (*carillonv1.InterruptedResponse, error) {
	interrupted, silent := s.House.Interrupted()
	return &carillonv1.InterruptedResponse{Interrupted: interrupted, Silent: length(silent)}, nil
}
