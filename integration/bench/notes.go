package main

import (
	"slices"
	"sync"
	"time"
)

// The clock of "enqueue to start" is the same for all candidates: whoever enqueues writes the machine's wall clock
// (CLOCK_REALTIME, nanoseconds) into the job just before the call, and the worker's first act is to read the same clock
// again. Sender and worker of River are one process, those of Carillon are two on one machine; neither pays for a
// database's time or for a clock of its own, and nothing is measured after the worker's first instruction.

// task is every job's payload.
type task struct {
	Sent int64 `json:"sent"`
}

func newTask() task { return task{Sent: time.Now().UnixNano()} }

// notes are what workers write down: that a job ran, and how long after it was sent.
type notes struct {
	mu   sync.Mutex
	late []time.Duration
}

func (n *notes) ran(t task) {
	late := time.Duration(time.Now().UnixNano() - t.Sent)
	n.mu.Lock()
	n.late = append(n.late, late)
	n.mu.Unlock()
}

func (n *notes) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.late)
}

// since are the notes after the first of them.
func (n *notes) since(first int) []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.late[first:])
}

// quantile is the nearest rank of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[max(rank, 1)-1]
}
