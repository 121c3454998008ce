package schema

import (
	"fmt"
)

// Shapes are the requests of one module's verbs, compiled so that payloads can be held against them quickly. They do not
// change and may be used by many at a time.
type Shapes struct {
	requests map[string]*shape // by the type's text
}

// shape is a type with its names resolved.
type shape struct {
	builtin
	nullable bool
	elem     *shape
	record   *record
}

// record is a Data. Shapes of the same Data share it, so that types may contain themselves.
type record struct {
	name     string
	fields   []field
	byName   map[string]int
	required bits
}

type field struct {
	name  string
	shape *shape
}

// bits is a set of a record's fields.
type bits [(MaxFields + 63) / 64]uint64

func (b *bits) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b *bits) set(i int)      { b[i/64] |= 1 << (i % 64) }

// Compile resolves the types of a module. What Validate accepts compiles.
func Compile(m Module) (*Shapes, error) {
	c := compiler{records: make(map[string]*record, len(m.Data))}
	for _, d := range m.Data {
		c.records[d.Name] = &record{name: d.Name}
	}
	for _, d := range m.Data {
		if err := c.fill(c.records[d.Name], d); err != nil {
			return nil, err
		}
	}
	s := &Shapes{requests: map[string]*shape{}}
	for _, v := range m.Verbs {
		request := orUnit(v.Request)
		if request == Unit {
			continue
		}
		compiled, err := c.shape(request)
		if err != nil {
			return nil, fmt.Errorf("verb %s: %w", v.Name, err)
		}
		s.requests[request] = compiled
	}
	return s, nil
}

type compiler struct{ records map[string]*record }

func (c compiler) fill(r *record, d Data) error {
	if len(d.Fields) > MaxFields {
		return fmt.Errorf("data %s has more than %d fields", d.Name, MaxFields)
	}
	r.fields, r.byName, r.required = make([]field, len(d.Fields)), make(map[string]int, len(d.Fields)), bits{}
	for i, f := range d.Fields {
		s, err := c.shape(f.Type)
		if err != nil {
			return fmt.Errorf("data %s: field %s: %w", d.Name, f.Name, err)
		}
		r.fields[i], r.byName[f.Name] = field{f.Name, s}, i
		if !f.Optional {
			r.required.set(i)
		}
	}
	return nil
}

func (c compiler) shape(text string) (*shape, error) {
	t, ok := parseType(text)
	if !ok {
		return nil, fmt.Errorf("invalid type %q", cut(text))
	}
	return c.node(t)
}

func (c compiler) node(t *typeNode) (*shape, error) {
	s := &shape{nullable: t.nullable}
	if t.elem != nil {
		elem, err := c.node(t.elem)
		s.kind, s.elem = t.kind, elem
		return s, err
	}
	if b, ok := builtins[t.name]; ok {
		s.builtin = b
		return s, nil
	}
	if s.record = c.records[t.name]; s.record == nil {
		return nil, fmt.Errorf("unknown type %s", t.name)
	}
	s.kind = kindRecord
	return s, nil
}

// want is how a fault names what was expected.
func (s *shape) want() string {
	switch s.kind {
	case kindString:
		return "string"
	case kindBool:
		return "boolean"
	case kindInt, kindUInt:
		return "integer"
	case kindFloat:
		return "number"
	case kindBytes:
		return "base64 string"
	case kindTime:
		return "RFC 3339 time"
	case kindList:
		return "array"
	case kindMap:
		return "object"
	case kindRecord:
		return "object (" + s.record.name + ")"
	}
	return "any JSON"
}
