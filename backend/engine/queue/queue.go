// Package queue is the life of a job at one controller: it takes jobs in, keeps windows of those that wait in its
// shards, claims them for verbs whose runners have room, has them called, and writes what their ends make of them.
//
// It must never know SQL, the ring's hash, or how a verb is called: the statements are Store and Lists, the shards come
// by OnRing, the calls are Caller. It decides nothing by the local clock: what a window says is a proposal, and the
// conditional statement of the claim decides; every end names its run, and one that is not current any more changes
// nothing. What an outcome makes of a job is package job's (Decide).
//
// On failure: a claim that is known not to be done is tried again with backoff; one without an answer is forgotten, and
// if it was done all the same, the run stands in this controller's name unknown to it: the sweep frees it, uncounted.
// An end is repeated until it is answered. What a dead controller leaves is freed by the sweep of any other one, and
// what waits in its shards is found by the next owner, at the latest by anybody when it is 5 s overdue.
//
// The files: plan.go, take.go, window.go, turns.go and heap.go are pure;
// enqueue.go, claims.go, ends.go, fetch.go, hints.go, progress.go and sweep.go have a goroutine each (or two), all of them
// started by Run.
package queue

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/engine/loop"
)

// Store is what the life of a job needs of the database. Each method is one attempt; it may be called concurrently.
//
// An error may offer `Unknown() bool`: true means that the statement may have been done all the same. Answers that
// come along with an error count.
type Store interface {
	// EnqueueJobs inserts jobs and answers each, in order. One with a run starts running in this controller's name,
	// unless its queue is paused or its verb limited.
	EnqueueJobs(ctx context.Context, batch []job.Enqueue) ([]job.Enqueued, error)
	// ClaimJobs claims ready jobs and returns those that were won. limitRef names the verb whose cluster-wide limit the
	// claims take places of, empty: none. over are the claims for which there was no place; they are ready still.
	ClaimJobs(ctx context.Context, claims []job.Claim, limitRef string) (won []job.Claimed, over []job.Claim, err error)
	// FinishJobs ends jobs for good, RetryJobs makes them ready again, or blocked until their children have ended; both
	// give back the limits' places.
	FinishJobs(ctx context.Context, ends []job.End) ([]job.Ended, error)
	RetryJobs(ctx context.Context, ends []job.End) ([]job.Ended, error)
	// PutProgress writes what runs say of themselves; of one that is over, nothing.
	PutProgress(ctx context.Context, progress []job.Progress) error
}

// Lists is what windows and sweep need of the database.
type Lists interface {
	// PutQueues makes sure that queues exist, and returns them as they are; only tenant, ref and lane are read.
	PutQueues(ctx context.Context, queues []job.Queue) ([]job.Queue, error)
	ListQueues(ctx context.Context) ([]job.Queue, error)
	// FetchWindow reads the ready jobs of some shards that are due before now + ahead, at most page of each queue after
	// its cut, in order of due time and id. The time is the database's, or zero.
	FetchWindow(ctx context.Context, cuts []job.Cut, shards []int32, ahead time.Duration, page int) ([]job.Waiting, time.Time, error)
	// FetchOverdue reads ready jobs of any shard and queue that have been due for longer than late.
	FetchOverdue(ctx context.Context, late time.Duration, page int) ([]job.Waiting, time.Time, error)
	// FetchExpired reads ready jobs of some shards that must not begin any more, also where no window shows them.
	FetchExpired(ctx context.Context, shards []int32, page int) ([]int64, error)
	// ExpireJobs ends those of the jobs that are ready and past their time to begin, and returns them, and the parents that
	// waited for the last of them.
	ExpireJobs(ctx context.Context, ids []int64) (gone []int64, woken []job.Waiting, err error)
	// FindLostJobs finds runs past their hard timeout or under a silent controller, up to some bound.
	FindLostJobs(ctx context.Context) ([]job.Lost, error)
	// FindOwnJobs finds runs in this controller's own name that began a while ago, in order of their jobs' ids, at most
	// page after one of them.
	FindOwnJobs(ctx context.Context, after int64, page int) ([]job.Claimed, error)
}

// Capacity says how many more calls the runners of a ref's live deployment would take from this controller, and which
// deployment that is; ok false: the ref is not deployed. Refs of one deployment share its room. Both are asked often,
// under a lock: they must be quick, and call nothing of this package.
type Capacity interface {
	Room(ref string) int
	Deployment(ref string) (id int64, key string, ok bool)
}

// Caller calls verbs. Call must not block, and calls done exactly once, from any goroutine but this one; the outcome
// says Requeue where no runner was given the call. Cancel asks a call to end, which done then tells.
type Caller interface {
	Call(call Call, done func(job.Outcome))
	Cancel(run cron.RunID, reason string) bool
}

// Hints reaches the first owners of other shards. Hint is best effort.
type Hints interface {
	Owner(shard int32) string // empty: there is none
	Hint(ctx context.Context, owner string, queues []int32) error
}

// Clock estimates the database's time. Both methods are called often and concurrently.
type Clock interface {
	Now() time.Time
	Error() time.Duration // how far Now may be off, in either direction
}

// Call is one run to be called.
type Call struct {
	Run            cron.RunID
	Job            job.ID
	Tenant         string
	Ref            string
	Slot           time.Time // of a job that a clock made
	Attempt        int
	Timeout        time.Duration // soft, from the start of the call
	GiveUp         time.Duration // how long to look for a runner
	Deployment     string        // key
	IdempotencyKey string        // the job's id as text
	Payload        []byte
	Envelope       []byte // JSON; nil: none
	Traceparent    string // empty unless Config.Span says otherwise
}

// Config joins a queue. Store, Lists, Capacity, Caller and Clock are required; zero values of the rest mean the default.
type Config struct {
	Store    Store
	Lists    Lists
	Capacity Capacity
	Caller   Caller
	Clock    Clock
	Hints    Hints      // nil: this controller owns everything, or the others poll
	Unswept  func() int // controllers that fell silent and may hold runs; nil: 0

	Lanes          int           // statements of each kind at a time; 2
	EnqueueJobs    int           // jobs in one insert; 1000
	EnqueueSize    int           // bytes of payloads and envelopes in one insert; 8 MiB
	MaxWaiting     int           // jobs that wait to be inserted; 100,000
	MaxWaitingSize int           // bytes of theirs; 64 MiB
	ClaimBatch     int           // 500
	EndBatch       int           // 1000
	MaxInFlight    int           // runs here, until their end is written; 20,000
	Refetch        time.Duration // queues are listed and windows read from their start; 1 s
	Ahead          time.Duration // windows hold what is due by then; 5 s
	Overdue        time.Duration // anybody may claim what is later, and looks for it so often; 5 s
	Sweep          time.Duration // lost runs are looked for; 5 s, and each second while Unswept

	Logger *slog.Logger

	// Callbacks; nil is none. They must not block.
	OnStart func(ref string, wait time.Duration) // of each run, from its due time, by the database's clock
	OnEnd   func(ref string, verdict cron.Verdict)
	OnAsked func(asked []job.Cancelling) // jobs below one that cancelled itself, which run somewhere and are to end
	Span    func(Call) (traceparent string, end func(job.Outcome))
}

func (c Config) withDefaults() Config {
	c.Lanes = cmp.Or(c.Lanes, 2)
	c.EnqueueJobs = cmp.Or(c.EnqueueJobs, 1000)
	c.EnqueueSize = cmp.Or(c.EnqueueSize, 8<<20)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 100_000)
	c.MaxWaitingSize = cmp.Or(c.MaxWaitingSize, 64<<20)
	c.ClaimBatch = cmp.Or(c.ClaimBatch, 500)
	c.EndBatch = cmp.Or(c.EndBatch, 1000)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 20_000)
	c.Refetch = cmp.Or(c.Refetch, time.Second)
	c.Ahead = cmp.Or(c.Ahead, 5*time.Second)
	c.Overdue = cmp.Or(c.Overdue, 5*time.Second)
	c.Sweep = cmp.Or(c.Sweep, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Unswept == nil {
		c.Unswept = func() int { return 0 }
	}
	return c
}

// Queue is one controller's part of the queues. Its methods may be called concurrently, also before Run.
type Queue struct {
	cfg      Config
	log      *slog.Logger
	counters counters

	mu          sync.Mutex
	plan        *plan
	ids         map[queueKey]int32  // of queues
	shards      map[int32]struct{}  // that this controller owns
	own         []int32             // the same, sorted
	intake      []*piece            // jobs to be inserted
	waiting     int                 // jobs in intake
	waitingSize int                 // bytes in intake
	outbox      []batch             // claims that are taken and not sent
	runs        map[cron.RunID]*run // from the mint of the id until the end is answered
	claims      int                 // runs whose claim or insert has no answer yet
	calls       int                 // runs that are called
	inserts     int                 // statements of the intake under way
	finishes    []waitingEnd
	retries     []waitingEnd
	sweeping    map[cron.RunID]struct{} // lost runs whose end is not answered yet
	asked       map[int32]struct{}      // windows that somebody hinted at
	hints       map[string]map[int32]struct{}
	hinting     map[string]bool   // owners that are being told
	told        map[*run]struct{} // runs whose progress is not written
	doubtAt     time.Time         // local: the last time that an outcome was unknown
	seen        micros            // the database's clock was here
	seenAt      time.Time         // local
	lead        micros            // how far the estimate was seen ahead of the database beyond its error
	leadAt      time.Time         // local
	refetch     bool              // all windows are to be read now
	wholeAt     time.Time         // before, no round reads them from their start without a reason
	loaded      bool              // they were, since the ring changed
	full        bool              // a lane waits for runs to end
	fenced      bool
	draining    bool
	closed      bool // Run has ended

	enqueueBells []loop.Bell
	claimBells   []loop.Bell
	endBells     []loop.Bell
	fetchBell    loop.Bell
	refillBell   loop.Bell
	hintBell     loop.Bell
	toldBell     loop.Bell
	quiet        loop.Bell // rings when less is in flight
}

type queueKey struct {
	tenant, ref string
	lane        int
}

// New returns a queue that owns nothing yet.
func New(cfg Config) *Queue {
	q := &Queue{
		cfg: cfg.withDefaults(), plan: newPlan(), ids: map[queueKey]int32{}, shards: map[int32]struct{}{},
		runs: map[cron.RunID]*run{}, sweeping: map[cron.RunID]struct{}{}, asked: map[int32]struct{}{},
		hints: map[string]map[int32]struct{}{}, hinting: map[string]bool{}, told: map[*run]struct{}{},
		fetchBell: loop.NewBell(), refillBell: loop.NewBell(), hintBell: loop.NewBell(), toldBell: loop.NewBell(), quiet: loop.NewBell(),
	}
	q.log = q.cfg.Logger
	for range q.cfg.Lanes {
		q.enqueueBells = append(q.enqueueBells, loop.NewBell())
		q.claimBells = append(q.claimBells, loop.NewBell())
		q.endBells = append(q.endBells, loop.NewBell())
	}
	return q
}

// Run works until ctx ends, and returns nil. Calls in flight are then not waited for (call Drain before); the ends
// that are there get one more attempt, and jobs that wait to be inserted are refused.
func (q *Queue) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for i := range q.cfg.Lanes {
		wg.Go(func() { q.enqueueLane(ctx, q.enqueueBells[i]) })
		wg.Go(func() { q.claimLane(ctx, q.claimBells[i]) })
		wg.Go(func() { q.endLane(ctx, q.endBells[i]) })
	}
	wg.Go(func() { q.keep(ctx) })
	wg.Go(func() { q.refill(ctx) })
	wg.Go(func() { q.sweep(ctx) })
	wg.Go(func() { q.tell(ctx, &wg) })
	wg.Go(func() { q.writeProgress(ctx) })
	wg.Wait()
	q.close()
	return nil
}

// OnRing sets the shards of which this controller is the first owner. The second owner keeps no window: it is the
// first of the next ring.
func (q *Queue) OnRing(first, _ []int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.own = append([]int32(nil), first...)
	gained := false
	next := make(map[int32]struct{}, len(first))
	for _, s := range first {
		next[s] = struct{}{}
		_, had := q.shards[s]
		gained = gained || !had
	}
	q.shards = next
	for _, w := range q.plan.windows {
		q.plan.dropUnseen(w, func(e *entry) bool { return !e.foreign && !q.owns(e.id) })
		w.void = w.void || w.fetching
		if gained {
			w.complete, w.upto = false, key{}
		}
	}
	if gained {
		q.loaded = false
	}
	q.refetch = true
	q.fetchBell.Ring()
}

// Hinted says that queues of this controller's shards have new jobs. It does not block.
func (q *Queue) Hinted(queues []int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range queues {
		if q.plan.windows[id] == nil {
			q.refetch = true // a queue that is not listed yet
			q.fetchBell.Ring()
			continue
		}
		q.asked[id] = struct{}{}
	}
	q.refillBell.Ring()
}

// Wake says that something has changed that claims may wait for: runners came or went, a deployment, a pause, a limit.
// Queues are listed anew. It does not block.
func (q *Queue) Wake() {
	q.mu.Lock()
	q.refetch = true
	q.mu.Unlock()
	q.fetchBell.Ring()
	loop.RingAll(q.claimBells)
}

// Heard says that somebody may have enqueued jobs from outside, by SQL: all windows are read again soon. However often it
// is said, they are read in the same rounds. It does not block.
func (q *Queue) Heard() {
	q.mu.Lock()
	q.refetch = true
	q.mu.Unlock()
	q.fetchBell.Ring()
}

// Arrived takes in jobs that have just become ready by somebody else's statement (a cancel that woke a parent, a retry by
// hand): their owners look at once. It does not block.
func (q *Queue) Arrived(jobs []job.Waiting) {
	q.mu.Lock()
	now := q.now()
	q.plan.advance(now)
	for _, j := range jobs {
		q.arrived(j.Queue, j.ID, toMicros(j.Due), toMicros(j.Expires), now)
	}
	q.mu.Unlock()
	loop.RingAll(q.claimBells)
}

// Roomier says that runners take more calls than before. It does not block.
func (q *Queue) Roomier() { loop.RingAll(q.claimBells) }

// now is the database's time as far as it has surely come; q.mu is held.
func (q *Queue) now() micros {
	now := q.rawNow()
	if q.lead > 0 && time.Since(q.leadAt) < leadFor {
		now -= q.lead
	}
	if since := time.Since(q.seenAt); since < leadFor {
		now = max(now, q.seen)
	}
	return now
}

// leadFor is how long an observation of the database's clock counts.
const leadFor = 5 * time.Second

func (q *Queue) rawNow() micros {
	return q.cfg.Clock.Now().Add(-q.cfg.Clock.Error()).UnixMicro()
}

// observe compares the estimate before a statement with the database's time during it; q.mu is held.
func (q *Queue) observe(before micros, dbNow time.Time) {
	if dbNow.IsZero() {
		return
	}
	q.seen, q.seenAt = dbNow.UnixMicro(), time.Now()
	q.lead, q.leadAt = max(0, before-q.seen), q.seenAt
}

func (q *Queue) owns(id int64) bool {
	_, ok := q.shards[shardOf(id)]
	return ok
}

func mintRunID() cron.RunID { return cron.RunID(uuid.Must(uuid.NewV7())) }
