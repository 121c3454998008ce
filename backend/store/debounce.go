package store

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

// CloseDebounces ends windows whose time has come, up to page of them, and makes the one job of each, in one transaction.
// What another controller is closing is left to it, and the window of a deleted trigger makes nothing.
func (s *Store) CloseDebounces(ctx context.Context, page int) (trigger.Made, error) {
	var tried []int64
	made, err := again(ctx, func() (made trigger.Made, err error) {
		made, tried, err = s.closeOnce(ctx, page)
		return made, err
	})
	if err = wrap("close windows", err); !isData(err) {
		return made, err
	}
	if page > 1 || len(tried) != 1 { // one bad row must not hold its neighbours back
		return s.CloseDebounces(ctx, 1)
	}
	return s.closeBad(ctx, tried[0], err)
}

// closeOnce also says whose windows it tried to close.
func (s *Store) closeOnce(ctx context.Context, page int) (made trigger.Made, ids []int64, err error) {
	err = inTx(ctx, s.jobs.enqueue, func(q *sqlc.Queries) error {
		made, ids = trigger.Made{}, nil
		rows, err := q.LockDueDebounces(ctx, int32(page))
		if err != nil || len(rows) == 0 {
			return err
		}
		made.Taken = len(rows)
		var ended []endedWindow
		var uses []use
		for _, r := range rows {
			ids = append(ids, r.TriggerID)
			if !r.Gone {
				w := endedWindow{
					trigger: r.TriggerID, use: useOf(r.Tenant, r.Domain, r.Ref), raised: raisedQueue(r.Manual, r.Tenant, r.Ref, r.Options),
					kind: trigger.Kind(r.Kind), window: toWindow(r.FireAt.Time, r.Count, r.Payloads, r.Manual),
				}
				ended, uses = append(ended, w), append(uses, w.use)
			}
		}
		rulings, err := takeRates(ctx, q, uses)
		if err != nil {
			return err
		}
		if err := insertWindowJobs(ctx, q, ended, rulings, &made); err != nil {
			return err
		}
		return q.DropDebounces(ctx, ids)
	})
	if err != nil {
		made = trigger.Made{}
	}
	return made, ids, err
}

// closeBad gives a window up whose job the database refused; its trigger says why.
func (s *Store) closeBad(ctx context.Context, id int64, cause error) (made trigger.Made, err error) {
	err = inTx(ctx, s.jobs.enqueue, func(q *sqlc.Queries) error {
		rows, err := q.LockDebounces(ctx, []int64{id})
		if err != nil || len(rows) == 0 || !rows[0].Due {
			return err
		}
		made.Taken = 1
		s.log.ErrorContext(ctx, "job of a window refused", "trigger", id, "matches", rows[0].Count, "error", cause)
		if err := q.NoteTriggerError(ctx, sqlc.NoteTriggerErrorParams{ID: id, Error: cron.SafeText(cause.Error())}); err != nil {
			return err
		}
		return q.DropDebounces(ctx, []int64{id})
	})
	return made, wrap("give a window up", err)
}

// NextDebounce says how long it is until the next window ends, by the database's clock; not positive: it is over. ok is
// false where none is open.
func (s *Store) NextDebounce(ctx context.Context) (wait time.Duration, ok bool, err error) {
	secs, err := s.q(s.jobs.claim).NextDebounce(ctx)
	if err != nil || math.IsInf(secs, 1) {
		return 0, false, wrap("look for the next window", err)
	}
	return seconds(secs), true, nil
}

// seconds bounds what a clock difference can be as a duration.
func seconds(secs float64) time.Duration {
	const most = 1e9 // thirty years
	return time.Duration(min(max(secs, -most), most) * float64(time.Second))
}

// endedWindow is a window whose job is to be made.
type endedWindow struct {
	trigger int64
	use     use
	raised  job.Queue // as raisedQueue says
	kind    trigger.Kind
	window  trigger.Window
	early   bool // it was full before its end: the job waits for it
}

func toWindow(fireAt time.Time, count int64, payloads [][]byte, manual bool) trigger.Window {
	w := trigger.Window{FireAt: fireAt.UTC(), Manual: manual, Events: count}
	for _, p := range payloads {
		w.Payloads = append(w.Payloads, json.RawMessage(p))
	}
	return w
}

// lockWindows locks the windows of triggers, and opens those that are not there, so that nobody else can in between: how
// full a window is, and whether it is over, is decided under its lock also by the first that come. A new one is empty; it
// must be filled, or dropped.
func lockWindows(ctx context.Context, q *sqlc.Queries, ids, debouncesMs []int64) ([]sqlc.LockDebouncesRow, error) {
	rows, err := q.LockDebounces(ctx, ids)
	if err != nil || len(rows) == len(ids) {
		return rows, err
	}
	there := make(map[int64]bool, len(rows))
	for _, r := range rows {
		there[r.TriggerID] = true
	}
	var p sqlc.OpenDebouncesParams
	for i, id := range ids {
		if !there[id] {
			p.TriggerIds, p.DebouncesMs = append(p.TriggerIds, id), append(p.DebouncesMs, debouncesMs[i])
		}
	}
	opened, err := q.OpenDebounces(ctx, p)
	for _, r := range opened {
		rows = append(rows, sqlc.LockDebouncesRow(r))
	}
	return rows, err
}

// enterWindows counts matches in the windows of their triggers, by trigger. Windows that are over end before the matches
// open new ones; their jobs are the caller's.
func enterWindows(ctx context.Context, q *sqlc.Queries, matches map[int64]int64, makers map[int64]maker, made *trigger.Made) (ended []endedWindow, err error) {
	if len(matches) == 0 {
		return nil, nil
	}
	var p sqlc.PutDebouncesParams
	for id, n := range matches {
		p.TriggerIds, p.DebouncesMs, p.Counts = append(p.TriggerIds, id), append(p.DebouncesMs, makers[id].DebounceMs), append(p.Counts, n)
	}
	open, err := lockWindows(ctx, q, p.TriggerIds, p.DebouncesMs)
	if err != nil {
		return nil, err
	}
	over := make(map[int64]bool, len(open))
	for _, r := range open {
		if r.Due {
			over[r.TriggerID] = true
			ended = append(ended, endedWindow{
				trigger: r.TriggerID, use: makers[r.TriggerID].use(), kind: trigger.Event, window: toWindow(r.FireAt.Time, r.Count, nil, r.Manual),
			})
		}
	}
	for _, id := range p.TriggerIds {
		p.Anew = append(p.Anew, over[id])
	}
	rows, err := q.PutDebounces(ctx, p)
	for _, r := range rows {
		*made = join(*made, trigger.Made{Closes: max(seconds(r.InSecs), 1)})
	}
	return ended, err
}

// insertWindowJobs makes the one job of each window.
func insertWindowJobs(ctx context.Context, q *sqlc.Queries, ended []endedWindow, rulings []trigger.Ruling, made *trigger.Made) error {
	if len(ended) == 0 {
		return nil
	}
	p := sqlc.InsertTriggerJobsParams{Salts: newSalts(len(ended)), Ids: make([]int64, len(ended)), RaisedPriority: raisedPriority}
	var queues []job.Queue
	for i, w := range ended {
		queues = append(queues, w.raised)
		due := rulings[i].Due
		if w.early && due.Before(w.window.FireAt) {
			due = w.window.FireAt
		}
		extra, err := extraOf(w.window.Job(w.kind))
		if err != nil {
			return err
		}
		p.TriggerIds, p.Due, p.Extras = append(p.TriggerIds, w.trigger), append(p.Due, stamp(due)), append(p.Extras, extra)
	}
	var err error
	if p.RaisedIds, err = raisedIDs(ctx, q, queues); err != nil {
		return err
	}
	rows, err := q.InsertTriggerJobs(ctx, p)
	for _, r := range rows {
		made.Jobs = append(made.Jobs, waitingOf(r))
	}
	return err
}

// raisedPriority is that of a job that somebody waits for.
const raisedPriority = trigger.ManualPriority * 10

// raisedQueue is where the job of a delivery goes that somebody waits for, unless its trigger's options give a priority;
// otherwise none: the trigger's own.
func raisedQueue(manual bool, tenant, ref string, options []byte) job.Queue {
	if !manual || trigger.GivesPriority(options) {
		return job.Queue{}
	}
	return job.Queue{Tenant: tenant, Ref: ref, Lane: job.Lane(raisedPriority)}
}

// raisedIDs finds the ids of such queues, in their order, 0 for none, and makes those that are not there. It is the last
// thing before the jobs: who makes a queue keeps others from pausing any until the commit.
func raisedIDs(ctx context.Context, q *sqlc.Queries, queues []job.Queue) ([]int32, error) {
	var p sqlc.GetQueuesParams
	asked := map[job.Queue]bool{}
	for _, r := range queues {
		if r.Ref != "" && !asked[r] {
			asked[r] = true
			p.Tenants, p.Refs, p.Lanes = append(p.Tenants, r.Tenant), append(p.Refs, r.Ref), append(p.Lanes, int16(r.Lane))
		}
	}
	ids := make([]int32, len(queues))
	if len(asked) == 0 {
		return ids, nil
	}
	rows, err := q.GetQueues(ctx, p)
	if err == nil && len(rows) < len(asked) {
		if err = q.ShareQueues(ctx); err == nil {
			err = q.PutQueues(ctx, sqlc.PutQueuesParams(p))
		}
		if err == nil {
			rows, err = q.GetQueues(ctx, p)
		}
	}
	if err != nil {
		return nil, err
	}
	byName := make(map[job.Queue]int32, len(rows))
	for _, r := range rows {
		byName[job.Queue{Tenant: r.Tenant, Ref: r.Ref, Lane: int(r.Lane)}] = r.ID
	}
	for i, r := range queues {
		ids[i] = byName[r]
	}
	return ids, nil
}
