package cozy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
	"carillon/integration/cozycases"
)

// fake is a house and its database in memory: enough to answer, and with the same refusals. Nothing runs.
type fake struct {
	mu       sync.Mutex
	now      time.Time
	tokens   map[string]permission.Token
	verbs    []string // they stay
	jobs     []*job.Job
	triggers []*trigger.Trigger
	keys     map[string]any
	meters   map[string]trigger.Meter
	purged   []string
	summed   int // how often the jobs of triggers were
	draining bool
	broken   error // what every call answers
	panics   bool
}

func newFake() *fake {
	f := &fake{
		now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), tokens: map[string]permission.Token{},
		keys: map[string]any{}, meters: map[string]trigger.Meter{},
	}
	for _, name := range []string{"print", "sendmail", "konnector", "service", "zip", "thumbnail"} {
		f.verbs = append(f.verbs, name+"."+name)
	}
	f.verbs = append(f.verbs, "vault.open", "mail.send", "post.print", "files.shareUpload")
	return f
}

// world serves the face on a fake.
func world(t *testing.T) (*fake, cozycases.World) {
	f := newFake()
	server := httptest.NewServer(Handler(Config{House: f, Reader: f, Tokens: f, Reserved: permission.Reserved{"vault"}, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	return f, cozycases.World{URL: server.URL, Reserved: "vault", Use: f.use, Token: func(_ testing.TB, p permission.Token) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		secret := "car_" + rand.Text() + "a"
		p.ID = fmt.Sprint(len(f.tokens) + 1)
		f.tokens[secret] = p
		return secret
	}}
}

// use makes a meter show so many uses in a window that began so long ago.
func (f *fake) use(_ testing.TB, h cozycases.Home, limit string, used int, ago time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.meters[h.Tenant+"/"+h.Domain+"/"+limit] = trigger.Meter{Count: used, Start: f.now.Add(-ago)}
}

// enter begins every call.
func (f *fake) enter() error {
	f.mu.Lock()
	if f.panics {
		f.mu.Unlock()
		panic("the fake was told to")
	}
	f.now = f.now.Add(time.Millisecond)
	return f.broken
}

func (f *fake) Authenticate(_ context.Context, bearer string) (permission.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := f.tokens[bearer]; ok {
		return p, nil
	}
	return permission.Token{}, fmt.Errorf("%w: no such token", cron.ErrNotFound)
}

func (f *fake) Draining() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.draining
}

func (f *fake) Worker(_ context.Context, _, name string) (Worker, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ref, ok := trigger.FindVerb(name, slices.Values(f.verbs))
	return Worker{Ref: ref}, ok
}

func (f *fake) Names(_, name string) (names []string) {
	ref, ok := trigger.FindVerb(name, slices.Values(f.verbs))
	if !ok {
		return nil
	}
	return trigger.WorkerNames(ref, func(name string) (string, bool) { return trigger.FindVerb(name, slices.Values(f.verbs)) })
}

func (f *fake) Ping(context.Context) (time.Time, error) {
	err := f.enter()
	defer f.mu.Unlock()
	return f.now, err
}

// limit counts a use of a limit, as the store does.
func (f *fake) limit(tenant, domain, name string) error {
	limit, ok := trigger.LimitOf(name)
	if !ok {
		return nil
	}
	at := tenant + "/" + domain + "/" + name
	m, ruling := f.meters[at].Use(f.now, limit)
	f.meters[at] = m
	if !ruling.Allowed {
		return &trigger.LimitError{Ruling: ruling}
	}
	return nil
}

func (f *fake) put(n job.New, client bool) *job.Job {
	j := &job.Job{
		ID: job.ID{N: int64(len(f.jobs) + 1), Salt: 7}, Tenant: n.Tenant, Ref: n.Ref, State: job.Ready, Priority: n.Priority, Due: f.now, Created: f.now,
		Retry: n.Retry, Timeout: n.Timeout, Payload: n.Payload, TriggerID: n.TriggerID, Envelope: n.Envelope,
	}
	if client {
		j.State, j.Attempt, j.Started = job.Blocked, 1, f.now
	}
	f.jobs = append(f.jobs, j)
	return j
}

func (f *fake) PushJob(_ context.Context, domain string, n job.New) (job.Enqueued, error) {
	err := f.enter()
	defer f.mu.Unlock()
	if err != nil {
		return job.Enqueued{}, err
	}
	if strings.Contains(string(n.Payload), "odd") {
		return job.Enqueued{Err: &job.FieldError{Field: "payload.parts[1].body", Problem: "must be a String"}}, nil
	}
	return f.pushed(domain, n, false)
}

func (f *fake) PushClientJob(_ context.Context, domain string, n job.New) (job.Enqueued, error) {
	err := f.enter()
	defer f.mu.Unlock()
	if err != nil {
		return job.Enqueued{}, err
	}
	return f.pushed(domain, n, true)
}

func (f *fake) pushed(domain string, n job.New, client bool) (job.Enqueued, error) {
	hash := fmt.Sprintf("%x", job.RequestHash(n))
	type held struct {
		hash string
		id   job.ID
	}
	if old, ok := f.keys[n.Idempotency].(held); ok && n.Idempotency != "" {
		if old.hash != hash {
			return job.Enqueued{Conflict: true, Err: fmt.Errorf("%w: another request", cron.ErrExists)}, nil
		}
		return job.Enqueued{ID: old.id, Existing: true}, nil
	}
	if err := f.limit(n.Tenant, domain, trigger.LimitName(n.Ref)); err != nil {
		return job.Enqueued{}, err
	}
	j := f.put(n, client)
	if n.Idempotency != "" {
		f.keys[n.Idempotency] = held{hash, j.ID}
	}
	return job.Enqueued{ID: j.ID, Created: j.Created, Due: j.Due}, nil
}

func (f *fake) EndClientJob(_ context.Context, id job.ID, as job.State, text string) error {
	err := f.enter()
	defer f.mu.Unlock()
	j := f.find(id)
	switch {
	case err != nil:
		return err
	case j == nil:
		return cron.ErrNotFound
	case j.State.Ended():
		return fmt.Errorf("%w: it has ended", cron.ErrPrecond)
	}
	j.State, j.Ended = as, f.now
	if as == job.Failed {
		j.Errors = append(j.Errors, job.Error{At: f.now, Attempt: 1, Verdict: "failed", Text: text})
	}
	return nil
}

func (f *fake) find(id job.ID) *job.Job {
	for _, j := range f.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

func (f *fake) GetJob(_ context.Context, id job.ID) (job.Job, error) {
	err := f.enter()
	defer f.mu.Unlock()
	if err != nil {
		return job.Job{}, err
	}
	if j := f.find(id); j != nil {
		return *j, nil
	}
	return job.Job{}, fmt.Errorf("%w: no job", cron.ErrNotFound)
}

func (f *fake) ListQueueJobs(_ context.Context, tenant, worker string, after job.Cursor, limit int) (list []job.Job, more bool, err error) {
	err = f.enter()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.Tenant != tenant || j.State.Ended() || worker != "" && j.Ref != worker || !j.Due.Truncate(time.Microsecond).After(after.Due) {
			continue
		}
		if len(list) == limit {
			return list, true, err
		}
		list = append(list, *j)
	}
	return list, false, err
}

func (f *fake) CreateTrigger(_ context.Context, t trigger.Trigger, idempotency string) (trigger.Trigger, error) {
	err := f.enter()
	defer f.mu.Unlock()
	if err != nil {
		return t, err
	}
	if strings.Contains(string(t.Message), "odd") {
		return t, &job.FieldError{Field: "payload.x", Problem: "is not there"}
	}
	if old, ok := f.keys[idempotency].(trigger.Trigger); ok && idempotency != "" {
		return old, nil
	}
	var chance [16]byte
	rand.Read(chance[:])
	t.ID, t.Key, t.Rev, t.CreatedAt, t.UpdatedAt = int64(len(f.triggers)+1), hex.EncodeToString(chance[:]), 1, f.now, f.now
	f.triggers = append(f.triggers, &t)
	f.keys[idempotency] = t
	return t, nil
}

func (f *fake) trigger(tenant, key string) (*trigger.Trigger, error) {
	for _, t := range f.triggers {
		if t.Key == key && (tenant == "" || t.Tenant == tenant) {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%w: no trigger", cron.ErrNotFound)
}

func (f *fake) GetTrigger(_ context.Context, tenant, key string) (trigger.Trigger, error) {
	err := f.enter()
	defer f.mu.Unlock()
	if err != nil {
		return trigger.Trigger{}, err
	}
	t, err := f.trigger(tenant, key)
	if err != nil {
		return trigger.Trigger{}, err
	}
	return *t, nil
}

func (f *fake) FindWebhook(ctx context.Context, key string) (trigger.Trigger, error) {
	return f.GetTrigger(ctx, "", key)
}

func (f *fake) PatchTrigger(_ context.Context, tenant, key string, decide func(trigger.Trigger, time.Time) (trigger.Trigger, error)) (trigger.Trigger, error) {
	err := f.enter()
	defer f.mu.Unlock()
	t, missing := f.trigger(tenant, key)
	if err = errors.Join(err, missing); err != nil {
		return trigger.Trigger{}, err
	}
	next, err := decide(*t, f.now)
	if err != nil {
		return *t, err
	}
	next.Rev++
	*t = next
	return next, nil
}

func (f *fake) DeleteTrigger(_ context.Context, tenant, key string) error {
	err := f.enter()
	defer f.mu.Unlock()
	t, missing := f.trigger(tenant, key)
	if err = errors.Join(err, missing); err != nil {
		return err
	}
	f.triggers = slices.DeleteFunc(f.triggers, func(x *trigger.Trigger) bool { return x == t })
	return nil
}

func (f *fake) fire(t *trigger.Trigger, e trigger.Envelope) *job.Job {
	e.Trigger, e.Kind, e.Domain, e.Worker, e.Options = t.Key, t.Kind, t.Domain, t.Worker, t.Options
	text, _ := json.Marshal(e)
	n := job.New{Tenant: t.Tenant, Ref: t.Ref, Priority: t.Priority, Retry: t.Retry, Timeout: t.Timeout, Payload: t.Message, TriggerID: t.ID, Envelope: text}
	return f.put(n, t.Worker == trigger.ClientWorker)
}

func (f *fake) LaunchTrigger(_ context.Context, tenant, key string, l Launch) (job.ID, error) {
	err := f.enter()
	defer f.mu.Unlock()
	t, missing := f.trigger(tenant, key)
	if err = errors.Join(err, missing); err != nil {
		return job.ID{}, err
	}
	if id, ok := f.keys[l.Idempotency].(job.ID); ok && l.Idempotency != "" {
		return id, nil
	}
	if err := f.limit(tenant, t.Domain, trigger.LimitName(t.Ref)); err != nil {
		return job.ID{}, err
	}
	j := f.fire(t, trigger.Envelope{Manual: l.Manual, Payload: l.Payload})
	f.keys[l.Idempotency] = j.ID
	return j.ID, nil
}

func (f *fake) DeliverWebhook(_ context.Context, key string, payload []byte, manual bool, idempotency string) error {
	err := f.enter()
	defer f.mu.Unlock()
	t, missing := f.trigger("", key)
	if err = errors.Join(err, missing); err != nil {
		return err
	}
	if f.keys[idempotency] != nil && idempotency != "" {
		return nil
	}
	if err := f.limit(t.Tenant, t.Domain, trigger.WebhookLimit); err != nil {
		return err
	}
	f.keys[idempotency] = f.fire(t, trigger.Envelope{Manual: manual, Payload: payload}).ID
	return nil
}
