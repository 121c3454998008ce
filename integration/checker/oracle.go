package checker

import "time"

// slotState says whether a second is a slot.
type slotState uint8

const (
	never slotState = iota
	may             // under one of the schedules that may have been in force
	must            // under each of them
)

// oracle decides what the slots of a job are, one second at a time.
type oracle struct {
	job   Job
	first time.Time // no slot is before it
}

func newOracle(job Job) oracle {
	o := oracle{job: job}
	if len(job.Eras) > 0 {
		o.first = ceil(job.Eras[0].Asked)
	}
	return o
}

func ceil(t time.Time) time.Time {
	whole := t.Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole
}

// at judges one instant. Between Asked and Acked of an era the one before may still be in force.
func (o oracle) at(t time.Time) slotState {
	if t.Nanosecond() != 0 {
		return never
	}
	possible, matching := 0, 0
	eras := o.job.Eras
	for i := -1; i < len(eras); i++ { // -1: before the first there is no schedule
		begun := i < 0 || !t.Before(eras[i].Asked)
		over := i+1 < len(eras) && t.After(eras[i+1].Acked)
		if !begun || over {
			continue
		}
		possible++
		if i >= 0 && eras[i].Match != nil && eras[i].Match(t) {
			matching++
		}
	}
	switch {
	case matching == 0:
		return never
	case matching < possible:
		return may
	}
	return must
}

// paused says whether the job was surely paused at t.
func (o oracle) paused(t time.Time) bool {
	for _, p := range o.job.Pauses {
		if t.After(p.Acked) && (p.ResumeAsked.IsZero() || t.Before(p.ResumeAsked)) {
			return true
		}
	}
	return false
}

// resumed is when the job was last resumed at or before t, at the latest; zero: never.
func (o oracle) resumed(t time.Time) time.Time {
	var last time.Time
	for _, p := range o.job.Pauses {
		if !p.ResumeAsked.IsZero() && !p.ResumeAsked.After(t) && p.ResumeAcked.After(last) {
			last = p.ResumeAcked
		}
	}
	return last
}

// resumedBy says whether what was written at t may have been written by a resume.
func (o oracle) resumedBy(t time.Time) bool {
	for _, p := range o.job.Pauses {
		if !p.ResumeAsked.IsZero() && !t.Before(p.ResumeAsked) && !t.After(p.ResumeAcked) {
			return true
		}
	}
	return false
}

// pausedAround says whether the job may have been paused at t or at most slack later.
func (o oracle) pausedAround(t time.Time, slack time.Duration) bool {
	for _, p := range o.job.Pauses {
		if !t.Before(p.Asked.Add(-slack)) && (p.ResumeAsked.IsZero() || !t.After(p.ResumeAcked)) {
			return true
		}
	}
	return false
}
