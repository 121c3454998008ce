// Package cron holds the nouns of the clock: the cron job, its run, the claim and the end of a slot, and the pure
// decision which slot a claim takes and which it skips. It knows no I/O, no goroutine and no clock: `now` is always
// the database's time, handed in.
package cron

import (
	"encoding/hex"
	"fmt"
	"time"
)

// Limits and defaults shared by every floor.
const (
	DefaultTimeout = 5 * time.Minute  // soft timeout of a call (seed 003)
	HardGrace      = time.Minute      // a run is timed out for good this long after its soft timeout (seed 003)
	NoneWindow     = 15 * time.Second // catchup none skips what is older
	AllBacklog     = 100              // catchup all runs at most so many missed slots
	MaxCount       = 100_000          // a count of skipped slots stops here and says so
	MaxError       = 8 << 10          // bytes of an error text that enter SQL
	MaxLive        = 1000             // live jobs of one cron job; while there are so many its slots are skipped
)

// State of a cron job's row.
type State string

const (
	Idle      State = "idle"
	Executing State = "executing"
)

// Kind of a run: started by its slot, or by a person.
type Kind string

const (
	SlotRun   Kind = "slot"
	ManualRun Kind = "manual"
)

// Catchup is the policy for missed slots.
type Catchup string

const (
	CatchupLast Catchup = "last" // run the latest, skip the ones before
	CatchupNone Catchup = "none" // skip what is more than NoneWindow old
	CatchupAll  Catchup = "all"  // run all, oldest first, at most AllBacklog
)

// Overlap is the policy for slots that come while a run executes, or while jobs of earlier slots live.
type Overlap string

const (
	OverlapSkip   Overlap = "skip"   // the default: such slots are skipped_overlap
	OverlapQueue  Overlap = "queue"  // a job each, one runs at a time
	OverlapAllow  Overlap = "allow"  // a job each, side by side
	OverlapCancel Overlap = "cancel" // a job each, those before it are cancelled
)

// Retry is how often and how soon a failed run of a job is repeated; package job's Retry converts to it and from it.
type Retry struct {
	Attempts int           // in all, the first included
	Backoff  time.Duration // before the second attempt; doubles
	Ceiling  time.Duration // of the backoff
}

// Made names a job that a slot became; package job's ID converts to it and from it. The zero value is none.
type Made struct {
	N    int64
	Salt int32
}

// Verdict is how a slot ended; empty while it has not.
type Verdict string

const (
	Succeeded      Verdict = "succeeded"
	Failed         Verdict = "failed"
	TimedOut       Verdict = "timed_out"
	Lost           Verdict = "lost"
	Fired          Verdict = "fired"
	SkippedOverlap Verdict = "skipped_overlap"
	SkippedMissed  Verdict = "skipped_missed"
	SkippedPaused  Verdict = "skipped_paused"
	Cancelled      Verdict = "cancelled"
)

// Verdicts lists all of them, in the order of the enum in SQL and proto.
var Verdicts = []Verdict{Succeeded, Failed, TimedOut, Lost, Fired, SkippedOverlap, SkippedMissed, SkippedPaused, Cancelled}

// RunID is a UUIDv7 minted by the claiming controller: the fence that every later write must carry.
// The zero value is no run.
type RunID [16]byte

// IsZero says that this is no run.
func (id RunID) IsZero() bool { return id == RunID{} }

// String is the usual form with hyphens; empty for no run.
func (id RunID) String() string {
	if id.IsZero() {
		return ""
	}
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// MarshalText makes logs and JSON show the usual form.
func (id RunID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// ParseRunID reads the form that String writes.
func ParseRunID(s string) (RunID, error) {
	var id RunID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, fmt.Errorf("%q is no run id", s)
	}
	raw := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(id[:], []byte(raw)); err != nil {
		return RunID{}, fmt.Errorf("%q is no run id", s)
	}
	return id, nil
}

// Job is a row that the clock starts. Times are the database's; the zero time stands for NULL.
type Job struct {
	ID         int64
	Ref        string // module.verb
	Shard      int32
	Version    int64 // grows with every change of what a claim is computed from
	Enabled    bool
	State      State
	Next       time.Time // first undecided slot; zero: exhausted or removed
	Schedule   string
	Zone       string // IANA name, empty is UTC
	Timeout    time.Duration
	Catchup    Catchup
	Overlap    Overlap
	Fires      bool   // it never executes: its slots become jobs, with Timeout and Retry
	Retry      Retry  // of such jobs
	Trigger    int64  // whose row this is; 0: a verb's
	Limited    bool   // its firings count for a limit of its worker
	Deployment string // key of the live deployment
	PausedAt   time.Time
	RemovedAt  time.Time
	SetAsideAt time.Time
	Current    Run // the run in flight while executing, the last one while idle
}

// Run is one attempt of a slot, or (in the ledger) a range of skipped slots: then RunID is zero.
type Run struct {
	ID         RunID
	JobID      int64
	Ref        string
	Slot       time.Time
	SlotTo     time.Time // last slot of a range; Slot for a run
	Count      int       // skipped slots; MaxCount stands for that many or more
	Kind       Kind
	Attempt    int
	Deployment string // key; the one that the claim meant
	Controller string
	StartedAt  time.Time
	DeadlineAt time.Time // hard timeout, while executing
	EndedAt    time.Time
	Verdict    Verdict // empty while executing
	Error      string
	Made       Made // the job that a fired slot became
}

// Lateness is how long after its slot a run started; zero for ranges.
func (r Run) Lateness() time.Duration {
	if r.StartedAt.IsZero() {
		return 0
	}
	return r.StartedAt.Sub(r.Slot)
}

// Range is a range of slots that are decided without a run; the zero Range is none.
type Range struct {
	From, To time.Time // first and last slot
	Count    int       // slots in it; MaxCount stands for that many or more
}

// IsZero says that there is nothing to skip.
func (r Range) IsZero() bool { return r.From.IsZero() }

// Claim is one row of StartCronJobs: what the caller computed from the row, and the run that shall start.
type Claim struct {
	JobID    int64
	Version  int64
	Expected time.Time // next_execution as the caller knows it: the first undecided slot
	Slot     time.Time // the slot to run; zero: run none, skip only
	Skip     Range     // missed slots before it
	Next     time.Time // first undecided slot afterwards; zero: none
	RunID    RunID
	Fires    bool // of the row at Version: the slot becomes a job (FireCronJobs)
	Cancels  bool // and those of the slots before it are cancelled
	Limited  bool // and it counts for a limit
}

// Claimed is a claim that was won.
type Claimed struct {
	JobID      int64
	StartedAt  time.Time
	DeadlineAt time.Time
}

// Firing answers a claim that was won by a row that fires.
type Firing struct {
	JobID     int64 // of the cron job
	Ref       string
	RunID     RunID // of the claim; the ledger has it
	Slot      time.Time
	At        time.Time // when it fired, by the database's clock
	Made      Made      // the job; zero: the slot was skipped, for jobs of earlier slots live
	Queue     int32     // the job's
	Due       time.Time // the job's, where a limit of its worker put it off; zero: at once
	Cancelled []CancelledRun
}

// CancelledRun is a run of an earlier slot's job whose cancel was noted by a firing: its controller is to be told.
type CancelledRun struct {
	Made       Made
	Run        RunID
	Controller string
}

// End is one row of EndCronJobs.
type End struct {
	JobID   int64
	RunID   RunID
	Slot    time.Time // of the run; finds its ledger row when the end is repeated
	Verdict Verdict
	Error   string
	Version int64     // the version that Overlap was computed from
	Overlap Range     // slots that came while it ran; zero: leave them to the next claim
	Next    time.Time // first undecided slot after Overlap
}

// Ended answers one End.
type Ended struct {
	JobID int64
	RunID RunID
	// Accepted: the end is in the ledger (now, or by an earlier try). Otherwise the run was not current any more: a
	// late end, refused.
	Accepted bool
	// Repeated: it was in the ledger already; the fields below are unknown.
	Repeated bool
	Next     time.Time
	Version  int64
	Enabled  bool
	Skipped  bool // Overlap was applied
}
