package trigger

import (
	"strings"
	"time"

	"carillon/backend/core/cron"
)

// Status of a job, in the words of the API.
type Status string

const (
	Queued  Status = "queued"
	Running Status = "running" // between two attempts, too
	Done    Status = "done"
	Errored Status = "errored"
)

// Ran is what one job tells about its trigger.
type Ran struct {
	ID      string
	Status  Status
	Started time.Time // of its first attempt; zero: not yet
	Error   string    // the last one
	Manual  bool
}

// ErrorText is the error of one attempt in the words of the API: running out of time is an error as any other.
func ErrorText(verdict cron.Verdict, text string) string {
	if verdict != cron.TimedOut {
		return text
	}
	if said, ok := strings.CutPrefix(text, "timed out: "); ok {
		return said
	}
	return "context deadline exceeded" // what the document shows
}

// State is how a trigger fares, by all of its jobs that are kept. What has not been is absent.
type State struct {
	TriggerID           string    `json:"trigger_id,omitempty"`
	Status              Status    `json:"status"` // of the newest job; done: there is none
	LastExecution       time.Time `json:"last_execution,omitzero"`
	LastExecutedJobID   string    `json:"last_executed_job_id,omitempty"`
	LastSuccess         time.Time `json:"last_success,omitzero"`
	LastSuccessfulJobID string    `json:"last_successful_job_id,omitempty"`
	LastFailure         time.Time `json:"last_failure,omitzero"`
	LastFailedJobID     string    `json:"last_failed_job_id,omitempty"`
	LastError           string    `json:"last_error,omitempty"` // of the last failure, kept after a later success
	LastManualExecution time.Time `json:"last_manual_execution,omitzero"`
	LastManualJobID     string    `json:"last_manual_job_id,omitempty"`
}

// StateOf sums up a trigger's jobs, the oldest first.
func StateOf(trigger string, jobs []Ran) State {
	s := State{TriggerID: trigger, Status: Done}
	for _, j := range jobs {
		s.Add(j)
	}
	return s
}

// Add takes in a job that is newer than all before it.
func (s *State) Add(j Ran) {
	started := j.Started.UTC()
	s.Status = j.Status
	s.LastExecution, s.LastExecutedJobID = started, j.ID
	switch j.Status {
	case Done:
		s.LastSuccess, s.LastSuccessfulJobID = started, j.ID
	case Errored:
		s.LastFailure, s.LastFailedJobID, s.LastError = started, j.ID, j.Error
	}
	if j.Manual {
		s.LastManualExecution, s.LastManualJobID = started, j.ID
	}
}

// Duplicates says whether the duplicate report names two triggers: they would make the same jobs at the same times, for
// the same domain. Of two @in triggers each has its own time.
func Duplicates(a, b Trigger) bool {
	return a.Kind != In && a.Kind == b.Kind && a.Worker == b.Worker && a.Arguments == b.Arguments && a.Debounce == b.Debounce &&
		a.Tenant == b.Tenant && a.Domain == b.Domain && a.TimeZone == b.TimeZone && string(a.Message) == string(b.Message)
}
