package module

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"carillon/backend/core/schema"
)

// readShapes type checks shapes_test.go.
func readShapes(t *testing.T) (*dataReader, *types.Package) {
	t.Helper()
	r := &reader{source: &Source{}, fset: token.NewFileSet(), lines: map[string][]string{}}
	f, err := parser.ParseFile(r.fset, "shapes_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("shapes", r.fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := newDataReader(r)
	d.pkg = pkg
	return d, pkg
}

func TestShapesAreThoseOfEncodingJSON(t *testing.T) {
	d, pkg := readShapes(t)
	text := d.text(pkg.Scope().Lookup("shapeAll").Type(), spot{})
	if len(d.reader.faults) > 0 {
		t.Fatal(d.reader.faults)
	}
	m := schema.Module{Name: "m", Verbs: []schema.Verb{{Name: "v", Request: text, Response: schema.Unit}}, Data: d.sorted()}
	if es := schema.Validate(m, time.Now()); es != nil {
		t.Fatalf("%v\n%s", es, m.Text())
	}

	// Its fields are those that encoding/json writes, in that order, when nothing is left out.
	n, s := 7, "s"
	p := &n
	filled := shapeAll{
		ShapePointed: &ShapePointed{Far: &s, Near: "n"}, ShapeText: "t", Shared: "s", Strings: []string{"a"}, Bytes: []byte{1}, Named: shapeBytes{2},
		Map: map[string]*int{"a": p, "b": nil}, ByKey: map[ShapeText]bool{"k": true}, Any: []any{1, "x"}, Pointer: &p, QuotedTo: new(uint8),
		Float: math.Pi, Tree: shapeTree{{}, nil}, List: []shapeAll{}, Huge: math.MaxUint64, Small: math.MinInt8,
		Generic: shapeGeneric[shapeGeneric[int]]{More: []shapeGeneric[int]{{Value: 1}}},
	}
	filled.Inline.X = new(struct{ Y int })
	inner := shapeAll{}
	filled.Next = &inner
	written, err := json.Marshal(filled)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	decoder := json.NewDecoder(strings.NewReader(string(written)))
	if _, err := decoder.Token(); err != nil {
		t.Fatal(err)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name.(string))
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	i := slices.IndexFunc(m.Data, func(d schema.Data) bool { return d.Name == text })
	var read []string
	for _, f := range m.Data[i].Fields {
		read = append(read, f.Name)
	}
	if d := cmp.Diff(names, read); d != "" {
		t.Errorf("fields (-encoding/json +read):\n%s", d)
	}

	// What Go writes of any value fits.
	shapes, err := schema.Compile(m)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]shapeAll{"filled": filled, "zero": inner} {
		payload, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := shapes.Check(m.Verbs[0], payload); err != nil {
			t.Errorf("%s: %v\n%s", name, err, payload)
		}
	}
}

func TestDataTypesKeepTheirNamesApart(t *testing.T) {
	d, pkg := readShapes(t)
	for name, want := range map[string]string{"shapeAll": "shapeAll", "shapeAlias": "shapeBase", "ShapePointed": "ShapePointed"} {
		if got := d.text(pkg.Scope().Lookup(name).Type(), spot{}); got != want {
			t.Errorf("%s is called %s, want %s", name, got, want)
		}
	}
	// A type of another package may have a name that is taken, with its package before it, too.
	foreign := func(path, name string) types.Type {
		p := types.NewPackage(path, "lib")
		return types.NewNamed(types.NewTypeName(token.NoPos, p, name, nil), types.NewStruct(nil, nil), nil)
	}
	for _, tt := range []struct{ path, name, want string }{
		{"a/lib", "shapeAll", "lib.shapeAll"}, {"b/lib", "shapeAll", "lib.shapeAll2"}, {"a/lib", "shapeAll", "lib.shapeAll"}, {"a/lib", "Time", "lib.Time"}, {"a/lib", "Größe", "lib.GrE"},
	} {
		if got := d.text(foreign(tt.path, tt.name), spot{}); got != tt.want {
			t.Errorf("%s.%s is called %s, want %s", tt.path, tt.name, got, tt.want)
		}
	}
	own := types.NewNamed(types.NewTypeName(token.NoPos, pkg, "Time", nil), types.NewStruct(nil, nil), nil)
	if got := d.text(own, spot{}); got != "module.Time" {
		t.Errorf("an own Time is called %s", got)
	}
}
