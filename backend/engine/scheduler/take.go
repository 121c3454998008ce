package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"carillon/backend/core/cron"
)

// The life of a claim in the plan: take, then exactly one of won, lost or failed for each.

const (
	minStep micros = 1000      // µs; between two tries of a row that looked due and was not won
	maxStep micros = 5_000_000 // µs
)

// take returns at most limit claims that are due at now, in id order, and marks their rows. Claims without a Slot only
// skip. A row that was last seen executing is tried as if it were idle: the claim asks the database.
func (p *plan) take(now micros, limit int, mint func() cron.RunID) []cron.Claim {
	var claims []cron.Claim
	for len(claims) < limit && len(p.heap) > 0 && p.heap[0].at <= now {
		r := p.heap[0].row
		p.heap.remove(r)
		job := r.job()
		job.State = cron.Idle
		d := cron.Decide(job, r.sched.Schedule, fromMicros(now))
		if d.IsZero() { // a visitor that is not due after all
			r.visitor = false
			p.arm(r, now)
			if r.index >= 0 {
				p.heap.put(r, max(p.heap[r.index].at, now+minStep))
			}
			p.tidy(r)
			continue
		}
		r.claim = mint()
		p.claims++
		claims = append(claims, d.Claim(job, r.claim))
	}
	slices.SortFunc(claims, func(a, b cron.Claim) int { return cmp.Compare(a.JobID, b.JobID) })
	return claims
}

// settle ends a claim and returns its row, nil if that is gone.
func (p *plan) settle(c cron.Claim) *row {
	r := p.rows[c.JobID]
	if r != nil && r.claim == c.RunID {
		r.claim, r.visitor = cron.RunID{}, false
		p.claims--
	}
	return r
}

// won makes a claim a run that executes here.
func (p *plan) won(c cron.Claim, started time.Time) (*run, bool) {
	r := p.settle(c)
	if r == nil || p.runs[c.RunID] != nil {
		return nil, false
	}
	p.stamp++
	r.stamp, r.misses = p.stamp, 0
	r.executing, r.next = true, toMicros(c.Next)
	return p.begin(r, c.RunID, c.Slot, c.Version, cron.SlotRun, started), true
}

// fired takes in that a slot became a job, or was skipped for one: the row is idle, and armed for its next slot.
func (p *plan) fired(c cron.Claim, now micros) {
	r := p.settle(c)
	if r == nil || r.busy() {
		return
	}
	p.stamp++
	r.stamp, r.misses = p.stamp, 0
	r.executing, r.next = false, toMicros(c.Next)
	if r.next == 0 && r.fires && strings.HasPrefix(r.sched.expr, onceWord) {
		p.forget(r)
		return
	}
	p.arm(r, now)
	p.tidy(r)
}

// begin notes a run of a row.
func (p *plan) begin(r *row, id cron.RunID, slot time.Time, version int64, kind cron.Kind, started time.Time) *run {
	u := &run{id: id, row: r, sched: r.sched, job: r.job(), next: r.next, started: started}
	u.job.Version = version
	u.job.Current = cron.Run{ID: id, JobID: r.id, Ref: r.ref, Slot: slot, Kind: kind, Attempt: 1, Deployment: r.deployment, StartedAt: started}
	r.run = u
	p.heap.remove(r)
	p.runs[id] = u
	p.calls++
	return u
}

// lost takes in the rows whose claims were not won, read after the claim, with the database's time. A row that is as
// it was and not due yet is armed from that time; one that looks due is not tried again before a step that doubles.
func (p *plan) lost(claims []cron.Claim, jobs []cron.Job, dbNow, now micros) (bad []badRow) {
	found := make(map[int64]*cron.Job, len(jobs))
	for i := range jobs {
		found[jobs[i].ID] = &jobs[i]
	}
	for _, c := range claims {
		r := p.settle(c)
		job := found[c.JobID]
		switch {
		case r == nil || r.busy():
			continue
		case job == nil:
			p.forget(r)
			continue
		}
		same := job.State == cron.Idle && job.Version == c.Version && job.Next.Equal(c.Expected)
		r.misses = missesAfter(r.misses, same)
		if b := p.learn(job, now); b != nil {
			bad = append(bad, *b)
		}
		if same && r.index >= 0 {
			step := min(minStep<<(r.misses-1), maxStep)
			p.heap.put(r, max(p.heap[r.index].at, now+step, now+r.next-dbNow))
		}
	}
	return bad
}

func missesAfter(misses uint8, again bool) uint8 {
	if !again {
		return 0
	}
	return min(misses+1, 20)
}

// failed arms the rows of claims that got no answer at now + after.
func (p *plan) failed(claims []cron.Claim, now micros, after time.Duration) {
	for _, c := range claims {
		r := p.settle(c)
		if r == nil || r.busy() {
			continue
		}
		p.arm(r, now)
		if r.index >= 0 {
			p.heap.put(r, max(p.heap[r.index].at, now+after.Microseconds()))
		}
		p.tidy(r)
	}
}

// finish makes the outcome of a call the end of its run; now must not be later than the database's. False: the run is
// not known, or has ended.
func (p *plan) finish(id cron.RunID, o Outcome, now micros) (cron.End, bool) {
	u := p.runs[id]
	if u == nil || u.ended {
		return cron.End{}, false
	}
	switch o.Verdict {
	case cron.Succeeded, cron.Failed, cron.TimedOut, cron.Cancelled, cron.Lost:
	default:
		o = Outcome{Verdict: cron.Failed, Error: fmt.Sprintf("the call ended with the verdict %q: %s", o.Verdict, o.Error)}
	}
	u.ended = true
	p.calls--
	end := cron.End{JobID: u.job.ID, RunID: id, Slot: u.job.Current.Slot, Verdict: o.Verdict, Error: cron.SafeText(o.Error), Version: u.job.Version}
	end.Overlap, end.Next = cron.Overlapped(u.job, u.sched.Schedule, fromMicros(u.next), fromMicros(now))
	return end, true
}

// ended takes in the answer to an end. It returns true if the row has to be read again: it changed while it ran, or
// the run was not current any more.
func (p *plan) ended(e cron.Ended, now micros) (reload bool) {
	u := p.runs[e.RunID]
	if u == nil {
		return false
	}
	delete(p.runs, e.RunID)
	r := u.row
	if r.run != u {
		return false // a later run of the row took over
	}
	r.run = nil
	p.stamp++
	r.stamp = p.stamp
	if e.Accepted && !e.Repeated {
		r.executing, r.next, r.enabled = false, toMicros(e.Next), e.Enabled
		reload = e.Version != r.version
	} else {
		reload = true
	}
	p.arm(r, now)
	p.tidy(r)
	return reload
}
