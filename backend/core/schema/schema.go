// Package schema is what the cluster knows of a module before it runs a line of it: its name, its verbs and what starts
// them. Readers of source code (backend/module) build a schema, its text form travels with a deployment, and whoever
// receives it validates it again.
//
// It must never know files, networks, databases or Go syntax. It holds no clock: the instant that decides whether a
// schedule still fires is a parameter. What is wrong with a schema is returned as Errors, all faults of it at once, each
// with its place where one is known; nothing here panics on a text from outside.
package schema

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

// Limits of one schema. They bound what a controller holds and writes in the one transaction of a deployment.
const (
	MaxTextBytes     = 256 << 10
	MaxVerbs         = 1000
	MaxNameBytes     = cron.MaxNameBytes
	MaxScheduleBytes = 1024
	MinTimeout       = time.Second
	MaxTimeout       = 24 * time.Hour
	MaxData          = 1000
	MaxFields        = 1000 // of one record
	MaxTypeBytes     = 1024
	MaxConcurrency   = 1_000_000

	maxTypeDepth = 16 // brackets in one another
)

// DefaultTimeout is the soft timeout of a cron verb that names none.
const DefaultTimeout = 5 * time.Minute

// Unit is the type of a missing request or response.
const Unit = "Unit"

// Languages that a module may be written in. A text that names none is Go's.
const (
	Go     = "go"
	Kotlin = "kotlin"
	Other  = "other" // a runner of its own, in any language, that brings its schema along
)

// Module is one deployable package and its verbs, in the order of its source.
type Module struct {
	Name     string
	Language string
	Verbs    []Verb
	Data     []Data // the named types of requests and responses, in the order of their names
}

// Verb is one function that the cluster may call.
type Verb struct {
	Name     string
	Request  string // Unit when it takes nothing
	Response string // Unit when it returns nothing
	Exported bool   // callable by other modules
	Cron     *Cron  // nil when no clock starts it

	// Of the verb's jobs. A cron verb with a Retry, or with an overlap other than skip, has its firings made jobs.
	Timeout     time.Duration // soft, of one attempt, of a verb without a Cron; 0 is DefaultTimeout
	Retry       *Retry        // nil: the defaults of jobs, of a cron verb one attempt
	Concurrency int           // runs at a time in the whole cluster; 0: no bound
	Unique      *Unique       // nil: equal requests are different jobs
}

// Retry is how often and how soon a failed run is repeated. Zero values are the defaults of jobs.
type Retry struct {
	Attempts int           // runs in all, the first included
	Backoff  time.Duration // before the second attempt; doubles
	Ceiling  time.Duration // of the backoff
}

// Unique makes one job of equal requests: while it lives, or for a window.
type Unique struct{ Window time.Duration }

// Data is a named record type.
type Data struct {
	Name   string
	Fields []Field
}

// Field is one member of a record. Type is in the text form: String, Bool, Int, UInt, Float (these three also with their
// bits, e.g. Int32), Bytes, Time, Any, [T], {String: T}, T? or the name of a Data. A T? may also be null.
type Field struct {
	Name     string // in JSON
	Type     string
	Optional bool // may be left out
}

// Fires says that the clock makes jobs of the verb's slots instead of calling it: there is a retry, or an overlap policy
// that only jobs can follow.
func (v Verb) Fires() bool { return v.Cron != nil && (v.Retry != nil || v.Cron.Overlap != OverlapSkip) }

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

const (
	OverlapSkip   Overlap = iota // the slot is skipped
	OverlapQueue                 // the slot is a job that runs after those before it
	OverlapAllow                 // the slot is a job that may run beside others
	OverlapCancel                // the slot is a job, and those of the slots before it are cancelled
)

var overlapNames = [...]string{"skip", "queue", "allow", "cancel"}

func (o Overlap) String() string { return nameOf(overlapNames[:], int(o)) }

// ParseOverlap reads skip, queue, allow or cancel.
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
// two, one line for each annotation that differs from its default; then the data types, with a line for each field. A ?
// after a field's name says that it may be left out, one after its type that it may be null. Equal modules print equal
// texts, so the text is what digests and comparisons use.
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
			b.WriteString("  +" + strings.TrimRight(a[0]+" "+a[1], " ") + "\n")
		}
	}
	for _, d := range m.Data {
		b.WriteString("data " + d.Name + " {\n")
		for _, f := range d.Fields {
			b.WriteString("  " + fieldName(f.Name))
			if f.Optional {
				b.WriteString("?")
			}
			b.WriteString(" " + f.Type + "\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// fieldName is a name as the text form has it: quoted where it is no plain word.
func fieldName(s string) string {
	if bareName(s) {
		return s
	}
	return strconv.Quote(s)
}

// annotations returns the name and the arguments of what Text prints below a verb, in the order of annotationNames.
func (v Verb) annotations() [][2]string {
	var as [][2]string
	add := func(name, args string) { as = append(as, [2]string{name, args}) }
	timeout := v.Timeout
	var c Cron
	if v.Cron != nil {
		c, timeout = *v.Cron, v.Cron.Timeout
		add("cron", oneBlank(c.Schedule))
	}
	if c.TimeZone != "" {
		add("timezone", c.TimeZone)
	}
	if timeout != 0 {
		add("timeout", timeout.String())
	}
	if c.Catchup != CatchupLast {
		add("catchup", c.Catchup.String())
	}
	if c.Overlap != OverlapSkip {
		add("overlap", c.Overlap.String())
	}
	if v.Retry != nil {
		add("retry", v.Retry.String())
	}
	if v.Concurrency != 0 {
		add("concurrency", strconv.Itoa(v.Concurrency))
	}
	if u := v.Unique; u != nil {
		window := ""
		if u.Window != 0 {
			window = durationWords(u.Window)
		}
		add("unique", window)
	}
	return as
}

// String prints 5, 5 1s or 5 1s..1m.
func (r Retry) String() string {
	backoff := r.Backoff
	if backoff == 0 && r.Ceiling != 0 {
		backoff = job.DefaultBackoff
	}
	s := strconv.Itoa(cmp.Or(r.Attempts, job.DefaultAttempts))
	if backoff != 0 {
		s += " " + durationWords(backoff)
	}
	if r.Ceiling != 0 {
		s += ".." + durationWords(r.Ceiling)
	}
	return s
}

func orUnit(s string) string {
	if s == "" {
		return Unit
	}
	return s
}

// oneBlank puts one blank between the fields of an expression and none around them.
func oneBlank(s string) string { return strings.Join(strings.Fields(s), " ") }
