package queue

// turns lets the tenants of one lane take turns, and the windows of each tenant. Both are rings: the first is next.
type turns struct {
	tenants map[string]*turn
	head    *turn
}

// turn is one tenant's.
type turn struct {
	tenant     string
	head       *window
	next, prev *turn
}

// first is the window whose turn it is; nil: there is none.
func (t *turns) first() *window {
	if t.head == nil {
		return nil
	}
	return t.head.head
}

// add puts a window behind the others of its tenant, and a new tenant behind the others.
func (t *turns) add(w *window) {
	tn := t.tenants[w.tenant]
	if tn == nil {
		if t.tenants == nil {
			t.tenants = map[string]*turn{}
		}
		tn = &turn{tenant: w.tenant}
		t.tenants[w.tenant] = tn
		if t.head == nil {
			tn.next, tn.prev, t.head = tn, tn, tn
		} else {
			tn.next, tn.prev = t.head, t.head.prev
			tn.prev.next, tn.next.prev = tn, tn
		}
	}
	w.turn = tn
	if tn.head == nil {
		w.next, w.prev, tn.head = w, w, w
		return
	}
	w.next, w.prev = tn.head, tn.head.prev
	w.prev.next, w.next.prev = w, w
}

// remove takes a window out.
func (t *turns) remove(w *window) {
	tn := w.turn
	if tn == nil {
		return
	}
	if w.next == w {
		tn.head = nil
		delete(t.tenants, tn.tenant)
		if tn.next == tn {
			t.head = nil
		} else {
			if t.head == tn {
				t.head = tn.next
			}
			tn.prev.next, tn.next.prev = tn.next, tn.prev
		}
	} else {
		if tn.head == w {
			tn.head = w.next
		}
		w.prev.next, w.next.prev = w.next, w.prev
	}
	w.turn, w.next, w.prev = nil, nil, nil
}

// pass ends the turn of a window: the next of its tenant follows when the tenant's turn comes again. A pick out of
// turn takes the turn that its tenant would have had.
func (t *turns) pass(w *window) {
	tn := w.turn
	if tn.head == w {
		tn.head = w.next
	}
	if t.head == tn {
		t.head = tn.next
	}
}
