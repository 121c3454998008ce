package rpc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/backend/core/cron"
	"carillon/backend/core/schema"
)

var errForbidden = errors.New("this token does not open this procedure")

// codes is the one table from refusals to Connect codes.
var codes = []struct {
	err    error
	code   connect.Code
	reason string
}{
	{cron.ErrNotFound, connect.CodeNotFound, "NOT_FOUND"},
	{cron.ErrInvalid, connect.CodeInvalidArgument, "INVALID"},
	{cron.ErrPrecond, connect.CodeFailedPrecondition, "WRONG_STATE"},
	{cron.ErrExists, connect.CodeAlreadyExists, "EXISTS"},
	{cron.ErrTimedOut, connect.CodeDeadlineExceeded, "TIMED_OUT"},
	{cron.ErrUnavailable, connect.CodeUnavailable, "DATABASE_UNAVAILABLE"},
	{context.Canceled, connect.CodeCanceled, "CANCELLED"},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded, "TIMED_OUT"},
}

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

type errorInterceptor struct{ log *slog.Logger }

func (i *errorInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		return res, i.toConnect(ctx, req.Spec().Procedure, err)
	}
}

func (i *errorInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i *errorInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return i.toConnect(ctx, conn.Spec().Procedure, next(ctx, conn))
	}
}

func (i *errorInterceptor) toConnect(ctx context.Context, procedure string, err error) error {
	if err == nil {
		return nil
	}
	id, _ := ctx.Value(requestIDKey{}).(string)
	if ce := (*connect.Error)(nil); errors.As(err, &ce) {
		return err // said by the face itself or by validation, with its code
	}
	for _, row := range codes {
		if !errors.Is(err, row.err) {
			continue
		}
		ce := connect.NewError(row.code, err)
		detail(ce, &errdetails.ErrorInfo{Reason: row.reason, Domain: "carillon", Metadata: map[string]string{"request_id": id}})
		if faults := (schema.Errors)(nil); errors.As(err, &faults) {
			detail(ce, badRequest(faults))
		}
		if row.code == connect.CodeUnavailable {
			detail(ce, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
			i.log.WarnContext(ctx, "request refused", "procedure", procedure, "request", id, "error", err)
		}
		return ce
	}
	i.log.ErrorContext(ctx, "request failed", "procedure", procedure, "request", id, "error", err)
	ce := connect.NewError(connect.CodeInternal, errors.New("internal error; the controller's log has the cause under request "+id))
	detail(ce, &errdetails.ErrorInfo{Reason: "INTERNAL", Domain: "carillon", Metadata: map[string]string{"request_id": id}})
	return ce
}

func badRequest(faults schema.Errors) *errdetails.BadRequest {
	b := &errdetails.BadRequest{}
	for _, f := range faults[:min(len(faults), 100)] {
		b.FieldViolations = append(b.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Position.String(), Description: f.Message})
	}
	return b
}

func detail(ce *connect.Error, m proto.Message) {
	if d, err := connect.NewErrorDetail(m); err == nil {
		ce.AddDetail(d)
	}
}
