package trigger

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"carillon/backend/core/job"
)

// Defaults of the Cozy API, where neither the worker nor the request says anything.
const (
	DefaultExecutions = 3
	DefaultTimeout    = time.Minute
	DefaultRetryDelay = 10 * time.Second
	MaxRetryDelay     = time.Hour // of each wait between two executions, however often it doubled
	DefaultPriority   = 50        // 1 to 100, higher first
	ManualPriority    = 100       // of what somebody waits for
	maxPriority       = 100
	priorityScale     = 10 // from the API's priorities to those of jobs
)

// PointerOptions is where the options of a document stand; those of a flat body stand at its top.
const PointerOptions = "/data/attributes/options"

// Limits are a worker's own: a request may only lower them. What is zero is the API's default.
type Limits struct {
	Executions int // the first included
	Timeout    time.Duration
	RetryDelay time.Duration
}

// Options are what a request asks of its jobs, as it was given; nil: nothing.
type Options struct {
	Priority   *int     `json:"priority,omitempty"`        // 1 to 100
	Timeout    *float64 `json:"timeout,omitempty"`         // seconds of one execution; 0: the worker's
	Executions *int     `json:"max_exec_count,omitempty"`  // the first included; 0: the worker's
	Retries    *int     `json:"retry_max_count,omitempty"` // the first not included
	RetryDelay *float64 `json:"retry_delay,omitempty"`     // seconds before the second execution; doubles; 0: the worker's
}

// optionKeys are the members of options; of a flat body, too.
var optionKeys = []string{"priority", "timeout", "max_exec_count", "retry_max_count", "retry_delay"}

// ReadOptions reads options from their JSON (an object, null or nothing) and, of a flat body, from its top (nil: there
// is none). Where both name one, they agree. Members that are not known are passed over. Pointers of faults begin with
// at, e.g. PointerOptions. The error is a *Fault.
func ReadOptions(options json.RawMessage, flat map[string]json.RawMessage, at string) (Options, error) {
	var given map[string]json.RawMessage
	if len(options) > 0 {
		if err := json.Unmarshal(options, &given); err != nil {
			return Options{}, badOption(at, "options must be an object")
		}
	}
	r := optionReader{at: at, fields: map[string]json.RawMessage{}}
	for _, key := range optionKeys {
		top, inner := present(flat[key]), present(given[key])
		if top != nil && inner != nil && !SameJSON(top, inner) {
			return Options{}, badOption(at+"/"+key, key+" is given twice, with two values")
		}
		if inner == nil {
			inner = top
		}
		r.fields[key] = inner
	}
	o := Options{
		Priority:   r.count("priority", 1, maxPriority),
		Timeout:    r.seconds("timeout"),
		Executions: r.count("max_exec_count", 0, math.MaxInt32),
		Retries:    r.count("retry_max_count", 0, math.MaxInt32-1),
		RetryDelay: r.seconds("retry_delay"),
	}
	if r.fault != nil {
		return Options{}, r.fault
	}
	if n, more := o.Executions, o.Retries; n != nil && *n > 0 && more != nil && *n != *more+1 {
		return Options{}, badOption(at+"/max_exec_count", fmt.Sprintf("max_exec_count is %d, but retry_max_count is %d: it must be one less", *n, *more))
	}
	return o, nil
}

// present is nil for what is not there, and for null.
func present(value json.RawMessage) json.RawMessage {
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	return value
}

func badOption(pointer, detail string) *Fault {
	return &Fault{Pointer: pointer, Title: InvalidAttribute, Detail: detail}
}

// optionReader keeps the first fault.
type optionReader struct {
	at     string
	fields map[string]json.RawMessage
	fault  error
}

func (r *optionReader) refuse(key, detail string) {
	if r.fault == nil {
		r.fault = badOption(r.at+"/"+key, key+" "+detail)
	}
}

// number reads a JSON number; a text that looks like one is none.
func (r *optionReader) number(key string) (f float64, ok bool) {
	raw := r.fields[key]
	if raw == nil {
		return 0, false
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		r.refuse(key, "must be a number, got "+quote(string(raw)))
		return 0, false
	}
	return f, true
}

func (r *optionReader) count(key string, least, most float64) *int {
	f, ok := r.number(key)
	switch {
	case !ok:
		return nil
	case f != math.Trunc(f):
		r.refuse(key, "must be a whole number")
		return nil
	case f < least || f > most:
		r.refuse(key, fmt.Sprintf("must be %.0f to %.0f, got %g", least, most, f))
		return nil
	}
	n := int(f)
	return &n
}

// maxSeconds is thirty years: no limit, the worker's is lower; what is beyond is a slip.
const maxSeconds = 1e9

// seconds are refused when they are negative, or fewer than a job can keep.
func (r *optionReader) seconds(key string) *float64 {
	f, ok := r.number(key)
	switch {
	case !ok:
		return nil
	case f < 0:
		r.refuse(key, fmt.Sprintf("must not be negative, got %g", f))
		return nil
	case f > 0 && f < 0.001:
		r.refuse(key, "must be 0 (the worker's) or at least a millisecond")
		return nil
	case f > maxSeconds:
		r.refuse(key, fmt.Sprintf("is in seconds and must be at most %.0f, got %g", maxSeconds, f))
		return nil
	}
	return &f
}

// GivesPriority says whether a trigger's options, as given, ask for a priority, also the default one.
func GivesPriority(options json.RawMessage) bool {
	var given struct{ Priority *float64 }
	return json.Unmarshal(options, &given) == nil && given.Priority != nil
}

// Terms are the options as a job keeps them.
type Terms struct {
	Priority int // 0 to 1000
	Timeout  time.Duration
	Retry    job.Retry
}

// Terms puts the options and the worker's limits together: options only lower the limits, and what is zero or greater
// is the worker's. The delay between executions is no limit: it may be longer. A manual job has the highest priority,
// unless one was given.
func (o Options) Terms(worker Limits, manual bool) Terms {
	worker = worker.orDefault()
	t := Terms{Priority: DefaultPriority, Timeout: worker.Timeout}
	switch {
	case o.Priority != nil:
		t.Priority = *o.Priority
	case manual:
		t.Priority = ManualPriority
	}
	t.Priority *= priorityScale
	if d := durationOf(o.Timeout); d > 0 {
		t.Timeout = min(d, worker.Timeout)
	}
	t.Retry = job.Retry{Attempts: worker.Executions, Backoff: worker.RetryDelay, Ceiling: MaxRetryDelay}
	switch n, more := o.Executions, o.Retries; {
	case n != nil && *n > 0:
		t.Retry.Attempts = min(*n, worker.Executions)
	case more != nil:
		t.Retry.Attempts = min(*more+1, worker.Executions)
	}
	if d := durationOf(o.RetryDelay); d > 0 {
		t.Retry.Backoff = d
	}
	t.Retry.Backoff = min(t.Retry.Backoff, MaxRetryDelay)
	return t
}

func (l Limits) orDefault() Limits {
	if l.Executions <= 0 {
		l.Executions = DefaultExecutions
	}
	if l.Timeout <= 0 {
		l.Timeout = DefaultTimeout
	}
	if l.RetryDelay <= 0 {
		l.RetryDelay = DefaultRetryDelay
	}
	return Limits{min(l.Executions, job.MaxAttempts), min(l.Timeout, job.MaxTimeout), min(l.RetryDelay, MaxRetryDelay)}
}

// durationOf is in whole milliseconds; the store keeps no finer ones.
func durationOf(seconds *float64) time.Duration {
	if seconds == nil {
		return 0
	}
	return time.Duration(math.Round(*seconds*1000)) * time.Millisecond
}

// Echo is the options as an answer shows them: as they were given, with the executions counted as the later document
// does, and on the routes of the early one (flat) as retries.
func (o Options) Echo(flat bool) Options {
	n, more := o.Executions, o.Retries
	if n != nil && *n > 0 && more == nil {
		more = new(*n - 1)
	}
	if more != nil && (n == nil || *n == 0) {
		n = new(*more + 1)
	}
	if o.Executions, o.Retries = n, nil; flat {
		o.Executions, o.Retries = nil, more
	}
	return o
}
