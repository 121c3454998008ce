package schema

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const mailText = `module post
verb sendMail(Mail) Receipt
  +timeout 10m0s
  +retry 5 1s..1m
  +concurrency 10
  +unique 1h
verb names([String]?) {String: [Int]}?
  +unique
verb nightly(Unit) Unit
  +cron 0 0 * * *
  +overlap cancel
  +retry 3 500ms
data Mail {
  to String
  subject? String?
  parts? [Part]
  "odd name" {String: Any}
  "quoted?"? Int8
}
data Part {
  parts [Part?]
}
data Receipt {
}
`

func TestDataTypesAndJobOptionsPrintAndParse(t *testing.T) {
	want := Module{Name: "post", Language: Go, Verbs: []Verb{
		{Name: "sendMail", Request: "Mail", Response: "Receipt", Timeout: 10 * time.Minute, Retry: &Retry{5, time.Second, time.Minute},
			Concurrency: 10, Unique: &Unique{time.Hour}},
		{Name: "names", Request: "[String]?", Response: "{String: [Int]}?", Unique: &Unique{}},
		{Name: "nightly", Request: Unit, Response: Unit, Cron: &Cron{Schedule: "0 0 * * *", Overlap: OverlapCancel}, Retry: &Retry{Attempts: 3, Backoff: 500 * time.Millisecond}},
	}, Data: []Data{
		{"Mail", []Field{{"to", "String", false}, {"subject", "String?", true}, {"parts", "[Part]", true}, {"odd name", "{String: Any}", false}, {"quoted?", "Int8", true}}},
		{"Part", []Field{{"parts", "[Part?]", false}}},
		{"Receipt", nil},
	}}
	got := mustParse(t, mailText)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Parse (-want +got):\n%s", d)
	}
	if d := cmp.Diff(mailText, got.Text()); d != "" {
		t.Errorf("Text (-want +got):\n%s", d)
	}
	if es := Validate(got, now); es != nil {
		t.Errorf("Validate: %v", es)
	}
	loose := "module m\nverb  a ( { String :[ Int ? ] } ? )  [ T ]\n+retry  5\t 60s..1h0m0s \ndata  T{ \n// a comment\n\n\t\"to\"? String  ?\r\n }\ndata U {}\n"
	canonical := "module m\nverb a({String: [Int?]}?) [T]\n  +retry 5 1m..1h\ndata T {\n  to? String?\n}\ndata U {\n}\n"
	if got := mustParse(t, loose).Text(); got != canonical {
		t.Errorf("got:\n%s\nwant:\n%s", got, canonical)
	}
}

func TestParseReportsEveryLineOfData(t *testing.T) {
	_, _, err := Parse("m", `module m
data {
data Two words {
data T
data Mail {
  to
  to? 
  a.b String
  "a String
  "a"String
  ? String
  verb x(Unit) Unit
}
}
data Open {
  x String`)
	var got []string
	for _, e := range err.(Errors) {
		got = append(got, e.Error())
	}
	want := []string{
		`m:2:1: not a data type`, `m:3:1: not a data type`, `m:4:1: not a data type`,
		`m:6:3: not a field`, `m:7:3: not a field`, `m:8:3: not a field`, `m:9:3: not a field`, `m:10:3: not a field`, `m:11:3: not a field`,
		`m:14:1: unexpected "}"`, `m:15:1: data Open has no end`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestValidateReportsEveryFaultOfDataAndJobs(t *testing.T) {
	m, where, err := Parse("m", `module m
verb a(Mial) Unit
  +retry 1000 167h..169h
  +timeout 1ms
verb b([Unit]) {Int:String}
  +unique 90000h
verb c(Unit) Unit
  +cron * * * * *
  +concurrency 5
  +unique
verb d(Unit) Unit
  +cron * * * * *
  +overlap queue
  +concurrency 2
data Mail {
  to Strin
  to String
  "a\tb" String
  deep [[[[[[[[[[[[[[[[[[Int]]]]]]]]]]]]]]]]]]
  x Int??
}
data Mail {
}
data Int {
}
data 2x {
}
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range ValidateSource(m, where, now) {
		got = append(got, e.Error()+" <"+e.Text()+"> "+e.Hint)
	}
	const types = "String, Bool, Int, Float, Bytes, Time, Any, [T], {String: T}, T? or a data type"
	want := []string{
		`m:2:8: verb a: unknown request type Mial <Mial> did you mean Mail?`,
		`m:3:10: verb a: ceiling 169h0m0s out of allowed range <1000 167h..169h> a ceiling is at most 168h`,
		`m:4:12: verb a: timeout 1ms out of allowed range <1ms> a timeout is from 1s to 24h; without one a run gets 5m`,
		`m:5:8: verb b: unknown request type Unit <[Unit]> `,
	}
	for i, w := range want {
		if i >= len(got) || got[i] != w {
			t.Fatalf("fault %d: got %q, want %q\n%s", i, got[min(i, len(got)-1)], w, strings.Join(got, "\n"))
		}
	}
	rest := []string{
		`m:6:11: verb b: unique window 90000h0m0s out of allowed range <90000h> a window is from 1ms to ten years`,
		`m:9:16: verb c: concurrency needs a retry, or an overlap other than skip <5> its slots never meet: one that comes during a run is skipped; see overlap`,
		`m:10:3: verb c: a cron job can not be unique <+unique> each slot is one job already; overlap says what happens when two of them meet`,
		`m:14:16: verb d: overlap queue runs one slot after the other, not 2 <2> overlap allow runs them side by side`,
		`m:16:6: data Mail: unknown type of field "to" Strin <Strin> did you mean String?`,
		`m:17:3: data Mail: field "to" is declared twice <to> `,
		`m:18:3: data Mail: invalid field name "a\tb" <"a\tb"> UTF-8 without control characters`,
		`m:19:8: data Mail: invalid type of field "deep" "[[[[[[[[[[[[[[[[[[Int]]]]]]]]]]]]]]]]]]" <[[[[[[[[[[[[[[[[[[Int]]]]]]]]]]]]]]]]]]> ` + types,
		`m:20:5: data Mail: invalid type of field "x" "Int??" <Int??> ` + types,
		`m:22:6: data Mail is declared twice <Mail> `,
		`m:24:6: data Int has the name of a built-in type <Int> `,
		`m:26:6: invalid data name "2x" <2x> a letter, then letters, digits and _`,
	}
	for _, w := range rest {
		found := false
		for _, g := range got {
			found = found || g == w
		}
		if !found {
			t.Errorf("no fault %q", w)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
}

func TestLimitsOfDataHold(t *testing.T) {
	many := Module{Name: "m", Data: make([]Data, MaxData+1)}
	wide := Module{Name: "m", Data: []Data{{Name: "T", Fields: make([]Field, MaxFields+1)}}}
	if es := Validate(many, now); !strings.Contains(es.Error(), "at most 1000 data types, not 1001") {
		t.Errorf("many types: %.100s", es.Error())
	}
	if es := Validate(wide, now); !strings.Contains(es.Error(), "at most 1000 fields, not 1001") {
		t.Errorf("many fields: %.100s", es.Error())
	}
	if _, err := Compile(wide); err == nil {
		t.Error("compiled too many fields")
	}
	for _, r := range []Retry{{Attempts: -1}, {Attempts: 1001}, {Attempts: 5, Backoff: -1}, {Attempts: 5, Ceiling: time.Millisecond}, {Backoff: time.Minute, Ceiling: time.Second}} {
		m := Module{Name: "m", Verbs: []Verb{{Name: "a", Retry: &r}}}
		if Validate(m, now) == nil {
			t.Errorf("%+v is valid", r)
		}
	}
	m := Module{Name: "m", Verbs: []Verb{{Name: "a", Retry: &Retry{Ceiling: time.Minute}}, {Name: "b", Timeout: time.Second, Cron: &Cron{Schedule: "* * * * *"}}}}
	if es := Validate(m, now); len(es) != 1 || !strings.Contains(es[0].Message, "is its cron's") {
		t.Errorf("a timeout beside a cron: %v", es)
	}
	if !strings.Contains(m.Text(), "+retry 5 1s..1m\n") {
		t.Errorf("the defaults of jobs are not printed: %s", m.Text())
	}
}
