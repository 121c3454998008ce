package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
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
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// comesAndGoes says whether an error is one of those for which a client asks again.
func comesAndGoes(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeUnknown, connect.CodeInternal, connect.CodeAborted, connect.CodeResourceExhausted:
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

// WatchLimits looks at the limits of the module's verbs until stop is called.
func (d *Desk) WatchLimits(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			rows, err := d.c.SQL.Query(ctx, `SELECT l.ref, l.max_running, l.running, (SELECT count(*)::int FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
				WHERE q.ref = l.ref AND j.state = 'running' AND j.limited) FROM carillon.limits l WHERE starts_with(l.ref, $1)`, d.Name+".")
			if err != nil {
				continue // no database, no look
			}
			found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (l checker.Limit, err error) {
				l.At = time.Now()
				return l, r.Scan(&l.Ref, &l.Max, &l.Running, &l.Rows)
			})
			if err == nil {
				d.mu.Lock()
				d.limits = append(d.limits, found...)
				d.mu.Unlock()
			}
		}
	}()
	return func() { cancel(); <-done }
}

// Left counts the live jobs of the module.
func (d *Desk) Left(ctx context.Context) (n int, err error) {
	err = d.c.SQL.QueryRow(ctx, `SELECT count(*) FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE starts_with(q.ref, $1)`, d.Name+".").Scan(&n)
	return n, err
}

// Await waits until none of the module's jobs is live.
func (d *Desk) Await(t testing.TB, bound time.Duration) time.Duration {
	t.Helper()
	began, slow := time.Now(), time.Time{}
	Eventually(t, bound, "an end of all jobs", func() error {
		if time.Since(slow) < 100*time.Millisecond {
			return errors.New("jobs are live still")
		}
		slow = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		n, err := d.Left(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d jobs are live: %s", n, d.sample(ctx))
		}
		return err
	})
	return time.Since(began)
}

// sample shows some live jobs.
func (d *Desk) sample(ctx context.Context) string {
	rows, err := d.c.SQL.Query(ctx, `SELECT format('%s %s due %s s ago, attempt %s, children %s, controller %s', q.ref, j.state, round(extract(epoch FROM now() - j.due_at)::numeric, 1), j.attempt, j.children, j.controller)
		FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE starts_with(q.ref, $1) LIMIT 5`, d.Name+".")
	if err != nil {
		return err.Error()
	}
	some, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err.Error()
	}
	return strings.Join(some, "; ")
}

// Work reads all that is known of the module's jobs.
func (d *Desk) Work(t testing.TB) checker.Work {
	t.Helper()
	w := checker.Work{}
	d.mu.Lock()
	w.Asks, w.Acks, w.Cancels, w.Limits = append(w.Asks, d.asks...), append(w.Acks, d.acks...), append(w.Cancels, d.cancels...), append(w.Limits, d.limits...)
	d.mu.Unlock()
	d.c.mu.Lock()
	for _, f := range d.c.faults {
		if f.Module == "" || f.Module == d.Name {
			w.Faults = append(w.Faults, f)
		}
	}
	d.c.mu.Unlock()
	err := pgx.BeginTxFunc(t.Context(), d.c.SQL, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return readJobs(t.Context(), tx, d.Name+".", &w)
	})
	if err == nil {
		w.Doings, err = readDoings(d.Record + ".jobs")
	}
	if err != nil {
		t.Fatalf("read the jobs of %s: %v", d.Name, err)
	}
	return w
}

const markOf = `COALESCE(convert_from(NULLIF(payload, ''), 'UTF8')::jsonb ->> 'mark', '')`

func readJobs(ctx context.Context, tx pgx.Tx, prefix string, w *checker.Work) error {
	if err := tx.QueryRow(ctx, "SELECT now()").Scan(&w.Read); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT j.id, `+markOf+`, q.ref, j.state::text, j.due_at, j.attempt, COALESCE(j.parent_id, 0), j.children, j.limited, COALESCE(j.run_id::text, ''),
			EXISTS (SELECT FROM carillon.controllers c WHERE c.key = j.controller AND c.heartbeat_at > now() - interval '12 s')
		FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE starts_with(q.ref, $1)`, prefix)
	if err != nil {
		return err
	}
	w.Live, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (l checker.LiveJob, err error) {
		return l, r.Scan(&l.ID, &l.Mark, &l.Ref, &l.State, &l.Due, &l.Attempt, &l.Parent, &l.Children, &l.Limited, &l.Run, &l.OwnerLive)
	})
	if err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `SELECT h.id, `+markOf+`, q.ref, h.state::text, h.ended_at, h.attempt, COALESCE(h.parent_id, 0), COALESCE(h.run_id::text, ''), COALESCE(h.controller, ''),
			COALESCE(h.errors, '[]'), h.redriven
		FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id WHERE starts_with(q.ref, $1)`, prefix)
	if err != nil {
		return err
	}
	w.Ended, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (e checker.EndedJob, err error) {
		var errs []struct {
			At            time.Time
			Attempt       int
			Run           *string
			Verdict, Text string
		}
		err = r.Scan(&e.ID, &e.Mark, &e.Ref, &e.State, &e.Ended, &e.Attempt, &e.Parent, &e.Run, &e.Controller, &errs, &e.Redriven)
		for _, x := range errs {
			run := ""
			if x.Run != nil {
				run = *x.Run
			}
			e.Errors = append(e.Errors, checker.JobError{At: x.At, Attempt: x.Attempt, Run: run, Verdict: x.Verdict, Text: x.Text})
		}
		return e, err
	})
	if err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `SELECT DISTINCT q.ref FROM carillon.queues q WHERE q.paused_at IS NOT NULL AND starts_with(q.ref, $1)`, prefix)
	if err != nil {
		return err
	}
	if w.Paused, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `SELECT now(), l.ref, l.max_running, l.running, (SELECT count(*)::int FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
		WHERE q.ref = l.ref AND j.state = 'running' AND j.limited) FROM carillon.limits l WHERE starts_with(l.ref, $1)`, prefix)
	if err != nil {
		return err
	}
	limits, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (l checker.Limit, err error) {
		return l, r.Scan(&l.At, &l.Ref, &l.Max, &l.Running, &l.Rows)
	})
	w.Limits = append(w.Limits, limits...)
	return err
}

func readDoings(path string) ([]checker.Doing, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	defer f.Close()
	var all []checker.Doing
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p := strings.Split(lines.Text(), "\t")
		if len(p) != 9 || p[0] != "begin" && p[0] != "end" {
			return nil, fmt.Errorf("record %q is none", lines.Text())
		}
		attempt, err1 := strconv.Atoi(p[5])
		at, err2 := strconv.ParseInt(p[6], 10, 64)
		wait, err3 := strconv.ParseInt(p[8], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("record %q: %w", lines.Text(), err)
		}
		all = append(all, checker.Doing{
			Begin: p[0] == "begin", Runner: p[1], Run: p[2], Ref: p[3], Job: number(p[4]), Attempt: attempt, At: time.Unix(0, at),
			Said: strings.TrimPrefix(p[7], "-"), Wait: time.Duration(wait) * time.Millisecond,
		})
	}
	return all, lines.Err()
}

// Judge demands that every promise was kept to the desk's jobs, and ends the module's runners.
func (d *Desk) Judge(t testing.TB, settled bool) checker.Work {
	t.Helper()
	d.c.unblocked(t)
	d.c.strained(t)
	w := d.Work(t)
	w.Settled = settled
	found := checker.CheckWork(w)
	for i, v := range found {
		if i == shownViolations {
			t.Errorf("and %d more", len(found)-i)
			break
		}
		t.Errorf("%v", v)
	}
	states, errs, said, begun := map[string]int{}, map[string]int{}, map[string]int{}, 0
	for _, e := range w.Ended {
		states[e.State]++
		for _, x := range e.Errors {
			errs[x.Verdict]++
		}
	}
	for _, x := range w.Doings {
		if x.Begin {
			begun++
		} else {
			said[x.Said]++
		}
	}
	t.Logf("%s: %d asked for, ended %v, %d live, %d runs begun, said %v, errors %v, %d wishes uttered again", d.Name, len(w.Asks), states, len(w.Live), begun, said, errs, d.Again())
	d.c.retire(d.Module)
	return w
}

// CLI runs the one binary as a person would, against a controller, and returns what it said and its exit code.
func (c *Cluster) CLI(t testing.TB, k *Controller, stdin string, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin.dir, "carillon"), args...)
	cmd.Env = append(os.Environ(), "CARILLON_CONTROLLER="+k.URL, "CARILLON_ADMIN_TOKEN="+c.admin, "NO_COLOR=1")
	cmd.Stdin = strings.NewReader(stdin)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return both.String(), cmd.ProcessState.ExitCode()
}

// Acks counts the jobs that were acknowledged.
func (d *Desk) Acks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := map[int64]bool{}
	for _, a := range d.acks {
		ids[a.ID] = true
	}
	return len(ids)
}

// Begins says when each acknowledged wish was first begun, by its mark.
func (d *Desk) Begins(t testing.TB) map[string]time.Time {
	t.Helper()
	doings, err := readDoings(d.Record + ".jobs")
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	marks := map[int64]string{}
	for _, a := range d.acks {
		marks[a.ID] = a.Mark
	}
	first := map[string]time.Time{}
	for _, x := range doings {
		mark := marks[x.Job]
		if have, ok := first[mark]; x.Begin && (!ok || x.At.Before(have)) {
			first[mark] = x.At
		}
	}
	return first
}

// Begun counts the runs that began so far by what the runners wrote: a look that costs the database nothing. For one
// goroutine at a time.
func (d *Desk) Begun() (int, error) {
	f, err := os.Open(d.Record + ".jobs")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Seek(d.read, io.SeekStart); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	d.read += int64(len(text))
	d.begun += bytes.Count(text, []byte("begin\t"))
	return d.begun, nil
}

// Retire ends the runners of a module that is not judged otherwise.
func (d *Desk) Retire() { d.c.retire(d.Module) }
