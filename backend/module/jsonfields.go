package module

import (
	"cmp"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// jsonField is a field of a struct as encoding/json sees it.
type jsonField struct {
	field    *types.Var
	name     string
	path     string // of Go names, through embedded structs
	optional bool
	quoted   bool // the option string
	tagged   bool
	index    []int // its place in the struct
}

// jsonFields lists what encoding/json writes and reads of a struct: exported fields, those of embedded structs as if they
// were its own, and of several with one name the one that Go's rules choose, or none.
func jsonFields(s *types.Struct) []jsonField {
	type level struct {
		s        *types.Struct
		path     string
		optional bool
		index    []int
	}
	var all []jsonField
	visited := map[*types.Struct]bool{}
	for current := []level{{s: s}}; len(current) > 0; {
		var next []level
		for _, l := range current {
			if visited[l.s] {
				continue
			}
			visited[l.s] = true
			for i := range l.s.NumFields() {
				f := l.s.Field(i)
				tag, has := reflect.StructTag(l.s.Tag(i)).Lookup("json")
				if tag == "-" && has {
					continue
				}
				name, options, _ := strings.Cut(tag, ",")
				if !validTag(name) {
					name = ""
				}
				t := types.Unalias(f.Type())
				pointer, isPointer := t.(*types.Pointer)
				if f.Anonymous() && isPointer {
					t = types.Unalias(pointer.Elem())
				}
				embedded, isStruct := t.Underlying().(*types.Struct)
				if !f.Exported() && (!f.Anonymous() || !isStruct) {
					continue
				}
				path := strings.TrimPrefix(l.path+"."+f.Name(), ".")
				index := append(slices.Clone(l.index), i)
				if f.Anonymous() && isStruct && name == "" {
					next = append(next, level{embedded, path, l.optional || isPointer, index})
					continue
				}
				if !f.Exported() {
					continue
				}
				_, nilable := types.Unalias(f.Type()).(*types.Pointer)
				all = append(all, jsonField{
					field: f, name: cmp.Or(name, f.Name()), path: path, tagged: name != "", index: index,
					optional: l.optional || nilable || hasOption(options, "omitempty") || hasOption(options, "omitzero"),
					quoted:   hasOption(options, "string") && quotable(f.Type()),
				})
			}
		}
		current = next
	}
	return dominant(all)
}

// dominant keeps one field of each name: the least deep, and among those the one with a tag. Where that leaves several,
// encoding/json takes none.
func dominant(all []jsonField) []jsonField {
	slices.SortStableFunc(all, func(a, b jsonField) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(len(a.index), len(b.index)), compareTagged(a, b))
	})
	var kept []jsonField
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].name == all[0].name {
			n++
		}
		if n == 1 || len(all[0].index) != len(all[1].index) || all[0].tagged != all[1].tagged {
			kept = append(kept, all[0])
		}
		all = all[n:]
	}
	slices.SortFunc(kept, func(a, b jsonField) int { return slices.Compare(a.index, b.index) })
	return kept
}

func compareTagged(a, b jsonField) int {
	switch {
	case a.tagged == b.tagged:
		return 0
	case a.tagged:
		return -1
	}
	return 1
}

func hasOption(options, name string) bool {
	return slices.Contains(strings.Split(options, ","), name)
}

// quotable says that the option string applies to the type.
func quotable(t types.Type) bool {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsNumeric|types.IsString|types.IsBoolean) != 0 && b.Info()&types.IsComplex == 0
}

// validTag says that encoding/json takes the name of a tag.
func validTag(name string) bool {
	for _, c := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return name != ""
}
