package rpc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
	carillonv1 "carillon/proto/carillon/v1"
)

// Jobs is what the house does with jobs.
type Jobs interface {
	// Enqueue takes jobs in, with the defaults of their verbs where they say nothing, and answers each in order. An
	// answer's error that has a field to name is a *job.FieldError, or offers FieldName() string.
	Enqueue(ctx context.Context, jobs []job.New) ([]job.Enqueued, error)
	CancelJob(ctx context.Context, id job.ID, reason string) (job.State, error)
	RetryJob(ctx context.Context, id job.ID) error
	RedriveJobs(ctx context.Context, f job.Filter, limit int) (job.Redriven, error)
	// WaitingFor is what jobs of a verb wait for before any can run: a deployment, a verb in it, a runner; empty: none of these.
	WaitingFor(ref string) string
	// PauseJobs says how many queues it holds; an empty tenant or ref means all, here and in ResumeJobs.
	PauseJobs(ctx context.Context, tenant, ref, reason string) (int, error)
	ResumeJobs(ctx context.Context, tenant, ref string) (job.Resumed, error)
}

// JobReader is what people may see of jobs.
type JobReader interface {
	GetJob(ctx context.Context, id job.ID) (job.Job, error)
	ListJobs(ctx context.Context, f job.Filter, after job.Cursor, page int) ([]job.Job, error)
	ListEndedJobs(ctx context.Context, f job.Filter, after job.Cursor, page int) ([]job.Job, error)
	ListQueues(ctx context.Context) ([]job.Queue, error)
	ListPauses(ctx context.Context) ([]job.Pause, error)
}

// jobFace serves the job queue.
type jobFace struct {
	Config
	watchers atomic.Int64
}

func (s *jobFace) EnqueueJobs(ctx context.Context, req *carillonv1.EnqueueJobsRequest) (*carillonv1.EnqueueJobsResponse, error) {
	res := &carillonv1.EnqueueJobsResponse{Jobs: make([]*carillonv1.EnqueuedJob, len(req.GetJobs()))}
	now, err := s.clock(ctx, req.GetJobs())
	if err != nil {
		return nil, err
	}
	batch, places := make([]job.New, 0, len(req.GetJobs())), make([]int, 0, len(req.GetJobs()))
	gate := &admission{face: s, caller: callerOf(ctx), full: map[string]trigger.Ruling{}}
	for i, n := range req.GetJobs() {
		j, err := fromNewJob(n, now)
		if err == nil {
			err = gate.admit(ctx, &j)
		}
		if err != nil {
			res.Jobs[i] = &carillonv1.EnqueuedJob{Error: s.refusal(ctx, err)}
			continue
		}
		batch, places = append(batch, j), append(places, i)
	}
	if len(batch) == 0 {
		return res, nil
	}
	answers, err := s.Jobs.Enqueue(ctx, batch)
	gate.settle(ctx, batch, answers, err)
	if err != nil {
		return nil, fielded(err)
	}
	for k, a := range answers {
		if a.Err != nil {
			res.Jobs[places[k]] = &carillonv1.EnqueuedJob{Error: s.refusal(ctx, a.Err)}
			continue
		}
		res.Jobs[places[k]] = &carillonv1.EnqueuedJob{Id: a.ID.String(), Existing: a.Existing}
	}
	return res, nil
}

// clock reads the database's time if a job names the instant when it is due, or the length of time in which it expires.
func (s *jobFace) clock(ctx context.Context, jobs []*carillonv1.NewJob) (now time.Time, err error) {
	for _, n := range jobs {
		if n.GetDueAt() != nil || n.GetExpiresIn() != nil {
			return s.Reader.Ping(ctx)
		}
	}
	return now, nil
}

// refusal says why one job of many was not taken in.
func (s *jobFace) refusal(ctx context.Context, err error) *carillonv1.EnqueueError {
	field, problem, named := fieldOf(err)
	if rate := limited(nil); errors.As(err, &rate) {
		return &carillonv1.EnqueueError{Code: connect.CodeResourceExhausted.String(), Message: rate.Error()}
	}
	for _, row := range codes {
		switch {
		case !errors.Is(err, row.err):
		case named:
			return &carillonv1.EnqueueError{Code: row.code.String(), Field: field, Message: problem}
		default:
			return &carillonv1.EnqueueError{Code: row.code.String(), Message: said(err, row.err)}
		}
	}
	if named {
		return &carillonv1.EnqueueError{Code: connect.CodeInvalidArgument.String(), Field: field, Message: problem}
	}
	id := requestOf(ctx)
	s.Logger.ErrorContext(ctx, "job not enqueued", "request", id, "error", err)
	return &carillonv1.EnqueueError{Code: connect.CodeInternal.String(), Message: "internal error; the controller's log has the cause under request " + id}
}

// jobFields are the fields of a new job that have another name in proto.
var jobFields = map[string]string{
	"retry.attempts": "max_attempts", "retry.backoff": "backoff", "retry.ceiling": "backoff_ceiling", "expires": "expires_at", "unique": "unique_key",
	"window": "unique_window", "idempotency": "idempotency_key", "parent": "parent_id", "parent_run": "parent_run_id",
}

// fieldOf finds the field that an error is about, as it is called in proto, and what is wrong with it.
func fieldOf(err error) (field, problem string, ok bool) {
	named := interface {
		error
		FieldName() string
	}(nil)
	switch d, f, g := (*denial)(nil), (*fault)(nil), (*job.FieldError)(nil); {
	case errors.As(err, &d):
		return d.field, d.text, d.field != ""
	case errors.As(err, &f):
		return f.field, f.text, true
	case errors.As(err, &g):
		field, problem = g.Field, g.Problem
	case errors.As(err, &named):
		field = named.FieldName()
		problem = strings.TrimPrefix(strings.TrimPrefix(named.Error(), cron.ErrInvalid.Error()+": "), field+": ")
	default:
		return "", "", false
	}
	if other := jobFields[field]; other != "" {
		field = other
	}
	return field, problem, true
}

// fielded makes an error that refuses a field one whose answer names it, too.
func fielded(err error) error {
	if field, problem, ok := fieldOf(err); ok && errors.Is(err, cron.ErrInvalid) {
		return invalid(field, "%s", problem)
	}
	return err
}

func (s *jobFace) GetJob(ctx context.Context, req *carillonv1.GetJobRequest) (*carillonv1.GetJobResponse, error) {
	id, err := fromJobID("id", req.GetId())
	if err != nil {
		return nil, err
	}
	j, err := s.findJob(ctx, id, permission.Get)
	if err != nil {
		return nil, err
	}
	return &carillonv1.GetJobResponse{Job: s.toJob(j)}, nil
}

func (s *jobFace) CancelJob(ctx context.Context, req *carillonv1.CancelJobRequest) (*carillonv1.CancelJobResponse, error) {
	id, err := fromJobID("id", req.GetId())
	if err != nil {
		return nil, err
	}
	if err := s.mayPatch(ctx, id); err != nil {
		return nil, err
	}
	state, err := s.Jobs.CancelJob(ctx, id, req.GetReason())
	if err != nil {
		return nil, fielded(err)
	}
	return &carillonv1.CancelJobResponse{State: toJobState(state)}, nil
}

func (s *jobFace) RetryJob(ctx context.Context, req *carillonv1.RetryJobRequest) (*carillonv1.RetryJobResponse, error) {
	id, err := fromJobID("id", req.GetId())
	if err != nil {
		return nil, err
	}
	if err := s.mayPatch(ctx, id); err != nil {
		return nil, err
	}
	if err := s.Jobs.RetryJob(ctx, id); err != nil {
		return nil, fielded(err)
	}
	j, err := s.JobReader.GetJob(ctx, id)
	if err != nil {
		return nil, err
	}
	return &carillonv1.RetryJobResponse{Job: s.toJob(j)}, nil
}

// defaultRedrive is how many dead jobs one request makes live again when it does not say.
const defaultRedrive = 1000

func (s *jobFace) RedriveJobs(ctx context.Context, req *carillonv1.RedriveJobsRequest) (*carillonv1.RedriveJobsResponse, error) {
	if err := checkRef(req.GetRef()); err != nil {
		return nil, err
	}
	f := job.Filter{Tenant: req.GetTenant(), Ref: req.GetRef(), Module: req.GetModule(), Tag: req.GetTag(), Dead: true}
	var err error
	if f.From, err = fromStamp("from", req.GetFrom()); err != nil {
		return nil, err
	}
	if f.To, err = fromStamp("to", req.GetTo()); err != nil {
		return nil, err
	}
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultRedrive
	}
	r, err := s.Jobs.RedriveJobs(ctx, f, limit)
	if err != nil {
		return nil, fielded(err)
	}
	return &carillonv1.RedriveJobsResponse{Redriven: int32(len(r.Jobs)), More: r.More, Held: int32(r.Held)}, nil
}

func (s *jobFace) PauseJobs(ctx context.Context, req *carillonv1.PauseJobsRequest) (*carillonv1.PauseJobsResponse, error) {
	if err := checkRef(req.GetRef()); err != nil {
		return nil, err
	}
	n, err := s.Jobs.PauseJobs(ctx, req.GetTenant(), req.GetRef(), req.GetReason())
	if err != nil {
		return nil, fielded(err)
	}
	return &carillonv1.PauseJobsResponse{Queues: int32(n)}, nil
}

func (s *jobFace) ResumeJobs(ctx context.Context, req *carillonv1.ResumeJobsRequest) (*carillonv1.ResumeJobsResponse, error) {
	if err := checkRef(req.GetRef()); err != nil {
		return nil, err
	}
	done, err := s.Jobs.ResumeJobs(ctx, req.GetTenant(), req.GetRef())
	if err != nil {
		return nil, fielded(err)
	}
	return &carillonv1.ResumeJobsResponse{Queues: int32(done.Queues), WasPaused: done.WasPaused, Held: int32(done.Held)}, nil
}

// checkRef refuses what can be no verb, where a slip of the pen would concern nothing without a word.
func checkRef(ref string) error {
	if _, _, ok := cron.ParseRef(ref); ref != "" && !ok {
		return invalid("ref", "%.60q is no module.verb", ref)
	}
	return nil
}

func (s *jobFace) ListQueues(ctx context.Context, _ *carillonv1.ListQueuesRequest) (*carillonv1.ListQueuesResponse, error) {
	queues, err := s.JobReader.ListQueues(ctx)
	if err != nil {
		return nil, err
	}
	pauses, err := s.JobReader.ListPauses(ctx)
	if err != nil {
		return nil, err
	}
	res := &carillonv1.ListQueuesResponse{}
	for _, q := range queues {
		out := &carillonv1.Queue{Tenant: q.Tenant, Ref: q.Ref, Lane: int32(q.Lane), MaxRunning: int32(q.Limit), Running: int32(q.Running), WaitingFor: s.Jobs.WaitingFor(q.Ref)}
		if q.Paused {
			out.PausedAt = stamp(pausedAt(q, pauses))
		}
		res.Queues = append(res.Queues, out)
	}
	for _, p := range pauses {
		res.Pauses = append(res.Pauses, &carillonv1.Pause{Tenant: p.Tenant, Ref: p.Ref, PausedAt: stamp(p.At), Reason: p.Reason})
	}
	return res, nil
}

// pausedAt is when the first pause came that covers a queue and still stands.
func pausedAt(q job.Queue, pauses []job.Pause) (at time.Time) {
	for _, p := range pauses {
		if (p.Tenant == "" || p.Tenant == q.Tenant) && (p.Ref == "" || p.Ref == q.Ref) && (at.IsZero() || p.At.Before(at)) {
			at = p.At
		}
	}
	return at
}
