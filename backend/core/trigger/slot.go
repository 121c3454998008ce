package trigger

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// Expression returns the cron expression, of six fields, of the one slot that the trigger with this id has in each
// hour, day, week or month: second, minute, hour in the window and day in the list, each uniform over all ids and
// independent of the others, so that triggers created together do not come due together. The same id has the same slot
// for ever.
func (p Periodic) Expression(id string) string {
	d := dice{slotHash(id)}
	second, minute := d.roll(60), d.roll(60)
	hour, day, weekday := "*", "*", "*"
	if p.Kind != Hourly {
		hour = strconv.Itoa(p.AfterHour + d.roll(p.BeforeHour-p.AfterHour))
	}
	switch p.Kind {
	case Weekly:
		weekday = strconv.Itoa(p.DaysOfWeek[d.roll(len(p.DaysOfWeek))])
	case Monthly:
		day = strconv.Itoa(p.DaysOfMonth[d.roll(len(p.DaysOfMonth))])
	}
	return strconv.Itoa(second) + " " + strconv.Itoa(minute) + " " + hour + " " + day + " * " + weekday
}

// slotHash is 64 bits of a hash without any pattern: ids that differ in one digit are as far apart as any. Changing it
// would move the slot of every trigger whose text is made anew.
func slotHash(id string) uint64 {
	sum := sha256.Sum256([]byte("carillon slot " + id))
	return binary.BigEndian.Uint64(sum[:])
}

// dice takes numbers out of a hash as digits of mixed base. All rolls of a slot together need less than 23 of the 64
// bits, so that each number is as likely as the other but for one part in 2^40.
type dice struct{ left uint64 }

// roll returns a number from 0 to below.
func (d *dice) roll(below int) int {
	n := d.left % uint64(below)
	d.left /= uint64(below)
	return int(n)
}
