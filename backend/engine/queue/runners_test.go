package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

// runners are the runners of all verbs: one deployment for each module, room calls each.
type runners struct {
	mu       sync.Mutex
	room     int
	inFlight map[string]int
	gone     map[string]bool // modules
	stops    map[cron.RunID]context.CancelCauseFunc
	verb     func(ctx context.Context, c Call) job.Outcome
	wg       sync.WaitGroup
	log      []string // "ref attempt@time since start"
	started  map[int64][]time.Time
	order    []int64
	from     time.Time
	most     int
}

func moduleOf(ref string) string {
	module, _, _ := strings.Cut(ref, ".")
	return module
}

func (r *runners) Room(ref string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.room - r.inFlight[moduleOf(ref)]
}

func (r *runners) Deployment(ref string) (int64, string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return 1, "dpl-" + moduleOf(ref), !r.gone[moduleOf(ref)]
}

func (r *runners) Call(c Call, done func(job.Outcome)) {
	ctx, stop := context.WithCancelCause(context.Background())
	m := moduleOf(c.Ref)
	r.mu.Lock()
	r.inFlight[m]++
	r.most = max(r.most, r.inFlight[m])
	r.stops[c.Run] = stop
	r.started[c.Job.N] = append(r.started[c.Job.N], time.Now())
	r.order = append(r.order, c.Job.N)
	v := r.verb
	r.log = append(r.log, fmt.Sprintf("%s %d@%v", c.Ref, c.Attempt, time.Since(r.from).Round(time.Millisecond)))
	r.mu.Unlock()
	r.wg.Go(func() {
		o := v(ctx, c)
		if err := context.Cause(ctx); err != nil && o.Verdict != cron.Succeeded {
			o = job.Outcome{Verdict: cron.Cancelled, Text: err.Error()}
		}
		stop(nil)
		r.mu.Lock()
		r.inFlight[m]--
		delete(r.stops, c.Run)
		r.mu.Unlock()
		done(o)
	})
}

func (r *runners) Cancel(run cron.RunID, reason string) bool {
	r.mu.Lock()
	stop := r.stops[run]
	r.mu.Unlock()
	if stop != nil {
		stop(errors.New(reason))
	}
	return stop != nil
}

func (r *runners) cancelAll(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, stop := range r.stops {
		stop(errors.New(reason))
	}
}

func (r *runners) calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

func (r *runners) ran() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order)
}

// starts are the instants of a job's calls.
func (r *runners) starts(id int64) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.started[id])
}

func (r *runners) set(v served) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verb = v
}

func (r *runners) leave(module string, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[module] = gone
}

func (r *runners) setRoom(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.room = n
}

type served = func(ctx context.Context, c Call) job.Outcome

func succeed(context.Context, Call) job.Outcome { return job.Outcome{Verdict: cron.Succeeded} }

func failing(context.Context, Call) job.Outcome {
	return job.Outcome{Verdict: cron.Failed, Text: "no"}
}

// lasting ends early when it is cancelled.
func lasting(d time.Duration) served {
	return func(ctx context.Context, _ Call) job.Outcome {
		select {
		case <-time.After(d):
			return job.Outcome{Verdict: cron.Succeeded}
		case <-ctx.Done():
			return job.Outcome{Verdict: cron.Cancelled}
		}
	}
}
