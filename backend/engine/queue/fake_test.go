package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

// database is the tables of the queue in memory, on a clock of its own.
type database struct {
	mu         sync.Mutex
	offset     time.Duration
	queues     []job.Queue
	limits     map[string]int
	taken      map[string]int // places of limits
	most       map[string]int // the most that ever were running, by ref
	jobs       map[int64]*row
	history    []ended
	last       int64
	silent     map[string]bool // controllers whose lease is over
	statements map[string]int
}

type row struct {
	job.Claimed
	Priority   int
	state      job.State
	controller string
	deadline   time.Time
	cancelled  bool
	children   int
	progress   string
}

type ended struct {
	job.Claimed
	state job.State
	at    time.Time
	text  string

	progress string
}

func newDatabase() *database {
	return &database{jobs: map[int64]*row{}, statements: map[string]int{}, limits: map[string]int{}, taken: map[string]int{},
		most: map[string]int{}, silent: map[string]bool{}}
}

func (d *database) now() time.Time { return time.Now().Add(d.offset).UTC().Truncate(time.Microsecond) }

// store is one controller's connection; every statement takes a millisecond, and fault may break it before or after
// it is done.
type store struct {
	*database
	controller string
	fault      func(statement string, done bool) error
	dead       time.Duration // what a read from a window's start takes, as if somebody held a snapshot
}

type lostAnswer struct{}

func (lostAnswer) Error() string { return "connection lost" }
func (lostAnswer) Unknown() bool { return true }

var errAway = errors.New("the database is away")

const trip = time.Millisecond

func (s *store) do(name string, f func(now time.Time)) error {
	time.Sleep(trip / 2)
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(name, false); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.statements[name]++
	f(s.now())
	s.mu.Unlock()
	time.Sleep(trip / 2)
	if fault != nil {
		return fault(name, true)
	}
	return nil
}

// breaks sets the fault.
func (s *store) breaks(fault func(statement string, done bool) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *store) queueOf(id int32) *job.Queue { return &s.queues[id-1] }

func (s *store) PutQueues(_ context.Context, queues []job.Queue) (out []job.Queue, err error) {
	err = s.do("put", func(time.Time) {
		for _, q := range queues {
			i := slices.IndexFunc(s.queues, func(o job.Queue) bool { return o.Tenant == q.Tenant && o.Ref == q.Ref && o.Lane == q.Lane })
			if i < 0 {
				i = len(s.queues)
				s.queues = append(s.queues, job.Queue{ID: int32(i + 1), Tenant: q.Tenant, Ref: q.Ref, Lane: q.Lane})
			}
			s.queues[i].Limit = s.limits[q.Ref]
			out = append(out, s.queues[i])
		}
	})
	return out, err
}

func (s *store) ListQueues(context.Context) (out []job.Queue, err error) {
	err = s.do("list", func(time.Time) { out = slices.Clone(s.queues) })
	return out, err
}

func (s *store) begin(r *row, run cron.RunID, now time.Time) {
	r.state, r.Run, r.Started, r.controller, r.deadline = job.Running, run, now, s.controller, now.Add(r.Timeout+time.Minute)
	r.Attempt++
	if r.Limited = s.limits[r.Ref] > 0; r.Limited {
		s.taken[r.Ref]++
		s.most[r.Ref] = max(s.most[r.Ref], s.taken[r.Ref])
	}
}

func (s *store) free(r *row) {
	if r.Limited {
		s.taken[r.Ref]--
		r.Limited = false
	}
}

func (s *store) EnqueueJobs(_ context.Context, batch []job.Enqueue) (out []job.Enqueued, err error) {
	err = s.do("enqueue", func(now time.Time) {
		for _, e := range batch {
			if string(e.Payload) == `"refuse"` {
				out = append(out, job.Enqueued{Err: cron.ErrInvalid})
				continue
			}
			if p := s.jobs[e.Parent.N]; !e.Parent.IsZero() {
				if p == nil || p.state != job.Running || p.Run != e.ParentRun {
					out = append(out, job.Enqueued{Err: job.NoParent("over")})
					continue
				}
				p.children++
			}
			s.last++
			r := &row{Claimed: job.Claimed{
				ID: job.ID{N: s.last, Salt: 7}, Ref: e.Ref, Tenant: e.Tenant, Queue: e.Queue, Retry: e.Retry, Timeout: e.Timeout, Due: now.Add(e.Delay),
				Created: now, Expires: e.Expires, Payload: e.Payload, Parent: e.Parent.N, TriggerID: e.TriggerID, Envelope: e.Envelope,
			}, Priority: e.Priority, state: job.Ready}
			s.jobs[s.last] = r
			a := job.Enqueued{ID: r.ID, Due: r.Due, Created: now}
			if !e.Run.IsZero() && !s.queueOf(e.Queue).Paused && s.limits[e.Ref] == 0 {
				s.begin(r, e.Run, now)
				a.Started = now
			}
			out = append(out, a)
		}
	})
	if err != nil {
		out = nil
	}
	return out, err
}

func (s *store) ClaimJobs(_ context.Context, claims []job.Claim, limitRef string) (won []job.Claimed, over []job.Claim, err error) {
	err = s.do("claim", func(now time.Time) {
		for _, c := range claims {
			r := s.jobs[c.ID]
			limit := 0
			if r != nil {
				limit = s.limits[r.Ref]
			}
			switch {
			case limitRef != "" && s.taken[limitRef] >= s.limits[limitRef]:
				over = append(over, c)
				continue
			case r == nil || r.state != job.Ready || r.Due.After(now) || s.queueOf(r.Queue).Paused || (limit > 0) != (limitRef != ""),
				!r.Expires.IsZero() && !r.Expires.After(now):
				continue
			}
			s.begin(r, c.Run, now)
			won = append(won, r.Claimed)
		}
	})
	if err != nil {
		won, over = nil, nil
	}
	return won, over, err
}

func (s *store) end(ends []job.End, name string, f func(r *row, e job.End, a *job.Ended, now time.Time)) (out []job.Ended, err error) {
	err = s.do(name, func(now time.Time) {
		for _, e := range ends {
			a := job.Ended{ID: e.ID, Run: e.Run}
			r := s.jobs[e.ID]
			if r == nil || r.Run != e.Run || r.state != job.Running || r.Parent != e.Parent {
				a.Repeated = slices.ContainsFunc(s.history, func(h ended) bool { return h.Run == e.Run })
				a.Accepted = a.Repeated
				out = append(out, a)
				continue
			}
			s.free(r)
			a.Accepted, a.Queue = true, r.Queue
			f(r, e, &a, now)
			out = append(out, a)
		}
	})
	if err != nil {
		out = nil
	}
	return out, err
}

func (d *database) finish(r *row, e job.End, a *job.Ended, now time.Time) {
	a.State = e.Step.State
	if r.cancelled && a.State != job.Succeeded {
		a.State = job.Cancelled
	}
	delete(d.jobs, r.N)
	if e.Progress != "" {
		r.progress = e.Progress
	}
	d.history = append(d.history, ended{Claimed: r.Claimed, state: a.State, at: now, text: e.Outcome.Text, progress: r.progress})
	p := d.jobs[r.Parent]
	if p == nil {
		return
	}
	if p.children--; p.state == job.Blocked && p.children == 0 {
		p.state, p.Due = job.Ready, now
		a.Woken = job.Waiting{ID: p.N, Queue: p.Queue, Shard: shardOf(p.N), Priority: p.Priority, Due: now}
	}
}

func (s *store) FinishJobs(_ context.Context, ends []job.End) ([]job.Ended, error) {
	return s.end(ends, "finish", s.finish)
}

func (s *store) RetryJobs(_ context.Context, ends []job.End) ([]job.Ended, error) {
	return s.end(ends, "retry", func(r *row, e job.End, a *job.Ended, now time.Time) {
		if r.cancelled {
			s.finish(r, e, a, now)
			return
		}
		r.state, r.Run, r.controller, r.Due = job.Ready, cron.RunID{}, "", now.Add(e.Step.Delay)
		if e.Step.State == job.Blocked && r.children > 0 {
			r.state = job.Blocked
		}
		if e.Progress != "" {
			r.progress = e.Progress
		}
		if !e.Step.Counted {
			r.Attempt--
		}
		a.State, a.Due = r.state, r.Due
	})
}

func (s *store) PutProgress(_ context.Context, progress []job.Progress) error {
	return s.do("progress", func(time.Time) {
		for _, p := range progress {
			if r := s.jobs[p.ID]; r != nil && r.state == job.Running && r.Run == p.Run {
				r.progress = p.Text
			} else {
				s.statements["late progress"]++
			}
		}
	})
}

func (s *store) window(name string, want func(r *row, now time.Time) bool, page int) (out []job.Waiting, at time.Time, err error) {
	err = s.do(name, func(now time.Time) {
		at = now
		n := map[int32]int{}
		rows := make([]*row, 0, len(s.jobs))
		for _, r := range s.jobs {
			if r.state == job.Ready && want(r, now) {
				rows = append(rows, r)
			}
		}
		slices.SortFunc(rows, func(a, b *row) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.N, b.N)) })
		for _, r := range rows {
			if n[r.Queue]++; n[r.Queue] <= page {
				out = append(out, job.Waiting{ID: r.N, Queue: r.Queue, Shard: shardOf(r.N), Priority: r.Priority, Due: r.Due, Expires: r.Expires})
			}
		}
	})
	return out, at, err
}

func (s *store) FetchWindow(_ context.Context, cuts []job.Cut, shards []int32, ahead time.Duration, page int) ([]job.Waiting, time.Time, error) {
	own, after := map[int32]bool{}, map[int32]job.Cut{}
	for _, sh := range shards {
		own[sh] = true
	}
	s.mu.Lock()
	dead, name := s.dead, "fetch"
	s.mu.Unlock()
	for _, c := range cuts {
		after[c.Queue] = c
		if dead > 0 && c.Due.IsZero() {
			name = "fetch whole"
		}
	}
	if name != "fetch" {
		time.Sleep(dead)
	}
	return s.window(name, func(r *row, now time.Time) bool {
		c, ok := after[r.Queue]
		return ok && own[shardOf(r.N)] && !r.Due.After(now.Add(ahead)) && (r.Due.After(c.Due) || r.Due.Equal(c.Due) && r.N > c.ID)
	}, page)
}

func (s *store) FetchOverdue(_ context.Context, late time.Duration, page int) ([]job.Waiting, time.Time, error) {
	return s.window("overdue", func(r *row, now time.Time) bool { return r.Due.Before(now.Add(-late)) && !s.queueOf(r.Queue).Paused }, page)
}

func (s *store) FetchExpired(_ context.Context, shards []int32, page int) (ids []int64, err error) {
	err = s.do("expired", func(now time.Time) {
		for _, r := range s.jobs {
			if r.state == job.Ready && !r.Expires.IsZero() && !r.Expires.After(now) && slices.Contains(shards, shardOf(r.N)) && len(ids) < page {
				ids = append(ids, r.N)
			}
		}
	})
	return ids, err
}

func (s *store) ExpireJobs(_ context.Context, ids []int64) (gone []int64, woken []job.Waiting, err error) {
	err = s.do("expire", func(now time.Time) {
		for _, id := range ids {
			if r := s.jobs[id]; r != nil && r.state == job.Ready && !r.Expires.After(now) {
				var a job.Ended
				s.finish(r, job.End{Step: job.Step{State: job.Failed}, Outcome: job.Outcome{Text: "expired"}}, &a, now)
				if gone = append(gone, id); a.Woken.ID != 0 {
					woken = append(woken, a.Woken)
				}
			}
		}
	})
	return gone, woken, err
}

func (s *store) FindLostJobs(context.Context) (lost []job.Lost, err error) {
	err = s.do("lost", func(now time.Time) {
		for _, r := range s.jobs {
			if r.state == job.Running && (s.silent[r.controller] || r.deadline.Before(now)) {
				c := r.Claimed
				c.CancelAsked = r.cancelled
				lost = append(lost, job.Lost{Claimed: c, Controller: r.controller, TimedOut: r.deadline.Before(now)})
			}
		}
	})
	return lost, err
}

func (s *store) FindOwnJobs(_ context.Context, after int64, page int) (own []job.Claimed, err error) {
	err = s.do("own", func(now time.Time) {
		for _, r := range s.jobs {
			if r.state == job.Running && r.controller == s.controller && r.N > after && now.Sub(r.Started) > 2*time.Second {
				own = append(own, r.Claimed)
			}
		}
		slices.SortFunc(own, func(a, b job.Claimed) int { return cmp.Compare(a.N, b.N) })
		own = own[:min(page, len(own))]
	})
	return own, err
}
