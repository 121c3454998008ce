package schedule

import (
	"testing"
	"time"
)

func parse(tb testing.TB, expr string, zone string) Schedule {
	tb.Helper()
	s, err := Parse(expr, Verb, location(tb, zone))
	if err != nil {
		tb.Fatalf("%q: %v", expr, err)
	}
	return s
}

func at(tb testing.TB, text string) time.Time {
	tb.Helper()
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestNotedInstants(t *testing.T) {
	for _, c := range []struct {
		name, expr, zone, from string
		want                   []string // none = no further slot
	}{
		{"New York gap", "30 2 * * *", "America/New_York", "2026-03-08T06:59:59Z", []string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		{"claimed late in the gap", "30 2 * * *", "America/New_York", "2026-03-08T03:10:00Z", []string{"2026-03-08T07:00:00Z"}},
		{"New York overlap, fixed", "30 1 * * *", "America/New_York", "2026-11-01T05:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"New York overlap, real time", "*/30 * * * *", "America/New_York", "2026-11-01T05:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:00:00Z"}},
		{"London gap", "30 1 * * *", "Europe/London", "2026-03-29T00:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"Lord Howe back 30 minutes", "45 1 * * *", "Australia/Lord_Howe", "2025-04-05T14:00:00Z", []string{"2025-04-05T14:45:00Z", "2025-04-06T15:15:00Z"}},
		{"Lord Howe on 30 minutes", "15 2 * * *", "Australia/Lord_Howe", "2025-10-04T15:00:00Z", []string{"2025-10-04T15:30:00Z", "2025-10-05T15:15:00Z"}},
		{"no midnight in Beirut", "0 0 * * *", "Asia/Beirut", "2025-03-29T21:00:00Z", []string{"2025-03-29T22:00:00Z", "2025-03-30T21:00:00Z"}},
		{"no midnight in Cairo", "0 0 * * 5", "Africa/Cairo", "2025-04-24T21:00:00Z", []string{"2025-04-24T22:00:00Z", "2025-05-01T21:00:00Z"}},
		{"Apia has no 30 December", "0 9 * * *", "Pacific/Apia", "2011-12-29T20:00:00Z", []string{"2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z", "2011-12-31T19:00:00Z"}},
		{"the missing day itself", "0 9 30 12 *", "Pacific/Apia", "2011-12-29T20:00:00Z", []string{"2011-12-30T10:00:00Z", "2012-12-29T19:00:00Z"}},
		{"the missing day in real time", "0 * 30 12 *", "Pacific/Apia", "2011-12-29T20:00:00Z", []string{"2012-12-29T10:00:00Z"}},
		{"Asuncion keeps its offset", "0 0 1 * *", "America/Asuncion", "2026-03-15T00:00:00Z", []string{"2026-04-01T03:00:00Z", "2026-05-01T03:00:00Z"}},
		{"leap days around 2100", "0 0 29 2 *", "", "2096-02-29T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"leap days, real time in a zone", "0 * 29 2 *", "America/New_York", "2096-03-01T04:30:00Z", []string{"2104-02-29T05:00:00Z"}},
		{"past 2038", "* * * * * *", "", "2038-01-19T03:14:07Z", []string{"2038-01-19T03:14:08Z"}},
		{"year 2099", "0 0 0 1 1 * 2099", "Asia/Tokyo", "2026-01-01T00:00:00Z", []string{"2098-12-31T15:00:00Z", ""}},
		{"open step", "5/15 * * * *", "", "2026-01-01T00:00:00Z", []string{"2026-01-01T00:05:00Z", "2026-01-01T00:20:00Z", "2026-01-01T00:35:00Z", "2026-01-01T00:50:00Z", "2026-01-01T01:05:00Z"}},
		{"a fraction rounds up", "* * * * * *", "", "2026-01-01T00:00:00.000000001Z", []string{"2026-01-01T00:00:01Z"}},
		{"before the first year", "0 0 1 * *", "", "0001-01-01T00:00:00Z", []string{"1970-01-01T00:00:00Z", "1970-02-01T00:00:00Z"}},
		{"before the first year, in a zone", "0 * * * *", "Asia/Tokyo", "0001-01-01T00:00:00Z", []string{"1969-12-31T15:00:00Z", "1969-12-31T16:00:00Z"}},
		{"the last of all", "59 59 23 31 12 *", "", "2999-12-31T23:59:58Z", []string{"2999-12-31T23:59:59Z", "3000-12-31T23:59:59Z", ""}},
		{"the last of all, in a zone", "59 59 * 31 12 *", "America/New_York", "3001-01-01T03:59:59Z", []string{"3001-01-01T04:59:59Z", ""}},
		{"far beyond the end", "* * * * *", "America/New_York", "9999-01-01T00:00:00Z", []string{""}},
		{"years far apart", "0 0 0 29 2 * 2028,2400,2996", "", "2028-03-01T00:00:00Z", []string{"2400-02-29T00:00:00Z", "2996-02-29T00:00:00Z", ""}},
		{"years far apart, real time", "0 0 * 29 2 * 2028,2996", "America/New_York", "2028-03-01T05:00:00Z", []string{"2996-02-29T05:00:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, from := parse(t, c.expr, c.zone), at(t, c.from)
			for _, want := range c.want {
				got, ok := s.Next(from)
				if want == "" {
					if ok {
						t.Fatalf("after %v got %v, want none", from, got)
					}
					if last, ok := s.Prev(at(t, "9999-01-01T00:00:00Z")); !ok || !last.Equal(from) && from.Year() < 9999 {
						t.Fatalf("the last slot is %v, want %v", last, from)
					}
					return
				}
				if !ok || !got.Equal(at(t, want)) || got.Location() != time.UTC {
					t.Fatalf("after %v got %v %v, want %s", from, got, ok, want)
				}
				if before, ok := s.Prev(got); ok && before.After(from) {
					t.Fatalf("Prev(%v) = %v lies after %v", got, before, from)
				}
				from = got
			}
		})
	}
}

func TestPrevIsStrictAndPrevOrAtIsNot(t *testing.T) {
	s := parse(t, "*/10 * * * *", "")
	for _, c := range []struct{ at, prev, prevOrAt string }{
		{"2026-01-01T00:10:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"},
		{"2026-01-01T00:10:00.5Z", "2026-01-01T00:10:00Z", "2026-01-01T00:10:00Z"},
		{"2026-01-01T00:09:59.9Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		{"1970-01-01T00:00:00Z", "", "1970-01-01T00:00:00Z"},
		{"1969-12-31T23:59:59.9Z", "", ""},
	} {
		check := func(name string, got time.Time, ok bool, want string) {
			if ok != (want != "") || ok && !got.Equal(at(t, want)) {
				t.Errorf("%s(%s) = %v %v, want %q", name, c.at, got, ok, want)
			}
		}
		got, ok := s.Prev(at(t, c.at))
		check("Prev", got, ok, c.prev)
		got, ok = s.PrevOrAt(at(t, c.at))
		check("PrevOrAt", got, ok, c.prevOrAt)
	}
	years := parse(t, "0 0 0 1 1 * 2030,2500", "Europe/Paris")
	if got, ok := years.Prev(at(t, "2600-01-01T00:00:00Z")); !ok || !got.Equal(at(t, "2499-12-31T23:00:00Z")) {
		t.Errorf("Prev over years = %v %v", got, ok)
	}
	if got, ok := years.Prev(at(t, "2029-12-31T23:00:00Z")); ok {
		t.Errorf("Prev before the first = %v", got)
	}
}

func TestCountAndBetweenIncludeBothBounds(t *testing.T) {
	s := parse(t, "* * * * *", "")
	from, to := at(t, "2026-01-01T00:00:00Z"), at(t, "2026-01-01T01:00:00Z")
	for _, c := range []struct {
		from, to time.Time
		limit    int
		n        int
		more     bool
	}{
		{from, to, 100, 61, false},
		{from.Add(1), to.Add(-1), 100, 59, false},
		{from, to, 61, 61, false},
		{from, to, 60, 60, true},
		{from, from, 1, 1, false},
		{from, from, 0, 0, true},
		{from.Add(1), from.Add(2), 0, 0, false},
		{to, from, 10, 0, false},
	} {
		if n, more := s.Count(c.from, c.to, c.limit); n != c.n || more != c.more {
			t.Errorf("Count(%v, %v, %d) = %d %v, want %d %v", c.from, c.to, c.limit, n, more, c.n, c.more)
		}
	}
	if n, more := s.Count(from, from.AddDate(1, 0, 0), 100_000); n != 100_000 || !more {
		t.Errorf("a year of minutes: %d %v", n, more)
	}
}

func TestTheZeroScheduleNeverFires(t *testing.T) {
	var s Schedule
	if at, ok := s.Next(march2026); ok {
		t.Errorf("Next = %v", at)
	}
	if at, ok := s.Prev(march2026); ok {
		t.Errorf("Prev = %v", at)
	}
	if n, more := s.Count(march2026, march2026.AddDate(1, 0, 0), 10); n != 0 || more {
		t.Errorf("Count = %d %v", n, more)
	}
	if !s.IsZero() || s.Describe() != "never" || s.String() != "" || s.Location() != time.UTC {
		t.Errorf("got %q %q %v", s.Describe(), s.String(), s.Location())
	}
}

func TestEqualSchedulesAreEqualValues(t *testing.T) {
	loaded, err := time.LoadLocation("Europe/Paris") // not the pointer that LoadLocation gives
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := Parse("0  08 * * * * 2030-2040", Verb, loaded)
	if err != nil {
		t.Fatal(err)
	}
	same := parse(t, "0 8 * * * * 2030-2040", "Europe/Paris")
	if foreign != same || foreign.Location() != same.Location() {
		t.Error("the same schedule is two values")
	}
	for _, other := range []Schedule{
		parse(t, "0 8 * * * * 2030-2041", "Europe/Paris"), parse(t, "0 8 * * * * 2030-2040", "Europe/Berlin"),
		parse(t, "0 8 * * * * 2030-2040", ""), parse(t, "0 8 * * * *", "Europe/Paris"),
	} {
		if other == same {
			t.Errorf("%q in %s equals %q in %s", other, other.Location(), same, same.Location())
		}
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	for _, zone := range []string{"", "America/New_York"} {
		for _, c := range append(benchExprs, struct{ name, expr string }{"years", "0 0 * 29 2 * 2028,2032"}) {
			s := parse(t, c.expr, zone)
			if n := testing.AllocsPerRun(100, func() { s.Next(benchFrom); s.Prev(benchFrom) }); n != 0 {
				t.Errorf("%s in %q: %v allocations", c.name, zone, n)
			}
		}
	}
}
