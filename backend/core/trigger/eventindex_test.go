package trigger

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// dicey makes rules and changes of so few words that many of them meet.
type dicey struct{ *rand.Rand }

func (d dicey) of(words ...string) string { return words[d.IntN(len(words))] }

func (d dicey) some(words ...string) string {
	d.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	return strings.Join(words[:1+d.IntN(len(words))], ",")
}

func (d dicey) rule() string {
	text := d.of("a.b.c", "a.b.c.d", "a.b.c.*", "a.b.c.d.*", "x", Files)
	if d.IntN(4) == 0 {
		return text
	}
	text += ":" + d.some("CREATED", "UPDATED", "DELETED")
	switch d.IntN(4) {
	case 0:
		return text
	case 1:
		return text + ":" + d.some("1", "2", "/foo", "/foo/bar", "foo", "!=")
	}
	return text + ":" + d.some("1", "2", "true", "v", "!=", "1.5") + ":" + d.of("f", "g", "f.g")
}

func (d dicey) doc() json.RawMessage {
	value := func() string {
		return d.of(`1`, `2.0`, `"v"`, `true`, `null`, `[1]`, `1.50`, `"!="`, `{"g":1}`, `{"g":"v"}`)
	}
	return json.RawMessage(d.of("", "null", `{"_id":"1"}`, fmt.Sprintf(`{"f":%s}`, value()), fmt.Sprintf(`{"g":%s,"f.g":%s}`, value(), value())))
}

func (d dicey) change() Change {
	return Change{
		Tenant: d.of("one", "two"), Type: d.of("a.b.c", "a.b.c.d", "a.b.c.d.e", "a.b", "x", Files), Verb: Verb(d.of("CREATED", "UPDATED", "DELETED", "NOTIFIED")),
		ID: d.of("", "1", "2", "3"), Doc: d.doc(), Old: d.doc(),
		Path: d.of("", "/foo", "/foo/bar", "/foo/bar/baz", "/foobar"), OldPath: d.of("", "", "/foo/a", "/quux"),
		Dirs: []Directory{{"foo", "/foo"}, {"1", "/quux"}}[:d.IntN(3)],
	}
}

// TestIndexAgreesWithTheRules: whatever is put in, changed and taken out, the index finds what a walk over all triggers
// finds, and is empty in the end.
func TestIndexAgreesWithTheRules(t *testing.T) {
	type one struct {
		tenant string
		rules  []Rule
	}
	for seed := range uint64(40) {
		d := dicey{rand.New(rand.NewPCG(seed, 1))}
		var x Index
		all := map[int64]one{}
		found := 0
		for range 300 {
			id := int64(d.IntN(40))
			if d.IntN(4) == 0 {
				x.Remove(id)
				delete(all, id)
			} else {
				var texts []string
				for range 1 + d.IntN(3) {
					texts = append(texts, d.rule())
				}
				all[id] = one{d.of("one", "two"), ruled(t, strings.Join(texts, " "))}
				x.Set(id, all[id].tenant, all[id].rules)
			}
			if x.Len() != len(all) {
				t.Fatalf("seed %d: %d triggers, want %d", seed, x.Len(), len(all))
			}
			c := d.change()
			var want []int64
			for id, o := range all {
				if o.tenant == c.Tenant && Matches(o.rules, c) {
					want = append(want, id)
				}
			}
			slices.Sort(want)
			if got := x.Match(c); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %+v\ngot %v, want %v", seed, c, got, want)
			}
			found += len(want)
		}
		if found == 0 {
			t.Errorf("seed %d: nothing ever matched", seed)
		}
		for id := range all {
			x.Remove(id)
		}
		if len(x.at) != 0 || len(x.held) != 0 {
			t.Errorf("seed %d: %d places are left of no trigger", seed, len(x.at))
		}
	}
}

func TestTriggersOfOtherTenantsAreNotFound(t *testing.T) {
	var x Index
	x.Set(1, "one", ruled(t, "x"))
	x.Set(2, "two", ruled(t, "x"))
	if got := x.Match(Change{Tenant: "two", Type: "x", Verb: Created}); !slices.Equal(got, []int64{2}) {
		t.Errorf("got %v", got)
	}
	x.Set(2, "one", ruled(t, "y"))
	if got := x.Match(Change{Tenant: "two", Type: "x", Verb: Created}); len(got) != 0 {
		t.Errorf("got %v after the trigger moved", got)
	}
}

func TestMatchesMayBeKept(t *testing.T) {
	var x Index
	for id := range int64(3) {
		x.Set(id, "", ruled(t, "x"))
	}
	got := x.Match(Change{Type: "x", Verb: Created})
	x.Remove(0)
	if !slices.Equal(got, []int64{0, 1, 2}) {
		t.Errorf("the list changed with the index: %v", got)
	}
}

// many triggers, of which one in a hundred types gets all of its kind; a change finds about ten, however many there are.
func many(b testing.TB, n int) *Index {
	var x Index
	for i := range n {
		var arguments string
		switch i % 4 {
		case 0:
			arguments = fmt.Sprintf("io.cozy.kind%d:CREATED", i/40)
		case 1:
			arguments = fmt.Sprintf("io.cozy.named:UPDATED:id%d", i)
		case 2:
			arguments = fmt.Sprintf("io.cozy.hot:CREATED,UPDATED:value%d:field", i)
		case 3:
			arguments = fmt.Sprintf("io.cozy.kind%d.*:DELETED io.cozy.files:CREATED:dir%d", i, i)
		}
		x.Set(int64(i), "me", ruled(b, arguments))
	}
	return &x
}

func BenchmarkMatch(b *testing.B) {
	doc := json.RawMessage(`{"_id":"abc","field":"value2","label":"Lunch","amount":-12.5,"category":{"id":"400110"}}`)
	for _, n := range []int{10, 10_000, 100_000} {
		x := many(b, n)
		for name, c := range map[string]Change{
			"type":     {Tenant: "me", Type: "io.cozy.kind0", Verb: Created, ID: "abc", Doc: doc},
			"id":       {Tenant: "me", Type: "io.cozy.named", Verb: Updated, ID: "id1", Doc: doc},
			"selector": {Tenant: "me", Type: "io.cozy.hot", Verb: Updated, ID: "id1", Doc: doc, Old: doc},
			"file":     {Tenant: "me", Type: Files, Verb: Created, ID: "f", Path: "/a/b/c/d", Dirs: []Directory{{"dir3", "/a/b"}}},
			"none":     {Tenant: "me", Type: "io.cozy.nobody.cares", Verb: Created, ID: "abc", Doc: doc},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					x.Match(c)
				}
			})
		}
	}
}

func BenchmarkSet(b *testing.B) {
	x := many(b, 100_000)
	rules := ruled(b, "io.cozy.hot:CREATED,UPDATED:value:field")
	for b.Loop() {
		x.Set(50_000, "me", rules)
	}
}
