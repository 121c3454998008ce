package carillon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	carillonv1 "carillon/proto/carillon/v1"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

type mail struct {
	To   string   `json:"to"`
	CC   []string `json:"cc,omitempty"`
	Size struct {
		Bytes int8 `json:"bytes"`
	} `json:"size"`
}

type receipt struct {
	ID string `json:"id"`
}

// rude fails in every way that a value can.
type rude struct{}

func (rude) MarshalJSON() ([]byte, error)   { panic("rude") }
func (*rude) UnmarshalJSON([]byte) error    { return errors.New("rude") }
func (*rude) Error() string                 { panic("rude") }
func (*rude) As(any) bool                   { panic("rude") }
func sends(context.Context, mail) error     { return nil }
func gives[R any](r R) Handler              { return Gives(func(context.Context) (R, error) { return r, nil }) }
func takes[Q any](context.Context, Q) error { return nil }

func TestRequestsAndResponsesAreJSON(t *testing.T) {
	echo := Func(func(_ context.Context, m mail) (mail, error) { return m, nil })
	big := strings.Repeat("x", maxPayload)
	for name, c := range map[string]struct {
		verb    Handler
		payload string
		output  string
		text    string // of the failure, which is for good
	}{
		"echo":                {echo, `{"to":"a<b>","size":{"bytes":3}}`, `{"to":"a<b>","size":{"bytes":3}}`, ""},
		"unknown field":       {echo, `{"to":"a","from":"b","size":{"bytes":0}}`, `{"to":"a","size":{"bytes":0}}`, ""},
		"wrong type":          {echo, `{"to":7}`, "", "payload.to: cannot take number as string"},
		"wrong deep":          {echo, `{"size":{"bytes":"x"}}`, "", "payload.size.bytes: cannot take string as int8"},
		"too large":           {echo, `{"size":{"bytes":300}}`, "", "payload.size.bytes: cannot take number 300 as int8"},
		"not even an object":  {echo, `[1]`, "", "payload: cannot take array as carillon.mail"},
		"broken":              {echo, `{"to":`, "", "payload: no JSON at byte 6: unexpected end of JSON input"},
		"two values":          {echo, `{} {}`, "", "payload: no JSON at byte 4: invalid character '{' after top-level value"},
		"missing":             {echo, ``, "", "payload: the verb needs a request"},
		"null":                {echo, ` null `, "", "payload: the verb needs a request"},
		"own decoder":         {Takes(takes[rude]), `1`, "", "payload: rude"},
		"nil pointer":         {Takes(takes[*mail]), `null`, "", ""},
		"no map":              {Takes(takes[map[string]int]), ``, "", ""},
		"anything":            {Takes(takes[any]), ``, "", ""},
		"unit":                {Takes(takes[Unit]), ``, "", ""},
		"unit's":              {Takes(takes[Unit]), `{"to":1}`, "", "payload: the verb takes no request"},
		"takes":               {Takes(sends), `{"to":"a"}`, "", ""},
		"gives":               {gives(receipt{"r1"}), ``, `{"id":"r1"}`, ""},
		"gives and an object": {gives(receipt{"r1"}), ` { } `, `{"id":"r1"}`, ""},
		"gives, not takes":    {gives(receipt{"r1"}), `{"to":"a"}`, "", "payload: the verb takes no request"},
		"gives unit":          {gives(Unit{}), ``, "", ""},
		"gives nil":           {gives[*receipt](nil), ``, "null", ""},
		"no number":           {gives(math.NaN()), ``, "", "response: json: unsupported value: NaN"},
		"too long":            {gives(big), ``, "", fmt.Sprintf("response: has %d bytes, at most 1048576 are accepted", maxPayload+2)},
		"just fits":           {gives(big[2:]), ``, `"` + big[2:] + `"`, ""},
		"plain":               {Plain(func(context.Context) error { return nil }), `{}`, "", ""},
		"plain, null":         {Plain(func(context.Context) error { return nil }), `null`, "", ""},
		"plain, something":    {Plain(func(context.Context) error { return nil }), `0`, "", "payload: the verb takes no request"},
	} {
		got := guard(t.Context(), c.verb, []byte(c.payload), &Run{}, quiet)
		if got.failed != (c.text != "") || got.text != c.text || string(got.output) != c.output || got.failed && (got.ask == nil || got.ask.Ask != AskFail) {
			t.Errorf("%s: got %v %q %.100q %v", name, got.failed, got.text, got.output, got.ask)
		}
	}
}

func TestRudeVerbsOnlyFail(t *testing.T) {
	for name, verb := range map[string]Handler{
		"response": gives(rude{}),
		"error":    Plain(func(context.Context) error { return new(rude) }),
		"as":       Plain(func(context.Context) error { return fmt.Errorf("%T: %w", rude{}, asRude{}) }),
		"panic":    Plain(func(context.Context) error { panic("rude") }),
	} {
		if got := guard(t.Context(), verb, nil, &Run{}, quiet); !got.failed || got.text != "panic: rude" || got.ask != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

type asRude struct{}

func (asRude) Error() string { return "as" }
func (asRude) As(any) bool   { panic("rude") }

// answerOf calls a verb at a desk.
func answerOf(t *testing.T, verb Handler, req *carillonv1.CallRequest, begun func(d *desk)) *carillonv1.CallResponse {
	t.Helper()
	d := newDesk(Config{Module: module, Verbs: Verbs{"verb": verb}, Capacity: 10, Grace: time.Second, Log: quiet}, func() string { return "d1" })
	defer close(d.over)
	req.RunId, req.Ref, req.Deployment = "r1", "m.verb", "d1"
	answer := make(chan *carillonv1.CallResponse, 1)
	d.take(waiter{id: 1, tell: func(r *carillonv1.CallResponse) { answer <- r }}, req)
	if begun != nil {
		begun(d)
	}
	resp := <-answer
	resp.Took, resp.RunId = nil, ""
	return resp
}

func TestOutcomesOfJobsAndCronRuns(t *testing.T) {
	oops := errors.New("oops")
	says := func(err error) Handler { return Plain(func(context.Context) error { return err }) }
	const only = ": only the run of a job can come again, not a cron job's"
	for name, c := range map[string]struct {
		err  error
		job  string // outcome, text, and what else is said
		cron string
	}{
		"success":          {nil, "SUCCEEDED", "SUCCEEDED"},
		"failure":          {oops, "FAILED oops", "FAILED oops"},
		"retry":            {fmt.Errorf("smtp: %w", RetryAfter(time.Minute, oops)), "FAILED smtp: oops after 1m0s", "FAILED smtp: oops after 1m0s"},
		"retry at once":    {RetryAfter(-1, nil), "FAILED to be tried again after 0s after 1ms", "FAILED to be tried again after 0s after 1ms"},
		"for good":         {Fail(oops), "FAILED oops final", "FAILED oops final"},
		"for good, nil":    {Fail(nil), "FAILED failed for good final", "FAILED failed for good final"},
		"outermost counts": {Fail(RetryAfter(time.Minute, oops)), "FAILED oops final", "FAILED oops final"},
		"joined":           {errors.Join(oops, Fail(oops)), "FAILED oops\noops final", "FAILED oops\noops final"},
		"snooze":           {fmt.Errorf("not yet: %w", Snooze(time.Hour)), "FAILED not yet: snoozed for 1h0m0s after 1h0m0s snooze", "FAILED not yet: snoozed for 1h0m0s" + only},
		"children":         {AwaitChildren(), "FAILED waits for its children await", "FAILED waits for its children" + only},
		"cancel":           {Cancel("nobody wants it"), "CANCELLED nobody wants it", "CANCELLED nobody wants it"},
		"cancel, no words": {Cancel(""), "CANCELLED cancelled by the verb", "CANCELLED cancelled by the verb"},
	} {
		if got := say(answerOf(t, says(c.err), &carillonv1.CallRequest{JobId: "j1", Slot: timestamppb.Now()}, nil)); got != c.job {
			t.Errorf("%s: a job's run: %q, want %q", name, got, c.job)
		}
		if got := say(answerOf(t, says(c.err), &carillonv1.CallRequest{Slot: timestamppb.Now()}, nil)); got != c.cron {
			t.Errorf("%s: a cron job's run: %q, want %q", name, got, c.cron)
		}
		if c.err != nil && !errors.Is(c.err, oops) && strings.Contains(c.job, "oops") {
			t.Errorf("%s: its reason is lost", name)
		}
	}
}

// say is an outcome in words.
func say(r *carillonv1.CallResponse) string {
	text := strings.TrimPrefix(r.GetOutcome().String(), "OUTCOME_")
	if r.GetError() != "" {
		text += " " + r.GetError()
	}
	if r.After != nil {
		text += " after " + r.GetAfter().AsDuration().String()
	}
	for word, said := range map[string]bool{" final": r.GetFinal(), " snooze": r.GetSnooze(), " await": r.GetAwait()} {
		if said {
			text += word
		}
	}
	return text
}

// What ended a verb's context decides: a cancelled job is cancelled, one whose runner stops or whose controller is gone
// shall be tried again, a cron job's run is cancelled by either.
func TestWhyTheContextEnded(t *testing.T) {
	stays := func(err error) Handler {
		return Plain(func(ctx context.Context) error {
			<-ctx.Done()
			if err == nil {
				return context.Cause(ctx)
			}
			return err
		})
	}
	for name, c := range map[string]struct {
		err   error
		job   string
		cause error // nil: the timeout
		want  string
	}{
		"cancelled job":       {nil, "j1", ErrCancelled, "CANCELLED cancelled by the controller: cancelled by the controller"},
		"cancelled, snoozes":  {Snooze(time.Hour), "j1", ErrCancelled, "CANCELLED cancelled by the controller: snoozed for 1h0m0s"},
		"job, runner stops":   {nil, "j1", errStopping, "FAILED the runner stops: the runner stops snooze"},
		"job snoozes at stop": {Snooze(time.Hour), "j1", errStopping, "FAILED the runner stops: snoozed for 1h0m0s after 1h0m0s snooze"},
		"job, silence":        {nil, "j1", errSilent, "FAILED the controller fell silent: the controller fell silent snooze"},
		"cron, runner stops":  {nil, "", errStopping, "CANCELLED the runner stops: the runner stops"},
		"job times out":       {nil, "j1", nil, "TIMED_OUT timed out: soft timeout"},
		"times out for good":  {Fail(errors.New("x")), "j1", nil, "TIMED_OUT timed out: x final"},
		"cron times out":      {nil, "", nil, "TIMED_OUT timed out: soft timeout"},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := answerOf(t, stays(c.err), &carillonv1.CallRequest{JobId: c.job, Timeout: durationpb.New(time.Minute)}, func(d *desk) {
				if synctest.Wait(); c.cause != nil {
					d.runs["r1"].cancel(c.cause)
				}
			})
			if say(got) != c.want {
				t.Errorf("%s: %q, want %q", name, say(got), c.want)
			}
			synctest.Wait()
		})
	}
}

// Jobs of one verb run beside each other, also those that a clock made; a cron job's runs do not.
func TestJobsOfAVerbOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		d := newDesk(Config{
			Module: module, Capacity: 10, Grace: time.Second, Log: quiet,
			Verbs: Verbs{"verb": Plain(func(context.Context) error { <-open; return nil })},
		}, func() string { return "d1" })
		defer close(d.over)
		answers := make(chan *carillonv1.CallResponse, 10)
		for i, job := range []string{"j1", "j2", "", "", "j3"} {
			d.take(waiter{id: uint64(i), tell: func(r *carillonv1.CallResponse) { answers <- r }},
				&carillonv1.CallRequest{RunId: fmt.Sprint("r", i), Ref: "m.verb", Deployment: "d1", Slot: timestamppb.Now(), JobId: job})
		}
		if got := <-answers; got.GetRunId() != "r3" || got.GetError() != "previous run still executing" {
			t.Errorf("got %v", got)
		}
		close(open)
		for range 4 {
			if got := <-answers; got.GetOutcome() != carillonv1.Outcome_OUTCOME_SUCCEEDED {
				t.Errorf("got %v", got)
			}
		}
		synctest.Wait()
		if len(d.runs) != 0 || len(d.refs) != 0 {
			t.Errorf("%d runs and %v are left", len(d.runs), d.refs)
		}
	})
}

func TestVerbKnowsItsJob(t *testing.T) {
	verb := Gives(func(ctx context.Context) (string, error) {
		run, ok := RunFrom(ctx)
		return fmt.Sprint(ok, " ", run.Job, " ", run.Tenant, " ", run.Attempt), nil
	})
	var got string
	resp := answerOf(t, verb, &carillonv1.CallRequest{JobId: "j1", Tenant: "acme", Attempt: 3}, nil)
	if err := json.Unmarshal(resp.GetPayload(), &got); err != nil || got != "true j1 acme 3" {
		t.Errorf("%q, %v", got, err)
	}
}
