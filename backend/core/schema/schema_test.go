package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"

	"carillon/backend/core/schedule"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func mustParse(t *testing.T, text string) Module {
	t.Helper()
	m, _, err := Parse("", text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTextPrintsWhatParseReads(t *testing.T) {
	cron := func(c Cron) *Cron { return &c }
	tests := []struct {
		name string
		text string
		want Module
	}{
		{"the example of the seed", "verb exampleJob(Unit) Unit\n+cron * * * * * * *\n",
			Module{Language: Go, Verbs: []Verb{{Name: "exampleJob", Request: Unit, Response: Unit, Cron: cron(Cron{Schedule: "* * * * * * *"})}}}},
		{"every option", "module heartbeat\nverb beat(Unit) Unit\n  +cron 0 0 * * *\n  +timezone Europe/Paris\n  +timeout 10m0s\n  +catchup all\n",
			Module{Name: "heartbeat", Language: Go, Verbs: []Verb{{Name: "beat", Request: Unit, Response: Unit,
				Cron: cron(Cron{Schedule: "0 0 * * *", TimeZone: "Europe/Paris", Timeout: 10 * time.Minute, Catchup: CatchupAll})}}}},
		{"any indentation, order, blanks and comments, and Windows line ends",
			"// made by hand\r\n\r\nmodule  billing\tkotlin\r\n\tverb  pay ( Unit )  Unit \r\n+timezone UTC\r\n      +overlap skip\r\n\t+cron  0  0 *\t* *  \r\n+catchup last",
			Module{Name: "billing", Language: Kotlin, Verbs: []Verb{{Name: "pay", Request: Unit, Response: Unit, Cron: cron(Cron{Schedule: "0 0 * * *"})}}}},
		{"a verb that no clock starts", "module shop\nexport verb order(shop.Order) shop.Receipt\n",
			Module{Name: "shop", Language: Go, Verbs: []Verb{{Name: "order", Request: "shop.Order", Response: "shop.Receipt", Exported: true}}}},
		{"nothing", "", Module{Language: Go}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := mustParse(t, tt.text)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("Parse (-want +got):\n%s", d)
			}
			if again := mustParse(t, got.Text()); cmp.Diff(got, again) != "" {
				t.Errorf("%q reads as another module (-first +again):\n%s", got.Text(), cmp.Diff(got, again))
			}
		})
	}
}

func TestTextIsCanonical(t *testing.T) {
	m := mustParse(t, "module billing kotlin\nverb pay(Unit) Unit\n+overlap skip\n+catchup none\n+timeout 90s\n+timezone UTC\n+cron  0 0   * * *\nexport verb show(Bill) Unit")
	want := "module billing kotlin\nverb pay(Unit) Unit\n  +cron 0 0 * * *\n  +timeout 1m30s\n  +catchup none\nexport verb show(Bill) Unit\n"
	if got := m.Text(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestParseReportsEveryLine(t *testing.T) {
	text := strings.Join([]string{
		"module a b c",
		"  +cron * * * * *",
		"verb x",
		"verb beat(Unit) Unit",
		"  +cron * * * * *",
		"  +cron 0 0 * * *",
		"  +timeout ten",
		"  +timeout 0s",
		"  +catchup some",
		"  +overlap often",
		"  +cronn 1",
		"  +retry 0",
		"  +export",
		"verb idle(Unit) Unit",
		"  +timezone Europe/Paris",
		"table things",
		"module late",
	}, "\n")
	_, _, err := Parse("m.schema", text)
	got := formatted(t, err)
	want := `m.schema:1:1: a module line has one name
    module a b c
    ^^^^^^^^^^^^
hint: module NAME, and the language when it is not go
m.schema:2:3: unexpected annotation "+cron"
      +cron * * * * *
      ^^^^^
hint: it stands below its verb
m.schema:3:1: not a verb
    verb x
    ^^^^^^
hint: verb NAME(REQUEST) RESPONSE
m.schema:6:3: verb can not have multiple instances of cronjob
      +cron 0 0 * * *
      ^^^^^
hint: one schedule for each verb: write a second function that calls this one
m.schema:7:12: verb beat: invalid timeout "ten"
      +timeout ten
               ^^^
hint: write a duration such as 30s, 10m or 1h30m
m.schema:8:3: verb can not have multiple instances of timeout
      +timeout 0s
      ^^^^^^^^
m.schema:9:12: verb beat: invalid catchup "some"
      +catchup some
               ^^^^
hint: one of none, last, all
m.schema:10:12: verb beat: invalid overlap "often"
      +overlap often
               ^^^^^
hint: one of skip, queue, allow, cancel
m.schema:11:3: unknown directive "+cronn"
      +cronn 1
      ^^^^^^
hint: did you mean +cron?
m.schema:12:10: verb beat: invalid retry "0"
      +retry 0
             ^
hint: the runs in all, from 1 to 1000: a retry has to end
m.schema:13:3: unknown annotation "+export"
      +export
      ^^^^^^^
hint: write export verb NAME(REQUEST) RESPONSE
m.schema:15:3: verb idle: timezone needs a cron schedule
      +timezone Europe/Paris
      ^^^^^^^^^
hint: a time zone is a schedule's
m.schema:16:1: unexpected "table"
    table things
    ^^^^^
hint: a line is module NAME, verb NAME(REQUEST) RESPONSE, +ANNOTATION or data NAME {
m.schema:17:1: the module is named once, before its verbs
    module late
    ^^^^^^^^^^^
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("faults (-want +got):\n%s", d)
	}
}

func formatted(t *testing.T, err error) string {
	t.Helper()
	es, ok := errors.AsType[Errors](err)
	if err != nil && !ok {
		t.Fatalf("%T is not Errors: %v", err, err)
	}
	return es.Format()
}

func TestValidateReportsEveryFault(t *testing.T) {
	text := strings.Join([]string{
		"module Bad_name cobol",
		"verb a(shop.Order) Receipt",
		"  +cron 0 0  99 * *",
		"verb b(Unit) Unit",
		"  +cron 0 0 30 2 *",
		"export verb c(Unit) Unit",
		"  +cron 0 0 * * *",
		"  +timezone Europe/Pari",
		"  +timeout 25h",
		"verb c(Unit) Unit",
		"  +cron",
		"verb d(Or-der) Unit",
		"verb e(Unit) Unit",
		"  +cron 0 0 * JAN *",
		"  +timeout 1ms",
	}, "\n")
	m, where, err := Parse("m.schema", text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range ValidateSource(m, where, now) {
		got = append(got, e.Error()+" <"+e.Text()+">")
	}
	want := []string{
		`m.schema:1:8: invalid module name "Bad_name" <Bad_name>`,
		`m.schema:1:17: unknown language "cobol" <cobol>`,
		`m.schema:2:8: verb a: cron job can not have a request type <shop.Order>`,
		`m.schema:2:20: verb a: cron job can not have a response type <Receipt>`,
		`m.schema:3:14: verb a: invalid cron expression "0 0  99 * *": value 99 out of allowed day of month range of 1-31 <99>`,
		`m.schema:5:9: verb b: invalid cron expression "0 0 30 2 *": could not find next time for pattern "0 0 30 2 *" <0 0 30 2 *>`,
		`m.schema:6:13: +cron cannot be attached to exported verbs <c>`,
		`m.schema:8:13: verb c: unknown time zone "Europe/Pari" <Europe/Pari>`,
		`m.schema:9:12: verb c: timeout 25h0m0s out of allowed range <25h>`,
		`m.schema:10:6: verb c is declared twice <c>`,
		`m.schema:11:3: verb c: invalid cron expression "": expected 5-7 components, got 0 <+cron>`,
		`m.schema:12:8: verb d: invalid request type "Or-der" <Or-der>`,
		`m.schema:14:15: verb e: invalid cron expression "0 0 * JAN *": unexpected "JAN" in month <JAN>`,
		`m.schema:15:12: verb e: timeout 1ms out of allowed range <1ms>`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("faults (-want +got):\n%s", d)
	}
}

func TestValidateWithoutASourceHasNoPlaces(t *testing.T) {
	m := Module{Name: "m", Verbs: []Verb{{Name: "a", Request: "Order", Cron: &Cron{Schedule: "* * *", Catchup: 9, Overlap: -1}}, {Name: "b", Exported: true, Cron: &Cron{Schedule: "* * * * *"}}}}
	want := `verb a: cron job can not have a request type
verb a: unknown catchup policy
verb a: unknown overlap policy
verb a: invalid cron expression "* * *": expected 5-7 components, got 3
carillon:cron cannot be attached to exported verbs`
	if d := cmp.Diff(want, Validate(m, now).Error()); d != "" {
		t.Errorf("faults (-want +got):\n%s", d)
	}
}

func TestLimitsHold(t *testing.T) {
	verbs := func(n int, c Cron) Module {
		m := Module{Name: "m", Language: Go}
		for i := range n {
			m.Verbs = append(m.Verbs, Verb{Name: fmt.Sprintf("verb%d", i), Request: Unit, Response: Unit, Cron: &c})
		}
		return m
	}
	often := Cron{Schedule: "* * * * * *"}
	tests := []struct {
		name string
		m    Module
		want string // "" is valid
	}{
		{"as many verbs as allowed", verbs(MaxVerbs, often), ""},
		{"one verb more", verbs(MaxVerbs+1, often), "a module has at most 1000 verbs, not 1001"},
		{"no verbs", verbs(0, often), ""},
		{"no name", Module{}, "module has no name"},
		{"longest name", Module{Name: strings.Repeat("a", MaxNameBytes)}, ""},
		{"name too long", Module{Name: strings.Repeat("a", MaxNameBytes+1)}, "module name has at most 128 bytes, not 129"},
		{"shortest timeout", verbs(1, Cron{Schedule: "* * * * *", Timeout: MinTimeout}), ""},
		{"longest timeout", verbs(1, Cron{Schedule: "* * * * *", Timeout: MaxTimeout}), ""},
		{"expression too long", verbs(1, Cron{Schedule: strings.Repeat("*", MaxScheduleBytes+1)}), "verb verb0: a cron expression has at most 1024 bytes, not 1025"},
		{"text too long", verbs(MaxVerbs, Cron{Schedule: strings.Repeat("0,", 150) + "0 * * * *"}), "a schema has at most 262144 bytes, not 341899"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Validate(tt.m, now).Error(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if _, _, err := Parse("big", strings.Repeat("x", MaxTextBytes+1)); err == nil || !strings.Contains(err.Error(), "big: a schema has at most") {
		t.Errorf("a text above the limit: %v", err)
	}
	if _, _, err := Parse("bad", strings.Repeat("x\n", 1000)); strings.Count(err.Error(), "\n") > 2*maxErrors {
		t.Errorf("faults without bound: %d", strings.Count(err.Error(), "\n"))
	}
}

func TestANeverFiringScheduleIsKnownAsSuch(t *testing.T) {
	m := mustParse(t, "module m\nverb a(Unit) Unit\n+cron 0 0 1 1 * * 2020\n")
	if m.Verbs[0].Cron.Schedule = "0 0 0 1 1 * 2020"; !errors.Is(Validate(m, now).Err(), schedule.ErrNeverFires) {
		t.Errorf("not ErrNeverFires: %v", Validate(m, now))
	}
	if es := Validate(m, time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)); es.Err() != nil {
		t.Errorf("a year before: %v", es)
	}
	if _, err := m.Verbs[0].Cron.Compile(); err != nil {
		t.Errorf("Compile asks whether it fires: %v", err)
	}
}

func TestCaretStandsBelowItsPieceWhateverTheWidth(t *testing.T) {
	source := "\tül //ftl:cron 0 x"
	e := Error{Span: Span{Position{"f.go", 3, strings.Index(source, "x") + 1}, source, 1}, Message: "no", Hint: "yes"}
	want := "f.go:3:19: no\n    \tül //ftl:cron 0 x\n    \t                ^\nhint: yes\n"
	if got := e.Format(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	e.Column, e.Length = 1000, -5
	if got := e.Format(); strings.Contains(got, "^") {
		t.Errorf("a caret outside the line: %s", got)
	}
}

func TestNearest(t *testing.T) {
	for _, tt := range [][2]string{
		{"cron", "cron"}, {"Cron", "cron"}, {"corn", "cron"}, {"cronn", "cron"}, {"crn", "cron"}, {"time-out", "timeout"}, {"TimeZone", "timezone"},
		{"catch-up", "catchup"}, {"retries", ""}, {"retyr", "retry"}, {"verbs", "verb"}, {"", ""}, {strings.Repeat("c", 10_000), ""},
	} {
		if got := Nearest(tt[0], annotationNames); got != tt[1] {
			t.Errorf("Nearest(%.20q) = %q, want %q", tt[0], got, tt[1])
		}
	}
}

// FuzzTextRoundTrips: what parses prints a text that parses to the same module, and validating never panics.
func FuzzTextRoundTrips(f *testing.F) {
	f.Add("module heartbeat\nverb beat(Unit) Unit\n  +cron */2 * * * * *\n  +timezone Europe/Paris\n  +timeout 10m\n  +catchup all\n  +overlap skip\n")
	f.Add("module billing kotlin\nexport verb x(a.B) Unit\n")
	f.Add("verb x(Unit) Unit\n+cron\n")
	f.Add(mailText)
	f.Add("verb x(A) [B]\n+retry 5 1s..1m\n+unique 1h\n+concurrency 3\n+timeout 1s\ndata A {\n\"a \\x00b\"? {String:[T?]}?\n}")
	f.Add("// only\r\n\tverb verb(Unit)Unit\n+cron\v0")
	f.Fuzz(func(t *testing.T, text string) {
		m, where, err := Parse("f", text)
		if es, ok := errors.AsType[Errors](err); ok {
			es.Format()
		}
		ValidateSource(m, where, now).Format()
		if err != nil {
			return
		}
		again, _, err := Parse("f", m.Text())
		if err != nil {
			t.Fatalf("%q printed %q: %v", text, m.Text(), err)
		}
		if d := cmp.Diff(m, again); d != "" {
			t.Fatalf("%q printed %q (-first +again):\n%s", text, m.Text(), d)
		}
	})
}

func ExampleModule_Text() {
	m := Module{Name: "heartbeat", Verbs: []Verb{{Name: "beat", Cron: &Cron{Schedule: "*/2 * * * * *", Timeout: time.Minute}}}}
	fmt.Print(m.Text())
	// Output:
	// module heartbeat
	// verb beat(Unit) Unit
	//   +cron */2 * * * * *
	//   +timeout 1m0s
}

func ExampleValidate() {
	m, where, err := Parse("billing.schema", "module billing\nverb pay(Unit) Unit\n  +cron 0 25 * * *\n")
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(ValidateSource(m, where, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)).Format())
	// Output:
	// billing.schema:3:11: verb pay: invalid cron expression "0 25 * * *": value 25 out of allowed hour range of 0-23
	//       +cron 0 25 * * *
	//               ^^
}
