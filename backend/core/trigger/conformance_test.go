package trigger

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // the rules of the Go release, should the machine have none

	"carillon/backend/core/cron"
	"carillon/backend/core/schedule"
)

// TestMain makes package time prefer the zone data of the Go release to that of the machine.
func TestMain(m *testing.M) {
	file := filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip")
	if _, err := os.Stat(file); err == nil {
		os.Setenv("ZONEINFO", file)
	}
	os.Exit(m.Run())
}

// timedCase is a case of the conformance list about arguments and slots.
type timedCase struct {
	ID, Area, Note string
	Input          struct {
		Type, Arguments, TZ string
		From                time.Time
	}
	Expected struct {
		OK           bool
		HTTP         int
		Next, Then   time.Time
		Instant      time.Time
		DelaySeconds int   `json:"delay_seconds"`
		DaysOfWeek   []int `json:"days_of_week"`
		DaysOfMonth  []int `json:"days_of_month"`
		AfterHour    *int  `json:"after_hour"`
		BeforeHour   *int  `json:"before_hour"`
	}
}

// cases reads the cases of one area; the list holds areas that other tests run, in other shapes.
func cases[C any](t *testing.T, area string) map[string]C {
	t.Helper()
	data, err := os.ReadFile("testdata/cozy.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]C{}
	for _, raw := range list {
		var head struct{ ID, Area string }
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatal(err)
		}
		if head.Area != area {
			continue
		}
		var c C
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatalf("%s: %v", head.ID, err)
		}
		found[head.ID] = c
	}
	return found
}

var anInstant = time.Date(2024, 2, 28, 23, 59, 58, 500_000_000, time.UTC)

func TestConformanceOfArguments(t *testing.T) {
	for area, count := range map[string]int{
		"trigger-args/periodic": 44, "trigger-args/cron": 14, "trigger-args/every": 4, "trigger-args/at": 7,
		"trigger-args/in": 3, "next-run/cron": 16, "next-run/every": 6,
	} {
		found := cases[timedCase](t, area)
		if len(found) != count {
			t.Errorf("%s: got %d cases, want %d", area, len(found), count)
		}
		for id, c := range found {
			t.Run(area+"/"+id, func(t *testing.T) { c.run(t) })
		}
	}
}

func (c timedCase) run(t *testing.T) {
	in, want := c.Input, c.Expected
	created := in.From
	if created.IsZero() {
		created = anInstant
	}
	kind, err := ParseKind(in.Type)
	if err != nil {
		t.Fatal(err)
	}
	err = Check(kind, in.Arguments, in.TZ, created)
	text, again := Timetable(kind, in.Arguments, in.TZ, "id", created)
	if !want.OK {
		for _, err := range []error{err, again} {
			var f *Fault
			if !errors.As(err, &f) || f.Pointer != PointerArguments || f.Detail == "" || !errors.Is(err, cron.ErrInvalid) {
				t.Errorf("%q: got %#v (%s)", in.Arguments, err, c.Note)
			}
		}
		return
	}
	if err != nil || again != nil {
		t.Fatalf("%q: %v, %v", in.Arguments, err, again)
	}
	if kind.periodic() {
		p, err := ParsePeriodic(kind, in.Arguments)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.DaysOfWeek, want.DaysOfWeek) || !slices.Equal(p.DaysOfMonth, want.DaysOfMonth) ||
			p.AfterHour != *want.AfterHour || p.BeforeHour != *want.BeforeHour {
			t.Errorf("%q: got %+v", in.Arguments, p)
		}
	}
	slots, err := Preview(kind, in.Arguments, in.TZ, "id", created, created, 2)
	if err != nil || len(slots) == 0 {
		t.Fatalf("%q: slots %v, %v", in.Arguments, slots, err)
	}
	for i, want := range []time.Time{want.Next, want.Then} {
		if !want.IsZero() && slots[i] != want {
			t.Errorf("%q: slot %d is %v, want %v", in.Arguments, i, slots[i], want)
		}
	}
	if !want.Instant.IsZero() && (len(slots) != 1 || slots[0] != want.Instant) {
		t.Errorf("%q: slots %v, want %v", in.Arguments, slots, want.Instant)
	}
	if d := want.DelaySeconds; d > 0 && (len(slots) != 1 || slots[0] != created.Add(time.Duration(d)*time.Second)) {
		t.Errorf("%q: slots %v, want one after %d s", in.Arguments, slots, d)
	}
	loc, err := schedule.LoadLocation(in.TZ)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := schedule.ParseText(text, loc); err != nil || First(s, created) != slots[0] {
		t.Errorf("%q is stored as %q: %v, %v", in.Arguments, text, s, err)
	}
}
