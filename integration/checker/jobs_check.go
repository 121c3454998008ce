package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// CheckWork judges a queue. No violation means that every promise that it witnesses was kept.
func CheckWork(w Work) []Violation {
	c := &workCheck{w: w, jobs: map[int64]*jobWork{}, marks: map[string]*Ask{}, of: map[string]int64{}, wanted: map[string][]string{}, wishes: map[int64]*Cancel{}}
	c.sort()
	for _, id := range c.ids {
		j := c.jobs[id]
		c.place(j)
		c.acked(j)
		c.runs(j)
		c.attempts(j)
		c.live(j)
		c.cancelled(j)
		c.family(j)
	}
	c.limits()
	return c.found
}

type workCheck struct {
	w     Work
	jobs  map[int64]*jobWork
	ids   []int64
	marks map[string]*Ask
	of    map[string]int64 // job of a mark, as acknowledged or found
	kids  map[int64][]*jobWork

	wanted map[string][]string // children by their parent's mark
	wishes map[int64]*Cancel   // the first one of each job; one that was answered with the end before others
	found  []Violation
}

// jobWork is all that is known of one job.
type jobWork struct {
	id    int64
	mark  string
	ref   string
	acks  []Ack
	live  []LiveJob
	ended []EndedJob // in order of their ends
	doing []doing    // in order of their begins
	faced map[string]JobError
}

// doing is one run as its runner saw it.
type doing struct {
	Doing
	ended bool
	end   time.Time
}

func (c *workCheck) add(k Kind, j *jobWork, text string, args ...any) {
	c.found = append(c.found, Violation{Kind: k, Ref: fmt.Sprintf("%s job %d %s", j.ref, j.id, j.mark), Text: fmt.Sprintf(text, args...)})
}

func (c *workCheck) job(id int64) *jobWork {
	j := c.jobs[id]
	if j == nil {
		j = &jobWork{id: id, faced: map[string]JobError{}}
		c.jobs[id] = j
		c.ids = append(c.ids, id)
	}
	return j
}

func (c *workCheck) sort() {
	for i := range c.w.Asks {
		a := &c.w.Asks[i]
		if _, twice := c.marks[a.Mark]; !twice {
			c.marks[a.Mark] = a
			if a.Parent != "" {
				c.wanted[a.Parent] = append(c.wanted[a.Parent], a.Mark)
			}
		}
	}
	for i := range c.w.Cancels {
		x := &c.w.Cancels[i]
		if have := c.wishes[x.ID]; have == nil || x.Ended && !have.Ended {
			c.wishes[x.ID] = x
		}
	}
	for _, a := range c.w.Acks {
		if a.ID <= 0 {
			c.add(Lost, &jobWork{mark: a.Mark}, "acknowledged, and no job was named")
			continue
		}
		j := c.job(a.ID)
		j.acks, j.mark = append(j.acks, a), cmp.Or(j.mark, a.Mark)
	}
	for _, l := range c.w.Live {
		j := c.job(l.ID)
		j.live, j.mark, j.ref = append(j.live, l), cmp.Or(j.mark, l.Mark), l.Ref
	}
	for _, e := range c.w.Ended {
		j := c.job(e.ID)
		j.ended, j.mark, j.ref = append(j.ended, e), cmp.Or(j.mark, e.Mark), e.Ref
		for _, x := range e.Errors {
			if x.Run != "" {
				j.faced[x.Run] = x
			}
		}
	}
	c.pair()
	slices.Sort(c.ids)
	c.kids = map[int64][]*jobWork{}
	for _, id := range c.ids {
		j := c.jobs[id]
		slices.SortStableFunc(j.ended, func(a, b EndedJob) int { return a.Ended.Compare(b.Ended) })
		slices.SortStableFunc(j.doing, func(a, b doing) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Run, b.Run)) })
		if p := j.parent(); p != 0 {
			c.kids[p] = append(c.kids[p], j)
		}
		if _, ok := c.of[j.mark]; !ok {
			c.of[j.mark] = id
		}
	}
}

func (j *jobWork) parent() int64 {
	switch {
	case len(j.live) > 0:
		return j.live[0].Parent
	case len(j.ended) > 0:
		return j.ended[0].Parent
	}
	return 0
}

// pair joins begins and ends.
func (c *workCheck) pair() {
	type key struct{ runner, run string }
	open, on := map[key]*doing{}, map[string]string{}
	var order []*doing
	for _, d := range c.w.Doings {
		j, k := c.job(d.Job), key{d.Runner, d.Run}
		j.ref = cmp.Or(j.ref, d.Ref)
		x := open[k]
		switch {
		case d.Begin && on[d.Run] != "":
			c.add(DupEffect, j, "run %s began on %s and on %s", d.Run, on[d.Run], d.Runner)
		case d.Begin:
			open[k], on[d.Run] = &doing{Doing: d}, d.Runner
			order = append(order, open[k])
		case x == nil:
			c.add(Ghost, j, "run %s ended on %s without a begin", d.Run, d.Runner)
		case x.ended:
			c.add(DupEffect, j, "run %s ended twice on %s", d.Run, d.Runner)
		default:
			x.ended, x.end, x.Said, x.Wait = true, d.At, d.Said, d.Wait
		}
	}
	for _, x := range order {
		j := c.job(x.Job)
		j.doing = append(j.doing, *x)
	}
}

// place: a job that was acknowledged stands at exactly one place, and stands there because somebody asked for it.
func (c *workCheck) place(j *jobWork) {
	over := 0
	for _, e := range j.ended {
		if !e.Redriven {
			over++
		}
	}
	switch n := over + len(j.live); {
	case n == 0 && len(j.acks) > 0:
		c.add(Lost, j, "acknowledged, and neither live nor ended")
	case n == 0:
		c.add(Ghost, j, "a verb began for it, and it stands nowhere")
	case n > 1:
		c.add(Ambiguous, j, "%d rows are live and %d ended", len(j.live), over)
	}
	ask := c.marks[j.mark]
	switch {
	case ask == nil:
		c.add(Ghost, j, "nobody asked for it")
	case j.ref != "" && j.ref != ask.Ref:
		c.add(Ghost, j, "asked for as a job of %s", ask.Ref)
	}
	for _, x := range j.doing {
		if x.Ref != j.ref {
			c.add(Ghost, j, "run %s is of %s", x.Run, x.Ref)
		}
	}
	if other := c.of[j.mark]; other != j.id && j.mark != "" {
		c.add(Ambiguous, j, "job %d is the same one", other)
	}
}

// acked: all answers to one wish name one job, and only one of them made it.
func (c *workCheck) acked(j *jobWork) {
	made := 0
	for _, a := range j.acks {
		if a.Mark != j.mark {
			c.add(Ambiguous, j, "acknowledged for %s and for %s", j.mark, a.Mark)
		}
		if !a.Existing {
			made++
		}
	}
	if made > 1 {
		c.add(Ambiguous, j, "acknowledged %d times as new", made)
	}
}

// live: what is not over is looked after, or waits for a reason.
func (c *workCheck) live(j *jobWork) {
	for _, l := range j.live {
		switch l.State {
		case "running":
			if !l.OwnerLive {
				c.add(Wedged, j, "run %s is running without a live owner", l.Run)
			}
			if e, ok := j.faced[l.Run]; ok {
				c.add(Zombie, j, "run %s ended as %s and is current still", l.Run, e.Verdict)
			}
		case "blocked":
			if l.Children == 0 {
				c.add(Wedged, j, "blocked without children")
			}
		case "ready":
			late := c.w.Read.Sub(l.Due)
			if l.Run != "" {
				c.add(Zombie, j, "ready, with run %s", l.Run)
			}
			if !slices.Contains(c.w.Paused, l.Ref) && late > 0 && (c.w.Settled || late > 15*time.Second && !c.fault(l.Due, c.w.Read)) {
				c.add(Wedged, j, "ready and due for %s", late)
			}
		default:
			c.add(Ghost, j, "live as %s", l.State)
		}
		if c.w.Settled && l.State != "ready" {
			c.add(Wedged, j, "%s when all was done", l.State)
		}
	}
}

// cancelled: what was answered as cancelled is; nothing else is cancelled unless it was wished for.
func (c *workCheck) cancelled(j *jobWork) {
	wish := c.wishes[j.id]
	for _, e := range j.ended {
		is := e.State == "cancelled"
		said := slices.ContainsFunc(j.doing, func(x doing) bool { return x.Run == e.Run && x.Said == "cancel" })
		switch {
		case is && wish == nil && !said && !c.parentCancelled(j):
			c.add(Excuse, j, "cancelled, and nobody wished it")
		case wish != nil && wish.Ended && !is:
			c.add(Zombie, j, "answered as cancelled, and ended as %s", e.State)
		}
	}
	if wish != nil && wish.Ended && len(j.live) > 0 {
		c.add(Zombie, j, "answered as cancelled, and %s", j.live[0].State)
	}
}

func (c *workCheck) parentCancelled(j *jobWork) bool {
	p := c.jobs[j.parent()]
	return p != nil && len(p.ended) > 0 && p.ended[len(p.ended)-1].State == "cancelled"
}

// family: a parent's count is of its live children, and after waiting for them it goes on when the last has ended.
func (c *workCheck) family(j *jobWork) {
	kids := c.kids[j.id]
	alive := 0
	for _, k := range kids {
		alive += len(k.live)
	}
	for _, l := range j.live {
		if l.Children != alive {
			c.add(Miscounted, j, "counts %d children, and has %d live ones", l.Children, alive)
		}
		if l.State == "blocked" && alive == 0 {
			c.add(Wedged, j, "blocked, and all its children have ended")
		}
	}
	for i, x := range j.doing {
		if x.Said != "await" || i+1 == len(j.doing) {
			continue
		}
		next := j.doing[i+1]
		for _, k := range kids {
			if len(k.ended) == 0 || k.ended[0].Ended.After(next.At) {
				c.add(Early, j, "run %s began while child %d went on", next.Run, k.id)
			}
		}
	}
	if n := len(j.ended); n > 0 && j.ended[n-1].State == "succeeded" {
		for _, mark := range c.wanted[j.mark] {
			if _, ok := c.of[mark]; !ok {
				c.add(Lost, j, "succeeded, but its child %s was never there", mark)
			}
		}
	}
	if ask := c.marks[j.mark]; ask != nil && ask.Parent != "" && (len(j.live) > 0 || len(j.ended) > 0) {
		if p := c.jobs[j.parent()]; p == nil || p.mark != ask.Parent {
			c.add(Ghost, j, "it should be a child of %s", ask.Parent)
		}
	}
}

// limits: the count is exact in every snapshot, and neither it nor what the runners saw exceeds the bound.
func (c *workCheck) limits() {
	most := map[string]int{}
	for _, l := range c.w.Limits {
		j := &jobWork{ref: l.Ref}
		most[l.Ref] = max(most[l.Ref], l.Max)
		if l.Running != l.Rows {
			c.add(Miscounted, j, "at %s the limit counts %d running jobs, and %d hold a place", clock(l.At), l.Running, l.Rows)
		}
		if max(l.Running, l.Rows) > l.Max {
			c.add(Overbooked, j, "%d run at %s, at most %d may", max(l.Running, l.Rows), clock(l.At), l.Max)
		}
	}
	type edge struct {
		at    time.Time
		delta int
		ref   string
	}
	var edges []edge
	for _, id := range c.ids {
		for _, x := range c.jobs[id].doing {
			if most[x.Ref] == 0 {
				continue
			}
			edges = append(edges, edge{x.At, 1, x.Ref})
			if at := c.over(c.jobs[id], &x); at.Before(c.w.Read) {
				edges = append(edges, edge{at, -1, x.Ref})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.delta, b.delta)) })
	running := map[string]int{}
	for _, e := range edges {
		if running[e.ref] += e.delta; e.delta > 0 && running[e.ref] == most[e.ref]+1 {
			c.add(Overbooked, &jobWork{ref: e.ref}, "the runners saw %d runs at %s, at most %d may be", running[e.ref], clock(e.at), most[e.ref])
		}
	}
}
