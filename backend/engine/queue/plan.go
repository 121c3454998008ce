package queue

import (
	"cmp"
	"slices"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

// lanes is how many classes of priority there are.
const lanes = 5

// ageing: each eighth pick is the oldest job of any lane, so that no lane starves.
const ageing = 8

// plan merges the windows: it knows which job is next, and decides nothing else. The windows of all verbs of one
// deployment share its runners: they form a pool. In a pool the highest lane comes first, but each eighth pick is the
// oldest job of any lane; within a lane tenants take turns, then the verbs of a tenant, then the oldest job.
//
// It is pure: Queue.mu guards it.
type plan struct {
	windows  map[int32]*window
	verbs    map[string]*verb
	pools    map[string]*pool
	order    []*pool // by deployment
	entries  map[int64]*entry
	held     map[int64]struct{} // jobs that are being claimed, run, or ended here
	waiting  [lanes]int
	expiring int                  // entries that expire
	wants    map[*window]struct{} // they should fetch their next page
	share    int                  // rows that a window may hold at least; see maxEntries

	now       micros // what is due is due by this
	lastStamp int64
	takes     int64
	turn      int
}

// verb is what all queues of one ref share.
type verb struct {
	ref        string
	limit      int // running jobs in the whole cluster; 0: no bound
	running    int // of these, here: from the claim until the end is written
	deployment int64
	key        string // of the deployment; empty: there is none
	checked    int64  // the take that asked for the deployment last
	fullUntil  micros // no place was left in the limit: not tried before
	windows    []*window
}

// pool is what shares the runners of one deployment.
type pool struct {
	key      string
	main     *group
	limited  map[string]*group // by ref
	groups   []*group          // main and limited
	reserved int               // claimed, and not with the caller yet
	room     int               // what the take of stamp asked has left
	asked    int64
	picks    int
	turn     int
}

// group is the windows whose jobs may be claimed in one statement: all of a pool whose verbs have no limit, or those
// of one verb that has.
type group struct {
	pool   *pool
	verb   *verb         // with a limit; nil for the main group
	asleep heap[*window] // nothing due; by the due time of the first job
	awake  heap[*window] // the oldest first
	lanes  [lanes]turns
}

// batch is what one statement claims.
type batch struct {
	ref   string // the verb with a limit; empty: none has
	picks []pick
}

// pick is a job on its way to be claimed.
type pick struct {
	entry
	run        cron.RunID
	deployment int64
	pool       *pool
	verb       *verb
}

func newPlan() *plan {
	return &plan{
		windows: map[int32]*window{}, verbs: map[string]*verb{}, pools: map[string]*pool{}, entries: map[int64]*entry{},
		held: map[int64]struct{}{}, share: firstPage, wants: map[*window]struct{}{},
	}
}

// learn takes in a queue as it stands in the database, and returns its window; fresh says that it is new, or was
// resumed.
func (p *plan) learn(q job.Queue) (w *window, fresh bool) {
	w = p.windows[q.ID]
	if w == nil {
		v := p.verbs[q.Ref]
		if v == nil {
			v = &verb{ref: q.Ref}
			p.verbs[q.Ref] = v
		}
		w = &window{id: q.ID, tenant: q.Tenant, lane: min(max(q.Lane, 0), lanes-1), verb: v, index: -1, page: firstPage}
		v.windows = append(v.windows, w)
		p.windows[q.ID] = w
		p.attach(w)
		fresh = true
	}
	if w.paused != q.Paused {
		w.paused = q.Paused
		fresh = fresh || !w.paused
		p.empty(w)
	}
	return w, fresh
}

// bound sets the limit of a verb.
func (p *plan) bound(v *verb, limit int) {
	if v.limit == limit {
		return
	}
	moves := (v.limit == 0) != (limit == 0)
	v.limit, v.fullUntil = limit, 0
	if moves {
		p.regroup(v)
	}
}

// deploy sets the deployment that serves a verb; ok false: there is none.
func (p *plan) deploy(v *verb, id int64, deployment string, ok bool) {
	if !ok {
		id, deployment = 0, ""
	}
	if v.deployment == id && v.key == deployment {
		return
	}
	moves := v.key != deployment
	v.deployment, v.key = id, deployment
	if moves {
		p.regroup(v)
	}
}

func (p *plan) regroup(v *verb) {
	for _, w := range v.windows {
		p.detach(w)
		p.attach(w)
	}
}

// attach gives a window its place in the group of its verb.
func (p *plan) attach(w *window) {
	v := w.verb
	if v.key == "" {
		return
	}
	po := p.pools[v.key]
	if po == nil {
		po = &pool{key: v.key, limited: map[string]*group{}}
		po.main = &group{pool: po}
		po.groups = []*group{po.main}
		p.pools[v.key] = po
		i, _ := slices.BinarySearchFunc(p.order, v.key, func(o *pool, k string) int { return cmp.Compare(o.key, k) })
		p.order = slices.Insert(p.order, i, po)
	}
	w.group = po.main
	if v.limit > 0 {
		w.group = po.limited[v.ref]
		if w.group == nil {
			w.group = &group{pool: po, verb: v}
			po.limited[v.ref] = w.group
			po.groups = append(po.groups, w.group)
		}
	}
	p.settle(w)
}

// detach takes a window out of its group; a group and a pool that nobody uses go with it.
func (p *plan) detach(w *window) {
	g := w.group
	if g == nil {
		return
	}
	g.remove(w)
	w.group = nil
	po := g.pool
	for _, v := range p.verbs {
		if v.key == po.key {
			return
		}
	}
	for _, other := range po.groups {
		if len(other.awake)+len(other.asleep) > 0 {
			return
		}
	}
	delete(p.pools, po.key)
	p.order = slices.DeleteFunc(p.order, func(o *pool) bool { return o == po })
}

// settle puts a window where its first job says.
func (p *plan) settle(w *window) {
	g := w.group
	if g == nil {
		return
	}
	if len(w.jobs) == 0 {
		g.remove(w)
		return
	}
	at := w.jobs[0].due
	awake := at <= p.now
	if w.index >= 0 && awake == w.awake && at == w.at {
		return
	}
	if w.index >= 0 && awake != w.awake {
		g.remove(w)
	}
	w.at, w.awake = at, awake
	if !awake {
		g.asleep.put(w)
		return
	}
	g.awake.put(w)
	if w.turn == nil {
		g.lanes[w.lane].add(w)
	}
}

func (g *group) remove(w *window) {
	if w.index < 0 {
		return
	}
	if w.awake {
		g.awake.remove(w)
		g.lanes[w.lane].remove(w)
		w.awake = false
	} else {
		g.asleep.remove(w)
	}
}

// advance lets the time go on: windows whose first job is due wake up.
func (p *plan) advance(now micros) {
	p.now = max(now, 0)
	for _, po := range p.order {
		for _, g := range po.groups {
			for len(g.asleep) > 0 && g.asleep[0].at <= p.now {
				p.settle(g.asleep[0])
			}
		}
	}
}

// nextAt is when the next window wakes; 0: none does. stuck says that jobs are due and could not be taken.
func (p *plan) nextAt() (at micros, stuck bool) {
	for _, po := range p.order {
		for _, g := range po.groups {
			if len(g.asleep) > 0 && (at == 0 || g.asleep[0].at < at) {
				at = g.asleep[0].at
			}
			stuck = stuck || len(g.awake) > 0
		}
	}
	return at, stuck
}
