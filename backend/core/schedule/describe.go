package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unique"
)

// Describe returns the schedule in English words: "every 2 seconds", "at 04:30 on Monday to Friday", "at 00:00 on
// day 13 of the month or on Friday". It says what happens, not how it was written: 0,30 and */30 read the same.
func (s Schedule) Describe() string {
	if s.IsZero() {
		return "never"
	}
	if s.form != byFields {
		return s.describeClock()
	}
	words, daily := s.describeTime()
	if days := s.describeDays(); days != "" {
		words += " " + days
	} else if daily {
		words += " every day"
	}
	if s.years != (unique.Handle[yearSet]{}) {
		words += " in " + s.describeYears()
	}
	if s.zone != nil {
		words += ", " + s.zone.loc.String() + " time"
	}
	return words
}

// describeTime describes hours, minutes and seconds. daily reports that "every day" should follow where the days are
// not restricted, which would sound odd after "every minute".
func (s *Schedule) describeTime() (words string, daily bool) {
	hours, minutes, seconds := uint64(s.hours), s.minutes, s.seconds
	everyHour, everyMinute := hours == 1<<24-1, minutes == 1<<60-1
	atSecond0, atMinute0 := seconds == 1, minutes == 1
	switch {
	case everyHour && everyMinute && evenly(seconds, 60) > 0:
		return every(evenly(seconds, 60), "second"), false
	case everyHour && atSecond0 && evenly(minutes, 60) > 0:
		return every(evenly(minutes, 60), "minute"), false
	case everyHour && atSecond0 && atMinute0:
		return "every hour", false
	case s.realTime && atSecond0 && atMinute0 && evenly(hours, 24) > 1:
		return every(evenly(hours, 24), "hour"), false
	}
	if count := bits.OnesCount64(hours) * bits.OnesCount64(minutes) * bits.OnesCount64(seconds); count <= 6 {
		return "at " + s.clockTimes(), true
	}
	from, to, run := stretch(hours)
	if run && !everyHour && atSecond0 {
		if n := evenly(minutes, 60); n > 0 {
			last := bits.Len64(minutes) - 1
			return fmt.Sprintf("%s from %02d:00 to %02d:%02d", every(n, "minute"), from, to, last), true
		}
		if atMinute0 {
			return fmt.Sprintf("every hour from %02d:00 to %02d:00", from, to), true
		}
	}
	var pieces []string
	if !atSecond0 {
		pieces = append(pieces, units(seconds, 60, "second"))
	}
	pieces = append(pieces, units(minutes, 60, "minute"))
	if !everyHour || !everyMinute {
		pieces = append(pieces, units(hours, 24, "hour"))
	}
	words = strings.Join(pieces, " of ")
	if !strings.HasPrefix(words, "every") {
		words = "at " + words
	}
	return words, !everyHour
}

// clockTimes lists every time of day.
func (s *Schedule) clockTimes() string {
	var times []string
	for h := range members(uint64(s.hours)) {
		for m := range members(s.minutes) {
			for sec := range members(s.seconds) {
				if s.seconds == 1 {
					times = append(times, fmt.Sprintf("%02d:%02d", h, m))
				} else {
					times = append(times, fmt.Sprintf("%02d:%02d:%02d", h, m, sec))
				}
			}
		}
	}
	return and(times)
}

// describeDays describes days, weekdays and months; it returns nothing where none of them is restricted.
func (s *Schedule) describeDays() string {
	months := ""
	if s.months != allMonths {
		months = and(runs(uint64(s.months), func(m int) string { return longMonths[m-1] }))
	}
	days := and(runs(uint64(s.days), strconv.Itoa))
	if bits.OnesCount32(s.days) == 1 {
		days = "day " + days
	} else {
		days = "days " + days
	}
	// Monday first, so that Friday to Sunday is one stretch.
	weekdays := and(runs(uint64(turn(s.weekdays, 1)), func(d int) string { return longDays[d] }))
	switch {
	case s.days == allDays && months == "":
		return ""
	case s.days == allDays:
		return "every day in " + months
	case s.weekdays == 0 && months == "":
		return "on " + days + " of the month"
	case s.weekdays == 0:
		return "on " + days + " of " + months
	case s.days == 0 && months == "":
		return "on " + weekdays
	case s.days == 0:
		return "on " + weekdays + " in " + months
	case months == "":
		return "on " + days + " of the month or on " + weekdays
	default:
		return "on " + days + " or on " + weekdays + ", both in " + months
	}
}

func (s *Schedule) describeYears() string {
	var names []string
	for year := s.yearFrom(minYear); year <= maxYear; {
		last := year
		for s.yearFrom(last+1) == last+1 && last < maxYear {
			last++
		}
		names = appendRun(names, year, last, strconv.Itoa)
		year = s.yearFrom(last + 1)
	}
	if len(names) > 10 { // nobody reads on
		return fmt.Sprintf("%d years from %d to %d", s.countYears(), s.yearFrom(minYear), s.yearUpTo(maxYear))
	}
	return and(names)
}

func (s *Schedule) countYears() (n int) {
	for _, word := range s.years.Value() {
		n += bits.OnesCount64(word)
	}
	return n
}

var (
	longDays   = []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
	longMonths = []string{"January", "February", "March", "April", "May", "June", "July", "August", "September",
		"October", "November", "December"}
)

// evenly returns n if the set is 0, n, 2n, .. and goes round evenly in the whole, and 0 otherwise.
func evenly(set uint64, whole int) int {
	count := bits.OnesCount64(set)
	if count < 2 || whole%count != 0 {
		return 0
	}
	n := whole / count
	for i := 0; i < whole; i += n {
		if set>>i&1 == 0 {
			return 0
		}
	}
	return n
}

func every(n int, unit string) string {
	if n == 1 {
		return "every " + unit
	}
	return fmt.Sprintf("every %d %ss", n, unit)
}

// stretch reports whether the set is one run of neighbours, and which.
func stretch(set uint64) (from, to int, ok bool) {
	from, to = bits.TrailingZeros64(set), bits.Len64(set)-1
	return from, to, bits.OnesCount64(set) == to-from+1
}

// units names the members of one time field: "every minute", "minute 5", "minutes 0 to 56 in steps of 7".
func units(set uint64, whole int, unit string) string {
	count := bits.OnesCount64(set)
	if count == whole {
		return "every " + unit
	}
	from, to := bits.TrailingZeros64(set), bits.Len64(set)-1
	if count == 1 {
		return fmt.Sprintf("%s %d", unit, from)
	}
	if step := (to - from) / (count - 1); count > 4 && step > 1 && (to-from)%(count-1) == 0 {
		inStep := true
		for x := from; x <= to; x += step {
			inStep = inStep && set>>x&1 != 0
		}
		if inStep {
			return fmt.Sprintf("%ss %d to %d in steps of %d", unit, from, to, step)
		}
	}
	return unit + "s " + and(runs(set, strconv.Itoa))
}

// members yields the numbers in a set.
func members(set uint64) func(func(int) bool) {
	return func(yield func(int) bool) {
		for ; set != 0; set &= set - 1 {
			if !yield(bits.TrailingZeros64(set)) {
				return
			}
		}
	}
}

// runs names the members of a set, three and more neighbours as a stretch.
func runs(set uint64, name func(int) string) (names []string) {
	for set != 0 {
		from := bits.TrailingZeros64(set)
		to := from + bits.TrailingZeros64(^(set >> from)) - 1
		names = appendRun(names, from, to, name)
		set &^= 2<<to - 1
	}
	return names
}

func appendRun(names []string, from, to int, name func(int) string) []string {
	switch to - from {
	case 0:
		return append(names, name(from))
	case 1:
		return append(names, name(from), name(to))
	}
	return append(names, name(from)+" to "+name(to))
}

// and joins names as a sentence does.
func and(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
