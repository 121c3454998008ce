package queue

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
)

type clock struct{ d *database }

func (c clock) Now() time.Time       { return c.d.now() }
func (c clock) Error() time.Duration { return 200 * time.Microsecond }

// controller is one queue that runs in the bubble.
type controller struct {
	*Queue
	store   *store
	runners *runners
	stop    func() // like kill -9, but that what is on its way arrives
}

func (d *database) controller(t *testing.T, name string, room int, v served, change ...func(*Config)) *controller {
	t.Helper()
	st := &store{database: d, controller: name}
	r := &runners{room: room, inFlight: map[string]int{}, gone: map[string]bool{}, stops: map[cron.RunID]context.CancelCauseFunc{},
		verb: v, started: map[int64][]time.Time{}, from: time.Now()}
	t.Cleanup(r.wg.Wait)
	cfg := Config{Store: st, Lists: st, Caller: r, Capacity: r, Clock: clock{d}, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	c := &controller{Queue: New(cfg), store: st, runners: r}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}()
	c.stop = func() { cancel(); <-done }
	t.Cleanup(func() { c.stop(); r.cancelAll("over") })
	return c
}

// sole is a controller that owns all shards and knows the queues of the given refs, a second after its start.
func (d *database) sole(t *testing.T, room int, v served, refs ...string) *controller {
	t.Helper()
	c := d.controller(t, "a", room, v)
	c.OnRing(shards(0, 1), nil)
	c.know(t, refs...)
	return c
}

// know makes the queues of some refs, in the middle lane, and lets the second pass in which their windows are read.
func (c *controller) know(t *testing.T, refs ...string) {
	t.Helper()
	for _, ref := range refs {
		if _, err := c.store.PutQueues(t.Context(), []job.Queue{{Tenant: job.DefaultTenant, Ref: ref, Lane: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	c.Wake()
	wait(time.Second)
	c.runners.from = time.Now()
}

// shards are those of the i-th of n controllers.
func shards(i, n int32) (own []int32) {
	for s := range int32(ring.Shards) {
		if s%n == i {
			own = append(own, s)
		}
	}
	return own
}

// enqueue puts one job and returns its id.
func (c *controller) enqueue(t *testing.T, ref string, change ...func(*job.New)) int64 {
	t.Helper()
	n := job.New{Ref: ref, Priority: job.DefaultPriority, Retry: job.Retry{Attempts: 3, Backoff: time.Second, Ceiling: time.Minute}, Timeout: time.Minute}
	for _, ch := range change {
		ch(&n)
	}
	out, err := c.Enqueue(t.Context(), []job.New{n})
	if err != nil || out[0].Err != nil {
		t.Fatalf("enqueue: %v, %v", err, out[0].Err)
	}
	return out[0].N
}

// wait lets the bubble's time pass and everything that is due happen.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
