package trigger

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
)

// Index holds the rules of many @event triggers and finds those that a change matches, without looking at the others:
// triggers stand under the tenant, the type and the verb of their rules, and there under the ids or the values of fields
// that they wait for. What a match costs grows with the parts of the type's name, the selectors in use on it and the
// triggers asked for, not with those that wait behind them.
//
// An Index never changes, so that any number of goroutines match by it without a lock; With makes another one. Most
// triggers stand in a large layer that many indexes share, what changed since in a small one that is made anew with each
// change. The zero Index is empty and ready.
type Index struct {
	old    layer
	late   layer
	hidden map[int64]bool // of old: changed since, or gone
}

// Entry is a trigger as it is put into an index.
type Entry struct {
	ID     int64
	Tenant string
	Rules  []Rule // the index's from then on; none: the trigger is gone
}

// minLate is how many changes are always worth a layer of their own: more than that and a sixteenth of all are folded in.
const minLate = 256

// Len is the number of triggers.
func (x *Index) Len() int { return len(x.old.held) - len(x.hidden) + len(x.late.held) }

// With is the index after some changes, of which the last one of a trigger counts.
func (x *Index) With(changes []Entry) *Index {
	if len(changes) == 0 {
		return x
	}
	late, hidden := maps.Clone(x.late.held), maps.Clone(x.hidden)
	if late == nil {
		late = map[int64]held{}
	}
	if hidden == nil {
		hidden = map[int64]bool{}
	}
	for _, c := range changes {
		if _, ok := x.old.held[c.ID]; ok {
			hidden[c.ID] = true
		}
		if delete(late, c.ID); len(c.Rules) > 0 {
			late[c.ID] = held{c.Tenant, c.Rules}
		}
	}
	if len(late)+len(hidden) <= minLate+len(x.old.held)/16 {
		return &Index{old: x.old, late: layerOf(late), hidden: hidden}
	}
	all := make(map[int64]held, len(x.old.held)+len(late))
	for id, h := range x.old.held {
		if !hidden[id] {
			all[id] = h
		}
	}
	maps.Copy(all, late)
	return &Index{old: layerOf(all)}
}

// layer holds triggers, and where they stand. It does not change once it is made.
type layer struct {
	held map[int64]held
	at   map[place]*shelf
}

// layerOf puts triggers in by their ids, so that each list grows at its end.
func layerOf(all map[int64]held) layer {
	l := layer{held: all, at: map[place]*shelf{}}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		for p, rule := range all[id].places() {
			s := l.at[p]
			if s == nil {
				s = &shelf{}
				l.at[p] = s
			}
			s.put(rule, id)
		}
	}
	return l
}

// held is a trigger as it was put in.
type held struct {
	tenant string
	rules  []Rule
}

// place is where a rule stands: once for each of its verbs.
type place struct {
	tenant, doctype string
	below           bool // all that is below the type, too
	verb            Verb
}

// shelf holds the triggers of one place. Lists are in ascending order, without repetition.
type shelf struct {
	any    []int64            // whatever the document is
	named  map[string][]int64 // by id, or directory
	fields map[string]*field  // by selector
}

type field struct {
	values  map[string][]int64
	changed []int64
}

// places yields where the rules stand.
func (h held) places() iter.Seq2[place, Rule] {
	return func(yield func(place, Rule) bool) {
		for _, rule := range h.rules {
			p := place{tenant: h.tenant, doctype: rule.Type}
			if base, ok := rule.Wildcard(); ok {
				p.doctype, p.below = base, true
			}
			verbs := rule.Verbs
			if len(verbs) == 0 {
				verbs = eventVerbs
			}
			for _, verb := range verbs {
				p.verb = Verb(verb)
				if !yield(p, rule) {
					return
				}
			}
		}
	}
}

func (s *shelf) put(r Rule, id int64) {
	switch {
	case len(r.Values) == 0:
		s.any = with(s.any, id)
	case r.Selector == "":
		if s.named == nil {
			s.named = map[string][]int64{}
		}
		for _, value := range r.Values {
			s.named[value] = with(s.named[value], id)
		}
	default:
		if s.fields == nil {
			s.fields = map[string]*field{}
		}
		f := s.fields[r.Selector]
		if f == nil {
			f = &field{values: map[string][]int64{}}
			s.fields[r.Selector] = f
		}
		for _, value := range r.Values {
			if value == changed {
				f.changed = with(f.changed, id)
			} else {
				f.values[value] = with(f.values[value], id)
			}
		}
	}
}

// with adds the greatest id so far, once.
func with(list []int64, id int64) []int64 {
	if len(list) > 0 && list[len(list)-1] == id {
		return list
	}
	return append(list, id)
}

// Match gives the first triggers that a change matches, in ascending order, each once: at most so many of those with ids
// after one. more: others follow the last of them. The list is the caller's.
func (x *Index) Match(c Change, after int64, most int) (found []int64, more bool) {
	if !matchable(c.Verb) || x.Len() == 0 || most <= 0 {
		return nil, false
	}
	v, f := viewOf(c), finding{after: after, keep: most + 1, bound: math.MaxInt64}
	x.late.match(v, &f)
	f.hidden = x.hidden
	x.old.match(v, &f)
	f.prune()
	if more = len(f.ids) > most; more {
		f.ids = f.ids[:most]
	}
	return f.ids, more
}

// finding keeps the least ids of what it is given, and never many more than it was asked for.
type finding struct {
	after  int64
	keep   int            // so many are asked for
	bound  int64          // what is greater is not among them
	hidden map[int64]bool // are passed over
	ids    []int64
}

func (f *finding) add(list []int64) {
	at, _ := slices.BinarySearch(list, f.after+1)
	left := f.keep
	for _, id := range list[at:] {
		if left == 0 || id > f.bound {
			break
		}
		if !f.hidden[id] {
			f.ids = append(f.ids, id)
			left--
		}
	}
	if len(f.ids) > 4*f.keep {
		f.prune()
	}
}

func (f *finding) prune() {
	slices.Sort(f.ids)
	f.ids = slices.Compact(f.ids)
	if len(f.ids) >= f.keep {
		f.ids = f.ids[:f.keep]
		f.bound = f.ids[f.keep-1]
	}
}

func (l layer) match(v *view, f *finding) {
	if len(l.at) == 0 {
		return
	}
	p := place{tenant: v.Tenant, doctype: v.Type, verb: v.Verb}
	l.at[p].match(v, f)
	for p.below = true; ; {
		l.at[p].match(v, f)
		dot := strings.LastIndexByte(p.doctype, '.')
		if dot < 0 {
			return
		}
		p.doctype = p.doctype[:dot]
	}
}

func (s *shelf) match(v *view, found *finding) {
	if s == nil {
		return
	}
	found.add(s.any)
	if len(s.named) > 0 {
		if v.ID != "" {
			found.add(s.named[v.ID])
		}
		if v.Type == Files {
			for _, place := range v.places() {
				found.add(s.named[place])
			}
		}
	}
	for selector, f := range s.fields {
		for _, value := range [...]any{v.doc.field(selector), v.old.field(selector)} {
			list, n := texts(value)
			for _, text := range list[:n] {
				found.add(f.values[text])
			}
		}
		if len(f.changed) > 0 && v.changed(selector) {
			found.add(f.changed)
		}
	}
}
