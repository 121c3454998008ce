package trigger

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// document is a JSON object that is read when it is first asked.
type document struct {
	raw  []byte
	read bool
	root any // map[string]any; nil: none, or no object
}

// known says that there is an object.
func (d *document) known() bool {
	if !d.read {
		d.read = true
		if value, ok := readJSON(d.raw); ok {
			if object, ok := value.(map[string]any); ok {
				d.root = object
			}
		}
	}
	return d.root != nil
}

// field gives the value of a dotted path: of the longest names first, for a name may hold dots itself. Nil is null, and
// absent.
func (d *document) field(path string) any {
	if !d.known() {
		return nil
	}
	value, _ := lookUp(d.root, path)
	return value
}

func lookUp(value any, path string) (any, bool) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	if found, ok := object[path]; ok {
		return found, true
	}
	for end := strings.LastIndexByte(path, '.'); end >= 0; end = strings.LastIndexByte(path[:end], '.') {
		if inner, ok := object[path[:end]]; ok {
			if found, ok := lookUp(inner, path[end+1:]); ok {
				return found, true
			}
		}
	}
	return nil, false
}

// readJSON reads exactly one value, with numbers as they are written.
func readJSON(data []byte) (value any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil, false
	}
	_, err := d.Token()
	return value, err == io.EOF
}

// SameJSON says whether two texts are the same JSON value, however they are written.
func SameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	one, ok := readJSON(a)
	other, too := readJSON(b)
	return ok && too && sameJSON(one, other)
}

func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, ok := b[name]; !ok || !sameJSON(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameJSON(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || shortest(a) == shortest(b))
	}
	return a == b // text, a truth value or null
}

// shortest writes a number in one way of many: integers as they stand, for they may be longer than a float can tell.
func shortest(n json.Number) string {
	text := string(n)
	if strings.Trim(text, "-0123456789") == "" {
		if text == "-0" {
			return "0"
		}
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text // beyond what a float holds
	}
	if f == 0 {
		return "0"
	}
	if f == float64(int64(f)) && f > -1<<53 && f < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// texts are the texts that a field answers to: of a number as it is written and in its shortest form. A list, an object
// and null answer to none.
func texts(value any) (list [2]string, n int) {
	switch value := value.(type) {
	case string:
		return [2]string{value}, 1
	case bool:
		return [2]string{strconv.FormatBool(value)}, 1
	case json.Number:
		if short := shortest(value); short != string(value) {
			return [2]string{string(value), short}, 2
		}
		return [2]string{string(value)}, 1
	}
	return list, 0
}

func isText(value any, text string) bool {
	list, n := texts(value)
	return n > 0 && list[0] == text || n > 1 && list[1] == text
}
