package trigger

import (
	"time"

	"carillon/backend/core/job"
)

// What engine and store hand each other, in batches.

// Published is an event: a change that waits for what its triggers make of it.
type Published struct {
	ID   int64
	At   time.Time // of its publication
	Upto int64     // triggers up to this id have made their part of it
	Change
}

// EventTrigger is what matching needs to know of an @event trigger.
type EventTrigger struct {
	ID        int64
	Tenant    string
	Arguments string
	Epoch     int64 // of its last change
	Gone      bool  // it was deleted
}

// Matched is an event with the triggers that it matched.
type Matched struct {
	Event    int64
	After    int64 // Published.Upto: nothing is made of an event that has moved on
	Triggers []int64
	Upto     int64 // there are further triggers, with greater ids than this: the event stays, for them; 0: it is done with
}

// Made is what a batch of events, or of windows, has become.
type Made struct {
	Taken  int           // events or windows that were still there, and nobody else's
	Jobs   []job.Waiting // that are ready now, or will be
	Closes time.Duration // until the first window ends that was opened or appended to; 0: none was
}

// Delivery is what became of a delivery to a webhook.
type Delivery struct {
	Job       job.ID        // that was made of it; zero: it waits in a window
	Ready     []job.Waiting // jobs that were made: of the delivery, or of the window that it found full or over
	Closes    time.Duration // until its window ends; 0: it waits in none
	Existing  bool          // a delivery with the same idempotency key came before; Job is that one's, where it made one at once
	Debounced bool
}

// LimitError refuses a request because of a limit. Nothing was made of it.
type LimitError struct{ Ruling }

func (e *LimitError) Error() string { return e.Text }
