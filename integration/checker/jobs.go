package checker

import (
	"time"
)

// Kinds that only a queue of jobs has; Lost, Ambiguous and the others mean there what they say of slots.
const (
	Miscounted Kind = "MISCOUNTED" // attempts, or places of a limit, that do not add up
	Overbooked Kind = "OVERBOOKED" // more runs of a verb at once than its limit
)

// Work is what is known of a time in the life of a job queue.
type Work struct {
	Asks    []Ask
	Acks    []Ack
	Cancels []Cancel
	Live    []LiveJob
	Ended   []EndedJob
	Doings  []Doing
	Limits  []Limit
	Faults  []Fault
	Paused  []string  // refs that are held back when the tables are read
	Read    time.Time // when the tables were read, in one snapshot
	Settled bool      // somebody waited until all was done: what is due and not paused may not be live
}

// Ask is a job that somebody wants exactly one of. Asks and acknowledgements of the same mark are the same job.
type Ask struct {
	Mark     string
	Ref      string
	At       time.Time
	Delay    time.Duration
	Attempts int
	Backoff  time.Duration // before the second attempt; doubles up to Ceiling, a tenth less at the least
	Ceiling  time.Duration
	Timeout  time.Duration
	Parent   string // mark
}

// Ack is an answer that named a job.
type Ack struct {
	Mark     string
	ID       int64
	Existing bool // it was there before
	At       time.Time
}

// Cancel is an acknowledged wish that a job ends. Ended: it was answered that the job is cancelled already.
type Cancel struct {
	ID    int64
	Asked time.Time
	Ended bool
}

// LiveJob is a row of the live table.
type LiveJob struct {
	ID        int64
	Mark, Ref string
	State     string
	Due       time.Time
	Attempt   int
	Parent    int64
	Children  int
	Limited   bool
	Run       string
	OwnerLive bool // the controller of the run is alive
}

// EndedJob is a row of the history.
type EndedJob struct {
	ID         int64
	Mark, Ref  string
	State      string
	Ended      time.Time
	Attempt    int
	Parent     int64
	Run        string // the last one
	Controller string
	Errors     []JobError
	Redriven   bool
}

// JobError is one entry of a job's list; Run is empty where no run had it.
type JobError struct {
	At      time.Time
	Attempt int
	Run     string
	Verdict string
	Text    string
}

const keptErrors = 20 // of longer lists the checker knows only parts

// Doing is a line of a runner: the run of a job began, or ended as Said: ok, fail, final, after, snooze, await, cancel
// or cut (its context ended).
type Doing struct {
	Runner  string
	Begin   bool
	Run     string
	Ref     string
	Job     int64
	Attempt int
	At      time.Time
	Said    string
	Wait    time.Duration // asked for by after and snooze
}

// Limit is a look at a verb's cluster-wide bound, in one snapshot.
type Limit struct {
	At      time.Time
	Ref     string
	Max     int
	Running int // what the limit counts
	Rows    int // running rows that hold a place
}
