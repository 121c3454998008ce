package carillon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	ready     = carillonv1.JobState_JOB_STATE_READY
	running   = carillonv1.JobState_JOB_STATE_RUNNING
	succeeded = carillonv1.JobState_JOB_STATE_SUCCEEDED
	failed    = carillonv1.JobState_JOB_STATE_FAILED
)

// script answers watches one after the other: a nil job is an empty message; after each list the stream ends with its
// error.
func (o *office) script(watches ...any) {
	o.watching = func(stream *connect.ServerStream[carillonv1.WatchJobResponse]) error {
		if len(watches) == 0 {
			o.t.Error("one watch too many")
			return connect.NewError(connect.CodeInternal, errors.New("no more"))
		}
		next := watches[0]
		watches = watches[1:]
		if err, is := next.(error); is {
			return err
		}
		for _, j := range next.([]*carillonv1.Job) {
			if err := stream.Send(&carillonv1.WatchJobResponse{Job: j}); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestWatchTellsChangesUntilTheEnd(t *testing.T) {
	a := &carillonv1.Job{Id: "j1", State: ready}
	b := &carillonv1.Job{Id: "j1", State: running, Progress: "half"}
	e := &carillonv1.Job{Id: "j1", State: succeeded}
	for name, c := range map[string]struct {
		watches []any
		want    string
	}{
		"at once":          {[]any{[]*carillonv1.Job{e}}, "succeeded"},
		"in one watch":     {[]any{[]*carillonv1.Job{a, nil, b, b, nil, e}}, "ready runninghalf succeeded"},
		"over three":       {[]any{[]*carillonv1.Job{a}, []*carillonv1.Job{a, b}, []*carillonv1.Job{b, e}}, "ready runninghalf succeeded"},
		"one goes away":    {[]any{[]*carillonv1.Job{a}, unavailable(), []*carillonv1.Job{e}}, "ready succeeded"},
		"no such job":      {[]any{connect.NewError(connect.CodeNotFound, errors.New("no such job"))}, "watch job j1: not_found: no such job"},
		"too many watches": {[]any{connect.NewError(connect.CodeResourceExhausted, errors.New("full")), []*carillonv1.Job{b, e}}, "ready runninghalf succeeded"},
	} {
		o, url := newOffice(t)
		o.jobs["j1"] = a
		o.script(c.watches...)
		var got []string
		for j, err := range clientOf(t, url).Watch(t.Context(), "j1") {
			if err != nil {
				got = append(got, err.Error())
				continue
			}
			got = append(got, string(j.State)+j.Progress)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWatchEndsWithItsReader(t *testing.T) {
	o, url := newOffice(t)
	o.script([]*carillonv1.Job{{Id: "j1", State: ready}, {Id: "j1", State: succeeded}})
	for range clientOf(t, url).Watch(t.Context(), "j1") {
		break
	}
	gone := clientOf(t, nobody(t), WithPatience(100*time.Millisecond))
	n := 0
	for _, err := range gone.Watch(t.Context(), "j1") {
		if n++; err == nil || !strings.Contains(err.Error(), "no controller answers") {
			t.Errorf("nobody is there: %v", err)
		}
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("no patience"))
	for _, err := range gone.Watch(ctx, "j1") {
		if n++; err == nil || err.Error() != "watch job j1: no patience" {
			t.Errorf("its context is over: %v", err)
		}
	}
	if n != 2 {
		t.Errorf("%d errors", n)
	}
}

func TestWaitGivesTheResponse(t *testing.T) {
	o, url := newOffice(t)
	c := clientOf(t, url)
	ctx := WithClient(t.Context(), c)
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	o.jobs["j1"] = &carillonv1.Job{Id: "j1", Ref: "m.send", State: succeeded, Output: []byte(`{"id":"r1"}`)}
	o.jobs["j2"] = &carillonv1.Job{Id: "j2", Ref: "m.send", State: succeeded}
	o.jobs["j3"] = &carillonv1.Job{Id: "j3", Ref: "m.send", State: failed, Errors: []*carillonv1.JobError{
		{Text: "first"}, {At: timestamppb.New(at), Attempt: 2, RunId: "r2", Verdict: "failed", Text: "no luck"},
	}}
	o.jobs["j4"] = &carillonv1.Job{Id: "j4", Ref: "m.send", State: carillonv1.JobState_JOB_STATE_CANCELLED}
	o.jobs["j5"] = &carillonv1.Job{Id: "j5", Ref: "m.send", State: succeeded, Output: []byte(`{"id":7}`)}
	if r, err := Wait[receipt](ctx, nil, "j1"); err != nil || r.ID != "r1" {
		t.Errorf("%+v, %v", r, err)
	}
	o.script([]*carillonv1.Job{{Id: "j1", State: ready}, {Id: "j1", State: running}}, []*carillonv1.Job{o.jobs["j1"]})
	if r, err := Wait[receipt](ctx, c, "j1"); err != nil || r.ID != "r1" {
		t.Errorf("after a while: %+v, %v", r, err)
	}
	o.watching = nil
	if _, err := Wait[Unit](ctx, c, "j1"); err != nil {
		t.Errorf("not interested: %v", err)
	}
	if _, err := Wait[Unit](ctx, c, "j2"); err != nil {
		t.Errorf("unit: %v", err)
	}
	if r, err := Wait[*receipt](ctx, c, "j2"); err != nil || r != nil {
		t.Errorf("nil: %v, %v", r, err)
	}
	if _, err := Wait[receipt](ctx, c, "j2"); err == nil || err.Error() != "job j2 (m.send): response: it succeeded without one" {
		t.Errorf("no response: %v", err)
	}
	if _, err := Wait[receipt](ctx, c, "j5"); err == nil || err.Error() != "job j5 (m.send): response.id: cannot take number as string" {
		t.Errorf("wrong response: %v", err)
	}
	_, err := Wait[receipt](ctx, c, "j3")
	want := JobError{ID: "j3", Ref: "m.send", State: JobFailed, Last: Failure{At: at, Attempt: 2, Run: "r2", Verdict: "failed", Text: "no luck"}}
	if e := (*JobError)(nil); !errors.As(err, &e) || *e != want || err.Error() != "job j3 (m.send) failed: no luck" {
		t.Errorf("dead: %v", err)
	}
	if _, err := Wait[receipt](ctx, c, "j4"); err == nil || err.Error() != "job j4 (m.send) cancelled" {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Wait[receipt](ctx, c, "j9"); !errors.Is(err, ErrNotFound) {
		t.Errorf("nowhere: %v", err)
	}
}

func TestJobsAreLookedUpAndSteered(t *testing.T) {
	o, url := newOffice(t)
	c := clientOf(t, url)
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	stamp := timestamppb.New(at)
	second, minute := durationpb.New(time.Second), durationpb.New(time.Minute)
	o.jobs["j1"] = &carillonv1.Job{
		Id: "j1", Tenant: "acme", Ref: "m.send", State: running, Priority: 7, DueAt: stamp, CreatedAt: stamp, StartedAt: stamp, EndedAt: stamp,
		ExpiresAt: stamp, Slot: stamp, Attempt: 2, MaxAttempts: 3, Backoff: second, BackoffCeiling: minute, Timeout: minute, RunId: "r1",
		Controller: "c1", Children: 4, Progress: "half", Tags: []string{"a"}, Payload: []byte(`1`), Output: []byte(`2`), CancelAsked: true,
		Errors: []*carillonv1.JobError{{Text: "no"}},
	}
	o.faults = []func() error{unavailable, unavailable} // looking may be repeated
	got, err := c.Job(t.Context(), "j1")
	want := Job{
		ID: "j1", Tenant: "acme", Ref: "m.send", State: JobRunning, Priority: 7, Due: at, Created: at, Started: at, Ended: at, Expires: at, Slot: at,
		Attempt: 2, Attempts: 3, Backoff: time.Second, Ceiling: time.Minute, Timeout: time.Minute, Run: "r1", Controller: "c1", Children: 4,
		Progress: "half", Tags: []string{"a"}, Payload: []byte(`1`), Output: []byte(`2`), CancelAsked: true, Errors: []Failure{{Text: "no"}},
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || err != nil {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if _, err := c.Job(t.Context(), "j9"); !errors.Is(err, ErrNotFound) || err.Error() != "look up job j9: not_found: no such job" {
		t.Errorf("nowhere: %v", err)
	}
	if _, err := c.Retry(t.Context(), "j1"); err == nil || err.Error() != "retry job j1: failed_precondition: it is not dead" {
		t.Errorf("retry: %v", err)
	}
	o.faults, o.requests = []func() error{unavailable}, 0
	if _, err := c.Cancel(t.Context(), "j1", "why"); err == nil || o.requests != 1 {
		t.Errorf("a cancel that may have been done is not repeated: %v after %d", err, o.requests)
	}
	if state, err := c.Cancel(t.Context(), "j1", "why"); err != nil || state != JobCancelled || o.jobs["j1"].GetProgress() != "why" {
		t.Errorf("cancel: %s, %v", state, err)
	}
	if j, err := c.Retry(t.Context(), "j1"); err != nil || j.ID != "j1" {
		t.Errorf("retry: %+v, %v", j, err)
	}
	for i := 2; i < 8; i++ {
		o.jobs[fmt.Sprint("j", i)] = &carillonv1.Job{Id: fmt.Sprint("j", i), State: ready}
	}
	var ids []string
	for j, err := range c.Jobs(t.Context(), JobFilter{States: []JobState{JobReady, JobBlocked}}) {
		if ids = append(ids, string(j.ID)); err != nil || len(ids) == 5 {
			break
		}
	}
	if !slices.Equal(ids, []string{"j2", "j3", "j4", "j5", "j6"}) {
		t.Errorf("listed %v", ids)
	}
	for _, err := range c.Jobs(t.Context(), JobFilter{States: []JobState{"sleepy"}}) {
		if err == nil || err.Error() != `list jobs: "sleepy" is no state` {
			t.Errorf("no state: %v", err)
		}
	}
}

// A verb works with jobs through its runner: with the cluster's token, at the controllers that the runner knows.
func TestVerbsEnqueueThroughTheirRunner(t *testing.T) {
	o, url := newOffice(t)
	m := meeting{endpoint: make(chan string, 1), gone: make(chan string, 1), live: make(chan string, 1)}
	_, runners := carillonv1connect.NewRunnerServiceHandler(m)
	mux := http.NewServeMux()
	mux.Handle("/carillon.v1.RunnerService/", runners)
	mux.HandleFunc("/carillon.v1.JobService/", func(w http.ResponseWriter, r *http.Request) {
		connect.NewErrorWriter().Write(w, r, unavailable())
	})
	controller := httptest.NewServer(mux)
	defer controller.Close()
	m.live <- controller.URL + "," + url // the second is known by the registration's answer alone
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, Config{
			Module: module, Token: token, Log: quiet, Controllers: []string{controller.URL},
			Verbs: Verbs{"fan": Func(func(ctx context.Context, n int) (int, error) {
				for i := range n {
					if _, err := Enqueue(ctx, nil, "m.one", i, Child()); err != nil {
						return 0, err
					}
				}
				children, err := Children(ctx)
				return len(children), err
			})},
		})
	}()
	verbs := carillonv1connect.NewVerbServiceClient(&http.Client{Transport: bearer{token: token, next: http.DefaultTransport}}, <-m.endpoint)
	req := &carillonv1.CallRequest{RunId: "r1", Ref: "m.fan", Deployment: "d1", JobId: "j77", Tenant: "acme", Payload: []byte("3")}
	resp, err := verbs.Call(t.Context(), req)
	for err == nil && resp.GetOutcome() == carillonv1.Outcome_OUTCOME_REFUSED { // it has not heard yet that it is registered
		resp, err = verbs.Call(t.Context(), req)
	}
	if err != nil || string(resp.GetPayload()) != "3" || len(o.asked) != 3 || o.asked[0].GetParentRunId() != "r1" || o.asked[0].GetTenant() != "acme" {
		t.Errorf("%v, %v; asked for %v", resp, err, o.asked)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
