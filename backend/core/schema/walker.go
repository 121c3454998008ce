package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// walker reads one payload from its beginning to its end. Its methods return nil, or the first fault with the path from
// the value that they read.
type walker struct {
	data []byte
	pos  int
}

func (w *walker) blanks() {
	for w.pos < len(w.data) {
		switch w.data[w.pos] {
		case ' ', '\t', '\r', '\n':
			w.pos++
		default:
			return
		}
	}
}

// peek is the next byte, 0 at the end.
func (w *walker) peek() byte {
	if w.pos < len(w.data) {
		return w.data[w.pos]
	}
	return 0
}

func (w *walker) syntax(wanted string) *FieldFault {
	if w.pos >= len(w.data) {
		return &FieldFault{"", "is not valid JSON: it ends where " + wanted + " should be"}
	}
	r, _ := utf8.DecodeRune(w.data[w.pos:])
	return &FieldFault{"", fmt.Sprintf("is not valid JSON: %q at byte %d, where %s should be", r, w.pos, wanted)}
}

func (w *walker) literal(word string) *FieldFault {
	if end := w.pos + len(word); end <= len(w.data) && string(w.data[w.pos:end]) == word {
		w.pos = end
		return nil
	}
	return w.syntax(word)
}

// text reads a string and returns what stands between its quotes, and whether there are escapes in it.
func (w *walker) text() (raw []byte, escaped bool, f *FieldFault) {
	w.pos++
	from := w.pos
	for w.pos < len(w.data) {
		switch c := w.data[w.pos]; {
		case c == '"':
			raw = w.data[from:w.pos]
			w.pos++
			return raw, escaped, nil
		case c < ' ':
			return nil, false, w.syntax("a character of a string")
		case c == '\\':
			escaped = true
			if w.pos++; !w.escape() {
				return nil, false, w.syntax("an escape")
			}
		default:
			w.pos++
		}
	}
	return nil, false, w.syntax(`"`)
}

// escape reads what follows a backslash.
func (w *walker) escape() bool {
	switch w.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		w.pos++
		return true
	case 'u':
		for range 4 {
			w.pos++
			if c := w.peek(); !isDigit(c) && (c|0x20 < 'a' || 'f' < c|0x20) {
				return false
			}
		}
		w.pos++
		return true
	}
	return false
}

// plain is the text of a string. One with escapes is decoded, which allocates.
func plain(raw []byte, escaped bool) []byte {
	if !escaped {
		return raw
	}
	var s string
	if err := json.Unmarshal(slices.Concat([]byte{'"'}, raw, []byte{'"'}), &s); err != nil {
		return raw // cannot be: text has read it
	}
	return []byte(s)
}

// number reads a number and says whether it has neither fraction nor exponent.
func (w *walker) number() (text []byte, whole bool, f *FieldFault) {
	from := w.pos
	if w.peek() == '-' {
		w.pos++
	}
	switch c := w.peek(); {
	case c == '0':
		w.pos++
	case isDigit(c):
		w.digits()
	default:
		return nil, false, w.syntax("a digit")
	}
	whole = true
	if w.peek() == '.' {
		w.pos++
		if whole = false; !w.digits() {
			return nil, false, w.syntax("a digit")
		}
	}
	if w.peek()|0x20 == 'e' {
		w.pos++
		if c := w.peek(); c == '+' || c == '-' {
			w.pos++
		}
		if whole = false; !w.digits() {
			return nil, false, w.syntax("a digit")
		}
	}
	return w.data[from:w.pos], whole, nil
}

func (w *walker) digits() bool {
	from := w.pos
	for isDigit(w.peek()) {
		w.pos++
	}
	return w.pos > from
}

// next reads the comma after an element, or the mark that ends them all.
func (w *walker) next(end byte) (done bool, f *FieldFault) {
	w.blanks()
	switch w.peek() {
	case end:
		w.pos++
		return true, nil
	case ',':
		w.pos++
		w.blanks()
		return false, nil
	}
	return false, w.syntax("a comma or " + string(end))
}

// key reads a name and its colon.
func (w *walker) key() ([]byte, *FieldFault) {
	if w.peek() != '"' {
		return nil, w.syntax("a field's name in quotes")
	}
	raw, escaped, f := w.text()
	if f != nil {
		return nil, f
	}
	w.blanks()
	if w.peek() != ':' {
		return nil, w.syntax("a colon")
	}
	w.pos++
	w.blanks()
	return plain(raw, escaped), nil
}

// any reads a value of whatever shape.
func (w *walker) any(depth int) *FieldFault {
	if depth > maxPayloadDepth {
		return &FieldFault{"", fmt.Sprintf("is nested deeper than %d levels", maxPayloadDepth)}
	}
	switch c := w.peek(); {
	case c == '"':
		_, _, f := w.text()
		return f
	case c == 't':
		return w.literal("true")
	case c == 'f':
		return w.literal("false")
	case c == 'n':
		return w.literal("null")
	case c == '-' || isDigit(c):
		_, _, f := w.number()
		return f
	case c != '{' && c != '[':
		return w.syntax("a value")
	}
	object := w.peek() == '{'
	end := w.peek() + 2 // the bracket's partner
	w.pos++
	w.blanks()
	if w.peek() == end {
		w.pos++
		return nil
	}
	for {
		if object {
			if _, f := w.key(); f != nil {
				return f
			}
		}
		if f := w.any(depth + 1); f != nil {
			return f
		}
		if done, f := w.next(end); done || f != nil {
			return f
		}
	}
}
