// Package schema is what the cluster knows of a module before it runs a line of it: its name, its verbs and what starts
// them. Readers of source code (backend/module) build a schema, its text form travels with a deployment, and whoever
// receives it validates it again.
//
// It must never know files, networks, databases or Go syntax. It holds no clock: the instant that decides whether a
// schedule still fires is a parameter. What is wrong with a schema is returned as Errors, all faults of it at once, each
// with its place where one is known; nothing here panics on a text from outside.
package schema

import (
	"strings"
	"time"
)

// Limits of one schema. They bound what a controller holds and writes in the one transaction of a deployment.
const (
	MaxTextBytes     = 256 << 10
	MaxVerbs         = 1000
	MaxNameBytes     = 128
	MaxScheduleBytes = 1024
	MinTimeout       = time.Second
	MaxTimeout       = 24 * time.Hour
)

// DefaultTimeout is the soft timeout of a cron verb that names none.
const DefaultTimeout = 5 * time.Minute

// Unit is the type of a missing request or response.
const Unit = "Unit"

// Languages that a module may be written in. A text that names none is Go's.
const (
	Go     = "go"
	Kotlin = "kotlin"
)

// Module is one deployable package and its verbs, in the order of its source.
type Module struct {
	Name     string
	Language string
	Verbs    []Verb
}

// Verb is one function that the cluster may call.
type Verb struct {
	Name     string
	Request  string // Unit when it takes nothing
	Response string // Unit when it returns nothing
	Exported bool   // callable by other modules
	Cron     *Cron  // nil when no clock starts it
}

// Cron says when the clock starts a verb and what happens around the start. The zero value of every field but Schedule
// is its default.
type Cron struct {
	Schedule string        // the expression, in the verb dialect, one blank between its fields
	TimeZone string        // an IANA name; "" is UTC
	Timeout  time.Duration // the soft timeout; 0 is DefaultTimeout
	Catchup  Catchup
	Overlap  Overlap
}

// SoftTimeout is the time that a call gets: Timeout, or the default.
func (c Cron) SoftTimeout() time.Duration {
	if c.Timeout == 0 {
		return DefaultTimeout
	}
	return c.Timeout
}

// Catchup says which of the slots that passed while nobody could start them run afterwards.
type Catchup int

const (
	CatchupLast Catchup = iota // the latest missed slot runs, those before it are skipped
	CatchupNone                // missed slots are skipped
	CatchupAll                 // missed slots run one after the other, oldest first
)

var catchupNames = [...]string{"last", "none", "all"}

func (c Catchup) String() string { return nameOf(catchupNames[:], int(c)) }

// ParseCatchup reads last, none or all.
func ParseCatchup(s string) (Catchup, bool) {
	i, ok := indexOf(catchupNames[:], s)
	return Catchup(i), ok
}

// Overlap says what happens to a slot that comes while the run before it still executes.
type Overlap int

// OverlapSkip skips the slot.
const OverlapSkip Overlap = iota

var overlapNames = [...]string{"skip"}

func (o Overlap) String() string { return nameOf(overlapNames[:], int(o)) }

// ParseOverlap reads skip.
func ParseOverlap(s string) (Overlap, bool) {
	i, ok := indexOf(overlapNames[:], s)
	return Overlap(i), ok
}

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return "unknown"
	}
	return names[i]
}

func indexOf(names []string, s string) (int, bool) {
	for i, name := range names {
		if name == s {
			return i, true
		}
	}
	return 0, false
}

// Verb returns the verb of that name.
func (m Module) Verb(name string) (Verb, bool) {
	for _, v := range m.Verbs {
		if v.Name == name {
			return v, true
		}
	}
	return Verb{}, false
}

// Text prints the module in the form that Parse reads: a module line, a line for each verb, and below it, indented by
// two, one line for each annotation that differs from its default. Equal modules print equal texts, so the text is what
// digests and comparisons use.
func (m Module) Text() string {
	var b strings.Builder
	if m.Name != "" {
		b.WriteString("module " + m.Name)
		if m.Language != "" && m.Language != Go {
			b.WriteString(" " + m.Language)
		}
		b.WriteString("\n")
	}
	for _, v := range m.Verbs {
		if v.Exported {
			b.WriteString("export ")
		}
		b.WriteString("verb " + v.Name + "(" + orUnit(v.Request) + ") " + orUnit(v.Response) + "\n")
		for _, a := range v.annotations() {
			b.WriteString("  +" + a[0] + " " + a[1] + "\n")
		}
	}
	return b.String()
}

// annotations returns the name and the arguments of what Text prints below a verb.
func (v Verb) annotations() [][2]string {
	if v.Cron == nil {
		return nil
	}
	c := *v.Cron
	as := [][2]string{{"cron", oneBlank(c.Schedule)}}
	if c.TimeZone != "" {
		as = append(as, [2]string{"timezone", c.TimeZone})
	}
	if c.Timeout != 0 {
		as = append(as, [2]string{"timeout", c.Timeout.String()})
	}
	if c.Catchup != CatchupLast {
		as = append(as, [2]string{"catchup", c.Catchup.String()})
	}
	if c.Overlap != OverlapSkip {
		as = append(as, [2]string{"overlap", c.Overlap.String()})
	}
	return as
}

func orUnit(s string) string {
	if s == "" {
		return Unit
	}
	return s
}

// oneBlank puts one blank between the fields of an expression and none around them.
func oneBlank(s string) string { return strings.Join(strings.Fields(s), " ") }
