package carillon

import (
	"context"
	"encoding/json"
)

// Envelope is what the job of a trigger, or of the HTTP API, carries beside its request. What is not there is zero.
type Envelope struct {
	Trigger   string          `json:"trigger,omitempty"` // id of the trigger that made the job
	Kind      string          `json:"kind,omitempty"`    // of the trigger: @cron, @event, @webhook ..
	Domain    string          `json:"domain,omitempty"`
	Worker    string          `json:"worker,omitempty"` // the verb's name, as the job's maker wrote it
	Event     *Change         `json:"event,omitempty"`  // of an @event trigger; nil where the job covers several
	Payload   json.RawMessage `json:"payload,omitempty"`
	Manual    bool            `json:"manual,omitempty"`    // somebody asked for it, not the clock
	Debounced bool            `json:"debounced,omitempty"` // the job covers all that came in a window
	Events    int64           `json:"events,omitempty"`    // how many that were
	Options   json.RawMessage `json:"options,omitempty"`   // as the maker wrote them
}

// Change is what became of a document: JSON of it now (null once it is deleted), and before.
type Change struct {
	Verb string          `json:"verb"` // CREATED, UPDATED or DELETED
	Doc  json.RawMessage `json:"doc,omitempty"`
	Old  json.RawMessage `json:"old,omitempty"`
}

// EnvelopeFrom tells what the job of a verb's context carries beside its request; false where it carries nothing: the
// job was enqueued as such, or the clock started the verb itself.
func EnvelopeFrom(ctx context.Context) (Envelope, bool) {
	raw := insideOf(ctx).envelope
	if len(raw) == 0 {
		return Envelope{}, false
	}
	var e Envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return Envelope{}, false
	}
	return e, true
}

// WithEnvelope is a context in which EnvelopeFrom tells e, for calling a verb without a cluster, in a test for example.
// Parts of e that are no JSON make it as if there were none.
func WithEnvelope(ctx context.Context, e Envelope) context.Context {
	in := insideOf(ctx)
	in.envelope, _ = marshal(e)
	return context.WithValue(ctx, insideKey{}, in)
}
