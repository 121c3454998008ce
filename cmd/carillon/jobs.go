package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
)

// jobsCmd groups what is about the job queue.
type jobsCmd struct {
	Enqueue jobsEnqueueCmd `cmd:"" help:"Enqueue a job, or a file of them."`
	Ls      jobsLsCmd      `cmd:"" help:"List jobs: the live ones first, then those that ended, latest first."`
	Show    jobsShowCmd    `cmd:"" help:"Show all that is known of one job."`
	Watch   jobsWatchCmd   `cmd:"" help:"Follow one job until it has ended."`
	Cancel  jobsCancelCmd  `cmd:"" help:"Cancel jobs: waiting ones at once, the verbs of running ones are asked to end."`
	Retry   jobsRetryCmd   `cmd:"" help:"Make jobs that wait for their time due now, and dead ones live again."`
	Pause   jobsPauseCmd   `cmd:"" help:"Hold back the jobs of a verb or a tenant; what runs goes on."`
	Resume  jobsResumeCmd  `cmd:"" help:"Take a pause back."`
	Dead    jobsDeadCmd    `cmd:"" help:"List dead jobs: those that failed for good and were not re-driven."`
	Redrive jobsRedriveCmd `cmd:"" help:"Make dead jobs live again, with all their attempts."`
	Queues  jobsQueuesCmd  `cmd:"" help:"List the queues and the pauses."`
}

// someJobs is the argument of the commands about jobs by their ids.
type someJobs struct {
	IDs []string `arg:"" name:"id" help:"The jobs' ids, as 'jobs enqueue' and 'jobs ls' print them."`
}

// jobJSON is a job for programs. Payload and output are what they are in JSON.
type jobJSON struct {
	ID             string          `json:"id"`
	Ref            string          `json:"ref"`
	Tenant         string          `json:"tenant"`
	State          string          `json:"state"`
	Priority       int32           `json:"priority"`
	CreatedAt      *string         `json:"created_at"`
	DueAt          *string         `json:"due_at"`
	StartedAt      *string         `json:"started_at"`
	EndedAt        *string         `json:"ended_at"`
	ExpiresAt      *string         `json:"expires_at"`
	Slot           *string         `json:"slot"`
	Attempt        int32           `json:"attempt"`
	MaxAttempts    int32           `json:"max_attempts"`
	Backoff        string          `json:"backoff"`
	BackoffCeiling string          `json:"backoff_ceiling"`
	Timeout        string          `json:"timeout"`
	RunID          string          `json:"run_id"`
	Controller     string          `json:"controller"`
	ParentID       string          `json:"parent_id"`
	Children       int32           `json:"children"`
	Progress       string          `json:"progress"`
	Tags           []string        `json:"tags"`
	CancelAsked    bool            `json:"cancel_asked"`
	WaitingFor     string          `json:"waiting_for"` // a deployment, a verb, a runner; empty: none of these
	Errors         []jobErrorJSON  `json:"errors"`
	Payload        json.RawMessage `json:"payload"`
	Output         json.RawMessage `json:"output"`
}

type jobErrorJSON struct {
	At      *string `json:"at"`
	Attempt int32   `json:"attempt"`
	RunID   string  `json:"run_id"`
	Verdict string  `json:"verdict"`
	Text    string  `json:"text"`
}

func jobRow(j *carillonv1.Job) jobJSON {
	return jobJSON{
		ID: j.GetId(), Ref: j.GetRef(), Tenant: j.GetTenant(), State: stateName(j.GetState()), Priority: j.GetPriority(),
		CreatedAt: stamp(j.GetCreatedAt()), DueAt: stamp(j.GetDueAt()), StartedAt: stamp(j.GetStartedAt()), EndedAt: stamp(j.GetEndedAt()),
		ExpiresAt: stamp(j.GetExpiresAt()), Slot: stamp(j.GetSlot()), Attempt: j.GetAttempt(), MaxAttempts: j.GetMaxAttempts(),
		Backoff: lengthText(j.GetBackoff()), BackoffCeiling: lengthText(j.GetBackoffCeiling()), Timeout: lengthText(j.GetTimeout()),
		RunID: j.GetRunId(), Controller: j.GetController(), ParentID: j.GetParentId(), Children: j.GetChildren(), Progress: j.GetProgress(),
		Tags: append([]string{}, j.GetTags()...), CancelAsked: j.GetCancelAsked(), WaitingFor: j.GetWaitingFor(), Payload: jsonValue(j.GetPayload()), Output: jsonValue(j.GetOutput()),
		Errors: list(j.GetErrors(), func(e *carillonv1.JobError) jobErrorJSON {
			return jobErrorJSON{stamp(e.GetAt()), e.GetAttempt(), e.GetRunId(), e.GetVerdict(), e.GetText()}
		}),
	}
}

// jsonValue passes JSON through; nothing is null, and what is no JSON becomes a text.
func jsonValue(b []byte) json.RawMessage {
	switch {
	case len(b) == 0:
		return json.RawMessage("null")
	case json.Valid(b):
		return b
	}
	text, _ := json.Marshal(string(b))
	return text
}

func lengthText(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return d.AsDuration().String()
}

func stateName(s carillonv1.JobState) string { return word(s.String(), "JOB_STATE_") }

// jobEnded says that no run of a job follows.
func jobEnded(s carillonv1.JobState) bool {
	return s == carillonv1.JobState_JOB_STATE_SUCCEEDED || s == carillonv1.JobState_JOB_STATE_FAILED || s == carillonv1.JobState_JOB_STATE_CANCELLED
}

// parseState reads a state's name.
func parseState(name string) (carillonv1.JobState, error) {
	s, ok := carillonv1.JobState_value["JOB_STATE_"+strings.ToUpper(name)]
	if !ok || s == 0 {
		var known []string
		for n := int32(1); n < int32(len(carillonv1.JobState_name)); n++ {
			known = append(known, stateName(carillonv1.JobState(n)))
		}
		return 0, usage{mend(fmt.Errorf("unknown state %q", name), "one of %s", strings.Join(known, ", "))}
	}
	return carillonv1.JobState(s), nil
}

// explainJob says which job is not there, in the same words whatever was tried. Other errors keep theirs.
func explainJob(tried, id string, err error) error {
	switch code := connect.CodeOf(err); {
	case code == connect.CodeNotFound:
		return mend(rephrased{fmt.Sprintf("%s %s: there is none", tried, clean(id, 80)), err}, "`carillon jobs ls` lists the jobs that are kept")
	case code == connect.CodeInvalidArgument && (strings.Contains(err.Error(), "is no job id") || strings.Contains(err.Error(), ": id: value ")):
		return mend(rephrased{fmt.Sprintf("%s: %q is no job id", tried, clean(id, 80)), err}, "an id looks like j10jva1x4; `carillon jobs ls` lists them")
	}
	return fmt.Errorf("%s %s: %w", tried, clean(id, 80), err)
}

func stateColour(s carillonv1.JobState) string {
	switch s {
	case carillonv1.JobState_JOB_STATE_SUCCEEDED:
		return green
	case carillonv1.JobState_JOB_STATE_FAILED:
		return red
	case carillonv1.JobState_JOB_STATE_RUNNING:
		return blue
	}
	return yellow
}

// stateCell is the state of a job for a person, and what is under way.
func stateCell(j *carillonv1.Job) string {
	name := stateName(j.GetState())
	switch {
	case j.GetState() == carillonv1.JobState_JOB_STATE_FAILED:
		return "failed (dead)"
	case j.GetState() == carillonv1.JobState_JOB_STATE_RUNNING && j.GetCancelAsked():
		return name + " (cancel asked)"
	case j.GetState() == carillonv1.JobState_JOB_STATE_BLOCKED:
		return fmt.Sprintf("%s (%s)", name, children(j))
	case j.GetWaitingFor() != "":
		return name + " (cannot run)" // `jobs show` says why
	}
	return name
}

func children(j *carillonv1.Job) string {
	if j.GetChildren() == 1 {
		return "1 child"
	}
	return fmt.Sprintf("%d children", j.GetChildren())
}

func attemptCell(j *carillonv1.Job) string {
	return fmt.Sprintf("%d/%d", j.GetAttempt(), j.GetMaxAttempts())
}

// latestError is what the last failed run said; empty for none.
func latestError(j *carillonv1.Job) string {
	if n := len(j.GetErrors()); n > 0 {
		return j.GetErrors()[n-1].GetText()
	}
	return ""
}

// jobTook is how long the last run of an ended job took.
func jobTook(j *carillonv1.Job) string {
	if j.GetStartedAt() == nil || j.GetEndedAt() == nil {
		return "-"
	}
	return took(j.GetEndedAt().AsTime().Sub(j.GetStartedAt().AsTime()))
}

// ago says how far an instant is from now: "3m0s ago", "in 12s". Empty when it is not set.
func ago(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return ""
	}
	d := now.Sub(t.AsTime())
	switch {
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return "in " + coarse(-d)
	}
	return coarse(d) + " ago"
}

// coarse is a length of time in its one or two largest units.
func coarse(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/day)
}

func jobTable(a *app, jobs []*carillonv1.Job, now time.Time) {
	a.table([]string{"job", "ref", "tenant", "state", "attempt", "due", "created (UTC)", "ended (UTC)", "took", "error"},
		list(jobs, func(j *carillonv1.Job) []string {
			due := "-"
			if !jobEnded(j.GetState()) {
				due = ago(j.GetDueAt(), now)
			}
			return []string{j.GetId(), clean(j.GetRef(), 60), clean(j.GetTenant(), 30), a.paint(stateColour(j.GetState()), stateCell(j)), attemptCell(j), due,
				when(j.GetCreatedAt()), when(j.GetEndedAt()), jobTook(j), clean(latestError(j), 60)}
		}))
}
