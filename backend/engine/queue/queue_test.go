package queue

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

func TestAJobStartsWithItsInsert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v")
		claims := d.count("claim")
		id := c.enqueue(t, "m.v")
		synctest.Wait()
		if got, want := strings.Join(c.runners.calls(), ", "), "m.v 1@1ms"; got != want {
			t.Errorf("called %s, want %s: the trip of the insert and nothing else", got, want)
		}
		wait(10 * time.Millisecond)
		if got := d.story(id); got != "succeeded x1" || d.count("claim") != claims {
			t.Errorf("%s, after %d claims", got, d.count("claim")-claims)
		}
	})
}

func TestTheFirstJobOfANewVerbDoesNotWaitForAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed)
		c.enqueue(t, "m.new")
		wait(20 * time.Millisecond)
		if got := c.runners.calls(); len(got) != 1 {
			t.Errorf("called %v", got)
		}
	})
}

func TestADelayedJobStartsWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.offset = 3 * time.Hour // its clock is another one
		c := d.sole(t, 10, succeed, "m.v")
		for _, delay := range []time.Duration{2500 * time.Millisecond, time.Minute, 10 * time.Minute} {
			c.enqueue(t, "m.v", func(n *job.New) { n.Delay = delay })
		}
		begun := time.Now()
		wait(15 * time.Minute)
		for id, want := range map[int64]time.Duration{1: 2500 * time.Millisecond, 2: time.Minute, 3: 10 * time.Minute} {
			at := c.runners.starts(id)
			if len(at) != 1 || at[0].Sub(begun) > want+3*trip || at[0].Sub(begun) < want-3*trip {
				t.Errorf("job %d was called after %v, want %v", id, at[0].Sub(begun), want)
			}
		}
	})
}

func TestHigherPriorityComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 0, lasting(10*time.Millisecond), "m.v")
		var low, high []int64
		for range 5 {
			low = append(low, c.enqueue(t, "m.v", func(n *job.New) { n.Priority = 100 }))
		}
		for range 5 {
			high = append(high, c.enqueue(t, "m.v", func(n *job.New) { n.Priority = 900 }))
		}
		c.runners.setRoom(1)
		c.Roomier()
		wait(time.Second)
		if got, want := c.runners.ran(), append(high, low...); !slices.Equal(got[:5], want[:5]) || len(got) != 10 {
			t.Errorf("ran %v, want %v", got, want)
		}
	})
}

func TestABigTenantLeavesTurnsToASmallOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 0, lasting(time.Millisecond), "m.v")
		big := make([]job.New, 5000)
		for i := range big {
			big[i] = job.New{Tenant: "big", Ref: "m.v", Priority: 500}
		}
		if _, err := c.Enqueue(t.Context(), big); err != nil {
			t.Fatal(err)
		}
		small := map[int64]bool{}
		for range 10 {
			small[c.enqueue(t, "m.v", func(n *job.New) { n.Tenant = "small" })] = true
		}
		c.runners.setRoom(4)
		wait(time.Minute)
		ran := c.runners.ran()
		n := 0
		for _, id := range ran[:50] {
			if small[id] {
				n++
			}
		}
		if n != 10 || len(ran) != 5010 {
			t.Errorf("%d of the small tenant's jobs among the first 50 of %d", n, len(ran))
		}
	})
}

func TestABacklogIsReadOnPageByPageInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 0, succeed, "m.v")
		jobs := make([]job.New, 12_000)
		for i := range jobs {
			jobs[i] = job.New{Ref: "m.v", Priority: 500}
		}
		if _, err := c.Enqueue(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		wait(2 * time.Second)
		if n := c.Stats().Waiting[2]; n > 2*firstPage {
			t.Errorf("the window holds %d jobs", n)
		}
		fetches, from := d.count("fetch"), time.Now()
		c.runners.setRoom(1000)
		c.Roomier()
		for c.Stats().Succeeded < 12_000 && time.Since(from) < time.Minute {
			wait(10 * time.Millisecond)
		}
		took := time.Since(from)
		if n := len(c.runners.ran()); n != 12_000 || took > time.Second {
			t.Errorf("%d jobs ran in %v", n, took)
		}
		if n := d.count("fetch") - fetches; n > 40 {
			t.Errorf("%d fetches for 12 pages", n)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v", "m.w")
		d.pause("m.v", true)
		id := c.enqueue(t, "m.v") // before this controller knows
		c.Wake()
		wait(3 * time.Second)
		id2, other := c.enqueue(t, "m.v"), c.enqueue(t, "m.w")
		wait(time.Second)
		if a, b, o := d.story(id), d.story(id2), d.story(other); a != "ready x0" || b != "ready x0" || o != "succeeded x1" {
			t.Errorf("paused: %s, %s; not paused: %s", a, b, o)
		}
		d.pause("m.v", false)
		c.Wake()
		wait(100 * time.Millisecond)
		if a, b := d.story(id), d.story(id2); a != "succeeded x1" || b != "succeeded x1" {
			t.Errorf("resumed: %s, %s", a, b)
		}
	})
}

func TestSnoozeIsNoFailureAndNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		var n atomic.Int32
		c := d.sole(t, 10, func(context.Context, Call) job.Outcome {
			if n.Add(1) <= 5 {
				return job.Outcome{Verdict: cron.Succeeded, Snooze: true, After: 10 * time.Second}
			}
			return job.Outcome{Verdict: cron.Succeeded}
		}, "m.v")
		id := c.enqueue(t, "m.v")
		wait(49 * time.Second)
		if n.Load() != 5 {
			t.Errorf("%d calls after 49 s", n.Load())
		}
		wait(2 * time.Second)
		if n.Load() != 6 || d.story(id) != "succeeded x1" {
			t.Errorf("%d calls, %s", n.Load(), d.story(id))
		}
	})
}

func TestAJobThatNoRunnerTookRestsAndIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		var n atomic.Int32
		c := d.sole(t, 10, func(context.Context, Call) job.Outcome {
			if n.Add(1) <= 5 {
				return job.Outcome{Verdict: cron.Failed, Text: "no runner", Requeue: true}
			}
			return job.Outcome{Verdict: cron.Succeeded}
		}, "m.v")
		id := c.enqueue(t, "m.v")
		wait(4500 * time.Millisecond)
		if n.Load() != 5 {
			t.Errorf("%d calls in 4.5 s", n.Load())
		}
		wait(time.Second)
		if d.story(id) != "succeeded x1" {
			t.Error(d.story(id))
		}
	})
}

func TestAStormOfSingleEnqueuesSharesStatements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v")
		before, begun := d.count("enqueue"), time.Now()
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 50 {
					if _, err := c.Enqueue(t.Context(), []job.New{{Ref: "m.v", Priority: 500}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		n, took := d.count("enqueue")-before, time.Since(begun)
		if n > 210 || took > 110*trip { // two lanes, two trips for each round of the 64
			t.Errorf("3200 enqueues took %d statements and %v", n, took)
		}
		// A bulk leaves room between its pieces.
		var bulk time.Duration
		wg.Go(func() {
			jobs := make([]job.New, 20_000)
			for i := range jobs {
				jobs[i] = job.New{Ref: "m.v", Priority: 500}
			}
			if _, err := c.Enqueue(t.Context(), jobs); err != nil {
				t.Error(err)
			}
			bulk = time.Since(begun)
		})
		begun = time.Now()
		c.enqueue(t, "m.v")
		single := time.Since(begun)
		wg.Wait()
		if single > 4*trip || bulk < single {
			t.Errorf("one job waited %v beside a bulk of %v", single, bulk)
		}
	})
}

func TestBadJobsAreRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v")
		out, err := c.Enqueue(t.Context(), []job.New{
			{Ref: "m.v"}, {Ref: "m.v", Delay: -1}, {Ref: "m.v", Payload: []byte("{")}, {Ref: "m.v", Payload: []byte(`"refuse"`)}, {Ref: "m.v"},
		})
		var field *job.FieldError
		if err != nil || out[0].Err != nil || out[4].Err != nil || out[0].N == 0 || out[4].N == 0 || out[3].Err == nil {
			t.Errorf("%v: %+v", err, out)
		}
		if !errors.As(out[1].Err, &field) || field.Field != "delay" || !errors.As(out[2].Err, &field) || field.Field != "payload" {
			t.Errorf("%v, %v", out[1].Err, out[2].Err)
		}
	})
}

func TestEnqueueIsBoundedAndCanBeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.controller(t, "a", 10, succeed, func(c *Config) { c.MaxWaiting = 3 })
		release := make(chan struct{})
		c.know(t, "m.v")
		c.store.breaks(func(s string, after bool) error {
			if s == "enqueue" && !after {
				<-release
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var timedOut, refused atomic.Int32
		for range 8 { // two lanes hold one each, three wait
			wg.Go(func() {
				_, err := c.Enqueue(ctx, []job.New{{Ref: "m.v"}})
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					timedOut.Add(1)
				case errors.Is(err, cron.ErrUnavailable):
					refused.Add(1)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		close(release)
		wait(time.Second)
		if timedOut.Load() != 5 || refused.Load() != 3 || d.live() != 2 {
			t.Errorf("%d timed out, %d refused, %d are in", timedOut.Load(), refused.Load(), d.live())
		}
	})
}

// Few jobs that are large are too much as well; one that is larger than all that may wait is taken in alone.
func TestEnqueueIsBoundedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.controller(t, "a", 10, succeed, func(c *Config) { c.MaxWaitingSize, c.EnqueueSize, c.Lanes = 1000, 500, 1 })
		release := make(chan struct{})
		c.know(t, "m.v")
		c.store.breaks(func(s string, after bool) error {
			if s == "enqueue" && !after {
				<-release
			}
			return nil
		})
		large := func(n int) job.New {
			return job.New{Ref: "m.v", Payload: append([]byte("1"), bytes.Repeat([]byte(" "), n-3)...), Envelope: []byte("{}")}
		}
		var wg sync.WaitGroup
		var refused atomic.Int32
		for _, n := range []int{2000, 400, 400, 300, 200, 3} { // one is under way; the fourth is too much, and the last finds no room
			wg.Go(func() {
				_, err := c.Enqueue(t.Context(), []job.New{large(n)})
				if errors.Is(err, cron.ErrUnavailable) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if got := refused.Load(); got != 2 {
			t.Errorf("%d were refused", got)
		}
		close(release)
		wg.Wait()
		wait(time.Second)
		if _, err := c.Enqueue(t.Context(), []job.New{large(900)}); err != nil || d.live() != 5 {
			t.Errorf("%d are in; then: %v", d.live(), err)
		}
	})
}

func TestAnIdleControllerIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v", "m.w", "n.v")
		wait(10 * time.Second)
		before := d.total()
		wait(100 * time.Second)
		if n := d.total() - before; n > 260 {
			t.Errorf("%d statements in 100 idle seconds", n)
		}
		// Nor is it busy when jobs wait for a verb without room, or without a deployment.
		c.runners.setRoom(0)
		c.runners.leave("n", true)
		for range 10 {
			c.enqueue(t, "m.v")
			c.enqueue(t, "n.v")
		}
		before = d.total()
		wait(100 * time.Second)
		if n := d.total() - before; n > 360 {
			t.Errorf("%d statements in 100 seconds without room", n)
		}
		c.runners.setRoom(10)
		c.runners.leave("n", false)
		wait(2 * time.Second)
		if st := c.Stats(); st.Succeeded != 20 {
			t.Errorf("%d of 20 succeeded when there was room", st.Succeeded)
		}
	})
}

func TestRoomIsNeverExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 7, lasting(5*time.Millisecond), "m.v", "m.w")
		for i := range 300 {
			c.enqueue(t, "m."+"vw"[i%2:][:1])
		}
		wait(time.Second)
		if c.runners.most > 7 || c.runners.most < 5 || c.Stats().Succeeded != 300 {
			t.Errorf("%d at a time, %d succeeded", c.runners.most, c.Stats().Succeeded)
		}
	})
}
