package schedule

import (
	"fmt"
	"strings"
	"time"
)

// form says what a schedule is made of.
type form uint8

const (
	byFields form = iota // a cron expression
	byStep               // @every: start + k × step
	byDate               // @at: one instant
)

const (
	lastYear   = 9999 // of @at: the last that RFC 3339 can write
	lastSecond = (maxDay+1)*daySeconds - 1
)

// EverySince returns the schedule of start + k × step for k = 1, 2, .., where start loses its fraction of a second. It
// reports false for a step that is no whole number of seconds above zero, and for a start outside the years 1970 to
// 3000.
func EverySince(step time.Duration, start time.Time) (Schedule, bool) {
	sec := start.Unix()
	if step < time.Second || step%time.Second != 0 || sec < 0 || sec > lastSecond {
		return Schedule{}, false
	}
	return Schedule{form: byStep, dialect: Cozy, start: sec, step: int64(step / time.Second)}, true
}

// Once returns the schedule of one slot at t, rounded up to a microsecond, which is what a database keeps. It reports
// false for an instant outside the years 1970 to 9999.
func Once(t time.Time) (Schedule, bool) {
	t = t.UTC()
	if over := t.Nanosecond() % 1000; over > 0 {
		t = t.Add(time.Duration(1000 - over))
	}
	if year := t.Year(); year < minYear || year > lastYear {
		return Schedule{}, false
	}
	return Schedule{form: byDate, dialect: Cozy, start: t.Unix(), step: int64(t.Nanosecond())}, true
}

// date is the slot of @at.
func (s *Schedule) date() time.Time { return time.Unix(s.start, s.step).UTC() }

// nextDate and prevDate compare in full: the slot of @at may have a fraction, which whole seconds cannot tell from the
// instants around it.
func (s *Schedule) nextDate(t time.Time) (time.Time, bool) {
	if d := s.date(); d.After(t) {
		return d, true
	}
	return time.Time{}, false
}

func (s *Schedule) prevDate(t time.Time, orAt bool) (time.Time, bool) {
	if d := s.date(); d.Before(t) || orAt && d.Equal(t) {
		return d, true
	}
	return time.Time{}, false
}

// nextStep and prevStep are the search for @every: divisions, however far the slots are.
func (s *Schedule) nextStep(sec int64) (int64, bool) {
	slot := s.start + s.step
	if sec >= slot {
		slot = sec - (sec-s.start)%s.step + s.step
	}
	return slot, slot <= lastSecond
}

func (s *Schedule) prevStep(sec int64) (int64, bool) {
	sec = min(sec, lastSecond)
	if sec < s.start+s.step {
		return 0, false
	}
	return sec - (sec-s.start)%s.step, true
}

// countSteps is Count for @every.
func (s *Schedule) countSteps(from, to time.Time, limit int) (n int, more bool) {
	first, ok := s.Next(from.Add(-1))
	if !ok || first.After(to) {
		return 0, false
	}
	last, _ := s.PrevOrAt(to)
	count := (last.Unix()-first.Unix())/s.step + 1
	if limit = max(limit, 0); count > int64(limit) {
		return limit, true
	}
	return int(count), false
}

// clockText is String for @every and @at.
func (s *Schedule) clockText() string {
	if s.form == byDate {
		return atWord + s.date().Format(time.RFC3339Nano)
	}
	return everyWord + shortDuration(s.step) + fromWord + time.Unix(s.start, 0).UTC().Format(time.RFC3339)
}

// shortDuration writes seconds as package time reads them, without the units that are zero: 1h30m.
func shortDuration(sec int64) string {
	var b strings.Builder
	for _, unit := range [...]struct {
		name string
		size int64
	}{{"h", 3600}, {"m", 60}, {"s", 1}} {
		if n := sec / unit.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			sec %= unit.size
		}
	}
	return b.String()
}

// describeClock is Describe for @every and @at.
func (s *Schedule) describeClock() string {
	const day = "2006-01-02 15:04:05.999999 UTC"
	if s.form == byDate {
		return "once, on " + s.date().Format(day)
	}
	var pieces []string
	left := s.step
	for _, unit := range [...]struct {
		name string
		size int64
	}{{"day", daySeconds}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		if n := left / unit.size; n > 0 {
			pieces = append(pieces, fmt.Sprintf("%d %s%s", n, unit.name, plural(n)))
			left %= unit.size
		}
	}
	words := and(pieces)
	if words == pieces[0] { // one unit: "every minute", "every 5 minutes"
		words = strings.TrimPrefix(words, "1 ")
	}
	return "every " + words + ", counted from " + time.Unix(s.start, 0).UTC().Format(day)
}

func plural(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}
