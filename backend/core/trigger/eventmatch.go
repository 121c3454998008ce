package trigger

import (
	"slices"
	"strings"
)

// Matches says whether one of the rules matches a change: its type, its verb, and one of its values. The index gives the
// same answer for many triggers at once.
func Matches(rules []Rule, c Change) bool {
	v := viewOf(c)
	return slices.ContainsFunc(rules, func(r Rule) bool { return v.matches(r) })
}

// view is a change that is being matched; its documents are read once, and only if a rule asks for a field. It is of
// one goroutine.
type view struct {
	Change
	doc, old document
}

func viewOf(c Change) *view {
	v := &view{Change: c, doc: document{raw: c.Doc}, old: document{raw: c.Old}}
	if v.ID == "" && len(c.Doc) > 0 {
		v.ID, _ = v.doc.field("_id").(string)
	}
	if v.ID == "" && len(c.Old) > 0 {
		v.ID, _ = v.old.field("_id").(string)
	}
	return v
}

func (v *view) matches(r Rule) bool {
	switch {
	case !matchable(v.Verb), !r.Covers(v.Type), len(r.Verbs) > 0 && !slices.Contains(r.Verbs, string(v.Verb)):
		return false
	case len(r.Values) == 0:
		return true
	case r.Selector == "":
		return slices.ContainsFunc(r.Values, v.is)
	}
	return slices.ContainsFunc(r.Values, func(value string) bool {
		if value == changed {
			return v.changed(r.Selector)
		}
		return isText(v.doc.field(r.Selector), value) || isText(v.old.field(r.Selector), value)
	})
}

// matchable says that a rule may match this verb at all.
func matchable(verb Verb) bool { return verb == Created || verb == Updated || verb == Deleted }

// is says that a value without a selector names the document: by its id, or a file by its path, or as a directory (by id
// or path) that the file lies or lay in.
func (v *view) is(value string) bool {
	if value == v.ID && value != "" {
		return true
	}
	return v.Type == Files && slices.Contains(v.places(), value)
}

// places are the paths of a file and of the directories that it lies or lay in, and their ids where the change tells them.
func (v *view) places() (places []string) {
	for _, path := range []string{v.Path, v.OldPath} {
		for i := len(path) - 1; i > 0; i-- {
			if path[i] == '/' {
				places = append(places, path[:i])
			}
		}
		if len(path) > 1 && path[0] == '/' {
			places = append(places, path, "/")
		}
	}
	for _, d := range v.Dirs {
		if inside(v.Path, d.Path) || inside(v.OldPath, d.Path) {
			places = append(places, d.ID)
		}
	}
	return places
}

// inside says that a path lies below a directory, at any depth. The directory itself does not.
func inside(path, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	below, ok := strings.CutPrefix(path, dir)
	return ok && len(below) > 1 && below[0] == '/'
}

// changed says that a field is not what it was. A new and a deleted document have changed; of an update whose old
// document is not known nobody can say it.
func (v *view) changed(selector string) bool {
	if v.Verb != Updated {
		return true
	}
	return v.old.known() && !sameJSON(v.doc.field(selector), v.old.field(selector))
}
