package queue

// heap is a binary heap whose members know their place in it, so that one in the middle can be moved or removed.
type heap[T member[T]] []T

type member[T any] interface {
	before(T) bool
	place() *int32 // -1 outside
}

// put adds a member, or moves it to where it belongs now.
func (h *heap[T]) put(m T) {
	if *m.place() < 0 {
		*m.place() = int32(len(*h))
		*h = append(*h, m)
	}
	i := int(*m.place())
	if !h.up(i) {
		h.down(i)
	}
}

func (h *heap[T]) remove(m T) {
	i, last := int(*m.place()), len(*h)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	var none T
	(*h)[last] = none
	*h = (*h)[:last]
	*m.place() = -1
	if i < last && !h.up(i) {
		h.down(i)
	}
}

func (h *heap[T]) up(i int) (moved bool) {
	for i > 0 && (*h)[i].before((*h)[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i, moved = (i-1)/2, true
	}
	return moved
}

func (h *heap[T]) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(*h) {
			return
		}
		if least+1 < len(*h) && (*h)[least+1].before((*h)[least]) {
			least++
		}
		if !(*h)[least].before((*h)[i]) {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *heap[T]) swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	*s[i].place(), *s[j].place() = int32(i), int32(j)
}
