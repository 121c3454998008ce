package carillon

import (
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// A verb may block for as long as it likes, so each needs a goroutine; but most of a busy runner's verbs are over in
// microseconds, and a goroutine for each costs more than they do. So what was admitted waits in a list that a few hands
// work off, and there are more hands only where those that there are did not come back for the rest.

// task is a verb that is to run now.
type task struct {
	e       *execution
	fn      Handler
	payload []byte
}

// hand is a goroutine that runs verbs, one after the other.
type hand struct {
	wake  chan struct{}
	rest  *time.Timer
	alarm *time.Timer               // the soft timeout of what it runs
	at    atomic.Pointer[execution] // what it runs
}

const (
	maxIdle  = 256         // hands that wait for the next verb
	idleTime = time.Second // and how long one does
)

// hurry has hands at everything that waits before it returns. It begins with as many as there are processors and lets them
// go first, once: they may run verbs that keep the processors, and whoever hurries has a stream to read. What is left then
// has a hand each.
func (d *desk) hurry() {
	for n := runtime.GOMAXPROCS(0); ; n = math.MaxInt {
		d.mu.Lock()
		all := n >= len(d.todo)-d.taken
		n = min(n, len(d.todo)-d.taken)
		idle := len(d.idle) - min(n, len(d.idle))
		woken := slices.Clone(d.idle[idle:])
		clear(d.idle[idle:])
		d.idle = d.idle[:idle]
		d.mu.Unlock()
		if n == 0 {
			return
		}
		for _, h := range woken {
			h.wake <- struct{}{}
		}
		for range n - len(woken) {
			go d.work(&hand{wake: make(chan struct{}, 1)})
		}
		if all {
			return
		}
		runtime.Gosched()
	}
}

// work runs what waits. It ends when nothing comes for a while or enough others wait, and with a verb that ends its
// goroutine.
func (d *desk) work(h *hand) {
	h.alarm = time.AfterFunc(time.Hour, h.ring)
	h.rest = time.NewTimer(time.Hour)
	h.rest.Stop()
	home := false
	defer func() {
		h.alarm.Stop()
		if !home {
			go d.hurry()
		}
	}()
	for {
		t, more := d.next(h)
		if !more {
			home = true
			return
		}
		if t.e != nil {
			d.run(h, t)
		}
	}
}

// next takes what waits longest. Where nothing does, h waits for a while and looks again: then t is empty. more is false
// when h is to go.
func (d *desk) next(h *hand) (t task, more bool) {
	d.mu.Lock()
	if d.taken < len(d.todo) {
		t, d.todo[d.taken] = d.todo[d.taken], task{}
		if d.taken++; d.taken == len(d.todo) {
			d.todo, d.taken = d.todo[:0], 0
		}
		d.mu.Unlock()
		return t, true
	}
	many := len(d.idle) >= maxIdle
	if !many {
		d.idle = append(d.idle, h)
	}
	d.mu.Unlock()
	if many {
		return task{}, false
	}
	h.rest.Reset(idleTime)
	select {
	case <-h.wake:
		h.rest.Stop()
		return task{}, true
	case <-h.rest.C:
	case <-d.over:
	}
	d.mu.Lock()
	i := slices.Index(d.idle, h)
	if i >= 0 {
		d.idle = slices.Delete(d.idle, i, i+1)
	}
	d.mu.Unlock()
	if i < 0 { // somebody has just called it
		<-h.wake
	}
	return task{}, i < 0
}

// ring ends the context of a verb whose time is over. An alarm may come late, when the next one runs already.
func (h *hand) ring() {
	if e := h.at.Load(); e != nil && !time.Now().Before(e.run.Deadline) {
		e.ctx.expire()
	}
}

// run is one verb.
func (d *desk) run(h *hand, t task) {
	e, s := t.e, said{failed: true}
	h.at.Store(e)
	h.alarm.Reset(time.Until(e.run.Deadline))
	defer func() { // also when the verb ends its goroutine
		h.alarm.Stop()
		h.at.Store(nil)
		d.end(e, judge(&e.ctx, e, s))
		e.ctx.close()
	}()
	if s.text = "not begun"; e.ctx.Err() != nil {
		return
	}
	s.text = "the verb ended its goroutine"
	s = guard(&e.ctx, t.fn, t.payload, &e.run, d.log)
}
