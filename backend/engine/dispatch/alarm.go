package dispatch

import (
	"container/heap"
	"time"
)

// alarm is when something is due: of a call its giving up, its timeout or the end of its grace, of a runner the end of
// its pause. One heap holds them all, so ten thousand calls in flight cost no timer and no goroutine each.
type alarm struct {
	at     time.Time
	index  int // in the heap; -1 when not set
	call   *call
	runner *runner
}

type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i]; a[i].index, a[j].index = i, j }
func (a *alarms) Push(x any)        { x.(*alarm).index = len(*a); *a = append(*a, x.(*alarm)) }
func (a *alarms) Pop() any {
	old := *a
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	last.index = -1
	return last
}

// set lets x ring at that time, instead of any time it was set to before.
func (d *Dispatcher) set(x *alarm, at time.Time) {
	x.at = at
	if x.index < 0 {
		heap.Push(&d.alarms, x)
		return
	}
	heap.Fix(&d.alarms, x.index)
}

func (d *Dispatcher) unset(x *alarm) {
	if x.index >= 0 {
		heap.Remove(&d.alarms, x.index)
	}
}

// due takes what rings at now out of the heap, one by one; nil when nothing does.
func (d *Dispatcher) due(now time.Time) *alarm {
	if len(d.alarms) == 0 || d.alarms[0].at.After(now) {
		return nil
	}
	return heap.Pop(&d.alarms).(*alarm)
}
