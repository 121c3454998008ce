package cozy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

const pointerAttributes = "/data/attributes"

// body is what a request says about a job or a trigger.
type body struct {
	fields map[string]json.RawMessage
	flat   bool // of the early document: no data around it
}

// flatKeys are the members of a flat body; one of them must be there.
var flatKeys = []string{
	"arguments", "message", "worker_arguments", "options", "manual", "forward_logs", "type", "debounce", "time_zone", "secret",
	"priority", "timeout", "max_exec_count", "retry_max_count", "retry_delay",
}

// readBody reads {"data": {"attributes": {..}}}, or, where flat is allowed and there is no data, its members alone.
func readBody(r *http.Request, flat bool) (body, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return body{}, bodyError(err)
	}
	var top map[string]json.RawMessage
	if !utf8.Valid(text) || json.Unmarshal(text, &top) != nil || top == nil {
		return body{}, unreadable()
	}
	data, wrapped := top["data"]
	if !wrapped && flat {
		for _, key := range flatKeys {
			if _, ok := top[key]; ok {
				return body{top, true}, nil
			}
		}
	}
	var document struct{ Attributes map[string]json.RawMessage }
	if !wrapped || json.Unmarshal(data, &document) != nil || document.Attributes == nil {
		return body{}, unreadable()
	}
	return body{fields: document.Attributes}, nil
}

// bodyError is about a body that could not be read to its end.
func bodyError(err error) error {
	if _, tooLong := err.(*http.MaxBytesError); tooLong {
		return err
	}
	return unreadable()
}

// pointer is where a member stands in the document that was sent.
func (b body) pointer(name string) string { return b.at() + "/" + name }

func (b body) at() string {
	if b.flat {
		return ""
	}
	return pointerAttributes
}

// text reads a member that is a text; absent and null are empty.
func (b body) text(name string) (s string, err error) {
	if raw := b.fields[name]; raw != nil && json.Unmarshal(raw, &s) != nil {
		return "", invalid(b.pointer(name), name+" must be a string")
	}
	return s, nil
}

// given says that a member is there, and not null.
func (b body) given(name string) bool {
	raw := b.fields[name]
	return raw != nil && string(raw) != "null"
}

// flag reads a member that is true or false; absent and null are false.
func (b body) flag(name string) (is bool, err error) {
	if raw := b.fields[name]; raw != nil && json.Unmarshal(raw, &is) != nil {
		return false, invalid(b.pointer(name), name+" must be true or false")
	}
	return is, nil
}

// options reads the options; a flat body may have them at its top, too.
func (b body) options() (trigger.Options, error) {
	if b.flat {
		return trigger.ReadOptions(b.fields["options"], b.fields, "/options")
	}
	return trigger.ReadOptions(b.fields["options"], nil, trigger.PointerOptions)
}

// sane is a text that may meet SQL and a log: of some length, valid UTF-8, no control characters.
func sane(s string) bool {
	return len(s) <= 4096 && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

const idempotencyHeader = "Idempotency-Key"

// idempotencyOf names a request among all requests: the key counts within one token and one route. Empty: there is none.
func idempotencyOf(r *http.Request, by permission.Token, of string) (string, error) {
	key, err := idempotencyKey(r)
	if key == "" || err != nil {
		return "", err
	}
	return nameOf(by.Tenant, by.ID, r.Method, of, key), nil
}

func idempotencyKey(r *http.Request) (string, error) {
	key := r.Header.Get(idempotencyHeader)
	if len(key) > 255 || !sane(key) {
		return "", &refusal{status: http.StatusBadRequest, detail: idempotencyHeader + " must be at most 255 printable characters", source: &source{Header: idempotencyHeader}}
	}
	return key, nil
}

// nameOf is one word for several.
func nameOf(words ...string) string {
	h := sha256.New()
	for _, w := range words {
		sum := sha256.Sum256([]byte(w))
		h.Write(sum[:])
	}
	return "cozy:" + hex.EncodeToString(h.Sum(nil))
}
