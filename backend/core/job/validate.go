package job

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"carillon/backend/core/cron"
)

// FieldError refuses a job for one of its fields. It is a cron.ErrInvalid, or the refusal that it names.
type FieldError struct {
	Field, Problem string
	Refusal        error // nil: cron.ErrInvalid
}

func (e *FieldError) Error() string {
	return e.Unwrap().Error() + ": " + e.Field + ": " + e.Problem
}

func (e *FieldError) Unwrap() error {
	if e.Refusal != nil {
		return e.Refusal
	}
	return cron.ErrInvalid
}

// NoParent refuses a child whose parent is not in the run that the child names.
func NoParent(problem string) error {
	return &FieldError{Field: "parent", Problem: problem, Refusal: cron.ErrPrecond}
}

// Complete gives a job the defaults where it says nothing. A priority of 0 is one, and stays.
func Complete(n New) New {
	or := func(d *time.Duration, other time.Duration) {
		if *d == 0 {
			*d = other
		}
	}
	if n.Tenant == "" {
		n.Tenant = DefaultTenant
	}
	if n.Retry.Attempts == 0 {
		n.Retry.Attempts = DefaultAttempts
	}
	or(&n.Timeout, cron.DefaultTimeout)
	or(&n.Retry.Backoff, DefaultBackoff)
	or(&n.Retry.Ceiling, max(DefaultCeiling, n.Retry.Backoff))
	return n
}

// Validate says whether a completed job can be enqueued; the error is a *FieldError that names the field. Whether the
// payload fits the verb is not asked here.
func Validate(n New) error {
	for _, check := range []func(New) error{validateNames, validateTimes, validateRetry, validatePayload, validateTags, validateKeys} {
		if err := check(n); err != nil {
			return err
		}
	}
	return nil
}

func validateNames(n New) error {
	if err := text("tenant", n.Tenant, 1, MaxName); err != nil {
		return err
	}
	if err := text("ref", n.Ref, 1, cron.MaxRefBytes); err != nil {
		return err
	}
	if _, _, ok := cron.ParseRef(n.Ref); !ok {
		return invalid("ref", "%.60q is no module.verb", n.Ref)
	}
	if n.Priority < 0 || n.Priority > MaxPriority {
		return invalid("priority", "must be 0 to %d (higher is sooner), got %d", MaxPriority, n.Priority)
	}
	switch {
	case n.Parent.N < 0 || n.CronJob < 0 || n.Parent.N == 0 && !n.Parent.IsZero():
		return invalid("parent", "is no job")
	case n.Parent.IsZero() && !n.ParentRun.IsZero():
		return invalid("parent", "is missing: a run alone names none")
	case !n.Parent.IsZero() && n.ParentRun.IsZero():
		return invalid("parent_run", "is missing: only a run of the parent makes children")
	}
	return nil
}

func validateTimes(n New) error {
	switch {
	case n.Delay < 0:
		return invalid("delay", "must not be negative, got %s", n.Delay)
	case n.Delay > MaxDelay:
		return invalid("delay", "must be at most ten years, got %s", n.Delay)
	case n.Timeout < time.Millisecond || n.Timeout > MaxTimeout:
		return invalid("timeout", "must be 1ms to %s, got %s", MaxTimeout, n.Timeout)
	}
	if n.Within < 0 || n.Within > MaxDelay {
		return invalid("within", "must be 0 to ten years, got %s", n.Within)
	}
	if far(n.Expires) {
		return invalid("expires", "must be in the years 1 to 9999")
	}
	if far(n.Slot) {
		return invalid("slot", "must be in the years 1 to 9999")
	}
	return nil
}

func far(t time.Time) bool { return !t.IsZero() && (t.Year() < 1 || t.Year() > 9999) }

func validateRetry(n New) error {
	r := n.Retry
	switch {
	case r.Attempts < 1 || r.Attempts > MaxAttempts:
		return invalid("retry.attempts", "must be 1 to %d, for a retry policy has to end; got %d", MaxAttempts, r.Attempts)
	case r.Backoff < time.Millisecond || r.Backoff > MaxTimeout:
		return invalid("retry.backoff", "must be 1ms to %s, got %s", MaxTimeout, r.Backoff)
	case r.Ceiling < r.Backoff || r.Ceiling > MaxTimeout:
		return invalid("retry.ceiling", "must be at least the backoff of %s and at most %s, got %s", r.Backoff, MaxTimeout, r.Ceiling)
	}
	return nil
}

func validatePayload(n New) error {
	switch {
	case n.TriggerID < 0:
		return invalid("trigger", "is none")
	case len(n.Envelope) > MaxPayload:
		return invalid("envelope", "has %d bytes, at most %d are accepted", len(n.Envelope), MaxPayload)
	case len(n.Envelope) > 0 && (!utf8.Valid(n.Envelope) || !json.Valid(n.Envelope)):
		return invalid("envelope", "is not valid JSON")
	case len(n.Payload) > MaxPayload:
		return invalid("payload", "has %d bytes, at most %d are accepted", len(n.Payload), MaxPayload)
	case len(n.Payload) == 0:
		return nil
	case !utf8.Valid(n.Payload):
		return invalid("payload", "is not valid UTF-8")
	case !json.Valid(n.Payload):
		var any json.RawMessage
		return invalid("payload", "is not valid JSON: %v", json.Unmarshal(n.Payload, &any))
	}
	return nil
}

func validateTags(n New) error {
	if len(n.Tags) > MaxTags {
		return invalid("tags", "at most %d are accepted, got %d", MaxTags, len(n.Tags))
	}
	for i, tag := range n.Tags {
		if err := text(fmt.Sprintf("tags[%d]", i), tag, 1, MaxTag); err != nil {
			return err
		}
		if slices.Contains(n.Tags[:i], tag) {
			return invalid(fmt.Sprintf("tags[%d]", i), "%q stands there twice", tag)
		}
	}
	return nil
}

func validateKeys(n New) error {
	if err := text("unique", n.Unique, 0, MaxKey); err != nil {
		return err
	}
	if err := text("idempotency", n.Idempotency, 0, MaxKey); err != nil {
		return err
	}
	switch {
	case n.Window < 0 || n.Window > MaxDelay:
		return invalid("window", "must be 0 to ten years, got %s", n.Window)
	case n.Window > 0 && n.Window < time.Millisecond:
		return invalid("window", "must be 0 or at least 1ms, got %s", n.Window)
	case n.Window > 0 && n.Unique == "":
		return invalid("window", "needs a unique key")
	}
	return nil
}

// text accepts what a line of text may be in SQL and on a terminal.
func text(field, s string, least, most int) error {
	switch {
	case len(s) < least:
		return invalid(field, "must not be empty")
	case len(s) > most:
		return invalid(field, "has %d bytes, at most %d are accepted", len(s), most)
	case !utf8.ValidString(s):
		return invalid(field, "is not valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return invalid(field, "has a control character")
	}
	return nil
}

// RequestHash tells one request from another under the same idempotency key, by all that the caller asked for: an instant
// where he named one, a length of time where he gave that, and never what was computed from them, for that differs with
// each try. Slot and ParentRun are nobody's wish: the next run of a parent makes the same child.
func RequestHash(n New) []byte {
	if n.Asked != nil {
		return n.Asked
	}
	if !n.Due.IsZero() {
		n.Delay = 0
	}
	h := sha256.New()
	for _, s := range []string{n.Tenant, n.Ref, n.Unique, string(n.Payload)} {
		put(h, s)
	}
	for _, v := range []int64{int64(n.Priority), int64(n.Delay), int64(n.Timeout), int64(n.Window), int64(n.Retry.Attempts),
		int64(n.Retry.Backoff), int64(n.Retry.Ceiling), n.CronJob, n.Parent.N} {
		number(h, v)
	}
	number(h, int64(len(n.Tags)))
	for _, tag := range n.Tags {
		put(h, tag)
	}
	// What is not given leaves no trace, so that the rest hashes as carillon.enqueue() has it.
	for _, v := range []struct {
		name  string
		value int64
	}{{"trigger", n.TriggerID}, {"due", micros(n.Due)}, {"expires", micros(n.Expires)}, {"within", int64(n.Within)}} {
		if v.value != 0 && (v.name != "expires" || n.Within == 0) {
			put(h, v.name)
			number(h, v.value)
		}
	}
	if len(n.Envelope) > 0 {
		put(h, "envelope")
		put(h, string(n.Envelope))
	}
	return h.Sum(nil)
}

// micros is an instant as the database keeps it; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func put(h hash.Hash, s string) {
	number(h, int64(len(s)))
	h.Write([]byte(s))
}

func number(h hash.Hash, v int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(v))
	h.Write(b[:])
}
