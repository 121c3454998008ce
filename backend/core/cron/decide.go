package cron

import (
	"time"

	"carillon/backend/core/schedule"
)

// StepBack is how far the database's clock may step back before slots that it has passed already may come again: up
// to here the row waits for the clock, beyond it the row is repaired (TooFar).
const StepBack = 2 * time.Hour

// The slots of a job are its Next and every slot of its schedule after Next. Next counts even where the schedule does
// not have it: the schedule may have changed while the slot was already due.

// Decision is what a claim does with the undecided slots of an idle row. The zero Decision is none: nothing is due.
type Decision struct {
	Slot time.Time // the slot to run; zero: none runs
	Skip Range     // missed slots before it; with a zero Slot all that are due
	Next time.Time // first undecided slot afterwards; zero: none
}

// IsZero says that nothing is due.
func (d Decision) IsZero() bool { return d.Slot.IsZero() && d.Skip.IsZero() }

// Claim is the decision about a job as a row of StartCronJobs (of FireCronJobs where it fires) or, when no slot runs, of
// SkipCronJobs.
func (d Decision) Claim(job Job, id RunID) Claim {
	return Claim{
		JobID: job.ID, Version: job.Version, Expected: job.Next, Slot: d.Slot, Skip: d.Skip, Next: d.Next, RunID: id,
		Fires: job.Fires, Cancels: job.Fires && job.Overlap == OverlapCancel, Limited: job.Limited,
	}
}

// Decide says what a claim at now does with an idle, enabled job, by its catch-up policy:
//   - last: the latest slot runs, the ones before it are skipped;
//   - none: the same, but a latest slot more than NoneWindow old is skipped too;
//   - all: the oldest slot runs; of more than AllBacklog the oldest are skipped.
//
// No slot after now is ever decided.
func Decide(job Job, sched schedule.Schedule, now time.Time) Decision {
	if !job.Enabled || job.State != Idle || job.Next.IsZero() || job.Next.After(now) {
		return Decision{}
	}
	slot := latest(job.Next, sched, now)
	switch {
	case job.Catchup == CatchupAll:
		slot = oldest(job.Next, sched, slot)
	case job.Catchup == CatchupNone && now.Sub(slot) > NoneWindow:
		return Decision{Skip: rangeOf(job.Next, slot, sched), Next: FirstAfter(sched, slot)}
	}
	d := Decision{Slot: slot, Next: FirstAfter(sched, slot)}
	if slot.After(job.Next) {
		before, ok := sched.Prev(slot)
		if !ok || before.Before(job.Next) {
			before = job.Next
		}
		d.Skip = rangeOf(job.Next, before, sched)
	}
	return d
}

// latest is the last slot that is not after now, given that next is not.
func latest(next time.Time, sched schedule.Schedule, now time.Time) time.Time {
	if slot, ok := sched.PrevOrAt(now); ok && slot.After(next) {
		return slot
	}
	return next
}

// oldest is the slot with which a backlog that ends with last begins: next, or the first of the last AllBacklog.
func oldest(next time.Time, sched schedule.Schedule, last time.Time) time.Time {
	slot := last
	for range AllBacklog - 1 {
		before, ok := sched.Prev(slot)
		if !ok || !before.After(next) {
			return next
		}
		slot = before
	}
	return slot
}

// rangeOf is the range of slots from next to last, both included.
func rangeOf(next, last time.Time, sched schedule.Schedule) Range {
	r := Range{From: next, To: last, Count: 1}
	if last.After(next) {
		more, _ := sched.Count(next.Add(time.Nanosecond), last, MaxCount-1)
		r.Count += more
	}
	return r
}

// Overlapped says which slots came while a run executed, and the first undecided slot after them. It is computed when
// the run ends, from the row's own next slot; now must not be later than the database's. There is none for a job that
// is not enabled (its slots wait for Resume), under catchup all (they join the backlog), and where next was due before
// the run began (a manual run came first: the next claim decides it as missed).
func Overlapped(job Job, sched schedule.Schedule, next, now time.Time) (Range, time.Time) {
	if !job.Enabled || job.Catchup == CatchupAll || next.IsZero() || next.After(now) || !next.After(job.Current.Slot) {
		return Range{}, next
	}
	last := latest(next, sched, now)
	return rangeOf(next, last, sched), FirstAfter(sched, last)
}

// Resume says which slots passed while a job was disabled, and its first slot after now; zero: there is none.
func Resume(job Job, sched schedule.Schedule, now time.Time) (Range, time.Time) {
	next := FirstAfter(sched, now)
	if job.Next.IsZero() || job.Next.After(now) {
		return Range{}, next
	}
	return rangeOf(job.Next, latest(job.Next, sched, now), sched), next
}

// FirstAfter is the first slot of the schedule strictly after t; zero: there is none.
func FirstAfter(sched schedule.Schedule, t time.Time) time.Time {
	next, _ := sched.Next(t)
	return next
}

// Armed says when an owner tries the job next: at its next slot, or, while it executes, at its first slot after now,
// for its end is somebody else's to say. Zero: never, as long as the row stays as it is.
func Armed(job Job, sched schedule.Schedule, now time.Time) time.Time {
	switch {
	case !job.Enabled || job.Next.IsZero():
		return time.Time{}
	case job.State == Executing && !job.Next.After(now):
		return FirstAfter(sched, now)
	default:
		return job.Next
	}
}

// TooFar says that the next slot of an idle, enabled job is not what its schedule says, because the database's clock
// had jumped ahead and came back: it is later than the first slot after now, or missing although there is one. It
// returns the slot that mends it. now must be the database's, read with the job or after it. A clock that stepped back
// by up to StepBack repeats no slot: then the first slot after the last run counts.
func TooFar(job Job, sched schedule.Schedule, now time.Time) (time.Time, bool) {
	if !job.Enabled || job.State != Idle || !job.RemovedAt.IsZero() {
		return time.Time{}, false
	}
	if last := job.Current.Slot; job.Current.Kind != ManualRun && last.After(now) && last.Sub(now) <= StepBack {
		now = last
	}
	first := FirstAfter(sched, now)
	if first.IsZero() || !job.Next.IsZero() && !job.Next.After(first) {
		return time.Time{}, false
	}
	return first, true
}
