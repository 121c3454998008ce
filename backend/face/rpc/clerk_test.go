package rpc

import (
	"context"
	"strings"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store"
)

// aKey is one that no test's trigger has.
const aKey = "0123456789abcdef0123456789abcdef"

// clerk is what the house does with triggers, events and workers, by the database alone. The worker v1 is the verb m.v1,
// sendmail is m.sendmail, vault is m.vault; vlost is no worker, though m.vlost is a verb.
type clerk struct{ *store.Store }

func (c clerk) Resolve(_ context.Context, tenant, worker string) (ref string, limits trigger.Limits, ok bool) {
	limits = trigger.Limits{Executions: 5, Timeout: 2 * time.Minute}
	switch {
	case tenant == "":
		panic("no tenant")
	case worker == "sendmail", worker == "m.sendmail":
		return "m.sendmail", limits, true
	case strings.HasPrefix(worker, "m.v"):
		return worker, limits, true
	case strings.HasPrefix(worker, "v") && worker != "vlost":
		return "m." + worker, limits, true
	}
	return "", limits, false
}

func (c clerk) Names(_, name string) []string {
	switch {
	case name == "sendmail", name == "m.sendmail":
		return []string{"sendmail", "m.sendmail"}
	case strings.HasPrefix(name, "m.v") && name != "m.vlost":
		return []string{name[2:], name}
	case strings.HasPrefix(name, "v") && name != "vlost":
		return []string{name, "m." + name}
	}
	return nil
}

func (c clerk) Use(ctx context.Context, domain string, n job.New) (trigger.Ruling, bool, error) {
	if again, err := c.HasRequest(ctx, n.Tenant, n.Idempotency); again || err != nil {
		return trigger.Ruling{Allowed: true}, false, err
	}
	r, err := c.TakeRate(ctx, n.Tenant, domain, n.Ref)
	return r, true, err
}

func (c clerk) GiveBack(ctx context.Context, domain string, n job.New) {
	if err := c.GiveBackRate(ctx, n.Tenant, domain, n.Ref); err != nil {
		panic(err)
	}
}

func (c clerk) LaunchTrigger(ctx context.Context, tenant, key string) (job.ID, error) {
	t, err := c.GetTrigger(ctx, tenant, key)
	if err != nil {
		return job.ID{}, err
	}
	if t.Worker == "vslow" {
		_, ruling := trigger.Meter{Count: 1, Start: time.Now()}.Use(time.Now(), 1)
		return job.ID{}, &overLimit{ruling}
	}
	made, err := desk{c.Store}.Enqueue(ctx, []job.New{{Tenant: t.Tenant, Ref: t.Ref, Payload: t.Message, TriggerID: t.ID}})
	if err != nil {
		return job.ID{}, err
	}
	return made[0].ID, made[0].Err
}

func (c clerk) DeleteTrigger(ctx context.Context, tenant, key string) error {
	_, err := c.Store.DeleteTrigger(ctx, tenant, key)
	return err
}

func (c clerk) PublishEvents(ctx context.Context, tenant, idempotency string, changes []trigger.Change) error {
	_, err := c.Store.PublishEvents(ctx, tenant, idempotency, changes)
	return err
}
