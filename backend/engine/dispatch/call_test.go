package dispatch_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon"
	"carillon/backend/core/cron"
	"carillon/backend/engine/dispatch"
)

// wait is a verb that ends with its context.
func wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// gate is a verb that goes on until it is opened, whatever its context says.
func gate() (verb func(context.Context) error, open func()) {
	c := make(chan struct{})
	return func(context.Context) error { <-c; return nil }, func() { close(c) }
}

func nothing(context.Context) error { return nil }

func TestVerbRunsWithItsRun(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, dispatch.Config{})
			var got carillon.Run
			var left time.Duration
			s.serve("runner-1", plain{"beat": func(ctx context.Context) error {
				got, _ = carillon.RunFrom(ctx)
				at, _ := ctx.Deadline()
				left = time.Until(at)
				return nil
			}}, func(_ *carillon.Config, r *dispatch.Runner) { r.Stream = stream })
			c := call("beat")
			c.Traceparent = "00-11111111111111111111111111111111-2222222222222222-01"
			out := s.Call(t.Context(), c)
			want(t, "beat", out, cron.Succeeded, "")
			if !out.Sent || out.Runner != "runner-1" {
				t.Errorf("outcome %+v does not name its runner", out)
			}
			if got.ID != c.Run.String() || got.Ref != c.Ref || !got.Slot.Equal(c.Slot) || got.Attempt != 1 ||
				got.IdempotencyKey != c.IdempotencyKey || got.Traceparent != c.Traceparent || left != c.Timeout {
				t.Errorf("the verb saw %+v with %s left of %+v", got, left, c)
			}
		})
	}
}

func TestFailuresAreVerdicts(t *testing.T) {
	var nobody *strings.Builder
	verbs := plain{
		"fails":  func(context.Context) error { return errors.New("no luck\x00\xff") },
		"panics": func(context.Context) error { panic("oh") },
		"nil":    func(context.Context) error { nobody.WriteString("x"); return nil },
		"exits":  func(context.Context) error { runtime.Goexit(); return nil },
		"long":   func(context.Context) error { return errors.New(strings.Repeat("é", 20_000)) },
		"error":  func(context.Context) error { return new(rude) },
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		s.serve("runner-1", verbs)
		for verb, text := range map[string]string{
			"fails":  "no luck ?",
			"panics": "panic: oh",
			"nil":    "panic: runtime error: invalid memory address or nil pointer dereference",
			"exits":  "the verb ended its goroutine",
			"long":   strings.Repeat("é", 4096),
			"error":  "panic: rude",
			"other":  "unknown verb m.other",
		} {
			want(t, verb, s.Call(t.Context(), call(verb)), cron.Failed, text)
		}
	})
}

type rude struct{}

func (*rude) Error() string { panic("rude") }

func TestTimeoutEndsTheCall(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, dispatch.Config{})
			stubborn, open := gate()
			s.serve("runner-1", plain{"wait": wait, "stubborn": stubborn},
				func(_ *carillon.Config, r *dispatch.Runner) { r.Stream = stream })
			begun := time.Now()
			out := s.Call(t.Context(), call("wait"))
			if out.Verdict != cron.TimedOut || time.Since(begun) != time.Minute {
				t.Errorf("stream %v: wait: %+v after %s", stream, out, time.Since(begun))
			}
			begun = time.Now()
			out = s.Call(t.Context(), call("stubborn"))
			if out.Verdict != cron.TimedOut || time.Since(begun) > 63*time.Second {
				t.Errorf("stream %v: stubborn: %+v after %s", stream, out, time.Since(begun))
			}
			want(t, "the next one", s.Call(t.Context(), call("stubborn")), cron.Failed, "previous run still executing")
			open()
			synctest.Wait()
			want(t, "afterwards", s.Call(t.Context(), call("stubborn")), cron.Succeeded, "")
		})
	}
}

func TestCancelEndsTheCall(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, dispatch.Config{})
			causes := make(chan error, 1)
			s.serve("runner-1", plain{
				"wait": func(ctx context.Context) error { <-ctx.Done(); causes <- context.Cause(ctx); return ctx.Err() },
			}, func(_ *carillon.Config, r *dispatch.Runner) { r.Stream = stream })
			c := call("wait")
			out := s.start(c)
			synctest.Wait()
			if !s.Cancel(c.Run, "enough") {
				t.Error("the run is not known")
			}
			want(t, "cancel", <-out, cron.Cancelled, "enough")
			if cause := <-causes; cause == nil || !strings.Contains(cause.Error(), "controller") {
				t.Errorf("the verb saw the cause %v", cause)
			}
			elsewhere := call("wait")
			elsewhere.Deployment = "d2"
			unsent := s.start(elsewhere)
			out = s.start(call("wait"))
			synctest.Wait()
			if n := s.CancelAll("fenced"); n != 2 {
				t.Errorf("CancelAll ended %d calls, want 2", n)
			}
			want(t, "fence", <-out, cron.Cancelled, "fenced")
			want(t, "fence of an unsent one", <-unsent, cron.Cancelled, "fenced")
			if s.Cancel(c.Run, "again") {
				t.Error("an ended run is still known")
			}
		})
	}
}

func TestCapacityIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		verbs := plain{}
		var names []string
		for i := range 50 {
			names = append(names, "v"+string(rune('A'+i)))
			verbs[names[i]] = func(context.Context) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				<-time.After(time.Second)
				mu.Lock()
				now--
				mu.Unlock()
				return nil
			}
		}
		s := newStage(t, dispatch.Config{})
		s.serve("runner-1", verbs, func(c *carillon.Config, r *dispatch.Runner) { c.Capacity, r.Capacity = 5, 5 })
		other := dispatch.New(dispatch.Config{Controller: "c2", Dial: s.link.dial, Log: quiet})
		s.parts.Go(func() { other.Run(s.ctx) })
		other.SetRunners(s.runners)
		synctest.Wait()
		<-time.After(time.Second) // both have their levels
		var outs []<-chan dispatch.Outcome
		begun := time.Now()
		for i, name := range names {
			c := call(name)
			c.GiveUp = 50 * time.Second
			d := s.Dispatcher
			if i%2 == 1 {
				d = other
			}
			out := make(chan dispatch.Outcome, 1)
			d.Dispatch(c, func(o dispatch.Outcome) { out <- o })
			outs = append(outs, out)
		}
		for _, out := range outs {
			want(t, "call", <-out, cron.Succeeded, "")
		}
		if most != 5 {
			t.Errorf("%d verbs at once on a runner of capacity 5", most)
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("50 verbs of a second took %s at capacity 5", took)
		}
	})
}

func TestHerdOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		sleep := func(context.Context) error { <-time.After(100 * time.Millisecond); return nil }
		for _, key := range []string{"runner-1", "runner-2", "runner-3"} {
			s.serve(key, plain{"sleep": sleep}, func(c *carillon.Config, r *dispatch.Runner) { c.Capacity, r.Capacity = 1000, 1000 })
		}
		outs := make(chan dispatch.Outcome, 10_000)
		for range cap(outs) {
			c := call("sleep")
			c.Slot = time.Time{} // of no slot, so that many run at once
			s.Dispatch(c, func(o dispatch.Outcome) { outs <- o })
		}
		by := map[string]int{}
		for range cap(outs) {
			o := <-outs
			if o.Verdict != cron.Succeeded {
				t.Fatalf("%+v", o)
			}
			by[o.Runner]++
		}
		for key, n := range by {
			if n < 2500 {
				t.Errorf("%s had %d of 10,000 calls", key, n)
			}
		}
		if st := s.Stats(); st.InFlight != 0 || st.Waiting != 0 || st.Sent < 10_000 || st.Streams != 3 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestNoRunnerIsSaidInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{MaxWaiting: 2})
		begun := time.Now()
		c := call("beat")
		c.GiveUp = 3 * time.Second
		out, second := s.start(c), s.start(call("beat"))
		want(t, "one too many", <-s.start(call("beat")), cron.Failed, "too many calls wait for a runner of deployment d1")
		want(t, "the same run", <-s.start(c), cron.Failed, "this run is in flight already")
		got := <-out
		want(t, "nobody", got, cron.Failed, "no runner of deployment d1")
		if took := time.Since(begun); took != 3*time.Second || got.Sent {
			t.Errorf("said after %s, sent %v", took, got.Sent)
		}
		s.serve("runner-1", plain{"beat": nothing})
		want(t, "a runner came", <-second, cron.Succeeded, "")
	})
}

func TestMalformedCallHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		s.serve("runner-1", plain{"beat": nothing, "wait": wait})
		neighbour := call("wait")
		out := s.start(neighbour)
		bad := call("beat")
		bad.IdempotencyKey = "\xff"
		want(t, "no text", s.Call(t.Context(), bad), cron.Failed, "the call holds a text that is too long or no text")
		large := call("beat")
		large.Payload = make([]byte, 2<<20)
		want(t, "too large", s.Call(t.Context(), large), cron.Failed, "the request of 2097152 bytes is larger than 1048576")
		if o := s.Call(t.Context(), dispatch.Call{}); o.Verdict != cron.Failed {
			t.Errorf("empty call: %+v", o)
		}
		s.Cancel(neighbour.Run, "done")
		want(t, "neighbour", <-out, cron.Cancelled, "done")
	})
}

func TestOutcomesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		s.serve("runner-1", plain{"wait": wait})
		nowhere := call("wait")
		nowhere.Deployment = "d2"
		outs := []<-chan dispatch.Outcome{s.start(call("wait")), s.start(nowhere)}
		synctest.Wait()
		s.stop()
		for _, out := range outs {
			want(t, "stopped", <-out, cron.Cancelled, "the controller stops")
		}
		want(t, "too late", <-s.start(call("wait")), cron.Cancelled, "the controller stops")
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		s.serve("runner-1", plain{"wait": wait})
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no patience"))
		defer stop()
		want(t, "call", s.Call(ctx, call("wait")), cron.Cancelled, "no patience")
	})
}
