package trigger

import (
	"time"

	"carillon/backend/core/schedule"
)

// earliest is the slot of an instant before it: such a trigger fires at once, and one second after 1970 began tells it
// from the instant zero, which stands for no time at all.
var earliest = time.Unix(1, 0).UTC()

// ParseAt reads the arguments of an @at: an instant of RFC 3339 with its zone and nothing around it. One in the past is
// legal. The error is a *Fault.
func ParseAt(arguments string) (time.Time, error) {
	t, err := schedule.ParseInstant(arguments)
	if err != nil {
		return time.Time{}, badArguments("%s: %v", At, err)
	}
	return t.UTC(), nil
}

// ParseIn reads the arguments of an @in: a duration of package time above zero. The error is a *Fault.
func ParseIn(arguments string) (time.Duration, error) {
	d, err := time.ParseDuration(arguments)
	if err != nil {
		return 0, badArguments("%s: %s is no duration such as 90s or 1h30m", In, quote(arguments))
	}
	if d <= 0 {
		return 0, badArguments("%s: the duration %s is not above zero", In, quote(arguments))
	}
	return d, nil
}

// once is the schedule of one instant.
func once(kind Kind, t time.Time) (schedule.Schedule, error) {
	if t.Before(earliest) {
		t = earliest
	}
	s, ok := schedule.Once(t)
	if !ok {
		return schedule.Schedule{}, badArguments("%s: the instant lies after the year 9999", kind)
	}
	return s, nil
}
