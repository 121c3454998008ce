// Package trigger holds the rules that make jobs: by the clock, by an event, by a webhook, by a client. It reads what
// people write (the kind of a trigger, its arguments, its options), refuses what it cannot keep, and decides what an
// accepted trigger does; a trigger of the clock becomes a text of package schedule.
//
// It is pure and must never know where triggers are stored, who asks, or what time it is: `now` and `created` are
// handed in, and are the database's. Every refusal is a [*Fault] that names the attribute at fault; what was accepted
// cannot fail later.
package trigger

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Kind says what a trigger waits for.
type Kind string

const (
	At      Kind = "@at"      // one instant, once
	In      Kind = "@in"      // a time after its creation, once
	Every   Kind = "@every"   // an interval, counted from its creation
	Cron    Kind = "@cron"    // a cron expression
	Hourly  Kind = "@hourly"  // a minute and second that are chosen for it
	Daily   Kind = "@daily"   // the same, in a window of hours
	Weekly  Kind = "@weekly"  // and on one of some weekdays
	Monthly Kind = "@monthly" // and on one of some days of the month
	Event   Kind = "@event"   // a change of a document
	Webhook Kind = "@webhook" // a request to its own address
	Client  Kind = "@client"  // nothing: its client launches it
)

// Interval is what the early document calls Every; it is read, and never stored.
const Interval = "@interval"

// Kinds lists every kind.
var Kinds = []Kind{At, In, Every, Cron, Hourly, Daily, Weekly, Monthly, Event, Webhook, Client}

// ParseKind reads a kind, Interval included. The error is a *Fault.
func ParseKind(text string) (Kind, error) {
	if text == Interval {
		return Every, nil
	}
	for _, kind := range Kinds {
		if text == string(kind) {
			return kind, nil
		}
	}
	return "", &Fault{Pointer: PointerType, Title: InvalidAttribute, Detail: "Unknown trigger type"}
}

// Timed says that the clock fires triggers of this kind: they have a timetable.
func (k Kind) Timed() bool {
	switch k {
	case At, In, Every, Cron, Hourly, Daily, Weekly, Monthly:
		return true
	}
	return false
}

// Once says that a trigger of this kind is gone when it has fired.
func (k Kind) Once() bool { return k == At || k == In }

// periodic says that the slot of this kind is chosen by the trigger's id.
func (k Kind) periodic() bool {
	switch k {
	case Hourly, Daily, Weekly, Monthly:
		return true
	}
	return false
}

// MaxArguments is how long the arguments of a trigger may be, in bytes.
const MaxArguments = 4096

// Check judges the arguments and the time zone (an IANA name; empty is UTC) of a trigger that is declared at now. The
// error is a *Fault. Webhooks and clients keep any arguments, without a meaning.
func Check(kind Kind, arguments, zone string, now time.Time) error {
	kind, err := ParseKind(string(kind))
	if err != nil {
		return err
	}
	if kind.Timed() {
		_, err := compile(kind, arguments, zone, "", now) // whichever slot an id would choose, it is a good one
		return err
	}
	if _, err := location(zone); err != nil {
		return err
	}
	if err := bounded(arguments); err != nil {
		return err
	}
	if kind == Event {
		return CheckEvent(arguments)
	}
	return nil
}

// bounded refuses arguments that could not be stored.
func bounded(arguments string) error {
	if len(arguments) > MaxArguments {
		return badArguments("arguments are longer than %d bytes", MaxArguments)
	}
	if !utf8.ValidString(arguments) || strings.ContainsRune(arguments, 0) {
		return badArguments("arguments are no text")
	}
	return nil
}
