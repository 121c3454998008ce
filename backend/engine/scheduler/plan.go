package scheduler

import (
	"slices"
	"strings"
	"time"

	"carillon/backend/core/cron"
)

// plan knows the rows that this controller looks after and says which to try when. It is pure: no I/O, no clock; now
// is always the estimate of the database's time, and whoever calls it holds the scheduler's lock.
//
// What it knows of a row may be old, and that is safe: a claim is a compare-and-set. It is only ever careful not to
// trade newer knowledge for older: everything learned gets a stamp, and a list that was asked for before the stamp of
// a row changes that row only if it shows a later version or a later slot.
type plan struct {
	steal   micros // how long after the first owner the second one tries
	rows    map[int64]*row
	shards  map[int32]*shard
	runs    map[cron.RunID]*run
	adopted map[string]*adoption // by module, or ref of a trigger
	parsed  schedules
	texts   map[string]string // one copy of each deployment's key and each policy
	heap    dueHeap
	stamp   int64
	listing int32
	claims  int // in flight
	calls   int // runs not ended
}

func newPlan(steal time.Duration) *plan {
	return &plan{
		steal: steal.Microseconds(), rows: map[int64]*row{}, shards: map[int32]*shard{}, runs: map[cron.RunID]*run{},
		adopted: map[string]*adoption{}, parsed: schedules{}, texts: map[string]string{},
	}
}

// badRow is a row whose schedule cannot be used.
type badRow struct {
	id, version int64
	ref, reason string
}

// load takes in rows of a list that was asked for at the stamp began, and returns those with a bad schedule. Rows of
// no shard, module or run of this controller are left out.
func (p *plan) load(jobs []cron.Job, began int64, listing int32, now micros) (bad []badRow) {
	for i := range jobs {
		job := &jobs[i]
		r := p.rows[job.ID]
		if r != nil {
			r.seen = listing
			if r.busy() || began < r.stamp && !newer(job, r) {
				continue
			}
		}
		if b := p.learn(job, now); b != nil {
			bad = append(bad, *b)
		}
	}
	return bad
}

func newer(job *cron.Job, r *row) bool {
	return job.Version > r.version || job.Version == r.version && toMicros(job.Next) > r.next
}

// learn makes the row what job says and arms it.
func (p *plan) learn(job *cron.Job, now micros) *badRow {
	r := p.rows[job.ID]
	if !job.RemovedAt.IsZero() {
		p.forget(r)
		return nil
	}
	sched, err := p.schedule(r, job)
	if err != nil {
		p.forget(r)
		if !job.Enabled {
			return nil // it is off the clock already
		}
		return &badRow{id: job.ID, version: job.Version, ref: job.Ref, reason: err.Error()}
	}
	if r == nil {
		r = p.add(job)
	} else if r.shard.id != job.Shard {
		p.detach(r)
		p.attach(r, job.Shard)
	}
	p.stamp++
	r.stamp = p.stamp
	r.seen = p.listing
	p.markAdopted(r)
	r.version, r.next, r.enabled = job.Version, toMicros(job.Next), job.Enabled
	r.executing = job.State == cron.Executing
	r.fires, r.cancels, r.limited = job.Fires, job.Overlap == cron.OverlapCancel, job.Limited
	r.timeout, r.sched = job.Timeout, sched
	r.deployment, r.catchup = p.text(job.Deployment), cron.Catchup(p.text(string(job.Catchup)))
	p.arm(r, now)
	p.tidy(r)
	return nil
}

func (p *plan) schedule(r *row, job *cron.Job) (*parsed, error) {
	if r != nil && r.sched != nil && r.sched.expr == job.Schedule && r.sched.zone == job.Zone {
		return r.sched, nil
	}
	return p.parsed.get(job.Schedule, job.Zone)
}

// text is the plan's own copy of a text that many rows have.
func (p *plan) text(s string) string {
	if known, ok := p.texts[s]; ok {
		return known
	}
	if len(p.texts) >= 10_000 {
		clear(p.texts) // deployments come and go
	}
	s = strings.Clone(s)
	p.texts[s] = s
	return s
}

func (p *plan) add(job *cron.Job) *row {
	r := &row{id: job.ID, ref: job.Ref, index: -1}
	p.rows[r.id] = r
	p.attach(r, job.Shard)
	return r
}

func (p *plan) attach(r *row, id int32) {
	s := p.shard(id)
	r.shard, r.pos = s, int32(len(s.rows))
	s.rows = append(s.rows, r)
}

func (p *plan) detach(r *row) {
	s, last := r.shard, len(r.shard.rows)-1
	s.rows[r.pos] = s.rows[last]
	s.rows[r.pos].pos = r.pos
	s.rows[last] = nil
	s.rows = s.rows[:last]
	r.shard = nil
}

func (p *plan) shard(id int32) *shard {
	s := p.shards[id]
	if s == nil {
		s = &shard{id: id}
		p.shards[id] = s
	}
	return s
}

// forget drops a row; nil is none.
func (p *plan) forget(r *row) {
	if r == nil {
		return
	}
	p.heap.remove(r)
	if !r.claim.IsZero() {
		r.claim = cron.RunID{}
		p.claims--
	}
	p.detach(r)
	delete(p.rows, r.id)
}

// tidy drops a row that nobody wants any more.
func (p *plan) tidy(r *row) {
	if !r.wanted() {
		p.forget(r)
	}
}

// missing drops the rows of a shard that a finished listing has not seen, and those that it may not know yet stay.
func (p *plan) missing(id int32, began int64, listing int32) {
	s := p.shards[id]
	if s == nil {
		return
	}
	for _, r := range slices.Backward(s.rows) {
		if r.seen != listing && r.stamp <= began && !r.busy() {
			p.forget(r)
		}
	}
}

// own sets the role in a shard and arms its rows by it. A shard with the role none keeps its rows, tried as before,
// until drop; it returns whether the role was gained, so that the shard's rows have to be fetched.
func (p *plan) own(id int32, to role, now micros, local time.Time) (gained bool) {
	s := p.shards[id]
	switch {
	case s == nil && to == none:
		return false
	case s == nil:
		s = p.shard(id)
	case to == none:
		if s.role != none && s.lost.IsZero() {
			s.lost = local
		}
		return false
	}
	gained = s.role == none || !s.lost.IsZero()
	s.lost = time.Time{}
	if s.role != to {
		s.role = to
		for _, r := range s.rows {
			p.arm(r, now)
		}
	}
	return gained
}

// drop gives a shard up whose grace is over.
func (p *plan) drop(id int32, now micros) {
	s := p.shards[id]
	s.role, s.lost = none, time.Time{}
	for _, r := range slices.Backward(s.rows) {
		p.arm(r, now)
		p.tidy(r)
	}
	if len(s.rows) == 0 {
		delete(p.shards, id)
	}
}

// arm puts a row into the heap at its next try, or takes it out.
func (p *plan) arm(r *row, now micros) {
	if at := p.tryAt(r, now); at != 0 {
		p.heap.put(r, at)
	} else {
		p.heap.remove(r)
	}
}

// tryAt is when this controller tries the row. What is overdue by more than the steal delay is past for both owners:
// they try it at once.
func (p *plan) tryAt(r *row, now micros) micros {
	if r.busy() || !r.enabled || r.next == 0 || !r.wanted() {
		return 0
	}
	at := r.next
	if r.executing && at <= now {
		at = toMicros(cron.Armed(r.job(), r.sched.Schedule, fromMicros(now)))
	}
	if at != 0 && r.shard.role == secondOwner && !r.adopted && !r.visitor {
		at += p.steal
	}
	return at
}

// nextAt is the earliest try; zero: none is armed.
func (p *plan) nextAt() micros {
	if len(p.heap) == 0 {
		return 0
	}
	return p.heap[0].at
}
