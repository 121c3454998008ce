package cozy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"carillon/backend/core/trigger"
)

// Types of the documents.
const (
	typeJob      = "io.cozy.jobs"
	typeTrigger  = "io.cozy.triggers"
	typeState    = "io.cozy.triggers.state"
	typeLauncher = "io.cozy.launchers"
)

// resource is one document of JSON:API.
type resource struct {
	Type       string `json:"type"`
	ID         string `json:"id"`
	Rev        string `json:"rev,omitempty"` // where the early document has it
	Attributes any    `json:"attributes"`
	Meta       *meta  `json:"meta,omitempty"`
	Links      links  `json:"links"`
}

type meta struct {
	Rev string `json:"rev"`
}

type links struct {
	Self    string `json:"self,omitempty"`
	Next    string `json:"next,omitempty"`
	Webhook string `json:"webhook,omitempty"`
}

func one(status int, r resource) (answer, error) {
	return answer{status: status, body: struct {
		Data resource `json:"data"`
	}{r}}, nil
}

// many is a list; next is where it goes on, or empty.
func many(list []resource, next string) (answer, error) {
	type count struct {
		Count int `json:"count"`
	}
	if list == nil {
		list = []resource{}
	}
	return answer{status: http.StatusOK, body: struct {
		Data  []resource `json:"data"`
		Meta  count      `json:"meta"`
		Links links      `json:"links"`
	}{list, count{len(list)}, links{Next: next}}}, nil
}

// revision changes with a row: what stands before the dash grows.
func revision(n int, of ...any) string {
	sum := sha256.Sum256(fmt.Append(nil, of...))
	return fmt.Sprintf("%d-%s", n, hex.EncodeToString(sum[:16]))
}

// options are shown as they were given, and completed by what holds where nothing was said.
type options struct {
	Priority   int             `json:"priority"`
	Timeout    float64         `json:"timeout"` // seconds
	Executions *int            `json:"max_exec_count,omitempty"`
	Retries    *int            `json:"retry_max_count,omitempty"`
	RetryDelay float64         `json:"retry_delay"` // seconds
	Arguments  json.RawMessage `json:"arguments,omitempty"`
}

// showOptions shows the options of a job or a trigger; legacy, as the early document does, with the message in them.
func showOptions(given json.RawMessage, holds trigger.Terms, legacy bool, message json.RawMessage) options {
	var asked trigger.Options
	_ = json.Unmarshal(given, &asked) // what was written by other ways than this one is not shown
	o := options{
		Priority: max(holds.Priority/10, 1), Timeout: holds.Timeout.Seconds(), RetryDelay: holds.Retry.Backoff.Seconds(),
	}
	if asked.Priority != nil {
		o.Priority = *asked.Priority
	}
	if asked.Timeout != nil && *asked.Timeout > 0 {
		o.Timeout = *asked.Timeout
	}
	if asked.RetryDelay != nil && *asked.RetryDelay > 0 {
		o.RetryDelay = *asked.RetryDelay
	}
	executions := holds.Retry.Attempts
	if shown := asked.Echo(false); shown.Executions != nil && *shown.Executions > 0 {
		executions = *shown.Executions
	}
	if !legacy {
		o.Executions = &executions
		return o
	}
	retries := max(executions-1, 0)
	o.Retries, o.Arguments = &retries, value(message, "null")
	return o
}

// value is stored JSON; what is none, or missing, is shown as something else.
func value(stored []byte, otherwise string) json.RawMessage {
	if len(stored) == 0 || !json.Valid(stored) {
		return json.RawMessage(otherwise)
	}
	return stored
}

// kindName is a kind in the words of a route: the early document calls an interval by its own name.
func kindName(k trigger.Kind, legacy bool) string {
	if legacy && k == trigger.Every {
		return trigger.Interval
	}
	return string(k)
}

// workerName is how a worker is called of which only the verb is known.
func workerName(ref string) string {
	if module, verb, ok := strings.Cut(ref, "."); ok && module == verb {
		return module
	}
	return ref
}

// when is a time that may not have come.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
