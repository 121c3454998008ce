package trigger

import (
	"errors"
	"testing"
	"time"

	"carillon/backend/core/schedule"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestTimetables(t *testing.T) {
	for _, c := range []struct {
		kind                  Kind
		arguments, zone, want string
		first                 string
	}{
		{At, "2030-12-12T15:36:25.507Z", "", "@at 2030-12-12T15:36:25.507Z", "2030-12-12T15:36:25.507Z"},
		{At, "2030-12-12T15:36:25+02:00", "Asia/Tokyo", "@at 2030-12-12T13:36:25Z", "2030-12-12T13:36:25Z"},
		{At, "2018-12-12T15:36:25.123456789Z", "", "@at 2018-12-12T15:36:25.123457Z", "2018-12-12T15:36:25.123457Z"}, // overdue
		{At, "0001-01-01T00:00:00Z", "", "@at 1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z"},
		{At, "0000-01-01T00:00:00+14:00", "", "@at 1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z"},
		{At, "1970-01-01T00:00:00Z", "", "@at 1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z"},
		{At, "9999-12-31T23:59:59Z", "", "@at 9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"},
		{In, "10m", "", "@at 2024-02-29T00:09:58.5Z", "2024-02-29T00:09:58.5Z"},
		{In, "1h30m", "Europe/Paris", "@at 2024-02-29T01:29:58.5Z", "2024-02-29T01:29:58.5Z"},
		{In, "300ms", "", "@at 2024-02-28T23:59:58.8Z", "2024-02-28T23:59:58.8Z"},
		{In, "1ns", "", "@at 2024-02-28T23:59:58.500001Z", "2024-02-28T23:59:58.500001Z"},
		{In, "+5m", "", "@at 2024-02-29T00:04:58.5Z", "2024-02-29T00:04:58.5Z"},
		{Every, "1.5h", "Europe/Paris", "@every 1h30m from 2024-02-28T23:59:58Z", "2024-02-29T01:29:58Z"},
		{Every, "30m10s", "", "@every 30m10s from 2024-02-28T23:59:58Z", "2024-02-29T00:30:08Z"},
		{"@interval", "30m10s", "", "@every 30m10s from 2024-02-28T23:59:58Z", "2024-02-29T00:30:08Z"},
		{Every, "2000ms", "", "@every 2s from 2024-02-28T23:59:58Z", "2024-02-29T00:00:00Z"},
		{Cron, " 0  0 9 ? jan Mon-FRI ", "", "@cron 0 0 9 * 1 1-5", "2025-01-01T09:00:00Z"},
		{Cron, "30 2 * * *", "Europe/Paris", "@cron 30 2 * * *", "2024-02-29T01:30:00Z"},
	} {
		text, err := Timetable(c.kind, c.arguments, c.zone, "id", anInstant)
		if err != nil || text != c.want {
			t.Errorf("%s %q: %q %v, want %q", c.kind, c.arguments, text, err, c.want)
			continue
		}
		loc, err := schedule.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		s, err := schedule.ParseText(text, loc)
		if err != nil || s.Text() != text {
			t.Errorf("%q is read as %q: %v", text, s.Text(), err)
		}
		if first := First(s, anInstant); first != instant(t, c.first) {
			t.Errorf("%s %q: fires first at %v, want %s", c.kind, c.arguments, first, c.first)
		}
		if err := Check(c.kind, c.arguments, c.zone, anInstant); err != nil {
			t.Errorf("%s %q: %v", c.kind, c.arguments, err)
		}
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	for kind, list := range map[Kind][]string{
		At: {
			"", "garbage", "2018-12-12", "2018-12-12T15:36:25", "2018-12-12 15:36:25Z", "2018-12-12T24:00:00Z", "1544628985", "2018-02-30T00:00:00Z",
			"2018-12-12T15:36Z", "2018-12-12T15:36:25z", "2018-12-12t15:36:25Z", "2018-12-12T15:36:25,5Z", "2018-12-12T5:36:25Z", " 2018-12-12T15:36:25Z",
			"2018-12-12T15:36:25Z ", "2018-12-12T15:36:25 +02:00", "2018-12-12T15:36:25+0200", "2018-12-12T15:36:25+02", "2018-12-12T15:36:25Europe/Paris",
			"2018-12-12T15:60:25Z", "2018-00-12T15:06:25Z", "12018-12-12T15:36:25Z", "-2018-12-12T15:36:25Z", "9999-12-31T23:59:59-01:00", "10m", "now",
		},
		In:          {"", "garbage", "0", "0s", "-5m", "-1ns", "5", "1d", "2h 45m", "10M", "1H", " 5m", "5m ", "1e3s", "9999999999h", "--5m", "2018-12-12T15:36:25Z"},
		Every:       {"", "garbage", "0", "0s", "-5m", "5", "1d", "2h 45m", "10M", "1H", "1.5s", "300ms", "999ms", "1s1ms", " 5m", "5m ", "9999999999h", "0.3333h1ns"},
		"@interval": {"", "1.5s", "5"},
		Cron: {
			"", "garbage", "* * * *", "* * * * * * *", "0 0 0 1 1 * 2030", "@daily", "@every 5m", "@reboot", "TZ=UTC 0 0 * * *", "CRON_TZ=UTC 0 0 * * *",
			"0 0 0 * * 7", "0 0 0 * * FRI-MON", "0 0 0 30 2 *", "0 0 31 4,6,9,11 *", "? * * * *", "* * * ? *", "*/0 * * * *", "0 0\n* * *", "0 60 * * * *",
		},
	} {
		for _, arguments := range list {
			err := Check(kind, arguments, "", anInstant)
			var f *Fault
			if !errors.As(err, &f) || f.Pointer != PointerArguments || f.Title == "" || f.Detail == "" {
				t.Errorf("%s %q: %v", kind, arguments, err)
			}
			if text, err := Timetable(kind, arguments, "", "id", anInstant); err == nil {
				t.Errorf("%s %q has the timetable %q", kind, arguments, text)
			}
		}
	}
}

func TestOneShotsFireOnceHoweverLate(t *testing.T) {
	const due = "2024-02-28T11:59:58.5Z" // twelve hours before its creation
	text, err := Timetable(At, due, "", "id", anInstant)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schedule.ParseText(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := First(s, anInstant)
	if first != instant(t, due) {
		t.Errorf("fires first at %v", first)
	}
	if again, ok := s.Next(first); ok {
		t.Errorf("fires again at %v", again)
	}
	// The due time of an @in is in its text, and no restart counts anew.
	text, err = Timetable(In, "10m", "", "id", anInstant)
	if err != nil || text != "@at 2024-02-29T00:09:58.5Z" {
		t.Errorf("%q %v", text, err)
	}
}

func TestPreview(t *testing.T) {
	for _, c := range []struct {
		name            string
		kind            Kind
		arguments, zone string
		from            string // empty: the creation
		n               int
		want            []string
	}{
		{"cron", Cron, "0 0 * * *", "", "", 2, []string{"2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"}},
		{"cron in a zone", Cron, "30 2 * * *", "Europe/Paris", "2024-03-30T00:00:00Z", 3, []string{"2024-03-30T01:30:00Z", "2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z"}},
		{"not before the creation", Cron, "0 0 * * *", "", "2020-01-01T00:00:00Z", 1, []string{"2024-02-29T00:00:00Z"}},
		{"every, later", Every, "1h", "", "2024-05-05T05:59:58Z", 2, []string{"2024-05-05T06:59:58Z", "2024-05-05T07:59:58Z"}},
		{"in", In, "10m", "", "", 5, []string{"2024-02-29T00:09:58.5Z"}},
		{"in, over", In, "10m", "", "2024-02-29T00:10:00Z", 5, nil},
		{"at, overdue", At, "2018-12-12T15:36:25.507Z", "", "", 5, []string{"2018-12-12T15:36:25.507Z"}},
		{"at, overdue, seen from before it", At, "2018-12-12T15:36:25.507Z", "", "2000-01-01T00:00:00Z", 5, []string{"2018-12-12T15:36:25.507Z"}},
		{"at, overdue and gone", At, "2018-12-12T15:36:25.507Z", "", "2024-02-29T00:00:00Z", 5, nil},
		{"none asked", Cron, "0 0 * * *", "", "", 0, nil},
		{"less than none", Cron, "0 0 * * *", "", "", -1, nil},
	} {
		from := anInstant
		if c.from != "" {
			from = instant(t, c.from)
		}
		slots, err := Preview(c.kind, c.arguments, c.zone, "id", anInstant, from, c.n)
		if err != nil || len(slots) != len(c.want) {
			t.Errorf("%s: got %v %v, want %v", c.name, slots, err, c.want)
			continue
		}
		for i, want := range c.want {
			if slots[i] != instant(t, want) {
				t.Errorf("%s: got %v, want %v", c.name, slots, c.want)
			}
		}
	}
	if slots, err := Preview(Every, "1s", "", "id", anInstant, anInstant, 1<<30); err != nil || len(slots) != MaxPreview {
		t.Errorf("%d slots, %v", len(slots), err)
	}
	if _, err := Preview(Cron, "garbage", "", "id", anInstant, anInstant, 1); err == nil {
		t.Error("garbage has a preview")
	}
}

// FuzzCheck: no arguments make any kind panic; Check and Timetable agree; what is accepted is a text that the clock
// reads, and slots in order.
func FuzzCheck(f *testing.F) {
	for _, arguments := range []string{"", "2018-12-12T15:36:25.507Z", "30m10s", "0 0 ? * MON-FRI", "on fri-mon", "io.cozy.files:CREATED", "0000-01-01T00:00:00+23:59"} {
		for kind := range Kinds {
			f.Add(uint8(kind), arguments, "", "id", int64(1709164798), int64(5e8))
		}
	}
	f.Add(uint8(3), "30 2 * * *", "Europe/Paris", "id", int64(1709164798), int64(5e8))
	f.Fuzz(func(t *testing.T, k uint8, arguments, zone, id string, sec, nsec int64) {
		kind := Kinds[int(k)%len(Kinds)]
		created := time.Unix((sec%(1<<32)+1<<32)%(1<<32), nsec%1e9).UTC()
		err := Check(kind, arguments, zone, created)
		var fault *Fault
		if err != nil && !errors.As(err, &fault) {
			t.Fatalf("%s %q: %#v is no fault", kind, arguments, err)
		}
		if !kind.Timed() {
			return
		}
		text, again := Timetable(kind, arguments, zone, id, created)
		if (again == nil) != (err == nil) {
			t.Fatalf("%s %q: %v, but %v", kind, arguments, err, again)
		}
		if err != nil {
			return
		}
		loc, err := schedule.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		s, err := schedule.ParseText(text, loc)
		if err != nil || s.Text() != text {
			t.Fatalf("%s %q: stored as %q, read as %q, %v", kind, arguments, text, s, err)
		}
		slots, err := Preview(kind, arguments, zone, id, created, created, 3)
		if err != nil || len(slots) == 0 || slots[0] != First(s, created) || kind.Once() != (len(slots) == 1) && kind != Every {
			t.Fatalf("%s %q: %v %v", kind, arguments, slots, err)
		}
		for i, slot := range slots {
			if i > 0 && !slot.After(slots[i-1]) || kind != At && !slot.After(created) {
				t.Fatalf("%s %q, created %v: %v", kind, arguments, created, slots)
			}
		}
	})
}
