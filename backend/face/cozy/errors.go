package cozy

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
)

// Texts that the documents, or clients, know.
const (
	malformed     = "JSON input is malformed or is missing mandatory fields"
	unknownWorker = "jobs: could not find worker"
	notAWebhook   = "Not a webhook"
	emptyPatch    = "Only arguments and message can be patched"
	notCron       = "Invalid type for trigger (@cron expected)"
	badState      = "State must be done or errored"
)

// refusal is an answer that the face itself decided.
type refusal struct {
	status    int
	title     string // empty: that of the status
	detail    string
	source    *source
	challenge string // of a 401
}

func (e *refusal) Error() string { return e.detail }

func refuse(status int, detail string) error { return &refusal{status: status, detail: detail} }

func notFound(detail string) error { return refuse(http.StatusNotFound, detail) }

func unreadable() error { return refuse(http.StatusBadRequest, malformed) }

// forbidden is the same for what a token may not see and for what may be absent.
func forbidden(detail string) error { return refuse(http.StatusForbidden, detail) }

// invalid refuses an attribute's value.
func invalid(pointer, detail string) error {
	return &trigger.Fault{Pointer: pointer, Title: trigger.InvalidAttribute, Detail: detail}
}

// source is what of a request an error is about.
type source struct {
	Pointer   string `json:"pointer,omitempty"`
	Parameter string `json:"parameter,omitempty"`
	Header    string `json:"header,omitempty"`
}

// fault is one error of an answer.
type fault struct {
	ID     string  `json:"id,omitempty"` // under which the controller's log has the cause
	Status string  `json:"status"`
	Title  string  `json:"title"`
	Detail string  `json:"detail"`
	Source *source `json:"source,omitempty"`
}

// statuses is the one table from refusals to statuses, where the error says nothing itself.
var statuses = []struct {
	err    error
	status int
}{
	{cron.ErrNotFound, http.StatusNotFound},
	{cron.ErrInvalid, http.StatusUnprocessableEntity},
	{cron.ErrExists, http.StatusUnprocessableEntity}, // the idempotency key of another request
	{cron.ErrPrecond, http.StatusConflict},
	{cron.ErrUnavailable, http.StatusServiceUnavailable},
	{cron.ErrTimedOut, http.StatusServiceUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable},
	{context.Canceled, http.StatusServiceUnavailable}, // nobody reads it
}

// fail answers with an error, and logs what somebody has to look at.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f, status := explain(err)
	switch status {
	case http.StatusInternalServerError:
		f.ID = rand.Text()
		s.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "route", r.Pattern, "request", f.ID, "error", err)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
		level := slog.LevelWarn
		if r.Context().Err() != nil || s.House.Draining() {
			level = slog.LevelDebug
		}
		s.Logger.Log(r.Context(), level, "request refused", "method", r.Method, "route", r.Pattern, "error", err)
	}
	if limit := (*trigger.LimitError)(nil); errors.As(err, &limit) {
		w.Header().Set("Retry-After", strconv.Itoa(max(int(math.Ceil(limit.RetryAfter.Seconds())), 1)))
	}
	if e := (*refusal)(nil); errors.As(err, &e) && e.challenge != "" {
		w.Header().Set("WWW-Authenticate", e.challenge)
	}
	write(w, answer{status: status, body: struct {
		Errors []fault `json:"errors"`
	}{[]fault{f}}})
}

// explain says what the caller reads of an error.
func explain(err error) (f fault, status int) {
	var (
		own     *refusal
		value   *trigger.Fault
		limit   *trigger.LimitError
		tooLong *http.MaxBytesError
	)
	switch {
	case errors.As(err, &own):
		status, f = own.status, fault{Title: own.title, Detail: own.detail, Source: own.source}
	case errors.As(err, &limit):
		status, f = http.StatusTooManyRequests, fault{Detail: limit.Error()}
	case errors.As(err, &tooLong):
		status, f = http.StatusRequestEntityTooLarge, fault{Detail: "The body has more than " + strconv.FormatInt(tooLong.Limit, 10) + " bytes"}
	case errors.As(err, &value):
		status, f = http.StatusUnprocessableEntity, fault{Title: value.Title, Detail: value.Error()}
		if value.Pointer != "" {
			f.Source = &source{Pointer: value.Pointer}
		}
	default:
		status, f = listed(err)
	}
	f.Status = strconv.Itoa(status)
	if f.Title == "" {
		f.Title = http.StatusText(status)
	}
	return f, status
}

// listed explains what house and store refuse.
func listed(err error) (status int, f fault) {
	status = http.StatusInternalServerError
	for _, row := range statuses {
		if errors.Is(err, row.err) {
			status = row.status
			break
		}
	}
	switch field, problem, named := fieldOf(err); {
	case status == http.StatusInternalServerError:
		f.Detail = "Internal error; the controller's log has the cause under this id"
	case status == http.StatusServiceUnavailable:
		f.Detail = "Not available now; try again"
	case status == http.StatusNotFound:
		f.Detail = "Not found"
	case errors.Is(err, cron.ErrExists):
		f.Title, f.Detail, f.Source = "Invalid Header", "This key was used for another request", &source{Header: idempotencyHeader}
	case named && status == http.StatusUnprocessableEntity:
		f.Title, f.Detail, f.Source = trigger.InvalidAttribute, problem, &source{Pointer: pointerOf(field)}
	case status == http.StatusConflict:
		f.Detail = "The job has ended already, or is not in a state to be changed"
	default:
		f.Detail = cron.SafeText(err.Error())
	}
	return status, f
}

// fieldOf finds the field of a job that an error is about, and what is wrong with it.
func fieldOf(err error) (field, problem string, ok bool) {
	named := interface {
		error
		FieldName() string
	}(nil)
	if f := (*job.FieldError)(nil); errors.As(err, &f) {
		return f.Field, f.Problem, true
	}
	if errors.As(err, &named) {
		field = named.FieldName()
		problem = strings.TrimPrefix(strings.TrimPrefix(named.Error(), cron.ErrInvalid.Error()+": "), field+": ")
		return field, problem, true
	}
	return "", "", false
}

// payloadField begins the field of what is wrong in a job's message.
const payloadField = "payload"

// pointerOf is a field of a job as a pointer into the request's document: payload.a[0].b is /data/attributes/arguments/a/0/b.
func pointerOf(field string) string {
	const attributes = "/data/attributes/"
	if rest, ok := strings.CutPrefix(field, payloadField); ok {
		return attributes + "arguments" + strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(rest)
	}
	switch name, _, _ := strings.Cut(field, "."); name {
	case "retry", "timeout", "priority":
		return trigger.PointerOptions
	}
	return attributes + field
}
