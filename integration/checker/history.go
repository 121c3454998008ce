// Package checker judges what a cluster did: it compares the ledger with a brute-force oracle over every second and
// with the records that the runners wrote themselves, and names every way in which a promise was broken.
//
// It is pure and shares nothing with the product: no cron code, no SQL, no clock. All times of a history must come from
// one clock (the database's; on one machine the runners' wall clock is the same). A history that is incomplete gives
// violations, never silence: what was not witnessed did not happen. check_test.go says how we know that the checker
// itself can be believed: it finds every one of some thousands of mutants, and nothing in as many clean histories.
package checker

import (
	"fmt"
	"time"
)

// Kind of a violation.
type Kind string

const (
	Lost        Kind = "LOST"         // a slot without a verdict
	Ambiguous   Kind = "AMBIGUOUS"    // a slot with more than one verdict
	DupEffect   Kind = "DUP_EFFECT"   // a verb begun more than once for one slot or run
	Forged      Kind = "FORGED"       // a success that the runner did not see
	Early       Kind = "EARLY"        // a start or a begin before the slot
	Late        Kind = "LATE"         // a start long after the slot, and nothing excuses it
	Ghost       Kind = "GHOST"        // a run, skip or effect that should not exist
	Overlap     Kind = "OVERLAP"      // two executions of one verb at once, the older not given up before
	Zombie      Kind = "ZOMBIE"       // an end accepted from somebody who was dead, frozen or had ended it already
	DoubleClaim Kind = "DOUBLE_CLAIM" // two runs of one cron job current at once
	Wedged      Kind = "WEDGED"       // a row that nobody looks after
	Excuse      Kind = "EXCUSE"       // a skip, loss, failure or timeout without its reason
)

// Violation is one broken promise.
type Violation struct {
	Kind Kind
	Ref  string
	Slot time.Time // zero where it is about no slot
	Text string
}

func (v Violation) String() string {
	slot := ""
	if !v.Slot.IsZero() {
		slot = " slot " + v.Slot.UTC().Format("15:04:05.999999")
	}
	return fmt.Sprintf("%s %s%s: %s", v.Kind, v.Ref, slot, v.Text)
}

// History is what is known of a time in a cluster's life.
type History struct {
	Jobs    []Job
	Rows    []Row    // the ledger
	Records []Record // of all runners
	Faults  []Fault
	Final   []Final  // the rows of cron jobs when the ledger was read; every job must have one
	Samples []Sample // of a watcher during the run

	Read    time.Time     // when the ledger was read
	Epsilon time.Duration // a start may be so late without an excuse; 1 s
}

// Job is a cron job as its deployer asked for it.
type Job struct {
	Ref     string
	Timeout time.Duration // soft; a timed_out run must have lasted so long
	Eras    []Era         // in order; before the first there is no schedule
	Pauses  []Pause       // pauses, scales to 0, set asides
	MayFail bool          // its verb fails on purpose, or its runner is not there
}

// Era is a schedule and when it came into force: after Asked, at the latest at Acked. Both possibilities are allowed
// in between.
type Era struct {
	Asked, Acked time.Time
	Match        func(time.Time) bool // of whole seconds; nil: no schedule (the verb was removed)
}

// Pause is a time in which the clock may start nothing, as acknowledged. Zero ResumeAsked: it goes on.
type Pause struct {
	Asked, Acked             time.Time
	ResumeAsked, ResumeAcked time.Time
}

// Row is a row of the ledger: a run, or with RunID empty a range of skipped slots.
type Row struct {
	Ref                string
	Slot, SlotTo       time.Time
	Count              int
	RunID              string
	Manual             bool
	Controller         string
	StartedAt, EndedAt time.Time
	Verdict            string
	Error              string
}

// Record is a line of a runner: a verb began, or ended with the error Err.
type Record struct {
	Runner string
	Begin  bool
	Ref    string
	RunID  string
	Slot   time.Time
	At     time.Time
	Err    string
}

// FaultKind says what was done to the cluster.
type FaultKind string

const (
	Kill       FaultKind = "kill"        // of a controller, for good
	Freeze     FaultKind = "freeze"      // SIGSTOP of a controller until To
	Drain      FaultKind = "drain"       // SIGTERM to a controller
	Outage     FaultKind = "outage"      // of Postgres or its connections
	RunnerDown FaultKind = "runner down" // no runner, or a broken one
	Load       FaultKind = "load"        // the machine was made busy
)

// Fault is something that was done to the cluster, and how long it needs to recover from it.
type Fault struct {
	Kind       FaultKind
	From, To   time.Time
	Controller string        // key, of kill, freeze and drain
	Module     string        // whose runner; empty: all
	Runner     string        // key, where one was killed
	Recovery   time.Duration // excuses lateness and missed slots for so long after To
}

// Final is the row of a cron job at the end.
type Final struct {
	Ref       string
	Next      time.Time // first undecided slot; zero: none
	Enabled   bool
	Executing bool
	Slot      time.Time // of the run in flight
	RunID     string
	OwnerLive bool // of the run in flight: the controller's heartbeats go on
}

// Sample is a row that a watcher found stuck beyond its bound while the cluster could have done something about it.
type Sample struct {
	At   time.Time
	Ref  string
	Text string
}

// Every is a schedule of every so many seconds of the Unix time, from phase on.
func Every(seconds, phase int64) func(time.Time) bool {
	return func(t time.Time) bool { return t.Unix()%seconds == phase }
}
