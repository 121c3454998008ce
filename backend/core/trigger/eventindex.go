package trigger

import (
	"iter"
	"slices"
	"strings"
)

// Index holds the rules of many @event triggers and finds those that a change matches, without looking at the others:
// triggers stand under the tenant, the type and the verb of their rules, and there under the ids or the values of fields
// that they wait for. What a match costs grows with the parts of the type's name, the selectors in use on it and the
// triggers found.
//
// Match may be called by any number of goroutines while nobody calls Set or Remove: its holder guards it with a
// sync.RWMutex. The zero Index is empty and ready.
type Index struct {
	held map[int64]held
	at   map[place]*shelf
}

// held is a trigger as it was put in, so that it can be taken out again.
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

// Len is the number of triggers.
func (x *Index) Len() int { return len(x.held) }

// Set puts a trigger in, or gives it other rules. The rules are the index's from then on.
func (x *Index) Set(id int64, tenant string, rules []Rule) {
	x.Remove(id)
	if x.held == nil {
		x.held, x.at = map[int64]held{}, map[place]*shelf{}
	}
	h := held{tenant, rules}
	x.held[id] = h
	for p, rule := range h.places() {
		s := x.at[p]
		if s == nil {
			s = &shelf{}
			x.at[p] = s
		}
		s.put(rule, id)
	}
}

// Remove takes a trigger out; one that is not there is none the less gone.
func (x *Index) Remove(id int64) {
	h, ok := x.held[id]
	if !ok {
		return
	}
	delete(x.held, id)
	for p, rule := range h.places() {
		s := x.at[p]
		if s == nil {
			continue // a rule before this one took the last trigger out
		}
		if s.take(rule, id); s.empty() {
			delete(x.at, p)
		}
	}
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

func (s *shelf) take(r Rule, id int64) {
	switch f := s.fields[r.Selector]; {
	case len(r.Values) == 0:
		s.any = without(s.any, id)
	case r.Selector == "":
		for _, value := range r.Values {
			takeOf(s.named, value, id)
		}
	case f != nil:
		for _, value := range r.Values {
			takeOf(f.values, value, id)
		}
		if slices.Contains(r.Values, changed) {
			f.changed = without(f.changed, id)
		}
		if len(f.values) == 0 && len(f.changed) == 0 {
			delete(s.fields, r.Selector)
		}
	}
}

func takeOf(lists map[string][]int64, value string, id int64) {
	if list := without(lists[value], id); len(list) > 0 {
		lists[value] = list
	} else {
		delete(lists, value)
	}
}

func (s *shelf) empty() bool { return len(s.any) == 0 && len(s.named) == 0 && len(s.fields) == 0 }

// with keeps the order. Triggers are put in mostly in the order of their ids, at the end.
func with(list []int64, id int64) []int64 {
	if len(list) == 0 || list[len(list)-1] < id {
		return append(list, id)
	}
	at, found := slices.BinarySearch(list, id)
	if found {
		return list
	}
	return slices.Insert(list, at, id)
}

func without(list []int64, id int64) []int64 {
	if at, found := slices.BinarySearch(list, id); found {
		return slices.Delete(list, at, at+1)
	}
	return list
}

// Match gives the triggers that a change matches, each once, in ascending order. The list is the caller's.
func (x *Index) Match(c Change) []int64 {
	if !matchable(c.Verb) || len(x.at) == 0 {
		return nil
	}
	v, p := viewOf(c), place{tenant: c.Tenant, doctype: c.Type, verb: c.Verb}
	var found []int64
	found = x.at[p].match(v, found)
	for p.below = true; ; {
		found = x.at[p].match(v, found)
		dot := strings.LastIndexByte(p.doctype, '.')
		if dot < 0 {
			break
		}
		p.doctype = p.doctype[:dot]
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (s *shelf) match(v *view, found []int64) []int64 {
	if s == nil {
		return found
	}
	found = append(found, s.any...)
	if len(s.named) > 0 {
		if v.ID != "" {
			found = append(found, s.named[v.ID]...)
		}
		if v.Type == Files {
			for _, place := range v.places() {
				found = append(found, s.named[place]...)
			}
		}
	}
	for selector, f := range s.fields {
		for _, value := range [...]any{v.doc.field(selector), v.old.field(selector)} {
			list, n := texts(value)
			for _, text := range list[:n] {
				found = append(found, f.values[text]...)
			}
		}
		if len(f.changed) > 0 && v.changed(selector) {
			found = append(found, f.changed...)
		}
	}
	return found
}
