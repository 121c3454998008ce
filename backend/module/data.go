package module

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"carillon/backend/core/schema"
)

// dataReader turns the types of requests and responses into those of the schema, as encoding/json writes and reads them.
// Only Read's goroutine touches it.
type dataReader struct {
	reader *reader
	pkg    *types.Package
	known  map[string]string // the schema's name of a struct, by the whole name of the Go type
	taken  map[string]bool   // names of the schema that are in use
	data   []schema.Data
	inside []types.Type // named types that are being read and become no Data: one that contains itself has no end
}

func newDataReader(r *reader) *dataReader {
	return &dataReader{reader: r, known: map[string]string{}, taken: map[string]bool{}}
}

// spot is where a fault of a type is shown, and how one gets to the type from there.
type spot struct {
	span schema.Span
	path string // Mail.Attachments
	name string // of an anonymous struct here
}

// text is the schema's text of a type. What cannot travel is reported, and is Any.
func (d *dataReader) text(t types.Type, at spot) string {
	t = types.Unalias(t)
	if named, ok := t.(*types.Named); ok {
		return d.named(named, at)
	}
	switch t := t.(type) {
	case *types.Basic:
		return d.basic(t, at)
	case *types.Pointer:
		return orNull(d.text(t.Elem(), at))
	case *types.Slice:
		if isByte(t.Elem()) {
			return orNull(schema.Bytes)
		}
		return orNull("[" + d.text(t.Elem(), at) + "]") // a nil slice is written as null
	case *types.Array:
		return "[" + d.text(t.Elem(), at) + "]"
	case *types.Map:
		key := types.Unalias(t.Key())
		if b, ok := key.Underlying().(*types.Basic); (!ok || b.Info()&types.IsString == 0) && !hasMethod(key, "UnmarshalText") {
			d.refuse(at, "write map[string]"+d.short(t.Elem()), "a map with keys of type %s", d.short(t.Key()))
		}
		return orNull("{String: " + d.text(t.Elem(), at) + "}")
	case *types.Struct:
		return d.record(t, types.TypeString(t, nil), at.name, at)
	case *types.Interface:
		if t.NumMethods() > 0 || !t.IsMethodSet() {
			d.refuse(at, "write a struct, or any for whatever JSON there is", "an interface with methods")
		}
		return schema.Any
	case *types.Chan:
		d.refuse(at, `leave it out with the tag json:"-"`, "a channel")
	case *types.Signature:
		d.refuse(at, `leave it out with the tag json:"-"`, "a function")
	default:
		d.refuse(at, "", "a %s", d.short(t))
	}
	return schema.Any
}

// orNull makes a type one that may be null.
func orNull(text string) string {
	if text == schema.Any || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "?"
}

// sizes are Go's numbers. Those without a size have 64 bits on every machine that runners are built for.
var sizes = map[types.BasicKind]string{
	types.Bool: schema.Bool, types.String: schema.String,
	types.Int: schema.Int, types.Int8: "Int8", types.Int16: "Int16", types.Int32: "Int32", types.Int64: schema.Int,
	types.Uint: schema.UInt, types.Uint8: "UInt8", types.Uint16: "UInt16", types.Uint32: "UInt32", types.Uint64: schema.UInt,
	types.Uintptr: schema.UInt, types.Float32: "Float32", types.Float64: schema.Float,
}

func (d *dataReader) basic(t *types.Basic, at spot) string {
	if text, ok := sizes[t.Kind()]; ok {
		return text
	}
	if t.Info()&types.IsComplex != 0 {
		d.refuse(at, "write its parts as two floats", "a complex number")
	} else {
		d.refuse(at, "", "a %s", t.Name())
	}
	return schema.Any
}

// wellKnown are types that encoding/json, or everybody, treats in their own way.
var wellKnown = map[string]string{
	"time.Time":                schema.Time,
	"encoding/json.RawMessage": schema.Any,
	"encoding/json.Number":     schema.Float,
}

func (d *dataReader) named(t *types.Named, at spot) string {
	full := types.TypeString(t, nil)
	if text, ok := wellKnown[full]; ok {
		return text
	}
	_, isInterface := t.Underlying().(*types.Interface)
	switch {
	case isInterface:
	case hasMethod(t, "UnmarshalJSON"), hasMethod(t, "MarshalJSON"):
		return schema.Any
	case hasMethod(t, "UnmarshalText"), hasMethod(t, "MarshalText"):
		return schema.String
	}
	if s, ok := t.Underlying().(*types.Struct); ok {
		return d.record(s, full, d.name(t), at)
	}
	for _, outer := range d.inside {
		if types.Identical(outer, t) {
			return schema.Any // type Tree []Tree
		}
	}
	d.inside = append(d.inside, t)
	defer func() { d.inside = d.inside[:len(d.inside)-1] }()
	return d.text(t.Underlying(), at)
}

// hasMethod says that a value of the type, or a pointer to one, has one of the methods that encoding/json asks for.
func hasMethod(t types.Type, name string) bool {
	m, _, _ := types.LookupFieldOrMethod(t, true, nil, name)
	f, ok := m.(*types.Func)
	if !ok {
		return false
	}
	s := f.Signature()
	in, out := s.Params(), s.Results()
	if strings.HasPrefix(name, "Unmarshal") {
		return in.Len() == 1 && isBytes(in.At(0).Type()) && out.Len() == 1
	}
	return in.Len() == 0 && out.Len() == 2 && isBytes(out.At(0).Type())
}

func isBytes(t types.Type) bool {
	s, ok := t.Underlying().(*types.Slice)
	return ok && isByte(s.Elem())
}

// isByte says that a slice of the type is written in base64.
func isByte(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Kind() == types.Uint8 && !hasMethod(t, "MarshalJSON") && !hasMethod(t, "MarshalText")
}

// name is what a Go type is called in the schema: its own name in this package, with the package before it elsewhere.
func (d *dataReader) name(t *types.Named) string {
	obj := t.Obj()
	name := plainName(obj.Name())
	for arg := range t.TypeArgs().Types() {
		name += plainName(types.TypeString(arg, func(p *types.Package) string { return "" }))
	}
	if obj.Pkg() != nil && obj.Pkg() != d.pkg {
		name = plainName(obj.Pkg().Name()) + "." + name
	}
	return name
}

// plainName keeps of a name what the schema's names are made of.
func plainName(s string) string {
	var b strings.Builder
	upper := false
	for _, c := range s {
		switch {
		case c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z':
			if upper && 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			b.WriteRune(c)
			upper = false
		default:
			upper = b.Len() > 0
		}
	}
	s = strings.TrimLeft(b.String(), "_0123456789")
	if s == "" {
		return "T"
	}
	return s
}

// record adds a struct to the data types, once, and returns its name.
func (d *dataReader) record(s *types.Struct, full, name string, at spot) string {
	if known, ok := d.known[full]; ok {
		return known
	}
	if schema.Builtin(name) {
		name = plainName(d.pkg.Name()) + "." + name
	}
	unique := name
	for n := 2; d.taken[unique]; n++ {
		unique = name + strconv.Itoa(n)
	}
	d.known[full], d.taken[unique] = unique, true
	i := len(d.data)
	d.data = append(d.data, schema.Data{Name: unique})
	if i >= schema.MaxData {
		return unique // Validate says so
	}
	fields := make([]schema.Field, 0, s.NumFields())
	for _, f := range jsonFields(s) {
		inner := at
		inner.path, inner.name = strings.TrimPrefix(at.path+"."+f.path, "."), plainName(unique)+exportedName(plainName(f.field.Name()))
		if f.field.Pkg() == d.pkg && f.field.Pos() != token.NoPos {
			inner.span = d.reader.span(f.field.Pos(), len(f.field.Name()))
			inner.path = ""
		}
		text := schema.String // a number in quotes
		if !f.quoted {
			text = d.text(f.field.Type(), inner)
		} else if _, ok := types.Unalias(f.field.Type()).(*types.Pointer); ok {
			text = orNull(text)
		}
		fields = append(fields, schema.Field{Name: f.name, Type: text, Optional: f.optional})
	}
	d.data[i].Fields = fields
	return unique
}

// sorted are the data types in the order of their names.
func (d *dataReader) sorted() []schema.Data {
	slices.SortFunc(d.data, func(a, b schema.Data) int { return strings.Compare(a.Name, b.Name) })
	return d.data
}

// short prints a type as the author of the module writes it.
func (d *dataReader) short(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == d.pkg {
			return ""
		}
		return p.Name()
	})
}

func (d *dataReader) refuse(at spot, hint, format string, args ...any) {
	message := fmt.Sprintf(format, args...) + " can not travel as JSON"
	if at.path != "" {
		message = at.path + ": " + message
	}
	d.reader.faults = append(d.reader.faults, &schema.Error{Span: at.span, Hint: hint, Message: message})
}
