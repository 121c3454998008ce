package schedule

import (
	"errors"
	"testing"
	"time"
)

var fuzzZones = []string{"", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia", "Africa/Casablanca"}

// FuzzParse: no text makes the parser panic; an error marks a piece of the text; what is accepted survives another
// reading and its questions end.
func FuzzParse(f *testing.F) {
	for _, expr := range []string{
		"* * * * *", "*/5 9-17 1,15 * 1-5", "0 0 0 29 2 * 2028/4", "0 0 ? * MON-FRI/2", "@daily", "TZ=UTC 0 0 * * *",
		"5,,6 * * * *", "0 0 * * 5-7", "1-2-3 * * * *", "0 0 1 1 * 2030", "\x00 \xff * * *", "0 0 L * *", "",
	} {
		f.Add(expr, false)
		f.Add(expr, true)
	}
	f.Fuzz(func(t *testing.T, expr string, cozy bool) {
		d := Verb
		if cozy {
			d = Cozy
		}
		s, err := Parse(expr, d, nil)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(expr) || e.Cause == "" {
				t.Fatalf("%q: %#v", expr, err)
			}
			return
		}
		if again, err := Parse(s.String(), d, nil); err != nil || again != s || again.String() != s.String() {
			t.Fatalf("%q: read again from %q: %v", expr, s, err)
		}
		if s.Describe() == "" {
			t.Fatalf("%q: no description", expr)
		}
		_, ok := s.Next(time.Unix(-1, 0))
		if _, err := ParseAt(expr, d, nil, time.Unix(-1, 0)); ok != (err == nil) || !ok && !errors.Is(err, ErrNeverFires) {
			t.Fatalf("%q: Next says %v, ParseAt %v", expr, ok, err)
		}
	})
}

// FuzzNextPrev: Prev(Next(t)) <= t < Next(t), and the slots around t are neighbours.
func FuzzNextPrev(f *testing.F) {
	f.Add("30 2 * * *", uint8(1), int64(1772953200), int64(0))
	f.Add("*/30 * * * *", uint8(1), int64(1793512800), int64(1))
	f.Add("0 0 * * *", uint8(3), int64(1745532000), int64(0))
	f.Add("0 9 30 12 *", uint8(4), int64(1325239200), int64(5))
	f.Add("0 * 29 2 0", uint8(5), int64(4e9), int64(0))
	f.Add("0 0 0 1 1 * 1970,2500-3000/7", uint8(2), int64(-1e12), int64(0))
	f.Fuzz(func(t *testing.T, expr string, zone uint8, sec, nsec int64) {
		s, err := Parse(expr, Verb, location(t, fuzzZones[int(zone)%len(fuzzZones)]))
		if err != nil {
			return
		}
		at := time.Unix(sec%(1<<36), nsec%1e9)
		next, hasNext := s.Next(at)
		prev, hasPrev := s.PrevOrAt(at)
		if hasNext {
			if !next.After(at) || next.Nanosecond() != 0 {
				t.Fatalf("%q in %v: Next(%v) = %v", expr, s.Location(), at, next)
			}
			if here, ok := s.PrevOrAt(next); !ok || !here.Equal(next) {
				t.Fatalf("%q in %v: PrevOrAt(%v) = %v %v", expr, s.Location(), next, here, ok)
			}
			if before, ok := s.Prev(next); ok != hasPrev || !before.Equal(prev) {
				t.Fatalf("%q in %v: Prev(%v) = %v %v, but %v %v at %v", expr, s.Location(), next, before, ok, prev, hasPrev, at)
			}
		}
		if hasPrev {
			if prev.After(at) {
				t.Fatalf("%q in %v: PrevOrAt(%v) = %v", expr, s.Location(), at, prev)
			}
			if after, ok := s.Next(prev); ok != hasNext || !after.Equal(next) {
				t.Fatalf("%q in %v: Next(%v) = %v %v, but %v %v at %v", expr, s.Location(), prev, after, ok, next, hasNext, at)
			}
		}
	})
}
