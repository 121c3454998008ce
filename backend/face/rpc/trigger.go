package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/schedule"
	"carillon/backend/core/trigger"
	carillonv1 "carillon/proto/carillon/v1"
)

// Triggers is what the house does with triggers. A trigger of another tenant (empty: any) is cron.ErrNotFound. A refusal
// for a rate limit is an error with RetryAfter() time.Duration, whose text is for the caller.
type Triggers interface {
	// CreateTrigger keeps a trigger that was checked, and gives it its id, key and times.
	CreateTrigger(ctx context.Context, t trigger.Trigger, idempotency string) (trigger.Trigger, error)
	// LaunchTrigger makes a job of a trigger now, asked for by a person.
	LaunchTrigger(ctx context.Context, tenant, key string) (job.ID, error)
	// PauseTrigger and ResumeTrigger stop the clock for a trigger and let it go on; cron.ErrPrecond: it has none.
	PauseTrigger(ctx context.Context, tenant, key, reason string) (trigger.Trigger, error)
	ResumeTrigger(ctx context.Context, tenant, key, note string) (trigger.Trigger, error)
	DeleteTrigger(ctx context.Context, tenant, key string) error
}

// TriggerReader is what people may see of triggers; an empty tenant is all of them.
type TriggerReader interface {
	GetTrigger(ctx context.Context, tenant, key string) (trigger.Trigger, error)
	// ListTriggers lists in order of id, after an id; no kinds, no workers: all of them.
	ListTriggers(ctx context.Context, tenant string, kinds []trigger.Kind, workers []string, after int64, page int) ([]trigger.Trigger, error)
	// TriggerStates sums the kept jobs of triggers up; one without jobs may be absent.
	TriggerStates(ctx context.Context, triggers []int64) (map[int64]trigger.State, error)
}

// triggerFace serves triggers.
type triggerFace struct{ Config }

func (s *triggerFace) CreateTrigger(ctx context.Context, req *carillonv1.CreateTriggerRequest) (*carillonv1.CreateTriggerResponse, error) {
	c := callerOf(ctx)
	tenant, err := c.tenant(req.GetTenant())
	if err != nil {
		return nil, err
	}
	if tenant == "" {
		tenant = job.DefaultTenant
	}
	kind, unknown := trigger.ParseKind(req.GetKind())
	worker := req.GetWorker()
	if kind == trigger.Client {
		worker = trigger.ClientWorker // whatever was asked for
	}
	ref, limits, found := job.ClientRef, trigger.ClientLimits, true
	if worker != trigger.ClientWorker {
		ref, limits, found = s.resolve(ctx, tenant, worker)
	}
	if !c.everything && !s.mayCreate(c, tenant, worker, ref) {
		return nil, denied("worker", outOfScope)
	}
	if unknown != nil {
		return nil, ofTrigger(unknown)
	}
	now, err := s.Reader.Ping(ctx)
	if err != nil {
		return nil, err
	}
	t, asked, err := fromNewTrigger(req, kind, now)
	if err != nil {
		return nil, err
	}
	t.Tenant, t.Worker, t.Domain, t.CreatedBy = tenant, worker, c.token.Domain, c.token.CreatedBy()
	if !found {
		return nil, noWorker(worker)
	}
	t.Ref = ref
	terms := asked.Terms(limits, false)
	t.Priority, t.Timeout, t.Retry = terms.Priority, terms.Timeout, terms.Retry
	if t, err = s.Triggers.CreateTrigger(ctx, t, req.GetIdempotencyKey()); err != nil {
		return nil, ofTrigger(err)
	}
	if req.GetIdempotencyKey() == "" { // it is new: no job of it is to be looked for
		return &carillonv1.CreateTriggerResponse{Trigger: toTrigger(t, trigger.StateOf(t.Key, nil))}, nil
	}
	out, err := s.shown(ctx, t)
	if err != nil {
		return nil, err
	}
	return &carillonv1.CreateTriggerResponse{Trigger: out[0]}, nil
}

// mayCreate: by a rule on any name of the worker. That of @client triggers is nobody's to reserve.
func (s *triggerFace) mayCreate(c caller, tenant, worker, ref string) bool {
	names := append(s.Workers.Names(tenant, worker), worker)
	reserved := worker != trigger.ClientWorker && s.Reserved.Covers(worker, ref)
	return slices.ContainsFunc(names, func(name string) bool { return c.token.MayCreateTrigger(name, reserved) })
}

// mayListTriggers: of all, or of one worker, by any of its names.
func (s *triggerFace) mayListTriggers(c caller, tenant string, workers []string) bool {
	if len(workers) != 1 {
		return c.token.MayListTriggers(workers)
	}
	names := append(s.Workers.Names(tenant, workers[0]), workers[0])
	return slices.ContainsFunc(names, func(name string) bool { return c.token.MayListTriggers([]string{name}) })
}

func (s *triggerFace) resolve(ctx context.Context, tenant, worker string) (ref string, limits trigger.Limits, ok bool) {
	if worker == "" || len(worker) > job.MaxName {
		return "", limits, false
	}
	return s.Workers.Resolve(ctx, tenant, worker)
}

// find reads a trigger for somebody who may do to it what is asked. For a token what is absent, what is another tenant's
// and what its scope does not cover are the same.
func (s *triggerFace) find(ctx context.Context, key, verb string, may func(permission.Token, permission.TriggerDoc) bool) (t trigger.Trigger, tenant string, err error) {
	c := callerOf(ctx)
	if tenant, err = c.tenant(""); err != nil {
		return t, "", err
	}
	if !c.touches(permission.Triggers, verb) && c.token.Kind != permission.Konnector { // whose own trigger needs no rule
		return t, "", denied("", outOfScope)
	}
	none := fmt.Errorf("%w: no trigger %s", cron.ErrNotFound, cron.SafeText(key))
	if !isKey(key) {
		return t, "", none
	}
	t, err = s.TriggerReader.GetTrigger(ctx, tenant, key)
	switch {
	case errors.Is(err, cron.ErrNotFound):
		return t, "", none
	case err != nil || c.everything:
		return t, tenant, err
	case t.Tenant != tenant:
		return trigger.Trigger{}, "", none
	}
	doc := docOf(t)
	for _, doc.Worker = range append(s.workersOf(tenant, t.Ref), t.Worker) {
		if may(c.token, doc) {
			return t, tenant, nil
		}
	}
	return trigger.Trigger{}, "", none
}

const nextSlots = 5 // of a trigger that is shown, and of a preview that does not say

func (s *triggerFace) GetTrigger(ctx context.Context, req *carillonv1.GetTriggerRequest) (*carillonv1.GetTriggerResponse, error) {
	t, _, err := s.find(ctx, req.GetId(), permission.Get, permission.Token.MayReadTrigger)
	if err != nil {
		return nil, err
	}
	out, err := s.shown(ctx, t)
	if err != nil {
		return nil, err
	}
	res := &carillonv1.GetTriggerResponse{Trigger: out[0]}
	for _, slot := range slotsOf(t, nextSlots) {
		res.NextSlots = append(res.NextSlots, stamp(slot))
	}
	return res, nil
}

const (
	triggerChunk      = 50      // read at once: each may have a message of a megabyte
	maxTriggersAnswer = 4 << 20 // bytes; a page that would be larger is cut short, and the next one goes on behind it
)

func (s *triggerFace) ListTriggers(ctx context.Context, req *carillonv1.ListTriggersRequest) (*carillonv1.ListTriggersResponse, error) {
	bound := proto.CloneOf(req)
	bound.PageSize, bound.PageToken = 0, ""
	of := bind("triggers", bound)
	after, err := readToken[int64](of, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	c := callerOf(ctx)
	tenant, err := c.tenant(req.GetTenant())
	if err != nil {
		return nil, err
	}
	switch {
	case c.everything || s.mayListTriggers(c, tenant, req.GetWorkers()):
	case c.touches(permission.Triggers, permission.Get):
		return nil, denied("workers", "this token does not see all triggers; name one worker whose triggers it does see")
	default:
		return nil, denied("", outOfScope)
	}
	var kinds []trigger.Kind
	for i, name := range req.GetKinds() {
		kind, err := trigger.ParseKind(name)
		if err != nil {
			return nil, invalid(fmt.Sprintf("kinds[%d]", i), "there is no kind %.40q", name)
		}
		kinds = append(kinds, kind)
	}
	for i, worker := range req.GetWorkers() {
		if len(worker) > job.MaxName {
			return nil, invalid(fmt.Sprintf("workers[%d]", i), "has %d bytes, no worker has more than %d", len(worker), job.MaxName)
		}
	}
	workers := slices.Clone(req.GetWorkers())
	for _, worker := range req.GetWorkers() {
		if names := s.Workers.Names(tenant, worker); len(names) > 0 {
			workers = append(workers, names[len(names)-1]) // its ref finds those that were made for another name of it
		}
	}
	res := &carillonv1.ListTriggersResponse{}
	for left, size := pageSize(req.GetPageSize()), 0; left > 0; {
		chunk := min(left, triggerChunk)
		found, err := s.TriggerReader.ListTriggers(ctx, tenant, kinds, workers, after, chunk)
		if err != nil {
			return nil, err
		}
		shown, err := s.shown(ctx, found...)
		if err != nil {
			return nil, err
		}
		for i, t := range shown {
			if size += proto.Size(t); size > maxTriggersAnswer && len(res.Triggers) > 0 {
				res.NextPageToken = nextToken(of, after)
				return res, nil
			}
			res.Triggers, after = append(res.Triggers, t), found[i].ID
		}
		left -= len(found)
		if len(found) < chunk {
			return res, nil
		}
	}
	res.NextPageToken = nextToken(of, after)
	return res, nil
}

func (s *triggerFace) LaunchTrigger(ctx context.Context, req *carillonv1.LaunchTriggerRequest) (*carillonv1.LaunchTriggerResponse, error) {
	t, tenant, err := s.find(ctx, req.GetId(), permission.Post, permission.Token.MayLaunchTrigger)
	if err != nil {
		return nil, err
	}
	id, err := s.Triggers.LaunchTrigger(ctx, tenant, t.Key)
	if err != nil {
		return nil, ofTrigger(err)
	}
	return &carillonv1.LaunchTriggerResponse{JobId: id.String()}, nil
}

func (s *triggerFace) PauseTrigger(ctx context.Context, req *carillonv1.PauseTriggerRequest) (*carillonv1.PauseTriggerResponse, error) {
	t, tenant, err := s.find(ctx, req.GetId(), permission.Patch, permission.Token.MayPatchTrigger)
	if err != nil {
		return nil, err
	}
	change := s.Triggers.PauseTrigger
	if req.GetResume() {
		change = s.Triggers.ResumeTrigger
	}
	if t, err = change(ctx, tenant, t.Key, req.GetReason()); err != nil {
		return nil, ofTrigger(err)
	}
	out, err := s.shown(ctx, t)
	if err != nil {
		return nil, err
	}
	return &carillonv1.PauseTriggerResponse{Trigger: out[0]}, nil
}

func (s *triggerFace) DeleteTrigger(ctx context.Context, req *carillonv1.DeleteTriggerRequest) (*carillonv1.DeleteTriggerResponse, error) {
	t, tenant, err := s.find(ctx, req.GetId(), permission.Delete, permission.Token.MayDeleteTrigger)
	if err != nil {
		return nil, err
	}
	if err := s.Triggers.DeleteTrigger(ctx, tenant, t.Key); err != nil {
		return nil, ofTrigger(err)
	}
	return &carillonv1.DeleteTriggerResponse{}, nil
}

// PreviewTrigger says when a trigger would fire that is made at from (unset: now). It looks at no document: any token may
// ask.
func (s *triggerFace) PreviewTrigger(ctx context.Context, req *carillonv1.PreviewTriggerRequest) (*carillonv1.PreviewTriggerResponse, error) {
	from, err := fromStamp("from", req.GetFrom())
	if err != nil {
		return nil, err
	}
	if from.IsZero() {
		if from, err = s.Reader.Ping(ctx); err != nil {
			return nil, err
		}
	}
	kind, err := trigger.ParseKind(req.GetKind())
	if err != nil {
		return nil, ofTrigger(err)
	}
	count := int(req.GetCount())
	if count == 0 {
		count = nextSlots
	}
	slots, err := trigger.Preview(kind, req.GetArguments(), req.GetTimeZone(), "", from, from, count)
	if err != nil {
		return nil, ofTrigger(err)
	}
	res := &carillonv1.PreviewTriggerResponse{}
	for _, slot := range slots {
		res.Slots = append(res.Slots, stamp(slot))
	}
	if kind.Timed() {
		if text, err := trigger.Timetable(kind, req.GetArguments(), req.GetTimeZone(), "", from); err == nil {
			res.Description = describe(text, req.GetTimeZone())
		}
	}
	return res, nil
}

// timetable reads the text of a trigger's row.
func timetable(text, zone string) (schedule.Schedule, error) {
	loc, err := schedule.LoadLocation(zone)
	if err != nil {
		return schedule.Schedule{}, err
	}
	return schedule.ParseText(text, loc)
}

func describe(text, zone string) string {
	s, err := timetable(text, zone)
	if err != nil {
		return ""
	}
	return s.Describe()
}

// slotsOf are the next slots of a trigger, at most n: the first that nothing was decided about, and those after it.
func slotsOf(t trigger.Trigger, n int) (slots []time.Time) {
	if t.Next.IsZero() || !t.PausedAt.IsZero() {
		return nil
	}
	s, err := timetable(t.Timetable, t.TimeZone)
	if err != nil {
		return []time.Time{t.Next}
	}
	for next, ok := t.Next, true; ok && len(slots) < n; next, ok = s.Next(next) {
		slots = append(slots, next)
	}
	return slots
}

// shown are triggers as answers show them, with how they fare.
func (s *triggerFace) shown(ctx context.Context, triggers ...trigger.Trigger) ([]*carillonv1.Trigger, error) {
	if len(triggers) == 0 {
		return nil, nil
	}
	ids := make([]int64, len(triggers))
	for i, t := range triggers {
		ids[i] = t.ID
	}
	states, err := s.TriggerReader.TriggerStates(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]*carillonv1.Trigger, len(triggers))
	for i, t := range triggers {
		state, ok := states[t.ID]
		if !ok {
			state = trigger.StateOf(t.Key, nil)
		}
		out[i] = toTrigger(t, state)
	}
	return out, nil
}
