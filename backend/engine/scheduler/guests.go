package scheduler

import (
	"time"

	"carillon/backend/core/cron"
)

// Rows that the ring does not give to this controller, and that it has to do with all the same: modules that it
// deployed and looks after until the owners know them, rows that the sweep found overdue, runs that it was asked to
// start.

// adoption is a module, or one trigger, that this controller looks after whatever its shards.
type adoption struct {
	since time.Time // local
	ids   map[int64]struct{}
}

func (p *plan) adopt(module string, local time.Time) {
	if p.adopted[module] == nil {
		p.adopted[module] = &adoption{ids: map[int64]struct{}{}}
	}
	p.adopted[module].since = local
}

func (p *plan) markAdopted(r *row) {
	if len(p.adopted) == 0 {
		return
	}
	if a := p.adopted[moduleOf(r.ref)]; a != nil {
		r.adopted = true
		a.ids[r.id] = struct{}{}
	}
}

// release ends an adoption; rows of own shards stay.
func (p *plan) release(module string, now micros) {
	a := p.adopted[module]
	if a == nil {
		return
	}
	delete(p.adopted, module)
	for id := range a.ids {
		if r := p.rows[id]; r != nil {
			r.adopted = false
			p.arm(r, now)
			p.tidy(r)
		}
	}
}

// releaseOld ends the adoptions that began before an instant of the local clock.
func (p *plan) releaseOld(before time.Time, now micros) {
	for module, a := range p.adopted {
		if a.since.Before(before) {
			p.release(module, now)
		}
	}
}

// visit takes in overdue rows, to be tried once, at once, whatever their shard.
func (p *plan) visit(jobs []cron.Job, now micros) (bad []badRow) {
	for i := range jobs {
		job := &jobs[i]
		r := p.rows[job.ID]
		if r != nil && r.busy() || !job.Enabled || job.State != cron.Idle || job.Next.IsZero() {
			continue
		}
		if r == nil {
			r = p.add(job)
		}
		r.visitor = true
		if b := p.learn(job, now); b != nil {
			bad = append(bad, *b)
		}
	}
	return bad
}

// started takes in a row that executes in this controller's name: a run that a person asked for, or a claim whose
// answer got lost. False: the run is known already. A schedule that cannot be used does not keep a run from its end.
func (p *plan) started(job *cron.Job) (*run, bool) {
	if p.runs[job.Current.ID] != nil {
		return nil, false
	}
	r := p.rows[job.ID]
	sched, err := p.schedule(r, job)
	if err != nil {
		sched = &parsed{expr: job.Schedule, zone: job.Zone}
	}
	if r == nil {
		r = p.add(job)
	}
	p.stamp++
	r.stamp = p.stamp
	p.markAdopted(r)
	r.version, r.next, r.enabled, r.executing = job.Version, toMicros(job.Next), job.Enabled && err == nil, true
	r.deployment, r.timeout, r.sched, r.catchup = job.Deployment, job.Timeout, sched, job.Catchup
	r.fires, r.cancels, r.limited = job.Fires, job.Overlap == cron.OverlapCancel, job.Limited
	u := p.begin(r, job.Current.ID, job.Current.Slot, job.Version, job.Current.Kind, job.Current.StartedAt)
	if job.Current.Deployment != "" {
		u.job.Current.Deployment = job.Current.Deployment
	}
	return u, true
}
