package schema

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/schedule"
)

// Validate reports everything that is wrong with a schema whose source is not at hand, as a controller that received it
// does. A schedule that has no slot after now is wrong. It returns nil when the schema may be deployed.
func Validate(m Module, now time.Time) Errors { return ValidateSource(m, nil, now) }

// ValidateSource is Validate for a reader that knows where the parts of m were written.
func ValidateSource(m Module, where Where, now time.Time) Errors {
	c := checker{where: where, now: now, known: make(map[string]bool, len(m.Data)), types: typeNames(m.Data)}
	for _, d := range m.Data {
		c.known[d.Name] = true
	}
	c.module(m)
	verbs := m.Verbs
	if len(verbs) > MaxVerbs {
		c.errors.add(c.at(-1, PartName).Span, "", "a module has at most %d verbs, not %d", MaxVerbs, len(verbs))
		verbs = verbs[:MaxVerbs]
	}
	first := make(map[string]int, len(verbs))
	for i, v := range verbs {
		c.name(i, "verb", v.Name)
		if j, twice := first[v.Name]; twice && v.Name != "" {
			hint := ""
			if at := c.at(j, PartName).Position; at.Line > 0 {
				hint = "the first is at " + at.String()
			}
			c.errors.add(c.at(i, PartName).Span, hint, "verb %s is declared twice", v.Name)
		} else {
			first[v.Name] = i
		}
		c.verb(i, v)
	}
	c.data(m.Data)
	if n := len(m.Text()); n > MaxTextBytes {
		c.errors.add(c.at(-1, PartName).Span, "", "a schema has at most %d bytes, not %d", MaxTextBytes, n)
	}
	c.errors.Sort()
	return c.errors
}

type checker struct {
	where  Where
	now    time.Time
	errors Errors
	known  map[string]bool // the declared types
	types  []string        // names for hints
}

// at is the place of a part, or of the name beside it when the part itself was not written.
func (c *checker) at(verb int, part string) Place {
	if p, ok := c.where[Part{verb, part}]; ok {
		return p
	}
	return Place{Span: c.where[Part{verb, PartName}].Span}
}

// written is the name under which an annotation was given.
func (c *checker) written(verb int, name string) string {
	if w := c.where[Part{verb, name}].Written; w != "" {
		return w
	}
	return "carillon:" + name
}

func (c *checker) module(m Module) {
	c.name(-1, "module", m.Name)
	switch m.Language {
	case "", Go, Kotlin, Other:
	default:
		c.errors.add(c.at(-1, PartLanguage).Span, "one of go, kotlin, other", "unknown language %q", m.Language)
	}
}

func (c *checker) name(verb int, kind, name string) {
	at := c.at(verb, PartName).Span
	switch {
	case name == "":
		c.errors.add(at, "", "%s has no name", kind)
	case len(name) > MaxNameBytes:
		c.errors.add(at, "", "%s name has at most %d bytes, not %d", kind, MaxNameBytes, len(name))
	case !cron.ValidName(name):
		c.errors.add(at, "a lower-case letter, then letters and digits", "invalid %s name %q", kind, name)
	}
}

func (c *checker) verb(i int, v Verb) {
	c.jobs(i, v)
	if v.Cron == nil {
		for _, t := range []struct{ part, kind, text string }{{PartRequest, "request", v.Request}, {PartResponse, "response", v.Response}} {
			if text := orUnit(t.text); text != Unit {
				c.typeText(c.at(i, t.part).Span, "verb "+v.Name, t.kind+" type", text, MaxNameBytes)
			}
		}
		return
	}
	if orUnit(v.Request) != Unit {
		c.errors.add(c.at(i, PartRequest).Span, "the clock has nothing to send", "verb %s: cron job can not have a request type", v.Name)
	}
	if orUnit(v.Response) != Unit {
		c.errors.add(c.at(i, PartResponse).Span, "nobody waits for the response of a cron job", "verb %s: cron job can not have a response type", v.Name)
	}
	if v.Exported {
		c.errors.add(c.at(i, "export").Span, "remove the export", "%s cannot be attached to exported verbs", c.written(i, "cron"))
	}
	c.cron(i, v.Name, *v.Cron)
}

// jobs checks what a verb says about its jobs.
func (c *checker) jobs(i int, v Verb) {
	if v.Cron == nil {
		c.timeout(i, v.Name, v.Timeout)
	} else if v.Timeout != 0 {
		c.errors.add(c.at(i, "timeout").Span, "", "verb %s: the timeout of a verb with a schedule is its cron's", v.Name)
	}
	if v.Retry != nil {
		c.retry(i, v.Name, *v.Retry)
	}
	at := c.at(i, "concurrency").Span
	switch {
	case v.Concurrency < 0 || v.Concurrency > MaxConcurrency:
		c.errors.add(at, "", "verb %s: concurrency %d out of allowed range of 1-%d", v.Name, v.Concurrency, MaxConcurrency)
	case v.Concurrency == 0 || v.Cron == nil:
	case !v.Fires():
		c.errors.add(at, "its slots never meet: one that comes during a run is skipped; see overlap", "verb %s: concurrency needs a retry, or an overlap other than skip", v.Name)
	case v.Cron.Overlap == OverlapQueue && v.Concurrency > 1:
		c.errors.add(at, "overlap allow runs them side by side", "verb %s: overlap queue runs one slot after the other, not %d", v.Name, v.Concurrency)
	}
	if u := v.Unique; u != nil {
		at := c.at(i, "unique").Span
		if v.Cron != nil {
			c.errors.add(at, "each slot is one job already; overlap says what happens when two of them meet", "verb %s: a cron job can not be unique", v.Name)
		}
		if u.Window != 0 && (u.Window < time.Millisecond || u.Window > job.MaxDelay) {
			c.errors.add(at, "a window is from 1ms to ten years", "verb %s: unique window %s out of allowed range", v.Name, u.Window)
		}
	}
}

func (c *checker) timeout(i int, name string, d time.Duration) {
	if d != 0 && (d < MinTimeout || d > MaxTimeout) {
		c.errors.add(c.at(i, "timeout").Span, "a timeout is from 1s to 24h; without one a run gets "+durationWords(DefaultTimeout),
			"verb %s: timeout %s out of allowed range", name, d)
	}
}

// retry refuses what never ends, and what a job could not take.
func (c *checker) retry(i int, name string, r Retry) {
	at := c.at(i, "retry").Span
	backoff := cmp.Or(r.Backoff, job.DefaultBackoff)
	ceiling := cmp.Or(r.Ceiling, max(job.DefaultCeiling, backoff))
	const longest = job.MaxTimeout
	switch {
	case r.Attempts < 0 || r.Attempts > job.MaxAttempts:
		c.errors.add(at, "a retry has to end", "verb %s: %d runs out of allowed range of 1-%d", name, r.Attempts, job.MaxAttempts)
	case backoff < time.Millisecond || backoff > longest:
		c.errors.add(at, "a backoff is from 1ms to "+durationWords(longest), "verb %s: backoff %s out of allowed range", name, backoff)
	case ceiling < backoff:
		c.errors.add(at, "the smaller one comes first: 1s..1m", "verb %s: the ceiling %s is below the backoff %s", name, durationWords(ceiling), durationWords(backoff))
	case ceiling > longest:
		c.errors.add(at, "a ceiling is at most "+durationWords(longest), "verb %s: ceiling %s out of allowed range", name, ceiling)
	}
}

// data checks the declared types.
func (c *checker) data(all []Data) {
	if len(all) > MaxData {
		c.errors.add(c.at(-1, PartName).Span, "", "a module has at most %d data types, not %d", MaxData, len(all))
		all = all[:MaxData]
	}
	first := make(map[string]bool, len(all))
	for i, d := range all {
		at := c.where[PartData(i)].Span
		switch {
		case len(d.Name) > MaxNameBytes:
			c.errors.add(at, "", "data name has at most %d bytes, not %d", MaxNameBytes, len(d.Name))
		case !validTypeName(d.Name):
			c.errors.add(at, "a letter, then letters, digits and _", "invalid data name %q", d.Name)
		case Builtin(d.Name):
			c.errors.add(at, "", "data %s has the name of a built-in type", d.Name)
		case first[d.Name]:
			c.errors.add(at, "", "data %s is declared twice", d.Name)
		}
		first[d.Name] = true
		c.fields(i, d)
	}
}

func (c *checker) fields(i int, d Data) {
	owner := "data " + cut(d.Name)
	fields := d.Fields
	if len(fields) > MaxFields {
		c.errors.add(c.where[PartData(i)].Span, "", "%s has at most %d fields, not %d", owner, MaxFields, len(fields))
		fields = fields[:MaxFields]
	}
	seen := make(map[string]bool, len(fields))
	for j, f := range fields {
		at := c.where[PartField(i, j)].Span
		switch {
		case f.Name == "" || len(f.Name) > MaxNameBytes:
			c.errors.add(at, "", "%s: a field's name has 1 to %d bytes, not %d", owner, MaxNameBytes, len(f.Name))
		case !utf8.ValidString(f.Name) || strings.ContainsFunc(f.Name, unicode.IsControl):
			c.errors.add(at, "UTF-8 without control characters", "%s: invalid field name %q", owner, f.Name)
		case seen[f.Name]:
			c.errors.add(at, "", "%s: field %q is declared twice", owner, f.Name)
		}
		seen[f.Name] = true
		c.typeText(c.where[PartFieldType(i, j)].Span, owner, "type of field "+strconv.Quote(cut(f.Name)), f.Type, MaxTypeBytes)
	}
}

// typeText checks the text of a type, and that what it names is declared.
func (c *checker) typeText(at Span, owner, what, text string, longest int) {
	t, ok := parseType(text)
	if !ok || len(text) > longest {
		c.errors.add(at, "String, Bool, Int, Float, Bytes, Time, Any, [T], {String: T}, T? or a data type", "%s: invalid %s %q", owner, what, cut(text))
		return
	}
	if name := t.root(); !c.known[name] && (!Builtin(name) || name == Unit) {
		hint := ""
		if near := Nearest(name, c.types); near != "" {
			hint = "did you mean " + near + "?"
		}
		c.errors.add(at, hint, "%s: unknown %s %s", owner, what, cut(name))
	}
}

func (c *checker) cron(i int, name string, cron Cron) {
	loc, err := schedule.LoadLocation(cron.TimeZone)
	if err != nil {
		c.errors.add(c.at(i, "timezone").Span, "an IANA name, such as Europe/Paris", "verb %s: unknown time zone %q", name, cut(cron.TimeZone))
		loc = time.UTC
	}
	c.timeout(i, name, cron.Timeout)
	if _, ok := ParseCatchup(cron.Catchup.String()); !ok {
		c.errors.add(c.at(i, "catchup").Span, "one of none, last, all", "verb %s: unknown catchup policy", name)
	}
	if _, ok := ParseOverlap(cron.Overlap.String()); !ok {
		c.errors.add(c.at(i, "overlap").Span, "one of skip, queue, allow, cancel", "verb %s: unknown overlap policy", name)
	}
	c.schedule(i, name, cron, loc)
}

func (c *checker) schedule(i int, name string, cron Cron, loc *time.Location) {
	at, expr := c.at(i, "cron").Span, cron.Schedule
	if len(expr) > MaxScheduleBytes {
		c.errors.add(at, "", "verb %s: a cron expression has at most %d bytes, not %d", name, MaxScheduleBytes, len(expr))
		return
	}
	// The source may have more blanks between the fields; carets are counted in what was written there.
	if written := at.Text(); oneBlank(written) == oneBlank(expr) {
		expr = written
	}
	_, err := schedule.ParseAt(expr, schedule.Verb, loc, c.now)
	if err == nil {
		return
	}
	e := &Error{Span: at, Err: err, Message: fmt.Sprintf("verb %s: invalid cron expression %q: %v", name, expr, err)}
	if wrong, ok := errors.AsType[*schedule.Error](err); ok {
		e.Hint = wrong.Hint
		if at.Text() == expr && wrong.Length > 0 {
			e.Span = at.Cut(wrong.Offset, wrong.Length)
		}
	}
	c.errors = append(c.errors, e)
}

// Compile parses the schedule in its own zone, without asking whether it still fires. What Validate accepted compiles.
func (c Cron) Compile() (schedule.Schedule, error) {
	loc, err := schedule.LoadLocation(c.TimeZone)
	if err != nil {
		return schedule.Schedule{}, err
	}
	return schedule.Parse(c.Schedule, schedule.Verb, loc)
}

// cut shortens a text from outside to what a message may repeat.
func cut(s string) string {
	if len(s) > MaxNameBytes {
		return s[:MaxNameBytes]
	}
	return s
}
