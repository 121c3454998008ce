package carillon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

// ErrCancelled is the cause (context.Cause) with which a verb's context ends when its controller ends the run: somebody
// cancelled the job, or the run is not wanted any more for another reason.
var ErrCancelled = errors.New("cancelled by the controller")

// Why else the context of a verb ended before its time; context.Cause tells.
var (
	errTimeout  = errors.New("soft timeout")
	errGone     = errors.New("the controller's connection broke")
	errSilent   = errors.New("the controller fell silent")
	errStopping = errors.New("the runner stops")
)

// desk runs the verbs of this process: one execution per run id, at most capacity at a time, and at most one slot's
// run of a ref. Its methods may be called from anywhere; answers are given outside its lock.
type desk struct {
	module     string
	verbs      Verbs
	capacity   int
	grace      time.Duration
	log        *slog.Logger
	deployment func() string
	client     *Client       // for the verbs; nil without controllers
	over       chan struct{} // closed when no task will come

	mu        sync.Mutex
	todo      []task // admitted; those before taken are somebody's
	taken     int
	idle      []*hand               // that wait for a task
	runs      map[string]*execution // by run id, until the verb's goroutine ended
	refs      map[string]int        // goroutines of a ref's cron runs that have not ended
	abandoned int                   // of runs: answered without waiting for the verb
	past      memory
	talk      talk
	sessions  []*session
	draining  bool
	changed   chan struct{} // closed and replaced when a run ended
}

func newDesk(cfg Config, deployment func() string) *desk {
	return &desk{
		module: cfg.Module.Name, verbs: cfg.Verbs, capacity: cfg.Capacity, grace: cfg.Grace, log: cfg.Log,
		deployment: deployment, runs: map[string]*execution{}, refs: map[string]int{},
		past: newMemory(4096, 4<<20), changed: make(chan struct{}), over: make(chan struct{}),
	}
}

// execution is one run of one verb. desk.mu guards waiters and outcome.
type execution struct {
	run     Run
	begun   time.Time
	ctx     verbContext
	first   [1]waiter // what waiters holds, mostly
	waiters []waiter
	outcome *carillonv1.CallResponse // set once the run is answered
}

// waiter is one that asked for a run and waits for its outcome: a session, or who made a unary call.
type waiter struct {
	session *session
	id      uint64
	tell    func(*carillonv1.CallResponse) // of a unary call
}

func (w waiter) answer(resp *carillonv1.CallResponse) {
	if w.session != nil {
		w.session.answer(resp)
		return
	}
	w.tell(resp)
}

// cancel ends the context of a run, for this reason unless it has ended before.
func (e *execution) cancel(cause error) { e.ctx.end(context.Canceled, cause) }

// atOnce is how many calls are admitted in one go.
const atOnce = 64

// take begins the runs that calls ask for, and answers at once where one may not begin or is known already. Each answer
// is given exactly once, unless leave withdraws the waiter before.
func (d *desk) take(w waiter, calls ...*carillonv1.CallRequest) {
	for part := range slices.Chunk(calls, atOnce) {
		var known []*carillonv1.CallResponse
		d.mu.Lock()
		for _, req := range part {
			if resp := d.admit(req, w); resp != nil {
				known = append(known, resp)
			}
		}
		d.mu.Unlock()
		for _, resp := range known {
			w.answer(resp)
		}
	}
	d.hurry()
}

// admit decides under the lock; nil means that w will be answered when the run ends.
func (d *desk) admit(req *carillonv1.CallRequest, w waiter) *carillonv1.CallResponse {
	id, ref := req.GetRunId(), req.GetRef()
	say := func(o carillonv1.Outcome, text string) *carillonv1.CallResponse {
		return &carillonv1.CallResponse{RunId: id, Outcome: o, Error: text}
	}
	const failed, refused = carillonv1.Outcome_OUTCOME_FAILED, carillonv1.Outcome_OUTCOME_REFUSED
	if id == "" || len(id) > 64 || len(ref) > 257 || len(req.GetIdempotencyKey()) > 512 || len(req.GetJobId()) > 64 || len(req.GetTenant()) > 256 {
		return say(failed, "malformed call")
	}
	if mine := d.deployment(); mine == "" {
		return say(refused, "not registered yet")
	} else if req.GetDeployment() != mine {
		return say(refused, "this runner serves deployment "+mine)
	}
	if known := d.past.find(id); known != nil {
		return known
	}
	if e := d.runs[id]; e != nil {
		if e.outcome != nil { // answered without its verb, and forgotten since
			return e.outcome
		}
		e.waiters = append(e.waiters, w)
		if w.session != nil {
			w.session.enter()
		}
		return nil
	}
	fn := d.verb(ref)
	switch {
	case d.draining:
		return say(refused, "draining")
	case fn == nil:
		return say(failed, "unknown verb "+clean(ref))
	case req.GetSlot() != nil && req.GetJobId() == "" && d.refs[ref] > 0: // jobs of one slot after another may overlap
		resp := say(failed, "previous run still executing")
		d.past.keep(resp) // repeated, it must not begin after all
		return resp
	case len(d.runs) >= d.capacity:
		return say(refused, "no capacity")
	}
	d.begin(req, fn, w)
	return nil
}

func (d *desk) verb(ref string) Handler {
	n := len(d.module)
	if len(ref) < n+2 || ref[:n] != d.module || ref[n] != '.' {
		return nil
	}
	return d.verbs[ref[n+1:]]
}

func (d *desk) begin(req *carillonv1.CallRequest, fn Handler, w waiter) {
	now := time.Now()
	timeout := defaultTimeout
	if t := req.GetTimeout(); t != nil {
		timeout = min(t.AsDuration(), maxTimeout)
	}
	e := &execution{
		run: Run{
			ID: req.GetRunId(), Ref: req.GetRef(), Job: JobID(req.GetJobId()), Tenant: req.GetTenant(), Attempt: int(req.GetAttempt()),
			IdempotencyKey: req.GetIdempotencyKey(), Traceparent: req.GetTraceparent(), Deadline: now.Add(timeout),
		},
		begun: now,
	}
	if s := req.GetSlot(); s != nil {
		e.run.Slot = s.AsTime()
	}
	e.first[0] = w
	e.waiters = e.first[:]
	e.ctx.desk, e.ctx.e, e.ctx.envelope = d, e, req.GetEnvelope()
	d.runs[e.run.ID] = e
	if e.run.Job == "" {
		d.refs[e.run.Ref]++
	}
	if w.session != nil {
		w.session.enter()
	}
	d.todo = append(d.todo, task{e, fn, req.GetPayload()})
}

// abandon answers a run whose verb ignores the end of its context. The verb goes on holding its place until it really
// ends, since nothing can stop it.
func (d *desk) abandon(ctx *verbContext, e *execution) {
	d.mu.Lock()
	if d.runs[e.run.ID] != e || e.outcome != nil {
		d.mu.Unlock()
		return
	}
	d.abandoned++
	e.outcome = judge(ctx, e, said{failed: true, text: "the verb goes on"})
	waiters := d.release(e)
	d.mu.Unlock()
	d.log.Warn("verb ignores its context", "ref", e.run.Ref, "run", e.run.ID, "after", time.Since(e.begun))
	for _, w := range waiters {
		w.answer(e.outcome)
	}
	d.relevel()
}

// end frees the place of a run first and answers then, so that whoever hears the answer may call again.
func (d *desk) end(e *execution, resp *carillonv1.CallResponse) {
	d.mu.Lock()
	delete(d.runs, e.run.ID)
	if e.run.Job == "" {
		if d.refs[e.run.Ref]--; d.refs[e.run.Ref] == 0 {
			delete(d.refs, e.run.Ref)
		}
	}
	late := e.outcome != nil
	if late {
		d.abandoned--
	} else {
		e.outcome = resp
	}
	waiters := d.release(e)
	d.mu.Unlock()
	for _, w := range waiters {
		w.answer(e.outcome)
	}
	if late {
		d.relevel()
	}
}

// release remembers the outcome of e, hands out those who wait for it and wakes a drain. They hear before what the verb
// said last.
func (d *desk) release(e *execution) []waiter {
	d.past.keep(e.outcome)
	if text, ok := d.talk.take(e); ok {
		e.tell(text)
	}
	waiters := e.waiters
	e.waiters = nil
	for _, w := range waiters {
		if w.session != nil {
			w.session.inFlight--
		}
	}
	if d.draining {
		close(d.changed)
		d.changed = make(chan struct{})
	}
	return waiters
}

// cancel ends the contexts of runs that session asked for.
func (d *desk) cancel(s *session, ids []string) {
	for _, id := range ids {
		d.mu.Lock()
		e := d.runs[id]
		mine := e != nil && e.waitsFor(s)
		d.mu.Unlock()
		if mine {
			e.cancel(ErrCancelled)
		}
	}
}

func (e *execution) waitsFor(s *session) bool {
	for _, w := range e.waiters {
		if w.session == s {
			return true
		}
	}
	return false
}

// leave withdraws the waiters that match; a run that nobody waits for any more is cancelled with cause.
func (d *desk) leave(match func(waiter) bool, cause error) {
	var alone []*execution
	d.mu.Lock()
	for _, e := range d.runs {
		kept, had := e.waiters[:0], len(e.waiters)
		for _, w := range e.waiters {
			if !match(w) {
				kept = append(kept, w)
			}
		}
		if e.waiters = kept; had > 0 && len(kept) == 0 {
			alone = append(alone, e)
		}
	}
	d.mu.Unlock()
	for _, e := range alone {
		e.cancel(cause)
	}
}

// drain refuses new runs, waits until those in flight ended or ctx did, then cancels the rest and gives it the grace
// in which each is answered. It reports how many verbs still go on.
func (d *desk) drain(ctx context.Context) int {
	d.mu.Lock()
	d.draining = true
	d.mu.Unlock()
	d.relevel()
	if n := d.wait(ctx, func() int { return len(d.runs) - d.abandoned }); n == 0 {
		return 0
	}
	d.mu.Lock()
	for _, e := range d.runs {
		e.cancel(errStopping)
	}
	d.mu.Unlock()
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), d.grace+d.grace/2)
	defer stop()
	return d.wait(late, func() int { return len(d.runs) })
}

// wait blocks until left, read under the lock, is 0 or ctx ended.
func (d *desk) wait(ctx context.Context, left func() int) int {
	for {
		d.mu.Lock()
		n, changed := left(), d.changed
		d.mu.Unlock()
		if n == 0 {
			return 0
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return n
		}
	}
}
