package queue

import (
	"carillon/backend/core/cron"
)

// open says whether jobs of the group may be claimed now.
func (g *group) open(now micros) bool {
	if len(g.awake) == 0 {
		return false
	}
	v := g.verb
	return v == nil || v.running < v.limit && v.fullUntil <= now
}

// next is the window whose turn it is, nil when the pool has nothing to claim. It does not move the turns.
func (po *pool) next(now micros) (w *window) {
	aged := (po.picks+1)%ageing == 0
	var best int
	for i := range po.groups {
		g := po.groups[(po.turn+i)%len(po.groups)]
		if !g.open(now) {
			continue
		}
		if aged {
			if w == nil || g.awake[0].before(w) {
				w = g.awake[0]
			}
			continue
		}
		for lane := lanes - 1; lane >= 0 && (w == nil || lane > best); lane-- {
			if first := g.lanes[lane].first(); first != nil {
				w, best = first, lane
			}
		}
	}
	return w
}

// begin starts a round in which each deployment is asked once.
func (p *plan) begin(now micros) {
	p.advance(now)
	p.takes++
}

// roomer says how many more calls the runners of a verb's deployment would take, and which deployment that is.
type roomer interface {
	Room(ref string) int
	Deployment(ref string) (id int64, key string, ok bool)
}

// take picks at most limit jobs that are due at now, as batches of at most size, pools in turn.
func (p *plan) take(now micros, limit, size int, runners roomer, mint func() cron.RunID) []batch {
	p.begin(now)
	var batches []batch
	openAt := map[string]int{} // ref of a limit -> its batch that is not full yet
	open := make([]*pool, 0, len(p.order))
	for i := range p.order {
		open = append(open, p.order[(p.turn+i)%len(p.order)])
	}
	p.turn++
	for limit > 0 && len(open) > 0 {
		left := open[:0]
		for _, po := range open {
			w := p.pickable(po, runners)
			if w == nil || limit == 0 {
				continue
			}
			limit--
			left = append(left, po)
			picked := p.pick(w, mint())
			ref := ""
			if w.verb.limit > 0 {
				ref = w.verb.ref
			}
			i, ok := openAt[ref]
			if !ok || len(batches[i].picks) == size {
				i = len(batches)
				batches = append(batches, batch{ref: ref})
				openAt[ref] = i
			}
			batches[i].picks = append(batches[i].picks, picked)
		}
		open = left
	}
	return batches
}

// pickable is the window that a pool with room offers.
func (p *plan) pickable(po *pool, runners roomer) *window {
	for {
		w := po.next(p.now)
		if w == nil {
			return nil
		}
		p.check(w.verb, runners)
		if w.verb.key != po.key {
			continue // it has gone to another pool
		}
		if !p.roomy(po, w.verb.ref, runners) {
			return nil
		}
		return w
	}
}

// check asks once in a take which deployment serves a verb.
func (p *plan) check(v *verb, runners roomer) {
	if v.checked == p.takes {
		return
	}
	v.checked = p.takes
	id, deployment, ok := runners.Deployment(v.ref)
	p.deploy(v, id, deployment, ok)
}

// roomy says whether a pool can take one more, as asked once in a take.
func (p *plan) roomy(po *pool, ref string, runners roomer) bool {
	if po.asked != p.takes {
		po.asked = p.takes
		po.room = runners.Room(ref) - po.reserved
	}
	return po.room > 0
}

// pick takes the first job of a window out of the plan, and moves the turns.
func (p *plan) pick(w *window, run cron.RunID) pick {
	g, e := w.group, w.jobs[0]
	po := g.pool
	picked := pick{entry: *e, run: run, deployment: w.verb.deployment, pool: po, verb: w.verb}
	po.picks++
	po.turn++
	g.lanes[w.lane].pass(w)
	p.drop(e)
	p.held[e.id] = struct{}{}
	po.reserved++
	po.room--
	w.verb.running++
	if p.hungry(w) {
		p.wants[w] = struct{}{}
	}
	return picked
}

// expired takes jobs out whose time to begin is over.
func (p *plan) expired(limit int) []int64 {
	if p.expiring == 0 {
		return nil
	}
	var ids []int64
	for _, e := range p.entries {
		if e.expires != 0 && e.expires <= p.now && len(ids) < limit {
			ids = append(ids, e.id)
		}
	}
	for _, id := range ids {
		p.drop(p.entries[id])
	}
	return ids
}

// giveBack ends a claim that was not won; with again the job waits on.
func (p *plan) giveBack(k pick, again bool) {
	k.pool.reserved--
	k.verb.running--
	delete(p.held, k.id)
	if again && p.windows[k.window.id] == k.window {
		p.put(k.window, k.id, k.due, k.expires, k.foreign)
	}
}

// startable says whether a new job of the queue may be inserted already running: there is room for it, and nothing
// waits that should come first (anything of its lane or a higher one, or what was due before old).
func (p *plan) startable(w *window, old micros, runners roomer) bool {
	if w.paused || !w.complete || w.group == nil || w.verb.limit > 0 {
		return false
	}
	p.check(w.verb, runners)
	if w.group == nil {
		return false
	}
	po := w.group.pool
	for _, g := range po.groups {
		if !g.open(p.now) {
			continue
		}
		if g.awake[0].at < old {
			return false
		}
		for lane := w.lane; lane < lanes; lane++ {
			if g.lanes[lane].first() != nil {
				return false
			}
		}
	}
	return p.roomy(po, w.verb.ref, runners)
}

// reserve takes a place for a job that is inserted already running.
func (p *plan) reserve(w *window) *pool {
	po := w.group.pool
	po.reserved++
	po.room--
	w.verb.running++
	return po
}
