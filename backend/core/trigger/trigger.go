package trigger

import (
	"encoding/json"
	"time"

	"carillon/backend/core/job"
)

// Trigger is a rule that makes jobs, as it is stored.
type Trigger struct {
	ID          int64
	Key         string // the id that people see: 32 hex digits that nobody guesses
	Tenant      string
	Domain      string
	Kind        Kind
	Arguments   string // as given; of @in the duration
	TimeZone    string // IANA name; empty is UTC
	Worker      string // as its maker named it
	Ref         string // the verb that this is; the name of the client worker where no controller runs it
	Priority    int    // of its jobs, 0 to 1000
	Retry       job.Retry
	Timeout     time.Duration
	Message     []byte          // JSON: the request of its jobs
	Options     json.RawMessage // as given
	Debounce    string          // as given
	DebounceFor time.Duration
	Secret      []byte // of a webhook's signatures; nil: none are asked for
	CreatedBy   string // token or application
	Rev         int    // grows with every change
	CreatedAt   time.Time
	UpdatedAt   time.Time
	LastError   string
	Timetable   string    // of timed kinds: the text of package schedule
	Next        time.Time // of timed kinds: the first undecided slot
	CronJob     int64     // of timed kinds: the row that the clock fires; 0: none
	PausedAt    time.Time // of timed kinds: the clock stands still for it since then
	PausedNote  string    // why
}

// ClientWorker is the worker whose jobs no controller runs: a client launches and ends them.
const ClientWorker = "client"

// ClientLimits are that worker's: who launched a job and is not heard of again has failed after a day, or sooner where
// the options ask for it.
var ClientLimits = Limits{Timeout: 24 * time.Hour}

// Envelope is what a job of a trigger, or of the Cozy API, carries beside its request.
type Envelope struct {
	Trigger   string          `json:"trigger,omitempty"` // key
	Kind      Kind            `json:"kind,omitempty"`    // of the trigger
	Domain    string          `json:"domain,omitempty"`
	Worker    string          `json:"worker,omitempty"` // as the maker named it
	Event     json.RawMessage `json:"event,omitempty"`  // {"verb", "doc", "old"}
	Payload   json.RawMessage `json:"payload,omitempty"`
	Manual    bool            `json:"manual,omitempty"`
	Debounced bool            `json:"debounced,omitempty"`
	Events    int64           `json:"events,omitempty"` // that a debounced job covers
	Options   json.RawMessage `json:"options,omitempty"`
}
