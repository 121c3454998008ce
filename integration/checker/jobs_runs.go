package checker

import (
	"slices"
	"time"
)

// runs judges what the runners saw of a job: each run for a reason, in order, never before its time, and a success only
// where a verb had one.
func (c *workCheck) runs(j *jobWork) {
	ask := c.marks[j.mark]
	var last EndedJob
	isOver := len(j.ended) > 0 && len(j.live) == 0
	if isOver {
		last = j.ended[len(j.ended)-1]
		c.end(j, last)
	}
	for i := range j.doing {
		x := &j.doing[i]
		if ask != nil && x.At.Before(ask.At.Add(ask.Delay)) {
			c.add(Early, j, "run %s began %s before it was due", x.Run, ask.At.Add(ask.Delay).Sub(x.At))
		}
		if isOver && x.Run != last.Run {
			switch {
			case c.faultOf([]FaultKind{Freeze}, x.At, x.At):
			case x.At.After(last.Ended):
				c.add(Ghost, j, "run %s began %s after the end", x.Run, x.At.Sub(last.Ended))
			case last.Run != "" && c.begun(j, last.Run).Before(x.At) && len(j.ended) == 1 && !c.begun(j, last.Run).IsZero():
				c.add(Zombie, j, "run %s ended it, but run %s had begun after that one", last.Run, x.Run)
			}
		}
		if i+1 < len(j.doing) {
			c.next(j, ask, x, &j.doing[i+1])
		}
		current := isOver && x.Run == last.Run || slices.ContainsFunc(j.live, func(l LiveJob) bool { return l.Run == x.Run })
		if !current && !c.explained(j, x) {
			c.add(DupEffect, j, "run %s (%s) was not the last one, and nothing was wrong with it", x.Run, x.Said)
		}
	}
}

func (c *workCheck) begun(j *jobWork, run string) time.Time {
	for _, x := range j.doing {
		if x.Run == run {
			return x.At
		}
	}
	return time.Time{}
}

// end judges the row in the history.
func (c *workCheck) end(j *jobWork, e EndedJob) {
	i := slices.IndexFunc(j.doing, func(x doing) bool { return x.Run == e.Run && e.Run != "" })
	var x *doing
	if i >= 0 {
		x = &j.doing[i]
	}
	ask := c.marks[j.mark]
	switch e.State {
	case "succeeded":
		switch {
		case x == nil:
			c.add(Forged, j, "succeeded by run %s, which no runner saw", e.Run)
		case !x.ended || x.Said != "ok":
			c.add(Forged, j, "succeeded by run %s, whose verb said %q", e.Run, x.Said)
		case x.end.After(e.Ended):
			c.add(Forged, j, "succeeded %s before its verb ended", x.end.Sub(e.Ended))
		}
	case "failed":
		final := x != nil && x.Said == "final"
		if ask != nil && !final && e.Attempt < ask.Attempts {
			c.add(Excuse, j, "failed after %d of %d attempts, and the verb did not say that it is for good", e.Attempt, ask.Attempts)
		}
		if x != nil && x.ended && x.Said == "ok" && !c.fault(x.At, e.Ended) {
			c.add(Forged, j, "failed by run %s, whose verb had a success", e.Run)
		}
	case "cancelled":
	default:
		c.add(Ghost, j, "ended as %s", e.State)
	}
	lost := len(e.Errors) > 0 && slices.Contains([]string{"lost", "timed_out", "cancelled"}, e.Errors[len(e.Errors)-1].Verdict)
	if !lost && e.State != "cancelled" && c.dead(e.Controller, e.Ended) {
		c.add(Zombie, j, "%s at %s in the name of a controller that was stopped then", e.State, clock(e.Ended))
	}
}

// next judges two runs that follow each other: the first was over, and the second came not before its time.
func (c *workCheck) next(j *jobWork, ask *Ask, x, next *doing) {
	near := c.fault(x.At, next.At)
	if next.At.Before(c.over(j, x)) && !near {
		c.add(Overlap, j, "run %s began while run %s went on", next.Run, x.Run)
	}
	if ask == nil || near && !x.ended {
		return
	}
	var wait time.Duration
	switch {
	case x.Said == "after" || x.Said == "snooze":
		wait = x.Wait
	case x.Said == "fail":
		wait = ask.Backoff
		for range min(x.Attempt-1, 40) {
			wait = min(2*wait, ask.Ceiling)
		}
		wait = wait * 9 / 10
	}
	if from := x.end; x.ended && next.At.Sub(from) < wait && !c.redriven(j, x.At, next.At) {
		c.add(Early, j, "run %s began %s after run %s, which said %s: at least %s lie between", next.Run, next.At.Sub(from), x.Run, x.Said, wait)
	}
}

func (c *workCheck) redriven(j *jobWork, from, to time.Time) bool {
	return slices.ContainsFunc(j.ended, func(e EndedJob) bool { return e.Redriven && e.Ended.After(from) && e.Ended.Before(to) })
}

// explained: a run after which another could follow.
func (c *workCheck) explained(j *jobWork, x *doing) bool {
	if slices.ContainsFunc(j.ended, func(e EndedJob) bool { return e.Redriven && e.Run == x.Run }) {
		return true
	}
	switch x.Said {
	case "fail", "after", "snooze", "await":
		return true
	}
	if e, ok := j.faced[x.Run]; ok {
		return e.Verdict != "failed" || c.hit(x, e.At)
	}
	return c.hit(x, c.over(j, x)) || len(j.live) > 0 && !x.ended // a live row tells its errors to nobody here
}

// reportSlack is how long an end may wait to be written.
const reportSlack = 2 * time.Second

// hit says whether a fault came in the way of this very run: its runner or some controller was killed while it was on or
// unreported, or the cluster was not itself.
func (c *workCheck) hit(x *doing, over time.Time) bool {
	return slices.ContainsFunc(c.w.Faults, func(f Fault) bool {
		switch f.Kind {
		case RunnerDown:
			if f.Runner != "" && f.Runner != x.Runner {
				return false
			}
			fallthrough
		case Kill:
			return !f.From.After(over.Add(reportSlack)) && !f.To.Before(x.At.Add(-deathSlack))
		case Freeze, Drain, Outage:
			return !f.From.After(over.Add(reportSlack)) && !f.To.Add(f.Recovery+leaseBound).Before(x.At)
		}
		return false
	})
}

// over is when a run was over: its verb ended, its runner was killed, or it was ended for it.
func (c *workCheck) over(j *jobWork, x *doing) time.Time {
	over := c.w.Read.Add(time.Hour)
	if x.ended {
		over = x.end
	}
	if e, ok := j.faced[x.Run]; ok && e.At.Before(over) {
		over = e.At
	}
	for _, f := range c.w.Faults {
		if f.Kind == RunnerDown && f.Runner == x.Runner && f.Runner != "" && f.From.After(x.At) && f.To.Before(over) {
			over = f.To
		}
	}
	return over
}

// attempts: those that the row counts are its errors and its success, one after the other.
func (c *workCheck) attempts(j *jobWork) {
	if len(j.ended) != 1 || len(j.live) > 0 {
		return // a re-driven job counts anew
	}
	e := j.ended[0]
	ask := c.marks[j.mark]
	if ask != nil && e.Attempt > ask.Attempts {
		c.add(Miscounted, j, "%d attempts, at most %d may be", e.Attempt, ask.Attempts)
	}
	if len(e.Errors) >= keptErrors {
		return
	}
	counted := 0
	var at time.Time
	for _, x := range e.Errors {
		if x.At.Before(at) {
			c.add(Miscounted, j, "its errors are out of order")
		}
		if at = x.At; x.Run == "" {
			continue // cancelled or expired while it waited
		}
		if counted++; x.Attempt != counted {
			c.add(Miscounted, j, "error %d is of attempt %d", counted, x.Attempt)
		}
		c.cause(j, ask, x)
	}
	byError := len(e.Errors) > 0 && e.Errors[len(e.Errors)-1].Run == e.Run
	if e.State == "succeeded" || e.State == "cancelled" && !byError && slices.ContainsFunc(j.doing, func(x doing) bool { return x.Run == e.Run }) {
		counted++
	}
	if e.Attempt != counted {
		c.add(Miscounted, j, "%d attempts, but %d runs count", e.Attempt, counted)
	}
	for _, x := range j.doing {
		if err, ok := j.faced[x.Run]; ok && err.Attempt != x.Attempt {
			c.add(Miscounted, j, "run %s was told attempt %d and is counted as %d", x.Run, x.Attempt, err.Attempt)
		}
		if (x.Said == "snooze" || x.Said == "await") && j.faced[x.Run].Verdict == "failed" {
			c.add(Miscounted, j, "run %s came again by its own wish, and is counted as a failure", x.Run)
		}
		if (x.Said == "fail" || x.Said == "final" || x.Said == "after") && j.faced[x.Run].Verdict == "" && !c.fault(x.At, x.end) {
			c.add(Lost, j, "run %s failed, and its error is not there", x.Run)
		}
	}
}

// cause demands the reason of an error.
func (c *workCheck) cause(j *jobWork, ask *Ask, e JobError) {
	begin := c.begun(j, e.Run)
	near := c.fault(e.At.Add(-2*time.Second), e.At)
	seen := slices.ContainsFunc(j.doing, func(x doing) bool {
		return x.Run == e.Run && x.ended && x.Said != "ok" && !x.end.After(e.At)
	})
	switch e.Verdict {
	case "failed":
		if !seen && !near {
			c.add(Excuse, j, "run %s failed, but no runner saw it fail", e.Run)
		}
	case "lost":
		if !c.faultOf([]FaultKind{Kill, Freeze, Outage}, e.At.Add(-time.Second), e.At) {
			c.add(Excuse, j, "run %s was lost, but no controller died", e.Run)
		}
	case "timed_out":
		if ask != nil && !begin.IsZero() && e.At.Sub(begin) < ask.Timeout-100*time.Millisecond {
			c.add(Excuse, j, "run %s timed out %s after its begin", e.Run, e.At.Sub(begin))
		}
	case "cancelled":
		if c.wishes[j.id] == nil && !near && !seen && !c.parentCancelled(j) {
			c.add(Excuse, j, "run %s was cancelled, and nobody wished it", e.Run)
		}
	default:
		c.add(Ghost, j, "run %s ended as %s", e.Run, e.Verdict)
	}
}

// fault says whether anything was done to the cluster that explains what happened between two times.
func (c *workCheck) fault(from, to time.Time) bool {
	return c.faultOf([]FaultKind{Kill, Freeze, Drain, Outage, RunnerDown}, from, to)
}

func (c *workCheck) faultOf(kinds []FaultKind, from, to time.Time) bool {
	return slices.ContainsFunc(c.w.Faults, func(f Fault) bool {
		return slices.Contains(kinds, f.Kind) && !f.From.After(to) && !f.To.Add(f.Recovery+leaseBound).Before(from)
	})
}

func (c *workCheck) dead(controller string, t time.Time) bool {
	x := check{h: History{Faults: c.w.Faults}}
	return x.dead(controller, t)
}
