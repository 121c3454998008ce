package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"carillon"
)

// chime is the request of the jobs of triggers: which trigger it is.
type chime struct {
	Trigger int64 `json:"trigger"`
}

// document is what an event is about: a number of its own, the trigger that is to match it (less than zero: none), and
// when it was sent. What else it has is for the triggers to look at.
type document struct {
	N    int64 `json:"n"`
	For  int64 `json:"for"`
	Sent int64 `json:"sent"`
}

// mark is what a run of a trigger's job is about: the slot in seconds, or the event's number.
type mark struct {
	trigger, at int64
	late        time.Duration // after the slot, or after the event was sent
	strange     bool          // the job is not this trigger's to make
}

// marks are all runs of triggers' jobs.
type marks struct {
	mu  sync.Mutex
	all []mark
}

// ring is the verb of clock triggers and events alike.
func (m *marks) ring(ctx context.Context, of chime) error {
	now := time.Now()
	k := mark{trigger: of.Trigger}
	run, _ := carillon.RunFrom(ctx)
	e, _ := carillon.EnvelopeFrom(ctx)
	switch {
	case e.Event != nil:
		var doc document
		if err := json.Unmarshal(e.Event.Doc, &doc); err != nil {
			return carillon.Fail(err)
		}
		k.at, k.late, k.strange = doc.N, time.Duration(now.UnixNano()-doc.Sent), doc.For != of.Trigger
	case !run.Slot.IsZero():
		k.at, k.late = run.Slot.Unix(), now.Sub(run.Slot)
	default:
		return carillon.Fail(errors.New("neither a slot nor an event"))
	}
	m.mu.Lock()
	m.all = append(m.all, k)
	m.mu.Unlock()
	return nil
}

// within are the marks of [from, to), in order of trigger and slot or event.
func (m *marks) within(from, to int64) (found []mark) {
	m.mu.Lock()
	for _, k := range m.all {
		if k.at >= from && k.at < to {
			found = append(found, k)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(found, func(a, b mark) int { return cmp.Or(cmp.Compare(a.trigger, b.trigger), cmp.Compare(a.at, b.at)) })
	return found
}

// doubled counts what ran more than once, and strange what was not its trigger's.
func doubled(sorted []mark) (n int) {
	for i := 1; i < len(sorted); i++ {
		if sorted[i].trigger == sorted[i-1].trigger && sorted[i].at == sorted[i-1].at {
			n++
		}
	}
	return n
}

func strange(all []mark) (n int) {
	for _, k := range all {
		if k.strange {
			n++
		}
	}
	return n
}
