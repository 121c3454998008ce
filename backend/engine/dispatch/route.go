package dispatch

import (
	"container/list"
	"context"
	"time"

	"carillon/backend/core/cron"
)

// state of a call on its way.
type state int

const (
	waiting  state = iota // for a runner
	assigned              // to a runner; nothing was sent
	sent                  // a runner may have begun it
	ending                // sent, and told to end; its alarm is the end of the grace
	over
)

// call is one Call on its way; Dispatcher.mu guards it.
type call struct {
	Call
	id       string // of the run, as on the wire
	done     func(Outcome)
	state    state
	place    *list.Element // among the waiting
	runner   *runner       // once assigned
	stream   *stream       // that it was sent over
	stop     context.CancelFunc
	softAt   time.Time
	giveUpAt time.Time
	sentAt   time.Time
	missed   int // beats of its runner that did not name it
	alarm    alarm
	verdict  cron.Verdict // while ending: what an end without an answer means
	reason   string
}

// runner is one that this controller knows; Dispatcher.mu guards it.
type runner struct {
	Runner
	pool     *pool
	level    int // calls it may have
	inFlight int // calls it has: assigned, sent or ending
	leaving  bool
	calls    map[*call]struct{}
	pause    time.Duration // after a refusal
	resting  bool
	alarm    alarm // end of the pause
	trouble  string
	stream   *stream     // while attached
	launch   func(*call) // starts a unary call
	stop     context.CancelCauseFunc
}

// pool is the runners of one deployment and the calls that wait for one of them.
type pool struct {
	deployment string
	runners    []*runner
	turn       int // where the next search begins
	waiting    *list.List
}

func (d *Dispatcher) pool(deployment string) *pool {
	p := d.pools[deployment]
	if p == nil {
		p = &pool{deployment: deployment, waiting: list.New()}
		d.pools[deployment] = p
	}
	return p
}

// pick is the runner with the least part of its level in use, in turn among equals; nil when none has room.
func (p *pool) pick() *runner {
	var best *runner
	for i := range p.runners {
		r := p.runners[(p.turn+i)%len(p.runners)]
		if r.resting || r.leaving || r.inFlight >= r.level {
			continue
		}
		if best == nil || r.inFlight*best.level < best.inFlight*r.level {
			best = r
		}
	}
	if len(p.runners) > 0 {
		p.turn = (p.turn + 1) % len(p.runners)
	}
	return best
}

// pump gives waiting calls to runners with room, the oldest first.
func (d *Dispatcher) pump(deployment string) {
	p := d.pools[deployment]
	for p != nil && p.waiting.Len() > 0 && d.closed == "" {
		r := p.pick()
		if r == nil {
			return
		}
		c := p.waiting.Remove(p.waiting.Front()).(*call)
		c.place = nil
		d.stats.Waiting--
		d.assign(c, r)
	}
}

func (d *Dispatcher) assign(c *call, r *runner) {
	c.state, c.runner = assigned, r
	r.inFlight++
	r.calls[c] = struct{}{}
	if r.stream != nil {
		r.stream.push(c)
		return
	}
	r.launch(c)
}

// retract takes a call that was not begun from its runner and puts it in front of those that wait.
func (d *Dispatcher) retract(c *call) {
	if d.closed != "" {
		d.finish(c, Outcome{Verdict: cron.Cancelled, Error: d.closed})
		return
	}
	d.detach(c)
	c.state, c.runner, c.stream, c.stop = waiting, nil, nil, nil
	c.place = d.pool(c.Deployment).waiting.PushFront(c)
	d.stats.Waiting++
	d.set(&c.alarm, c.giveUpAt)
}

// detach frees the place of a call at its runner.
func (d *Dispatcher) detach(c *call) {
	r := c.runner
	if _, ok := r.calls[c]; !ok {
		return
	}
	delete(r.calls, c)
	r.inFlight--
	if r.leaving && r.inFlight == 0 {
		r.stop(errGone)
	}
}

// begin marks a call as sent; false when it ended before. What is sent has a timeout instead of a time to give up.
func (d *Dispatcher) begin(c *call) bool {
	if c.state != assigned {
		return false
	}
	c.state, c.sentAt, c.missed = sent, time.Now(), 0
	d.stats.Sent++
	d.set(&c.alarm, c.softAt)
	return true
}

// refuse ends a call that never was on its way.
func (d *Dispatcher) refuse(c *call, v cron.Verdict, text string) {
	d.ended = append(d.ended, ended{c.done, Outcome{Verdict: v, Error: cron.SafeText(text)}})
}

// finish ends a call, whatever its state, and lets its runner have another.
func (d *Dispatcher) finish(c *call, out Outcome) {
	if c.state == over {
		return
	}
	out.Sent = c.state == sent || c.state == ending
	if c.place != nil {
		d.pool(c.Deployment).waiting.Remove(c.place)
		c.place = nil
		d.stats.Waiting--
	}
	c.state = over
	delete(d.calls, c.Run)
	d.unset(&c.alarm)
	if r := c.runner; r != nil {
		if out.Sent {
			out.Runner = r.Key
		}
		d.detach(c)
		d.pump(r.Deployment)
	}
	out.Error = cron.SafeText(out.Error)
	d.ended = append(d.ended, ended{c.done, out})
	d.drop(d.pools[c.Deployment])
}

// drop forgets a pool that nobody uses, so that old deployments leave nothing behind.
func (d *Dispatcher) drop(p *pool) {
	if p != nil && len(p.runners) == 0 && p.waiting.Len() == 0 {
		delete(d.pools, p.deployment)
	}
}

// cancel ends a call at once when nothing was sent; otherwise it tells the runner and waits for the grace.
func (d *Dispatcher) cancel(c *call, v cron.Verdict, reason string) {
	switch c.state {
	case waiting, assigned:
		d.finish(c, Outcome{Verdict: v, Error: reason})
	case sent:
		c.state, c.verdict, c.reason = ending, v, reason
		d.set(&c.alarm, time.Now().Add(d.cfg.Grace))
		if c.stream != nil {
			c.stream.cancel(c.id)
		} else if c.stop != nil {
			c.stop()
		}
	}
}

// ring does what is due.
func (d *Dispatcher) ring(now time.Time) {
	for a := d.due(now); a != nil; a = d.due(now) {
		if r := a.runner; r != nil {
			r.resting = false
			d.pump(r.Deployment)
			d.cfg.OnRoom()
			continue
		}
		switch c := a.call; c.state {
		case waiting, assigned:
			d.finish(c, Outcome{Verdict: cron.Failed, Error: d.nobody(c)})
		case sent:
			d.cancel(c, cron.TimedOut, "timed out after "+c.Timeout.String())
		case ending:
			d.finish(c, Outcome{Verdict: c.verdict, Error: c.reason + "; its runner did not answer"})
		}
	}
}

// nobody says why no runner took a call.
func (d *Dispatcher) nobody(c *call) string {
	text := "no runner of deployment " + c.Deployment
	p := d.pools[c.Deployment]
	if p == nil || len(p.runners) == 0 {
		return text
	}
	for _, r := range p.runners {
		if r.trouble != "" {
			return text + ": runner " + r.Key + ": " + r.trouble
		}
	}
	return text + " had room"
}

// rest keeps a runner from getting calls for a moment, longer each time in a row.
func (d *Dispatcher) rest(r *runner, why string) {
	r.trouble = why
	if r.resting {
		return
	}
	r.pause = min(max(2*r.pause, 20*time.Millisecond), time.Second)
	r.resting = true
	d.set(&r.alarm, time.Now().Add(r.pause))
}
