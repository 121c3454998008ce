package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"connectrpc.com/connect"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// fakeJobs is the job queue of a fake controller. The verb m.unknown is not deployed; a job named "gone" is nowhere, one
// named "ended" has ended.
type fakeJobs struct {
	carillonv1connect.UnimplementedJobServiceHandler

	job      *carillonv1.Job   // of GetJob
	jobs     []*carillonv1.Job // of ListJobs, two on a page
	steps    []*carillonv1.Job // of WatchJob
	breaks   int               // watches that break after their first step
	hold     chan struct{}     // WatchJob waits for it before the last step
	failAt   int               // the request to enqueue, from 1 on, that fails
	dead     int               // jobs that can be re-driven
	held     int32             // and that cannot
	mu       sync.Mutex
	requests []*carillonv1.EnqueueJobsRequest
	listed   []*carillonv1.ListJobsRequest
	redrives []*carillonv1.RedriveJobsRequest
	paused   []*carillonv1.PauseJobsRequest
	watches  int
}

func (f *fakeJobs) EnqueueJobs(_ context.Context, req *carillonv1.EnqueueJobsRequest) (*carillonv1.EnqueueJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, req)
	if len(f.requests) == f.failAt {
		return nil, connect.NewError(connect.CodeUnavailable, errString("the database does not answer"))
	}
	resp := &carillonv1.EnqueueJobsResponse{}
	for i, n := range req.GetJobs() {
		switch {
		case n.GetRef() == "m.unknown":
			resp.Jobs = append(resp.Jobs, &carillonv1.EnqueuedJob{Error: &carillonv1.EnqueueError{Code: "not_found", Message: "verb m.unknown is not deployed\x1b[2J"}})
		case string(n.GetPayload()) == `{"to":1}`:
			resp.Jobs = append(resp.Jobs, &carillonv1.EnqueuedJob{Error: &carillonv1.EnqueueError{Code: "invalid_argument", Field: "payload.to", Message: "expected string, got number"}})
		default:
			resp.Jobs = append(resp.Jobs, &carillonv1.EnqueuedJob{Id: fmt.Sprintf("j%d.%d", len(f.requests), i), Existing: n.GetUniqueKey() == "held"})
		}
	}
	return resp, nil
}

func (f *fakeJobs) GetJob(_ context.Context, req *carillonv1.GetJobRequest) (*carillonv1.GetJobResponse, error) {
	return &carillonv1.GetJobResponse{Job: f.job}, missing(req.GetId())
}

func missing(id string) error {
	switch id {
	case "xxx":
		return connect.NewError(connect.CodeInvalidArgument, errString(`id: "xxx" is no job id`))
	case "long":
		return connect.NewError(connect.CodeInvalidArgument, errString("validation error: id: value length must be at most 64 characters"))
	case "gone":
		return connect.NewError(connect.CodeNotFound, errString("no job gone"))
	case "ended":
		return connect.NewError(connect.CodeFailedPrecondition, errString("ended has ended: succeeded"))
	}
	return nil
}

func (f *fakeJobs) ListJobs(_ context.Context, req *carillonv1.ListJobsRequest) (*carillonv1.ListJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = append(f.listed, req)
	at := len(req.GetPageToken())
	end := min(at+min(int(req.GetPageSize()), 2), len(f.jobs))
	resp := &carillonv1.ListJobsResponse{Jobs: f.jobs[min(at, end):end]}
	if end < len(f.jobs) {
		resp.NextPageToken = strings.Repeat("x", end)
	}
	return resp, nil
}

func (f *fakeJobs) WatchJob(ctx context.Context, req *carillonv1.WatchJobRequest, s *connect.ServerStream[carillonv1.WatchJobResponse]) error {
	if err := missing(req.GetId()); err != nil {
		return err
	}
	f.mu.Lock()
	f.watches++
	breaks := f.watches <= f.breaks
	f.mu.Unlock()
	for i, j := range f.steps {
		if i == len(f.steps)-1 && f.hold != nil {
			select {
			case <-f.hold:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := s.Send(&carillonv1.WatchJobResponse{Job: j}); err != nil {
			return err
		}
		if err := s.Send(&carillonv1.WatchJobResponse{}); err != nil {
			return err
		}
		if breaks {
			return connect.NewError(connect.CodeUnavailable, errString("draining"))
		}
	}
	return nil
}

func (f *fakeJobs) CancelJob(_ context.Context, req *carillonv1.CancelJobRequest) (*carillonv1.CancelJobResponse, error) {
	state := carillonv1.JobState_JOB_STATE_CANCELLED
	if req.GetId() == "running" {
		state = carillonv1.JobState_JOB_STATE_RUNNING
	}
	return &carillonv1.CancelJobResponse{State: state}, missing(req.GetId())
}

func (f *fakeJobs) RetryJob(_ context.Context, req *carillonv1.RetryJobRequest) (*carillonv1.RetryJobResponse, error) {
	return &carillonv1.RetryJobResponse{Job: &carillonv1.Job{Id: req.GetId(), State: carillonv1.JobState_JOB_STATE_READY}}, missing(req.GetId())
}

func (f *fakeJobs) RedriveJobs(_ context.Context, req *carillonv1.RedriveJobsRequest) (*carillonv1.RedriveJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.redrives = append(f.redrives, req)
	n := min(int(req.GetLimit()), f.dead)
	f.dead -= n
	return &carillonv1.RedriveJobsResponse{Redriven: int32(n), More: f.dead > 0, Held: f.held}, nil
}

func (f *fakeJobs) PauseJobs(_ context.Context, req *carillonv1.PauseJobsRequest) (*carillonv1.PauseJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = append(f.paused, req)
	return &carillonv1.PauseJobsResponse{Queues: 2}, nil
}

func (f *fakeJobs) ResumeJobs(_ context.Context, req *carillonv1.ResumeJobsRequest) (*carillonv1.ResumeJobsResponse, error) {
	switch req.GetTenant() {
	case "acme":
		return &carillonv1.ResumeJobsResponse{Queues: 1, WasPaused: true}, nil
	case "early":
		return &carillonv1.ResumeJobsResponse{WasPaused: true}, nil
	case "twice":
		return &carillonv1.ResumeJobsResponse{WasPaused: true, Held: 2}, nil
	}
	return &carillonv1.ResumeJobsResponse{Held: 1}, nil
}

func (f *fakeJobs) ListQueues(context.Context, *carillonv1.ListQueuesRequest) (*carillonv1.ListQueuesResponse, error) {
	return &carillonv1.ListQueuesResponse{
		Queues: []*carillonv1.Queue{
			{Tenant: "default", Ref: "m.send", Lane: 2, MaxRunning: 10, Running: 3}, {Tenant: "default", Ref: "m.send", Lane: 3, WaitingFor: "a deployment of module old"}, {Tenant: "acme", Ref: "m.send", Lane: 4, PausedAt: at(0)},
		},
		Pauses: []*carillonv1.Pause{{Tenant: "acme", PausedAt: at(0), Reason: "unpaid\x1b[2J"}},
	}, nil
}
