package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"carillon/backend/core/cron"
)

// Run holds the streams and rings the alarms until ctx ends. Then it takes no more calls, ends those in flight as
// cancelled, closes the streams and returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	live, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		d.mu.Lock()
		if d.changed {
			d.reconcile(live, &parts)
		}
		d.ring(time.Now())
		d.sleeps = time.Now().Add(time.Minute)
		if len(d.alarms) > 0 && d.alarms[0].at.Before(d.sleeps) {
			d.sleeps = d.alarms[0].at
		}
		timer.Reset(time.Until(d.sleeps))
		d.unlock()
		select {
		case <-d.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	d.mu.Lock()
	d.closed = errStop.Error()
	d.wanted, d.changed = nil, false
	for _, c := range d.calls {
		if c.state == waiting || c.state == assigned {
			d.finish(c, Outcome{Verdict: cron.Cancelled, Error: d.closed})
		}
	}
	d.unlock()
	stop(errStop)
	parts.Wait()
	return nil
}

// reconcile makes the runners those that are wanted.
func (d *Dispatcher) reconcile(ctx context.Context, parts *sync.WaitGroup) {
	d.changed = false
	wanted := make(map[string]Runner, len(d.wanted))
	for _, w := range d.wanted {
		wanted[w.Key] = w
	}
	for key, r := range d.runners {
		w, ok := wanted[key]
		if ok && w.Endpoint == r.Endpoint && w.Deployment == r.Deployment && w.Stream == r.Stream {
			if r.Capacity = w.Capacity; !r.Stream {
				r.level = clampLevel(maxCredits, r.Capacity)
				d.pump(r.Deployment)
			}
			continue
		}
		d.leave(r)
		delete(d.runners, key)
	}
	for key, w := range wanted {
		if d.runners[key] == nil {
			d.runners[key] = d.enter(ctx, w, parts)
		}
	}
}

func (d *Dispatcher) enter(ctx context.Context, w Runner, parts *sync.WaitGroup) *runner {
	ctx, stop := context.WithCancelCause(ctx)
	r := &runner{Runner: w, pool: d.pool(w.Deployment), calls: map[*call]struct{}{}, stop: stop}
	r.alarm = alarm{index: -1, runner: r}
	r.pool.runners = append(r.pool.runners, r)
	if w.Stream {
		r.trouble = "not attached yet"
		parts.Go(func() { d.keep(ctx, r) })
		return r
	}
	r.level = clampLevel(maxCredits, w.Capacity)
	r.launch = d.launcher(ctx, d.client(d.transport(ctx, false), w.Endpoint, false), r, parts.Go)
	d.pump(r.Deployment)
	d.cfg.OnRoom()
	return r
}

// leave lets r have no more calls; it goes when those it has ended.
func (d *Dispatcher) leave(r *runner) {
	r.leaving = true
	r.pool.runners = slices.DeleteFunc(r.pool.runners, func(o *runner) bool { return o == r })
	d.unset(&r.alarm)
	if r.inFlight == 0 {
		r.stop(errGone)
	}
	d.drop(r.pool)
}
