package cozy

import (
	"errors"
	"net/http"
	"strings"

	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

const mayNotCreate = "The token lacks the right to create triggers of this worker"

func (s *server) createTrigger(r *http.Request, by permission.Token) (answer, error) {
	b, err := readBody(r, false)
	if err != nil {
		return answer{}, err
	}
	worker, err := b.text("worker")
	if err != nil {
		return answer{}, err
	}
	return s.create(r, by, b, worker, false)
}

// createLauncher does the same in the words of the early document: the worker stands in the path.
func (s *server) createLauncher(r *http.Request, by permission.Token) (answer, error) {
	worker := r.PathValue("id")
	if !s.mayCreate(by, worker) && !s.mayCreate(by, trigger.ClientWorker) {
		return answer{}, forbidden(mayNotCreate)
	}
	b, err := readBody(r, true)
	if err != nil {
		return answer{}, err
	}
	return s.create(r, by, b, worker, true)
}

// mayCreate: by a rule on any name of the worker. That of @client triggers is nobody's to reserve.
func (s *server) mayCreate(by permission.Token, worker string) bool {
	reserved := worker != trigger.ClientWorker && s.reserved(by, worker)
	return s.any(by, worker, "", func(name string) bool { return by.MayCreateTrigger(name, reserved) })
}

// create keeps a trigger. Who may not create one for a worker learns nothing else.
func (s *server) create(r *http.Request, by permission.Token, b body, worker string, legacy bool) (answer, error) {
	ctx := r.Context()
	name, err := b.text("type")
	if err != nil {
		return answer{}, invalid(trigger.PointerType, "type must be a string")
	}
	kind, unknown := trigger.ParseKind(name)
	if kind == trigger.Client {
		worker = trigger.ClientWorker // whatever the body says
	}
	if worker != "" && !s.mayCreate(by, worker) {
		return answer{}, forbidden(mayNotCreate)
	}
	t, err := readTrigger(b)
	if err != nil {
		return answer{}, err
	}
	switch {
	case unknown != nil:
		return answer{}, unknown
	case worker == "":
		return answer{}, refuse(http.StatusBadRequest, malformed)
	}
	w, err := s.worker(ctx, by, worker)
	if err != nil {
		return answer{}, err
	}
	if s.nowReserved(by, worker, w) {
		return answer{}, forbidden(mayNotCreate)
	}
	t.Kind, t.Worker, t.Ref = kind, worker, w.Ref
	if err := s.complete(r, by, b, w, &t); err != nil {
		return answer{}, err
	}
	idempotency, err := idempotencyOf(r, by, "triggers")
	if err != nil {
		return answer{}, err
	}
	if t, err = s.House.CreateTrigger(ctx, t, idempotency); err != nil {
		return answer{}, ofMessage(err)
	}
	var states map[int64]trigger.State
	if idempotency != "" { // otherwise it is new: no job of it is to be looked for
		if states, err = s.Reader.TriggerStates(ctx, []int64{t.ID}); err != nil {
			return answer{}, err
		}
	}
	return one(http.StatusCreated, triggerResource(r, t, by, stateIn(states, t), legacy))
}

// readTrigger reads the texts and the message of a trigger.
func readTrigger(b body) (t trigger.Trigger, err error) {
	for _, field := range []struct {
		name string
		into *string
	}{{"arguments", &t.Arguments}, {"debounce", &t.Debounce}, {"time_zone", &t.TimeZone}} {
		if *field.into, err = b.text(field.name); err != nil {
			return t, err
		}
	}
	message, err := trigger.TriggerMessage(b.fields, b.at())
	t.Message = trigger.DecodeMessage(message)
	return t, err
}

// complete checks what was asked for, and adds what its jobs get.
func (s *server) complete(r *http.Request, by permission.Token, b body, w Worker, t *trigger.Trigger) error {
	asked, err := b.options()
	if err != nil {
		return err
	}
	now, err := s.Reader.Ping(r.Context())
	if err != nil {
		return err
	}
	if err := trigger.Check(t.Kind, t.Arguments, t.TimeZone, now); err != nil {
		return err
	}
	if t.DebounceFor, err = trigger.ParseDebounce(t.Debounce); err != nil {
		return err
	}
	if t.Secret, err = readSecret(b, t.Kind); err != nil {
		return err
	}
	terms := asked.Terms(w.Limits, false)
	t.Priority, t.Timeout, t.Retry, t.Options = terms.Priority, terms.Timeout, terms.Retry, given(asked)
	t.Tenant, t.Domain, t.CreatedBy = by.Tenant, by.Domain, by.CreatedBy()
	return nil
}

const minSecret, maxSecret = 16, 256 // bytes

// readSecret reads what the deliveries of a webhook are to be signed with; nil: none is asked for.
func readSecret(b body, kind trigger.Kind) ([]byte, error) {
	secret, err := b.text("secret")
	switch {
	case err != nil || secret == "":
		return nil, err
	case kind != trigger.Webhook:
		return nil, invalid(b.pointer("secret"), "Only a "+string(trigger.Webhook)+" has a secret")
	case len(secret) < minSecret || len(secret) > maxSecret:
		return nil, invalid(b.pointer("secret"), "The secret must have 16 to 256 bytes")
	}
	return []byte(secret), nil
}

// ofMessage points what is wrong in a job's payload at the message of its trigger.
func ofMessage(err error) error {
	field, problem, ok := fieldOf(err)
	if !ok || !strings.HasPrefix(field, payloadField) || errors.As(err, new(*trigger.Fault)) {
		return err
	}
	return invalid(strings.Replace(pointerOf(field), "/arguments", "/message", 1), problem)
}
