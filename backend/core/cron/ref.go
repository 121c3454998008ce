package cron

import "strings"

// MaxNameBytes bounds the name of a module or a verb, MaxRefBytes a ref: two names and the dot between them.
const (
	MaxNameBytes = 128
	MaxRefBytes  = 2*MaxNameBytes + 1
)

// ValidName reports whether s can be the name of a module or a verb: a lower-case letter, then letters and digits. The
// same rule stands in schema.proto and in carillon.enqueue(); length is the caller's to bound.
func ValidName(s string) bool {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// ParseRef reads a ref, module.verb. What is none can be the name of nothing that is deployed.
func ParseRef(s string) (module, verb string, ok bool) {
	module, verb, _ = strings.Cut(s, ".")
	if !ValidName(module) || !ValidName(verb) || max(len(module), len(verb)) > MaxNameBytes {
		return "", "", false
	}
	return module, verb, true
}
