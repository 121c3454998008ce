package schedule

import (
	"fmt"
	"strconv"
)

// Dialect is the set of rules by which an expression is read.
type Dialect int

const (
	// Verb is the dialect of schedules written at a verb: 5 fields (minute, hour, day of month, month, day of week), 6
	// (second first) or 7 (second first, year last); numbers only; 7 is a second name for Sunday.
	Verb Dialect = iota
	// Cozy is the dialect of @cron triggers: 5 or 6 fields, names for months and weekdays, ? for * in the day fields.
	Cozy
)

// String returns "verb" or "cozy".
func (d Dialect) String() string {
	switch d {
	case Verb:
		return "verb"
	case Cozy:
		return "cozy"
	}
	return "Dialect(" + strconv.Itoa(int(d)) + ")"
}

// ParseDialect reads what Dialect.String writes.
func ParseDialect(name string) (Dialect, error) {
	switch name {
	case "verb":
		return Verb, nil
	case "cozy":
		return Cozy, nil
	}
	return 0, fmt.Errorf("unknown cron dialect %s: use verb or cozy", quote(name))
}

func (d Dialect) maxFields() int {
	if d == Verb {
		return 7
	}
	return 6
}
