package trigger

import (
	"bytes"
	"encoding/json"
	"time"

	"carillon/backend/core/job"
)

// PointerDebounce is the attribute of a trigger's debounce.
const PointerDebounce = "/data/attributes/debounce"

// MaxDelivery is how long one payload of a webhook may be, in bytes: wrapped, it still fits into a job.
const MaxDelivery = job.MaxPayload / 4

// maxCollected bounds the payloads of one window: what is wrapped must fit into a job, beside its message.
const maxCollected = job.MaxPayload / 2

// ParseDebounce reads how long a window is: a Go duration, not negative; nothing and 0 are no debounce. The error is a
// *Fault.
func ParseDebounce(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, &Fault{Pointer: PointerDebounce, Title: InvalidAttribute, Detail: quote(text) + " is no duration (for example 10m)"}
	case d < 0:
		return 0, &Fault{Pointer: PointerDebounce, Title: InvalidAttribute, Detail: "debounce must not be negative, got " + quote(text)}
	}
	return d, nil
}

// Arrival is one match of a debounced trigger.
type Arrival struct {
	Payload json.RawMessage // of a webhook; nil of an event
	Manual  bool            // somebody waits for it
}

// Window collects what matches a debounced trigger, until it fires once, at its end. It is a stored row.
type Window struct {
	FireAt   time.Time
	Payloads []json.RawMessage // in the order of arrival
	Manual   bool              // any of them was
	Events   int64             // that arrived
}

// Open is the window that a match opens at now, the database's time. It is d long, whatever follows.
func Open(now time.Time, d time.Duration, a Arrival) Window {
	return Window{FireAt: now.Add(d)}.with(a)
}

// Arrive takes a match in at now. A window that is still open takes it, and stays as long as it was. After its end the
// match opens a new one, and the old one is over: it has to fire before it is replaced. It is over, too, when its
// payloads would not fit into one job any more: it fires at its end as it is, and the new one ends with it, so that
// nothing is dropped.
func (w Window) Arrive(now time.Time, d time.Duration, a Arrival) (next Window, over bool) {
	switch {
	case w.Due(now):
		return Open(now, d, a), true
	case len(a.Payload) > 0 && w.size()+len(a.Payload) > maxCollected:
		return Window{FireAt: w.FireAt}.with(a), true
	}
	return w.with(a), false
}

// with shares no payloads with w.
func (w Window) with(a Arrival) Window {
	w.Events++
	w.Manual = w.Manual || a.Manual
	if a.Payload != nil {
		w.Payloads = append(w.Payloads[:len(w.Payloads):len(w.Payloads)], a.Payload)
	}
	return w
}

func (w Window) size() (bytes int) {
	for _, p := range w.Payloads {
		bytes += len(p) + 1
	}
	return bytes
}

// Due says that the window's end has come.
func (w Window) Due(now time.Time) bool { return !now.Before(w.FireAt) }

// Job is what the window's one job carries: no event, for it stands for many; of a webhook all payloads in their order,
// wrapped even if there is one. It is due at FireAt.
func (w Window) Job(kind Kind) Envelope {
	made := Envelope{Kind: kind, Debounced: true, Manual: w.Manual, Events: w.Events}
	if kind == Webhook {
		made.Payload = wrap(w.Payloads)
	}
	return made
}

// wrap is {"payloads":[...]}; a payload that is no JSON is null, for the others must not be lost with it.
func wrap(payloads []json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"payloads":[`)
	for i, p := range payloads {
		if i > 0 {
			b.WriteByte(',')
		}
		if json.Valid(p) {
			b.Write(p)
		} else {
			b.WriteString("null")
		}
	}
	b.WriteString("]}")
	return b.Bytes()
}
