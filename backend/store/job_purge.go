package store

import (
	"context"
	"iter"
	"slices"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

// purged are the states of which the newest are counted together: what went well, and what did not.
var purged = [][]job.State{{job.Succeeded}, {job.Failed, job.Cancelled}}

// Purge drops ended jobs of a tenant that were made longer than olderThan ago, of some workers (refs, or what is one by
// trigger.FindVerb among those of which the tenant ever had jobs; none given: of all), but for the trigger.KeepNewest newest of each worker and outcome. It goes in batches, each a short
// statement, and returns how many it dropped, also with an error: then it may be called again. Live jobs are never touched.
//
// It purges jobs that carry an envelope, as those of triggers and of the Cozy API do; the history of the others goes with
// its day.
func (s *Store) Purge(ctx context.Context, tenant string, workers []string, olderThan time.Duration) (int, error) {
	now, err := s.Ping(ctx)
	if err != nil {
		return 0, err
	}
	queues, err := s.q(s.api).ListTenantQueues(ctx, tenant)
	if err != nil {
		return 0, wrap("purge jobs", err)
	}
	if len(workers) > 0 {
		wanted := map[string]bool{}
		for _, worker := range workers {
			if ref, ok := trigger.FindVerb(worker, refsOf(queues)); ok {
				wanted[ref] = true
			}
		}
		queues = slices.DeleteFunc(queues, func(r sqlc.ListTenantQueuesRow) bool { return !wanted[r.Ref] })
	}
	n, before := 0, now.Add(-olderThan)
	for len(queues) > 0 { // in order of ref: the lanes of one stand together
		var lanes []int32
		for ref := queues[0].Ref; len(queues) > 0 && queues[0].Ref == ref; queues = queues[1:] {
			lanes = append(lanes, queues[0].ID)
		}
		for _, states := range purged {
			dropped, err := s.purgeWorker(ctx, lanes, stateNames(states), before)
			if n += dropped; err != nil {
				return n, wrap("purge jobs", err)
			}
		}
	}
	return n, nil
}

func refsOf(queues []sqlc.ListTenantQueuesRow) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range queues {
			if !yield(r.Ref) {
				return
			}
		}
	}
}

// purgeWorker drops what is older than a time and than the newest ones of the queues of one worker.
func (s *Store) purgeWorker(ctx context.Context, lanes []int32, states []string, before time.Time) (n int, err error) {
	var kept []sqlc.FindKeptRow
	err = s.jobTx(ctx, func(q *sqlc.Queries) (err error) {
		kept, err = q.FindKept(ctx, sqlc.FindKeptParams{QueueIds: lanes, States: states, Keep: trigger.KeepNewest})
		return err
	})
	if err != nil || len(kept) == 0 { // there are not more than are kept
		return 0, err
	}
	for _, lane := range lanes {
		for _, state := range states {
			p := sqlc.FindPurgeableParams{
				QueueID: lane, State: state, Before: stamp(before), KeptAt: kept[0].CreatedAt, KeptID: kept[0].ID, AfterAt: stamp(beginning), Page: trigger.PurgeBatch,
			}
			for more := true; more; {
				dropped, last, err := s.purgePage(ctx, p)
				if n += dropped; err != nil {
					return n, err
				}
				if more = last != nil; more {
					p.AfterAt, p.AfterID = last.CreatedAt, last.ID
				}
			}
		}
	}
	return n, nil
}

// purgePage drops one batch; last is where the next begins, nil: there is none.
func (s *Store) purgePage(ctx context.Context, p sqlc.FindPurgeableParams) (dropped int, last *sqlc.FindPurgeableRow, err error) {
	err = s.jobTx(ctx, func(q *sqlc.Queries) error {
		rows, err := q.FindPurgeable(ctx, p)
		if err != nil || len(rows) == 0 {
			return err
		}
		var d sqlc.PurgeJobsParams
		first, latest := rows[0].EndedAt, rows[0].EndedAt
		for _, r := range rows {
			d.Ids, d.Ends = append(d.Ids, r.ID), append(d.Ends, r.EndedAt)
			if r.EndedAt.Time.Before(first.Time) {
				first = r.EndedAt
			}
			if r.EndedAt.Time.After(latest.Time) {
				latest = r.EndedAt
			}
		}
		d.FirstEnd, d.LastEnd = first, latest
		n, err := q.PurgeJobs(ctx, d)
		if dropped = int(n); len(rows) == int(p.Page) {
			last = &rows[len(rows)-1]
		}
		return err
	})
	return dropped, last, err
}
