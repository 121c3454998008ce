package rpc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const requestIDHeader = "X-Request-Id"

type requestIDKey struct{}

// requestID gives every request an id: the caller's, if it is a sane one, or a new one. It stands in the answer's
// headers, in errors and in the log.
func requestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !saneID(id) {
			var b [8]byte
			rand.Read(b[:])
			id = hex.EncodeToString(b[:])
		}
		w.Header().Set(requestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

func requestOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

func saneID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// texts refuses a request with a NUL in any of its texts: proto allows it, Postgres does not, and no name has one.
// (That texts are valid UTF-8 is checked when they are decoded.)
type texts struct{}

func (texts) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if m, ok := req.Any().(proto.Message); ok {
			if err := checkTexts("", m.ProtoReflect()); err != nil {
				return nil, err
			}
		}
		return next(ctx, req)
	}
}

func (texts) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (texts) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, textConn{conn})
	}
}

type textConn struct{ connect.StreamingHandlerConn }

func (c textConn) Receive(msg any) error {
	if err := c.StreamingHandlerConn.Receive(msg); err != nil {
		return err
	}
	if m, ok := msg.(proto.Message); ok {
		return checkTexts("", m.ProtoReflect())
	}
	return nil
}

func checkTexts(at string, m protoreflect.Message) (err error) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := at + string(f.Name())
		check := func(v protoreflect.Value) bool {
			switch f.Kind() {
			case protoreflect.StringKind:
				if strings.ContainsRune(v.String(), 0) {
					err = invalid(name, "holds a NUL")
				}
			case protoreflect.MessageKind:
				err = checkTexts(name+".", v.Message())
			}
			return err == nil
		}
		switch {
		case f.IsMap(): // no request has one
		case f.IsList():
			for i := range v.List().Len() {
				if !check(v.List().Get(i)) {
					break
				}
			}
		default:
			check(v)
		}
		return err == nil
	})
	return err
}
