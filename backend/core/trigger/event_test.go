package trigger

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
)

func ruled(t testing.TB, arguments string) []Rule {
	t.Helper()
	rules, err := ParseEvent(arguments)
	if err != nil {
		t.Fatalf("%q: %v", arguments, err)
	}
	return rules
}

// tree is where the prose of the conformance list puts its files; DIR is the directory /foo.
var tree = map[string]Change{
	"directory /foo/bar, rule value is the id of /foo": {Path: "/foo/bar", Dirs: []Directory{{"DIR", "/foo"}}},
	"file /foo/bar/baz (deeper level)":                 {Path: "/foo/bar/baz", Dirs: []Directory{{"DIR", "/foo"}, {"bar", "/foo/bar"}}},
	"file moved to /quux":                              {Path: "/quux", OldPath: "/foo/bar/baz", Dirs: []Directory{{"DIR", "/foo"}, {"bar", "/foo/bar"}}},
	"sibling folder /foobar while DIR is /foo":         {Path: "/foobar", Dirs: []Directory{{"DIR", "/foo"}}},
}

func TestConformanceOfEvents(t *testing.T) {
	type c struct {
		Note  string
		Input struct {
			Arguments string
			Event     struct {
				Verb     Verb
				Type     string
				Doc, Old json.RawMessage
			}
		}
		Expected struct {
			OK    bool
			Match bool
			HTTP  int
		}
	}
	found := cases[c](t, "event-match")
	if len(found) != 24 {
		t.Errorf("got %d cases, want 24", len(found))
	}
	for id, c := range found {
		t.Run(id, func(t *testing.T) {
			rules, err := ParseEvent(c.Input.Arguments)
			if c.Expected.HTTP == 422 {
				refusedArguments(t, c.Input.Arguments, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			e := c.Input.Event
			change := Change{Type: e.Type, Verb: e.Verb, Doc: e.Doc, Old: e.Old}
			var prose string
			if json.Unmarshal(e.Doc, &prose) == nil {
				where, ok := tree[prose]
				if !ok && len(e.Doc) > 0 {
					t.Fatalf("unknown prose %q", prose)
				}
				change.Doc, change.Old, change.Path, change.OldPath, change.Dirs = nil, nil, where.Path, where.OldPath, where.Dirs
			}
			if err := change.Check(); err != nil {
				t.Error(err)
			}
			if got := Matches(rules, change); got != c.Expected.Match {
				t.Errorf("%q, %+v: %v (%s)", c.Input.Arguments, e, got, c.Note)
			}
			x := (&Index{}).With([]Entry{{7, "", rules}})
			if got := len(all(x, change)) == 1; got != c.Expected.Match {
				t.Errorf("%q, %+v: the index says %v", c.Input.Arguments, e, got)
			}
		})
	}
}

func refusedArguments(t *testing.T, arguments string, err error) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) || !errors.Is(err, cron.ErrInvalid) || f.Pointer != PointerArguments || f.Title == "" ||
		!strings.HasPrefix(f.Detail, permission.Malformed) {
		t.Errorf("%.80q: got %#v", arguments, err)
	}
}

func TestConformanceOfEventArguments(t *testing.T) {
	type c struct {
		Input    struct{ Arguments string }
		Expected struct{ OK bool }
	}
	found := cases[c](t, "trigger-args/event")
	if len(found) != 8 {
		t.Errorf("got %d cases, want 8", len(found))
	}
	for id, c := range found {
		t.Run(id, func(t *testing.T) {
			if err := Check(Event, c.Input.Arguments, "", anInstant); !c.Expected.OK {
				refusedArguments(t, c.Input.Arguments, err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEventArguments(t *testing.T) {
	for _, good := range []string{
		"io.cozy.files:DELETED:image/jpg:mime", "io.cozy.bank.operations:UPDATED:!=:category", "x", "x.y_1.2z:CREATED,UPDATED,DELETED",
		"io.cozy.banks.*", "io.cozy.banks.*:CREATED:a,b:c.d", "io.cozy.files:CREATED:/foo/bar", "x:CREATED:a x:CREATED:a",
	} {
		if err := CheckEvent(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", " ", "io.cozy.files ", "io.cozy.files:GET", "io.cozy.files:ALL", "io.cozy.files:created", "io.cozy.files:NOTIFIED", "x:CREATED,:a",
		"x:", "x:CREATED:", "x:CREATED:a:", "x:CREATED::f", "x:CREATED:a:f:g", "x.*", "x.y.*", "x.*.y", "*", "x:CREATED:a,,b", "x\ny", "é.cozy",
	} {
		refusedArguments(t, bad, CheckEvent(bad))
	}
	if f := new(Fault); !errors.As(CheckEvent(""), &f) || f.Detail != permission.Malformed {
		t.Errorf("the empty text: %q", f.Detail)
	}
}

func TestRulesMatchTheirChanges(t *testing.T) {
	object := func(text string) json.RawMessage { return json.RawMessage(text) }
	for name, c := range map[string]struct {
		rules  string
		change Change
		want   bool
	}{
		"any verb, created":            {"a.b.c", Change{Type: "a.b.c", Verb: Created}, true},
		"any verb, deleted":            {"a.b.c", Change{Type: "a.b.c", Verb: Deleted}, true},
		"any verb, notified":           {"a.b.c", Change{Type: "a.b.c", Verb: Notified}, false},
		"any verb, nonsense":           {"a.b.c", Change{Type: "a.b.c", Verb: "x"}, false},
		"prefix is no type":            {"a.b.c", Change{Type: "a.b.c.d", Verb: Created}, false},
		"wildcard, two below":          {"a.b.c.*", Change{Type: "a.b.c.d.e", Verb: Created}, true},
		"wildcard, itself":             {"a.b.c.*", Change{Type: "a.b.c", Verb: Created}, true},
		"wildcard, beside":             {"a.b.c.*", Change{Type: "a.b.cd", Verb: Created}, false},
		"id of the change":             {"x:UPDATED:a,b", Change{Type: "x", Verb: Updated, ID: "b"}, true},
		"id of the old document":       {"x:DELETED:a", Change{Type: "x", Verb: Deleted, Old: object(`{"_id":"a"}`)}, true},
		"id before _id":                {"x:CREATED:a", Change{Type: "x", Verb: Created, ID: "b", Doc: object(`{"_id":"a"}`)}, false},
		"ids are not fields":           {"x:CREATED:a", Change{Type: "x", Verb: Created, Doc: object(`{"f":"a"}`)}, false},
		"nested field":                 {"x:CREATED:v:a.b.c", Change{Type: "x", Verb: Created, Doc: object(`{"a":{"b":{"c":"v"}}}`)}, true},
		"name with a dot":              {"x:CREATED:v:a.b.c", Change{Type: "x", Verb: Created, Doc: object(`{"a.b":{"c":"v"},"a":1}`)}, true},
		"number":                       {"x:CREATED:5:n", Change{Type: "x", Verb: Created, Doc: object(`{"n":5}`)}, true},
		"number, another way":          {"x:CREATED:1.5:n", Change{Type: "x", Verb: Created, Doc: object(`{"n":1.50}`)}, true},
		"truth":                        {"x:CREATED:true:n", Change{Type: "x", Verb: Created, Doc: object(`{"n":true}`)}, true},
		"null is no text":              {"x:CREATED:null:n", Change{Type: "x", Verb: Created, Doc: object(`{"n":null}`)}, false},
		"a list is no text":            {"x:CREATED:a:n", Change{Type: "x", Verb: Created, Doc: object(`{"n":["a"]}`)}, false},
		"the text !=":                  {"x:CREATED:v:f", Change{Type: "x", Verb: Created, Doc: object(`{"f":"!="}`)}, false},
		"leaves the set":               {"x:UPDATED:a:f", Change{Type: "x", Verb: Updated, Doc: object(`{}`), Old: object(`{"f":"a"}`)}, true},
		"changed":                      {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":1}`), Old: object(`{"f":2}`)}, true},
		"changed, a number's spelling": {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":1.0}`), Old: object(`{"f":1}`)}, false},
		"changed, a large number":      {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":9007199254740993}`), Old: object(`{"f":9007199254740992}`)}, true},
		"changed, order of members":    {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":{"a":1,"b":[2]}}`), Old: object(`{"f":{"b":[2], "a":1}}`)}, false},
		"changed, order of a list":     {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":[1,2]}`), Old: object(`{"f":[2,1]}`)}, true},
		"changed, came":                {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":1}`), Old: object(`{}`)}, true},
		"changed, null and absent":     {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":null}`), Old: object(`{}`)}, false},
		"changed, old is not known":    {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":1}`)}, false},
		"changed, old is null":         {"x:UPDATED:!=:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":1}`), Old: object(`null`)}, false},
		"created is a change":          {"x:CREATED:!=:f", Change{Type: "x", Verb: Created, Doc: object(`{}`)}, true},
		"deleted is a change":          {"x:DELETED:!=:f", Change{Type: "x", Verb: Deleted}, true},
		"changed, or a value":          {"x:UPDATED:!=,a:f", Change{Type: "x", Verb: Updated, Doc: object(`{"f":"a"}`), Old: object(`{"f":"a"}`)}, true},
		"no JSON":                      {"x:CREATED:a:f", Change{Type: "x", Verb: Created, Doc: object(`{"f":"a"`)}, false},
		"directory by path":            {"io.cozy.files:CREATED:/foo", Change{Type: Files, Verb: Created, Path: "/foo/a/b"}, true},
		"the directory itself":         {"io.cozy.files:UPDATED:DIR", Change{Type: Files, Verb: Updated, ID: "DIR", Path: "/foo"}, true},
		"the root":                     {"io.cozy.files:CREATED:/", Change{Type: Files, Verb: Created, Path: "/a"}, true},
		"the root by id":               {"io.cozy.files:CREATED:root", Change{Type: Files, Verb: Created, Path: "/a", Dirs: []Directory{{"root", "/"}}}, true},
		"sibling file":                 {"io.cozy.files:UPDATED:f1", Change{Type: Files, Verb: Updated, ID: "f2", Path: "/foo/b", Dirs: []Directory{{"DIR", "/foo"}}}, false},
		"paths of other types":         {"a.b.c:CREATED:/foo", Change{Type: "a.b.c", Verb: Created, Path: "/foo/a"}, false},
		"a directory elsewhere":        {"io.cozy.files:CREATED:DIR", Change{Type: Files, Verb: Created, Path: "/foo/a", Dirs: []Directory{{"DIR", "/bar"}}}, false},
	} {
		rules := ruled(t, c.rules)
		if got := Matches(rules, c.change); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		x := (&Index{}).With([]Entry{{1, "", rules}})
		if got := len(all(x, c.change)) > 0; got != c.want {
			t.Errorf("%s: the index says %v", name, got)
		}
	}
}

func TestBadChangesAreRefused(t *testing.T) {
	for field, c := range map[string]Change{
		"/type":     {Type: "io.cozy.*", Verb: Created},
		"/verb":     {Type: "x", Verb: "created"},
		"/id":       {Type: "x", Verb: Created, ID: "a\x00b"},
		"/doc":      {Type: "x", Verb: Created, Doc: json.RawMessage(strings.Repeat(" ", 70) + `[1]`)},
		"/old":      {Type: "x", Verb: Created, Old: json.RawMessage(`"text"`)},
		"/path":     {Type: "x", Verb: Created, Path: "foo"},
		"/old_path": {Type: "x", Verb: Created, OldPath: strings.Repeat("/", MaxPath+1)},
		"/dirs":     {Type: "x", Verb: Created, Dirs: []Directory{{"", "/foo"}}},
	} {
		if f := new(Fault); !errors.As(c.Check(), &f) || f.Pointer != field || f.Detail == "" {
			t.Errorf("%s: got %#v", field, c.Check())
		}
	}
	big := Change{Type: "x", Verb: Created, Doc: json.RawMessage(`{"a":"` + strings.Repeat("a", MaxDocument) + `"}`)}
	if !errors.Is(big.Check(), cron.ErrInvalid) {
		t.Error("a document that is too long")
	}
}

func TestJobsAreToldTheEvent(t *testing.T) {
	for want, c := range map[string]Change{
		`{"verb":"UPDATED","doc":{"a":1},"old":{"a":2}}`: {Verb: Updated, Doc: json.RawMessage(`{"a":1}`), Old: json.RawMessage(`{"a":2}`)},
		`{"verb":"CREATED","doc":null}`:                  {Verb: Created},
	} {
		if got := string(c.Event()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
