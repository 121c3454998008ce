package cozy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

const (
	noTrigger    = "There is no such trigger"
	maybeTrigger = "There is no such trigger, or the token lacks the right to it"
)

// isKey says whether a text may be the key of a trigger; nothing else is looked for.
func isKey(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}

// docOf is what a permission can look at of a trigger.
func docOf(t trigger.Trigger) permission.TriggerDoc {
	var message struct{ Konnector string }
	_ = json.Unmarshal(t.Message, &message) // any other message names none
	return permission.TriggerDoc{ID: t.Key, Worker: t.Worker, Konnector: message.Konnector}
}

// findTrigger reads a trigger for which the token has the right. What is absent and what is another's is the same; so it
// is for a token whose rights depend on the worker, of which nothing is said.
func (s *server) findTrigger(r *http.Request, by permission.Token, may func(permission.TriggerDoc) bool) (trigger.Trigger, error) {
	key := r.PathValue("id")
	var t trigger.Trigger
	err := cron.ErrNotFound
	if isKey(key) {
		t, err = s.Reader.GetTrigger(r.Context(), by.Tenant, key)
	}
	absent := errors.Is(err, cron.ErrNotFound) || err == nil && t.Tenant != by.Tenant
	switch {
	case err != nil && !absent:
		return t, err
	case absent && may(permission.TriggerDoc{ID: key}):
		return t, notFound(noTrigger)
	case absent || !s.mayTrigger(by, t, may):
		return t, forbidden(maybeTrigger)
	}
	return t, nil
}

// mayTrigger asks about a trigger under each name of its worker.
func (s *server) mayTrigger(by permission.Token, t trigger.Trigger, may func(permission.TriggerDoc) bool) bool {
	doc := docOf(t)
	return s.any(by, t.Worker, t.Ref, func(worker string) bool {
		doc.Worker = worker
		return may(doc)
	})
}

func (s *server) getTrigger(r *http.Request, by permission.Token) (answer, error) {
	return s.showTrigger(r, by, false)
}

func (s *server) showTrigger(r *http.Request, by permission.Token, legacy bool) (answer, error) {
	t, err := s.findTrigger(r, by, by.MayReadTrigger)
	if err != nil {
		return answer{}, err
	}
	states, err := s.Reader.TriggerStates(r.Context(), []int64{t.ID})
	if err != nil {
		return answer{}, err
	}
	return one(http.StatusOK, triggerResource(r, t, by, stateIn(states, t), legacy))
}

func (s *server) getTriggerState(r *http.Request, by permission.Token) (answer, error) {
	t, err := s.findTrigger(r, by, by.MayReadTrigger)
	if err != nil {
		return answer{}, err
	}
	states, err := s.Reader.TriggerStates(r.Context(), []int64{t.ID})
	if err != nil {
		return answer{}, err
	}
	return one(http.StatusOK, resource{
		Type: typeState, ID: t.Key, Attributes: stateIn(states, t), Links: links{Self: "/jobs/triggers/" + t.Key + "/state"},
	})
}

// maxJobsOfTrigger is how many jobs of a trigger one answer lists at most.
const maxJobsOfTrigger = 50

func (s *server) listTriggerJobs(r *http.Request, by permission.Token) (answer, error) {
	t, err := s.findTrigger(r, by, by.MayListJobsOfTrigger)
	if err != nil {
		return answer{}, err
	}
	limit := 0
	if text := r.URL.Query().Get("Limit"); text != "" {
		var ok bool
		if limit, ok = number(text); !ok {
			return answer{}, badParameter("Limit", "must be a number")
		}
	}
	if limit == 0 || limit > maxJobsOfTrigger {
		limit = maxJobsOfTrigger
	}
	jobs, err := s.Reader.ListTriggerJobs(r.Context(), t.ID, limit)
	if err != nil {
		return answer{}, err
	}
	list := make([]resource, len(jobs))
	for i, j := range jobs {
		list[i] = jobResource(j, by, isLegacy(r))
	}
	return many(list, "")
}

// launchTrigger makes a job of a trigger by hand.
func (s *server) launchTrigger(r *http.Request, by permission.Token) (answer, error) {
	ctx := r.Context()
	t, err := s.findTrigger(r, by, by.MayLaunchTrigger)
	if err != nil {
		return answer{}, err
	}
	idempotency, err := idempotencyOf(r, by, "launch/"+t.Key)
	if err != nil {
		return answer{}, err
	}
	id, err := s.House.LaunchTrigger(ctx, t.Tenant, t.Key, Launch{Manual: true, Idempotency: idempotency})
	if err != nil {
		return answer{}, err
	}
	j, err := s.Reader.GetJob(ctx, id)
	if err != nil {
		return answer{}, err
	}
	return one(http.StatusCreated, jobResource(j, by, isLegacy(r)))
}

func (s *server) deleteTrigger(r *http.Request, by permission.Token) (answer, error) {
	t, err := s.findTrigger(r, by, by.MayDeleteTrigger)
	if err == nil {
		err = s.House.DeleteTrigger(r.Context(), t.Tenant, t.Key)
	}
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}

// patchTrigger changes the arguments of a @cron trigger, the message of any, or both.
func (s *server) patchTrigger(r *http.Request, by permission.Token) (answer, error) {
	ctx := r.Context()
	t, err := s.findTrigger(r, by, by.MayPatchTrigger)
	if err != nil {
		return answer{}, err
	}
	b, err := readBody(r, false)
	if err != nil {
		return answer{}, err
	}
	message, err := trigger.TriggerMessage(b.fields, b.at())
	if err != nil {
		return answer{}, err
	}
	arguments, err := b.text("arguments")
	if err != nil {
		return answer{}, err
	}
	reschedule, remessage := b.given("arguments"), message != nil || b.fields["message"] != nil // null is a message, too
	if !remessage && !reschedule {
		return answer{}, refuse(http.StatusBadRequest, emptyPatch)
	}
	t, err = s.House.PatchTrigger(ctx, t.Tenant, t.Key, func(t trigger.Trigger, now time.Time) (trigger.Trigger, error) {
		if reschedule {
			if t.Kind != trigger.Cron {
				return t, invalid(trigger.PointerArguments, notCron)
			}
			if err := trigger.Check(t.Kind, arguments, t.TimeZone, now); err != nil {
				return t, err
			}
			t.Arguments = arguments
		}
		if remessage {
			t.Message = trigger.DecodeMessage(message)
		}
		if !s.mayTrigger(by, t, by.MayPatchTrigger) { // a konnector makes no other konnector's trigger of its own
			return t, forbidden(maybeTrigger)
		}
		return t, nil
	})
	if err != nil {
		return answer{}, ofMessage(err)
	}
	states, err := s.Reader.TriggerStates(ctx, []int64{t.ID})
	if err != nil {
		return answer{}, err
	}
	return one(http.StatusOK, triggerResource(r, t, by, stateIn(states, t), false))
}

func stateIn(states map[int64]trigger.State, t trigger.Trigger) trigger.State {
	state, ok := states[t.ID]
	if !ok {
		state.Status = trigger.Done
	}
	state.TriggerID = t.Key
	return state
}

// maxTriggers is how many triggers one answer lists at most.
const maxTriggers = 1000

func (s *server) listTriggers(r *http.Request, by permission.Token) (answer, error) {
	return s.triggerPage(r, by, false)
}

func (s *server) triggerPage(r *http.Request, by permission.Token, legacy bool) (answer, error) {
	ctx, query := r.Context(), r.URL.Query()
	workers := commaList(query["Worker"])
	may := by.MayListTriggers(workers)
	if len(workers) == 1 {
		may = s.any(by, workers[0], "", func(worker string) bool { return by.MayListTriggers([]string{worker}) })
	}
	if !may {
		return answer{}, forbidden("The token lacks the right to list these triggers")
	}
	for _, worker := range slices.Clone(workers) {
		if ref := s.refOf(by, worker); ref != worker {
			workers = append(workers, ref) // of those that were made for another name of it
		}
	}
	names := commaList(query["Type"])
	var kinds []trigger.Kind
	for _, name := range names {
		if kind, err := trigger.ParseKind(name); err == nil {
			kinds = append(kinds, kind)
		}
	}
	after, err := cursorOf(r, readTriggerCursor)
	if err != nil {
		return answer{}, err
	}
	limit, err := limitOf(r, maxTriggers)
	if err != nil {
		return answer{}, err
	}
	if len(names) > 0 && len(kinds) == 0 {
		return many(nil, "") // no trigger is of a type that there is not
	}
	triggers, more, err := s.readTriggers(ctx, by.Tenant, kinds, workers, after, limit)
	if err != nil {
		return answer{}, err
	}
	next := ""
	if more {
		limit = min(limit, len(triggers))
		next = nextPage(r, strconv.FormatInt(triggers[limit-1].ID, 36), limit, maxTriggers)
	}
	states, err := s.statesOf(ctx, triggers)
	if err != nil {
		return answer{}, err
	}
	list := make([]resource, len(triggers))
	for i, t := range triggers {
		list[i] = triggerResource(r, t, by, stateIn(states, t), legacy)
	}
	return many(list, next)
}

const (
	triggerChunk = 20      // triggers read at a time: a message may have a mebibyte
	maxListed    = 4 << 20 // bytes of messages in one answer, about
)

// readTriggers reads triggers until there are enough of them, or enough bytes; more: others follow.
func (s *server) readTriggers(ctx context.Context, tenant string, kinds []trigger.Kind, workers []string, after int64, limit int) (list []trigger.Trigger, more bool, err error) {
	for size := 0; ; {
		part, err := s.Reader.ListTriggers(ctx, tenant, kinds, workers, after, triggerChunk)
		if err != nil {
			return nil, false, err
		}
		for _, t := range part {
			if len(list) == limit || size > maxListed {
				return list, true, nil
			}
			list, after, size = append(list, t), t.ID, size+len(t.Message)+len(t.Options)
		}
		if len(part) < triggerChunk {
			return list, false, nil
		}
	}
}

func readTriggerCursor(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 36, 64)
	if id <= 0 {
		err = cron.ErrInvalid
	}
	return id, err
}

func (s *server) statesOf(ctx context.Context, triggers []trigger.Trigger) (map[int64]trigger.State, error) {
	if len(triggers) == 0 {
		return nil, nil
	}
	ids := make([]int64, len(triggers))
	for i, t := range triggers {
		ids[i] = t.ID
	}
	return s.Reader.TriggerStates(ctx, ids)
}

// commaList reads a parameter with values between commas; it may stand there several times.
func commaList(values []string) (list []string) {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
	}
	return list
}

func (s *server) listLaunchers(r *http.Request, by permission.Token) (answer, error) {
	return s.triggerPage(r, by, true)
}

func (s *server) getLauncher(r *http.Request, by permission.Token) (answer, error) {
	return s.showTrigger(r, by, true)
}

// purge removes old jobs.
func (s *server) purge(r *http.Request, by permission.Token) (answer, error) {
	if !by.MayPurge() {
		return answer{}, forbidden("The token lacks the right to remove jobs")
	}
	query := r.URL.Query()
	older, err := trigger.ParseKeep(query.Get("duration"))
	if err != nil {
		return answer{}, &refusal{
			status: http.StatusUnprocessableEntity, title: trigger.InvalidParameter, detail: err.Error(), source: &source{Parameter: "duration"},
		}
	}
	workers := commaList(query["workers"])
	if len(workers) == 0 && strings.Join(query["workers"], "") != "" { // none are all: not what was meant
		return answer{}, &refusal{
			status: http.StatusUnprocessableEntity, title: trigger.InvalidParameter, detail: "workers names no worker", source: &source{Parameter: "workers"},
		}
	}
	for i, worker := range workers {
		workers[i] = s.refOf(by, worker)
	}
	n, err := s.House.Purge(r.Context(), by.Tenant, workers, older)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, plain: true, body: struct {
		Deleted int `json:"deleted"`
	}{n}}, nil
}
