package carillon

import (
	"context"
	"errors"
	"time"

	carillonv1 "carillon/proto/carillon/v1"

	"google.golang.org/protobuf/types/known/durationpb"
)

// Ask is what a verb may ask for instead of the plain failure that any other error is.
type Ask int

const (
	AskRetry    Ask = iota + 1 // a failure; the next attempt, if one is left, begins after a time that the verb names
	AskSnooze                  // no failure: come again after a time; the attempt is not counted
	AskFail                    // a failure for good, whatever attempts are left
	AskCancel                  // the work is not wanted any more
	AskChildren                // no failure: come again when all children have ended; the attempt is not counted
)

// OutcomeError is an error by which a verb asks for something. It may be wrapped; the outermost one counts.
type OutcomeError struct {
	Ask   Ask
	After time.Duration // of AskRetry and AskSnooze
	Err   error         // what went wrong, or why; may be nil
}

func (e *OutcomeError) Error() string {
	switch {
	case e.Ask == AskSnooze:
		return "snoozed for " + e.After.String()
	case e.Ask == AskChildren:
		return "waits for its children"
	case e.Err != nil:
		return e.Err.Error()
	case e.Ask == AskRetry:
		return "to be tried again after " + e.After.String()
	case e.Ask == AskCancel:
		return "cancelled by the verb"
	}
	return "failed for good"
}

func (e *OutcomeError) Unwrap() error { return e.Err }

// RetryAfter is a failure for the reason err after which the next attempt begins d later, instead of after the
// backoff; zero or less is at once. It counts as an attempt. Also with a nil err it is an error.
func RetryAfter(d time.Duration, err error) error {
	return &OutcomeError{Ask: AskRetry, After: max(d, 0), Err: err}
}

// Snooze ends this run of a job without a failure: the job comes again d later, and no attempt is counted.
func Snooze(d time.Duration) error { return &OutcomeError{Ask: AskSnooze, After: max(d, 0)} }

// Fail is a failure for good for the reason err: no attempt follows. Also with a nil err it is an error.
func Fail(err error) error { return &OutcomeError{Ask: AskFail, Err: err} }

// Cancel ends a job as cancelled.
func Cancel(reason string) error {
	if reason == "" {
		return &OutcomeError{Ask: AskCancel}
	}
	return &OutcomeError{Ask: AskCancel, Err: errors.New(reason)}
}

// AwaitChildren ends this run of a job without a failure: the job comes again when all its children have ended, at
// once when none is left, and no attempt is counted. Children tells then what became of them.
func AwaitChildren() error { return &OutcomeError{Ask: AskChildren} }

// said is what a verb said at its end.
type said struct {
	failed bool
	text   string
	output []byte
	ask    *OutcomeError // nil: nothing besides
}

// judge says how a run ended whose verb returned (or was given up), from what it said and why its context ended.
func judge(ctx context.Context, e *execution, s said) *carillonv1.CallResponse {
	resp := &carillonv1.CallResponse{
		RunId: e.run.ID, Outcome: carillonv1.Outcome_OUTCOME_SUCCEEDED, Took: durationpb.New(time.Since(e.begun)), Payload: s.output,
	}
	if !s.failed {
		return resp
	}
	resp.Outcome, resp.Error, resp.Payload = carillonv1.Outcome_OUTCOME_FAILED, s.text, nil
	switch cause := context.Cause(ctx); {
	case ctx.Err() == nil:
	case cause == errTimeout:
		resp.Outcome = carillonv1.Outcome_OUTCOME_TIMED_OUT
		resp.Error = clean("timed out: " + s.text)
	case e.run.Job != "" && cause != ErrCancelled: // nobody cancelled the job: it shall be tried again elsewhere
		resp.Error = clean(cause.Error() + ": " + s.text)
		resp.Snooze = true // the attempt does not count: it was not the verb that failed
	default:
		resp.Outcome = carillonv1.Outcome_OUTCOME_CANCELLED
		resp.Error = clean(cause.Error() + ": " + s.text)
	}
	s.ask.put(resp, e.run.Job != "")
	return resp
}

// put writes what the verb asked for into its answer. What only a job can do is a failure of a cron job's run, whose
// next start is the clock's.
func (e *OutcomeError) put(resp *carillonv1.CallResponse, job bool) {
	if e == nil {
		return
	}
	const failed, cancelled = carillonv1.Outcome_OUTCOME_FAILED, carillonv1.Outcome_OUTCOME_CANCELLED
	switch again := e.Ask == AskSnooze || e.Ask == AskChildren; {
	case again && !job:
		resp.Error = clean(resp.Error + ": only the run of a job can come again, not a cron job's")
	case again && resp.Outcome == cancelled: // that is stronger
	case e.Ask == AskSnooze:
		resp.Outcome, resp.Snooze, resp.After = failed, true, after(e.After)
	case e.Ask == AskChildren:
		resp.Outcome, resp.Await = failed, true
	case e.Ask == AskRetry:
		resp.After = after(e.After)
	case e.Ask == AskFail:
		resp.Final = true
	case e.Ask == AskCancel:
		resp.Outcome = cancelled
	}
}

// after is at least a millisecond: zero would say nothing.
func after(d time.Duration) *durationpb.Duration { return durationpb.New(max(d, time.Millisecond)) }
