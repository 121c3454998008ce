package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// RetryJob makes a ready job that waits for its time due now, and a dead one live again; the answer is for its owner's
// window. cron.ErrNotFound: there is none; cron.ErrPrecond: it is running or blocked, or it has ended in another way.
func (s *Store) RetryJob(ctx context.Context, id job.ID) (job.Waiting, error) {
	r, err := again(ctx, func() (sqlc.HurryJobRow, error) {
		return s.q(s.api).HurryJob(ctx, sqlc.HurryJobParams{ID: id.N, Salt: id.Salt})
	})
	if err == nil {
		return toRedriven(sqlc.RedriveJobsRow(r)), nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return job.Waiting{}, wrap("retry a job", err)
	}
	w, err := s.redriveOne(ctx, id)
	return w, wrap("retry a job", err)
}

// RedriveJob makes a dead job live again, with all its attempts before it. Of two at once one succeeds. A child is none
// any more; children that still live count again.
// cron.ErrNotFound: there is no such job; cron.ErrPrecond: it is not dead, or was re-driven.
func (s *Store) RedriveJob(ctx context.Context, id job.ID) (queue int32, err error) {
	w, err := s.redriveOne(ctx, id)
	return w.Queue, wrap("re-drive a job", err)
}

func (s *Store) redriveOne(ctx context.Context, id job.ID) (job.Waiting, error) {
	driven, err := s.redrive(ctx, []job.ID{id})
	if err != nil || len(driven) == 1 {
		return append(driven, job.Waiting{})[0], err
	}
	j, err := s.GetJob(ctx, id)
	switch {
	case err != nil:
	case j.State == job.Failed && j.Ref == job.ClientRef:
		err = fmt.Errorf("%w: %s was run by its client, which has to launch another", cron.ErrPrecond, id)
	case j.State == job.Failed:
		err = fmt.Errorf("%w: %s was re-driven already", cron.ErrPrecond, id)
	default:
		err = fmt.Errorf("%w: %s is %s", cron.ErrPrecond, id, j.State)
	}
	return job.Waiting{}, err
}

const redrivePage = 500

// RedriveJobs makes dead jobs that match a filter live again, the latest end first, at most limit of them; more says that
// others match. With an error, those that are returned were.
func (s *Store) RedriveJobs(ctx context.Context, f job.Filter, limit int) (driven []job.Waiting, more bool, err error) {
	f.Dead = true
	for after := (job.Cursor{}); ; {
		left := limit - len(driven)
		dead, err := s.ListEndedJobs(ctx, f, after, min(left+1, redrivePage))
		if err != nil || len(dead) == 0 {
			return driven, false, wrap("re-drive jobs", err)
		}
		if left == 0 {
			return driven, true, nil
		}
		last := dead[len(dead)-1]
		var ids []job.ID
		for _, j := range dead[:min(left, len(dead))] {
			ids = append(ids, j.ID)
			last = j
		}
		after = job.Cursor{Ended: last.Ended, ID: last.N}
		part, err := s.redrive(ctx, ids)
		if driven = append(driven, part...); err != nil {
			return driven, true, wrap("re-drive jobs", err)
		}
	}
}

// redrive makes those of these jobs live that are dead, in one transaction. Nobody sees their rows before it commits, so
// that the locks of their children are taken after theirs without waiting for anyone who waits for them.
func (s *Store) redrive(ctx context.Context, ids []job.ID) ([]job.Waiting, error) {
	var p sqlc.RedriveJobsParams
	for _, id := range sortedByID(ids, func(id job.ID) int64 { return id.N }) {
		p.Ids, p.Salts = append(p.Ids, id.N), append(p.Salts, id.Salt)
	}
	return again(ctx, func() (driven []job.Waiting, err error) {
		err = s.jobTx(ctx, func(q *sqlc.Queries) error {
			rows, err := q.RedriveJobs(ctx, p)
			if err != nil || len(rows) == 0 {
				return err
			}
			var live []int64
			for _, r := range rows {
				driven, live = append(driven, toRedriven(r)), append(live, r.ID)
			}
			children, err := q.LockChildren(ctx, live)
			if err != nil || len(children) == 0 {
				return err
			}
			n := counts{}
			for _, parent := range children {
				n[parent]++
			}
			var add sqlc.AddChildrenParams
			add.Ids, add.Counts = n.lists()
			return q.AddChildren(ctx, add)
		})
		return driven, err
	})
}

func toRedriven(r sqlc.RedriveJobsRow) job.Waiting {
	return job.Waiting{ID: r.ID, Queue: r.QueueID, Shard: r.Shard, Priority: int(r.Priority), Due: r.DueAt.Time.UTC(), Expires: at(r.ExpiresAt)}
}
