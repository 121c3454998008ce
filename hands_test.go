package carillon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

// callMany has a desk take n calls at once and returns how many answers of each kind came.
func callMany(d *desk, n int) map[string]int {
	answers := make(chan *carillonv1.CallResponse, n)
	calls := make([]*carillonv1.CallRequest, n)
	for i := range calls {
		calls[i] = &carillonv1.CallRequest{RunId: fmt.Sprint("r", i), Ref: "m.verb", Deployment: "d1", JobId: "j"}
	}
	d.take(waiter{tell: func(r *carillonv1.CallResponse) { answers <- r }}, calls...)
	got := map[string]int{}
	for range n {
		r := <-answers
		got[r.GetOutcome().String()+r.GetError()]++
	}
	return got
}

func deskOf(capacity int, verb func(context.Context) error) *desk {
	return newDesk(Config{Module: module, Capacity: capacity, Grace: time.Second, Log: quiet, Verbs: Verbs{"verb": Plain(verb)}}, func() string { return "d1" })
}

// However few hands begin, all verbs run at once: here each waits for all others.
func TestVerbsThatWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		var all sync.WaitGroup
		all.Add(n)
		d := deskOf(n, func(context.Context) error {
			all.Done()
			all.Wait()
			return nil
		})
		defer close(d.over)
		if got := callMany(d, n); got["OUTCOME_SUCCEEDED"] != n {
			t.Errorf("got %v", got)
		}
		idle := func() int {
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.idle)
		}
		if n := idle(); n != maxIdle {
			t.Errorf("%d hands wait, not %d", n, maxIdle)
		}
		time.Sleep(2 * idleTime)
		if n := idle(); n != 0 {
			t.Errorf("%d hands wait on", n)
		}
	})
}

// A verb that ends its goroutine takes nothing with it that waits behind it.
func TestVerbsThatEndTheirGoroutines(t *testing.T) {
	d := deskOf(1000, func(context.Context) error {
		runtime.Goexit()
		return nil
	})
	defer close(d.over)
	if got := callMany(d, 1000); got["OUTCOME_FAILEDthe verb ended its goroutine"] != 1000 {
		t.Errorf("got %v", got)
	}
}

// What a verb does with its context is what it may do with any other, whenever it first asks.
func TestContextOfAVerb(t *testing.T) {
	cause := errors.New("because")
	type key struct{}
	for name, c := range map[string]struct {
		end  func(e *execution)
		err  error
		want error
	}{
		"cancelled":        {func(e *execution) { e.cancel(cause); e.cancel(errGone) }, context.Canceled, cause},
		"cancelled, later": {func(e *execution) { e.cancel(cause); time.Sleep(time.Hour) }, context.Canceled, cause},
		"timed out":        {func(*execution) { time.Sleep(time.Minute) }, context.DeadlineExceeded, errTimeout},
		"late cancel":      {func(e *execution) { time.Sleep(time.Minute); synctest.Wait(); e.cancel(cause) }, context.DeadlineExceeded, errTimeout},
	} {
		for _, asked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", asked before: ", asked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := deskOf(1, func(ctx context.Context) error {
						if asked {
							<-context.WithValue(ctx, key{}, 1).Done()
						}
						time.Sleep(time.Minute + time.Millisecond)
						child, stop := context.WithCancel(context.WithValue(ctx, key{}, 1))
						defer stop()
						told := make(chan struct{})
						context.AfterFunc(child, func() { close(told) })
						<-told
						for _, ctx := range []context.Context{ctx, child} {
							if ctx.Err() != c.err || context.Cause(ctx) != c.want {
								t.Errorf("%v because of %v, want %v because of %v", ctx.Err(), context.Cause(ctx), c.err, c.want)
							}
						}
						if at, ok := child.Deadline(); !ok || time.Since(at) < time.Millisecond || ctx.Value(key{}) != nil {
							t.Errorf("deadline %v %v", at, ok)
						}
						return ctx.Err()
					})
					d.grace = time.Hour
					defer close(d.over)
					done := make(chan struct{})
					d.take(waiter{tell: func(*carillonv1.CallResponse) { close(done) }}, &carillonv1.CallRequest{
						RunId: "r1", Ref: "m.verb", Deployment: "d1", JobId: "j", Timeout: after(time.Minute)})
					d.mu.Lock()
					e := d.runs["r1"]
					d.mu.Unlock()
					c.end(e)
					<-done
				})
			})
		}
	}
}

// A context that outlives its verb has ended, also for who asks only then.
func TestContextAfterItsVerb(t *testing.T) {
	kept := make(chan context.Context, 1)
	d := deskOf(1, func(ctx context.Context) error { kept <- ctx; return nil })
	defer close(d.over)
	callMany(d, 1)
	ctx := <-kept
	child, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	<-child.Done()
	if child.Err() != context.Canceled || ctx.Err() != context.Canceled {
		t.Errorf("%v, %v", ctx.Err(), child.Err())
	}
}

// Verbs that keep the processors do not keep who reads the stream from its pings.
func TestBusyVerbsDoNotHoldTheReader(t *testing.T) {
	const n, busy = 100, 50 * time.Millisecond
	d := deskOf(n, func(ctx context.Context) error {
		for began := time.Now(); time.Since(began) < busy; {
		}
		return nil
	})
	defer close(d.over)
	calls := make([]*carillonv1.CallRequest, n)
	for i := range calls {
		calls[i] = &carillonv1.CallRequest{RunId: fmt.Sprint("r", i), Ref: "m.verb", Deployment: "d1", JobId: "j"}
	}
	answers := make(chan *carillonv1.CallResponse, n)
	began := time.Now()
	d.take(waiter{tell: func(r *carillonv1.CallResponse) { answers <- r }}, calls...)
	took := time.Since(began)
	for range n {
		<-answers
	}
	if all := time.Since(began); took > all/3 {
		t.Errorf("they were taken after %s, done after %s", took, all)
	}
}
