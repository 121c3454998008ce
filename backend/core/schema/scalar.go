package schema

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
)

func (w *walker) integer(s *shape) *FieldFault {
	text, whole, f := w.number()
	if f != nil {
		return f
	}
	if !whole {
		return &FieldFault{"", "expected integer, got " + shorten(text)}
	}
	digits, negative := bytes.CutPrefix(text, []byte{'-'})
	var n uint64
	fits := true
	for _, c := range digits {
		next := n*10 + uint64(c-'0')
		fits = fits && n <= (1<<64-1)/10 && next >= n*10
		n = next
	}
	switch {
	case negative && s.kind == kindUInt:
		fits = false
	case negative:
		fits = fits && n <= uint64(-(s.min+1))+1
	default:
		fits = fits && n <= s.max
	}
	if !fits {
		return &FieldFault{"", fmt.Sprintf("%s does not fit: from %d to %d", shorten(text), s.min, s.max)}
	}
	return nil
}

func (w *walker) float(s *shape) *FieldFault {
	text, whole, f := w.number()
	if f != nil || whole && len(text) < 38 || len(text) < 38 && !bytes.ContainsAny(text, "eE") {
		return f // without an exponent it takes 39 digits to leave the range of 32 bits
	}
	if _, err := strconv.ParseFloat(string(text), s.bits); err != nil {
		return &FieldFault{"", fmt.Sprintf("%s does not fit into %d bits", shorten(text), s.bits)}
	}
	return nil
}

func (w *walker) base64() *FieldFault {
	raw, escaped, f := w.text()
	if f != nil || !escaped && looksBase64(raw) {
		return f
	}
	if _, err := base64.StdEncoding.DecodeString(string(plain(raw, escaped))); err != nil {
		return &FieldFault{"", "expected base64 (standard, padded), got another string"}
	}
	return nil
}

// looksBase64 is sure about what it accepts, and leaves the rest to a decoder.
func looksBase64(b []byte) bool {
	if len(b)%4 != 0 {
		return false
	}
	for range 2 {
		b = bytes.TrimSuffix(b, []byte{'='})
	}
	for _, c := range b {
		if !isLetter(c) && !isDigit(c) && c != '+' && c != '/' {
			return false
		}
	}
	return true
}

func (w *walker) time() *FieldFault {
	raw, escaped, f := w.text()
	if f != nil {
		return f
	}
	var t time.Time
	if escaped || t.UnmarshalText(raw) != nil {
		return &FieldFault{"", "expected RFC 3339 time such as 2026-11-21T09:00:00Z, got " + shorten(strconv.AppendQuote(nil, string(raw[:min(len(raw), 40)])))}
	}
	return nil
}
