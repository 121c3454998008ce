package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
	carillonv1 "carillon/proto/carillon/v1"
)

// Events is where changes of documents are taken in: all of one request, or none.
type Events interface {
	// PublishEvents takes the same changes under the same idempotency key (empty: none) once; cron.ErrExists: it belongs to others.
	PublishEvents(ctx context.Context, tenant, idempotency string, changes []trigger.Change) error
}

// eventFace takes events in.
type eventFace struct{ Config }

func (s *eventFace) PublishEvents(ctx context.Context, req *carillonv1.PublishEventsRequest) (*carillonv1.PublishEventsResponse, error) {
	c := callerOf(ctx)
	tenant, err := c.tenant(req.GetTenant())
	if err != nil {
		return nil, err
	}
	if tenant == "" {
		tenant = job.DefaultTenant
	}
	changes := make([]trigger.Change, len(req.GetEvents()))
	for i, e := range req.GetEvents() {
		change := fromEvent(tenant, e)
		if !c.mayPublish(change) {
			return nil, denied(fmt.Sprintf("events[%d].type", i), outOfScope)
		}
		if err := change.Check(); err != nil {
			return nil, ofEvent(i, err)
		}
		changes[i] = change
	}
	if err := trigger.CheckIdempotency(req.GetIdempotencyKey()); err != nil {
		return nil, invalid("idempotency_key", "%s", err.Error())
	}
	if err := s.Events.PublishEvents(ctx, tenant, req.GetIdempotencyKey(), changes); err != nil {
		return nil, ofEvent(0, err)
	}
	return &carillonv1.PublishEventsResponse{Accepted: int32(len(changes))}, nil
}

func fromEvent(tenant string, e *carillonv1.Event) trigger.Change {
	c := trigger.Change{
		Tenant: tenant, Type: e.GetType(), Verb: trigger.Verb(e.GetVerb()), ID: e.GetDocId(), Doc: e.GetDoc(), Old: e.GetOld(), Path: e.GetPath(), OldPath: e.GetOldPath(),
	}
	for _, d := range e.GetDirs() {
		c.Dirs = append(c.Dirs, trigger.Directory{ID: d.GetId(), Path: d.GetPath()})
	}
	return c
}

// mayPublish: who may write a document may say that it was written.
func (c caller) mayPublish(change trigger.Change) bool {
	verbs := map[trigger.Verb][]string{
		trigger.Created: {permission.Post}, trigger.Updated: {permission.Put, permission.Patch}, trigger.Deleted: {permission.Delete},
	}[change.Verb]
	if len(verbs) == 0 { // of no effect, or refused
		verbs = []string{permission.Post}
	}
	return c.everything || slices.ContainsFunc(verbs, func(verb string) bool {
		return c.token.Scope.Allows(change.Type, verb, permission.Document{ID: change.ID})
	})
}

// eventFields are the fields of a change that have another name in proto.
var eventFields = map[string]string{"id": "doc_id"}

// ofEvent makes the refusal of the i-th event, or of the one that it names itself ("/events/3/doc"), one that names the
// field.
func ofEvent(i int, err error) error {
	f := (*trigger.Fault)(nil)
	if !errors.As(err, &f) || f.Pointer == "" {
		return err
	}
	at, field, within := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(f.Pointer, "/events"), "/"), "/")
	if !within {
		at, field = fmt.Sprint(i), at
	}
	if other := eventFields[field]; other != "" {
		field = other
	}
	return invalid(fmt.Sprintf("events[%s].%s", at, field), "%s", f.Detail)
}
