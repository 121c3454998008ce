package controller

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/ring"
	"carillon/backend/core/trigger"
	enginetrigger "carillon/backend/engine/trigger"
	"carillon/backend/face/cozy"
	"carillon/backend/face/rpc"
	carillonv1 "carillon/proto/carillon/v1"
)

var (
	_ enginetrigger.Store   = named{}
	_ enginetrigger.Windows = named{}
	_ rpc.Triggers          = triggers{}
	_ rpc.TriggerReader     = named{}
	_ rpc.Events            = triggers{}
	_ rpc.TokenStore        = named{}
	_ rpc.Workers           = triggers{}
	_ cozy.House            = cozyHouse{}
	_ cozy.Reader           = named{}
	_ cozy.Tokens           = bearers{}
)

// triggers is what both faces do with triggers.
type triggers struct{ *house }

// CreateTrigger stores a trigger, and has its row's owners know it before it answers: until they do, this controller
// looks after it.
func (h triggers) CreateTrigger(ctx context.Context, t trigger.Trigger, idempotency string) (trigger.Trigger, error) {
	made, err := h.store.CreateTrigger(ctx, t, idempotency)
	if err == nil {
		h.triggerChanged(ctx, made)
	}
	return made, err
}

func (h triggers) PatchTrigger(ctx context.Context, tenant, key string, decide func(trigger.Trigger, time.Time) (trigger.Trigger, error)) (trigger.Trigger, error) {
	t, err := h.store.PatchTrigger(ctx, tenant, key, decide)
	if err == nil {
		h.triggerChanged(ctx, t)
	}
	return t, err
}

func (h triggers) PauseTrigger(ctx context.Context, tenant, key, reason string) (trigger.Trigger, error) {
	t, err := h.store.PauseTrigger(ctx, tenant, key, reason)
	if err == nil {
		h.triggerChanged(ctx, t)
	}
	return t, err
}

func (h triggers) ResumeTrigger(ctx context.Context, tenant, key, note string) (trigger.Trigger, error) {
	t, err := h.store.ResumeTrigger(ctx, tenant, key, note)
	if err == nil {
		h.triggerChanged(ctx, t)
	}
	return t, err
}

func (h triggers) DeleteTrigger(ctx context.Context, tenant, key string) error {
	t, err := h.store.DeleteTrigger(ctx, tenant, key)
	if err == nil {
		h.triggerChanged(ctx, t)
	}
	return err
}

// triggerChanged makes the owners of a trigger's row look at it. Rules for events need no hint: who matches reads them.
func (h *house) triggerChanged(ctx context.Context, t trigger.Trigger) {
	if t.CronJob == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	names, err := h.scheduler.AdoptRows(ctx, []int64{t.CronJob})
	if err != nil {
		h.log.WarnContext(ctx, "changed trigger not read", "trigger", t.Key, "error", err)
	}
	go func() { // the row is looked after meanwhile
		if err := h.peers.hint(ctx, h.live(ctx), h.key, &carillonv1.HintRequest{CronJobs: []int64{t.CronJob}}); err != nil {
			h.log.WarnContext(ctx, "hint not heard by all", "trigger", t.Key, "error", err)
			return // adopted until the next reset
		}
		h.scheduler.Release(names)
	}()
}

// LaunchTrigger makes a job of a trigger because a person asks for it.
func (h triggers) LaunchTrigger(ctx context.Context, tenant, key string) (job.ID, error) {
	return h.launch(ctx, tenant, key, cozy.Launch{Manual: true})
}

// launch makes a job of a trigger now, within the limit of its worker and domain.
func (h *house) launch(ctx context.Context, tenant, key string, l cozy.Launch) (job.ID, error) {
	t, err := h.store.GetTrigger(ctx, tenant, key)
	if err != nil {
		return job.ID{}, err
	}
	envelope, err := json.Marshal(trigger.Envelope{
		Trigger: t.Key, Kind: t.Kind, Domain: t.Domain, Worker: t.Worker, Payload: l.Payload, Manual: l.Manual, Options: t.Options,
	})
	if err != nil {
		return job.ID{}, fmt.Errorf("launch a trigger: %w", err)
	}
	n := job.New{
		Tenant: t.Tenant, Ref: t.Ref, Priority: t.Priority, Retry: t.Retry, Timeout: t.Timeout, Payload: t.Message, TriggerID: t.ID,
		Envelope: envelope, Idempotency: l.Idempotency,
	}
	if l.Manual && !trigger.GivesPriority(t.Options) {
		n.Priority = trigger.ManualPriority * 10
	}
	if t.Worker == trigger.ClientWorker {
		made, err := h.pushClientJob(ctx, t.Domain, n)
		return made.ID, err
	}
	made, err := h.pushJob(ctx, t.Domain, n)
	return made.ID, err
}

// pushJob takes a job in, within the limit of its verb and domain.
func (h *house) pushJob(ctx context.Context, domain string, n job.New) (job.Enqueued, error) {
	return h.counted(ctx, domain, n, func() (job.Enqueued, error) {
		answers, err := h.queue.Enqueue(ctx, []job.New{n})
		if len(answers) == 1 && (err == nil || answers[0].Err != nil) {
			return answers[0], answers[0].Err
		}
		return job.Enqueued{}, err
	})
}

func (h *house) pushClientJob(ctx context.Context, domain string, n job.New) (job.Enqueued, error) {
	n.Ref = job.ClientRef
	return h.counted(ctx, domain, n, func() (job.Enqueued, error) {
		j, existing, err := h.store.CreateClientJob(ctx, n)
		return job.Enqueued{ID: j.ID, Created: j.Created, Started: j.Started, Existing: existing}, err
	})
}

// counted takes a job in if the limit of its verb and domain allows it. A request that came before is answered by what it
// made, however full the hour is, and counts nothing; neither does one that is refused for something else.
func (h *house) counted(ctx context.Context, domain string, n job.New, take func() (job.Enqueued, error)) (job.Enqueued, error) {
	r, counts, err := h.use(ctx, domain, n)
	if err == nil && !r.Allowed {
		err = overLimit{&trigger.LimitError{Ruling: r}}
	}
	if err != nil {
		return job.Enqueued{}, err
	}
	made, err := take()
	if made.Err = err; counts && made.MadeNothing() { // it was refused, or its first coming was under way
		h.giveBack(ctx, domain, n)
	}
	return made, err
}

// use counts a job for the limit of its verb and domain; counts is false where nothing was counted: the request came
// before, or there is no limit.
func (h *house) use(ctx context.Context, domain string, n job.New) (r trigger.Ruling, counts bool, err error) {
	allowed := trigger.Ruling{Allowed: true}
	if trigger.LimitName(n.Ref) == "" {
		return allowed, false, nil
	}
	if again, err := h.store.HasRequest(ctx, n.Tenant, n.Idempotency); again || err != nil {
		return allowed, false, err
	}
	if r, err = h.store.TakeRate(ctx, n.Tenant, domain, n.Ref); err != nil || r.Allowed {
		return r, true, err
	}
	if again, err := h.store.HasRequest(ctx, n.Tenant, n.Idempotency); again || err != nil { // since a moment ago
		return allowed, false, err
	}
	return r, false, nil
}

func (h *house) giveBack(ctx context.Context, domain string, n job.New) {
	if err := h.store.GiveBackRate(context.WithoutCancel(ctx), n.Tenant, domain, n.Ref); err != nil {
		h.log.WarnContext(ctx, "use of a limit not given back", "domain", domain, "verb", n.Ref, "error", err)
	}
}

// overLimit is a limit's refusal in the words of both faces: one reads the ruling, the other asks when to come again.
type overLimit struct{ *trigger.LimitError }

func (e overLimit) RetryAfter() time.Duration { return e.Ruling.RetryAfter }
func (e overLimit) Unwrap() error             { return e.LimitError }

// PublishEvents stores events, and has the owners of their shards look at once.
func (h triggers) PublishEvents(ctx context.Context, tenant, idempotency string, changes []trigger.Change) error {
	ids, err := h.store.PublishEvents(ctx, tenant, idempotency, changes)
	if err != nil || len(ids) == 0 {
		return err
	}
	h.triggers.Heard()
	byOwner := map[string]bool{}
	if r := h.cluster.Ring(); r != nil {
		for _, id := range ids {
			first, _ := r.Owners(int32(id % ring.Shards))
			byOwner[first] = true
		}
	}
	delete(byOwner, h.key)
	for owner := range byOwner {
		if m, ok := h.member(owner); ok {
			go func() {
				ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), hintPatience)
				defer cancel()
				if _, err := h.peers.to(m.Endpoint).HintJobs(ask, &carillonv1.HintJobsRequest{Events: true}); err != nil {
					h.log.DebugContext(ask, "hint not heard", "owner", owner, "error", err)
				}
			}()
		}
	}
	return nil
}

// Resolve finds the verb that a worker's name is.
func (h triggers) Resolve(ctx context.Context, _, name string) (ref string, limits trigger.Limits, ok bool) {
	if ref, limits, ok = h.catalog.worker(name); !ok {
		h.lookAgain(ctx)
		ref, limits, ok = h.catalog.worker(name)
	}
	return ref, limits, ok
}

// Names are all names of a worker that is known now.
func (h triggers) Names(_, name string) []string { return h.catalog.names(name) }

func (h triggers) Use(ctx context.Context, domain string, n job.New) (trigger.Ruling, bool, error) {
	return h.use(ctx, domain, n)
}

func (h triggers) GiveBack(ctx context.Context, domain string, n job.New) { h.giveBack(ctx, domain, n) }

// cozyHouse is the house as the Cozy API wants it.
type cozyHouse struct{ triggers }

func (h cozyHouse) Draining() bool { return h.draining.Load() }

func (h cozyHouse) Worker(ctx context.Context, tenant, name string) (cozy.Worker, bool) {
	ref, limits, ok := h.Resolve(ctx, tenant, name)
	return cozy.Worker{Ref: ref, Limits: limits}, ok
}

func (h cozyHouse) PushJob(ctx context.Context, domain string, n job.New) (job.Enqueued, error) {
	return h.pushJob(ctx, domain, n)
}

func (h cozyHouse) PushClientJob(ctx context.Context, domain string, n job.New) (job.Enqueued, error) {
	return h.pushClientJob(ctx, domain, n)
}

func (h cozyHouse) EndClientJob(ctx context.Context, id job.ID, as job.State, text string) error {
	_, err := h.store.EndClientJob(ctx, id, as, text)
	return err
}

func (h cozyHouse) LaunchTrigger(ctx context.Context, tenant, key string, l cozy.Launch) (job.ID, error) {
	return h.launch(ctx, tenant, key, l)
}

func (h cozyHouse) DeliverWebhook(ctx context.Context, key string, payload []byte, manual bool, idempotency string) error {
	if len(payload) == 0 {
		payload = []byte("null") // nothing was sent
	}
	d, err := h.store.DeliverWebhook(ctx, key, payload, manual, idempotency)
	if err != nil {
		return err
	}
	h.queue.Arrived(d.Ready)
	if d.Closes > 0 {
		h.house.triggers.Opened(d.Closes)
	}
	return nil
}

func (h cozyHouse) Purge(ctx context.Context, tenant string, workers []string, older time.Duration) (int, error) {
	return h.store.Purge(ctx, tenant, workers, older)
}

// findToken finds a tenant's token, and notes that it is used.
func (h *house) findToken(ctx context.Context, hash []byte) (permission.Token, error) {
	t, err := h.store.FindToken(ctx, hash)
	if err == nil {
		if err := h.store.TouchToken(ctx, t.ID); err != nil {
			h.log.DebugContext(ctx, "use of a token not noted", "error", err)
		}
	}
	return t, err
}

// bearers says who speaks to the Cozy API: an operator by the admin token (or anybody, in a cluster without tokens), a
// tenant by its own.
type bearers struct {
	*rpc.Bearers
	admin string
}

func (b bearers) Authenticate(ctx context.Context, bearer string) (permission.Token, error) {
	got, want := sha256.Sum256([]byte(bearer)), sha256.Sum256([]byte(b.admin))
	if b.admin == "" && bearer == "" || b.admin != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
		return permission.Token{ID: "admin", Tenant: job.DefaultTenant, Kind: permission.CLI, Scope: permission.Full()}, nil
	}
	if bearer == "" {
		return permission.Token{}, fmt.Errorf("%w: no token in the request", cron.ErrNotFound)
	}
	return b.Bearers.Authenticate(ctx, bearer)
}
