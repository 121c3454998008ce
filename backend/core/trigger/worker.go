package trigger

import (
	"iter"
	"slices"
	"strings"

	"carillon/backend/core/permission"
)

// FindVerb finds the verb that a worker's name is among refs, each of which may come several times: the ref itself, the verb
// of a module that has its name, the one verb of such a module, or the one verb of all modules that has it. Names may be
// written with hyphens.
func FindVerb(name string, refs iter.Seq[string]) (ref string, ok bool) {
	if name == "" {
		return "", false
	}
	name = permission.VerbName(name)
	var own, named found
	for r := range refs {
		module, verb, _ := strings.Cut(r, ".")
		switch {
		case r == name || r == name+"."+name:
			return r, true
		case strings.Contains(name, "."):
		case module == name:
			own.add(r)
		case verb == name:
			named.add(r)
		}
	}
	if own.one() {
		return own.ref, true
	}
	return named.ref, named.one()
}

// WorkerNames are all names of the worker that a verb is: those of its verb and its module by which find finds it, also as
// they are written with hyphens, and its ref, the last.
func WorkerNames(ref string, find func(name string) (ref string, ok bool)) (names []string) {
	module, verb, _ := strings.Cut(ref, ".")
	for _, short := range slices.Compact([]string{verb, module}) {
		if is, ok := find(short); !ok || is != ref {
			continue
		}
		names = append(names, short)
		if hyphened := permission.WorkerName(short); hyphened != short {
			names = append(names, hyphened)
		}
	}
	return append(names, ref)
}

// found is a ref, and whether it is the only one.
type found struct {
	ref  string
	more bool
}

func (f *found) add(ref string) {
	f.more = f.more || f.ref != "" && f.ref != ref
	f.ref = ref
}

func (f found) one() bool { return f.ref != "" && !f.more }
