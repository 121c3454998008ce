package schedule

import (
	"fmt"
	"strings"
	"time"
)

// The texts of triggers. They begin with a word, so that no expression of the verb dialect can be taken for one.
const (
	cronWord  = "@cron "
	everyWord = "@every "
	atWord    = "@at "
	fromWord  = " from "
)

// ParseText reads the text that a cron job's row carries, whatever made the row:
//
//	@cron <expression>           an expression of the cozy dialect
//	@every <duration> from <t>   t + k × duration for k = 1, 2, ..; t without its fraction of a second
//	@at <t>                      that instant alone, to the microsecond (what is finer is rounded up)
//	anything else                an expression of the verb dialect
//
// loc is the zone of an expression's local times (nil = UTC); the other two know none. A duration is one of package
// time, of whole seconds and at least one; an instant is written as RFC 3339 says. Like [Parse] it judges the writing
// only, and every error is an [*Error].
func ParseText(text string, loc *time.Location) (Schedule, error) {
	if len(text) > MaxLength {
		r := reader{expr: text}
		return Schedule{}, r.fail(-1, MaxLength, len(text), "", "expression is longer than %d bytes", MaxLength)
	}
	if expr, ok := strings.CutPrefix(text, cronWord); ok {
		s, err := Parse(expr, Cozy, loc)
		if e, ok := err.(*Error); ok {
			e.Expr = text
			e.Offset += len(cronWord)
		}
		return s, err
	}
	if rest, ok := strings.CutPrefix(text, everyWord); ok {
		return readEvery(text, rest)
	}
	if rest, ok := strings.CutPrefix(text, atWord); ok {
		return readAt(text, rest)
	}
	return Parse(text, Verb, loc)
}

// Text returns the canonical text that ParseText reads back as an equal schedule, given the same zone; nothing for
// the zero Schedule.
func (s Schedule) Text() string {
	if s.form == byFields && s.dialect == Cozy {
		return cronWord + s.text
	}
	return s.String()
}

func readEvery(text, rest string) (Schedule, error) {
	r := reader{expr: text}
	word, start, ok := strings.Cut(rest, fromWord)
	if !ok {
		return Schedule{}, r.fail(-1, 0, len(text), "write @every 30m10s from 2006-01-02T15:04:05Z", "@every needs a start")
	}
	from := len(everyWord)
	step, err := time.ParseDuration(word)
	if err != nil || step < time.Second || step%time.Second != 0 {
		return Schedule{}, r.fail(-1, from, from+len(word), "write a duration such as 90s or 1h30m",
			"%s is no whole number of seconds above zero", quote(word))
	}
	from += len(word) + len(fromWord)
	t, err := ParseInstant(start)
	if err != nil {
		return Schedule{}, r.fail(-1, from, len(text), hintForInstant, "%v", err)
	}
	s, ok := EverySince(step, t)
	if !ok {
		return Schedule{}, r.fail(-1, from, len(text), "", "a start lies in the years %d to %d", minYear, maxYear)
	}
	return s, nil
}

func readAt(text, rest string) (Schedule, error) {
	r := reader{expr: text}
	t, err := ParseInstant(rest)
	if err != nil {
		return Schedule{}, r.fail(-1, len(atWord), len(text), hintForInstant, "%v", err)
	}
	s, ok := Once(t)
	if !ok {
		return Schedule{}, r.fail(-1, len(atWord), len(text), "", "an instant lies in the years %d to %d", minYear, lastYear)
	}
	return s, nil
}

const hintForInstant = "write an instant such as 2006-01-02T15:04:05Z"

// ParseInstant reads an instant as RFC 3339 writes it, and nothing else: date, T, time of day, an optional fraction
// after a point, and Z or an offset, with all their digits.
func ParseInstant(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !isInstant(text) {
		return time.Time{}, fmt.Errorf("%s is no instant of RFC 3339 with its zone", quote(text))
	}
	return t, nil
}

// isInstant judges the shape, for package time is generous: it reads an hour of one digit, a comma before the fraction
// and offsets of more than a day. In a shape 0 stands for any digit.
func isInstant(text string) bool {
	const date, offset = "0000-00-00T00:00:00", "00:00"
	if len(text) <= len(date) || !hasShape(text[:len(date)], date) {
		return false
	}
	rest := text[len(date):]
	if fraction, ok := strings.CutPrefix(rest, "."); ok {
		rest = strings.TrimLeft(fraction, "0123456789")
		if len(rest) == len(fraction) {
			return false
		}
	}
	if rest == "Z" {
		return true
	}
	if rest == "" || rest[0] != '+' && rest[0] != '-' {
		return false
	}
	rest = rest[1:]
	return hasShape(rest, offset) && rest[:2] < "24" && rest[3:] < "60"
}

func hasShape(text, shape string) bool {
	if len(text) != len(shape) {
		return false
	}
	for i := range len(shape) {
		if text[i] != shape[i] && (shape[i] != '0' || !isDigit(text[i])) {
			return false
		}
	}
	return true
}
