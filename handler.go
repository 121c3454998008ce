package carillon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// Handler is a verb as a runner serves it: JSON of the request in, JSON of the response out, both empty for none. Plain,
// Takes, Gives and Func make one of an ordinary function.
type Handler func(ctx context.Context, payload []byte) ([]byte, error)

// Verbs are the functions of a module by the name of their verb, without the module's name.
type Verbs map[string]Handler

// Unit is the request or the response that is none.
type Unit struct{}

// maxPayload bounds a request and a response, in bytes of JSON.
const maxPayload = 1 << 20

// Plain is a verb without request and response. A request that comes all the same fails the run for good.
func Plain(fn func(context.Context) error) Handler {
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		if err := nothing(payload); err != nil {
			return nil, err
		}
		return nil, fn(ctx)
	}
}

// Takes is a verb with a request. One that does not fit Q fails the run for good, and the text names its field. Fields
// that Q does not have are ignored: a job may be older than the deployment that does it.
func Takes[Q any](fn func(context.Context, Q) error) Handler {
	decode := decoder[Q]()
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		var q Q
		if err := decode(payload, &q); err != nil {
			return nil, err
		}
		return nil, fn(ctx, q)
	}
}

// Gives is a verb with a response. One that JSON cannot hold, or of more than 1 MiB, fails the run for good.
func Gives[R any](fn func(context.Context) (R, error)) Handler {
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		if err := nothing(payload); err != nil {
			return nil, err
		}
		r, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return encode(r)
	}
}

// Func is a verb with a request, as for Takes, and a response, as for Gives.
func Func[Q, R any](fn func(context.Context, Q) (R, error)) Handler {
	decode := decoder[Q]()
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		var q Q
		if err := decode(payload, &q); err != nil {
			return nil, err
		}
		r, err := fn(ctx, q)
		if err != nil {
			return nil, err
		}
		return encode(r)
	}
}

// nothing refuses a request where there is none; null and {} are none, too.
func nothing(payload []byte) error {
	if len(payload) == 0 {
		return nil
	}
	if p := bytes.Join(bytes.Fields(payload), nil); len(p) == 0 || bytes.Equal(p, []byte("null")) || bytes.Equal(p, []byte("{}")) {
		return nil
	}
	return Fail(errors.New("payload: the verb takes no request"))
}

// decoder reads a Q. Where a Q cannot be nil, a missing request and null are refused: they would become a zero value
// that nobody wrote.
func decoder[Q any]() func([]byte, *Q) error {
	unit, nullable := reflect.TypeFor[Q]() == reflect.TypeFor[Unit](), nullable(reflect.TypeFor[Q]())
	return func(payload []byte, q *Q) error {
		if unit {
			return nothing(payload)
		}
		if p := bytes.TrimSpace(payload); len(p) == 0 || bytes.Equal(p, []byte("null")) {
			if nullable {
				return nil
			}
			return Fail(errors.New("payload: the verb needs a request"))
		}
		if err := json.Unmarshal(payload, q); err != nil {
			return Fail(misfit("payload", err))
		}
		return nil
	}
}

// nullable says whether a value of t may be nil.
func nullable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	}
	return false
}

// misfit says which part of some JSON does not fit its type.
func misfit(what string, err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind):
		if kind.Field != "" {
			what += "." + kind.Field
		}
		return fmt.Errorf("%s: cannot take %s as %s", what, kind.Value, kind.Type)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: no JSON at byte %d: %w", what, syntax.Offset, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: the JSON is cut off", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func encode(r any) ([]byte, error) {
	out, err := marshal(r)
	if err != nil {
		return nil, Fail(fmt.Errorf("response: %w", err))
	}
	return out, nil
}

// marshal is JSON without the escapes for browsers; empty for Unit.
func marshal(v any) ([]byte, error) {
	if _, ok := v.(Unit); ok {
		return nil, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
