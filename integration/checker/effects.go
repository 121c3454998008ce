package checker

import "time"

// effects judges what the runners saw: each begin belongs to one run of the ledger, not before its slot, once, and not
// while an earlier execution goes on that was not given up before.
func (c *check) effects(j *jobHistory) {
	slots := map[int64]string{}
	var last *effect // the one before that is over last
	for i := range j.effects {
		e := &j.effects[i]
		row := c.runs[e.RunID]
		current := j.final != nil && j.final.Executing && j.final.RunID == e.RunID
		switch {
		case row == nil && !current:
			c.add(Ghost, j.ref, e.Slot, "a verb began for run %s, which the ledger does not know", e.RunID)
		case row != nil && (row.Ref != e.Ref || !row.Slot.Equal(e.Slot)):
			c.add(Ghost, j.ref, e.Slot, "a verb began for run %s, which is of %s slot %s", e.RunID, row.Ref, clock(row.Slot))
		case row != nil && e.At.Before(row.StartedAt):
			c.add(Early, j.ref, e.Slot, "began %s before its claim", row.StartedAt.Sub(e.At))
		}
		if e.At.Before(e.Slot) {
			c.add(Early, j.ref, e.Slot, "began %s before its slot", e.Slot.Sub(e.At))
		}
		if other, twice := slots[e.Slot.UnixNano()]; twice {
			c.add(DupEffect, j.ref, e.Slot, "began for run %s and for run %s", other, e.RunID)
		}
		slots[e.Slot.UnixNano()] = e.RunID
		if row != nil && j.known {
			if late := e.At.Sub(row.StartedAt); late > c.h.Epsilon && !c.faultyBetween(j.ref, row.StartedAt, e.At) {
				c.add(Late, j.ref, e.Slot, "began %s after its claim", late)
			}
		}
		if last != nil {
			c.apart(j, last, e)
		}
		if last == nil || c.over(e).After(c.over(last)) {
			last = e
		}
	}
}

// over is when an execution ended, or its run was ended for it: what goes on after that is a known zombie. Never, for one
// that neither ended nor has an ended run.
func (c *check) over(e *effect) time.Time {
	row := c.runs[e.RunID]
	switch {
	case e.ended && (row == nil || e.end.Before(row.EndedAt)):
		return e.end
	case row != nil:
		return row.EndedAt
	}
	return c.h.Read.Add(time.Hour)
}

// apart: the older execution was over when the newer began.
func (c *check) apart(j *jobHistory, old, next *effect) {
	if next.At.Before(c.over(old)) {
		c.add(Overlap, j.ref, next.Slot, "run %s began while run %s went on", next.RunID, old.RunID)
	}
}
