package cozy

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

// envelope is what a job carries beside its message, with what only this face knows of.
type envelope struct {
	trigger.Envelope
	ForwardLogs bool `json:"forward_logs,omitempty"`
}

func (e envelope) text() []byte {
	text, _ := json.Marshal(e) // its raw parts were read as JSON
	return text
}

// envelopeOf reads what a job carries; one that was made by other ways carries its verb alone.
func envelopeOf(j job.Job) envelope {
	var e envelope
	if len(j.Envelope) > 0 {
		_ = json.Unmarshal(j.Envelope, &e) // written by us
	}
	if e.Worker == "" {
		e.Worker = workerName(j.Ref)
	}
	return e
}

// jobAttributes has the attributes of both documents.
type jobAttributes struct {
	Domain      string          `json:"domain"`
	Worker      string          `json:"worker"`
	WorkerID    string          `json:"worker_id,omitempty"`
	Launcher    *string         `json:"launcher,omitempty"`
	LauncherID  *string         `json:"launcher_id,omitempty"`
	TriggerID   string          `json:"trigger_id,omitempty"`
	Options     options         `json:"options"`
	Arguments   json.RawMessage `json:"arguments"`
	Event       json.RawMessage `json:"event,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	Manual      bool            `json:"manual_execution,omitempty"`
	Debounced   bool            `json:"debounced,omitempty"`
	State       trigger.Status  `json:"state"`
	TryCount    int             `json:"try_count"`
	QueuedAt    time.Time       `json:"queued_at"`
	StartedAt   time.Time       `json:"started_at"` // the year 1 while it has not started
	FinishedAt  *time.Time      `json:"finished_at,omitempty"`
	Error       string          `json:"error"`
	Errors      []string        `json:"errors"`
	Output      json.RawMessage `json:"output"`
	ForwardLogs bool            `json:"forward_logs,omitempty"`
}

// stateOf is a job's state in the words of the API: between two attempts it is running.
func stateOf(j job.Job) trigger.Status {
	switch j.State {
	case job.Ready:
		if j.Attempt == 0 {
			return trigger.Queued
		}
		return trigger.Running
	case job.Running, job.Blocked:
		return trigger.Running
	case job.Succeeded:
		return trigger.Done
	}
	return trigger.Errored
}

const maxErrorText = 4 << 10

// errorsOf lists the errors of a job, the oldest first.
func errorsOf(j job.Job) []string {
	texts := []string{}
	for _, e := range j.Errors {
		texts = append(texts, cut(trigger.ErrorText(cron.Verdict(e.Verdict), e.Text), maxErrorText))
	}
	if j.State == job.Cancelled {
		texts = append(texts, string(job.Cancelled))
	}
	return texts[max(0, len(texts)-job.MaxErrors):]
}

// cut shortens a text to so many bytes, between two characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// startOf is when the first attempt began: of a job that had to be repeated, its first error knows.
func startOf(j job.Job) time.Time {
	at := j.Started
	if len(j.Errors) > 0 && !j.Errors[0].Started.IsZero() {
		at = j.Errors[0].Started
	}
	return at.UTC()
}

// jobResource shows a job; legacy, with the names of the early document.
func jobResource(j job.Job, by permission.Token, legacy bool) resource {
	e := envelopeOf(j)
	message := trigger.DecodeMessage(j.Payload)
	a := jobAttributes{
		Domain: domainOf(e.Domain, by, j.Tenant), Worker: e.Worker, TriggerID: e.Trigger,
		Options:   showOptions(e.Options, trigger.Terms{Priority: j.Priority, Timeout: j.Timeout, Retry: j.Retry}, legacy, message),
		Arguments: value(message, "null"), Manual: e.Manual, Debounced: e.Debounced, State: stateOf(j), TryCount: j.Attempt,
		QueuedAt: j.Created.UTC(), StartedAt: startOf(j), FinishedAt: when(j.Ended), Errors: errorsOf(j), Output: value(j.Output, "{}"), ForwardLogs: e.ForwardLogs,
	}
	if a.State != trigger.Queued {
		a.WorkerID = j.Controller
	}
	if n := len(a.Errors); n > 0 {
		a.Error = a.Errors[n-1]
	}
	if !j.State.Ended() { // the end clears them
		a.Event, a.Payload = e.Event, e.Payload
	}
	r := resource{Type: typeJob, ID: j.ID.String(), Attributes: &a, Links: links{Self: "/jobs/" + j.ID.String()}, Meta: &meta{jobRevision(j)}}
	if legacy {
		kind, id := kindName(e.Kind, true), e.Trigger
		a.Launcher, a.LauncherID = &kind, &id
		r.Rev = r.Meta.Rev
	}
	return r
}

// jobRevision counts the steps of a job: it grows as an attempt begins, and as it ends.
func jobRevision(j job.Job) string {
	n := 1 + 2*j.Attempt
	switch {
	case j.State == job.Running || j.State == job.Blocked:
		n = max(n-1, 2)
	case j.State.Ended():
		n++
	}
	return revision(n, j.ID, j.State, j.Attempt, j.Run, j.Ended.UnixNano(), j.CancelAsked, j.Progress)
}

// domainOf is the domain that a document shows.
func domainOf(stored string, by permission.Token, tenant string) string {
	for _, name := range []string{stored, by.Domain} {
		if name != "" {
			return name
		}
	}
	return strings.TrimSpace(tenant)
}
