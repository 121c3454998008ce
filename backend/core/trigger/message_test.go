package trigger

import (
	"encoding/json"
	"errors"
	"testing"
)

func attributes(t *testing.T, text string) (fields map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestConformanceOfMessages(t *testing.T) {
	type c struct {
		Input struct {
			Stored json.RawMessage `json:"stored message"`
		}
		Expected struct{ Decoded json.RawMessage }
	}
	found := cases[c](t, "job-message")
	if len(found) != 1 {
		t.Errorf("got %d cases, want 1", len(found))
	}
	for id, c := range found {
		if got := DecodeMessage(c.Input.Stored); string(got) != string(c.Expected.Decoded) {
			t.Errorf("%s: got %s, want %s", id, got, c.Expected.Decoded)
		}
	}
}

func TestOnlyTheLegacyFormIsDecoded(t *testing.T) {
	for _, kept := range []string{
		``, `null`, `1`, `"x"`, `{"a":1}`, `{"Data":"InZhbHVlIgo="}`, `{"Data":"InZhbHVlIgo=","Type":"text"}`, `{"Data":"InZhbHVlIgo=","Type":"json","x":1}`,
		`{"Data":"!","Type":"json"}`, `{"Data":1,"Type":"json"}`, `{"Data":"e30K","type":"json"}`, `{"Data":"ew==","Type":"json"}`, `{"Data":`,
	} {
		if got := DecodeMessage(json.RawMessage(kept)); string(got) != kept {
			t.Errorf("%s became %s", kept, got)
		}
	}
}

func TestNamesOfAMessage(t *testing.T) {
	for text, want := range map[string][2]string{ // of a job, of a trigger; "!" is refused
		`{}`:                            {"", ""},
		`{"message":null}`:              {"", ""},
		`{"arguments":"foobar"}`:        {`"foobar"`, ""},
		`{"worker_arguments":"foo"}`:    {`"foo"`, `"foo"`},
		`{"options":{"arguments":{}}}`:  {`{}`, `{}`},
		`{"options":[]}`:                {"", ""},
		`{"message":1,"arguments":1.0}`: {"1", "1"},
		`{"message":{"a":1,"b":2},"worker_arguments":{"b":2,"a":1}}`: {`{"a":1,"b":2}`, `{"a":1,"b":2}`},
		`{"message":"m","arguments":"0 0 * * *"}`:                    {"!/arguments", `"m"`},
		`{"message":"m","worker_arguments":"w"}`:                     {"!/worker_arguments", "!/worker_arguments"},
		`{"message":null,"worker_arguments":"w"}`:                    {`"w"`, `"w"`},
		`{"arguments":{"x":1},"options":{"arguments":{"x":2}}}`:      {"!/options/arguments", `{"x":2}`},
		`{"arguments":{"x":1},"options":{"arguments":{"x":1}}}`:      {`{"x":1}`, `{"x":1}`},
		`{"message":false,"worker_arguments":0}`:                     {"!/worker_arguments", "!/worker_arguments"},
	} {
		for i, find := range []func(map[string]json.RawMessage, string) (json.RawMessage, error){JobMessage, TriggerMessage} {
			got, err := find(attributes(t, text), "/data/attributes")
			if f, ok := errors.AsType[*Fault](err); ok {
				got = json.RawMessage("!" + f.Pointer[len("/data/attributes"):])
			}
			if string(got) != want[i] {
				t.Errorf("%s: got %s, %v; want %s", text, got, err, want[i])
			}
		}
	}
}

func TestHopelessErrors(t *testing.T) {
	for text, want := range map[string]bool{
		"LOGIN_FAILED": true, "LOGIN_FAILED.NEEDS_SECRET": true, "USER_ACTION_NEEDED": true, "USER_ACTION_NEEDED.SCA_REQUIRED": true, NoMessage: true,
		"": false, "VENDOR_DOWN": false, "LOGIN_FAILED_TWICE": false, "not LOGIN_FAILED": false, "context deadline exceeded": false,
	} {
		if Hopeless(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// FuzzSameJSON: equality is that of values: a value is itself however it is written again, and asking the other way
// round answers the same.
func FuzzSameJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.50,"x",null,true]}`), []byte(`{"a":[1.0,2.5,"x",null,true]}`))
	f.Add([]byte(`1e400`), []byte(`1E+400`))
	f.Add([]byte(`-0`), []byte(`0.0`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if SameJSON(a, b) != SameJSON(b, a) {
			t.Fatalf("%q and %q", a, b)
		}
		value, ok := readJSON(a)
		if !ok {
			return
		}
		again, err := json.Marshal(value)
		if err != nil || !SameJSON(a, again) {
			t.Fatalf("%q written again is %q (%v)", a, again, err)
		}
		Matches([]Rule{{Type: "x", Selector: "a.b", Values: []string{"1", changed}}}, Change{Type: "x", Verb: Updated, Doc: a, Old: b})
		DecodeMessage(a)
	})
}

// FuzzEvent: no text panics the parser, and an accepted rule finds itself in the index.
func FuzzEvent(f *testing.F) {
	for _, text := range []string{"", "io.cozy.files:CREATED:/foo", "a.b.c.*:UPDATED:!=:f x", "a::b", "a:CREATED:b:c:d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseEvent(text)
		if err != nil {
			refusedArguments(t, text, err)
			return
		}
		x := (&Index{}).With([]Entry{{1, "", rules}})
		for _, r := range rules {
			base, _ := r.Wildcard()
			c := Change{Type: base, Verb: Created}
			if len(r.Verbs) > 0 {
				c.Verb = Verb(r.Verbs[0])
			}
			if len(r.Values) > 0 && r.Selector == "" {
				c.ID = r.Values[0]
			}
			if want := Matches(rules, c); want != (len(all(x, c)) == 1) || !want && r.Selector == "" {
				t.Fatalf("%q: %+v: %v", text, c, want)
			}
		}
		if x = x.With([]Entry{{ID: 1}}); x.Len() != 0 || len(x.late.at) != 0 {
			t.Fatalf("%q leaves something behind", text)
		}
	})
}
