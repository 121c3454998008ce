package schedule

import (
	"math/bits"
	"unique"
)

// The search in local time. A local time is a count of seconds since 1970-01-01 00:00 on the wall clock, as if every
// day had 86,400 of them; no zone is involved here. Every loop runs over at most the months of the allowed years.

const (
	minYear = 1970
	maxYear = 3000

	daySeconds = 24 * 60 * 60
	maxDay     = 376564 // days from 1970-01-01 to 3000-12-31
	noDay      = -1

	allDays   uint32 = 1<<32 - 2 // bits 1-31
	allMonths uint16 = 1<<13 - 2 // bits 1-12
	allWeek   uint8  = 1<<7 - 1
)

// dayKind says how much of the calendar a day search has to look at.
type dayKind uint8

const (
	everyDay    dayKind = iota // every day matches
	byWeekday                  // the weekday alone decides
	byMonthDays                // months, days or years are restricted
)

// firstFrom returns the first matching local time that is not before l.
func (s *Schedule) firstFrom(l int64) (int64, bool) {
	l = max(l, 0)
	day := l / daySeconds
	if day > maxDay {
		return 0, false
	}
	tod, today := s.firstTimeFrom(uint32(l - day*daySeconds))
	if !today {
		day, tod = day+1, s.firstTime()
	}
	found := s.firstDay(day)
	if found == noDay {
		return 0, false
	}
	if found != day {
		tod = s.firstTime()
	}
	return found*daySeconds + int64(tod), true
}

// lastUpTo returns the last matching local time that is not after l.
func (s *Schedule) lastUpTo(l int64) (int64, bool) {
	if l < 0 {
		return 0, false
	}
	l = min(l, (maxDay+1)*daySeconds-1)
	day := l / daySeconds
	tod, today := s.lastTimeUpTo(uint32(l - day*daySeconds))
	if !today {
		day, tod = day-1, s.lastTime()
	}
	found := s.lastDay(day)
	if found == noDay {
		return 0, false
	}
	if found != day {
		tod = s.lastTime()
	}
	return found*daySeconds + int64(tod), true
}

func clock(hour, minute, second int) uint32 { return uint32(hour*3600 + minute*60 + second) }

func (s *Schedule) firstTime() uint32 {
	return clock(bits.TrailingZeros32(s.hours), bits.TrailingZeros64(s.minutes), bits.TrailingZeros64(s.seconds))
}

func (s *Schedule) lastTime() uint32 {
	return clock(bits.Len32(s.hours)-1, bits.Len64(s.minutes)-1, bits.Len64(s.seconds)-1)
}

// firstTimeFrom returns the first matching second of a day that is not before tod.
func (s *Schedule) firstTimeFrom(tod uint32) (uint32, bool) {
	hour, minute, second := tod/3600, tod/60%60, tod%60
	if s.hours>>hour&1 != 0 {
		if s.minutes>>minute&1 != 0 {
			if left := s.seconds >> second; left != 0 {
				return tod + uint32(bits.TrailingZeros64(left)), true
			}
		}
		if left := s.minutes >> (minute + 1); left != 0 {
			return clock(int(hour), int(minute)+1+bits.TrailingZeros64(left), bits.TrailingZeros64(s.seconds)), true
		}
	}
	left := s.hours >> (hour + 1)
	if left == 0 {
		return 0, false
	}
	return clock(int(hour)+1+bits.TrailingZeros32(left), bits.TrailingZeros64(s.minutes),
		bits.TrailingZeros64(s.seconds)), true
}

// lastTimeUpTo returns the last matching second of a day that is not after tod.
func (s *Schedule) lastTimeUpTo(tod uint32) (uint32, bool) {
	hour, minute, second := tod/3600, tod/60%60, tod%60
	if s.hours>>hour&1 != 0 {
		if s.minutes>>minute&1 != 0 {
			if left := s.seconds & (2<<second - 1); left != 0 {
				return clock(int(hour), int(minute), bits.Len64(left)-1), true
			}
		}
		if left := s.minutes & (1<<minute - 1); left != 0 {
			return clock(int(hour), bits.Len64(left)-1, bits.Len64(s.seconds)-1), true
		}
	}
	left := s.hours & (1<<hour - 1)
	if left == 0 {
		return 0, false
	}
	return clock(bits.Len32(left)-1, bits.Len64(s.minutes)-1, bits.Len64(s.seconds)-1), true
}

// firstDay returns the first matching day (0 = 1970-01-01) that is not before day, or noDay.
func (s *Schedule) firstDay(day int64) int64 {
	switch s.search {
	case everyDay:
	case byWeekday:
		day += int64(bits.TrailingZeros8(turn(s.weekdays, weekday(day))))
	default:
		if day > maxDay {
			return noDay
		}
		return s.firstMonthDay(day)
	}
	if day > maxDay {
		return noDay
	}
	return day
}

// lastDay returns the last matching day that is not after day, or noDay.
func (s *Schedule) lastDay(day int64) int64 {
	if day < 0 {
		return noDay
	}
	switch s.search {
	case everyDay:
	case byWeekday:
		// Turned so that bit 6 is day's own weekday, bit 5 the one before.
		day -= int64(bits.LeadingZeros8(turn(s.weekdays, (weekday(day)+1)%7))) - 1
		if day < 0 {
			return noDay
		}
	default:
		return s.lastMonthDay(day)
	}
	return day
}

func (s *Schedule) firstMonthDay(day int64) int64 {
	year, month, dom := civil(day)
	for {
		allowed := s.yearFrom(year)
		if allowed > maxYear {
			return noDay
		}
		if allowed > year {
			year, month, dom = allowed, 1, 1
		}
		start, leap := yearStart(year), isLeap(year)
		for left := s.months >> month << month; left != 0; left &= left - 1 {
			m := bits.TrailingZeros16(left)
			if m != month {
				dom = 1
			}
			first := start + int64(daysBefore[leap][m])
			if days := s.daysOf(first, monthDays[leap][m]) >> dom << dom; days != 0 {
				return first + int64(bits.TrailingZeros32(days)) - 1
			}
		}
		year, month, dom = year+1, 1, 1
	}
}

func (s *Schedule) lastMonthDay(day int64) int64 {
	year, month, dom := civil(day)
	for {
		allowed := s.yearUpTo(year)
		if allowed < minYear {
			return noDay
		}
		if allowed < year {
			year, month, dom = allowed, 12, 31
		}
		start, leap := yearStart(year), isLeap(year)
		for left := s.months & (2<<month - 1); left != 0; {
			m := bits.Len16(left) - 1
			left &^= 1 << m
			if m != month {
				dom = 31
			}
			first := start + int64(daysBefore[leap][m])
			if days := s.daysOf(first, monthDays[leap][m]) & (2<<dom - 1); days != 0 {
				return first + int64(bits.Len32(days)) - 2
			}
		}
		year, month, dom = year-1, 12, 31
	}
}

// daysOf returns the matching days (bits 1-31) of the month of the given length whose first day is first.
func (s *Schedule) daysOf(first int64, length uint8) uint32 {
	days := s.days
	if s.weekdays != 0 {
		const everySeventh = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28
		days |= uint32(uint64(turn(s.weekdays, weekday(first))) * everySeventh << 1)
	}
	return days & (2<<length - 1)
}

// turn rotates a set of weekdays so that bit 0 is the weekday w, bit 1 the one after it.
func turn(set uint8, w int) uint8 { return (set>>w | set<<(7-w)) & allWeek }

// weekday of a day that is not before 1970-01-01, a Thursday.
func weekday(day int64) int { return int(uint32(day+4) % 7) }

var (
	monthDays = [2][13]uint8{
		{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31},
		{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31},
	}
	daysBefore = [2][13]uint16{
		{0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334},
		{0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335},
	}
)

// isLeap returns 1 for a leap year and 0 for a common one, as an index into the tables above.
func isLeap(year int) int {
	if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 1
	}
	return 0
}

// yearStart returns the day of the first of January.
func yearStart(year int) int64 {
	y := year - 1
	return int64(365*(year-minYear) + y/4 - y/100 + y/400 - 477)
}

// civil returns the date of a day from 1970 on. The year is guessed from the mean length of a year, at most one too
// large; the month as the 32nds of the year, at most one too small. A test compares every day of the range. That is
// one multiplication and two small table look-ups instead of the divisions of the usual way.
func civil(day int64) (year, month, dom int) {
	year = minYear + int(uint64(day+1)*400/146097)
	start := yearStart(year)
	if start > day {
		year--
		start = yearStart(year)
	}
	in := uint16(day - start)
	before := &daysBefore[isLeap(year)]
	month = int(in)/32 + 1
	if month < 12 && before[month+1] <= in {
		month++
	}
	return year, month, int(in-before[month]) + 1
}

// yearSet holds the years 1970-3000, bit 0 of the first word being 1970.
type yearSet [(maxYear-minYear)/64 + 1]uint64

func (y *yearSet) add(year int) { y[(year-minYear)/64] |= 1 << ((year - minYear) % 64) }

// yearFrom returns the first allowed year that is not before year; it is above maxYear when there is none.
func (s *Schedule) yearFrom(year int) int {
	if s.years == (unique.Handle[yearSet]{}) || year > maxYear {
		return year
	}
	set, i := s.years.Value(), year-minYear
	if left := set[i/64] >> (i % 64); left != 0 {
		return year + bits.TrailingZeros64(left)
	}
	for w := i/64 + 1; w < len(set); w++ {
		if set[w] != 0 {
			return minYear + w*64 + bits.TrailingZeros64(set[w])
		}
	}
	return maxYear + 1
}

// yearUpTo returns the last allowed year that is not after year; it is below minYear when there is none.
func (s *Schedule) yearUpTo(year int) int {
	if s.years == (unique.Handle[yearSet]{}) || year < minYear {
		return year
	}
	set, i := s.years.Value(), year-minYear
	if left := set[i/64] << (63 - i%64); left != 0 {
		return year - bits.LeadingZeros64(left)
	}
	for w := i/64 - 1; w >= 0; w-- {
		if set[w] != 0 {
			return minYear + w*64 + bits.Len64(set[w]) - 1
		}
	}
	return minYear - 1
}
