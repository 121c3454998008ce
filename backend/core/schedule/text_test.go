package schedule

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func parseText(tb testing.TB, text, zone string) Schedule {
	tb.Helper()
	s, err := ParseText(text, location(tb, zone))
	if err != nil {
		tb.Fatalf("%q: %v", text, err)
	}
	return s
}

func TestTextsOfTriggersFire(t *testing.T) {
	for _, c := range []struct {
		name, text, zone, from string
		want                   []string // none = no further slot
	}{
		{"every counts from its creation", "@every 30m10s from 2024-02-28T23:59:58.5Z", "", "2024-02-28T23:59:58.5Z", []string{"2024-02-29T00:30:08Z", "2024-02-29T01:00:18Z"}},
		{"not from now", "@every 1h from 2024-01-01T00:07:00Z", "", "2026-05-05T05:05:05Z", []string{"2026-05-05T05:07:00Z"}},
		{"strictly after a slot", "@every 1h from 2024-01-01T00:07:00Z", "", "2026-05-05T05:07:00Z", []string{"2026-05-05T06:07:00Z"}},
		{"no slot at the creation", "@every 1h from 2024-01-01T00:07:00Z", "", "0001-01-01T00:00:00Z", []string{"2024-01-01T01:07:00Z"}},
		{"no zone has a say", "@every 24h from 2026-03-07T12:00:00-05:00", "America/New_York", "2026-03-07T17:00:00Z", []string{"2026-03-08T17:00:00Z", "2026-03-09T17:00:00Z"}},
		{"every second", "@every 1s from 2024-02-28T23:59:58.5Z", "", "2024-02-28T23:59:58.5Z", []string{"2024-02-28T23:59:59Z", "2024-02-29T00:00:00Z"}},
		{"longer than the years", "@every 2000000h from 2900-01-01T00:00:00Z", "", "2900-01-01T00:00:00Z", []string{""}},
		{"the last of all", "@every 1s from 2024-01-01T00:00:00Z", "", "3000-12-31T23:59:58Z", []string{"3000-12-31T23:59:59Z", ""}},
		{"at, ahead", "@at 2018-12-12T15:36:25.507Z", "", "2018-12-12T15:36:25Z", []string{"2018-12-12T15:36:25.507Z", ""}},
		{"at, within its second", "@at 2018-12-12T15:36:25.507Z", "", "2018-12-12T15:36:25.506999999Z", []string{"2018-12-12T15:36:25.507Z"}},
		{"at, reached", "@at 2018-12-12T15:36:25.507Z", "", "2018-12-12T15:36:25.507Z", []string{""}},
		{"at, over", "@at 2018-12-12T15:36:25Z", "", "2018-12-13T00:00:00Z", []string{""}},
		{"at, rounded up to a microsecond", "@at 2018-12-12T15:36:25.0000001Z", "", "2018-12-12T15:36:25Z", []string{"2018-12-12T15:36:25.000001Z", ""}},
		{"at, beyond the years of cron", "@at 9999-12-31T23:59:59.999999Z", "", "2018-12-12T15:36:25Z", []string{"9999-12-31T23:59:59.999999Z", ""}},
		{"at, with an offset", "@at 2018-12-12T15:36:25+02:00", "Asia/Tokyo", "2018-12-12T00:00:00Z", []string{"2018-12-12T13:36:25Z"}},
		{"cron", "@cron 0 0 9 * * MON-FRI", "Europe/Paris", "2026-03-06T09:00:00Z", []string{"2026-03-09T08:00:00Z"}},
		{"cron, Sunday is 0", "@cron 0 0 * * ?", "", "2026-03-06T09:00:00Z", []string{"2026-03-07T00:00:00Z"}},
		{"a verb's", "0 0 * * 7", "", "2026-03-06T09:00:00Z", []string{"2026-03-08T00:00:00Z"}},
		{"a verb's with years", "0 0 0 1 1 * 2030", "", "2026-03-06T09:00:00Z", []string{"2030-01-01T00:00:00Z", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, from := parseText(t, c.text, c.zone), at(t, c.from)
			for _, want := range c.want {
				next, ok := s.Next(from)
				if !ok && want == "" {
					break
				}
				if !ok || want == "" || !next.Equal(at(t, want)) {
					t.Fatalf("after %v got %v %v, want %q", from, next, ok, want)
				}
				if here, ok := s.PrevOrAt(next); !ok || here != next {
					t.Errorf("PrevOrAt(%v) = %v %v", next, here, ok)
				}
				from = next
			}
			if again := parseText(t, s.Text(), c.zone); again != s || again.Text() != s.Text() {
				t.Errorf("read again from %q: %q", s.Text(), again.Text())
			}
		})
	}
}

func TestAtHasOneSlot(t *testing.T) {
	s := parseText(t, "@at 2018-12-12T15:36:25.507Z", "")
	slot := at(t, "2018-12-12T15:36:25.507Z")
	long := at(t, "2030-01-01T00:00:00Z")
	if before, ok := s.Prev(slot); ok {
		t.Errorf("before its slot: %v", before)
	}
	if last, ok := s.PrevOrAt(slot.Add(-time.Nanosecond)); ok {
		t.Errorf("a nanosecond early: %v", last)
	}
	if last, ok := s.Prev(long); !ok || last != slot {
		t.Errorf("long after: %v %v", last, ok)
	}
	if n, more := s.Count(slot, slot, 5); n != 1 || more {
		t.Errorf("count %d %v", n, more)
	}
	if n, more := s.Count(slot.Add(1), long, 5); n != 0 || more {
		t.Errorf("count after it %d %v", n, more)
	}
	if s.IsZero() || s.Location() != time.UTC {
		t.Errorf("zero %v in %v", s.IsZero(), s.Location())
	}
}

func TestClockTextsAreEqualByMeaning(t *testing.T) {
	same := parseText(t, "@every 90m from 2024-01-01T02:00:00.25+02:00", "Asia/Tokyo")
	if other := parseText(t, "@every 1h30m from 2024-01-01T00:00:00Z", ""); same != other {
		t.Errorf("%q and %q differ", same, other)
	}
	for _, text := range []string{"@every 90m from 2024-01-01T00:00:01Z", "@every 91m from 2024-01-01T00:00:00Z", "@at 2024-01-01T00:00:00Z", "@cron 0 0 * * *"} {
		if parseText(t, text, "") == same {
			t.Errorf("%q is taken for %q", text, same)
		}
	}
	if a, b := parseText(t, "@at 2024-01-01T00:00:00.5Z", ""), parseText(t, "@at 2024-01-01T00:00:00.500001Z", ""); a == b {
		t.Error("a microsecond makes no difference")
	}
}

func TestBadTextsAreRefused(t *testing.T) {
	for text, marked := range map[string]string{
		"@every 30m10s":                               "@every 30m10s",
		"@every 1.5s from 2024-01-01T00:00:00Z":       "1.5s",
		"@every 0s from 2024-01-01T00:00:00Z":         "0s",
		"@every -5m from 2024-01-01T00:00:00Z":        "-5m",
		"@every 1d from 2024-01-01T00:00:00Z":         "1d",
		"@every  1h from 2024-01-01T00:00:00Z":        " 1h",
		"@every 1h from 2024-01-01":                   "2024-01-01",
		"@every 1h from 2024-01-01T00:00:00":          "2024-01-01T00:00:00",
		"@every 1h from 1969-12-31T23:59:59Z":         "1969-12-31T23:59:59Z",
		"@every 1h from 3001-01-01T00:00:00Z":         "3001-01-01T00:00:00Z",
		"@every 1h from ":                             "",
		"@every ":                                     "@every ",
		"@at ":                                        "",
		"@at 2018-12-12 15:36:25Z":                    "2018-12-12 15:36:25Z",
		"@at 2018-12-12T15:36:25,5Z":                  "2018-12-12T15:36:25,5Z",
		"@at 2018-12-12T5:36:25Z":                     "2018-12-12T5:36:25Z",
		"@at 2018-12-12T15:36:25.Z":                   "2018-12-12T15:36:25.Z",
		"@at 2018-12-12T15:36:25+0200":                "2018-12-12T15:36:25+0200",
		"@at 2018-12-12T15:36:25+24:00":               "2018-12-12T15:36:25+24:00",
		"@at 2018-12-12T15:36:25-01:60":               "2018-12-12T15:36:25-01:60",
		"@at 2018-12-12t15:36:25z":                    "2018-12-12t15:36:25z",
		"@at 2018-12-12T15:36:60Z":                    "2018-12-12T15:36:60Z",
		"@at +2018-12-12T15:36:25Z":                   "+2018-12-12T15:36:25Z",
		"@at 2018-12-12T24:00:00Z":                    "2018-12-12T24:00:00Z",
		"@at 2018-02-30T00:00:00Z":                    "2018-02-30T00:00:00Z",
		"@at 2018-12-12T15:36:25Z ":                   "2018-12-12T15:36:25Z ",
		"@at 1969-12-31T23:59:59Z":                    "1969-12-31T23:59:59Z",
		"@at 9999-12-31T23:59:59-01:00":               "9999-12-31T23:59:59-01:00",
		"@cron 0 0 * * 7":                             "7",
		"@cron 0 0 0 1 1 * 2030":                      "2030",
		"@cron @daily":                                "@daily",
		"@cron ":                                      "",
		"@cron\t0 0 * * *":                            "@cron",
		"@at\t2018-12-12T15:36:25Z":                   "@at\t2018-12-12T15:36:25Z",
		"@daily":                                      "@daily",
		"0 0 * * MON":                                 "MON",
		"@at " + strings.Repeat("2", MaxLength):       strings.Repeat("2", 4),
		"@cron " + strings.Repeat("*", MaxLength):     strings.Repeat("*", 6),
		"@every " + strings.Repeat("1h", MaxLength/2): strings.Repeat("h1", 3) + "h",
	} {
		_, err := ParseText(text, nil)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: got %v", text, err)
			continue
		}
		if e.Expr != text || e.Cause == "" || e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(text) {
			t.Errorf("%q: %+v", text, e)
		} else if got := text[e.Offset : e.Offset+e.Length]; got != marked {
			t.Errorf("%q: marks %q, want %q (%v)", text, got, marked, e)
		}
	}
	for _, text := range []string{"@at 2018-12-12T15:36:25Z", "@every 1h from 2024-01-01T00:00:00Z", "@cron 0 0 * * *"} {
		for _, d := range []Dialect{Verb, Cozy} {
			if _, err := Parse(text, d, nil); err == nil {
				t.Errorf("%q is an expression of the dialect %v", text, d)
			}
		}
	}
}

func TestDescribeClockTexts(t *testing.T) {
	for text, want := range map[string]string{
		"@every 1s from 2024-01-01T00:07:00Z":       "every second, counted from 2024-01-01 00:07:00 UTC",
		"@every 5m from 2024-01-01T00:07:00Z":       "every 5 minutes, counted from 2024-01-01 00:07:00 UTC",
		"@every 24h from 2024-01-01T00:07:00Z":      "every day, counted from 2024-01-01 00:07:00 UTC",
		"@every 1h30m from 2024-01-01T00:07:00Z":    "every 1 hour and 30 minutes, counted from 2024-01-01 00:07:00 UTC",
		"@every 49h1m10s from 2024-01-01T00:07:00Z": "every 2 days, 1 hour, 1 minute and 10 seconds, counted from 2024-01-01 00:07:00 UTC",
		"@at 2018-12-12T15:36:25.507Z":              "once, on 2018-12-12 15:36:25.507 UTC",
		"@at 2018-12-12T15:36:25Z":                  "once, on 2018-12-12 15:36:25 UTC",
		"@cron 0 0 9 ? * MON-FRI":                   "at 09:00 on Monday to Friday",
	} {
		if got := parseText(t, text, "").Describe(); got != want {
			t.Errorf("%q:\n got %q\nwant %q", text, got, want)
		}
	}
}

// stepSlots is the oracle of @every: it adds, and never divides.
func stepSlots(start time.Time, step time.Duration, until time.Time) (slots []time.Time) {
	for slot := start.Truncate(time.Second).Add(step); !slot.After(until); slot = slot.Add(step) {
		slots = append(slots, slot)
	}
	return slots
}

func TestEveryAgreesWithAddition(t *testing.T) {
	r := rand.New(rand.NewPCG(20240228, 6))
	for range 2000 {
		start := time.Unix(r.Int64N(4e9), r.Int64N(1e9)).UTC()
		step := time.Duration(1+r.Int64N(5000)) * time.Second
		slots := stepSlots(start, step, start.Add(40*step))
		s := parseText(t, everyWord+step.String()+fromWord+start.Format(time.RFC3339Nano), "")
		for range 20 {
			at := start.Add(time.Duration(r.Int64N(int64(39*step))) - 2*step)
			if r.IntN(3) == 0 {
				at = slots[r.IntN(38)].Add(time.Duration(r.IntN(3) - 1)) // at a slot, and beside it
			}
			before, after := 0, 0 // slots before at, and up to it
			for _, slot := range slots {
				if slot.Before(at) {
					before++
				}
				if !slot.After(at) {
					after++
				}
			}
			if next, ok := s.Next(at); !ok || next != slots[after] {
				t.Fatalf("%v: Next(%v) = %v %v, want %v", s, at, next, ok, slots[after])
			}
			if prev, ok := s.Prev(at); ok != (before > 0) || ok && prev != slots[before-1] {
				t.Fatalf("%v: Prev(%v) = %v %v, want number %d", s, at, prev, ok, before)
			}
			if prev, ok := s.PrevOrAt(at); ok != (after > 0) || ok && prev != slots[after-1] {
				t.Fatalf("%v: PrevOrAt(%v) = %v %v, want number %d", s, at, prev, ok, after)
			}
			to := at.Add(time.Duration(r.Int64N(int64(10 * step))))
			var want []time.Time
			for _, slot := range slots {
				if !slot.Before(at) && !slot.After(to) {
					want = append(want, slot)
				}
			}
			if to.After(slots[len(slots)-1]) {
				continue
			}
			i := 0
			for got := range s.Between(at, to) {
				if i >= len(want) || got != want[i] {
					t.Fatalf("%v: between %v and %v number %d is %v, want %v", s, at, to, i, got, want)
				}
				i++
			}
			limit := r.IntN(12)
			if n, more := s.Count(at, to, limit); i != len(want) || n != min(limit, i) || more != (i > limit) {
				t.Fatalf("%v: %d slots between %v and %v, counted %d %v of at most %d", s, i, at, to, n, more, limit)
			}
		}
	}
}

func TestEveryCountsWithoutWalking(t *testing.T) {
	s := parseText(t, "@every 1s from 1970-01-01T00:00:00Z", "")
	from, to := time.Unix(0, 0), time.Unix(30_000_000_000, 5)
	if n, more := s.Count(from, to, 1<<40); n != 30_000_000_000 || more {
		t.Errorf("got %d %v", n, more)
	}
	if n, more := s.Count(from, to, 100_000); n != 100_000 || !more {
		t.Errorf("got %d %v", n, more)
	}
	if n, more := s.Count(to, from, 10); n != 0 || more {
		t.Errorf("backwards: got %d %v", n, more)
	}
}

func TestClockTextsDoNotAllocate(t *testing.T) {
	for _, text := range []string{"@every 90s from 2024-01-01T00:00:00Z", "@at 2026-03-04T17:33:12.5Z", "@at 2020-03-04T17:33:12.5Z"} {
		s := parseText(t, text, "")
		if n := testing.AllocsPerRun(100, func() {
			s.Next(benchFrom)
			s.Prev(benchFrom)
			s.PrevOrAt(benchFrom)
			s.Count(benchFrom, benchFrom.Add(time.Hour), 1000)
		}); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// FuzzText: no text makes the reader panic; an error marks a piece of the text; what is accepted survives another
// reading, and the slots around any instant are neighbours.
func FuzzText(f *testing.F) {
	for _, text := range []string{
		"@every 30m10s from 2024-02-28T23:59:58.5Z", "@every 1s from 2999-12-31T00:00:00Z", "@every 2562047h from 1970-01-01T00:00:00Z",
		"@at 2018-12-12T15:36:25.507Z", "@at 9999-12-31T23:59:59.9999999Z", "@cron 0 0 ? * MON-FRI", "*/5 * * * *",
		"@every 1h from 2024-01-01T00:00:00+24:00", "@at 0000-01-01T00:00:00Z", "@cron \x00", "@", "",
	} {
		f.Add(text, int64(1e9), int64(5))
	}
	f.Fuzz(func(t *testing.T, text string, sec, nsec int64) {
		s, err := ParseText(text, nil)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Expr != text || e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(text) || e.Cause == "" {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		if again, err := ParseText(s.Text(), nil); err != nil || again != s || again.Text() != s.Text() {
			t.Fatalf("%q: read again from %q: %v", text, s.Text(), err)
		}
		if s.IsZero() || s.Describe() == "" || s.String() == "" {
			t.Fatalf("%q: %q is %q", text, s, s.Describe())
		}
		at := time.Unix(sec%(1<<37), nsec%1e9)
		next, hasNext := s.Next(at)
		prev, hasPrev := s.PrevOrAt(at)
		if hasNext && (!next.After(at) || next.Nanosecond()%1000 != 0) || hasPrev && prev.After(at) {
			t.Fatalf("%q: %v lies between %v and %v", text, at, prev, next)
		}
		if hasNext {
			if before, ok := s.Prev(next); ok != hasPrev || !before.Equal(prev) {
				t.Fatalf("%q: Prev(%v) = %v %v, but %v %v at %v", text, next, before, ok, prev, hasPrev, at)
			}
		}
		if hasPrev {
			if after, ok := s.Next(prev); ok != hasNext || !after.Equal(next) {
				t.Fatalf("%q: Next(%v) = %v %v, but %v %v at %v", text, prev, after, ok, next, hasNext, at)
			}
		}
	})
}
