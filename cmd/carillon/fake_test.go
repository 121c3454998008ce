package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// fakeController answers as a controller would, from fields that a test fills before it is used.
type fakeController struct {
	carillonv1connect.UnimplementedClusterServiceHandler
	carillonv1connect.UnimplementedCronServiceHandler
	carillonv1connect.UnimplementedDeployServiceHandler
	carillonv1connect.UnimplementedRunServiceHandler
	fakeJobs
	fakeTriggers

	url    string
	token  string // demanded when set
	jobs   []*carillonv1.CronJob
	watch  func(context.Context, *connect.ServerStream[carillonv1.WatchRunsResponse]) error
	refuse *connect.Error // of Deploy
	health *carillonv1.GetHealthResponse
	others []*carillonv1.Controller
	live   []*carillonv1.Deployment

	mu       sync.Mutex
	runs     []*carillonv1.Run
	asked    []*carillonv1.ListRunsRequest
	deployed []*carillonv1.DeployRequest
	scaled   []*carillonv1.ScaleRequest
}

func startFake(t *testing.T, f *fakeController) *fakeController {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(carillonv1connect.NewClusterServiceHandler(f))
	mux.Handle(carillonv1connect.NewCronServiceHandler(f))
	mux.Handle(carillonv1connect.NewDeployServiceHandler(f))
	mux.Handle(carillonv1connect.NewRunServiceHandler(f))
	mux.Handle(carillonv1connect.NewJobServiceHandler(f))
	mux.Handle(carillonv1connect.NewTriggerServiceHandler(f))
	mux.Handle(carillonv1connect.NewEventServiceHandler(f))
	mux.Handle(carillonv1connect.NewTokenServiceHandler(f))
	guard := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnauthenticated, errString("unknown token")))
			return
		}
		mux.ServeHTTP(w, r)
	})
	server := httptest.NewServer(guard)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	f.url = server.URL
	return f
}

type errString string

func (e errString) Error() string { return string(e) }

func (f *fakeController) ListCronJobs(_ context.Context, req *carillonv1.ListCronJobsRequest) (*carillonv1.ListCronJobsResponse, error) {
	// One job on each page.
	at := len(req.GetPageToken())
	if at >= len(f.jobs) {
		return &carillonv1.ListCronJobsResponse{}, nil
	}
	resp := &carillonv1.ListCronJobsResponse{CronJobs: f.jobs[at : at+1]}
	if at+1 < len(f.jobs) {
		resp.NextPageToken = strings.Repeat("x", at+1)
	}
	return resp, nil
}

func (f *fakeController) GetCronJob(_ context.Context, req *carillonv1.GetCronJobRequest) (*carillonv1.GetCronJobResponse, error) {
	for _, j := range f.jobs {
		if j.GetRef() == req.GetRef() {
			return &carillonv1.GetCronJobResponse{CronJob: j}, nil
		}
	}
	return nil, connect.NewError(connect.CodeNotFound, errString("no cron job "+req.GetRef()))
}

func (f *fakeController) PauseCronJob(_ context.Context, req *carillonv1.PauseCronJobRequest) (*carillonv1.PauseCronJobResponse, error) {
	if req.GetRef() == "no.where" {
		return nil, connect.NewError(connect.CodeNotFound, errString("not found: no.where"))
	}
	return &carillonv1.PauseCronJobResponse{CronJob: &carillonv1.CronJob{Ref: req.GetRef(), Paused: true, Reason: req.GetReason()}}, nil
}

func (f *fakeController) ListRuns(_ context.Context, req *carillonv1.ListRunsRequest) (*carillonv1.ListRunsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, req)
	at := len(req.GetPageToken())
	end := min(at+min(int(req.GetPageSize()), 2), len(f.runs)) // at most two on a page, whatever was asked
	resp := &carillonv1.ListRunsResponse{Runs: f.runs[min(at, end):end]}
	if end < len(f.runs) {
		resp.NextPageToken = strings.Repeat("x", end)
	}
	return resp, nil
}

func (f *fakeController) WatchRuns(ctx context.Context, _ *carillonv1.WatchRunsRequest, s *connect.ServerStream[carillonv1.WatchRunsResponse]) error {
	return f.watch(ctx, s)
}

func (f *fakeController) ledger(runs ...*carillonv1.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs = append(f.runs, runs...)
}

func (f *fakeController) ListControllers(context.Context, *carillonv1.ListControllersRequest) (*carillonv1.ListControllersResponse, error) {
	return &carillonv1.ListControllersResponse{Controllers: append(f.others, &carillonv1.Controller{Key: "ctl-1", Endpoint: f.url, State: "live", Pid: 42})}, nil
}

func (f *fakeController) GetRing(context.Context, *carillonv1.GetRingRequest) (*carillonv1.GetRingResponse, error) {
	return &carillonv1.GetRingResponse{Shards: 3, Members: []*carillonv1.RingMember{
		{Key: "ctl-1", Endpoint: f.url, First: []int32{0, 2}, Second: []int32{1}}, {Key: "ctl-2", First: []int32{1}},
	}}, nil
}

func (f *fakeController) GetHealth(context.Context, *carillonv1.GetHealthRequest) (*carillonv1.GetHealthResponse, error) {
	return f.health, nil
}

func (f *fakeController) Plan(_ context.Context, req *carillonv1.PlanRequest) (*carillonv1.PlanResponse, error) {
	if len(req.GetSchema().GetVerbs()) == 0 {
		return &carillonv1.PlanResponse{}, nil
	}
	return &carillonv1.PlanResponse{Deployment: req.GetSchema().GetModule() + "-2", Replaces: req.GetSchema().GetModule() + "-1", Changes: []*carillonv1.Change{
		{Kind: carillonv1.Change_KIND_ADDED, Ref: "heartbeat.beat", Schedule: "*/2 * * * * *", NextSlots: []*timestamppb.Timestamp{at(0), at(2), at(4)}},
		{Kind: carillonv1.Change_KIND_REMOVED, Ref: "heartbeat.old", OldSchedule: "0 0 * * *"},
	}}, nil
}

func (f *fakeController) Deploy(_ context.Context, req *carillonv1.DeployRequest) (*carillonv1.DeployResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deployed = append(f.deployed, req)
	if f.refuse != nil {
		return nil, f.refuse
	}
	return &carillonv1.DeployResponse{Deployment: req.GetSchema().GetModule() + "-2", Replaced: req.GetSchema().GetModule() + "-1"}, nil
}

func (f *fakeController) Scale(_ context.Context, req *carillonv1.ScaleRequest) (*carillonv1.ScaleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if req.GetModule() == "gone" {
		return nil, connect.NewError(connect.CodeNotFound, errString("not found: nothing of module gone is deployed"))
	}
	f.scaled = append(f.scaled, req)
	for _, d := range f.live {
		if d.GetModule() == req.GetModule() {
			d.Replicas = req.GetReplicas()
		}
	}
	return &carillonv1.ScaleResponse{Deployment: &carillonv1.Deployment{Key: "k", Module: req.GetModule(), Replicas: req.GetReplicas()}}, nil
}

func (f *fakeController) ListDeployments(context.Context, *carillonv1.ListDeploymentsRequest) (*carillonv1.ListDeploymentsResponse, error) {
	if f.live != nil {
		return &carillonv1.ListDeploymentsResponse{Deployments: f.live}, nil
	}
	return &carillonv1.ListDeploymentsResponse{Deployments: []*carillonv1.Deployment{
		{Key: "heartbeat-1", Module: "heartbeat", Language: "go", Replicas: 1, Active: true, CronJobs: 1},
	}}, nil
}

// at is so many seconds after noon of a certain day.
func at(seconds int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 1, 31, 12, 0, seconds, 0, time.UTC))
}

// aRun is a run that succeeded in that second.
func aRun(id string, second int) *carillonv1.Run {
	started, ended := at(second).AsTime().Add(1500*time.Microsecond), at(second).AsTime().Add(12*time.Millisecond)
	return &carillonv1.Run{RunId: id, Ref: "heartbeat.beat", Slot: at(second), SlotTo: at(second), StartedAt: timestamppb.New(started), EndedAt: timestamppb.New(ended),
		Verdict: carillonv1.Verdict_VERDICT_SUCCEEDED, Controller: "ctl-1", Attempt: 1, LatenessMs: 1.5, Count: 1, Deployment: "heartbeat-1", Kind: "slot"}
}

// carillon runs a command line as a user would.
func carillon(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return carillonUntil(t, t.Context(), args...)
}

func carillonUntil(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for _, name := range []string{"CARILLON_CONTROLLER", "CARILLON_ADMIN_TOKEN", "CARILLON_ADMIN_TOKEN_FILE", "CARILLON_CLUSTER_TOKEN", "CARILLON_CLUSTER_TOKEN_FILE", "DATABASE_URL"} {
		if !tokensOfTest[name] {
			t.Setenv(name, "")
		}
	}
	var out, errs strings.Builder
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// tokensOfTest names the variables that the running test has set itself.
var tokensOfTest = map[string]bool{}

// setenv sets a variable for the commands of this test.
func setenv(t *testing.T, name, value string) {
	t.Helper()
	t.Setenv(name, value)
	tokensOfTest[name] = true
	t.Cleanup(func() { delete(tokensOfTest, name) })
}
