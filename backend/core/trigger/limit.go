package trigger

import (
	"strings"
	"time"

	"carillon/backend/core/permission"
)

// LimitWindow is how long a rate is counted, from its first use on.
const LimitWindow = time.Hour

// WebhookLimit names the limit of deliveries to webhooks among the workers' ones.
const WebhookLimit = "webhook"

// limits are how many jobs of a worker a domain may make in one window.
var limits = map[string]int{
	"thumbnail": 20000, "share-track": 20000, "share-replicate": 2000, "share-upload": 1000, "sendmail": 200, "service": 200,
	"konnector": 100, "zip": 100, "notes": 100, "client": 100, "push": 30, WebhookLimit: 30,
}

// LimitOf is how many jobs of a worker one domain may make per hour; not ok: as many as it likes.
func LimitOf(worker string) (limit int, ok bool) {
	limit, ok = limits[worker]
	return limit, ok
}

// LimitName names the limit that jobs of a verb count for, by whichever name its worker was asked for: that of the verb's
// own name, or else of its module's, whose verbs share it. Empty: there is none. Deliveries are no verb's, not even of one
// that is called as their limit is.
func LimitName(ref string) string {
	module, verb, _ := strings.Cut(ref, ".")
	for _, name := range []string{permission.WorkerName(verb), permission.WorkerName(module)} {
		if _, ok := limits[name]; ok && name != WebhookLimit {
			return name
		}
	}
	return ""
}

// What a refused request is told.
const (
	LimitReached  = "Rate limit reached"  // the first one over
	LimitExceeded = "Rate limit exceeded" // the others
)

// Meter counts the uses of one limit by one domain. It is a stored row; the zero Meter was never used.
type Meter struct {
	Count int       // uses in the window, those over the limit included
	Start time.Time // of the window
}

// Ruling is what a meter says to one use.
type Ruling struct {
	Allowed    bool
	Text       string        // of a refusal
	RetryAfter time.Duration // of a refusal: whole seconds, at least one, until the next window
	Due        time.Time     // of a firing that must not be dropped: when its job is due instead, the start of the next window
}

// Use counts one use at now, the database's time, and says what becomes of it. A window begins with the first use after
// the end of the one before.
func (m Meter) Use(now time.Time, limit int) (Meter, Ruling) {
	if m.Start.IsZero() || !now.Before(m.Start.Add(LimitWindow)) {
		m = Meter{Start: now}
	}
	if m.Count <= limit+1 { // no count beyond what the texts need: it cannot overflow
		m.Count++
	}
	if m.Count <= limit {
		return m, Ruling{Allowed: true}
	}
	r := Ruling{Text: LimitExceeded, Due: m.Start.Add(LimitWindow)}
	if m.Count == limit+1 {
		r.Text = LimitReached
	}
	left := min(r.Due.Sub(now), LimitWindow) // of two uses at once the later may bring the earlier time
	r.RetryAfter = max((left + time.Second - 1).Truncate(time.Second), time.Second)
	return m, r
}
