package trigger

import (
	"math/bits"
	"strings"
)

// Periodic is what the arguments of an @hourly, @daily, @weekly or @monthly allow its slot to be.
type Periodic struct {
	Kind        Kind
	DaysOfWeek  []int // of Weekly: 0 = Sunday to 6, ascending
	DaysOfMonth []int // of Monthly: 1 to 31, ascending
	AfterHour   int   // 0-23, the first hour of the window
	BeforeHour  int   // 1-24, the hour at which it ends
}

// ParsePeriodic reads clauses, in any order, each at most once, separated by blanks and in lower case:
//
//	on <weekdays>              @weekly: mon, monday, wed-fri, fri-mon, weekday, weekend, joined by commas
//	on the <days>              @monthly: 1 to 31, 3-7, joined by commas
//	before 9am   after 10pm    not @hourly; a window within one day, its lower end included
//	between 8am and 6pm
//
// Without them any weekday, the days 1 to 28 (which every month has) and any hour will do. The error is a *Fault.
func ParsePeriodic(kind Kind, arguments string) (Periodic, error) {
	if !kind.periodic() {
		return Periodic{}, &Fault{
			Pointer: PointerType, Title: InvalidAttribute, Detail: quote(string(kind)) + " has no clauses",
		}
	}
	if err := bounded(arguments); err != nil {
		return Periodic{}, err
	}
	words := strings.FieldsFunc(arguments, func(r rune) bool { return r == ' ' || r == '\t' })
	c := clauses{kind: kind, words: words, lower: unset, upper: unset}
	for len(c.words) > 0 {
		if err := c.read(); err != nil {
			return Periodic{}, err
		}
	}
	return c.periodic()
}

const (
	unset = -1

	everyWeekday   = 1<<7 - 1
	workdays       = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5
	weekend        = 1<<0 | 1<<6
	daysOfAnyMonth = 1<<29 - 2 // 1 to 28
)

// clauses is one reading of the arguments.
type clauses struct {
	kind         Kind
	words        []string // not read yet
	days         uint32   // bit n = the weekday or day n; 0: none given
	lower, upper int
}

func (c *clauses) periodic() (Periodic, error) {
	p := Periodic{Kind: c.kind, AfterHour: max(c.lower, 0), BeforeHour: c.upper}
	if c.upper == unset {
		p.BeforeHour = 24
	}
	if p.AfterHour >= p.BeforeHour {
		return Periodic{}, badArguments("%s: a window from hour %d to %d has no hours", c.kind, p.AfterHour, p.BeforeHour)
	}
	switch c.kind {
	case Weekly:
		p.DaysOfWeek = members(c.days, everyWeekday)
	case Monthly:
		p.DaysOfMonth = members(c.days, daysOfAnyMonth)
	}
	return p, nil
}

// members lists a set, or another one in place of none.
func members(set, otherwise uint32) (list []int) {
	if set == 0 {
		set = otherwise
	}
	for ; set != 0; set &= set - 1 {
		list = append(list, bits.TrailingZeros32(set))
	}
	return list
}

// read reads one clause.
func (c *clauses) read() error {
	word := c.next()
	switch {
	case word == "on" && c.kind == Weekly:
		return c.readDays(readWeekday, "a weekday")
	case word == "on" && c.kind == Monthly:
		if the := c.next(); the != "the" {
			return badArguments(`%s: write "on the" and days such as 1 or 3-7`, c.kind)
		}
		return c.readDays(readDay, "a day from 1 to 31")
	case word == "before" && c.kind != Hourly:
		return c.readHour(&c.upper, true)
	case word == "after" && c.kind != Hourly:
		return c.readHour(&c.lower, false)
	case word == "between" && c.kind != Hourly:
		if err := c.readHour(&c.lower, false); err != nil {
			return err
		}
		if and := c.next(); and != "and" {
			return badArguments(`%s: write "between 8am and 6pm"`, c.kind)
		}
		return c.readHour(&c.upper, true)
	}
	return badArguments("%s: unexpected %s", c.kind, quote(word))
}

// next takes the next word; empty: there is none.
func (c *clauses) next() string {
	if len(c.words) == 0 {
		return ""
	}
	word := c.words[0]
	c.words = c.words[1:]
	return word
}

// readHour reads one end of the window.
func (c *clauses) readHour(to *int, upper bool) error {
	word := c.next()
	hour, ok := parseHour(word, upper)
	switch {
	case !ok:
		return badArguments("%s: %s is no hour such as 9am or 12pm", c.kind, quote(word))
	case *to != unset:
		return badArguments("%s: the window has two beginnings or two ends", c.kind)
	}
	*to = hour
	return nil
}

// parseHour reads 1am to 12pm. Midnight is 0, and 24 as an upper end.
func parseHour(word string, upper bool) (int, bool) {
	digits, am := strings.CutSuffix(word, "am")
	if !am {
		var pm bool
		if digits, pm = strings.CutSuffix(word, "pm"); !pm {
			return 0, false
		}
	}
	hour, ok := smallNumber(digits)
	if !ok || hour < 1 || hour > 12 {
		return 0, false
	}
	hour %= 12
	if !am {
		hour += 12
	}
	if hour == 0 && upper {
		hour = 24
	}
	return hour, true
}

// readDays reads a list: items joined by commas, without blanks.
func (c *clauses) readDays(item func(string) (uint32, bool), what string) error {
	list := c.next()
	if c.days != 0 {
		return badArguments("%s: days are given twice", c.kind)
	}
	for word := range strings.SplitSeq(list, ",") {
		days, ok := item(word)
		if !ok {
			return badArguments("%s: %s in %s is not %s or a range of them", c.kind, quote(word), quote(list), what)
		}
		c.days |= days
	}
	return nil
}

var weekdays = [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// readWeekday reads a weekday, a range that may go round the end of the week, or a name for several.
func readWeekday(item string) (uint32, bool) {
	switch item {
	case "weekday":
		return workdays, true
	case "weekend":
		return weekend, true
	}
	first, last, isRange := strings.Cut(item, "-")
	from := weekdayNumber(first)
	if !isRange {
		last = first
	}
	to := weekdayNumber(last)
	if from < 0 || to < 0 || isRange && from == to {
		return 0, false
	}
	set := uint32(1) << from
	for from != to {
		from = (from + 1) % 7
		set |= 1 << from
	}
	return set, true
}

// weekdayNumber knows whole names and their first three letters.
func weekdayNumber(name string) int {
	for i, long := range weekdays {
		if name == long || name == long[:3] {
			return i
		}
	}
	return -1
}

// readDay reads a day of the month, or a range that goes up.
func readDay(item string) (uint32, bool) {
	first, last, isRange := strings.Cut(item, "-")
	from, ok := smallNumber(first)
	to := from
	if ok && isRange {
		if to, ok = smallNumber(last); from >= to {
			return 0, false
		}
	}
	if !ok || from < 1 || to > 31 {
		return 0, false
	}
	return uint32(2)<<to - uint32(1)<<from, true
}

// smallNumber reads one or two digits.
func smallNumber(text string) (int, bool) {
	if len(text) < 1 || len(text) > 2 {
		return 0, false
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = n*10 + int(text[i]-'0')
	}
	return n, true
}
