package dispatch_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon"
	"carillon/backend/core/cron"
	"carillon/backend/engine/dispatch"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
)

func TestPartitionEndsCallsOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		type end struct {
			cause error
			at    time.Time
		}
		ended := make(chan end, 1)
		door, _ := s.serve("runner-1", plain{"wait": func(ctx context.Context) error {
			<-ctx.Done()
			ended <- end{context.Cause(ctx), time.Now()}
			return ctx.Err()
		}})
		out := s.start(call("wait"))
		<-time.After(10 * time.Second) // pings keep it alive
		begun := time.Now()
		door.cut.Store(true)
		got := <-out
		if took := time.Since(begun); got.Verdict != cron.Failed || took > 5*time.Second ||
			!strings.HasPrefix(got.Error, "runner runner-1 went away: ") || !got.Sent {
			t.Errorf("%+v after %s", got, took)
		}
		e := <-ended
		if took := e.at.Sub(begun); took > 5*time.Second || e.cause == nil {
			t.Errorf("the verb ended after %s: %v", took, e.cause)
		}
		door.cut.Store(false)
		c := call("wait")
		c.Timeout = time.Second
		c.GiveUp = time.Second
		deadline := time.Now().Add(30 * time.Second)
		for s.Stats().Streams == 0 && time.Now().Before(deadline) {
			<-time.After(100 * time.Millisecond)
		}
		if o := s.Call(t.Context(), c); o.Verdict != cron.TimedOut {
			t.Errorf("after the partition: %+v", o)
		}
	})
}

func TestSilentControllerLosesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{Beat: time.Hour, Silence: 24 * time.Hour}) // never pings
		causes := make(chan error, 1)
		s.serve("runner-1", plain{"wait": func(ctx context.Context) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}})
		begun := time.Now()
		out := s.start(call("wait"))
		if cause := <-causes; cause == nil || cause.Error() != "the controller fell silent" || time.Since(begun) != 4*time.Second {
			t.Errorf("cancelled after %s: %v", time.Since(begun), cause)
		}
		if o := <-out; o.Verdict != cron.Failed || !strings.Contains(o.Error, "runner-1 went away: ") {
			t.Errorf("%+v", o)
		}
	})
}

func TestDeadRunnerEndsItsCallsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		first, _ := s.serve("runner-1", plain{"wait": wait})
		out := s.start(call("wait"))
		synctest.Wait()
		s.serve("runner-2", plain{"wait": wait, "beat": nothing})
		other := s.start(call("wait"))
		synctest.Wait()
		first.kill()
		if o := <-out; o.Verdict != cron.Failed || !strings.HasPrefix(o.Error, "runner runner-1 went away: ") {
			t.Errorf("%+v", o)
		}
		for range 10 {
			if o := s.Call(t.Context(), call("beat")); o.Runner != "runner-2" || o.Verdict != cron.Succeeded {
				t.Errorf("%+v", o)
			}
		}
		if o := <-other; o.Verdict != cron.TimedOut {
			t.Errorf("the neighbour: %+v", o)
		}
	})
}

func TestDrainFinishesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		slow := func(ctx context.Context) error {
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		verbs := plain{"slow": slow, "wait": wait, "beat": nothing}
		_, stop := s.serve("runner-1", verbs)
		finishes, cancelled := s.start(call("slow")), s.start(call("wait"))
		synctest.Wait()
		stop()
		begun := time.Now()
		synctest.Wait()
		waits := s.start(call("beat"))
		want(t, "what runs", <-finishes, cron.Succeeded, "")
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("it took %s", took)
		}
		s.serve("runner-2", verbs)
		if o := <-waits; o.Verdict != cron.Succeeded || o.Runner != "runner-2" {
			t.Errorf("what came late: %+v", o)
		}
		if o := <-cancelled; o.Verdict != cron.Cancelled || !strings.HasPrefix(o.Error, "the runner stops") || time.Since(begun) != 25*time.Second {
			t.Errorf("what did not finish: %+v after %s", o, time.Since(begun))
		}
	})
}

func TestRunnerThatLeftFinishesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		stubborn, open := gate()
		s.serve("runner-1", plain{"stubborn": stubborn, "beat": nothing})
		out := s.start(call("stubborn"))
		synctest.Wait()
		s.SetRunners(nil)
		synctest.Wait()
		if o := s.Call(t.Context(), call("beat")); o.Error != "no runner of deployment d1" {
			t.Errorf("%+v", o)
		}
		open()
		want(t, "what ran", <-out, cron.Succeeded, "")
		synctest.Wait()
		if st := s.Stats(); st.Streams != 0 || st.Runners != 0 {
			t.Errorf("the stream stays: %+v", st)
		}
	})
}

func TestWrongTokenRunsNothing(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, dispatch.Config{Token: "wrong"})
			s.serve("runner-1", plain{"beat": func(context.Context) error { t.Error("it ran"); return nil }},
				func(c *carillon.Config, r *dispatch.Runner) { c.Token, r.Stream = "right", stream })
			if o := s.Call(t.Context(), call("beat")); o.Verdict != cron.Failed || !strings.Contains(o.Error, "unauthenticated") {
				t.Errorf("%+v", o)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{Token: "right"})
		s.serve("runner-1", plain{"beat": nothing}, func(c *carillon.Config, r *dispatch.Runner) { c.Token = "right" })
		want(t, "right token", s.Call(t.Context(), call("beat")), cron.Succeeded, "")
	})
}

func TestRefusedCallGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		full, open := gate()
		small := func(c *carillon.Config, r *dispatch.Runner) { c.Capacity, r.Capacity, r.Stream = 1, 100, false } // it lies
		s.serve("runner-1", plain{"full": full, "beat": nothing}, small)
		out := s.start(call("full"))
		synctest.Wait()
		c := call("beat")
		c.GiveUp = 2 * time.Second
		if o := s.Call(t.Context(), c); o.Error != "no runner of deployment d1: runner runner-1: refused: no capacity" {
			t.Errorf("%+v", o)
		}
		again := s.start(call("beat"))
		s.serve("runner-2", plain{"full": full, "beat": nothing})
		if o := <-again; o.Runner != "runner-2" || o.Verdict != cron.Succeeded {
			t.Errorf("%+v", o)
		}
		open()
		want(t, "first", <-out, cron.Succeeded, "")
	})
}

func TestRepeatedCallRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		count, open := 0, make(chan struct{})
		s.serve("runner-1", plain{"count": func(context.Context) error { count++; <-open; return errors.New("x") }})
		via := &http.Transport{DialContext: s.link.dial}
		defer via.CloseIdleConnections()
		client := carillonv1connect.NewVerbServiceClient(&http.Client{Transport: via}, "http://runner-1:80")
		c := call("count")
		req := &carillonv1.CallRequest{RunId: c.Run.String(), Ref: c.Ref, Deployment: "d1"}
		outs := make(chan *carillonv1.CallResponse, 2)
		for range 2 {
			go func() {
				resp, err := client.Call(t.Context(), req)
				if err != nil {
					t.Error(err)
				}
				outs <- resp
			}()
		}
		synctest.Wait()
		close(open)
		resp, err := client.Call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*carillonv1.CallResponse{resp, <-outs, <-outs} {
			if r.GetOutcome() != carillonv1.Outcome_OUTCOME_FAILED || r.GetError() != "x" {
				t.Errorf("answer %v", r)
			}
		}
		if count != 1 {
			t.Errorf("the verb ran %d times", count)
		}
		if resp, err = client.Call(t.Context(), &carillonv1.CallRequest{RunId: "r", Ref: "m.count", Deployment: "d2"}); err != nil || resp.GetOutcome() != carillonv1.Outcome_OUTCOME_REFUSED {
			t.Errorf("another deployment: %v %v", resp, err)
		}
	})
}

// fake is a runner that does what its functions do.
type fake struct {
	attach func(context.Context, *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse]) error
	call   func(context.Context, *carillonv1.CallRequest) (*carillonv1.CallResponse, error)
}

func (f fake) Attach(ctx context.Context, s *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse]) error {
	return f.attach(ctx, s)
}

func (f fake) Call(ctx context.Context, r *carillonv1.CallRequest) (*carillonv1.CallResponse, error) {
	return f.call(ctx, r)
}

// play serves h as runner-1.
func (s *stage) play(h http.Handler, stream bool) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	d := s.link.listen("runner-1:80")
	server := &http.Server{Handler: h, Protocols: protocols}
	s.parts.Go(func() { server.Serve(d) })
	s.t.Cleanup(func() { server.Close(); d.kill() })
	s.know(dispatch.Runner{Key: "runner-1", Endpoint: "http://runner-1:80", Deployment: "d1", Capacity: 100, Stream: stream})
}

func welcome(s *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse]) *carillonv1.AttachRequest {
	if _, err := s.Receive(); err != nil {
		return nil
	}
	credits := uint32(1 << 31)
	s.Send(&carillonv1.AttachResponse{
		Welcome: &carillonv1.AttachResponse_Welcome{Runner: "runner-1", Deployment: "d1", Capacity: 1}, Credits: &credits,
	})
	for {
		msg, err := s.Receive()
		if err != nil || len(msg.GetCalls()) > 0 {
			return msg
		}
		s.Send(&carillonv1.AttachResponse{Pong: msg.GetPing()})
	}
}

func TestBadRunnersFailTheirCalls(t *testing.T) {
	type stream = *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse]
	answer := func(s stream, resp *carillonv1.CallResponse) error {
		if welcome(s) == nil {
			return nil
		}
		return s.Send(&carillonv1.AttachResponse{Outcomes: []*carillonv1.CallResponse{resp}})
	}
	streams := map[string]struct {
		attach func(context.Context, stream) error
		want   string
	}{
		"goes away": {func(_ context.Context, s stream) error { welcome(s); return nil }, "runner runner-1 went away: it closed its stream"},
		"too large": {func(_ context.Context, s stream) error {
			return answer(s, &carillonv1.CallResponse{Payload: make([]byte, 5<<20)})
		}, "runner runner-1 went away: resource_exhausted"},
		"large result": {func(_ context.Context, s stream) error {
			msg := welcome(s)
			return errors.Join(s.Send(&carillonv1.AttachResponse{Outcomes: []*carillonv1.CallResponse{{
				RunId: msg.GetCalls()[0].GetRunId(), Outcome: carillonv1.Outcome_OUTCOME_SUCCEEDED, Payload: make([]byte, 2<<20),
			}}}))
		}, "the response of 2097152 bytes is larger than 1048576"},
		"unknown outcome": {func(_ context.Context, s stream) error {
			msg := welcome(s)
			return s.Send(&carillonv1.AttachResponse{Outcomes: []*carillonv1.CallResponse{{RunId: msg.GetCalls()[0].GetRunId(), Outcome: 77}}})
		}, "the runner answered the unknown outcome 77"},
		"unknown runs": {func(_ context.Context, s stream) error {
			return answer(s, &carillonv1.CallResponse{RunId: "nonsense", Outcome: carillonv1.Outcome_OUTCOME_SUCCEEDED})
		}, "runner runner-1 went away: it closed its stream"},
		"hangs":        {func(ctx context.Context, s stream) error { welcome(s); <-ctx.Done(); return nil }, "runner runner-1 went away: no answer to a ping"},
		"never greets": {func(ctx context.Context, _ stream) error { <-ctx.Done(); return nil }, "no runner of deployment d1: runner runner-1: "},
		"another": {func(_ context.Context, s stream) error {
			return s.Send(&carillonv1.AttachResponse{Welcome: &carillonv1.AttachResponse_Welcome{Runner: "x\xc3\xa9"}})
		}, `no runner of deployment d1: runner runner-1: runner "xé" answers in its place`},
		"not a welcome": {func(_ context.Context, s stream) error { return s.Send(&carillonv1.AttachResponse{Pong: 1}) }, "no runner of deployment d1: runner runner-1: its first message is no welcome"},
		"panics":        {func(context.Context, stream) error { panic(http.ErrAbortHandler) }, "no runner of deployment d1: runner runner-1: "},
	}
	for name, c := range streams {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, dispatch.Config{})
				_, h := carillonv1connect.NewVerbServiceHandler(fake{attach: c.attach})
				s.play(h, true)
				if o := s.Call(t.Context(), call("beat")); o.Verdict != cron.Failed || !strings.HasPrefix(o.Error, c.want) {
					t.Errorf("got %s %q, want failed %q", o.Verdict, o.Error, c.want)
				}
			})
		})
	}
	raw := map[string]struct {
		handler http.HandlerFunc
		stream  bool
		verdict cron.Verdict
	}{
		"garbage on the stream": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/connect+proto")
			io.WriteString(w, "\x00\x00\x00\x00\x05garbage, plenty of it")
		}, true, cron.Failed},
		"a web page": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, false, cron.Failed},
		"garbage": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			io.WriteString(w, "\xff\xff")
		}, false, cron.Failed},
		"hung headers":    {func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() }, false, cron.TimedOut},
		"a redirect":      {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://elsewhere/", 307) }, false, cron.Failed},
		"endless headers": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, false, cron.Failed},
		"an endless body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			for b := make([]byte, 1<<16); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		}, false, cron.Failed},
	}
	for name, c := range raw {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, dispatch.Config{})
				s.play(c.handler, c.stream)
				if o := s.Call(t.Context(), call("beat")); o.Verdict != c.verdict || o.Error == "" {
					t.Errorf("got %+v, want %s", o, c.verdict)
				}
			})
		})
	}
}

func TestSimpleRunnerHearsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{Token: "secret"})
		var got http.Header
		_, h := carillonv1connect.NewVerbServiceHandler(fake{call: func(context.Context, *carillonv1.CallRequest) (*carillonv1.CallResponse, error) {
			return &carillonv1.CallResponse{Outcome: carillonv1.Outcome_OUTCOME_SUCCEEDED, Payload: []byte("1")}, nil
		}})
		s.play(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header.Clone(); h.ServeHTTP(w, r) }), false)
		c := call("beat")
		c.Traceparent = "00-11111111111111111111111111111111-2222222222222222-01"
		deadline := time.Now().Add(c.Timeout).UTC().Format(time.RFC3339Nano)
		if o := s.Call(t.Context(), c); o.Verdict != cron.Succeeded || string(o.Payload) != "1" {
			t.Errorf("%+v", o)
		}
		for name, value := range map[string]string{
			"Carillon-Run-Id": c.Run.String(), "Carillon-Slot": "2023-11-14T22:13:20Z", "Carillon-Attempt": "1",
			"Carillon-Deadline": deadline, "Idempotency-Key": c.IdempotencyKey, "Traceparent": c.Traceparent,
			"Carillon-Request-Key": "cron-m.beat-" + c.Run.String(), "Authorization": "Bearer secret", "Accept-Encoding": "identity",
		} {
			if got.Get(name) != value {
				t.Errorf("header %s: got %q, want %q", name, got.Get(name), value)
			}
		}
	})
}

func TestUnsentCallWaitsForAnotherRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		s.know(dispatch.Runner{Key: "runner-0", Endpoint: "http://nowhere:80", Deployment: "d1", Capacity: 10})
		out := s.start(call("beat"))
		synctest.Wait()
		s.serve("runner-2", plain{"beat": nothing})
		if o := <-out; o.Verdict != cron.Succeeded || o.Runner != "runner-2" {
			t.Errorf("%+v", o)
		}
	})
}
