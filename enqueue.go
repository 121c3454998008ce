package carillon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Enqueued is what became of a job that was given to a cluster.
type Enqueued struct {
	ID       JobID
	Existing bool  // the job was there already, by its unique or idempotency key
	Err      error // of EnqueueMany: why this one was not taken in; often a *RefusedError
}

// NewJob is one job of EnqueueMany.
type NewJob struct {
	Ref     string // module.verb
	Request any    // of the verb, as JSON can hold it; nil and Unit are none
	Options []JobOption
}

// JobOption says how a job is to be done.
type JobOption func(*draft)

// draft is a job on its way to the cluster.
type draft struct {
	msg     *carillonv1.NewJob
	context inside
	keyed   bool // an idempotency key was given, perhaps an empty one
	err     error
}

func (d *draft) refuse(field, text string) {
	if d.err == nil {
		d.err = &RefusedError{Code: connect.CodeInvalidArgument.String(), Field: field, Message: text}
	}
}

func (d *draft) number(field string, n int) int32 {
	if n < math.MinInt32 || n > math.MaxInt32 {
		d.refuse(field, fmt.Sprintf("%d is absurd", n))
		return 0
	}
	return int32(n)
}

// Delay lets no attempt begin before so long after the enqueue.
func Delay(d time.Duration) JobOption {
	return func(j *draft) { j.msg.Delay = durationpb.New(d) }
}

// At lets no attempt begin before t.
func At(t time.Time) JobOption { return func(j *draft) { j.msg.DueAt = stamp(t) } }

// Priority is 0 to 1000, higher first; 500 unless said.
func Priority(n int) JobOption {
	return func(j *draft) { p := j.number("priority", n); j.msg.Priority = &p }
}

// Unique allows one live job of this key in a tenant at a time: while one is there, Enqueue returns its id.
func Unique(key string) JobOption { return func(j *draft) { j.msg.UniqueKey = key } }

// UniqueFor holds the key for a window, counted from the enqueue, whether the job lives so long or not.
func UniqueFor(key string, window time.Duration) JobOption {
	return func(j *draft) { j.msg.UniqueKey, j.msg.UniqueWindow = key, durationpb.New(window) }
}

// Idempotency makes one job of a request that is sent more than once with the same key within 24 h; another request
// with the key is refused. Without this option the client makes up a key, so that it may repeat a request whose answer
// was lost. An empty key is none: then a lost answer is an error, and whether the job is in is not known.
func Idempotency(key string) JobOption {
	return func(j *draft) { j.msg.IdempotencyKey, j.keyed = key, true }
}

// Tags are words to find the job by; at most 16 of 64 bytes.
func Tags(tags ...string) JobOption {
	return func(j *draft) { j.msg.Tags = append(j.msg.Tags, tags...) }
}

// Tenant is whose job it is; "default" unless said, and the parent's for a child.
func Tenant(name string) JobOption { return func(j *draft) { j.msg.Tenant = name } }

// Timeout bounds each attempt, instead of the verb's.
func Timeout(d time.Duration) JobOption {
	return func(j *draft) { j.msg.Timeout = durationpb.New(d) }
}

// Attempts is how often the job is tried at most, instead of the verb's.
func Attempts(n int) JobOption {
	return func(j *draft) { j.msg.MaxAttempts = j.number("max_attempts", n) }
}

// Backoff is the pause after the first failure, which doubles with each until the ceiling, instead of the verb's.
func Backoff(first, ceiling time.Duration) JobOption {
	return func(j *draft) {
		j.msg.Backoff, j.msg.BackoffCeiling = durationpb.New(first), durationpb.New(ceiling)
	}
}

// ExpiresAt lets no attempt begin after t.
func ExpiresAt(t time.Time) JobOption { return func(j *draft) { j.msg.ExpiresAt = stamp(t) } }

// Child makes the job a child of the one whose verb enqueues it: AwaitChildren waits for it, and a cancel of the parent
// cancels it. It is refused when the parent's run is over. The parent may be run again and enqueue its children once
// more; an idempotency key that is made of Run.IdempotencyKey makes one job of both.
func Child() JobOption {
	return func(j *draft) {
		run := j.context.run
		if run == nil || run.Job == "" {
			j.refuse("parent_id", "only the verb of a job has children: enqueue them with its context")
			return
		}
		j.msg.ParentId, j.msg.ParentRunId = string(run.Job), run.ID
		if j.msg.Tenant == "" {
			j.msg.Tenant = run.Tenant
		}
	}
}

// Enqueue gives one job to the cluster; what is returned without an error survives the crash of any process. From
// within a verb c may be nil: then the runner's own client is used. ref is module.verb, req its request (Unit for none).
// A job that the cluster does not take is a *RefusedError, which names the field. While no controller can be reached,
// or the answer got lost, the request is repeated under its idempotency key until the client's patience ends.
func Enqueue[Q any](ctx context.Context, c *Client, ref string, req Q, opts ...JobOption) (Enqueued, error) {
	out, err := EnqueueMany(ctx, c, []NewJob{{Ref: ref, Request: req, Options: opts}})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return Enqueued{}, err
	}
	return out[0], nil
}

const (
	bulkJobs  = 1000    // in one request
	bulkBytes = 3 << 20 // of one request, about
)

// EnqueueMany gives many jobs to the cluster, up to 1,000 in a request, and answers for each in order. A job that is
// refused stops no other. The error is that of a whole request: which jobs were not taken in their Err tells.
func EnqueueMany(ctx context.Context, c *Client, jobs []NewJob) ([]Enqueued, error) {
	out := make([]Enqueued, len(jobs))
	c, err := pick(ctx, c)
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out, err
	}
	var batch []waitingJob
	bytes := 0
	flush := func() {
		if err != nil { // the cluster is away, or does not know us
			for _, w := range batch {
				w.out.Err = err
			}
		} else {
			err = c.enqueue(ctx, batch)
		}
		batch, bytes = nil, 0
	}
	in := insideOf(ctx)
	for i, j := range jobs {
		d := j.draft(in)
		if d.err != nil {
			out[i].Err = fmt.Errorf("enqueue %s: %w", clean(j.Ref), d.err)
			continue
		}
		n := proto.Size(d.msg)
		if len(batch) > 0 && (len(batch) >= bulkJobs || bytes+n > bulkBytes) {
			flush()
		}
		batch, bytes = append(batch, waitingJob{d.msg, &out[i]}), bytes+n
	}
	if len(batch) > 0 {
		flush()
	}
	return out, err
}

// waitingJob is one that waits for its answer.
type waitingJob struct {
	msg *carillonv1.NewJob
	out *Enqueued
}

func (j NewJob) draft(in inside) *draft {
	d := &draft{msg: &carillonv1.NewJob{Ref: j.Ref}, context: in}
	if j.Request != nil {
		payload, err := marshal(j.Request)
		if err != nil {
			d.refuse("payload", err.Error())
		}
		d.msg.Payload = payload
	}
	for _, o := range j.Options {
		o(d)
	}
	if n := len(d.msg.Payload); n > maxPayload {
		d.refuse("payload", fmt.Sprintf("has %d bytes, at most %d are accepted", n, maxPayload))
	}
	texts := map[string]string{
		"ref": d.msg.Ref, "tenant": d.msg.Tenant, "unique_key": d.msg.UniqueKey, "idempotency_key": d.msg.IdempotencyKey,
	}
	for i, tag := range d.msg.Tags {
		texts[fmt.Sprintf("tags[%d]", i)] = tag
	}
	for field, text := range texts { // one would spoil the whole request
		if !utf8.ValidString(text) {
			d.refuse(field, "is not valid UTF-8")
		}
	}
	if !d.keyed {
		d.msg.IdempotencyKey = randomHex(16)
	}
	return d
}

var errAgain = connect.NewError(connect.CodeUnavailable, errors.New("the cluster did not take all jobs"))

// enqueue sends one request and repeats for what was not taken; each job has its answer afterwards.
func (c *Client) enqueue(ctx context.Context, batch []waitingJob) error {
	safe := true
	for _, w := range batch {
		safe = safe && w.msg.GetIdempotencyKey() != ""
	}
	what := "enqueue " + clean(batch[0].msg.GetRef())
	if len(batch) > 1 {
		what = fmt.Sprintf("enqueue %d jobs", len(batch))
	}
	left := batch
	err := c.do(ctx, what, safe, func(ctx context.Context, s carillonv1connect.JobServiceClient) error {
		req := &carillonv1.EnqueueJobsRequest{}
		for _, w := range left {
			req.Jobs = append(req.Jobs, w.msg)
		}
		resp, err := s.EnqueueJobs(ctx, req)
		if err != nil {
			return err
		}
		if len(resp.GetJobs()) != len(left) {
			return connect.NewError(connect.CodeInternal, fmt.Errorf("%d jobs were answered with %d results", len(left), len(resp.GetJobs())))
		}
		var again []waitingJob
		for i, w := range left {
			if w.take(resp.GetJobs()[i]) {
				again = append(again, w)
			}
		}
		if left = again; len(left) > 0 {
			return errAgain
		}
		return nil
	})
	for _, w := range left {
		if err != nil && (w.out.Err == nil || !errors.Is(err, errAgain)) {
			w.out.Err = err
		}
	}
	return err
}

// take writes the answer of one job; true if it is to be sent again.
func (w waitingJob) take(r *carillonv1.EnqueuedJob) (again bool) {
	e := r.GetError()
	if e == nil && r.GetId() != "" {
		*w.out = Enqueued{ID: JobID(r.GetId()), Existing: r.GetExisting()}
		return false
	}
	refusal := &RefusedError{Code: e.GetCode(), Field: e.GetField(), Message: e.GetMessage()}
	if e == nil {
		refusal.Code, refusal.Message = connect.CodeInternal.String(), "the answer names no job"
	}
	w.out.Err = fmt.Errorf("enqueue %s: %w", w.msg.GetRef(), refusal)
	return refusal.Code == connect.CodeUnavailable.String() && w.msg.GetIdempotencyKey() != ""
}
