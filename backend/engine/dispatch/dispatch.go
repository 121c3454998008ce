// Package dispatch calls verbs: it takes a run that a controller has claimed, finds a live runner of the run's
// deployment, sends the call over that runner's stream (or as one RPC to a simple runner) and judges how it ended. A
// call is sent once: what may have reached a runner is never sent to another one, unless that runner says that it did
// not begin it.
//
// The package must never know where runs come from or where outcomes are written; it has no database, no ring and no
// schedule. Whatever a runner does (dies, hangs, lies, floods), each call ends with exactly one outcome, at the latest
// its timeout and grace after it was given here, and the memory used stays bounded.
package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"carillon/backend/core/cron"
)

// Runner is one live runner, as the cluster knows it.
type Runner struct {
	Key        string
	Endpoint   string // base URL
	Deployment string // key
	Capacity   int    // calls in flight that it announced; what its stream grants never counts for more
	Stream     bool   // it serves Attach; otherwise each call is an RPC of its own
}

// Call is one run of one verb.
type Call struct {
	Run            cron.RunID
	Ref            string
	Slot           time.Time // zero where no clock started the run
	Kind           cron.Kind
	Attempt        int
	Timeout        time.Duration // soft timeout from now on; zero is cron.DefaultTimeout
	GiveUp         time.Duration // how long to wait for a runner at most; zero: as long as Timeout
	Deployment     string        // key
	IdempotencyKey string
	Traceparent    string
	Payload        []byte
	Job, Tenant    string // of a job's run
	Envelope       []byte // JSON, of a trigger's job
}

// Outcome is how a call ended: succeeded, failed, timed_out or cancelled.
type Outcome struct {
	Verdict cron.Verdict
	Error   string // valid UTF-8 without NUL, at most cron.MaxError bytes
	Payload []byte
	Runner  string        // key of the runner that the call was sent to last; empty when none
	Sent    bool          // a runner may have begun it
	Took    time.Duration // as the runner measured it; zero when it did not say

	// What the verb of a job asked for.
	After  time.Duration // when to come again
	Final  bool          // a failure for good
	Snooze bool          // no failure: come again, not counted
	Await  bool          // the same, when all children have ended
}

// Config of a Dispatcher. Zero values take the default named beside them.
type Config struct {
	Controller string // key of this controller
	Token      string // cluster token
	Log        *slog.Logger

	Beat        time.Duration // between pings; 1 s
	Silence     time.Duration // a stream without a pong for so long is broken; 4 s
	Grace       time.Duration // how long a cancelled call may take to be answered; 2 s
	DialTimeout time.Duration // 2 s
	MaxWaiting  int           // calls of one deployment that wait for a runner; 20,000

	// Callbacks; nil is none. They must not block.
	OnRoom     func()                            // runners take more calls than before; under a lock: it calls nothing of this package
	OnProgress func(run cron.RunID, text string) // what a verb says about itself; text is safe

	// Dial replaces the network, in tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Limits of what travels.
const (
	maxMessage  = 4 << 20 // bytes of one message
	maxResult   = 1 << 20 // bytes of one verb's request or response
	maxCredits  = 100_000
	maxProgress = 1 << 10 // bytes
)

// Stats is a snapshot for metrics; InFlight, Waiting and Streams are levels, the others count since the start.
type Stats struct {
	InFlight int // given to a runner
	Waiting  int // for a runner
	Streams  int // attached
	Runners  int // known
	Sent     uint64
	Refused  uint64 // answers of runners that did not begin a call
	Unknown  uint64 // answers for calls that were not in flight at that runner: late, or garbage
	Broken   uint64 // streams that broke
}

// Dispatcher calls verbs on runners. Its methods may be called from anywhere at any time.
type Dispatcher struct {
	cfg  Config
	wake chan struct{} // an alarm or the list of runners has changed under Run

	mu      sync.Mutex
	wanted  []Runner // as given last
	changed bool     // wanted has not been looked at
	runners map[string]*runner
	pools   map[string]*pool // by deployment
	calls   map[cron.RunID]*call
	alarms  alarms
	sleeps  time.Time // Run sleeps until then
	closed  string    // why no calls are taken any more
	ended   []ended   // to be told once the lock is free
	stats   Stats
}

type ended struct {
	done func(Outcome)
	out  Outcome
}

// New is a dispatcher without runners; calls given before Run wait.
func New(cfg Config) *Dispatcher {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&cfg.Beat, time.Second)
	def(&cfg.Silence, 4*time.Second)
	def(&cfg.Grace, 2*time.Second)
	def(&cfg.DialTimeout, 2*time.Second)
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = 20_000
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.OnRoom == nil {
		cfg.OnRoom = func() {}
	}
	if cfg.OnProgress == nil {
		cfg.OnProgress = func(cron.RunID, string) {}
	}
	return &Dispatcher{
		cfg: cfg, wake: make(chan struct{}, 1), runners: map[string]*runner{}, pools: map[string]*pool{},
		calls: map[cron.RunID]*call{},
	}
}

// SetRunners replaces the list of live runners. One that is missing gets no further calls; those it has go on.
func (d *Dispatcher) SetRunners(runners []Runner) {
	d.mu.Lock()
	d.wanted, d.changed = append([]Runner(nil), runners...), true
	d.mu.Unlock()
	notify(d.wake)
}

// Dispatch gives a call to a runner, now or when one has room, and returns at once. done is called exactly once, never
// from within Dispatch, and must not block: other calls' outcomes queue behind it.
func (d *Dispatcher) Dispatch(in Call, done func(Outcome)) {
	if in.Timeout <= 0 {
		in.Timeout = cron.DefaultTimeout
	}
	if in.GiveUp <= 0 || in.GiveUp > in.Timeout {
		in.GiveUp = in.Timeout
	}
	now := time.Now()
	c := &call{Call: in, id: in.Run.String(), done: done, softAt: now.Add(in.Timeout), giveUpAt: now.Add(in.GiveUp)}
	c.alarm.index = -1
	c.alarm.call = c
	d.mu.Lock()
	switch {
	case d.closed != "":
		d.refuse(c, cron.Cancelled, d.closed)
	case malformed(in) != "":
		d.refuse(c, cron.Failed, malformed(in))
	case d.calls[in.Run] != nil:
		d.refuse(c, cron.Failed, "this run is in flight already")
	case d.pool(in.Deployment).waiting.Len() >= d.cfg.MaxWaiting:
		d.refuse(c, cron.Failed, "too many calls wait for a runner of deployment "+in.Deployment)
	default:
		d.calls[in.Run] = c
		d.set(&c.alarm, c.giveUpAt)
		p := d.pool(in.Deployment)
		c.place = p.waiting.PushBack(c)
		d.stats.Waiting++
		d.pump(in.Deployment)
	}
	d.unlockLater()
}

// Call is Dispatch for one who waits. When ctx ends the call is cancelled, and its outcome awaited all the same: it
// comes within the grace.
func (d *Dispatcher) Call(ctx context.Context, in Call) Outcome {
	out := make(chan Outcome, 1)
	d.Dispatch(in, func(o Outcome) { out <- o })
	select {
	case o := <-out:
		return o
	case <-ctx.Done():
		d.Cancel(in.Run, context.Cause(ctx).Error())
		return <-out
	}
}

// Cancel ends a call: at once if no runner has it, otherwise when its runner answers or the grace is over. It says
// whether the run was known.
func (d *Dispatcher) Cancel(run cron.RunID, reason string) bool {
	d.mu.Lock()
	c := d.calls[run]
	if c != nil {
		d.cancel(c, cron.Cancelled, reason)
	}
	d.unlockLater()
	return c != nil
}

// CancelAll ends every call as Cancel does and says how many they were. A call that ended meanwhile keeps the truth.
func (d *Dispatcher) CancelAll(reason string) int {
	d.mu.Lock()
	n := len(d.calls)
	for _, p := range d.pools { // first, so that none takes a place that the others leave
		for e := p.waiting.Front(); e != nil; e = p.waiting.Front() {
			d.cancel(e.Value.(*call), cron.Cancelled, reason)
		}
	}
	for _, c := range d.calls {
		d.cancel(c, cron.Cancelled, reason)
	}
	d.unlockLater()
	return n
}

// Reachable says whether a runner has a stream to this controller, or needs none.
func (d *Dispatcher) Reachable(runner string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.runners[runner]
	return r != nil && !r.leaving && (r.stream != nil || !r.Stream)
}

// Served says whether a deployment has a runner, busy or not.
func (d *Dispatcher) Served(deployment string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pools[deployment]
	return p != nil && slices.ContainsFunc(p.runners, func(r *runner) bool { return !r.leaving })
}

// Room is how many more calls the runners of a deployment would take at once, by what they granted. It is quick and
// tells no outcomes.
func (d *Dispatcher) Room(deployment string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pools[deployment]
	if p == nil || d.closed != "" {
		return 0
	}
	room := -p.waiting.Len()
	for _, r := range p.runners {
		if !r.resting && !r.leaving {
			room += max(r.level-r.inFlight, 0)
		}
	}
	return max(room, 0)
}

// Stats is what the metrics show.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.InFlight = len(d.calls) - s.Waiting
	s.Runners = len(d.runners)
	return s
}

// unlock frees the lock and tells the outcomes that gathered under it; for the engine's own goroutines.
func (d *Dispatcher) unlock() {
	told := d.ended
	d.ended = nil
	wake := d.changed || len(d.alarms) > 0 && d.alarms[0].at.Before(d.sleeps)
	d.mu.Unlock()
	if wake {
		notify(d.wake)
	}
	for _, e := range told {
		e.done(e.out)
	}
}

// unlockLater is unlock for callers that may hold locks of their own, which done may want.
func (d *Dispatcher) unlockLater() {
	if len(d.ended) == 0 {
		d.unlock()
		return
	}
	told := d.ended
	d.ended = nil
	d.unlock()
	go func() {
		for _, e := range told {
			e.done(e.out)
		}
	}()
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// malformed says why a call cannot be put on the wire, where it would take its neighbours down with it.
func malformed(in Call) string {
	if in.Run.IsZero() {
		return "the call has no run id"
	}
	if len(in.Payload) > maxResult {
		return fmt.Sprintf("the request of %d bytes is larger than %d", len(in.Payload), maxResult)
	}
	for _, s := range []string{in.Ref, in.Deployment, in.IdempotencyKey, in.Traceparent, in.Job, in.Tenant} {
		if len(s) > 512 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			return "the call holds a text that is too long or no text"
		}
	}
	return ""
}

// clampLevel makes a level of whatever a runner announced.
func clampLevel(credits uint32, capacity int) int {
	return int(min(uint64(credits), maxCredits, uint64(min(max(capacity, 1), math.MaxInt32))))
}
