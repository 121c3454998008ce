package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

// parentOf is a verb that makes n children in its first run and awaits them, and succeeds in the second.
func parentOf(c **controller, n int) func(context.Context, Call) job.Outcome {
	seen := false
	return func(ctx context.Context, call Call) job.Outcome {
		if call.Ref != "m.parent" {
			time.Sleep(10 * time.Millisecond)
			return job.Outcome{Verdict: cron.Succeeded}
		}
		if seen {
			return job.Outcome{Verdict: cron.Succeeded}
		}
		seen = true
		var jobs []job.New
		for range n {
			jobs = append(jobs, job.New{Ref: "m.child", Priority: job.DefaultPriority, Parent: call.Job, ParentRun: call.Run})
		}
		out, err := (*c).Enqueue(ctx, jobs)
		for _, o := range out {
			if err != nil || o.Err != nil {
				return job.Outcome{Verdict: cron.Failed, Final: true, Text: fmt.Sprint(err, o.Err)}
			}
		}
		return job.Outcome{Verdict: cron.Succeeded, Await: true}
	}
}

func TestAParentIsWokenAtOnceByItsLastChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		var c *controller
		c = d.sole(t, 10, parentOf(&c, 5), "m.parent", "m.child")
		id := c.enqueue(t, "m.parent")
		wait(200 * time.Millisecond)
		if st := c.Stats(); d.story(id) != "succeeded x1" || st.Blocked != 1 || st.Woken != 1 || st.Succeeded != 6 {
			t.Errorf("%s after 200 ms, %+v", d.story(id), st)
		}
	})
}

// The parent's shard is another controller's: it is told, and does not wait for its next look.
func TestTheOwnerOfAWokenParentIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		var a, b *controller
		hints := hintFunc{owner: func(shard int32) string { return string('a' + rune(shard%2)) }, hint: func(owner string, queues []int32) {
			if owner == "a" {
				a.Hinted(queues)
			} else {
				b.Hinted(queues)
			}
		}}
		with := func(c *Config) { c.Hints, c.Refetch = hints, time.Hour }
		a = d.controller(t, "a", 10, parentOf(&a, 9), with)
		b = d.controller(t, "b", 10, parentOf(&b, 0), with)
		a.OnRing(shards(0, 2), nil)
		b.OnRing(shards(1, 2), nil)
		a.know(t, "m.parent", "m.child")
		b.know(t, "m.parent", "m.child")
		id := a.enqueue(t, "m.parent")
		wait(500 * time.Millisecond)
		if got := d.story(id); got != "succeeded x1" {
			t.Errorf("%s after half a second", got)
		}
	})
}

// The keeper ends the child, and its next look at the windows is seconds away.
func TestAParentIsWokenByTheExpiryOfItsLastChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		var c *controller
		c = d.controller(t, "a", 10, parentOf(&c, 1), func(c *Config) { c.Ahead = time.Minute; c.Refetch = 3 * time.Second })
		c.OnRing(shards(0, 1), nil)
		c.know(t, "m.parent", "m.child")
		wait(time.Second)
		d.pause("m.child", true)
		c.Wake()
		wait(time.Second)
		id := c.enqueue(t, "m.parent")
		wait(time.Second)
		d.mu.Lock()
		for _, r := range d.jobs {
			if r.Parent == id {
				r.Expires = d.now().Add(10 * time.Second)
				r.Due = r.Expires.Add(time.Second) // no claim gets it before
			}
		}
		d.mu.Unlock()
		d.pause("m.child", false)
		c.Wake()
		wait(9 * time.Second)
		if got := d.story(id); got != "blocked x0" {
			t.Fatalf("before: %s", got)
		}
		for ; d.ended() == 0; wait(time.Millisecond) {
		}
		began := time.Now()
		for ; d.story(id) != "succeeded x1" && time.Since(began) < time.Minute; wait(time.Millisecond) {
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("woken %s after the expiry", took)
		}
	})
}

type hintFunc struct {
	owner func(int32) string
	hint  func(string, []int32)
}

func (h hintFunc) Owner(shard int32) string { return h.owner(shard) }
func (h hintFunc) Hint(_ context.Context, owner string, queues []int32) error {
	h.hint(owner, queues)
	return nil
}

func TestArrivedJobsStartAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v")
		id := c.enqueue(t, "m.v", func(n *job.New) { n.Delay = time.Hour })
		wait(100 * time.Millisecond)
		d.mu.Lock()
		r := d.jobs[id]
		r.Due = d.now() // as RetryJob does
		w := job.Waiting{ID: id, Queue: r.Queue, Shard: shardOf(id), Due: r.Due}
		d.mu.Unlock()
		wait(5 * time.Millisecond)
		c.Arrived([]job.Waiting{w})
		wait(10 * time.Millisecond)
		if got := d.story(id); got != "succeeded x1" {
			t.Errorf("%s 10 ms later", got)
		}
	})
}

// Jobs by SQL come without a word but Heard: they start soon, and a storm of it makes few rounds.
func TestHeardReadsSoonAndNotOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.controller(t, "a", 10, succeed, func(c *Config) { c.Refetch = time.Minute })
		c.OnRing(shards(0, 1), nil)
		c.know(t, "m.v")
		outside := &store{database: d}
		wait(time.Second)
		n := job.Complete(job.New{Ref: "m.v"})
		out, err := outside.EnqueueJobs(t.Context(), []job.Enqueue{{New: n, Queue: 1}})
		if err != nil {
			t.Fatal(err)
		}
		c.Heard()
		wait(20 * time.Millisecond)
		if got := d.story(out[0].N); got != "succeeded x1" {
			t.Errorf("%s 20 ms after it was heard of", got)
		}
		wait(time.Second)
		before := d.count("list")
		for range 1000 {
			c.Heard()
			wait(time.Millisecond)
		}
		if n := d.count("list") - before; n < 10 || n > 21 {
			t.Errorf("%d rounds in a second of a thousand calls", n)
		}
	})
}

func TestProgressIsCoalescedAndEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, lasting(10*time.Second), "m.v")
		id := c.enqueue(t, "m.v")
		wait(100 * time.Millisecond)
		run := d.runOf(id)
		if c.Progress(mint(), "whose?") || !c.Progress(run, "0") {
			t.Error("Progress does not know its own runs from others")
		}
		wait(10 * time.Millisecond)
		written := func() string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.jobs[id].progress
		}
		if got := written(); got != "0" {
			t.Errorf("progress %q 10 ms after the first text", got)
		}
		for i := range 1000 {
			c.Progress(run, fmt.Sprint(i))
			wait(5 * time.Millisecond)
		}
		wait(time.Second)
		if n := d.count("progress"); n < 10 || n > 12 {
			t.Errorf("%d statements in five seconds", n)
		}
		if got := written(); got != "999" {
			t.Errorf("progress %q at last", got)
		}
		wait(time.Second)
		before := d.count("progress")
		for range 100 {
			c.Progress(run, "999")
			wait(5 * time.Millisecond)
		}
		if n := d.count("progress") - before; n != 0 {
			t.Errorf("%d statements for the same text", n)
		}
		c.Progress(run, "nearly")
		c.Progress(run, "done") // comes with the end, at the latest
		wait(10 * time.Second)
		if c.Progress(run, "after the end") {
			t.Error("progress after the end")
		}
		wait(time.Second)
		if e := d.firstEnd(); e.progress != "done" || d.count("late progress") != 0 {
			t.Errorf("ended with %q, %d texts came late", e.progress, d.count("late progress"))
		}
	})
}

// A progress text that waits when the run ends is not written any more, and one that the database refuses harms nobody.
func TestProgressIsBestEffort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, lasting(time.Second), "m.v")
		c.store.breaks(func(s string, _ bool) error {
			if s == "progress" {
				return errAway
			}
			return nil
		})
		id := c.enqueue(t, "m.v")
		wait(100 * time.Millisecond)
		c.Progress(d.runOf(id), "one")
		wait(10 * time.Millisecond)
		c.Progress(d.runOf(id), "two")
		wait(2 * time.Second)
		if e := d.firstEnd(); e.state != job.Succeeded || e.progress != "two" {
			t.Errorf("ended %s with %q", e.state, e.progress)
		}
		if n := len(c.told); n != 0 {
			t.Errorf("%d runs are kept", n)
		}
	})
}

// The end is decided and not written yet: what the run says now is too late.
func TestNoProgressAfterTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, lasting(time.Second), "m.v")
		id := c.enqueue(t, "m.v")
		wait(100 * time.Millisecond)
		run := d.runOf(id)
		c.store.breaks(func(s string, _ bool) error {
			if s == "finish" {
				return errAway
			}
			return nil
		})
		wait(2 * time.Second)
		if !c.Known(run) || c.Progress(run, "too late") {
			t.Error("progress of a run whose outcome is there")
		}
		c.store.breaks(nil)
		wait(10 * time.Second)
		if e := d.firstEnd(); e.progress != "" || d.count("progress") != 0 {
			t.Errorf("ended with %q", e.progress)
		}
	})
}

// A lost answer to a child's end: it is repeated, and the parent is found by the next look.
func TestALostAnswerWakesAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		var c *controller
		c = d.sole(t, 10, parentOf(&c, 1), "m.parent", "m.child")
		broken := false
		c.store.breaks(func(s string, done bool) error {
			if s == "finish" && done && !broken {
				broken = true
				return lostAnswer{}
			}
			return nil
		})
		id := c.enqueue(t, "m.parent")
		wait(3 * time.Second)
		if got := d.story(id); got != "succeeded x1" || !broken {
			t.Errorf("%s", got)
		}
	})
}
