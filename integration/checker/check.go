package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	defaultEpsilon = time.Second
	leaseBound     = 12 * time.Second // silence, lease and sweep: a dead controller's runs are freed by then
	deathSlack     = 50 * time.Millisecond
)

// Check judges a history. No violation means that every promise that it witnesses was kept.
func Check(h History) []Violation {
	if h.Epsilon == 0 {
		h.Epsilon = defaultEpsilon
	}
	c := &check{h: h, jobs: map[string]*jobHistory{}, runs: map[string]*Row{}, seen: map[string]*effect{}}
	c.sort()
	for _, ref := range c.refs {
		j := c.jobs[ref]
		c.slots(j)
		c.runsOf(j)
		c.skips(j)
		c.effects(j)
		c.final(j)
	}
	for _, s := range h.Samples {
		if !c.outage(s.At) {
			c.add(Wedged, s.Ref, time.Time{}, "%s", s.Text)
		}
	}
	return c.found
}

type check struct {
	h     History
	jobs  map[string]*jobHistory
	refs  []string
	runs  map[string]*Row    // by run id
	seen  map[string]*effect // by run id
	found []Violation
}

// jobHistory is all that is known of one ref.
type jobHistory struct {
	known   bool
	ref     string
	job     Job
	oracle  oracle
	rows    []Row // by slot
	runs    []Row // those that are runs, by start
	effects []effect
	final   *Final
}

// effect is one execution of a verb as its runner saw it.
type effect struct {
	Record
	ended bool
	end   time.Time
	err   string
}

func (c *check) add(k Kind, ref string, slot time.Time, text string, args ...any) {
	c.found = append(c.found, Violation{Kind: k, Ref: ref, Slot: slot, Text: fmt.Sprintf(text, args...)})
}

func (c *check) of(ref string) *jobHistory {
	j := c.jobs[ref]
	if j == nil {
		j = &jobHistory{ref: ref}
		c.jobs[ref] = j
		c.refs = append(c.refs, ref)
	}
	return j
}

// sort gives every job its rows, its executions and its final row.
func (c *check) sort() {
	for _, job := range c.h.Jobs {
		j := c.of(job.Ref)
		j.known, j.job, j.oracle = true, job, newOracle(job)
	}
	for i := range c.h.Rows {
		r := &c.h.Rows[i]
		j := c.of(r.Ref)
		j.rows = append(j.rows, *r)
		if r.RunID == "" {
			continue
		}
		j.runs = append(j.runs, *r)
		if other := c.runs[r.RunID]; other != nil {
			c.add(Zombie, r.Ref, r.Slot, "run %s ended twice: %s at %s and %s at %s", r.RunID, other.Verdict, clock(other.EndedAt), r.Verdict, clock(r.EndedAt))
		}
		c.runs[r.RunID] = r
	}
	for i := range c.h.Final {
		f := &c.h.Final[i]
		if j := c.of(f.Ref); j.final != nil {
			c.add(Ambiguous, f.Ref, time.Time{}, "two rows at the end")
		} else {
			j.final = f
		}
	}
	c.pair()
	for _, ref := range c.refs {
		j := c.jobs[ref]
		slices.SortStableFunc(j.rows, func(a, b Row) int { return a.Slot.Compare(b.Slot) })
		slices.SortStableFunc(j.runs, func(a, b Row) int {
			return cmp.Or(a.StartedAt.Compare(b.StartedAt), a.EndedAt.Compare(b.EndedAt))
		})
		slices.SortStableFunc(j.effects, func(a, b effect) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.RunID, b.RunID)) })
		for i := range j.effects {
			c.seen[j.effects[i].RunID] = &j.effects[i]
		}
		if !j.known {
			c.add(Ghost, ref, time.Time{}, "nobody deployed it")
		}
	}
}

// pair joins begins and ends.
func (c *check) pair() {
	type key struct{ runner, run string }
	open := map[key]effect{}
	for _, r := range c.h.Records {
		k := key{r.Runner, r.RunID}
		e, begun := open[k]
		switch {
		case r.Begin && begun:
			c.add(DupEffect, r.Ref, r.Slot, "run %s began twice on %s", r.RunID, r.Runner)
		case r.Begin:
			open[k] = effect{Record: r}
		case !begun:
			c.add(Ghost, r.Ref, r.Slot, "run %s ended on %s without a begin", r.RunID, r.Runner)
		case e.ended:
			c.add(DupEffect, r.Ref, r.Slot, "run %s ended twice on %s", r.RunID, r.Runner)
		default:
			e.ended, e.end, e.err = true, r.At, r.Err
			open[k] = e
		}
	}
	for _, e := range open {
		j := c.of(e.Ref)
		j.effects = append(j.effects, e)
	}
}

// slots walks over every second and demands exactly one verdict of each slot.
func (c *check) slots(j *jobHistory) {
	if !j.known {
		return
	}
	decided := map[int64]int{}
	for _, r := range j.rows {
		if r.Manual {
			continue
		}
		if r.RunID != "" {
			if j.oracle.at(r.Slot) == never {
				c.add(Ghost, j.ref, r.Slot, "%s, but it is no slot", r.Verdict)
			}
			decided[r.Slot.Unix()]++
			continue
		}
		c.expand(j, r, decided)
	}
	end := j.until(c.h.Read)
	for t := j.oracle.first; t.Before(end); t = t.Add(time.Second) {
		n := decided[t.Unix()]
		switch {
		case n > 1:
			c.add(Ambiguous, j.ref, t, "%d verdicts", n)
		case n == 0 && j.oracle.at(t) == must:
			c.add(Lost, j.ref, t, "no verdict")
		}
	}
	for at, n := range decided {
		if t := time.Unix(at, 0); n > 1 && !t.Before(end) {
			c.add(Ambiguous, j.ref, t, "%d verdicts", n)
		}
	}
}

// until is the first slot that need not be decided: the row says which, and final() checks what it says.
func (j *jobHistory) until(read time.Time) time.Time {
	switch f := j.final; {
	case f == nil:
		return read
	case f.Executing && !f.Slot.IsZero() && (f.Next.IsZero() || f.Slot.Before(f.Next)):
		return f.Slot
	case f.Next.IsZero() || f.Next.After(read):
		return read
	default:
		return f.Next
	}
}

// expand counts the slots of a skipped range, by the oracle.
func (c *check) expand(j *jobHistory, r Row, decided map[int64]int) {
	if r.SlotTo.Before(r.Slot) || r.SlotTo.Sub(r.Slot) > 48*time.Hour {
		c.add(Ghost, j.ref, r.Slot, "%s up to %s", r.Verdict, clock(r.SlotTo))
		return
	}
	if j.oracle.at(r.Slot) == never || j.oracle.at(r.SlotTo) == never {
		c.add(Ghost, j.ref, r.Slot, "%s up to %s: an end of the range is no slot", r.Verdict, clock(r.SlotTo))
	}
	least, most := 0, 0
	for t := ceil(r.Slot); !t.After(r.SlotTo); t = t.Add(time.Second) {
		switch j.oracle.at(t) {
		case must:
			least++
			most++
		case may:
			most++
		default:
			continue
		}
		decided[t.Unix()]++
	}
	if r.Count < least || r.Count > most {
		c.add(Ghost, j.ref, r.Slot, "%s up to %s counts %d slots, the oracle %d", r.Verdict, clock(r.SlotTo), r.Count, most)
	}
}

// final demands that the row and the ledger say the same, and that nothing is left behind.
func (c *check) final(j *jobHistory) {
	if !j.known {
		return
	}
	f := j.final
	if f == nil {
		c.add(Wedged, j.ref, time.Time{}, "no row at the end")
		return
	}
	removed := len(j.job.Eras) > 0 && j.job.Eras[len(j.job.Eras)-1].Match == nil
	switch {
	case f.Executing && !f.OwnerLive:
		c.add(Wedged, j.ref, f.Slot, "run %s is executing without a live owner", f.RunID)
	case f.Enabled && !f.Executing && !f.Next.IsZero() && c.h.Read.Sub(f.Next) > 15*time.Second && !c.outage(c.h.Read):
		c.add(Wedged, j.ref, f.Next, "idle and due for %s", c.h.Read.Sub(f.Next))
	case f.Next.IsZero() && !removed:
		c.add(Wedged, j.ref, time.Time{}, "no next slot")
	case !f.Next.IsZero() && f.Enabled && f.Next.Sub(c.h.Read) > 0 && j.soonest(c.h.Read).Before(f.Next):
		c.add(Wedged, j.ref, f.Next, "the next slot is later than the schedule's %s", clock(j.soonest(c.h.Read)))
	}
	if at := j.open(c.h.Read); !f.Executing && !f.Next.IsZero() && at.Sub(f.Next) > c.h.Epsilon && !j.ranUntil(at, c.h.Epsilon) &&
		!c.faultyBetween(j.ref, f.Next, at) {
		c.add(Lost, j.ref, f.Next, "undecided %s after it was due", at.Sub(f.Next))
	}
	if f.RunID != "" && f.Executing && c.runs[f.RunID] != nil {
		c.add(Zombie, j.ref, f.Slot, "run %s ended and is current still", f.RunID)
	}
	for _, r := range j.rows {
		if !r.Manual && !f.Next.IsZero() && !r.SlotTo.Before(f.Next) {
			c.add(Ambiguous, j.ref, r.Slot, "%s, but the row's first undecided slot is %s", r.Verdict, clock(f.Next))
		}
	}
}

// open is until when the clock could start the job: now, or when a pause was asked for that goes on.
func (j *jobHistory) open(read time.Time) time.Time {
	for _, p := range j.job.Pauses {
		if p.ResumeAsked.IsZero() && p.Asked.Before(read) {
			return p.Asked
		}
	}
	return read
}

// ranUntil says whether a run was current at t or shortly before.
func (j *jobHistory) ranUntil(t time.Time, slack time.Duration) bool {
	return slices.ContainsFunc(j.runs, func(r Row) bool { return r.StartedAt.Before(t) && r.EndedAt.Add(slack).After(t) })
}

// soonest is the first sure slot after t within two days.
func (j *jobHistory) soonest(t time.Time) time.Time {
	for s := ceil(t.Add(time.Nanosecond)); s.Sub(t) < 48*time.Hour; s = s.Add(time.Second) {
		if j.oracle.at(s) == must {
			return s
		}
	}
	return t.Add(48 * time.Hour)
}

// faulty says whether a fault that concerns the ref excuses what happened at t.
func (c *check) faulty(ref string, t time.Time) bool {
	for _, f := range c.h.Faults {
		if f.covers(t, f.Recovery) && f.Concerns(ref) {
			return true
		}
	}
	return false
}

func (c *check) outage(t time.Time) bool {
	for _, f := range c.h.Faults {
		if f.Kind == Outage && f.covers(t, f.Recovery+15*time.Second) {
			return true
		}
	}
	return false
}

func (f Fault) covers(t time.Time, after time.Duration) bool {
	return !t.Before(f.From) && !t.After(f.To.Add(after))
}

// Concerns says whether a fault touches a ref at all.
func (f Fault) Concerns(ref string) bool {
	return f.Module == "" || strings.HasPrefix(ref, f.Module+".")
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }
