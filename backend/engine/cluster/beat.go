package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"carillon/backend/core/ring"
)

// answer to one heartbeat, or why there is none.
type answer struct {
	beat      ring.Beat
	sent, got time.Time // local
	err       error
}

// errLeft: Deregister was called.
var errLeft = errors.New("controller has left")

// watcher is the goroutine that beats and watches over the silence. It never waits for a statement, for the others'
// answers or for a ring, so its decisions come in time; only its goroutine touches the fields.
type watcher struct {
	c       *Cluster
	vigil   vigil
	clock   readings
	present []ring.Member // the members as the last good beat told them, this controller among them or not
	members chan []ring.Member
	// firstAlive is what AliveSince was at the first good beat: while it still is that, the row of beats never broke.
	firstAlive time.Time

	nextBeat       time.Time // local
	beating, again bool      // a beat is under way; another was due meanwhile
	asking         bool      // a question is under way
	failing        bool      // the last beat failed
	sparing        bool      // this silence has been counted as spared

	work     sync.WaitGroup
	answers  chan answer
	verdicts chan verdict
}

// watch returns nil when asked to stop.
func (c *Cluster) watch(ctx context.Context, members chan []ring.Member) error {
	w := &watcher{
		c:       c,
		vigil:   vigil{beat: c.cfg.Beat, silence: c.cfg.Silence, fence: c.cfg.Fence, lease: c.cfg.Lease},
		members: members, nextBeat: c.now(),
		answers: make(chan answer, 1), verdicts: make(chan verdict, 1),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer w.work.Wait()
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(w.act(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-c.poke:
			w.send(ctx)
		case v := <-w.verdicts:
			w.decide(ctx, v)
		case a := <-w.answers:
			w.beating = false
			switch {
			case ctx.Err() != nil:
			case errors.Is(a.err, errLeft):
				return nil
			case a.err != nil:
				w.failed(ctx, a)
			case a.beat.State == ring.Superseded:
				return fmt.Errorf("controller %s at %s: %w", c.cfg.Key, c.cfg.Endpoint, ErrSuperseded)
			default:
				w.succeeded(ctx, a)
			}
			if w.again {
				w.send(ctx)
			}
		}
	}
}

// act does what is due by now, and returns how long it is until the next thing: more than nothing.
func (w *watcher) act(ctx context.Context) time.Duration {
	now := w.c.now()
	if !now.Before(w.nextBeat) {
		w.send(ctx)
		// On the same beat for ever, whatever a wake-up was late by; what was slept through is left out.
		behind := now.Sub(w.nextBeat)
		w.nextBeat = w.nextBeat.Add(behind - behind%w.c.cfg.Beat + w.c.cfg.Beat)
	}
	wait := w.nextBeat.Sub(now)
	if due, ok := w.vigil.due(); ok && !w.asking {
		if !now.Before(due) {
			w.ask(ctx)
		} else {
			wait = min(wait, due.Sub(now))
		}
	}
	return wait
}

// send starts a beat, or remembers that one is due when the last is still under way: a slow database shall not halve
// the number of tries.
func (w *watcher) send(ctx context.Context) {
	w.again = w.beating
	if w.beating {
		return
	}
	w.beating = true
	w.work.Go(func() { w.answers <- w.c.try(ctx) })
}

// try is one heartbeat with all that belongs to it: a controller without a row (a new one, or one that was forgotten)
// registers, and one that drains says so again where the database has it as live.
func (c *Cluster) try(ctx context.Context) answer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.deadline())
	defer cancel()
	a := c.once(ctx)
	if a.err == nil && a.beat.State == ring.Absent {
		if err := c.register(ctx); err != nil {
			return answer{err: err}
		}
		if a = c.once(ctx); a.err == nil && a.beat.State == ring.Absent {
			a.err = errors.New("heartbeat: the controller's row is gone again")
		}
	}
	if a.err == nil && a.beat.State == ring.Live && c.draining.Load() {
		if err := c.store.SetState(ctx, ring.Draining); err != nil {
			c.cfg.Logger.WarnContext(ctx, "draining not written", "error", err) // the next beat tries again
		}
		a.beat.State = ring.Draining
	}
	return a
}

func (c *Cluster) once(ctx context.Context) (a answer) {
	a.sent = c.now()
	a.beat, a.err = c.store.Beat(ctx)
	a.got = c.now()
	if a.err != nil {
		a.err = fmt.Errorf("heartbeat: %w", a.err)
	}
	return a
}

func (c *Cluster) register(ctx context.Context) error {
	c.leaving.Lock()
	defer c.leaving.Unlock()
	if c.left {
		return errLeft
	}
	err := c.store.Register(ctx, ring.Controller{
		Member:  ring.Member{Key: c.cfg.Key, Endpoint: c.cfg.Endpoint},
		Version: c.cfg.Version, Host: c.cfg.Host, PID: c.cfg.PID,
	})
	if err != nil {
		return fmt.Errorf("register controller: %w", err)
	}
	c.cfg.Logger.InfoContext(ctx, "controller registered", "endpoint", c.cfg.Endpoint)
	return nil
}

func (w *watcher) failed(ctx context.Context, a answer) {
	w.c.count(func(s *Stats) { s.FailedBeats++ })
	if !w.failing {
		w.c.cfg.Logger.WarnContext(ctx, "heartbeat failed", "error", a.err)
	}
	w.failing = true
}

func (w *watcher) succeeded(ctx context.Context, a answer) {
	c := w.c
	silent := c.Silent()
	best := w.clock.add(reading{at: a.sent.Add(a.got.Sub(a.sent) / 2), db: a.beat.Now, trip: a.got.Sub(a.sent)})
	c.clock.Store(&best)

	w.see(a.beat)
	late, healed := w.vigil.good(a.sent, c.now(), len(w.others()))
	c.lastGood.Store(&a.sent)
	c.count(func(s *Stats) { s.Beats++ })
	if w.failing || healed {
		c.cfg.Logger.InfoContext(ctx, "heartbeat restored", "silent", silent)
	}
	w.failing, w.sparing = false, false
	if late {
		w.fence(ctx, silent)
	}
	if healed {
		c.cfg.OnHeal()
	}
	w.offer(a.beat.State)
}

// see takes over the members of a good beat. When this controller's own row of beats has broken, and until the new one
// is as old as the silence, it has no right to call others silent: after an outage of the database the first one back
// would see nobody else, and every ring would be torn up and mended within a beat. Until then who is missing stays.
func (w *watcher) see(b ring.Beat) {
	members := slices.Clone(b.Members)
	if w.firstAlive.IsZero() {
		w.firstAlive = b.AliveSince
	}
	if !b.AliveSince.Equal(w.firstAlive) && b.Now.Sub(b.AliveSince) < w.c.cfg.Silence {
		for _, m := range w.present {
			if m.Key != w.c.cfg.Key && !slices.ContainsFunc(members, func(o ring.Member) bool { return o.Key == m.Key }) {
				members = append(members, m)
			}
		}
	}
	w.present = members
}

// others are who could sweep this controller's runs.
func (w *watcher) others() []ring.Member {
	return slices.DeleteFunc(slices.Clone(w.present), w.self)
}

func (w *watcher) self(m ring.Member) bool { return m.Key == w.c.cfg.Key }

// offer hands the members to the goroutine that makes rings, in place of what it has not taken yet. An answer in which
// a live controller does not find itself tells of a cluster that it is not in; then the last ring stays.
func (w *watcher) offer(s ring.State) {
	members := w.present
	switch {
	case s == ring.Draining:
		members = w.others()
	case !slices.ContainsFunc(members, w.self):
		return
	}
	select {
	case <-w.members:
	default:
	}
	w.members <- members // never waits: there is room for one, and this is the only sender
}
