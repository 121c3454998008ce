package rpc

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"carillon/backend/core/job"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// readOff is how much of a request that is refused for its size is read off, so that its sender, who may still be sending,
// gets the answer.
const readOff = 4 * MaxBody

// bounded refuses a request that says itself that it is too large, in words that help; what only turns out to be is
// refused where it is decoded.
func bounded(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength <= MaxBody || !refuse.IsSupported(r) {
			next.ServeHTTP(w, r)
			return
		}
		text := fmt.Sprintf("the request has %d bytes, at most %d are accepted", r.ContentLength, MaxBody)
		ce := connect.NewError(connect.CodeResourceExhausted, errors.New(text))
		if r.URL.Path == carillonv1connect.JobServiceEnqueueJobsProcedure {
			text += fmt.Sprintf(", and of a job's payload at most %d: send many jobs in several requests", job.MaxPayload)
			ce = connect.NewError(connect.CodeResourceExhausted, errors.New("payload: "+text))
			detail(ce, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "payload", Description: text}}})
		}
		detail(ce, about("TOO_LARGE", requestOf(r.Context())))
		_, _ = io.CopyN(io.Discard, r.Body, readOff)
		w.Header().Set("Connection", "close")
		_ = refuse.Write(w, r, ce)
	})
}
