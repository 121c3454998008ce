package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/integration/checker"
	carillonv1 "carillon/proto/carillon/v1"
)

// JobVerb is a verb that takes a Task. Zero values are what jobs have by default, but for the backoff.
type JobVerb struct {
	Name        string
	Concurrency int32
	Timeout     time.Duration
}

// How drills have failed runs repeated, unless a wish says otherwise.
const (
	Attempts   = 5
	Backoff    = 100 * time.Millisecond
	Ceiling    = time.Second
	jobTimeout = time.Minute
)

// Task is the request of a job: what drillrunner shall do.
type Task struct {
	Mark     string `json:"mark"`
	Ms       int    `json:"ms,omitempty"`
	Deaf     bool   `json:"deaf,omitempty"`
	Fails    int    `json:"fails,omitempty"`
	After    int    `json:"after,omitempty"`
	Final    bool   `json:"final,omitempty"`
	Snooze   int    `json:"snooze,omitempty"`
	Until    int64  `json:"until,omitempty"`
	Children []Task `json:"children,omitempty"`
	Progress bool   `json:"progress,omitempty"`
}

// taskTypes are the same for the schema.
var taskTypes = []*carillonv1.Data{
	{Name: "Task", Fields: []*carillonv1.Field{
		{Name: "mark", Type: "String"}, {Name: "ms", Type: "Int", Optional: true}, {Name: "deaf", Type: "Bool", Optional: true},
		{Name: "fails", Type: "Int", Optional: true}, {Name: "after", Type: "Int", Optional: true}, {Name: "final", Type: "Bool", Optional: true},
		{Name: "snooze", Type: "Int", Optional: true}, {Name: "until", Type: "Int", Optional: true},
		{Name: "children", Type: "[Task]", Optional: true}, {Name: "progress", Type: "Bool", Optional: true},
	}},
	{Name: "Done", Fields: []*carillonv1.Field{{Name: "Mark", Type: "String"}}},
}

// addJobVerbs completes a schema.
func addJobVerbs(s *carillonv1.Schema, verbs []JobVerb) {
	for _, v := range verbs {
		out := &carillonv1.Verb{Name: v.Name, Request: "Task", Response: "Done", Concurrency: v.Concurrency}
		if v.Timeout > 0 {
			out.Timeout = durationpb.New(v.Timeout)
		}
		s.Verbs = append(s.Verbs, out)
		s.Data = taskTypes
	}
}

// NewJobs makes a module of such verbs; nothing is deployed yet.
func (c *Cluster) NewJobs(t testing.TB, verbs ...JobVerb) *Module {
	t.Helper()
	m := &Module{Name: fmt.Sprintf("drill%d", c.name()), JobVerbs: verbs}
	m.Record = filepath.Join(c.dir, m.Name+".record")
	c.Change(t, m)
	return m
}

// JobsUp is a module of such verbs with so many runners, deployed, and the desk where its jobs are asked for.
func (c *Cluster) JobsUp(t testing.TB, runners int, verbs ...JobVerb) (*Desk, []*Runner) {
	t.Helper()
	var all []*Runner
	d := c.deskOf(t, c.NewJobs(t, verbs...), runners, &all)
	return d, all
}

// Desk deploys a module with so many runners.
func (c *Cluster) Desk(t testing.TB, m *Module, runners int) *Desk {
	t.Helper()
	return c.deskOf(t, m, runners, new([]*Runner))
}

func (c *Cluster) deskOf(t testing.TB, m *Module, runners int, all *[]*Runner) *Desk {
	t.Helper()
	for range runners {
		*all = append(*all, c.StartRunner(t, m))
	}
	c.Deploy(t, c.Any(t), m)
	return &Desk{Module: m, c: c}
}

// Wish is a job that a drill wants exactly one of, whatever happens while it asks.
type Wish struct {
	Task
	Verb      string
	Delay     time.Duration
	Priority  int // 0: not said
	Tenant    string
	Unique    string
	Attempts  int
	Timeout   time.Duration
	Anonymous bool // without an idempotency key: an answer that gets lost is not asked for again
}

// Desk enqueues the jobs of a module as producers would, and notes what was asked and what was acknowledged. Safe for
// concurrent use.
type Desk struct {
	*Module
	c *Cluster

	mu      sync.Mutex
	asks    []checker.Ask
	acks    []checker.Ack
	cancels []checker.Cancel
	limits  []checker.Limit
	ids     map[string]string // public ids by mark
	again   int

	read  int64 // of the runners' file, by Begun
	begun int
}

func (d *Desk) ref(verb string) string { return d.Name + "." + verb }

// ask notes a wish before it is uttered.
func (d *Desk) ask(w Wish, parent string, at time.Time) {
	a := checker.Ask{
		Mark: w.Mark, Ref: d.ref(w.Verb), At: at, Delay: w.Delay, Attempts: cmp.Or(w.Attempts, Attempts), Backoff: Backoff, Ceiling: Ceiling,
		Timeout: cmp.Or(w.Timeout, jobTimeout), Parent: parent,
	}
	if parent != "" { // children have the defaults of jobs
		a.Attempts, a.Backoff, a.Ceiling, a.Timeout = 5, time.Second, 10*time.Minute, 5*time.Minute
	}
	d.asks = append(d.asks, a)
	for _, k := range w.Children {
		d.ask(Wish{Task: k, Verb: w.Verb}, w.Mark, at)
	}
}

// New is a wish as the request has it.
func (d *Desk) New(w Wish) *carillonv1.NewJob {
	payload, err := json.Marshal(w.Task)
	if err != nil {
		panic(err)
	}
	n := &carillonv1.NewJob{
		Ref: d.ref(w.Verb), Payload: payload, Tenant: w.Tenant, UniqueKey: w.Unique, MaxAttempts: int32(cmp.Or(w.Attempts, Attempts)),
		Backoff: durationpb.New(Backoff), BackoffCeiling: durationpb.New(Ceiling), Timeout: durationpb.New(cmp.Or(w.Timeout, jobTimeout)),
		Tags: []string{"drill"},
	}
	if !w.Anonymous {
		n.IdempotencyKey = d.Name + "/" + w.Mark
	}
	if w.Delay > 0 {
		n.Delay = durationpb.New(w.Delay)
	}
	if w.Priority > 0 {
		p := int32(w.Priority)
		n.Priority = &p
	}
	return n
}

const askPatience = 60 * time.Second

// Enqueue asks until all wishes are acknowledged, at most 1,000 in one request: while answers get lost, it asks any
// controller that lives again by the same idempotency keys. An error: a wish was refused, or nobody answered for long.
func (d *Desk) Enqueue(ctx context.Context, wishes ...Wish) error {
	d.mu.Lock()
	for _, w := range wishes {
		d.ask(w, "", time.Now())
	}
	d.mu.Unlock()
	for from := 0; from < len(wishes); from += 1000 {
		if err := d.insist(ctx, wishes[from:min(from+1000, len(wishes))]); err != nil {
			return err
		}
	}
	return nil
}

func (d *Desk) insist(ctx context.Context, wishes []Wish) error {
	deadline := time.Now().Add(askPatience)
	for turn := 0; len(wishes) > 0; turn++ {
		left, err := d.once(ctx, turn, wishes)
		if wishes = left; len(left) == 0 {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) || err != nil && !comesAndGoes(err) {
			return fmt.Errorf("enqueue %d jobs: %w", len(left), cmp.Or(err, ctx.Err()))
		}
		d.mu.Lock()
		d.again += len(left)
		d.mu.Unlock()
		select { // a controller that is gone refuses at once
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// comesAndGoes says whether an error is one of those for which a client asks again.
func comesAndGoes(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeUnknown, connect.CodeInternal, connect.CodeAborted, connect.CodeResourceExhausted:
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// once asks one controller, and returns what was not answered.
func (d *Desk) once(ctx context.Context, turn int, wishes []Wish) (left []Wish, err error) {
	live := d.c.Live()
	if len(live) == 0 {
		return wishes, connect.NewError(connect.CodeUnavailable, errors.New("no controller lives"))
	}
	req := &carillonv1.EnqueueJobsRequest{}
	for _, w := range wishes {
		req.Jobs = append(req.Jobs, d.New(w))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	k := live[(turn+int(time.Now().UnixNano()>>10))%len(live)]
	resp, err := k.Jobs.EnqueueJobs(ctx, req)
	if err != nil {
		return wishes, err
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ids == nil {
		d.ids = map[string]string{}
	}
	for i, r := range resp.GetJobs() {
		if e := r.GetError(); e != nil {
			code := connect.CodeUnavailable
			if e.GetCode() != code.String() {
				code = connect.CodeInvalidArgument
			}
			err = connect.NewError(code, fmt.Errorf("%s: %s: %s", e.GetCode(), e.GetField(), e.GetMessage()))
			left = append(left, wishes[i])
			continue
		}
		d.ids[wishes[i].Mark] = r.GetId()
		d.acks = append(d.acks, checker.Ack{Mark: wishes[i].Mark, ID: number(r.GetId()), Existing: r.GetExisting(), At: now})
	}
	if len(resp.GetJobs()) != len(wishes) {
		err = fmt.Errorf("%d answers to %d jobs", len(resp.GetJobs()), len(wishes))
	}
	return left, err
}

// ID is the public id of an acknowledged wish.
func (d *Desk) ID(mark string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[mark]
}

// IDs are the numbers of all acknowledged jobs that wishes of this mark were answered with.
func (d *Desk) IDs(mark string) map[int64]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := map[int64]int{}
	for _, a := range d.acks {
		if a.Mark == mark {
			n[a.ID]++
		}
	}
	return n
}

// Again counts wishes that had to be uttered once more.
func (d *Desk) Again() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.again
}

// Noted adds a wish that is fulfilled by other ways than the desk's.
func (d *Desk) Noted(w Wish, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ask(w, "", at)
}

// Acked notes an answer to such a wish.
func (d *Desk) Acked(mark, id string, existing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acks = append(d.acks, checker.Ack{Mark: mark, ID: number(id), Existing: existing, At: time.Now()})
}

// Cancel asks a controller to cancel a job, and says what it answered.
func (d *Desk) Cancel(ctx context.Context, k *Controller, id string) (carillonv1.JobState, error) {
	wish := checker.Cancel{ID: number(id), Asked: time.Now()}
	resp, err := k.Jobs.CancelJob(ctx, &carillonv1.CancelJobRequest{Id: id, Reason: "the drill asked for it"})
	wish.Ended = resp.GetState() == carillonv1.JobState_JOB_STATE_CANCELLED
	if connect.CodeOf(err) == connect.CodeNotFound || connect.CodeOf(err) == connect.CodeFailedPrecondition {
		return resp.GetState(), err // it was over; that is no wish
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancels = append(d.cancels, wish)
	return resp.GetState(), err
}

// number reads the job's number out of its public id: j, the number in base 36, and seven digits of salt.
func number(id string) int64 {
	if len(id) < 9 || id[0] != 'j' {
		return 0
	}
	n, _ := strconv.ParseInt(id[1:len(id)-7], 36, 64)
	return n
}
