package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

// FetchEvents reads the events of some shards after a number, in order, up to page and some megabytes of them; more: there
// may be others behind them. With older, only those that were published longer ago. An event may commit after others
// with higher numbers: who has come to the end begins anew at 0.
func (s *Store) FetchEvents(ctx context.Context, shards []int32, older time.Duration, after int64, page int) (events []trigger.Published, more bool, err error) {
	rows, err := s.q(s.jobs.claim).FetchEvents(ctx, sqlc.FetchEventsParams{
		After: after, Shards: shards, OlderSecs: older.Seconds(), Page: int32(page), MaxBytes: eventSize,
	})
	if err != nil {
		return nil, false, wrap("read events", err)
	}
	events = make([]trigger.Published, len(rows))
	for i, r := range rows {
		events[i] = trigger.Published{ID: r.ID, At: r.CreatedAt.Time.UTC(), Upto: r.Upto, Change: trigger.Change{
			Tenant: r.Tenant, Type: r.Type, Verb: trigger.Verb(r.Verb), ID: r.DocID, Doc: r.Doc, Old: r.Old, Path: r.Path, OldPath: r.OldPath,
		}}
		if len(r.Dirs) > 0 {
			if err := json.Unmarshal(r.Dirs, &events[i].Dirs); err != nil {
				s.log.WarnContext(ctx, "directories of an event not read", "event", r.ID, "error", err)
			}
		}
		more = int(r.Found) == page || int(r.Found) > len(rows)
	}
	return events, more, nil
}

// ReadEpoch reads the number that grows with every change of an event trigger. Read after events were fetched, it counts
// every trigger that was committed before any of them.
func (s *Store) ReadEpoch(ctx context.Context) (int64, error) {
	n, err := s.q(s.jobs.claim).ReadEpoch(ctx)
	return n, wrap("read the triggers' epoch", err)
}

// FetchEventTriggers reads the event triggers that changed after an epoch, deleted ones included, in order of their
// changes. A negative epoch reads all that are there.
func (s *Store) FetchEventTriggers(ctx context.Context, since int64) ([]trigger.EventTrigger, error) {
	rows, err := s.q(s.api).FetchEventTriggers(ctx, since)
	if err != nil {
		return nil, wrap("read event triggers", err)
	}
	out := make([]trigger.EventTrigger, len(rows))
	for i, r := range rows {
		out[i] = trigger.EventTrigger(r)
	}
	return out, nil
}

// MakeOfEvents makes of events what their triggers say, and removes them, in one transaction: a job for each pair of an
// event and a trigger, or a place in the trigger's window. An event that somebody else has, or has been dealt with, makes
// nothing, and neither does a trigger that is deleted. A job above its worker's limit becomes due when the next hour of
// the limit begins.
//
// Unknown() of the error: all of it was done, or nothing; events that are still there were not. Where a trigger's job is
// refused by the database it is left out, and the trigger says why.
func (s *Store) MakeOfEvents(ctx context.Context, matched []trigger.Matched) (trigger.Made, error) {
	if len(matched) == 0 {
		return trigger.Made{}, nil
	}
	made, err := again(ctx, func() (trigger.Made, error) { return s.makeOnce(ctx, matched) })
	if err = wrap("make jobs of events", err); !isData(err) {
		return made, err
	}
	if len(matched) > 1 {
		half := len(matched) / 2
		first, err1 := s.MakeOfEvents(ctx, matched[:half])
		second, err2 := s.MakeOfEvents(ctx, matched[half:])
		return join(first, second), errors.Join(err1, err2)
	}
	return s.makeOfBad(ctx, matched[0], err)
}

func join(a, b trigger.Made) trigger.Made {
	a.Taken, a.Jobs = a.Taken+b.Taken, append(a.Jobs, b.Jobs...)
	if a.Closes == 0 || b.Closes > 0 && b.Closes < a.Closes {
		a.Closes = b.Closes
	}
	return a
}

var errProbe = errors.New("only tried")

// makeOfBad leaves out the triggers whose job is refused; what each of them makes is tried alone, and rolled back.
func (s *Store) makeOfBad(ctx context.Context, m trigger.Matched, cause error) (trigger.Made, error) {
	good := m
	good.Triggers = nil
	bad := map[int64]error{}
	for _, id := range m.Triggers {
		err := inTx(ctx, s.jobs.enqueue, func(q *sqlc.Queries) error {
			one := m
			one.Triggers = []int64{id}
			if _, err := makeIn(ctx, q, []trigger.Matched{one}); err != nil {
				return err
			}
			return errProbe
		})
		switch {
		case errors.Is(err, errProbe):
			good.Triggers = append(good.Triggers, id)
		case isData(wrap("try", err)):
			bad[id] = err
		default:
			return trigger.Made{}, wrap("make jobs of events", err)
		}
	}
	if len(bad) == 0 {
		return trigger.Made{}, cause // it would go in circles; the next round sees
	}
	made, err := again(ctx, func() (trigger.Made, error) { return s.makeOnce(ctx, []trigger.Matched{good}) })
	if err != nil || made.Taken == 0 {
		return made, wrap("make jobs of events", err)
	}
	for id, why := range bad {
		s.log.ErrorContext(ctx, "job of an event refused", "trigger", id, "event", m.Event, "error", why)
		if err := s.q(s.api).NoteTriggerError(ctx, sqlc.NoteTriggerErrorParams{ID: id, Error: cron.SafeText(why.Error())}); err != nil {
			s.log.WarnContext(ctx, "error of a trigger not noted", "trigger", id, "error", err)
		}
	}
	return made, nil
}

func (s *Store) makeOnce(ctx context.Context, matched []trigger.Matched) (made trigger.Made, err error) {
	idle := true
	for _, m := range matched {
		idle = idle && len(m.Triggers) == 0 && m.After == 0 && m.Upto == 0
	}
	if idle {
		n, err := s.q(s.jobs.enqueue).DropFreeEvents(ctx, eventIDs(matched))
		return trigger.Made{Taken: int(n)}, err
	}
	err = inTx(ctx, s.jobs.enqueue, func(q *sqlc.Queries) error {
		made, err = makeIn(ctx, q, matched)
		return err
	})
	if err != nil {
		made = trigger.Made{}
	}
	return made, err
}

func eventIDs(matched []trigger.Matched) []int64 {
	ids := make([]int64, len(matched))
	for i, m := range matched {
		ids[i] = m.Event
	}
	return ids
}

// makeIn locks events first, then windows, then limits.
func makeIn(ctx context.Context, q *sqlc.Queries, matched []trigger.Matched) (trigger.Made, error) {
	ours, err := lockEvents(ctx, q, matched)
	if err != nil || len(ours) == 0 {
		return trigger.Made{}, err
	}
	made := trigger.Made{Taken: len(ours)}
	pairs, waiting, makers, err := pairUp(ctx, q, ours)
	if err != nil {
		return made, err
	}
	ended, err := enterWindows(ctx, q, waiting, makers, &made)
	if err != nil {
		return made, err
	}
	var uses []use
	for _, p := range pairs {
		uses = append(uses, makers[p.Triggers[0]].use())
	}
	for _, w := range ended {
		uses = append(uses, w.use)
	}
	rulings, err := takeRates(ctx, q, uses)
	if err != nil {
		return made, err
	}
	if err := insertEventJobs(ctx, q, pairs, rulings, &made); err != nil {
		return made, err
	}
	if err := insertWindowJobs(ctx, q, ended, rulings[len(pairs):], &made); err != nil {
		return made, err
	}
	return made, leaveEvents(ctx, q, ours)
}

// lockEvents returns those of the events, each once, that nobody else has or has gone on with.
func lockEvents(ctx context.Context, q *sqlc.Queries, matched []trigger.Matched) (ours []trigger.Matched, err error) {
	rows, err := q.LockEvents(ctx, eventIDs(matched))
	locked := make(map[int64]int64, len(rows))
	for _, r := range rows {
		locked[r.ID] = r.Upto
	}
	for _, m := range matched {
		if upto, ok := locked[m.Event]; ok && upto == m.After {
			ours = append(ours, m)
			delete(locked, m.Event)
		}
	}
	return ours, err
}

// leaveEvents removes events that are done with, and notes how far the others are.
func leaveEvents(ctx context.Context, q *sqlc.Queries, ours []trigger.Matched) error {
	var done []int64
	var keep sqlc.KeepEventsParams
	for _, m := range ours {
		if m.Upto == 0 {
			done = append(done, m.Event)
		} else {
			keep.Ids, keep.Uptos = append(keep.Ids, m.Event), append(keep.Uptos, m.Upto)
		}
	}
	if len(keep.Ids) > 0 {
		if err := q.KeepEvents(ctx, keep); err != nil {
			return err
		}
	}
	_, err := q.DropEvents(ctx, done)
	return err
}

// maker is a trigger that may make something now.
type maker sqlc.GetMakersRow

func (m maker) use() use { return useOf(m.Tenant, m.Domain, m.Ref) }

// pairUp parts what becomes a job at once (each with one trigger) from what goes into a window (how often by trigger).
func pairUp(ctx context.Context, q *sqlc.Queries, ours []trigger.Matched) (pairs []trigger.Matched, waiting map[int64]int64, makers map[int64]maker, err error) {
	var ids []int64
	for _, m := range ours {
		ids = append(ids, m.Triggers...)
	}
	if ids = unique64(ids); len(ids) == 0 {
		return nil, nil, nil, nil
	}
	rows, err := q.GetMakers(ctx, ids)
	if err != nil {
		return nil, nil, nil, err
	}
	makers, waiting = make(map[int64]maker, len(rows)), map[int64]int64{}
	for _, r := range rows {
		if !r.Gone {
			makers[r.ID] = maker(r)
		}
	}
	for _, m := range ours {
		for _, id := range m.Triggers {
			switch t, there := makers[id]; {
			case !there:
			case t.DebounceMs > 0:
				waiting[id]++
			default:
				pairs = append(pairs, trigger.Matched{Event: m.Event, Triggers: []int64{id}})
			}
		}
	}
	return pairs, waiting, makers, nil
}

func insertEventJobs(ctx context.Context, q *sqlc.Queries, pairs []trigger.Matched, rulings []trigger.Ruling, made *trigger.Made) error {
	if len(pairs) == 0 {
		return nil
	}
	p := sqlc.InsertEventJobsParams{Salts: newSalts(len(pairs))}
	for i, pair := range pairs {
		p.EventIds, p.TriggerIds = append(p.EventIds, pair.Event), append(p.TriggerIds, pair.Triggers[0])
		p.Due = append(p.Due, stamp(rulings[i].Due))
	}
	rows, err := q.InsertEventJobs(ctx, p)
	for _, r := range rows {
		made.Jobs = append(made.Jobs, job.Waiting{ID: r.ID, Queue: r.QueueID, Shard: r.Shard, Priority: int(r.Priority), Due: r.DueAt.Time.UTC()})
	}
	return err
}
