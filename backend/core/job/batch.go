package job

import (
	"errors"
	"time"
	"unicode/utf8"

	"carillon/backend/core/cron"
)

// What engine and store hand each other, in batches.

// Queue is what an owner keeps a window of: the jobs of one tenant, ref and lane.
type Queue struct {
	ID      int32
	Tenant  string
	Ref     string
	Lane    int
	Paused  bool
	Limit   int // running jobs of the ref in the whole cluster; 0: no limit
	Running int // of the ref, where there is a limit; 0 otherwise
}

// Pause holds back what it covers, queues that come later included; an empty tenant or ref covers all.
type Pause struct {
	Tenant, Ref, Reason string
	At                  time.Time
}

// WaitingRef is a verb with jobs that nobody claims, and since when the oldest of them is due.
type WaitingRef struct {
	Ref   string
	Since time.Time
}

// Resumed is what became of a pause that was taken back.
type Resumed struct {
	Queues    int  // that go on
	WasPaused bool // there was such a pause
	Held      int  // queues that it would concern, and another pause holds
}

// Enqueue is a job on its way into the database.
type Enqueue struct {
	New
	Queue      int32
	Run        cron.RunID // start it at once, in the caller's name; zero: it becomes ready
	Deployment int64      // of the run
}

// Enqueued answers one Enqueue, in the order of the batch.
type Enqueued struct {
	ID
	Due      time.Time // zero for an existing job
	Created  time.Time // zero for an existing job
	Started  time.Time // zero: it is ready, also where a run was given but the queue is paused or limited
	Existing bool      // a key was held: the id is that of the job that came before, live or ended
	Conflict bool      // the idempotency key belongs to another request; Err says so
	Err      error     // of this job alone; its neighbours are in
}

// MadeNothing says that the answer is certain and no new job came of it: one that was there, or a refusal. A database or
// a controller that went away says nothing of the kind.
func (e Enqueued) MadeNothing() bool {
	for _, refusal := range []error{cron.ErrInvalid, cron.ErrNotFound, cron.ErrExists, cron.ErrPrecond} {
		if errors.Is(e.Err, refusal) {
			return true
		}
	}
	return e.Err == nil && e.Existing
}

// Cut is where an owner goes on reading a queue; the zero Due begins at its head.
type Cut struct {
	Queue int32
	Due   time.Time
	ID    int64
}

// Waiting is a ready job in a window.
type Waiting struct {
	ID       int64
	Queue    int32
	Shard    int32
	Priority int
	Due      time.Time
	Expires  time.Time // past it, ExpireJobs ends the job and no claim wins it
}

// Claim is a ready job that a controller wants to run.
type Claim struct {
	ID         int64
	Run        cron.RunID
	Deployment int64
}

// End is a run that is over: how it ended, and what that makes of the job.
type End struct {
	ID      int64
	Run     cron.RunID // the fence
	Outcome Outcome
	Step    Step
	Parent  int64 // of Claimed: the end of a child takes its parent's lock first
	// Progress is what the run said of itself last; empty: what stands there stays.
	Progress string
}

// Ended answers one End.
type Ended struct {
	ID  int64
	Run cron.RunID
	// Accepted: the change is in the database (now, or by an earlier try). Otherwise the run was not current any more:
	// late, refused.
	Accepted bool
	Repeated bool // it was there already; the fields below but State are unknown
	// State may differ from the step's: a cancelled job does not become ready, blocked or dead, but cancelled; and one
	// that awaits its children is ready when none lives.
	State  State
	Due    time.Time // of the next attempt
	Queue  int32
	Parent int64
	Woken  Waiting      // the parent, where this end was the one it was blocked for; zero: none
	Asked  []Cancelling // running jobs below one that ended as cancelled, which are to end now, too
}

// Progress is what a run says about itself while it executes.
type Progress struct {
	ID   int64
	Run  cron.RunID // the fence
	Text string
}

// Lost is a running job that its controller may have lost.
type Lost struct {
	Claimed
	Controller string
	TimedOut   bool // past its hard timeout; otherwise the controller fell silent
}

// Cancelling is what a cancel did: Cancelled at once, or Running with the cancel noted for the controller.
type Cancelling struct {
	ID         ID
	State      State
	Run        cron.RunID
	Controller string
	Queue      int32
	Tree       Tree // of the job that was named
}

// Tree is what a cancel did beside the job that it named: to its parent, and to the jobs below it.
type Tree struct {
	Ended int          // jobs below that waited, and ended
	Asked []Cancelling // jobs below that run
	Woken []Waiting    // the parent that waited for the job, where it was the last child
	More  bool         // the tree is larger than one call cancels: it may be made again
}

// Redriven is what a re-drive of many jobs did.
type Redriven struct {
	Jobs []Waiting // they live again
	Held int       // these stay dead: live jobs have their unique keys
	More bool      // others match
}

// Filter narrows a list of jobs; zero values narrow nothing.
type Filter struct {
	Tenant, Ref, Module, Tag string
	States                   []State
	Dead                     bool      // history: failed and not re-driven
	From, To                 time.Time // created (live) or ended (history) in [From, To)
	Parent                   ID        // its children alone
}

// Cursor is the last job of the page before; the zero cursor starts with the latest.
type Cursor struct {
	Ended time.Time // history only
	Due   time.Time // of a list in the order of due times only
	ID    int64
}

// Fault is what an end adds to the job's list of errors; ok is false where it adds nothing: a success, and a run that
// does not count.
func (e End) Fault() (verdict cron.Verdict, text string, ok bool) {
	if e.Outcome.Verdict == cron.Succeeded || !e.Step.Counted {
		return "", "", false
	}
	if e.Outcome.Verdict == "" {
		return cron.Failed, e.Outcome.Text, true
	}
	return e.Outcome.Verdict, e.Outcome.Text, true
}

// SafeProgress makes what a verb says of itself fit for SQL: valid UTF-8, no NUL, at most MaxProgress bytes.
func SafeProgress(s string) string {
	s = cron.SafeText(s)
	if len(s) <= MaxProgress {
		return s
	}
	cut := MaxProgress
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
