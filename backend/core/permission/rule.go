// Package permission says who may do what: rules on types of documents, sets of them, and the tokens that carry a set.
// Everything is denied that no rule allows.
//
// It is pure and must never know how a token is presented, hashed or stored, nor what a document holds beyond its id
// and its worker. A text that cannot be read as rules is a [*ScopeError]; a question never fails, its answer is no.
package permission

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"carillon/backend/core/cron"
)

// Limits of a text of rules.
const (
	MaxText  = 16 << 10 // bytes
	MaxRules = 256
)

// Malformed is how every refusal of a text of rules begins, and all of it where there is no more to say.
const Malformed = "Permission scope is empty or malformed"

// ScopeError refuses a text or an object of rules. It is a cron.ErrInvalid.
type ScopeError struct {
	Problem string // empty: a rule is missing or has no shape
}

func (e *ScopeError) Error() string {
	if e.Problem == "" {
		return Malformed
	}
	return Malformed + ": " + e.Problem
}

// Unwrap returns cron.ErrInvalid.
func (e *ScopeError) Unwrap() error { return cron.ErrInvalid }

func malformed(format string, args ...any) error {
	return &ScopeError{Problem: fmt.Sprintf(format, args...)}
}

// Rule is one rule: what may be done (Verbs) to documents of a type whose field (Selector) is one of Values.
type Rule struct {
	Type     string   `json:"type"`               // a.b.c, or a.b.c.* for a.b.c and all that is below it
	Verbs    []string `json:"verbs,omitempty"`    // none: every one
	Selector string   `json:"selector,omitempty"` // the field of Values; empty: the id
	Values   []string `json:"values,omitempty"`   // none: the whole type
}

// ReadRules reads `type[:VERBS[:values[:selector]]]` rules that stand one blank apart. The verbs are lists of the known
// ones. Nothing is guessed: a part that stands there but is empty is refused, for "none" widens a rule.
func ReadRules(text string, known []string) ([]Rule, error) {
	switch {
	case len(text) > MaxText:
		return nil, malformed("it is longer than %d bytes", MaxText)
	case !utf8.ValidString(text):
		return nil, malformed("it is not valid UTF-8")
	case strings.Count(text, " ") >= MaxRules:
		return nil, malformed("it has more than %d rules", MaxRules)
	}
	var rules []Rule
	for part := range strings.SplitSeq(text, " ") {
		rule, err := readRule(part)
		if err != nil {
			return nil, err
		}
		if err := rule.check(known); err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func readRule(text string) (Rule, error) {
	if text == "" {
		return Rule{}, &ScopeError{}
	}
	parts := strings.Split(text, ":")
	if len(parts) > 4 {
		return Rule{}, malformed("%s has more than the four parts type:VERBS:values:selector", quote(text))
	}
	for _, part := range parts[1:] {
		if part == "" {
			return Rule{}, malformed("%s has an empty part; leave it out with all that follows", quote(text))
		}
	}
	rule := Rule{Type: parts[0]}
	if len(parts) > 1 {
		rule.Verbs = strings.Split(parts[1], ",")
	}
	if len(parts) > 2 {
		rule.Values = strings.Split(parts[2], ",")
	}
	if len(parts) > 3 {
		rule.Selector = parts[3]
	}
	return rule, nil
}

// A selector is looked up in documents part by part, in all the ways in which its dots may be read.
const (
	maxSelector = 256 // bytes
	maxParts    = 8
)

// check judges a rule, and is stricter than the object form needs: what it accepts can be written as a text, too.
func (r Rule) check(known []string) error {
	if err := CheckType(r.Type); err != nil {
		return err
	}
	for _, verb := range r.Verbs {
		if !slices.Contains(known, verb) {
			return malformed("unknown verb %s of %s (%s)", quote(verb), r.Type, strings.Join(known, ", "))
		}
	}
	for _, value := range r.Values {
		if !plain(value) || strings.Contains(value, ",") {
			return malformed("bad value %s of %s: not empty, and without blanks, commas and colons", quote(value), r.Type)
		}
	}
	if r.Selector != "" && !plain(r.Selector) {
		return malformed("bad selector %s of %s", quote(r.Selector), r.Type)
	}
	if len(r.Selector) > maxSelector || strings.Count(r.Selector, ".") >= maxParts {
		return malformed("selector %s of %s is longer than %d bytes or %d parts", quote(r.Selector), r.Type, maxSelector, maxParts)
	}
	if r.Selector != "" && len(r.Values) == 0 {
		return malformed("selector %s of %s has no values", quote(r.Selector), r.Type)
	}
	return nil
}

// plain is a word that can stand in a text of rules.
func plain(s string) bool {
	bad := func(c rune) bool {
		return c == ':' || c == utf8.RuneError || unicode.IsSpace(c) || unicode.IsControl(c)
	}
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, bad)
}

// CheckType says whether a text names a type of documents: parts of lower-case letters, digits and _ between dots, and
// perhaps `.*` at the end of three parts or more.
func CheckType(text string) error {
	name, wild := strings.CutSuffix(text, ".*")
	parts := strings.Split(name, ".")
	for _, part := range parts {
		if part == "" || strings.ContainsFunc(part, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' }) {
			return malformed("%s is no type: lower-case letters, digits and _ between dots", quote(text))
		}
	}
	if wild && len(parts) < 3 {
		return malformed("%s covers too much: three parts must stand before .*", quote(text))
	}
	return nil
}

// Wildcard gives the type that the rule covers with all that is below it.
func (r Rule) Wildcard() (base string, ok bool) { return strings.CutSuffix(r.Type, ".*") }

// Covers says whether documents of this type are within the rule's.
func (r Rule) Covers(doctype string) bool {
	base, wild := r.Wildcard()
	if !wild {
		return r.Type == doctype
	}
	below, ok := strings.CutPrefix(doctype, base)
	return ok && (below == "" || below[0] == '.')
}

// String is the rule as a text.
func (r Rule) String() string {
	verbs := strings.Join(r.Verbs, ",")
	switch {
	case len(r.Values) == 0 && verbs == "":
		return r.Type
	case len(r.Values) == 0:
		return r.Type + ":" + verbs
	case verbs == "":
		verbs = All
	}
	text := r.Type + ":" + verbs + ":" + strings.Join(r.Values, ",")
	if r.Selector != "" {
		text += ":" + r.Selector
	}
	return text
}

// quote makes what was written fit to stand in an error.
func quote(text string) string {
	const most = 64
	if len(text) > most {
		return fmt.Sprintf("%.*q...", most, text)
	}
	return fmt.Sprintf("%q", text)
}
