package trigger

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"carillon/backend/core/cron"
)

// Bounds of JSON that is kept as a document (jsonb), beyond what makes it JSON.
const (
	maxDepth    = 500
	maxExponent = 1000 // numbers are written out there: 1e1000 has a thousand digits
)

// UnfitError refuses JSON that is none, or that Postgres would not keep as a document. It is a cron.ErrInvalid.
type UnfitError struct{ Problem string }

func (e *UnfitError) Error() string { return e.Problem }
func (e *UnfitError) Unwrap() error { return cron.ErrInvalid }

// FitsDocument says whether Postgres keeps this JSON as a document whose text is at most so many bytes. It is a little
// stricter than JSON: no NUL, no half of a surrogate pair, numbers and nesting within reason. The error is an *UnfitError.
func FitsDocument(data []byte, most int) error {
	if !utf8.Valid(data) || !json.Valid(data) {
		return &UnfitError{"is no JSON"}
	}
	size, depth := len(data), 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			end, problem := stringEnd(data, i+1)
			if problem != "" {
				return &UnfitError{problem}
			}
			i = end
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return &UnfitError{"is nested too deeply"}
			}
		case c == '}' || c == ']':
			depth--
		case c == ',' || c == ':':
			size++ // a blank follows there
		case c == '-' || c >= '0' && c <= '9':
			end := i
			for end+1 < len(data) && isNumber(data[end+1]) {
				end++
			}
			exponent, ok := exponentOf(data[i : end+1])
			if !ok {
				return &UnfitError{"has a number that is out of range"}
			}
			size += exponent
			i = end
		}
	}
	if size > most {
		return &UnfitError{"has about " + strconv.Itoa(size) + " bytes, at most " + strconv.Itoa(most) + " are accepted"}
	}
	return nil
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// exponentOf is how many digits a number grows by when it is written out, at most.
func exponentOf(number []byte) (digits int, ok bool) {
	for i, c := range number {
		if c != 'e' && c != 'E' {
			continue
		}
		n, err := strconv.Atoi(string(number[i+1:]))
		if err != nil || n > maxExponent || n < -maxExponent {
			return 0, false
		}
		return max(n, -n), true
	}
	return 0, true
}

// stringEnd finds the quote that ends a string of valid JSON, and judges the escapes in it.
func stringEnd(data []byte, from int) (end int, problem string) {
	for i := from; ; i++ {
		switch data[i] {
		case '"':
			return i, ""
		case '\\':
			i++
			if data[i] != 'u' {
				continue
			}
			unit := hexUnit(data, i+1)
			i += 4
			switch {
			case unit == 0:
				return 0, "has a NUL"
			case unit >= 0xDC00 && unit < 0xE000:
				return 0, "has half of a surrogate pair"
			case unit >= 0xD800 && unit < 0xDC00:
				if low := pairUnit(data, i+1); low < 0xDC00 || low >= 0xE000 {
					return 0, "has half of a surrogate pair"
				}
				i += 6
			}
		}
	}
}

// pairUnit is the unit of an escape that begins here; 0: none does.
func pairUnit(data []byte, at int) uint64 {
	if at+6 > len(data) || data[at] != '\\' || data[at+1] != 'u' {
		return 0
	}
	return hexUnit(data, at+2)
}

func hexUnit(data []byte, at int) uint64 {
	unit, _ := strconv.ParseUint(string(data[at:at+4]), 16, 32)
	return unit
}
