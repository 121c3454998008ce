package schema

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"carillon/backend/core/cron"
)

// FieldFault says which part of a payload does not fit its verb. It is a cron.ErrInvalid.
type FieldFault struct {
	Field   string // a path: payload.to, payload.lines[3].price
	Problem string
}

func (f *FieldFault) Error() string {
	return cron.ErrInvalid.Error() + ": " + f.Field + ": " + f.Problem
}

// Unwrap returns cron.ErrInvalid.
func (f *FieldFault) Unwrap() error { return cron.ErrInvalid }

// FieldName is the path of the field.
func (f *FieldFault) FieldName() string { return f.Field }

// rootField is where the paths of faults begin.
const rootField = "payload"

// maxPayloadDepth bounds the nesting of a payload, and with it the stack.
const maxPayloadDepth = 200

// Check says whether a payload fits the request of a verb; the error is a *FieldFault that names the first field that does
// not. A verb without a request accepts nothing, null and {}. Names of fields are compared exactly, unknown and repeated
// ones are refused, and what Any covers needs only be JSON. It reads the payload once, and what fits costs no memory but
// for escaped names and for maps with more than eight keys.
func (s *Shapes) Check(v Verb, payload []byte) error {
	if !utf8.Valid(payload) {
		return &FieldFault{rootField, "is not valid UTF-8"}
	}
	w := walker{data: payload}
	w.blanks()
	if orUnit(v.Request) == Unit {
		return w.nothing(v)
	}
	shape := s.requests[v.Request]
	switch {
	case shape == nil:
		return &FieldFault{"ref", fmt.Sprintf("verb %s: unknown request type %q", cut(v.Name), cut(v.Request))}
	case w.pos == len(payload) && (shape.nullable || shape.kind == kindAny):
		return nil
	case w.pos == len(payload):
		return &FieldFault{rootField, fmt.Sprintf("is missing: verb %s takes %s", cut(v.Name), article(shape.want()))}
	}
	f := w.value(shape, 0)
	if f == nil {
		if w.blanks(); w.pos < len(payload) {
			f = w.syntax("end of the payload")
		}
	}
	if f == nil {
		return nil
	}
	f.Field = rootField + f.Field
	return f
}

// nothing accepts what stands for no request.
func (w *walker) nothing(v Verb) error {
	rest := bytes.TrimRight(w.data[w.pos:], " \t\r\n")
	if len(rest) == 0 || string(rest) == "null" || rest[0] == '{' && string(bytes.TrimLeft(rest[1:], " \t\r\n")) == "}" {
		return nil
	}
	return &FieldFault{rootField, fmt.Sprintf("verb %s takes no request", cut(v.Name))}
}

// value reads one value and holds it against a shape.
func (w *walker) value(s *shape, depth int) *FieldFault {
	if depth > maxPayloadDepth {
		return &FieldFault{"", fmt.Sprintf("is nested deeper than %d levels", maxPayloadDepth)}
	}
	c := w.peek()
	if s.kind == kindAny {
		return w.any(depth)
	}
	if c == 'n' && s.nullable {
		return w.literal("null")
	}
	switch {
	case c == '"' && s.kind == kindString:
		_, _, f := w.text()
		return f
	case c == '"' && s.kind == kindBytes:
		return w.base64()
	case c == '"' && s.kind == kindTime:
		return w.time()
	case c == '{' && s.kind == kindRecord:
		return w.record(s.record, depth)
	case c == '{' && s.kind == kindMap:
		return w.mapping(s.elem, depth)
	case c == '[' && s.kind == kindList:
		return w.list(s.elem, depth)
	case c == 't' && s.kind == kindBool:
		return w.literal("true")
	case c == 'f' && s.kind == kindBool:
		return w.literal("false")
	case c == '-' || isDigit(c):
		switch s.kind {
		case kindInt, kindUInt:
			return w.integer(s)
		case kindFloat:
			return w.float(s)
		}
	}
	return w.mismatch(s, depth)
}

// mismatch names what stands there instead, or that it is no JSON.
func (w *walker) mismatch(s *shape, depth int) *FieldFault {
	var got string
	switch c := w.peek(); {
	case c == '"':
		got = "string"
	case c == '{':
		got = "object"
	case c == '[':
		got = "array"
	case c == 't', c == 'f':
		got = "boolean"
	case c == 'n':
		got = "null"
	case c == '-' || isDigit(c):
		got = "number"
	default:
		return w.syntax("a value")
	}
	if f := w.any(depth); f != nil { // that it is no JSON at all is the nearer news
		return f
	}
	return &FieldFault{"", "expected " + s.want() + ", got " + got}
}

func (w *walker) list(elem *shape, depth int) *FieldFault {
	w.pos++
	w.blanks()
	if w.peek() == ']' {
		w.pos++
		return nil
	}
	for i := 0; ; i++ {
		if f := w.value(elem, depth+1); f != nil {
			f.Field = "[" + strconv.Itoa(i) + "]" + f.Field
			return f
		}
		if done, f := w.next(']'); done || f != nil {
			return f
		}
	}
}

func (w *walker) record(r *record, depth int) *FieldFault {
	w.pos++
	w.blanks()
	var seen bits
	if w.peek() == '}' {
		w.pos++
		return r.missing(&seen)
	}
	for guess := 0; ; guess++ {
		name, f := w.key()
		if f != nil {
			return f
		}
		// Most payloads have their fields in the order of the declaration.
		if guess >= len(r.fields) || r.fields[guess].name != string(name) {
			i, known := r.byName[string(name)]
			if !known {
				return &FieldFault{member(name), r.unknown(string(name))}
			}
			guess = i
		}
		if seen.has(guess) {
			return &FieldFault{member(name), "stands there twice"}
		}
		seen.set(guess)
		if f := w.value(r.fields[guess].shape, depth+1); f != nil {
			f.Field = member(name) + f.Field
			return f
		}
		done, f := w.next('}')
		if f != nil {
			return f
		}
		if done {
			return r.missing(&seen)
		}
	}
}

// missing is the fault of the required fields that were not seen.
func (r *record) missing(seen *bits) *FieldFault {
	complete := true
	for i := range (len(r.fields) + 63) / 64 {
		complete = complete && r.required[i]&^seen[i] == 0
	}
	if complete {
		return nil
	}
	const shown = 5
	var names []string
	for i, f := range r.fields {
		if r.required.has(i) && !seen.has(i) && len(names) <= shown {
			names = append(names, f.name)
		}
	}
	problem := "is missing"
	if len(names) > 1 {
		problem += ", as " + verbOf(len(names)-1) + " " + strings.Join(names[1:min(len(names), shown)], ", ")
		if len(names) > shown {
			problem += " and more"
		}
	}
	return &FieldFault{member([]byte(names[0])), problem}
}

func verbOf(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// unknown is the problem of a name that the record does not have.
func (r *record) unknown(name string) string {
	var names []string
	for _, f := range r.fields {
		names = append(names, f.name)
	}
	const shown = 8
	switch near := Nearest(name, names); {
	case near != "":
		return fmt.Sprintf("unknown field: did you mean %s?", near)
	case len(names) == 0:
		return fmt.Sprintf("unknown field: %s has none", r.name)
	case len(names) <= shown:
		return fmt.Sprintf("unknown field: %s has %s", r.name, strings.Join(names, ", "))
	}
	return fmt.Sprintf("unknown field of %s", r.name)
}

func (w *walker) mapping(elem *shape, depth int) *FieldFault {
	w.pos++
	w.blanks()
	if w.peek() == '}' {
		w.pos++
		return nil
	}
	var seen names
	for {
		name, f := w.key()
		if f != nil {
			return f
		}
		if !seen.add(name) {
			return &FieldFault{member(name), "stands there twice"}
		}
		if f := w.value(elem, depth+1); f != nil {
			f.Field = member(name) + f.Field
			return f
		}
		if done, f := w.next('}'); done || f != nil {
			return f
		}
	}
}

// names is a set of keys; a few of them need no memory of their own.
type names struct {
	few  [8][]byte
	n    int
	many map[string]struct{}
}

// add is false for a name that is there.
func (s *names) add(name []byte) bool {
	if s.many == nil {
		for _, other := range s.few[:s.n] {
			if bytes.Equal(other, name) {
				return false
			}
		}
		if s.n < len(s.few) {
			s.few[s.n] = name
			s.n++
			return true
		}
		s.many = make(map[string]struct{}, 64)
		for _, other := range s.few {
			s.many[string(other)] = struct{}{}
		}
	}
	if _, there := s.many[string(name)]; there {
		return false
	}
	s.many[string(name)] = struct{}{}
	return true
}

// member is the piece of a path that names a field.
func member(name []byte) string {
	const shown = 60
	short := name
	if len(short) > shown {
		for short = short[:shown]; !utf8.Valid(short); short = short[:len(short)-1] {
		}
	}
	if bareName(string(short)) {
		return "." + string(short)
	}
	return "[" + strconv.Quote(string(short)) + "]"
}

func shorten(text []byte) string {
	if len(text) > 40 {
		return string(text[:37]) + "..."
	}
	return string(text)
}

// article puts a or an before a word.
func article(s string) string {
	if strings.ContainsRune("aeiou", rune(s[0])) {
		return "an " + s
	}
	return "a " + s
}
