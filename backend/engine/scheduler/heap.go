package scheduler

// dueHeap orders rows by the instant of their next try, and equal ones by id, so that a herd is taken in the order in
// which the database locks it. It has four children to a node: half the depth of a binary one, and the keys of the
// children lie side by side. The keys stand in the heap itself, so that sifting does not visit the rows it passes.
type dueHeap []due

type due struct {
	at  micros
	id  int64
	row *row // row.index is its place, -1 outside
}

func (a due) before(b due) bool { return a.at < b.at || a.at == b.at && a.id < b.id }

// put arms a row at an instant, whether or not it was armed.
func (h *dueHeap) put(r *row, at micros) {
	d := due{at: at, id: r.id, row: r}
	if r.index < 0 {
		*h = append(*h, d)
		h.up(len(*h)-1, d)
		return
	}
	i := int(r.index)
	if d.before((*h)[i]) {
		h.up(i, d)
	} else {
		h.down(i, d)
	}
}

// remove disarms a row.
func (h *dueHeap) remove(r *row) {
	if r.index < 0 {
		return
	}
	i, last := int(r.index), len(*h)-1
	moved := (*h)[last]
	(*h)[last] = due{}
	*h = (*h)[:last]
	r.index = -1
	switch {
	case i == last:
	case i > 0 && moved.before((*h)[(i-1)/4]):
		h.up(i, moved)
	default:
		h.down(i, moved)
	}
}

// up places d at i or above it.
func (h dueHeap) up(i int, d due) {
	for i > 0 {
		parent := (i - 1) / 4
		if !d.before(h[parent]) {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	h.set(i, d)
}

// down places d at i or below it.
func (h dueHeap) down(i int, d due) {
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(d) {
			break
		}
		h.set(i, h[least])
		i = least
	}
	h.set(i, d)
}

func (h dueHeap) set(i int, d due) {
	h[i] = d
	d.row.index = int32(i)
}
