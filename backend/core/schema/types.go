package schema

import (
	"math"
	"slices"
	"strings"
)

// The built-in types. Int and Float have 64 bits; the others with a number in their name have as many bits as it says.
// Bytes are base64 in JSON, a Time is an RFC 3339 string, Any is any JSON.
const (
	String = "String"
	Bool   = "Bool"
	Int    = "Int"
	UInt   = "UInt"
	Float  = "Float"
	Bytes  = "Bytes"
	Time   = "Time"
	Any    = "Any"
)

// kind is what a value of a type is in JSON.
type kind int

const (
	kindAny kind = iota
	kindString
	kindBool
	kindInt  // min to max
	kindUInt // 0 to max
	kindFloat
	kindBytes
	kindTime
	kindList   // of elem
	kindMap    // from text to elem
	kindRecord // a Data
)

// builtin is a type that needs no declaration. Unit is none of them: it is the absence of a value.
type builtin struct {
	kind kind
	min  int64
	max  uint64
	bits int // of a Float
}

var builtins = map[string]builtin{
	Any:       {kind: kindAny},
	String:    {kind: kindString},
	Bool:      {kind: kindBool},
	Bytes:     {kind: kindBytes},
	Time:      {kind: kindTime},
	Float:     {kind: kindFloat, bits: 64},
	"Float32": {kind: kindFloat, bits: 32},
	Int:       {kind: kindInt, min: math.MinInt64, max: math.MaxInt64},
	"Int8":    {kind: kindInt, min: math.MinInt8, max: math.MaxInt8},
	"Int16":   {kind: kindInt, min: math.MinInt16, max: math.MaxInt16},
	"Int32":   {kind: kindInt, min: math.MinInt32, max: math.MaxInt32},
	UInt:      {kind: kindUInt, max: math.MaxUint64},
	"UInt8":   {kind: kindUInt, max: math.MaxUint8},
	"UInt16":  {kind: kindUInt, max: math.MaxUint16},
	"UInt32":  {kind: kindUInt, max: math.MaxUint32},
}

// Builtin says that a type of this name needs no declaration, and that no Data can have it.
func Builtin(name string) bool {
	_, ok := builtins[name]
	return ok || name == Unit
}

// typeNode is a type as its text says it.
type typeNode struct {
	kind     kind // kindRecord where it names something, kindList or kindMap
	name     string
	elem     *typeNode
	nullable bool
}

// parseType reads String, [T], {String: T}, T? and names. It says whether the text is a type; whether its names are
// declared is for Validate to say.
func parseType(text string) (*typeNode, bool) {
	if len(text) > MaxTypeBytes {
		return nil, false
	}
	p := typeParser{rest: text}
	t := p.read(0)
	p.blanks()
	return t, t != nil && p.rest == ""
}

type typeParser struct{ rest string }

func (p *typeParser) blanks() { p.rest = strings.TrimLeft(p.rest, " \t") }

func (p *typeParser) take(mark string) bool {
	p.blanks()
	rest, ok := strings.CutPrefix(p.rest, mark)
	p.rest = rest
	return ok
}

// read is nil where there is no type.
func (p *typeParser) read(depth int) *typeNode {
	if depth > maxTypeDepth {
		return nil
	}
	t := &typeNode{kind: kindRecord}
	switch {
	case p.take("["):
		t.kind = kindList
		if t.elem = p.read(depth + 1); t.elem == nil || !p.take("]") {
			return nil
		}
	case p.take("{"):
		t.kind = kindMap
		if !p.take(String) || !p.take(":") {
			return nil
		}
		if t.elem = p.read(depth + 1); t.elem == nil || !p.take("}") {
			return nil
		}
	default:
		n := strings.IndexFunc(p.rest, func(c rune) bool { return c > 'z' || !isTypeByte(byte(c)) && c != '.' })
		if n < 0 {
			n = len(p.rest)
		}
		if t.name, p.rest = p.rest[:n], p.rest[n:]; !validTypeName(t.name) {
			return nil
		}
	}
	t.nullable = p.take("?")
	return t
}

// String prints the type as the text form has it.
func (t *typeNode) String() string {
	s := t.name
	switch t.kind {
	case kindList:
		s = "[" + t.elem.String() + "]"
	case kindMap:
		s = "{String: " + t.elem.String() + "}"
	}
	if t.nullable {
		s += "?"
	}
	return s
}

// root is the name that the type is made of.
func (t *typeNode) root() string {
	for t.elem != nil {
		t = t.elem
	}
	return t.name
}

// canonicalType is the one way to write a type; what is no type stays as it is.
func canonicalType(text string) string {
	if t, ok := parseType(text); ok {
		return t.String()
	}
	return strings.TrimSpace(text)
}

// validTypeName reports whether s is the name of a type: names joined by dots.
func validTypeName(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || !isLetter(part[0]) || strings.ContainsFunc(part, func(c rune) bool { return c > 'z' || !isTypeByte(byte(c)) }) {
			return false
		}
	}
	return true
}

func isTypeByte(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' }

// typeNames are the names that a type may be made of in this module, for hints.
func typeNames(data []Data) []string {
	names := []string{String, Bool, Int, Float, Bytes, Time, Any}
	for _, d := range data {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}
