package deploy

import (
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
	"carillon/backend/core/schedule"
	"carillon/backend/core/schema"
)

// Kind of a change to one cron job.
type Kind int

const (
	Added Kind = iota + 1
	Changed
	Removed
	Unchanged
	Revived
)

// Change is what a deploy does to one cron job, for people.
type Change struct {
	Kind        Kind
	Ref         string
	Schedule    string
	OldSchedule string
	Zone        string
	Next        []time.Time // the next three slots
}

const shownSlots = 3

// plan decides what makes a schema the live one of its module. A cron job is its ref: a new version takes the same row
// over, so history, pause and the run in flight survive. Pure; m.Now is the transaction's time.
func plan(m deployment.Module, s schema.Module) (deployment.Update, []Change, error) {
	u := deployment.Update{Activate: true, MinReplicas: new(int), Limits: limits(s)}
	*u.MinReplicas = 1
	stopped := m.Live != nil && m.Live.MinReplicas == 0
	if m.Live != nil && !stopped {
		*u.MinReplicas = m.Live.MinReplicas
	}
	rows := make(map[string]cron.Job, len(m.Jobs))
	for _, j := range m.Jobs {
		rows[j.Ref] = j
	}
	var changes []Change
	for _, v := range s.Verbs {
		if v.Cron == nil {
			continue
		}
		ref := s.Name + "." + v.Name
		compiled, err := v.Cron.Compile()
		if err != nil {
			return u, nil, fmt.Errorf("%w: %s: %w", cron.ErrInvalid, ref, err)
		}
		old, exists := rows[ref]
		delete(rows, ref)
		job, change := takeOver(old, exists, ref, v, compiled, stopped, m.Now)
		u.Jobs = append(u.Jobs, job)
		changes = append(changes, change)
	}
	for _, j := range m.Jobs {
		if _, gone := rows[j.Ref]; gone && j.RemovedAt.IsZero() {
			u.Jobs = append(u.Jobs, remove(j, m.Now))
			changes = append(changes, Change{Kind: Removed, Ref: j.Ref, OldSchedule: j.Schedule, Zone: j.Zone})
		}
	}
	return u, changes, nil
}

// takeOver makes the row of one verb under its new declaration.
func takeOver(old cron.Job, exists bool, ref string, v schema.Verb, s schedule.Schedule, stopped bool, now time.Time) (deployment.JobUpdate, Change) {
	c, job := *v.Cron, old
	job.Ref, job.Schedule, job.Zone = ref, c.Schedule, c.TimeZone
	job.Timeout, job.Catchup, job.Overlap = c.SoftTimeout(), cron.Catchup(c.Catchup.String()), cron.Overlap(c.Overlap.String())
	job.Fires, job.Retry = v.Fires(), retry(v)
	job.SetAsideAt, job.RemovedAt = time.Time{}, time.Time{}
	job.Enabled = job.PausedAt.IsZero()
	change := Change{Kind: Unchanged, Ref: ref, Schedule: job.Schedule, OldSchedule: old.Schedule, Zone: job.Zone, Next: upcoming(s, now)}
	u := deployment.JobUpdate{}
	switch {
	case !exists:
		job.Shard = ring.Shard(ref)
		job.Next, _ = s.Next(now)
		change.Kind = Added
	case !old.RemovedAt.IsZero():
		job.Next, _ = s.Next(now)
		change.Kind = Revived
	default:
		if differ(old, job) {
			change.Kind = Changed
		}
		if job.Enabled && !old.Enabled { // it was set aside, or the module stopped
			u.Skipped, job.Next = cron.Resume(job, s, now)
			u.Reason = "set aside"
			if stopped {
				u.Reason = "scaled to 0"
			}
		} else if job.Next.IsZero() || job.Next.After(now) { // what is due already stays due
			job.Next, _ = s.Next(now)
		}
	}
	u.Job = job
	return u, change
}

// differ says whether two rows of a ref are declared differently.
func differ(a, b cron.Job) bool {
	return a.Schedule != b.Schedule || a.Zone != b.Zone || a.Timeout != b.Timeout || a.Catchup != b.Catchup || a.Overlap != b.Overlap ||
		a.Fires != b.Fires || a.Retry != b.Retry
}

// retry is how the jobs of a firing verb are repeated. Without a retry a slot's verb is called at most once, as that of
// a slot which is no job; with one, what it leaves open is as for all jobs.
func retry(v schema.Verb) cron.Retry {
	switch {
	case !v.Fires():
		return cron.Retry{}
	case v.Retry == nil:
		return cron.Retry(job.Complete(job.New{Retry: job.Retry{Attempts: 1}}).Retry)
	}
	return cron.Retry(job.Complete(job.New{Retry: job.Retry(*v.Retry)}).Retry)
}

// limits are the bounds on the running jobs of a module's verbs, by ref.
func limits(s schema.Module) map[string]int {
	most := map[string]int{}
	for _, v := range s.Verbs {
		n := v.Concurrency
		if v.Fires() && oneByOne(*v.Cron) {
			n = 1
		}
		if n > 0 {
			most[s.Name+"."+v.Name] = n
		}
	}
	return most
}

// oneByOne says that the jobs of a firing verb's slots run one after the other. Under catchup all no slot is skipped for
// the one before it: they queue.
func oneByOne(c schema.Cron) bool {
	return c.Overlap == schema.OverlapQueue || c.Overlap == schema.OverlapSkip && c.Catchup == schema.CatchupAll
}

// remove takes a verb that is gone off the clock. Its row stays, for its history and its run in flight; what was due
// and undecided is decided now.
func remove(j cron.Job, now time.Time) deployment.JobUpdate {
	u := deployment.JobUpdate{Reason: "verb removed"}
	if !j.Next.IsZero() && !j.Next.After(now) {
		u.Skipped = cron.Range{From: j.Next, To: j.Next, Count: 1}
		if s, err := compile(j); err == nil {
			u.Skipped, _ = cron.Resume(j, s, now)
		}
	}
	j.RemovedAt, j.Enabled, j.Next = now, false, time.Time{}
	u.Job = j
	return u
}

// scale decides what a new number of wanted runners changes: 0 stops all starts, and leaving 0 goes on at the first
// slot after now. A row whose schedule cannot be read holds its neighbours back from nothing: it is enabled as it is,
// and the first controller that looks at it sets it aside with the reason.
func scale(m deployment.Module, replicas int) (deployment.Update, error) {
	if m.Live == nil {
		return deployment.Update{}, fmt.Errorf("%w: nothing of module %s is deployed", cron.ErrNotFound, m.Name)
	}
	u := deployment.Update{MinReplicas: &replicas}
	for _, j := range m.Jobs {
		switch on := replicas > 0; {
		case !j.RemovedAt.IsZero() || !j.PausedAt.IsZero() || !j.SetAsideAt.IsZero() || j.Enabled == on:
		case !on:
			j.Enabled = false
			u.Jobs = append(u.Jobs, deployment.JobUpdate{Job: j})
		default:
			job, err := enable(j, "scaled to 0", m.Now)
			if err != nil {
				j.Enabled = true
				job = deployment.JobUpdate{Job: j}
			}
			u.Jobs = append(u.Jobs, job)
		}
	}
	return u, nil
}

// pause decides a pause of one cron job; pausing what is paused changes the reason only.
func pause(m deployment.Module, ref, reason string) (deployment.Update, error) {
	j, err := find(m, ref)
	if err != nil {
		return deployment.Update{}, err
	}
	if j.PausedAt.IsZero() {
		j.PausedAt = m.Now
	}
	j.Enabled = false
	return deployment.Update{Jobs: []deployment.JobUpdate{{Job: j, PausedNote: &reason}}}, nil
}

// resume decides the end of a pause. It is a no-op for what is not paused.
func resume(m deployment.Module, ref, note string) (deployment.Update, error) {
	j, err := find(m, ref)
	if err != nil || j.PausedAt.IsZero() {
		return deployment.Update{}, err
	}
	j.PausedAt = time.Time{}
	empty := ""
	u := deployment.JobUpdate{Job: j}
	if j.SetAsideAt.IsZero() && m.Live != nil && m.Live.MinReplicas > 0 {
		reason := "paused"
		if note != "" {
			reason += ": " + note
		}
		if u, err = enable(j, reason, m.Now); err != nil {
			return deployment.Update{}, err
		}
	}
	u.PausedNote = &empty
	return deployment.Update{Jobs: []deployment.JobUpdate{u}}, nil
}

func enable(j cron.Job, reason string, now time.Time) (deployment.JobUpdate, error) {
	s, err := compile(j)
	if err != nil {
		return deployment.JobUpdate{}, fmt.Errorf("%w: %s: %w", cron.ErrPrecond, j.Ref, err)
	}
	u := deployment.JobUpdate{Reason: reason}
	u.Skipped, j.Next = cron.Resume(j, s, now)
	j.Enabled = true
	u.Job = j
	return u, nil
}

func find(m deployment.Module, ref string) (cron.Job, error) {
	for _, j := range m.Jobs {
		if j.Ref == ref && j.RemovedAt.IsZero() {
			return j, nil
		}
	}
	return cron.Job{}, fmt.Errorf("%w: no cron job %s", cron.ErrNotFound, ref)
}

func compile(j cron.Job) (schedule.Schedule, error) {
	loc, err := schedule.LoadLocation(j.Zone)
	if err != nil {
		return schedule.Schedule{}, err
	}
	return schedule.Parse(j.Schedule, schedule.Verb, loc)
}

func upcoming(s schedule.Schedule, now time.Time) []time.Time {
	var slots []time.Time
	for range shownSlots {
		next, ok := s.Next(now)
		if !ok {
			break
		}
		slots, now = append(slots, next), next
	}
	return slots
}
