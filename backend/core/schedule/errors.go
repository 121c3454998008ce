package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNeverFires marks an expression that is well written but has no slot after the given instant.
var ErrNeverFires = errors.New("schedule never fires")

// Error is a refused expression. Its text is the cause alone; whoever reports it adds what the expression belongs
// to. Offset and Length, in bytes of the expression as it was given, mark the wrong piece, so that a caller can draw
// a caret below it; Length is 0 only in an empty expression.
type Error struct {
	Expr   string // as given
	Field  int    // which of the written fields, from 0; -1 = the expression as a whole
	Offset int
	Length int
	Cause  string // e.g. "value 60 out of allowed minute range of 0-59"
	Hint   string // how to mend it, e.g. `use "0 * * * *"`; may be empty

	err error
}

// Error returns the cause.
func (e *Error) Error() string { return e.Cause }

// Unwrap returns ErrNeverFires where that is the fault, and nil otherwise.
func (e *Error) Unwrap() error { return e.err }

// fail returns an error about the bytes from..to of the expression.
func (r *reader) fail(field, from, to int, hint, cause string, args ...any) *Error {
	return &Error{
		Expr: r.expr, Field: field, Offset: from, Length: to - from,
		Cause: fmt.Sprintf(cause, args...), Hint: hint,
	}
}

// quote makes a piece of an expression fit to stand in an error text.
func quote(piece string) string {
	const most = 32
	if len(piece) > most {
		piece = strings.ToValidUTF8(piece[:most], "") + "..."
	}
	return fmt.Sprintf("%q", piece)
}

// neverFires is the error of ParseAt.
func (s *Schedule) neverFires(expr string, now time.Time) *Error {
	trimmed := strings.Trim(expr, blanks)
	e := &Error{
		Expr: expr, Field: -1, Offset: strings.Index(expr, trimmed), Length: len(trimmed),
		Cause: fmt.Sprintf("could not find next time for pattern %s", quoteWhole(expr)),
		Hint:  "no such date exists: check the days, the months and the year",
		err:   ErrNeverFires,
	}
	if last, ok := s.PrevOrAt(now); ok {
		e.Hint = "its last time was " + last.Format(time.RFC3339)
	}
	return e
}

// quoteWhole quotes an expression as it is; its length is bounded by the parser, and what was accepted holds no byte
// that would need an escape, except a tab.
func quoteWhole(expr string) string { return `"` + expr + `"` }

// atWords says what the words that some other crons know are in fields.
var atWords = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// hintForCount helps with a wrong number of fields.
func (r *reader) hintForCount() string {
	text := strings.Trim(r.expr, blanks)
	first, _, _ := strings.Cut(text, " ")
	switch {
	case text == "":
		return `write five fields, e.g. "0 0 * * *" for every midnight`
	case strings.HasPrefix(first, "@"):
		if fields, ok := atWords[strings.ToLower(first)]; ok {
			return fmt.Sprintf("use %q", fields)
		}
		return `words with @ are not supported, use fields, e.g. "*/5 * * * *" for every five minutes`
	case isZonePrefix(first):
		return hintZone
	case r.dialect == Cozy && r.count == 7:
		return "years are not supported here, use 6 fields with the second first"
	case r.count > r.dialect.maxFields():
		return "separate the values of one field by commas, without blanks"
	}
	return "the fields are: minute, hour, day of month, month, day of week"
}

const hintZone = "the zone is not part of the expression, set it beside it"

func isZonePrefix(field string) bool {
	return strings.HasPrefix(field, "TZ=") || strings.HasPrefix(field, "CRON_TZ=")
}

// hintForText helps where a number was expected.
func (r *reader) hintForText(p *part, piece string) string {
	upper := strings.ToUpper(piece)
	isName := func(names []string) bool { return len(upper) >= 3 && lookUp(names, upper[:3]) >= 0 }
	switch {
	case isZonePrefix(r.expr[r.fields[r.field].from:r.fields[r.field].to]):
		return hintZone
	case piece == "":
		return ""
	case strings.HasPrefix(piece, "@"):
		return "words with @ are not supported, use fields"
	case piece[0] == '-' || piece[0] == '+':
		return "signs are not supported"
	case strings.Contains(piece, "?") && r.dialect == Cozy:
		return "? may stand only in the two day fields, use *"
	case strings.Contains(piece, "?"):
		return "use *"
	case strings.Contains(piece, "#"):
		return "# is not supported"
	case upper == "L" || upper == "W" || upper == "LW" || isDigit(piece[0]) && strings.Trim(upper, "0123456789LW") == "":
		return "L and W are not supported"
	case isName(dayNames), isName(monthNames):
		if len(p.names) > 0 && r.dialect == Cozy {
			return fmt.Sprintf("use a name of three letters or %d-%d", p.min, p.max)
		}
		return fmt.Sprintf("use %d-%d", p.min, p.max)
	case strings.ContainsAny(piece, ".,"):
		return "fractions are not supported"
	}
	return ""
}

// hintForValue helps with a number out of range.
func (r *reader) hintForValue(p *part, piece string) string {
	switch {
	case p == hourPart && piece == "24":
		return "use 0 for midnight"
	case p != weekdayPart:
		return ""
	case piece == "7" && r.dialect == Cozy:
		return "use 0 for Sunday"
	case piece == "7":
		return "use 0 for Sunday: 7 may stand alone or end a range"
	case len(piece) == 4 && r.count == 6 && r.dialect == Verb:
		return fmt.Sprintf("six fields begin with the second, use 7 fields to name a year: %q",
			"0 "+strings.Join(strings.Fields(r.expr), " "))
	case len(piece) == 4 && r.count == 6:
		return "six fields begin with the second, years are not supported here"
	}
	return ""
}
