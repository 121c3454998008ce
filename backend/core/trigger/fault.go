package trigger

import (
	"errors"
	"fmt"

	"carillon/backend/core/cron"
	"carillon/backend/core/schedule"
)

// Fault is a refused value of a trigger or of a job's request, as JSON:API tells it. It is cron.ErrInvalid.
type Fault struct {
	Pointer string // which attribute, e.g. /data/attributes/arguments; empty: none of them
	Title   string // the class of the fault, e.g. InvalidAttribute
	Detail  string // what is wrong with this value
}

// InvalidAttribute is the title of a fault in one attribute.
const InvalidAttribute = "Invalid Attribute"

// The attributes of a trigger, as pointers into its document.
const (
	PointerType      = "/data/attributes/Type"
	PointerArguments = "/data/attributes/arguments"
	PointerZone      = "/data/attributes/time_zone"
)

// Error returns the detail.
func (f *Fault) Error() string {
	if f.Detail == "" {
		return f.Title
	}
	return f.Detail
}

// Unwrap returns cron.ErrInvalid.
func (f *Fault) Unwrap() error { return cron.ErrInvalid }

// badArguments is a fault of the arguments.
func badArguments(format string, args ...any) *Fault {
	return &Fault{Pointer: PointerArguments, Title: InvalidAttribute, Detail: fmt.Sprintf(format, args...)}
}

// badSchedule is a fault of the arguments that package schedule found; its hint says how to mend it.
func badSchedule(arguments string, err error) *Fault {
	detail := err.Error() // names the expression where all of it is at fault
	if !errors.Is(err, schedule.ErrNeverFires) {
		detail = fmt.Sprintf("invalid cron expression %s: %v", quote(arguments), err)
	}
	var e *schedule.Error
	if errors.As(err, &e) && e.Hint != "" {
		detail += " (" + e.Hint + ")"
	}
	return &Fault{Pointer: PointerArguments, Title: InvalidAttribute, Detail: detail}
}

// quote makes what was written fit to stand in a detail.
func quote(text string) string {
	const most = 64
	if len(text) > most {
		return fmt.Sprintf("%.*q...", most, text)
	}
	return fmt.Sprintf("%q", text)
}
