package carillon

import (
	"encoding/json"
	"fmt"
	"time"

	carillonv1 "carillon/proto/carillon/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// JobID names a job. It cannot be guessed.
type JobID string

// JobState is where a job is in its life.
type JobState string

const (
	JobReady     JobState = "ready"   // waits for its time and for a runner
	JobRunning   JobState = "running" // a runner does it
	JobBlocked   JobState = "blocked" // waits for its children
	JobSucceeded JobState = "succeeded"
	JobFailed    JobState = "failed" // dead: no attempt is left; Retry makes it live again
	JobCancelled JobState = "cancelled"
)

// Ended says that no run follows, unless somebody makes a dead job live again.
func (s JobState) Ended() bool { return s == JobSucceeded || s == JobFailed || s == JobCancelled }

// jobStates are in the order of the contract's enum.
var jobStates = []JobState{"", JobReady, JobRunning, JobBlocked, JobSucceeded, JobFailed, JobCancelled}

// Job is a job as the cluster knows it, live or ended. Times that are not there are zero.
type Job struct {
	ID          JobID
	Tenant, Ref string
	State       JobState
	Priority    int
	Due         time.Time
	Created     time.Time
	Started     time.Time // of the present or the last run
	Ended       time.Time
	Expires     time.Time
	Slot        time.Time // where a clock made it
	Attempt     int
	Attempts    int // at most
	Backoff     time.Duration
	Ceiling     time.Duration // of the backoff
	Timeout     time.Duration // of one attempt
	Run         string        // id of the present or the last run
	Controller  string
	Parent      JobID
	Children    int // that have not ended
	Progress    string
	Tags        []string
	Payload     json.RawMessage // not in lists
	Output      json.RawMessage // not in lists
	Errors      []Failure       // at most 20: the first, and the latest
	CancelAsked bool
}

// Failure is one failed run of a job.
type Failure struct {
	At      time.Time
	Attempt int
	Run     string
	Verdict string // failed, timed_out, lost
	Text    string
}

// JobError is the end of a job that did not succeed.
type JobError struct {
	ID    JobID
	Ref   string
	State JobState // JobFailed or JobCancelled
	Last  Failure  // the last failed run; zero if none failed
}

func (e *JobError) Error() string {
	text := fmt.Sprintf("job %s (%s) %s", e.ID, e.Ref, e.State)
	if e.Last.Text != "" {
		text += ": " + e.Last.Text
	}
	return text
}

// err is why an ended job did not succeed; nil if it did.
func (j Job) err() error {
	if j.State == JobSucceeded {
		return nil
	}
	e := &JobError{ID: j.ID, Ref: j.Ref, State: j.State}
	if n := len(j.Errors); n > 0 {
		e.Last = j.Errors[n-1]
	}
	return e
}

func fromJob(j *carillonv1.Job) Job {
	out := Job{
		ID: JobID(j.GetId()), Tenant: j.GetTenant(), Ref: j.GetRef(), Priority: int(j.GetPriority()),
		Due: fromStamp(j.GetDueAt()), Created: fromStamp(j.GetCreatedAt()), Started: fromStamp(j.GetStartedAt()),
		Ended: fromStamp(j.GetEndedAt()), Expires: fromStamp(j.GetExpiresAt()), Slot: fromStamp(j.GetSlot()),
		Attempt: int(j.GetAttempt()), Attempts: int(j.GetMaxAttempts()),
		Backoff: j.GetBackoff().AsDuration(), Ceiling: j.GetBackoffCeiling().AsDuration(), Timeout: j.GetTimeout().AsDuration(),
		Run: j.GetRunId(), Controller: j.GetController(), Parent: JobID(j.GetParentId()), Children: int(j.GetChildren()),
		Progress: j.GetProgress(), Tags: j.GetTags(), Payload: j.GetPayload(), Output: j.GetOutput(), CancelAsked: j.GetCancelAsked(),
	}
	if s := int(j.GetState()); s >= 0 && s < len(jobStates) {
		out.State = jobStates[s]
	}
	for _, e := range j.GetErrors() {
		out.Errors = append(out.Errors, Failure{
			At: fromStamp(e.GetAt()), Attempt: int(e.GetAttempt()), Run: e.GetRunId(), Verdict: e.GetVerdict(), Text: e.GetText(),
		})
	}
	return out
}

// fromStamp leaves an unset time zero.
func fromStamp(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// stamp leaves the zero time unset.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
