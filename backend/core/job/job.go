// Package job holds the nouns of queued work: the job, its states and outcomes, and the pure decision what an ended run
// makes of it. It knows no I/O, no goroutine and no clock.
package job

import (
	"time"

	"carillon/backend/core/cron"
)

// Limits and defaults shared by every floor.
const (
	MaxPayload      = 1 << 20 // bytes
	MaxOutput       = 1 << 20
	MaxTags         = 16
	MaxTag          = 64  // bytes
	MaxName         = 256 // bytes of a tenant or a ref
	MaxKey          = 256 // bytes of a unique or idempotency key
	MaxAttempts     = 1000
	MaxPriority     = 1000
	MaxTimeout      = 7 * 24 * time.Hour // of one attempt, and of a backoff
	MaxErrors       = 20                 // kept of one job: the first, and the latest
	MaxProgress     = 1 << 10            // bytes
	MaxDelay        = 10 * 365 * 24 * time.Hour
	MinRest         = 100 * time.Millisecond // before a run that follows one which does not count
	DefaultAttempts = 5
	DefaultBackoff  = time.Second
	DefaultCeiling  = time.Minute * 10
	DefaultPriority = 500 // 0 to 1000, higher first
	IdempotencyKept = 24 * time.Hour
	DefaultTenant   = "default"
	ClientRef       = "client" // of the jobs that their clients run; no verb is called so
)

// State of a job. The first three are live.
type State string

const (
	Ready     State = "ready"   // waits for its due time and a runner
	Running   State = "running" // a controller has it at a runner
	Blocked   State = "blocked" // waits for its children
	Succeeded State = "succeeded"
	Failed    State = "failed" // dead: no attempt is left; may be re-driven
	Cancelled State = "cancelled"
)

// States lists all of them, in the order of the enum in SQL and proto.
var States = []State{Ready, Running, Blocked, Succeeded, Failed, Cancelled}

// Ended says that no run follows.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == Cancelled }

// ID is a job's id with the salt that makes it hard to guess.
type ID struct {
	N    int64
	Salt int32
}

// Retry is how often and how soon a failed run is repeated.
type Retry struct {
	Attempts int           // in all, the first included
	Backoff  time.Duration // before the second attempt; doubles
	Ceiling  time.Duration // of the backoff
}

// New is a job to be enqueued.
type New struct {
	Tenant      string
	Ref         string // module.verb
	Priority    int    // 0 to 1000, higher first
	Delay       time.Duration
	Due         time.Time     // the instant that Delay was computed for, where one was named
	Expires     time.Time     // no attempt begins after it; zero: never
	Within      time.Duration // the length that Expires was computed from, where one was given
	Timeout     time.Duration
	Retry       Retry
	Payload     []byte
	Tags        []string
	Unique      string        // key: one live job at a time (or one per Window)
	Window      time.Duration // of Unique; zero: while the job lives
	Idempotency string        // key: the same request again gives the same job, for 24 h
	Asked       []byte        // RequestHash of what the caller asked for, where more was added since; nil: nothing was
	Slot        time.Time     // nominal time, where a clock made it
	CronJob     int64
	TriggerID   int64      // the trigger that made it; 0: none
	Envelope    []byte     // JSON, what a trigger or its maker hands to the verb beside the request; nil: nothing
	Parent      ID         // the job whose run makes this one
	ParentRun   cron.RunID // of the parent at present: a child of a run that is over is refused
}

// Lane is the coarse class of a priority: windows are kept per lane, 4 the most urgent.
func Lane(priority int) int { return min(max(priority, 0)/200, 4) }

// Error is one failed run in a job's list.
type Error struct {
	At      time.Time `json:"at"`
	Started time.Time `json:"started,omitzero"` // when that run began; zero: none had
	Attempt int       `json:"attempt"`
	Run     string    `json:"run,omitempty"`
	Verdict string    `json:"verdict"`
	Text    string    `json:"text"`
}

// Job is a job as people see it, live or ended.
type Job struct {
	ID
	Tenant, Ref string
	State       State
	Priority    int
	Due         time.Time
	Created     time.Time
	Started     time.Time // of the present or last run
	Ended       time.Time
	Expires     time.Time
	Slot        time.Time
	Attempt     int
	Retry       Retry
	Timeout     time.Duration
	Run         cron.RunID
	Controller  string
	Parent      ID
	Children    int // that have not ended
	Progress    string
	Tags        []string
	Payload     []byte
	Output      []byte
	Errors      []Error
	CancelAsked bool
	TriggerID   int64  // 0: none made it
	Envelope    []byte // JSON; nil: none. Of an ended job without what it was made of: event and payload
}

// Claimed is a job whose run begins here.
type Claimed struct {
	ID
	Ref     string
	Tenant  string
	Queue   int32
	Run     cron.RunID
	Attempt int
	Retry   Retry
	Timeout time.Duration
	Slot    time.Time
	Due     time.Time
	Created time.Time
	Started time.Time
	Expires time.Time // no attempt begins after it; zero: never
	Parent  int64     // that counts it as a child; 0: none
	Payload []byte
	Limited bool // the run holds a place of its verb's limit; the store gives it back

	TriggerID int64  // the trigger that made it; 0: none
	Envelope  []byte // JSON; nil: none

	CancelAsked bool // somebody cancelled the job while the run was in flight
}

// Outcome is how one run of a job ended, as the verb or the dispatcher said it.
type Outcome struct {
	Verdict cron.Verdict // succeeded, failed, timed_out, lost, cancelled
	Text    string
	Output  []byte
	After   time.Duration // the verb asked for its next attempt after this (snooze, retry after); zero or less: not said
	Final   bool          // the verb said: fail for good
	Snooze  bool          // not a failure: come again, the attempt is not counted
	Await   bool          // not a failure: come again when all children have ended, the attempt is not counted
	Requeue bool          // it never began: no room, drain, fence; not counted
}

// Step is what an outcome makes of a job: an end for good, or another attempt.
type Step struct {
	State   State         // Succeeded, Failed, Cancelled, Ready for another attempt, or Blocked until its children have ended
	Delay   time.Duration // before it
	Counted bool          // whether the run counts as an attempt
}
