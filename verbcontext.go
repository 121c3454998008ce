package carillon

import (
	"context"
	"sync"
	"time"
)

// verbContext is the context of one run. What makes contexts dear, a channel, a timer and a place among others, is made
// when somebody asks for it: most verbs are over before.
type verbContext struct {
	desk     *desk
	e        *execution
	envelope []byte

	mu   sync.Mutex
	err  error // once it ended
	why  error
	full context.Context // as the standard library makes it; nil until it is needed
	stop context.CancelCauseFunc
	free context.CancelFunc
}

func (c *verbContext) Deadline() (time.Time, bool) { return c.e.run.Deadline, true }

func (c *verbContext) Done() <-chan struct{} { return c.whole().Done() }

func (c *verbContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full != nil {
		return c.full.Err()
	}
	return c.err
}

// Value also is how the library finds, through a key of its own, what a context that is derived from this one hangs on,
// and its cause.
func (c *verbContext) Value(key any) any {
	if key != (insideKey{}) {
		return c.whole().Value(key)
	}
	return inside{
		run: &c.e.run, client: c.desk.client, envelope: c.envelope, progress: func(text string) { c.desk.talk.say(c.e, text) },
	}
}

func (c *verbContext) whole() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		c.full, c.stop = context.WithCancelCause(context.Background())
		if c.err == context.Canceled {
			c.stop(c.why)
		}
		c.full, c.free = context.WithDeadlineCause(c.full, c.e.run.Deadline, errTimeout)
	}
	return c.full
}

// expire ends it because its time is over.
func (c *verbContext) expire() { c.end(context.DeadlineExceeded, errTimeout) }

// end ends it, the first call says why. A verb that does not heed that is answered for when the grace is over.
func (c *verbContext) end(err, why error) {
	c.mu.Lock()
	first, stop := c.err == nil, c.stop
	if first {
		c.err, c.why = err, why
	}
	c.mu.Unlock()
	if !first {
		return
	}
	if stop != nil && err == context.Canceled { // a deadline is the library's own
		stop(why)
	}
	time.AfterFunc(c.desk.grace, func() { c.desk.abandon(c, c.e) })
}

// close ends it because the verb has returned.
func (c *verbContext) close() {
	c.mu.Lock()
	if c.err == nil {
		c.err, c.why = context.Canceled, context.Canceled
	}
	stop, free := c.stop, c.free
	c.mu.Unlock()
	if stop != nil {
		stop(nil)
		free()
	}
}
