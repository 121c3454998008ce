// Package rpc is the face towards processes and the CLI: the Connect services of a controller. It checks who calls
// (before a byte is decoded) and what they send, translates between proto and nouns, and maps refusals to codes.
//
// It must never know SQL, and decides nothing about slots. Every error ends here: it is logged once, with the request's
// id, and what is not on the closed list reaches the caller as "internal error" without its text.
package rpc

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/otelconnect"
	"connectrpc.com/validate"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/permission"
	"carillon/backend/core/ring"
	"carillon/backend/engine/deploy"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// MaxBody bounds one message, and one unary request with its envelope.
const MaxBody = 4 << 20

// Reader is what people may see of the database.
type Reader interface {
	ListDeployments(ctx context.Context, module string, all bool) ([]deployment.Deployment, error)
	ListRunners(ctx context.Context) ([]deployment.Runner, error)
	ListCronJobs(ctx context.Context, module, ref, after string, removed bool, page int) ([]cron.JobView, time.Time, error)
	ListRuns(ctx context.Context, f cron.RunFilter, after cron.RunCursor, page int) ([]cron.Run, error)
	ListExecuting(ctx context.Context, f cron.RunFilter, before time.Time, jobID int64, page int) ([]cron.Run, error)
	ListHistory(ctx context.Context, jobID int64, before time.Time, page int) ([]cron.Run, error)
	ListRunsSince(ctx context.Context, ref, module string, after cron.RunCursor, page int) ([]cron.Run, error)
	ListControllers(ctx context.Context) ([]ring.Status, time.Time, error)
	Ping(ctx context.Context) (time.Time, error)
}

// Runners is how runners make themselves known.
type Runners interface {
	RegisterRunner(ctx context.Context, deploymentID int64, r deployment.Runner) error
	BeatRunner(ctx context.Context, key string) (active bool, err error)
	DeregisterRunner(ctx context.Context, key string) error
}

// House is what the controller itself answers.
type House interface {
	Ring() *ring.Ring
	Interrupted() (interrupted bool, silent time.Duration)
	// Hint reads rows again; it returns when that is done.
	Hint(ctx context.Context, modules []string, cronJobs []int64, runners bool) error
	RunNow(ctx context.Context, ref string) (cron.Job, error)
	// HintJobs says that queues have new jobs in this controller's shards, that queues changed, or that there are events.
	HintJobs(queues []int32, changed, events bool)
	// CancelRuns ends the runs of jobs that were cancelled, and says how many of them execute here.
	CancelRuns(runs []cron.RunID, reason string) int
	Health(ctx context.Context) []Check
	Healthy() bool
}

// Check is one finding about this controller and its database.
type Check struct {
	Name         string
	OK           bool
	Detail, Hint string
}

// Config of the services.
type Config struct {
	Key, Version string
	Reader       Reader
	Runners      Runners
	House        House
	Deploy       *deploy.Engine
	Jobs         Jobs
	JobReader    JobReader
	Tokens       Tokens
	RunnerBeat   time.Duration // how often runners shall beat
	Logger       *slog.Logger

	Triggers      Triggers
	TriggerReader TriggerReader
	Events        Events
	TokenStore    TokenStore
	Workers       Workers
	Reserved      permission.Reserved // workers that only a tenant's operators may use
}

type server struct {
	Config
	watchers atomic.Int64
}

// Handler serves all services of a controller, with authentication, validation, reflection and health.
func Handler(c Config) (http.Handler, error) {
	s := &server{Config: c}
	faults := &errorInterceptor{log: c.Logger}
	traces, err := otelconnect.NewInterceptor(otelconnect.WithoutMetrics(), otelconnect.WithTrustRemote())
	if err != nil {
		return nil, err
	}
	options := connect.WithHandlerOptions(
		connect.WithInterceptors(traces, faults, texts{}, validate.NewInterceptor()),
		connect.WithRecover(faults.recovered),
		connect.WithReadMaxBytes(MaxBody),
		connect.WithCompressMinBytes(1<<10),
	)
	mux := http.NewServeMux()
	mux.Handle(carillonv1connect.NewDeployServiceHandler(s, options))
	mux.Handle(carillonv1connect.NewCronServiceHandler(s, options))
	mux.Handle(carillonv1connect.NewRunServiceHandler(s, options))
	mux.Handle(carillonv1connect.NewClusterServiceHandler(s, options))
	mux.Handle(carillonv1connect.NewPeerServiceHandler(s, options))
	mux.Handle(carillonv1connect.NewRunnerServiceHandler(s, options))
	mux.Handle(carillonv1connect.NewJobServiceHandler(&jobFace{Config: c}, options))
	mux.Handle(carillonv1connect.NewTriggerServiceHandler(&triggerFace{c}, options))
	mux.Handle(carillonv1connect.NewEventServiceHandler(&eventFace{c}, options))
	mux.Handle(carillonv1connect.NewTokenServiceHandler(&tokenFace{c}, options))
	reflector := grpcreflect.NewStaticReflector(Services...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector, options))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, options))
	mux.Handle(grpchealth.NewHandler(healthChecker{c.House}, options))
	return requestID(c.Tokens.guard(bounded(http.MaxBytesHandler(mux, MaxBody+64<<10)))), nil
}

// Services that a controller serves.
var Services = []string{
	carillonv1connect.DeployServiceName, carillonv1connect.CronServiceName, carillonv1connect.RunServiceName,
	carillonv1connect.ClusterServiceName, carillonv1connect.PeerServiceName, carillonv1connect.RunnerServiceName,
	carillonv1connect.JobServiceName, carillonv1connect.TriggerServiceName, carillonv1connect.EventServiceName, carillonv1connect.TokenServiceName,
}

type healthChecker struct{ house House }

func (h healthChecker) Check(context.Context, *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if h.house.Healthy() {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
}
