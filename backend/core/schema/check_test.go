package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
)

const checkText = `module post
verb send(Mail) Unit
verb tree(Node) Unit
verb maybe(Mail?) Unit
verb texts([String]) Unit
verb whatever(Any) Unit
verb nothing(Unit) Unit
verb numbers(Numbers) Unit
verb byName({String: Int}) Unit
verb empty(Empty) Unit
verb many(Many) Unit
data Mail {
  to String
  subject? String?
  priority Int
  urgent? Bool
  raw? Bytes
  at? Time
  lines? [Line]
  extra? Any
}
data Line {
  price Float
  tags? {String: String}
}
data Node {
  next? Node?
}
data Numbers {
  i? Int
  i8? Int8
  u? UInt
  u8? UInt8
  f? Float
  f32? Float32
}
data Empty {
}
data Many {
  a1 Int
  a2 Int
  a3 Int
  a4 Int
  a5 Int
  a6 Int
  a7 Int
  a8 Int
  camelCase Int
}
`

func compiled(t testing.TB) (Module, *Shapes) {
	t.Helper()
	m, _, err := Parse("", checkText)
	if err != nil {
		t.Fatal(err)
	}
	if es := Validate(m, now); es != nil {
		t.Fatal(es)
	}
	s, err := Compile(m)
	if err != nil {
		t.Fatal(err)
	}
	return m, s
}

func check(t testing.TB, m Module, s *Shapes, verb, payload string) string {
	t.Helper()
	v, ok := m.Verb(verb)
	if !ok {
		t.Fatalf("no verb %s", verb)
	}
	err := s.Check(v, []byte(payload))
	if err == nil {
		return ""
	}
	var f *FieldFault
	if !errors.As(err, &f) || !errors.Is(err, cron.ErrInvalid) || f.FieldName() != f.Field {
		t.Fatalf("%T is no FieldFault", err)
	}
	return f.Field + ": " + f.Problem
}

func TestPayloadsThatFit(t *testing.T) {
	m, s := compiled(t)
	for _, tt := range [][2]string{
		{"send", `{"to":"a","priority":1}`},
		{"send", " {\t\"priority\" : -0 ,\r\n\"to\" : \"\" } "},
		{"send", `{"to":"a\"\\\/\b\f\n\r\té😀\ud83d\ude00","subject":null,"priority":9223372036854775807,"urgent":false,"raw":"AAEC/+8=","at":"2026-11-21T09:00:00.5+01:00","lines":[{"price":1.5e3,"tags":{"a":"b","c":"d"}},{"price":-0.0}],"extra":{"x":[1,{}, [],null,true,false,"y"]}}`},
		{"send", `{"t\u006f":"escaped names are names","priority":1}`},
		{"send", `{"to":"","priority":1,"raw":"\u0041AEC"}`},
		{"send", `{"to":"","priority":1,"raw":"AA\nEC"}`},
		{"send", `{"to":"","priority":1,"raw":"","lines":[ ]}`},
		{"tree", `{}`}, {"tree", `{"next":{"next":{"next":null}}}`},
		{"maybe", ``}, {"maybe", ` `}, {"maybe", `null`}, {"maybe", `{"to":"a","priority":1}`},
		{"texts", `[]`}, {"texts", `["a", "b"]`},
		{"whatever", ``}, {"whatever", `1`}, {"whatever", `{"a":1,"a":2}`},
		{"nothing", ``}, {"nothing", ` `}, {"nothing", `null`}, {"nothing", "{ \n}\t"},
		{"numbers", `{"i":-9223372036854775808,"i8":-128,"u":18446744073709551615,"u8":255,"f":1.7e308,"f32":3.4e38}`},
		{"numbers", `{"i":0,"i8":127,"u":0,"u8":0,"f":1e-999,"f32":12345678901234567890}`},
		{"byName", `{}`}, {"byName", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10}`},
		{"empty", `{}`},
		{"many", `{"camelCase":1,"a8":8,"a7":7,"a6":6,"a5":5,"a4":4,"a3":3,"a2":2,"a1":1}`},
	} {
		if f := check(t, m, s, tt[0], tt[1]); f != "" {
			t.Errorf("%s %s: %s", tt[0], tt[1], f)
		}
		if len(bytes.TrimSpace([]byte(tt[1]))) > 0 && !json.Valid([]byte(tt[1])) {
			t.Errorf("%s is no JSON", tt[1])
		}
	}
}

func TestPayloadsThatDoNotFitAreNamedByTheirField(t *testing.T) {
	m, s := compiled(t)
	for _, tt := range [][3]string{
		{"send", `{"to":5,"priority":1}`, `payload.to: expected string, got number`},
		{"send", `{"to":null,"priority":1}`, `payload.to: expected string, got null`},
		{"send", `{"to":"a","priority":"1"}`, `payload.priority: expected integer, got string`},
		{"send", `{"to":"a","priority":1.0}`, `payload.priority: expected integer, got 1.0`},
		{"send", `{"to":"a","priority":1e3}`, `payload.priority: expected integer, got 1e3`},
		{"send", `{"to":"a","priority":9223372036854775808}`, `payload.priority: 9223372036854775808 does not fit: from -9223372036854775808 to 9223372036854775807`},
		{"send", `{"to":"a"}`, `payload.priority: is missing`},
		{"send", `{}`, `payload.to: is missing, as is priority`},
		{"send", `{"To":"a","priority":1}`, `payload.To: unknown field: did you mean to?`},
		{"send", `{"to":"a","priority":1,"prioritty":1}`, `payload.prioritty: unknown field: did you mean priority?`},
		{"send", `{"to":"a","priority":1,"cc":1}`, `payload.cc: unknown field: Mail has to, subject, priority, urgent, raw, at, lines, extra`},
		{"send", `{"to":"a","to":"b","priority":1}`, `payload.to: stands there twice`},
		{"send", `{"to":"a","t\u006f":"b","priority":1}`, `payload.to: stands there twice`},
		{"send", `{"to":"a","priority":1,"urgent":"yes"}`, `payload.urgent: expected boolean, got string`},
		{"send", `{"to":"a","priority":1,"raw":"A"}`, `payload.raw: expected base64 (standard, padded), got another string`},
		{"send", `{"to":"a","priority":1,"raw":"AA-_"}`, `payload.raw: expected base64 (standard, padded), got another string`},
		{"send", `{"to":"a","priority":1,"at":"2026-13-01T00:00:00Z"}`, `payload.at: expected RFC 3339 time such as 2026-11-21T09:00:00Z, got "2026-13-01T00:00:00Z"`},
		{"send", `{"to":"a","priority":1,"at":1763712000}`, `payload.at: expected RFC 3339 time, got number`},
		{"send", `{"to":"a","priority":1,"lines":{}}`, `payload.lines: expected array, got object`},
		{"send", `{"to":"a","priority":1,"lines":[{"price":1},{"price":true}]}`, `payload.lines[1].price: expected number, got boolean`},
		{"send", `{"to":"a","priority":1,"lines":[{"price":1,"tags":{"a b":1}}]}`, `payload.lines[0].tags["a b"]: expected string, got number`},
		{"send", `{"to":"a","priority":1,"lines":[{"price":1,"tags":{"a":"1","a":"2"}}]}`, `payload.lines[0].tags.a: stands there twice`},
		{"send", ``, `payload: is missing: verb send takes an object (Mail)`},
		{"send", `null`, `payload: expected object (Mail), got null`},
		{"send", `[]`, `payload: expected object (Mail), got array`},
		{"send", `"x"`, `payload: expected object (Mail), got string`},
		{"send", `{"to":"a","priority":1} {}`, `payload: is not valid JSON: '{' at byte 24, where end of the payload should be`},
		{"send", `{"to":"a","priority":1`, `payload: is not valid JSON: it ends where a comma or } should be`},
		{"send", `{"to":"a",}`, `payload: is not valid JSON: '}' at byte 10, where a field's name in quotes should be`},
		{"send", `{"to" "a"}`, `payload: is not valid JSON: '"' at byte 6, where a colon should be`},
		{"send", `{"to":`, `payload.to: is not valid JSON: it ends where a value should be`},
		{"send", `{"to":"a`, `payload.to: is not valid JSON: it ends where " should be`},
		{"send", "{\"to\":\"a\nb\"}", `payload.to: is not valid JSON: '\n' at byte 8, where a character of a string should be`},
		{"send", `{"to":"\x"}`, `payload.to: is not valid JSON: 'x' at byte 8, where an escape should be`},
		{"send", `{"to":"a","priority":01}`, `payload: is not valid JSON: '1' at byte 22, where a comma or } should be`},
		{"send", `{"to":"a","priority":-}`, `payload.priority: is not valid JSON: '}' at byte 22, where a digit should be`},
		{"send", `{"to":nul}`, `payload.to: is not valid JSON: 'n' at byte 6, where null should be`},
		{"send", `{"to":'a'}`, `payload.to: is not valid JSON: '\'' at byte 6, where a value should be`},
		{"send", "{\"to\":\"\xff\"}", `payload: is not valid UTF-8`},
		{"send", `{"to":"a","priority":1,"extra":[1,]}`, `payload.extra: is not valid JSON: ']' at byte 34, where a value should be`},
		{"texts", `["a",null]`, `payload[1]: expected string, got null`},
		{"nothing", `1`, `payload: verb nothing takes no request`}, {"nothing", `{"a":1}`, `payload: verb nothing takes no request`}, {"nothing", `{`, `payload: verb nothing takes no request`},
		{"numbers", `{"i8":128}`, `payload.i8: 128 does not fit: from -128 to 127`},
		{"numbers", `{"i8":-129}`, `payload.i8: -129 does not fit: from -128 to 127`},
		{"numbers", `{"i":-9223372036854775809}`, `payload.i: -9223372036854775809 does not fit: from -9223372036854775808 to 9223372036854775807`},
		{"numbers", `{"u":18446744073709551616}`, `payload.u: 18446744073709551616 does not fit: from 0 to 18446744073709551615`},
		{"numbers", `{"u":-1}`, `payload.u: -1 does not fit: from 0 to 18446744073709551615`},
		{"numbers", `{"u8":256}`, `payload.u8: 256 does not fit: from 0 to 255`},
		{"numbers", `{"f":1e309}`, `payload.f: 1e309 does not fit into 64 bits`},
		{"numbers", `{"f32":1e39}`, `payload.f32: 1e39 does not fit into 32 bits`},
		{"byName", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"a":10}`, `payload.a: stands there twice`},
		{"byName", `{"":1.5}`, `payload[""]: expected integer, got 1.5`},
		{"empty", `{"a":1}`, `payload.a: unknown field: Empty has none`},
		{"many", `{"camelcase":1}`, `payload.camelcase: unknown field: did you mean camelCase?`},
		{"many", `{"zzzzzz":1}`, `payload.zzzzzz: unknown field of Many`},
		{"many", `{}`, `payload.a1: is missing, as are a2, a3, a4, a5 and more`},
		{"tree", strings.Repeat(`{"next":`, 1000), ""},
		{"whatever", strings.Repeat(`[`, 100_000), `payload: is nested deeper than 200 levels`},
	} {
		got := check(t, m, s, tt[0], tt[1])
		if tt[2] == "" && !strings.HasSuffix(got, "is nested deeper than 200 levels") || tt[2] != "" && got != tt[2] {
			t.Errorf("%s %.80s:\ngot  %.200s\nwant %s", tt[0], tt[1], got, tt[2])
		}
	}
	long := check(t, m, s, "send", `{"`+strings.Repeat("ü", 10_000)+`":1}`)
	if len(long) > 400 {
		t.Errorf("a long name is repeated whole: %d bytes", len(long))
	}
}

func TestOnlyWhatWasCompiledIsChecked(t *testing.T) {
	m, _ := compiled(t)
	v, _ := m.Verb("send")
	m.Verbs, m.Data = []Verb{v}, nil
	if _, err := Compile(m); err == nil || !strings.Contains(err.Error(), "unknown type Mail") {
		t.Errorf("a type that is not declared: %v", err)
	}
	var f *FieldFault
	if err := (&Shapes{}).Check(v, []byte(`{}`)); !errors.As(err, &f) || f.Field != "ref" {
		t.Errorf("a verb of another module: %v", err)
	}
}

func TestCheckAllocatesNothingForWhatFits(t *testing.T) {
	m, s := compiled(t)
	v, _ := m.Verb("send")
	payload := benchPayload()
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Check(v, payload); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzCheck: nothing panics; what fits is JSON, and what fits is what encoding/json takes into a struct of that shape.
func FuzzCheck(f *testing.F) {
	m, s := compiled(f)
	for _, p := range []string{string(benchPayload()), `{"to":"a","priority":1,"raw":"AAEC","at":"2026-11-21T09:00:00Z"}`, `{"i":1,"i8":-128,"u":1,"u8":255,"f":1e9,"f32":1}`,
		`{"next":{}}`, `null`, ``, `[1,2,"a"]`, `{"a":1,"b":2}`, `"\ud800"`, `{"extra":[{}]}`} {
		f.Add([]byte(p))
	}
	type line struct {
		Price float64           `json:"price"`
		Tags  map[string]string `json:"tags"`
	}
	type mail struct {
		To       string    `json:"to"`
		Subject  *string   `json:"subject"`
		Priority int64     `json:"priority"`
		Urgent   bool      `json:"urgent"`
		Raw      []byte    `json:"raw"`
		At       time.Time `json:"at"`
		Lines    []line    `json:"lines"`
		Extra    any       `json:"extra"`
	}
	type numbers struct {
		I   int64   `json:"i"`
		I8  int8    `json:"i8"`
		U   uint64  `json:"u"`
		U8  uint8   `json:"u8"`
		F   float64 `json:"f"`
		F32 float32 `json:"f32"`
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, v := range m.Verbs {
			err := s.Check(v, payload)
			if err != nil && (len(err.Error()) > 2000 || !errors.Is(err, cron.ErrInvalid)) {
				t.Fatalf("%s: %v", v.Name, err)
			}
			into := map[string]any{"send": &mail{}, "numbers": &numbers{}, "byName": &map[string]int64{}, "texts": &[]string{}, "whatever": new(any)}[v.Name]
			if into == nil || len(bytes.TrimSpace(payload)) == 0 {
				continue
			}
			d := json.NewDecoder(bytes.NewReader(payload))
			d.DisallowUnknownFields()
			taken := d.Decode(into)
			if err == nil && taken != nil {
				t.Fatalf("%s: %q fits, but: %v", v.Name, payload, taken)
			}
			if v.Name == "whatever" && (err == nil) != json.Valid(payload) && bytes.Count(payload, []byte("["))+bytes.Count(payload, []byte("{")) < maxPayloadDepth {
				if !strings.Contains(fmt.Sprint(err), "UTF-8") {
					t.Fatalf("%q: %v", payload, err)
				}
			}
		}
	})
}

func benchPayload() []byte {
	var b strings.Builder
	b.WriteString(`{"to":"somebody@example.com","subject":"The report of the month","priority":500,"urgent":false,"at":"2026-11-21T09:00:00Z","lines":[`)
	for i := range 10 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"price":%d.5,"tags":{"kind":"book","lang":"en"}}`, i)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkCheck(b *testing.B) {
	m, s := compiled(b)
	v, _ := m.Verb("send")
	payload := benchPayload()
	small := []byte(`{"to":"somebody@example.com","priority":500}`)
	b.Run("large", func(b *testing.B) {
		b.SetBytes(int64(len(payload)))
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Check(v, payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("small", func(b *testing.B) {
		b.SetBytes(int64(len(small)))
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Check(v, small); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json.Valid of large, for comparison", func(b *testing.B) {
		b.SetBytes(int64(len(payload)))
		for b.Loop() {
			json.Valid(payload)
		}
	})
}
