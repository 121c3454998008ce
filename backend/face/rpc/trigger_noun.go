package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
	carillonv1 "carillon/proto/carillon/v1"
)

// isKey says whether a text may be the key of a trigger; nothing else is looked for.
func isKey(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}

// docOf is what a permission can look at of a trigger.
func docOf(t trigger.Trigger) permission.TriggerDoc {
	var message struct{ Konnector string }
	_ = json.Unmarshal(t.Message, &message) // any other message names none
	return permission.TriggerDoc{ID: t.Key, Worker: t.Worker, Konnector: message.Konnector}
}

func noWorker(worker string) error {
	return &unknownWorker{fault{"worker", fmt.Sprintf("could not find worker %.80q", cron.SafeText(worker))}}
}

// unknownWorker is the fault of a worker that is not there.
type unknownWorker struct{ fault }

func (u *unknownWorker) Unwrap() []error { return []error{cron.ErrNotFound, &u.fault} }

// fromNewTrigger reads a trigger to be created at now, and what is asked for its jobs. Whose it is, and what its worker
// is, is found out elsewhere.
func fromNewTrigger(req *carillonv1.CreateTriggerRequest, kind trigger.Kind, now time.Time) (t trigger.Trigger, asked trigger.Options, err error) {
	t = trigger.Trigger{Kind: kind, Arguments: req.GetArguments(), TimeZone: req.GetTimeZone(), Secret: req.GetSecret()}
	if err := trigger.Check(kind, t.Arguments, t.TimeZone, now); err != nil {
		return t, asked, ofTrigger(err)
	}
	if len(req.GetMessage()) > 0 {
		if err := validJSON(req.GetMessage()); err != nil {
			return t, asked, invalid("message", "%s", err)
		}
		t.Message = trigger.DecodeMessage(req.GetMessage())
	}
	if t.DebounceFor, err = fromLength("debounce", req.GetDebounce()); err != nil {
		return t, asked, err
	}
	const minSecret = 16 // bytes
	switch {
	case t.DebounceFor > 0 && kind != trigger.Event && kind != trigger.Webhook:
		return t, asked, invalid("debounce", "is for %s and %s", trigger.Event, trigger.Webhook)
	case t.DebounceFor > job.MaxDelay || t.DebounceFor > 0 && t.DebounceFor < time.Millisecond:
		return t, asked, invalid("debounce", "must be 0, or 1ms to ten years, got %s", t.DebounceFor)
	case len(t.Secret) > 0 && kind != trigger.Webhook:
		return t, asked, invalid("secret", "is for %s", trigger.Webhook)
	case len(t.Secret) > 0 && len(t.Secret) < minSecret:
		return t, asked, invalid("secret", "must have %d bytes at least", minSecret)
	case t.DebounceFor > 0:
		t.Debounce = t.DebounceFor.String()
	}
	if asked, err = askedOf(req); err != nil {
		return t, asked, err
	}
	if asked != (trigger.Options{}) {
		if t.Options, err = json.Marshal(asked); err != nil {
			return t, asked, fmt.Errorf("write options: %w", err)
		}
	}
	return t, asked, nil
}

func validJSON(b []byte) error {
	var v json.RawMessage
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("is not valid JSON: %w", err)
	}
	if len(b) > job.MaxPayload {
		return fmt.Errorf("has %d bytes, at most %d are accepted", len(b), job.MaxPayload)
	}
	return nil
}

// askedOf are the options of a trigger's jobs; what is not set is the worker's.
func askedOf(req *carillonv1.CreateTriggerRequest) (o trigger.Options, err error) {
	if req.Priority != nil {
		if *req.Priority < 1 || *req.Priority > 100 {
			return o, invalid("priority", "must be 1 to 100 (higher is sooner), got %d", *req.Priority)
		}
		o.Priority = new(int(*req.Priority))
	}
	switch n := int(req.GetMaxAttempts()); {
	case n < 0:
		return o, invalid("max_attempts", "must not be negative, got %d", n)
	case n > 0:
		o.Executions = &n
	}
	timeout, err := fromLength("timeout", req.GetTimeout())
	if err != nil {
		return o, err
	}
	backoff, err := fromLength("backoff", req.GetBackoff())
	if err != nil {
		return o, err
	}
	for _, d := range []struct {
		field string
		from  time.Duration
		into  **float64
	}{{"timeout", timeout, &o.Timeout}, {"backoff", backoff, &o.RetryDelay}} {
		switch {
		case d.from == 0:
		case d.from < time.Millisecond || d.from > job.MaxTimeout:
			return o, invalid(d.field, "must be 1ms to %s, got %s", job.MaxTimeout, d.from)
		default:
			*d.into = new(d.from.Seconds())
		}
	}
	return o, nil
}

// triggerFields are the attributes of a trigger's document that have another name in proto.
var triggerFields = map[string]string{
	"Type": "kind", "type": "kind", "max_exec_count": "max_attempts", "retry_delay": "backoff", "priority": "priority", "id": "doc_id",
}

// ofTrigger makes a refusal that points into a document of JSON:API, or at a job's payload, one that names the field in
// proto. Other errors pass.
func ofTrigger(err error) error {
	if f := (*trigger.Fault)(nil); errors.As(err, &f) {
		if f.Pointer == "" {
			return err
		}
		field := f.Pointer[strings.LastIndexByte(f.Pointer, '/')+1:]
		if other := triggerFields[field]; other != "" {
			field = other
		}
		return invalid(field, "%s", f.Detail)
	}
	if field, problem, ok := fieldOf(err); ok && errors.Is(err, cron.ErrInvalid) {
		if rest, ok := strings.CutPrefix(field, "payload"); ok {
			field = "message" + rest
		}
		return invalid(field, "%s", problem)
	}
	return err
}

// priorityScale is from the priorities of triggers to those of jobs.
const priorityScale = 10

func toTrigger(t trigger.Trigger, state trigger.State) *carillonv1.Trigger {
	out := &carillonv1.Trigger{
		Id: t.Key, Tenant: t.Tenant, Domain: t.Domain, Kind: string(t.Kind), Arguments: t.Arguments, TimeZone: t.TimeZone, Worker: t.Worker, Ref: t.Ref,
		Message: t.Message, Priority: int32(t.Priority / priorityScale), MaxAttempts: int32(t.Retry.Attempts), Timeout: length(t.Timeout),
		Backoff: length(t.Retry.Backoff), Debounce: length(t.DebounceFor), CreatedAt: stamp(t.CreatedAt), Paused: !t.PausedAt.IsZero(), PausedReason: t.PausedNote, LastError: t.LastError,
		Status: string(state.Status), LastExecution: stamp(state.LastExecution),
	}
	if t.PausedAt.IsZero() {
		out.NextExecution = stamp(t.Next)
	}
	if out.LastError == "" {
		out.LastError = state.LastError
	}
	if t.Kind == trigger.Webhook {
		out.Webhook = "/jobs/webhooks/" + t.Key
	}
	return out
}
