package schedule

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxShift is more than any jump of a wall clock: the offsets in use lie between -12 h and +14 h.
const maxShift = 2 * daySeconds

// zone is a time.Location laid out for searching: all its periods of one offset from 1970 to 3000, computed once
// (about half a millisecond and 50 KB for a zone with daylight saving) and never changed. Asking package time
// instead costs 100-200 ns per question where the rules of the zone have to be evaluated.
type zone struct {
	loc     *time.Location
	periods []period
	hint    []uint16 // hint[b] = the period of the instant b<<hintShift after tableStart; nil if there is but one
	reach   int64    // the largest offset
}

// period is a stretch of real time with one offset; it ends where the next one starts.
type period struct {
	start  int64 // first second
	next   int64 // first second of the next period
	peak   int64 // the highest local time shown before start
	offset int64 // seconds east of UTC
}

const (
	hintShift  = 24 // 194 days: at most a few periods each
	tableStart = -2 * daySeconds
	tableEnd   = (maxDay + 3) * daySeconds
	// Bounds of the first and the last period, with room for adding offsets.
	beforeAll = -1 << 60
	afterAll  = 1 << 60
)

// newZone reads the periods out of loc through the public API of package time.
func newZone(loc *time.Location) *zone {
	z := &zone{loc: loc}
	_, offset := time.Unix(tableStart, 0).In(loc).Zone()
	z.add(beforeAll, int64(offset))
	for sec := int64(tableStart); sec < tableEnd; {
		_, end := time.Unix(sec, 0).In(loc).ZoneBounds()
		if end.IsZero() {
			break
		}
		// Package time cuts the years of a rule at 365 days, so that an end may be no change at all, and on the last
		// day of a leap year lies in the past.
		if next := end.Unix(); next > sec {
			sec = next
		} else {
			sec = z.changeWithinDay(sec)
		}
		if sec >= tableEnd {
			break
		}
		if _, offset := time.Unix(sec, 0).In(loc).Zone(); int64(offset) != z.periods[len(z.periods)-1].offset {
			z.add(sec, int64(offset))
		}
	}
	z.periods = slices.Clip(z.periods)
	if len(z.periods) > 1 {
		z.hint = make([]uint16, (tableEnd-tableStart)>>hintShift+1)
		i := 0
		for b := range z.hint {
			for i+1 < len(z.periods) && z.periods[i+1].start <= tableStart+int64(b)<<hintShift {
				i++
			}
			z.hint[b] = uint16(i)
		}
	}
	return z
}

// changeWithinDay returns the first second at which the offset differs from that of sec, or else the second one day
// after it, by bisection.
func (z *zone) changeWithinDay(sec int64) int64 {
	offset := func(sec int64) int { _, offset := time.Unix(sec, 0).In(z.loc).Zone(); return offset }
	old, same, next := offset(sec), sec, sec+daySeconds
	if offset(next) == old {
		return next
	}
	for next-same > 1 {
		if mid := same + (next-same)/2; offset(mid) == old {
			same = mid
		} else {
			next = mid
		}
	}
	return next
}

func (z *zone) add(start, offset int64) {
	p := period{start: start, next: afterAll, peak: beforeAll, offset: offset}
	if n := len(z.periods); n > 0 {
		last := &z.periods[n-1]
		last.next = start
		p.peak = max(last.peak, start-1+last.offset)
		z.reach = max(z.reach, offset)
	} else {
		z.reach = offset
	}
	z.periods = append(z.periods, p)
}

// at returns the period of a second.
func (z *zone) at(sec int64) int {
	if z.hint == nil {
		return 0
	}
	i := 0
	if sec > tableStart {
		i = int(z.hint[min((sec-tableStart)>>hintShift, int64(len(z.hint)-1))])
	}
	for sec >= z.periods[i].next {
		i++
	}
	return i
}

// shown returns the highest local time that the wall clock has shown up to and including sec. In the second pass of
// an overlap that is the end of the first.
func (z *zone) shown(sec int64) int64 {
	p := &z.periods[z.at(sec)]
	return max(p.peak, sec+p.offset)
}

// periodReaching returns the period in which the wall clock first shows l or more.
func (z *zone) periodReaching(l int64) int {
	i := z.at(l - z.reach - 1) // the wall clock cannot have shown l by then
	for i+1 < len(z.periods) && z.periods[i+1].peak < l {
		i++
	}
	return i
}

// reached returns the instant at which the wall clock first shows l or more.
func (z *zone) reached(l int64) int64 {
	p := &z.periods[z.periodReaching(l)]
	return max(p.start, l-p.offset)
}

// zones holds *zone by name, those that LoadLocation has found: not more than there are names in the database.
var zones sync.Map

// zoneOf returns the layout of a location, nil for UTC. A location that is the zone of its name, wherever it was
// loaded, shares that zone's layout; any other (time.FixedZone, time.Local) gets one of its own.
func zoneOf(loc *time.Location) *zone {
	if loc == nil || loc == time.UTC {
		return nil
	}
	known, err := loadZone(loc.String())
	if err == nil && known != nil && known.loc == loc {
		return known
	}
	z := newZone(loc)
	if err == nil && known != nil && slices.Equal(known.periods, z.periods) {
		return known
	}
	return z
}

// LoadLocation returns the zone of an IANA name such as "Europe/Paris"; the empty name is UTC. It refuses what is
// not a name of the database and would make a schedule depend on its host: "Local", "localtime", paths, and the
// variants with leap seconds. A name always gives the same pointer. It is safe for concurrent use.
func LoadLocation(name string) (*time.Location, error) {
	z, err := loadZone(name)
	if err != nil {
		return nil, err
	}
	if z == nil {
		return time.UTC, nil
	}
	return z.loc, nil
}

// loadZone returns nil for UTC.
func loadZone(name string) (*zone, error) {
	if name == "" || name == "UTC" {
		return nil, nil
	}
	if z, ok := zones.Load(name); ok {
		return z.(*zone), nil
	}
	if !isZoneName(name) {
		return nil, fmt.Errorf("unknown time zone %s", quote(name))
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %s", quote(name))
	}
	z, _ := zones.LoadOrStore(name, newZone(loc))
	return z.(*zone), nil
}

// isZoneName reports whether name is written like one of the database: parts of letters, digits, _, + and -, each
// beginning with a letter, joined by slashes.
func isZoneName(name string) bool {
	switch name {
	case "Local", "localtime", "posixrules":
		return false
	}
	if len(name) > 64 || strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || !isLetter(part[0]) {
			return false
		}
		for i := range len(part) {
			if c := part[i]; !isLetter(c) && !isDigit(c) && !strings.ContainsRune("_+-", rune(c)) {
				return false
			}
		}
	}
	return true
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
