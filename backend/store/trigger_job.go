package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

// ListTriggerJobs reads the newest jobs of a trigger, at most limit, the newest first, live and ended ones, with their
// requests; also of one that was deleted.
func (s *Store) ListTriggerJobs(ctx context.Context, id int64, limit int) ([]job.Job, error) {
	var views []sqlc.GetJobRow
	err := s.jobTx(ctx, func(q *sqlc.Queries) error {
		live, err := q.ListTriggerJobs(ctx, sqlc.ListTriggerJobsParams{TriggerID: id, Page: int32(limit)})
		if err != nil {
			return err
		}
		ended, err := q.ListTriggerHistory(ctx, sqlc.ListTriggerHistoryParams{TriggerID: id, Page: int32(limit)})
		if err != nil {
			return err
		}
		views = make([]sqlc.GetJobRow, 0, len(live)+len(ended))
		alive := make(map[int64]bool, len(live))
		for _, r := range live {
			alive[r.ID] = true
			views = append(views, sqlc.GetJobRow(r))
		}
		for _, r := range ended {
			if !alive[r.ID] { // what was re-driven has ended before, or ended between the two statements
				views = append(views, sqlc.GetJobRow(r))
			}
		}
		return nil
	})
	if err != nil {
		return nil, wrap("list the jobs of a trigger", err)
	}
	slices.SortStableFunc(views, func(a, b sqlc.GetJobRow) int {
		return cmp.Or(b.CreatedAt.Time.Compare(a.CreatedAt.Time), cmp.Compare(b.ID, a.ID))
	})
	views = slices.CompactFunc(views, func(a, b sqlc.GetJobRow) bool { return a.ID == b.ID }) // the latest end of one
	return toJobViews(views[:min(limit, len(views))])
}

func toJobViews(rows []sqlc.GetJobRow) ([]job.Job, error) {
	out := make([]job.Job, len(rows))
	for i, r := range rows {
		var err error
		if out[i], err = toJobView(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TriggerStates says how triggers fare, by id; one that is not there is missing.
func (s *Store) TriggerStates(ctx context.Context, ids []int64) (map[int64]trigger.State, error) {
	var rows []sqlc.ListTriggerRanRow
	err := s.jobTx(ctx, func(q *sqlc.Queries) (err error) {
		rows, err = q.ListTriggerRan(ctx, ids)
		return err
	})
	if err != nil {
		return nil, wrap("read the state of triggers", err)
	}
	states := make(map[int64]trigger.State, len(ids))
	for _, r := range rows {
		state, ok := states[r.TriggerID]
		if !ok {
			state = trigger.StateOf(r.Key, nil)
		}
		if r.ID != 0 {
			state.Add(trigger.Ran{
				ID: job.ID{N: r.ID, Salt: r.Salt}.String(), Status: statusOf(job.State(r.State), int(r.Attempt)), Started: inUTC(r.StartedAt), Error: trigger.ErrorText(cron.Verdict(r.Verdict), r.Error), Manual: r.Manual,
			})
		}
		states[r.TriggerID] = state
	}
	return states, nil
}

// statusOf is a job's state in the words of the API: between two attempts it is running.
func statusOf(s job.State, attempt int) trigger.Status {
	switch {
	case s == job.Succeeded:
		return trigger.Done
	case s.Ended():
		return trigger.Errored
	case s == job.Ready && attempt == 0:
		return trigger.Queued
	}
	return trigger.Running
}

const (
	maxListed = 16 << 20 // bytes of requests and envelopes, as they are stored, in one page
	maybeCut  = 1 << 20  // a page with less than this was not cut for them
)

// ListQueueJobs reads a page of live jobs of a tenant, in order of their due time, with their requests; of one worker (as
// Purge; empty: of all). The page is shorter where requests are large. more says that others follow the
// last one: its Due and ID are the next cursor.
func (s *Store) ListQueueJobs(ctx context.Context, tenant, worker string, after job.Cursor, limit int) (jobs []job.Job, more bool, err error) {
	ref := worker
	if worker != "" && !strings.Contains(worker, ".") {
		queues, err := s.q(s.api).ListTenantQueues(ctx, tenant)
		if err != nil {
			return nil, false, wrap("list the jobs of a tenant", err)
		}
		var known bool
		if ref, known = trigger.FindVerb(worker, refsOf(queues)); !known {
			return nil, false, nil
		}
	}
	p := sqlc.ListQueueJobsParams{
		Tenant: tenant, Ref: ref, AfterDue: stamp(or(after.Due, beginning)), AfterID: after.ID, Page: int32(limit) + 1, MaxBytes: maxListed,
	}
	var views []sqlc.GetJobRow
	err = s.jobTx(ctx, func(q *sqlc.Queries) error {
		rows, err := q.ListQueueJobs(ctx, p)
		bytes := 0
		views = make([]sqlc.GetJobRow, len(rows))
		for i, r := range rows {
			views[i] = sqlc.GetJobRow(r)
			bytes += len(r.Payload) + len(r.Envelope)
		}
		if more = len(rows) > limit; more || bytes < maybeCut || err != nil {
			return err
		}
		last := rows[len(rows)-1]
		p.AfterDue, p.AfterID, p.Page = last.DueAt, last.ID, 1
		rows, err = q.ListQueueJobs(ctx, p)
		more = len(rows) > 0
		return err
	})
	if err != nil {
		return nil, false, wrap("list the jobs of a tenant", err)
	}
	jobs, err = toJobViews(views[:min(limit, len(views))])
	return jobs, more, err
}
