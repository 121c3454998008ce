package queue

import (
	"time"

	"carillon/backend/core/job"
)

// micros is an instant of the database's clock in its own resolution: microseconds since 1970. Zero is none.
type micros = int64

func toMicros(t time.Time) micros {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(m micros) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(m).UTC()
}

// key is a job's place in its queue.
type key struct {
	due micros
	id  int64
}

func (a key) before(b key) bool { return a.due < b.due || a.due == b.due && a.id < b.id }

// entry is a job that waits in a window.
type entry struct {
	key
	window  *window
	expires micros // no attempt begins after it; 0: never
	stamp   int64  // of the plan when a fetch or an insert last said that it is there
	index   int32  // in window.jobs
	foreign bool   // of a shard that somebody else owns: here because it is long overdue
}

func (e *entry) before(o *entry) bool { return e.key.before(o.key) }
func (e *entry) place() *int32        { return &e.index }

// window is what a controller knows of one queue: the jobs of its shards that are due now or in a moment, from the
// oldest on. upto says how far; what lies beyond is fetched when half of a page is left.
type window struct {
	id     int32
	tenant string
	lane   int
	paused bool
	verb   *verb

	jobs     heap[*entry]
	complete bool // nothing that is due within the horizon is missing, as far as one can know
	upto     key  // where complete is false: all up to here was fetched
	top      key  // the last key that was ever put
	page     int  // rows of the next fetch

	fetching bool               // a fetch is under way: gone notes what is taken meanwhile
	gone     map[int64]struct{} // they are not to come back by its answer
	void     bool               // what the fetch under way asked for is not wanted any more
	missed   bool               // a job stayed out meanwhile that the answer may lack

	// Its place among the others of its group; group is nil while nothing of it can be claimed.
	group *group
	awake bool   // its first job is due
	at    micros // due time of its first job, when it was put into the group's heap
	index int32  // in group.awake or group.asleep
	turn  *turn  // of its tenant, while awake
	next  *window
	prev  *window
}

func (w *window) before(o *window) bool { return w.at < o.at || w.at == o.at && w.id < o.id }
func (w *window) place() *int32         { return &w.index }

const (
	firstPage  = 1000 // rows
	maxPage    = 8000
	leastPage  = 50
	probePage  = 100     // of an empty window: most stay empty
	maxEntries = 400_000 // in all windows, roughly: pages shrink as windows become many
)

// hungry says that the window should fetch the next page.
func (p *plan) hungry(w *window) bool {
	return !w.complete && !w.paused && !w.fetching && len(w.jobs) < p.page(w)/2
}

// page is how many rows a window fetches at a time.
func (p *plan) page(w *window) int { return min(w.page, p.share) }

// put adds a job that is known to wait; false: it was not needed, a fetch will find it.
func (p *plan) put(w *window, id int64, due, expires micros, foreign bool) bool {
	k := key{due, id}
	if _, held := p.held[id]; held || w.paused {
		return false
	}
	if e := p.entries[id]; e != nil {
		p.refresh(e, due, foreign)
		return true
	}
	p.lastStamp++
	e := &entry{key: k, window: w, expires: expires, stamp: p.lastStamp, index: -1, foreign: foreign}
	p.entries[id] = e
	w.jobs.put(e)
	p.waiting[w.lane]++
	if expires != 0 {
		p.expiring++
	}
	if !foreign && w.top.before(k) {
		w.top = k
	}
	p.settle(w)
	return true
}

// refresh notes that an entry still is there, perhaps with another due time.
func (p *plan) refresh(e *entry, due micros, foreign bool) {
	p.lastStamp++
	e.stamp, e.foreign = p.lastStamp, foreign
	if e.due != due {
		e.due = due
		e.window.jobs.put(e)
		p.settle(e.window)
	}
}

// enter takes in a job that this controller has just written to the database. One beyond what the window has fetched
// stays out: those before it come first.
func (p *plan) enter(w *window, id int64, due, expires micros, horizon micros) {
	k := key{due, id}
	switch {
	case w.paused || due > horizon:
		return
	case !w.complete && w.upto.before(k):
		w.missed = w.fetching
		return
	case w.complete && len(w.jobs) >= 2*p.page(w):
		w.complete, w.upto, w.missed = false, w.top, w.fetching
		return
	}
	p.put(w, id, due, expires, false)
}

// drop forgets an entry.
func (p *plan) drop(e *entry) {
	w := e.window
	delete(p.entries, e.id)
	if e.expires != 0 {
		p.expiring--
	}
	w.jobs.remove(e)
	p.waiting[w.lane]--
	if w.fetching {
		w.gone[e.id] = struct{}{}
	}
	p.settle(w)
}

// begins notes that a fetch of the window is under way.
func (p *plan) begins(w *window) {
	w.fetching, w.void, w.missed, w.gone = true, false, false, map[int64]struct{}{}
}

// returns notes that a fetch has returned; ok false: its answer counts for nothing.
func (p *plan) returns(w *window) (gone map[int64]struct{}, ok bool) {
	gone, ok = w.gone, !w.void
	w.fetching, w.void, w.gone = false, false, nil
	if !ok && p.hungry(w) {
		p.wants[w] = struct{}{}
	}
	return gone, ok
}

// fetched takes in the answer to a fetch of own jobs that began at a stamp with the key from; the rows are in order.
// What should have been among them and is not has been claimed or cancelled by others.
func (p *plan) fetched(w *window, from key, began int64, page int, rows []job.Waiting) {
	gone, ok := p.returns(w)
	if !ok {
		return
	}
	last := from
	for _, r := range rows {
		last = key{toMicros(r.Due), r.ID}
		if _, ok := gone[r.ID]; !ok {
			p.put(w, r.ID, last.due, toMicros(r.Expires), false)
		}
	}
	all := len(rows) < page
	if from == (key{}) {
		p.dropUnseen(w, func(e *entry) bool { return !e.foreign && e.stamp <= began && (all || !last.before(e.key)) })
	}
	switch {
	case all && !w.missed:
		w.complete = true
	case w.complete || w.upto.before(last): // never back: the way from there has been walked
		w.complete, w.upto = false, last
	}
	if p.hungry(w) {
		p.wants[w] = struct{}{}
	}
}

// visited takes in long overdue jobs of other owners' shards; the ones that came earlier and are not among them are
// dropped.
func (p *plan) visited(w *window, began int64, rows []job.Waiting, own func(id int64) bool) {
	for _, r := range rows {
		if !own(r.ID) {
			p.put(w, r.ID, toMicros(r.Due), toMicros(r.Expires), true)
		}
	}
	p.dropUnseen(w, func(e *entry) bool { return e.foreign && e.stamp <= began })
}

func (p *plan) dropUnseen(w *window, unseen func(*entry) bool) {
	var drops []*entry
	for _, e := range w.jobs {
		if unseen(e) {
			drops = append(drops, e)
		}
	}
	for _, e := range drops {
		p.drop(e)
	}
}

// empty forgets all jobs of a window.
func (p *plan) empty(w *window) {
	for len(w.jobs) > 0 {
		p.drop(w.jobs[len(w.jobs)-1])
	}
	w.complete, w.upto, w.top = false, key{}, key{}
	w.void = w.void || w.fetching
}
