// Package schedule reads cron expressions, and the intervals and instants of triggers, and answers when they fire: the
// slot after an instant, the slot before it, and the same in words.
//
// It is pure: values in, values out, no goroutine and no clock, so it must never know what "now" is (callers pass
// it), what a slot is used for, or where a schedule is stored. A bad expression is refused by [Parse] or [ParseText]
// with an [*Error] that names the wrong piece; a [Schedule] that was accepted cannot fail, loop or panic. One that has
// ended says so with false.
//
// Zone rules come from package time, read when a zone is first named. A binary that must not depend on its host's zone files imports
// [time/tzdata]; the tests of this package run on the database of the Go release.
package schedule

import (
	"iter"
	"time"
	"unique"
)

// Schedule is one parsed expression in one zone: a small immutable value, safe for concurrent use and cheap to
// copy. Two schedules are == when dialect, canonical text and zone are the same, provided that the zone came by
// name ([LoadLocation]) or is UTC. The zero Schedule never fires.
//
// A schedule lives in the local years 1970 to 3000; there is no slot outside them. All instants returned are
// whole seconds in UTC. The one slot of an @at may be later, and keeps its microseconds.
//
// Daylight saving: a fixed local time inside a gap fires at the first instant after it, several of them (and an
// ordinary one at that instant) as one; a fixed local time inside an overlap fires at its first occurrence only.
// An hour field of * or */n means real time: every matching instant, both passes of an overlap, nothing for a gap.
type Schedule struct {
	seconds, minutes uint64 // bit n = value n
	hours, days      uint32 // days: bits 1-31
	months           uint16 // bits 1-12
	// A day matches when days OR weekdays has it. The parser empties the field that does not decide, so that the
	// search needs no third flag.
	weekdays uint8 // bit 0 = Sunday
	search   dayKind
	realTime bool // the hour field is * or */n
	form     form // what is not byFields leaves all above empty
	dialect  Dialect
	years    unique.Handle[yearSet] // zero handle = every year
	zone     *zone                  // nil = UTC
	text     string                 // of fields; the other forms make it when asked
	start    int64                  // byStep, byDate: in seconds
	step     int64                  // byStep: in seconds; byDate: the nanoseconds after start
}

// Next returns the first slot strictly after t, and false when there is none. It does not allocate.
func (s Schedule) Next(t time.Time) (time.Time, bool) {
	if s.form == byDate {
		return s.nextDate(t)
	}
	sec, ok := s.next(clampSecond(t))
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(sec, 0).UTC(), true
}

// Prev returns the latest slot strictly before t, and false when there is none. It does not allocate.
func (s Schedule) Prev(t time.Time) (time.Time, bool) {
	if s.form == byDate {
		return s.prevDate(t, false)
	}
	sec := clampSecond(t)
	if t.Nanosecond() == 0 {
		sec--
	}
	return s.prevTime(sec)
}

// PrevOrAt returns the latest slot that is not after t, and false when there is none. It does not allocate.
func (s Schedule) PrevOrAt(t time.Time) (time.Time, bool) {
	if s.form == byDate {
		return s.prevDate(t, true)
	}
	return s.prevTime(clampSecond(t))
}

func (s *Schedule) prevTime(sec int64) (time.Time, bool) {
	sec, ok := s.prev(sec)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(sec, 0).UTC(), true
}

// Between yields the slots from..to in order, both bounds included. It does not bound their number: the caller
// stops when it has enough.
func (s Schedule) Between(from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for t, ok := s.Next(from.Add(-1)); ok && !t.After(to); t, ok = s.Next(t) {
			if !yield(t) {
				return
			}
		}
	}
}

// Count returns how many slots lie in from..to, both bounds included. It stops at limit and then reports whether there
// are more. It takes about 20 ns per slot, and for an @every no time.
func (s Schedule) Count(from, to time.Time, limit int) (n int, more bool) {
	if s.form == byStep {
		return s.countSteps(from, to, limit)
	}
	for range s.Between(from, to) {
		if n >= limit {
			return n, true
		}
		n++
	}
	return n, false
}

// String returns the canonical text: single blanks, no leading zeros, numbers for names, * for ?. Parsing it in the
// same dialect and zone gives an equal schedule; that of an @every or @at is read by [ParseText] alone.
func (s Schedule) String() string {
	if s.form != byFields {
		return s.clockText()
	}
	return s.text
}

// Dialect returns the dialect that the schedule was read in; an @every and an @at belong to Cozy.
func (s Schedule) Dialect() Dialect { return s.dialect }

// Location returns the zone of the schedule's local times, UTC unless it was given another one.
func (s Schedule) Location() *time.Location {
	if s.zone == nil {
		return time.UTC
	}
	return s.zone.loc
}

// IsZero reports whether s is the zero Schedule, which never fires.
func (s Schedule) IsZero() bool { return s.seconds == 0 && s.form == byFields }

// clampSecond returns t's whole second, kept far enough from the ends of int64 that offsets can be added.
func clampSecond(t time.Time) int64 {
	const far = 1 << 40 // some 35,000 years
	return min(max(t.Unix(), -far), far)
}

// next returns the first slot in seconds strictly after the second sec.
func (s *Schedule) next(sec int64) (int64, bool) {
	switch {
	case s.seconds == 0:
		if s.form == byStep {
			return s.nextStep(sec)
		}
		return 0, false
	case s.zone == nil:
		return s.firstFrom(sec + 1)
	case s.realTime:
		return s.nextReal(sec)
	default:
		return s.nextFixed(sec)
	}
}

// prev returns the latest slot that is not after the second sec.
func (s *Schedule) prev(sec int64) (int64, bool) {
	switch {
	case s.seconds == 0:
		if s.form == byStep {
			return s.prevStep(sec)
		}
		return 0, false
	case s.zone == nil:
		return s.lastUpTo(sec)
	case s.realTime:
		return s.prevReal(sec)
	default:
		return s.prevFixed(sec)
	}
}

// nextFixed and prevFixed are the rule for fixed local times. Such a time l fires when the wall clock first shows l
// or more (zone.reached), which is its first occurrence where it exists and the end of the gap where it does not.
// That instant never decreases with l, so the question "which slot is after sec" is a search in local time alone:
// the slots not yet fired at sec are those above the highest local time shown until then (zone.shown).
func (s *Schedule) nextFixed(sec int64) (int64, bool) {
	l, ok := s.firstFrom(s.zone.shown(sec) + 1)
	if !ok {
		return 0, false
	}
	return s.zone.reached(l), true
}

func (s *Schedule) prevFixed(sec int64) (int64, bool) {
	l, ok := s.lastUpTo(s.zone.shown(sec))
	if !ok {
		return 0, false
	}
	return s.zone.reached(l), true
}

// farLocal stands for "no local time found"; it is beyond the end of every period, and -farLocal before their start.
const farLocal = 1 << 61

// nextReal searches the matching local times period by period, each period being a stretch of real time with one
// offset. One search in local time serves many periods: found is the first match from searched on, so a period has
// to be searched again only if it starts below searched (an overlap) or above found (found lies in a gap).
func (s *Schedule) nextReal(sec int64) (int64, bool) {
	ps := s.zone.periods
	i := s.zone.at(sec + 1)
	searched := sec + 1 + ps[i].offset
	found := s.firstOrFar(searched)
	for {
		if found < ps[i].next+ps[i].offset {
			return found - ps[i].offset, true
		}
		if i++; i == len(ps) {
			return 0, false
		}
		if ps[i].start > sec+2*maxShift {
			// No overlap reaches back below searched any more.
			if found == farLocal {
				return 0, false
			}
			i = max(i, s.zone.periodReaching(found))
		}
		if lo := ps[i].start + ps[i].offset; lo < searched || found < lo {
			searched, found = lo, s.firstOrFar(lo)
		}
	}
}

// prevReal is nextReal backwards.
func (s *Schedule) prevReal(sec int64) (int64, bool) {
	ps := s.zone.periods
	i := s.zone.at(sec)
	searched := sec + ps[i].offset
	found := s.lastOrFar(searched)
	for {
		if i == 0 || found >= ps[i].start+ps[i].offset {
			return found - ps[i].offset, found != -farLocal
		}
		i--
		if found == -farLocal && ps[i].next < sec-2*maxShift {
			return 0, false
		}
		if hi := ps[i].next - 1 + ps[i].offset; hi > searched || found > hi {
			searched, found = hi, s.lastOrFar(hi)
		}
	}
}

func (s *Schedule) firstOrFar(l int64) int64 {
	if l, ok := s.firstFrom(l); ok {
		return l
	}
	return farLocal
}

func (s *Schedule) lastOrFar(l int64) int64 {
	if l, ok := s.lastUpTo(l); ok {
		return l
	}
	return -farLocal
}
