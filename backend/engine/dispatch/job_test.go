package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon"
	"carillon/backend/core/cron"
	"carillon/backend/engine/dispatch"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// jobCall is a call of a job's run: it has no slot.
func jobCall(verb string) dispatch.Call {
	c := call(verb)
	c.Slot, c.Kind, c.Job, c.Tenant, c.IdempotencyKey = time.Time{}, "", "j1", "acme", "j1"
	return c
}

func TestJobsTellWhatTheyAskFor(t *testing.T) {
	verbs := carillon.Verbs{
		"echo": carillon.Func(func(_ context.Context, q map[string]int) (map[string]int, error) { q["b"] = q["a"] + 1; return q, nil }),
		"later": carillon.Plain(func(context.Context) error {
			return fmt.Errorf("busy: %w", carillon.RetryAfter(time.Minute, errors.New("429")))
		}),
		"snooze": carillon.Plain(func(context.Context) error { return carillon.Snooze(time.Hour) }),
		"dead":   carillon.Plain(func(context.Context) error { return carillon.Fail(errors.New("no such address")) }),
		"await":  carillon.Plain(func(context.Context) error { return carillon.AwaitChildren() }),
		"who": carillon.Gives(func(ctx context.Context) (string, error) {
			run, _ := carillon.RunFrom(ctx)
			return string(run.Job) + " of " + run.Tenant, nil
		}),
	}
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, dispatch.Config{})
			s.serve("runner-1", nil, func(c *carillon.Config, r *dispatch.Runner) { c.Verbs, r.Stream = verbs, stream })
			ask := func(verb, payload string) dispatch.Outcome {
				c := jobCall(verb)
				c.Payload = []byte(payload)
				return s.Call(t.Context(), c)
			}
			if o := ask("echo", `{"a":1}`); o.Verdict != cron.Succeeded || string(o.Payload) != `{"a":1,"b":2}` {
				t.Errorf("echo: %+v", o)
			}
			if o := ask("who", ""); string(o.Payload) != `"j1 of acme"` {
				t.Errorf("who: %+v", o)
			}
			if o := ask("later", ""); o.Verdict != cron.Failed || o.After != time.Minute || o.Final || o.Snooze || o.Error == "" {
				t.Errorf("later: %+v", o)
			}
			if o := ask("snooze", ""); o.After != time.Hour || !o.Snooze {
				t.Errorf("snooze: %+v", o)
			}
			if o := ask("dead", ""); o.Verdict != cron.Failed || !o.Final || !strings.Contains(o.Error, "no such address") {
				t.Errorf("dead: %+v", o)
			}
			if o := ask("await", ""); !o.Await {
				t.Errorf("await: %+v", o)
			}
			if o := ask("echo", `{"a":"x"}`); o.Verdict != cron.Failed || !o.Final || !strings.Contains(o.Error, "payload") {
				t.Errorf("a request that does not fit: %+v", o)
			}
		})
	}
}

func TestProgressIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		heard := map[cron.RunID]string{}
		s := newStage(t, dispatch.Config{OnProgress: func(id cron.RunID, text string) {
			mu.Lock()
			defer mu.Unlock()
			heard[id] = text
		}})
		end := make(chan struct{})
		s.serve("runner-1", plain{"work": func(ctx context.Context) error {
			carillon.Progress(ctx, "half\x00")
			<-end
			carillon.Progress(ctx, "all")
			return nil
		}})
		c := jobCall("work")
		out := s.start(c)
		time.Sleep(time.Second) // of the bubble
		mu.Lock()
		if !strings.HasPrefix(heard[c.Run], "half") || strings.Contains(heard[c.Run], "\x00") {
			t.Errorf("heard %q", heard[c.Run])
		}
		mu.Unlock()
		close(end)
		want(t, "work", <-out, cron.Succeeded, "")
		mu.Lock()
		defer mu.Unlock()
		if heard[c.Run] != "all" {
			t.Errorf("the last text is %q", heard[c.Run])
		}
	})
}

func TestRoomIsWhatRunnersGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rang atomic.Int64
		s := newStage(t, dispatch.Config{OnRoom: func() { rang.Add(1) }})
		stubborn, open := gate()
		s.serve("runner-1", plain{"wait": stubborn}, func(c *carillon.Config, r *dispatch.Runner) { c.Capacity, r.Capacity = 3, 3 })
		if room, other := s.Room("d1"), s.Room("d2"); room != 3 || other != 0 || rang.Load() == 0 {
			t.Fatalf("room %d, of an unknown deployment %d, told %d times", room, other, rang.Load())
		}
		var outs []<-chan dispatch.Outcome
		for range 5 {
			outs = append(outs, s.start(jobCall("wait")))
		}
		synctest.Wait()
		if room := s.Room("d1"); room != 0 {
			t.Errorf("room %d with three in flight and two that wait", room)
		}
		open()
		for _, out := range outs {
			want(t, "wait", <-out, cron.Succeeded, "")
		}
		if room := s.Room("d1"); room != 3 {
			t.Errorf("room %d afterwards", room)
		}
	})
}

// TestRunThatIsForgottenEnds: a runner that goes on beating, and has lost one of its calls.
func TestRunThatIsForgottenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, dispatch.Config{})
		kept, lost := jobCall("kept"), jobCall("lost")
		kept.Timeout, lost.Timeout = time.Hour, time.Hour
		_, h := carillonv1connect.NewVerbServiceHandler(fake{attach: func(ctx context.Context, st *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse]) error {
			if welcome(st) == nil {
				return nil
			}
			var heard sync.WaitGroup // a stream is used by nobody when its handler has returned
			defer heard.Wait()
			heard.Go(func() {
				for msg, err := st.Receive(); err == nil; msg, err = st.Receive() {
					if msg.GetPing() > 0 {
						st.Send(&carillonv1.AttachResponse{Pong: msg.GetPing()})
						if msg.GetPing()%5 == 0 {
							st.Send(&carillonv1.AttachResponse{Beat: &carillonv1.AttachResponse_Beat{Older: durationpb.New(5 * time.Second), RunIds: []string{kept.Run.String()}}})
						}
					}
				}
			})
			<-ctx.Done()
			return nil
		}})
		s.play(h, true)
		a, b := s.start(kept), s.start(lost)
		begun := time.Now()
		o := <-b
		if o.Verdict != cron.Failed || !strings.Contains(o.Error, "does not execute the run any more") || !o.Sent {
			t.Errorf("the lost one: %+v", o)
		}
		if took := time.Since(begun); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("it ended after %s", took)
		}
		time.Sleep(time.Minute)
		select {
		case o := <-a:
			t.Errorf("the other one ended, too: %+v", o)
		default:
		}
	})
}
