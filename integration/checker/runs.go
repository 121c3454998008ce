package checker

import "time"

// runsOf judges the runs of a job: when they started, that no two were current at once, and why they ended as they did.
func (c *check) runsOf(j *jobHistory) {
	var before *Row // the one that ended last of those that started before
	for i := range j.runs {
		r := &j.runs[i]
		if r.EndedAt.Before(r.StartedAt) {
			c.add(Ghost, j.ref, r.Slot, "run %s ended before it started", r.RunID)
		}
		if r.StartedAt.Before(r.Slot) {
			c.add(Early, j.ref, r.Slot, "started %s before its slot", r.Slot.Sub(r.StartedAt))
		}
		if before != nil && r.StartedAt.Before(before.EndedAt) {
			c.add(DoubleClaim, j.ref, r.Slot, "run %s started at %s, but run %s was current until %s", r.RunID, clock(r.StartedAt), before.RunID, clock(before.EndedAt))
		}
		if j.known && !r.Manual {
			c.punctual(j, r, before)
			if j.oracle.paused(r.StartedAt) {
				c.add(Ghost, j.ref, r.Slot, "started at %s, while paused", clock(r.StartedAt))
			}
		}
		c.reason(j, r)
		if before == nil || r.EndedAt.After(before.EndedAt) {
			before = r
		}
	}
}

// punctual demands a start soon after the slot, or after what held it up.
func (c *check) punctual(j *jobHistory, r *Row, before *Row) {
	ready := r.Slot
	if before != nil && before.EndedAt.After(ready) {
		ready = before.EndedAt
	}
	if t := j.oracle.resumed(r.StartedAt); t.After(ready) {
		ready = t
	}
	for _, e := range j.job.Eras { // a deploy in between may take its lock first
		if e.Asked.Before(r.StartedAt) && e.Acked.After(ready) {
			ready = e.Acked
		}
	}
	if late := r.StartedAt.Sub(ready); late > c.h.Epsilon && !c.faultyBetween(j.ref, ready, r.StartedAt) {
		c.add(Late, j.ref, r.Slot, "started %s late", r.StartedAt.Sub(r.Slot))
	}
}

// faultyBetween says whether a fault lies in the way from ready to start.
func (c *check) faultyBetween(ref string, ready, start time.Time) bool {
	for _, f := range c.h.Faults {
		if f.Concerns(ref) && !f.From.After(start) && !f.To.Add(f.Recovery).Before(ready) &&
			!start.After(f.To.Add(f.Recovery+c.h.Epsilon)) {
			return true
		}
	}
	return false
}

// reason demands a cause of every verdict but success, and that whoever wrote it lived.
func (c *check) reason(j *jobHistory, r *Row) {
	e := c.seen[r.RunID]
	switch r.Verdict {
	case "succeeded":
		switch {
		case e == nil:
			c.add(Forged, j.ref, r.Slot, "run %s succeeded, but no runner saw it", r.RunID)
		case !e.ended:
			c.add(Forged, j.ref, r.Slot, "run %s succeeded, but its verb did not end", r.RunID)
		case e.err != "":
			c.add(Forged, j.ref, r.Slot, "run %s succeeded, but its verb ended with %q", r.RunID, e.err)
		case e.end.After(r.EndedAt):
			c.add(Forged, j.ref, r.Slot, "run %s succeeded %s before its verb ended", r.RunID, e.end.Sub(r.EndedAt))
		}
	case "failed":
		seen := e != nil && e.err != ""
		if !seen && !j.job.MayFail && !c.faultyBetween(j.ref, r.StartedAt, r.EndedAt) {
			c.add(Excuse, j.ref, r.Slot, "run %s failed (%s), but no runner saw it fail", r.RunID, r.Error)
		}
	case "timed_out":
		if r.EndedAt.Sub(r.StartedAt) < j.job.Timeout-100*time.Millisecond {
			c.add(Excuse, j.ref, r.Slot, "run %s timed out after %s", r.RunID, r.EndedAt.Sub(r.StartedAt))
		}
	case "lost":
		if !c.mayBeLost(r) {
			c.add(Excuse, j.ref, r.Slot, "run %s was lost (%s), but controller %s did not die", r.RunID, r.Error, r.Controller)
		}
	case "cancelled":
		if !c.faultyBetween(j.ref, r.StartedAt, r.EndedAt) {
			c.add(Excuse, j.ref, r.Slot, "run %s was cancelled (%s) without a reason", r.RunID, r.Error)
		}
	default:
		c.add(Ghost, j.ref, r.Slot, "run %s has the verdict %s", r.RunID, r.Verdict)
	}
	if r.Verdict != "lost" && r.Verdict != "timed_out" && c.dead(r.Controller, r.EndedAt) {
		c.add(Zombie, j.ref, r.Slot, "run %s %s at %s in the name of a controller that was stopped then", r.RunID, r.Verdict, clock(r.EndedAt))
	}
}

// mayBeLost: its controller was killed or frozen while the run was current, and the sweep came in time. An outage makes
// nobody look dead; only a claim without an answer may be given up after it.
func (c *check) mayBeLost(r *Row) bool {
	for _, f := range c.h.Faults {
		switch f.Kind {
		case Kill, Freeze:
			if f.Controller == r.Controller && !f.From.After(r.EndedAt) && f.To.Add(f.Recovery+leaseBound).After(r.StartedAt) &&
				!r.EndedAt.After(f.To.Add(f.Recovery+leaseBound)) {
				return true
			}
		case Outage:
			if r.Error == "unknown here" && f.covers(r.EndedAt, f.Recovery+leaseBound) {
				return true
			}
		}
	}
	return false
}

// dead says whether a controller could not have written anything at t.
func (c *check) dead(controller string, t time.Time) bool {
	for _, f := range c.h.Faults {
		if f.Controller != controller || controller == "" || !t.After(f.From.Add(deathSlack)) {
			continue
		}
		if f.Kind == Kill || f.Kind == Freeze && t.Before(f.To.Add(-deathSlack)) {
			return true
		}
	}
	return false
}

// skips demands a reason of every skipped slot.
func (c *check) skips(j *jobHistory) {
	if !j.known {
		return
	}
	for _, r := range j.rows {
		if r.RunID != "" {
			continue
		}
		if r.EndedAt.Before(r.SlotTo) {
			c.add(Early, j.ref, r.Slot, "%s up to %s was decided before, at %s", r.Verdict, clock(r.SlotTo), clock(r.EndedAt))
		}
		if r.SlotTo.Sub(r.Slot) > 48*time.Hour {
			continue // said already
		}
		for t := ceil(r.Slot); !t.After(r.SlotTo); t = t.Add(time.Second) {
			if j.oracle.at(t) != never && !c.excused(j, r, t) {
				c.add(Excuse, j.ref, t, "%s without a reason", r.Verdict)
				break
			}
		}
	}
}

func (c *check) excused(j *jobHistory, r Row, slot time.Time) bool {
	switch r.Verdict {
	case "skipped_paused":
		// What was due and undecided when the pause came waits for its end.
		return j.oracle.pausedAround(slot, c.h.Epsilon) || j.removedAt(slot) || j.oracle.resumedBy(r.EndedAt) && (c.running(j, slot) || c.faulty(j.ref, slot))
	case "skipped_overlap":
		return c.running(j, slot)
	case "skipped_missed":
		// A slot that came while a run was current may be decided by the next claim instead.
		return c.running(j, slot) || c.faulty(j.ref, slot)
	}
	return false
}

// removedAt: a verb that is gone leaves what was due and undecided as skipped.
func (j *jobHistory) removedAt(slot time.Time) bool {
	for _, e := range j.job.Eras {
		if e.Match == nil && !slot.After(e.Acked) && e.Asked.Sub(slot) < 2*time.Second {
			return true
		}
	}
	return false
}

// running says whether another run of the job was current at the slot. Its claim may have been computed just before the
// slot and done just after it; how long after, where the machine or the database was not itself, cannot be said.
func (c *check) running(j *jobHistory, slot time.Time) bool {
	faulty := c.faulty(j.ref, slot)
	for i := range j.runs {
		r := &j.runs[i]
		begun := !slot.Before(r.StartedAt.Add(-c.h.Epsilon/2)) || faulty && slot.After(r.Slot)
		if begun && !slot.After(r.EndedAt) && !r.Slot.Equal(slot) {
			return true
		}
	}
	if f := j.final; f != nil && f.Executing && slot.After(f.Slot) {
		return true
	}
	return false
}
