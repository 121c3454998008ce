package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
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
	{errForbidden, connect.CodePermissionDenied, "FORBIDDEN"},
	{cron.ErrTimedOut, connect.CodeDeadlineExceeded, "TIMED_OUT"},
	{cron.ErrUnavailable, connect.CodeUnavailable, "UNAVAILABLE"},
	{context.Canceled, connect.CodeCanceled, "CANCELLED"},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded, "TIMED_OUT"},
}

// fault refuses one field of a request.
type fault struct{ field, text string }

func invalid(field, format string, args ...any) error {
	return &fault{field, fmt.Sprintf(format, args...)}
}

func (f *fault) Error() string { return f.field + ": " + f.text }
func (f *fault) Unwrap() error { return cron.ErrInvalid }

// limited is a refusal for a rate limit, whose text is for the caller.
type limited interface {
	error
	RetryAfter() time.Duration
}

// unknowing is what an error of the database says about its outcome. Its text, with addresses and names of roles, is
// for the log alone.
type unknowing interface{ Unknown() bool }

// errorInterceptor bounds every unary call, and gives every error that leaves its code, its details and its line in
// the log.
type errorInterceptor struct{ log *slog.Logger }

// A call waits so long for the database; a deploy waits for a runner besides.
const (
	callLimit   = 20 * time.Second
	deployLimit = 60 * time.Second
)

func limit(procedure string) time.Duration {
	if strings.HasSuffix(procedure, "/Deploy") {
		return deployLimit
	}
	return callLimit
}

func (i *errorInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		procedure := req.Spec().Procedure
		ctx, cancel := context.WithTimeout(ctx, limit(procedure))
		defer cancel()
		res, err := next(ctx, req)
		return res, i.toConnect(ctx, procedure, err)
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
	id := requestOf(ctx)
	if ce := (*connect.Error)(nil); errors.As(err, &ce) { // said by the face itself or by validation, with its code
		detail(ce, about(strings.ToUpper(ce.Code().String()), id))
		if b := violations(ce); b != nil {
			detail(ce, b)
		}
		return err
	}
	if cause := ctx.Err(); cause != nil && errors.Is(err, cron.ErrUnavailable) {
		err = cause // the caller went away or gave no more time: that is not the database's fault
	}
	if rate := limited(nil); errors.As(err, &rate) {
		ce := connect.NewError(connect.CodeResourceExhausted, errors.New(rate.Error()))
		detail(ce, about("RATE_LIMITED", id))
		detail(ce, &errdetails.RetryInfo{RetryDelay: durationpb.New(rate.RetryAfter())})
		return ce
	}
	for _, row := range codes {
		if !errors.Is(err, row.err) {
			continue
		}
		ce := connect.NewError(row.code, errors.New(said(err, row.err)))
		detail(ce, about(row.reason, id))
		if b := badRequest(err); b != nil {
			detail(ce, b)
		}
		if row.code == connect.CodeUnavailable {
			detail(ce, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
			i.log.WarnContext(ctx, "request refused", "procedure", procedure, "request", id, "error", err)
		}
		return ce
	}
	i.log.ErrorContext(ctx, "request failed", "procedure", procedure, "request", id, "error", err)
	return internal(id)
}

// recovered answers a panic in a handler: that request fails, the controller goes on.
func (i *errorInterceptor) recovered(ctx context.Context, spec connect.Spec, _ http.Header, cause any) error {
	id := requestOf(ctx)
	i.log.ErrorContext(ctx, "request panicked", "procedure", spec.Procedure, "request", id, "error", cause, "stack", string(debug.Stack()))
	return internal(id)
}

func internal(id string) error {
	ce := connect.NewError(connect.CodeInternal, errors.New("internal error; the controller's log has the cause under request "+id))
	detail(ce, about("INTERNAL", id))
	return ce
}

// said is what the caller reads of a refusal: its own words. Which kind it is the code says already, and what each floor
// tried on the way is for the log.
func said(err, kind error) string {
	if db := unknowing(nil); errors.Is(err, cron.ErrUnavailable) && errors.As(err, &db) {
		if db.Unknown() {
			return "the connection to the database broke; what was asked may have been done or not: look, and try again"
		}
		return "the database does not answer; nothing was changed, try again"
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if words, ok := strings.CutPrefix(e.Error(), kind.Error()+": "); ok {
			return words
		}
	}
	return err.Error()
}

func about(reason, id string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: reason, Domain: "carillon", Metadata: map[string]string{"request_id": id}}
}

// badRequest names the fields of a request that an error is about; nil for none.
func badRequest(err error) *errdetails.BadRequest {
	if d := (*denial)(nil); errors.As(err, &d) && d.field != "" {
		return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: d.field, Description: d.text}}}
	}
	if f := (*fault)(nil); errors.As(err, &f) {
		return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: f.field, Description: f.text}}}
	}
	faults := (schema.Errors)(nil)
	if !errors.As(err, &faults) {
		return nil
	}
	b := &errdetails.BadRequest{}
	for _, f := range faults[:min(len(faults), 100)] {
		b.FieldViolations = append(b.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Position.String(), Description: f.Message})
	}
	return b
}

// violations translates what the validation of the message's own rules found; nil for other errors.
func violations(ce *connect.Error) *errdetails.BadRequest {
	var b *errdetails.BadRequest
	for _, d := range ce.Details() {
		m, err := d.Value()
		found, ok := m.(*validate.Violations)
		if err != nil || !ok {
			continue
		}
		b = &errdetails.BadRequest{}
		for _, v := range found.GetViolations()[:min(len(found.GetViolations()), 100)] {
			b.FieldViolations = append(b.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: path(v.GetField()), Description: v.GetMessage()})
		}
	}
	return b
}

func path(p *validate.FieldPath) string {
	var b strings.Builder
	for i, e := range p.GetElements() {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(e.GetFieldName())
		if _, ok := e.GetSubscript().(*validate.FieldPathElement_Index); ok {
			b.WriteString("[" + strconv.FormatUint(e.GetIndex(), 10) + "]")
		}
	}
	return b.String()
}

func detail(ce *connect.Error, m proto.Message) {
	if d, err := connect.NewErrorDetail(m); err == nil {
		ce.AddDetail(d)
	}
}
