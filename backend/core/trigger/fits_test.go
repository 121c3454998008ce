package trigger

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFitsDocument(t *testing.T) {
	for _, tc := range []struct {
		json, problem string // a part of it; empty: accepted
	}{
		{`{}`, ""}, {` {"a": [1, 2.5, -3e10, true, false, null, "x\"\\\u00e9"]} `, ""}, {`"😀\ud83d\ude00"`, ""},
		{`"e99999"`, ""}, {`{"1e99999": "1e99999"}`, ""}, {`1e1000`, ""}, {`-0.5E-300`, ""},
		{``, "no JSON"}, {`{`, "no JSON"}, {`{} {}`, "no JSON"}, {"\"\xff\"", "no JSON"}, {`{a:1}`, "no JSON"},
		{`"\u0000"`, "NUL"}, {`{"\u0000": 1}`, "NUL"}, {`"\\u0000"`, ""},
		{`"\ud800"`, "surrogate"}, {`"\ud800x"`, "surrogate"}, {`"\ud800\ud800"`, "surrogate"}, {`"\udc00"`, "surrogate"}, {`"\ud800\n"`, "surrogate"},
		{`[1e131071]`, "range"}, {`1e99999999999999999999`, "range"}, {`1e-5000`, "range"},
		{strings.Repeat("[", 501) + strings.Repeat("]", 501), "deep"}, {strings.Repeat("[", 500) + strings.Repeat("]", 500), ""},
		{`"` + strings.Repeat("x", 2000) + `"`, "bytes"}, {`[` + strings.Repeat("1e900,", 3) + `1]`, "bytes"}, {`[` + strings.Repeat("1,", 600) + `1]`, "bytes"},
	} {
		err := FitsDocument([]byte(tc.json), 1500)
		if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
			t.Errorf("%.60s: %v, want %q", tc.json, err, tc.problem)
		}
	}
}

func FuzzFitsDocument(f *testing.F) {
	for _, s := range []string{`{"a":[1e5,"\ud83d\ude00"]}`, `"\u00`, `[-]`, `"\ud800\u`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := FitsDocument(data, 1<<20); err == nil && !json.Valid(data) {
			t.Fatalf("%q is no JSON", data)
		}
	})
}
