package permission

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// The verbs of rules are the methods of HTTP.
const (
	Get    = "GET"
	Post   = "POST"
	Put    = "PUT"
	Patch  = "PATCH"
	Delete = "DELETE"
	All    = "ALL" // each of them
)

// Verbs lists what a rule may name beside All.
var Verbs = []string{Get, Post, Put, Patch, Delete}

var known = append(slices.Clone(Verbs), All)

// Everything is the text of the set that allows everything. Only [ParseGrant] reads it.
const Everything = "*"

// Set is what a token may do. The zero Set allows nothing. It is not changed once it was made, so any number of
// goroutines may ask it.
type Set struct {
	everything bool
	rules      []Rule
}

// Full allows everything: the operator's.
func Full() Set { return Set{everything: true} }

// Parse reads a scope text: rules by single blanks. The error is a *ScopeError.
func Parse(text string) (Set, error) {
	rules, err := ReadRules(text, known)
	if err != nil {
		return Set{}, err
	}
	return setOf(rules), nil
}

// ParseGrant reads what an operator gives to a token: a scope text, or Everything. Set.String is such a text.
func ParseGrant(text string) (Set, error) {
	if text == Everything {
		return Full(), nil
	}
	return Parse(text)
}

// ParseObject reads the object form {type, verbs, selector, values}: one rule, a list of them, or an object that names
// them (perhaps below "permissions"), as applications declare it. A field that is not known is refused, for a
// misspelled "values" would widen the rule. The error is a *ScopeError.
func ParseObject(data []byte) (Set, error) {
	if len(data) > MaxText {
		return Set{}, malformed("it is longer than %d bytes", MaxText)
	}
	objects, err := splitObjects(data)
	if err != nil {
		return Set{}, err
	}
	if len(objects) == 0 {
		return Set{}, &ScopeError{}
	}
	if len(objects) > MaxRules {
		return Set{}, malformed("it has more than %d rules", MaxRules)
	}
	var rules []Rule
	for _, object := range objects {
		var r struct {
			Rule
			Description any `json:"description"`
		}
		if err := decode(object, &r); err != nil {
			return Set{}, malformed("%v", err)
		}
		if err := r.check(known); err != nil {
			return Set{}, err
		}
		rules = append(rules, r.Rule)
	}
	return setOf(rules), nil
}

// splitObjects finds the objects that are rules.
func splitObjects(data []byte) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err == nil {
		return list, nil
	}
	var named map[string]json.RawMessage
	if err := json.Unmarshal(data, &named); err != nil {
		return nil, malformed("it is neither an object nor a list of objects")
	}
	if kind, ok := named["type"]; ok && !bytes.HasPrefix(kind, []byte("{")) {
		return []json.RawMessage{data}, nil
	}
	if inner, ok := named["permissions"]; ok && len(named) == 1 {
		named = nil
		if err := json.Unmarshal(inner, &named); err != nil {
			return splitList(inner)
		}
	}
	names := make([]string, 0, len(named))
	for name := range named {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list = append(list, named[name])
	}
	return list, nil
}

func splitList(data []byte) (list []json.RawMessage, err error) {
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, malformed("permissions are neither an object nor a list")
	}
	return list, nil
}

func decode(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return malformed("more follows the object")
	}
	return nil
}

// setOf keeps All as "every verb", so that questions need not know it.
func setOf(rules []Rule) Set {
	for i := range rules {
		if slices.Contains(rules[i].Verbs, All) {
			rules[i].Verbs = nil
		}
	}
	return Set{rules: rules}
}

// String is the set as ParseGrant reads it; empty for the set that allows nothing.
func (s Set) String() string {
	if s.everything {
		return Everything
	}
	texts := make([]string, len(s.rules))
	for i, r := range s.rules {
		texts[i] = r.String()
	}
	return strings.Join(texts, " ")
}

// Rules gives a copy of the rules.
func (s Set) Rules() []Rule { return slices.Clone(s.rules) }

// Everything says that nothing is denied.
func (s Set) Everything() bool { return s.everything }

// Document is what a rule can look at of one document.
type Document struct {
	ID     string
	Worker string // of a job or a trigger
}

// workerSelector is the only field of jobs and triggers that a rule may select by.
const workerSelector = "worker"

// Allows says whether the set allows a verb on one document of a type: by a rule on the whole type, on its id or on
// its worker. An unknown selector selects nothing.
func (s Set) Allows(doctype, verb string, on Document) bool {
	return s.any(doctype, verb, func(r Rule) bool {
		switch {
		case len(r.Values) == 0:
			return true
		case r.Selector == "":
			return on.ID != "" && slices.Contains(r.Values, on.ID)
		case r.Selector == workerSelector:
			return on.Worker != "" && slices.Contains(r.Values, on.Worker)
		}
		return false
	})
}

// AllowsType says whether the set allows a verb on every document of a type.
func (s Set) AllowsType(doctype, verb string) bool {
	return s.any(doctype, verb, func(r Rule) bool { return len(r.Values) == 0 })
}

// AllowsWorker says whether a rule that is restricted to this worker allows the verb. A rule on the whole type is not
// enough, and neither is Everything.
func (s Set) AllowsWorker(doctype, verb, worker string) bool {
	return worker != "" && !s.everything && s.any(doctype, verb, func(r Rule) bool {
		return r.Selector == workerSelector && slices.Contains(r.Values, worker)
	})
}

func (s Set) any(doctype, verb string, holds func(Rule) bool) bool {
	if s.everything {
		return true
	}
	if verb == "HEAD" {
		verb = Get
	}
	return slices.ContainsFunc(s.rules, func(r Rule) bool {
		return (len(r.Verbs) == 0 && slices.Contains(Verbs, verb) || slices.Contains(r.Verbs, verb)) && r.Covers(doctype) && holds(r)
	})
}
