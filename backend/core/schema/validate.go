package schema

import (
	"errors"
	"fmt"
	"time"

	"carillon/backend/core/schedule"
)

// Validate reports everything that is wrong with a schema whose source is not at hand, as a controller that received it
// does. A schedule that has no slot after now is wrong. It returns nil when the schema may be deployed.
func Validate(m Module, now time.Time) Errors { return ValidateSource(m, nil, now) }

// ValidateSource is Validate for a reader that knows where the parts of m were written.
func ValidateSource(m Module, where Where, now time.Time) Errors {
	c := checker{where: where, now: now}
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
	case "", Go, Kotlin:
	default:
		c.errors.add(c.at(-1, PartLanguage).Span, "one of go, kotlin", "unknown language %q", m.Language)
	}
}

func (c *checker) name(verb int, kind, name string) {
	at := c.at(verb, PartName).Span
	switch {
	case name == "":
		c.errors.add(at, "", "%s has no name", kind)
	case len(name) > MaxNameBytes:
		c.errors.add(at, "", "%s name has at most %d bytes, not %d", kind, MaxNameBytes, len(name))
	case !validName(name):
		c.errors.add(at, "a lower-case letter, then letters and digits", "invalid %s name %q", kind, name)
	}
}

func (c *checker) verb(i int, v Verb) {
	if v.Cron == nil {
		for _, t := range []struct{ part, kind, text string }{{PartRequest, "request", v.Request}, {PartResponse, "response", v.Response}} {
			if t.text != "" && (len(t.text) > MaxNameBytes || !validType(t.text)) {
				c.errors.add(c.at(i, t.part).Span, "", "verb %s: invalid %s type %q", v.Name, t.kind, cut(t.text))
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

func (c *checker) cron(i int, name string, cron Cron) {
	loc, err := schedule.LoadLocation(cron.TimeZone)
	if err != nil {
		c.errors.add(c.at(i, "timezone").Span, "an IANA name, such as Europe/Paris", "verb %s: unknown time zone %q", name, cut(cron.TimeZone))
		loc = time.UTC
	}
	if cron.Timeout != 0 && (cron.Timeout < MinTimeout || cron.Timeout > MaxTimeout) {
		c.errors.add(c.at(i, "timeout").Span, "a timeout is from 1s to 24h; without one a run gets "+durationWords(DefaultTimeout),
			"verb %s: timeout %s out of allowed range", name, cron.Timeout)
	}
	if _, ok := ParseCatchup(cron.Catchup.String()); !ok {
		c.errors.add(c.at(i, "catchup").Span, "one of none, last, all", "verb %s: unknown catchup policy", name)
	}
	if _, ok := ParseOverlap(cron.Overlap.String()); !ok {
		c.errors.add(c.at(i, "overlap").Span, "the one policy is skip", "verb %s: unknown overlap policy", name)
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
