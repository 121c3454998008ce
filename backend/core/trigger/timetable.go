package trigger

import (
	"time"

	"carillon/backend/core/schedule"
)

// MaxPreview is how many slots Preview lists at most.
const MaxPreview = 1000

// Timetable returns the text that the row of a trigger of the clock carries, which [schedule.ParseText] reads in the
// trigger's zone. It is made once, when the trigger is created, and stored: an @in counts from created, an @every has
// its phase by it, and the kinds with a slot of their own choose it by the id. The error is a *Fault.
func Timetable(kind Kind, arguments, zone, id string, created time.Time) (text string, err error) {
	if kind, err = ParseKind(string(kind)); err != nil {
		return "", err
	}
	s, err := compile(kind, arguments, zone, id, created)
	if err != nil {
		return "", err
	}
	return s.Text(), nil
}

// First returns the first slot of a trigger created at created. That of an @at may lie before it: then it is overdue,
// and fires at once. Zero: there is none.
func First(s schedule.Schedule, created time.Time) time.Time {
	if next, ok := s.Next(created); ok {
		return next
	}
	// Only what ends has nothing after its creation: the instant of an @at.
	last, _ := s.PrevOrAt(created)
	return last
}

// Preview returns the next slots, at most n, of a trigger of the clock that is created at created: those after from, or
// after its creation if that is later. From its creation an overdue @at is there, too. A kind that the clock does not
// fire has none. The error is a *Fault.
func Preview(kind Kind, arguments, zone, id string, created, from time.Time, n int) ([]time.Time, error) {
	kind, err := ParseKind(string(kind))
	if err != nil {
		return nil, err
	}
	if !kind.Timed() {
		return nil, Check(kind, arguments, zone, created)
	}
	s, err := compile(kind, arguments, zone, id, created)
	if err != nil {
		return nil, err
	}
	next, _ := s.Next(from)
	if !from.After(created) {
		next = First(s, created)
	}
	var slots []time.Time
	for ; !next.IsZero() && len(slots) < min(n, MaxPreview); next, _ = s.Next(next) {
		slots = append(slots, next)
	}
	return slots, nil
}

// compile reads the arguments of a trigger of the clock into its schedule.
func compile(kind Kind, arguments, zone, id string, created time.Time) (schedule.Schedule, error) {
	loc, err := location(zone)
	if err != nil {
		return schedule.Schedule{}, err
	}
	if err := bounded(arguments); err != nil {
		return schedule.Schedule{}, err
	}
	switch kind {
	case At:
		t, err := ParseAt(arguments)
		if err != nil {
			return schedule.Schedule{}, err
		}
		return once(kind, t)
	case In:
		d, err := ParseIn(arguments)
		if err != nil {
			return schedule.Schedule{}, err
		}
		return once(kind, created.Add(d))
	case Every:
		d, err := ParseEvery(arguments)
		if err != nil {
			return schedule.Schedule{}, err
		}
		s, ok := schedule.EverySince(d, created)
		if !ok {
			return schedule.Schedule{}, badArguments("%s: no interval is counted from %v", kind, created)
		}
		return s, nil
	case Cron:
		return readCron(arguments, loc, created)
	case Hourly, Daily, Weekly, Monthly:
		p, err := ParsePeriodic(kind, arguments)
		if err != nil {
			return schedule.Schedule{}, err
		}
		return readCron(p.Expression(id), loc, created)
	}
	return schedule.Schedule{}, &Fault{
		Pointer: PointerType, Title: InvalidAttribute, Detail: "the clock does not fire triggers of type " + quote(string(kind)),
	}
}
