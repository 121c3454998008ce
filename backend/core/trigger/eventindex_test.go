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
		x := &Index{}
		all := map[int64]one{}
		found, layers := 0, 0
		for step := range 300 {
			if step == 100 { // many at once: they are folded in, and what follows is a layer above them
				var changes []Entry
				for id := range int64(2 * minLate) {
					all[id] = one{d.of("one", "two"), ruled(t, d.rule())}
					changes = append(changes, Entry{id, all[id].tenant, all[id].rules})
				}
				x = x.With(changes)
			}
			id := int64(d.IntN(40))
			if d.IntN(4) == 0 {
				x = x.With([]Entry{{ID: id}})
				delete(all, id)
			} else {
				var texts []string
				for range 1 + d.IntN(3) {
					texts = append(texts, d.rule())
				}
				all[id] = one{d.of("one", "two"), ruled(t, strings.Join(texts, " "))}
				x = x.With([]Entry{{ID: id}, {id, all[id].tenant, all[id].rules}})
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
			if got, more := x.Match(c, -1, 1000); !slices.Equal(got, want) || more {
				t.Fatalf("seed %d: %+v\ngot %v, want %v", seed, c, got, want)
			}
			found += len(want)
			if len(x.old.held) > 0 && len(x.late.held) > 0 {
				layers++
			}
			var parts []int64
			for after, most, more := int64(-1), 1+d.IntN(4), true; more; {
				var got []int64
				if got, more = x.Match(c, after, most); len(got) > most || more && len(got) < most {
					t.Fatalf("seed %d: %+v: %d triggers, %d were asked for", seed, c, len(got), most)
				}
				if parts = append(parts, got...); more {
					after = got[len(got)-1]
				}
			}
			if !slices.Equal(parts, want) {
				t.Fatalf("seed %d: %+v\ngot %v in parts, want %v", seed, c, parts, want)
			}
		}
		if found == 0 || layers == 0 {
			t.Errorf("seed %d: %d matches, %d times in two layers", seed, found, layers)
		}
		var gone []Entry
		for id := range all {
			gone = append(gone, Entry{ID: id})
		}
		if x = x.With(gone); x.Len() != 0 || len(x.old.at) != 0 || len(x.late.at) != 0 {
			t.Errorf("seed %d: %d and %d places are left of no trigger", seed, len(x.old.at), len(x.late.at))
		}
	}
}

// all is what an index finds of few triggers.
func all(x *Index, c Change) []int64 {
	found, _ := x.Match(c, 0, 1000)
	return found
}

func TestTriggersOfOtherTenantsAreNotFound(t *testing.T) {
	x := (&Index{}).With([]Entry{{1, "one", ruled(t, "x")}, {2, "two", ruled(t, "x")}})
	c := Change{Tenant: "two", Type: "x", Verb: Created}
	if got := all(x, c); !slices.Equal(got, []int64{2}) {
		t.Errorf("got %v", got)
	}
	if got := all(x.With([]Entry{{2, "one", ruled(t, "y")}}), c); len(got) != 0 {
		t.Errorf("got %v after the trigger moved", got)
	}
	if got := all(x, c); !slices.Equal(got, []int64{2}) {
		t.Errorf("got %v: the index changed", got)
	}
}

// TestAMatchIsBounded: of very many rules a change is told as many as it asks for, at the cost of these, and each in the
// end.
func TestAMatchIsBounded(t *testing.T) {
	const n, most = 100_000, 1000
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = Entry{int64(i + 1), "me", ruled(t, [...]string{"io.cozy.hot", "io.cozy.hot:CREATED", "io.cozy.hot:CREATED:a:f", "io.cozy.hot.*"}[i%4])}
	}
	x := (&Index{}).With(entries).With(entries[:minLate]) // in two layers
	c := Change{Tenant: "me", Type: "io.cozy.hot", Verb: Created, Doc: json.RawMessage(`{"f":"a"}`)}
	next := int64(1)
	for after, more := int64(0), true; more; {
		var got []int64
		got, more = x.Match(c, after, most)
		if len(got) != most || cap(got) > 12*most {
			t.Fatalf("%d triggers with room for %d, %d were asked for", len(got), cap(got), most)
		}
		for _, id := range got {
			if id != next {
				t.Fatalf("trigger %d, want %d", id, next)
			}
			next++
		}
		after = got[most-1]
	}
	if next != n+1 {
		t.Errorf("%d triggers in all, want %d", next-1, n)
	}
}

// many triggers, of which one in a hundred types gets all of its kind; a change finds about ten, however many there are.
func many(b testing.TB, n int) *Index {
	entries := make([]Entry, n)
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
		entries[i] = Entry{int64(i), "me", ruled(b, arguments)}
	}
	return (&Index{}).With(entries)
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
					x.Match(c, -1, 1000)
				}
			})
		}
	}
}

// BenchmarkWith takes one changed trigger in, beside as many late ones as there may be.
func BenchmarkWith(b *testing.B) {
	x := many(b, 100_000)
	changes := make([]Entry, minLate+len(x.old.held)/16-1)
	for i := range changes {
		changes[i] = Entry{int64(200_000 + i), "me", ruled(b, "io.cozy.hot:CREATED,UPDATED:value:field")}
	}
	x = x.With(changes)
	for b.Loop() {
		x.With(changes[:1])
	}
}
