package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unique"
)

// MaxLength is the longest expression that is read, in bytes.
const MaxLength = 4096

// blanks separate fields.
const blanks = " \t"

// Parse reads an expression whose local times are those of loc (nil = UTC). It judges the writing only: a schedule
// that never fires (30 February) is accepted, see [ParseAt]. Every error is an [*Error].
func Parse(expr string, d Dialect, loc *time.Location) (Schedule, error) {
	r := reader{expr: expr, dialect: d}
	if d != Verb && d != Cozy {
		return Schedule{}, r.fail(-1, 0, len(expr), "", "unknown cron dialect %v", d)
	}
	if err := r.split(); err != nil {
		return Schedule{}, err
	}
	s, err := r.read()
	if err != nil {
		return Schedule{}, err
	}
	s.zone = zoneOf(loc)
	return s, nil
}

// ParseAt is Parse for a declaration at the instant now: it also refuses a schedule without a slot after now, with an
// error that is [ErrNeverFires].
func ParseAt(expr string, d Dialect, loc *time.Location, now time.Time) (Schedule, error) {
	s, err := Parse(expr, d, loc)
	if err != nil {
		return Schedule{}, err
	}
	if _, ok := s.Next(now); !ok {
		return Schedule{}, s.neverFires(expr, now)
	}
	return s, nil
}

// part is one component of a schedule.
type part struct {
	name     string
	min, max int
	names    []string // names[i] stands for min+i, in the cozy dialect
}

var (
	dayNames   = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
	monthNames = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}

	secondPart  = &part{name: "second", max: 59}
	minutePart  = &part{name: "minute", max: 59}
	hourPart    = &part{name: "hour", max: 23}
	dayPart     = &part{name: "day of month", min: 1, max: 31}
	monthPart   = &part{name: "month", min: 1, max: 12, names: monthNames}
	weekdayPart = &part{name: "day of week", max: 6, names: dayNames}
	yearPart    = &part{name: "year", min: minYear, max: maxYear}

	parts = [...]*part{secondPart, minutePart, hourPart, dayPart, monthPart, weekdayPart, yearPart}
)

func lookUp(names []string, upper string) int {
	for i, name := range names {
		if name == upper {
			return i
		}
	}
	return -1
}

// span is a piece of the expression.
type span struct{ from, to int }

// reader is one reading of one expression.
type reader struct {
	expr    string
	dialect Dialect
	fields  [8]span // one more than the longest form has, to point at
	count   int     // fields written, may be more than that
	field   int     // the one being read
	text    strings.Builder
}

// split finds the fields.
func (r *reader) split() error {
	if len(r.expr) > MaxLength {
		return r.fail(-1, MaxLength, len(r.expr), "", "expression is longer than %d bytes", MaxLength)
	}
	first, last := 0, 0
	for i := 0; i < len(r.expr); {
		if strings.IndexByte(blanks, r.expr[i]) >= 0 {
			i++
			continue
		}
		from := i
		for i < len(r.expr) && strings.IndexByte(blanks, r.expr[i]) < 0 {
			i++
		}
		if r.count < len(r.fields) {
			r.fields[r.count] = span{from, i}
		}
		if r.count == 0 {
			first = from
		}
		last = i
		r.count++
	}
	if most := r.dialect.maxFields(); r.count < 5 || r.count > most {
		from := first
		if r.count > most {
			from = r.fields[most].from // the first field too many
		}
		return r.fail(-1, from, last, r.hintForCount(), "expected 5-%d components, got %d", most, r.count)
	}
	return nil
}

// values is what one field says.
type values struct {
	bits  uint64   // all parts but the year
	years *yearSet // the year
	star  bool     // the field is a bare * (or ?)
	every bool     // the field is * or */n
}

// read reads the fields into a schedule in UTC.
func (r *reader) read() (Schedule, error) {
	r.text.Grow(len(r.expr))
	s := Schedule{dialect: r.dialect, seconds: 1, days: allDays, months: allMonths}
	var day, week values
	var years yearSet
	first := 0
	if r.count == 5 {
		first = 1 // no field for the second
	}
	for r.field = range r.count {
		p := parts[first+r.field]
		v := values{}
		if p == yearPart {
			v.years = &years
		}
		if err := r.readField(p, &v); err != nil {
			return Schedule{}, err
		}
		switch p {
		case secondPart:
			s.seconds = v.bits
		case minutePart:
			s.minutes = v.bits
		case hourPart:
			s.hours, s.realTime = uint32(v.bits), v.every
		case dayPart:
			day = v
		case monthPart:
			s.months = uint16(v.bits)
		case weekdayPart:
			week = v
		case yearPart:
			if !v.star {
				s.years = unique.Make(years)
			}
		}
	}
	s.setDays(day, week)
	s.text = r.text.String()
	return s, nil
}

// setDays applies the day rule: both fields restricted = either matches, one restricted = that one decides.
func (s *Schedule) setDays(day, week values) {
	s.days, s.weekdays = uint32(day.bits), uint8(week.bits)
	switch {
	case week.star:
		s.weekdays = 0
	case day.star:
		s.days = 0
	}
	if s.days == allDays || s.weekdays == allWeek {
		s.days, s.weekdays = allDays, 0
	}
	everyMonth := s.months == allMonths && s.years == (unique.Handle[yearSet]{})
	switch {
	case everyMonth && s.days == allDays:
		s.search = everyDay
	case everyMonth && s.days == 0:
		s.search = byWeekday
	default:
		s.search = byMonthDays
	}
}

// readField reads the items of the current field.
func (r *reader) readField(p *part, v *values) error {
	f := r.fields[r.field]
	if r.field > 0 {
		r.text.WriteByte(' ')
	}
	for from := f.from; ; {
		to := f.to
		if comma := strings.IndexByte(r.expr[from:f.to], ','); comma >= 0 {
			to = from + comma
		}
		if from == to {
			// The comma beside the hole, or the whole field, so that there is something to point at.
			return r.fail(r.field, max(from-1, f.from), min(to+1, f.to), "", "empty item in %s", p.name)
		}
		if err := r.readItem(p, v, span{from, to}, from == f.from && to == f.to); err != nil {
			return err
		}
		if to == f.to {
			return nil
		}
		r.text.WriteByte(',')
		from = to + 1
	}
}

// readItem reads *, x or x-y with an optional step. only says that the field has no other item.
func (r *reader) readItem(p *part, v *values, item span, only bool) error {
	base, step, stepped := item, span{}, false
	if slash := strings.IndexByte(r.expr[item.from:item.to], '/'); slash >= 0 {
		base.to, stepped = item.from+slash, true
		step = span{base.to + 1, item.to}
	}
	from, to, star, err := r.readBase(p, base, stepped)
	if err != nil {
		return err
	}
	n := 1
	if stepped {
		if star && p == yearPart {
			return r.fail(r.field, item.from, item.to, "",
				"asterix with a step value is not allowed for year component")
		}
		if n, err = r.readStep(p, step, item); err != nil {
			return err
		}
	}
	if only {
		v.every = star
		v.star = star && !stepped
	}
	for x := from; x <= to; x += n {
		switch p {
		case yearPart:
			v.years.add(x)
		case weekdayPart:
			v.bits |= 1 << (x % 7)
		default:
			v.bits |= 1 << x
		}
	}
	return nil
}

// readBase reads what stands before the step, and writes it to the canonical text. With a step and no upper end it
// reaches to the maximum.
func (r *reader) readBase(p *part, base span, stepped bool) (from, to int, star bool, err error) {
	text := r.expr[base.from:base.to]
	question := text == "?" && r.dialect == Cozy && (p == dayPart || p == weekdayPart)
	if text == "*" || question {
		r.text.WriteByte('*')
		return p.min, p.max, true, nil
	}
	low, isRange := base, false
	if dash := strings.IndexByte(text, '-'); dash > 0 {
		low.to, isRange = base.from+dash, true
	}
	// 7 is Sunday as a value of its own or as the end of a range, not where something goes on from it.
	most := p.max
	if p == weekdayPart && r.dialect == Verb && !stepped && !isRange {
		most = 7
	}
	if from, err = r.readValue(p, low, most); err != nil {
		return 0, 0, false, err
	}
	if !isRange {
		to = from
		if stepped {
			to = p.max
		}
		r.text.WriteString(strconv.Itoa(canonicalDay(p, from)))
		return from, to, false, nil
	}
	if p == weekdayPart && r.dialect == Verb {
		most = 7
	}
	if to, err = r.readValue(p, span{low.to + 1, base.to}, most); err != nil {
		return 0, 0, false, err
	}
	if to < from {
		hint := ""
		if from > p.min {
			hint = fmt.Sprintf("write it as two ranges: %d-%d,%d-%d", from, p.max, p.min, to)
		}
		return 0, 0, false, r.fail(r.field, base.from, base.to, hint, "range end %d is less than start %d", to, from)
	}
	r.text.WriteString(strconv.Itoa(from))
	r.text.WriteByte('-')
	r.text.WriteString(strconv.Itoa(to))
	return from, to, false, nil
}

func canonicalDay(p *part, x int) int {
	if p == weekdayPart {
		return x % 7
	}
	return x
}

// readValue reads a number or, in the cozy dialect, a name.
func (r *reader) readValue(p *part, at span, most int) (int, error) {
	text := r.expr[at.from:at.to]
	if text == "" {
		return 0, r.fail(r.field, r.fields[r.field].from, r.fields[r.field].to, "", "missing value in %s", p.name)
	}
	if r.dialect == Cozy && len(text) == 3 {
		if i := lookUp(p.names, strings.ToUpper(text)); i >= 0 {
			return p.min + i, nil
		}
	}
	x, ok := number(text)
	if !ok {
		return 0, r.fail(r.field, at.from, at.to, r.hintForText(p, text), "unexpected %s in %s", quote(text), p.name)
	}
	if x < p.min || x > most {
		return 0, r.fail(r.field, at.from, at.to, r.hintForValue(p, text),
			"value %s out of allowed %s range of %d-%d", shown(text), p.name, p.min, p.max)
	}
	return x, nil
}

func (r *reader) readStep(p *part, at, item span) (int, error) {
	text := r.expr[at.from:at.to]
	if text == "" {
		return 0, r.fail(r.field, item.from, item.to, "", "missing step in %s", p.name)
	}
	n, ok := number(text)
	switch {
	case !ok:
		return 0, r.fail(r.field, at.from, at.to, "a step is a number", "unexpected %s as step of %s", quote(text), p.name)
	case n < 1:
		return 0, r.fail(r.field, at.from, at.to, "", "step must be positive")
	case n > p.max-p.min:
		return 0, r.fail(r.field, at.from, at.to, "", "step %s is larger than allowed range of %d-%d", shown(text), p.min, p.max)
	}
	r.text.WriteByte('/')
	r.text.WriteString(strconv.Itoa(n))
	return n, nil
}

// number reads decimal digits. What is too large for any part is returned as one such value.
func number(text string) (int, bool) {
	x := 0
	for i := range len(text) {
		if !isDigit(text[i]) {
			return 0, false
		}
		x = min(x*10+int(text[i]-'0'), 1<<20)
	}
	return x, text != ""
}

// shown is a number as an error text shows it.
func shown(digits string) string {
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return "0"
	}
	if len(digits) > 20 {
		return digits[:20] + "..."
	}
	return digits
}
