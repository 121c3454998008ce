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
// window. cron.ErrNotFound: there is none; cron.ErrPrecond: it is running or blocked, or it has ended in another way, or
// its unique key is held by a job that lives.
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

// RedriveJob makes a dead job live again, with all its attempts before it; a unique key that it held while it lived is its
// own again. Of two at once one succeeds. A child is none any more; children that still live count again.
// cron.ErrNotFound: there is no such job; cron.ErrPrecond: it is not dead, or was re-driven, or its key is held.
func (s *Store) RedriveJob(ctx context.Context, id job.ID) (queue int32, err error) {
	w, err := s.redriveOne(ctx, id)
	return w.Queue, wrap("re-drive a job", err)
}

func (s *Store) redriveOne(ctx context.Context, id job.ID) (job.Waiting, error) {
	driven, held, err := s.redrive(ctx, []job.ID{id})
	if err != nil || len(driven) == 1 {
		return append(driven, job.Waiting{})[0], err
	}
	if len(held) == 1 {
		return job.Waiting{}, fmt.Errorf("%w: the unique key %q of %s is held by %s, which has not ended", cron.ErrPrecond, held[0].key, id, held[0].by)
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

// RedriveJobs makes dead jobs that match a filter live again, the latest end first, at most limit of them. One whose unique
// key is held by a job that lives stays dead, and so do all but the latest of those with one key. With an error, those that
// are returned were re-driven.
func (s *Store) RedriveJobs(ctx context.Context, f job.Filter, limit int) (r job.Redriven, err error) {
	f.Dead = true
	for after := (job.Cursor{}); ; {
		left := limit - len(r.Jobs)
		dead, err := s.ListEndedJobs(ctx, f, after, min(left+1, redrivePage))
		if err != nil || len(dead) == 0 {
			return r, wrap("re-drive jobs", err)
		}
		if left == 0 {
			r.More = true
			return r, nil
		}
		last := dead[len(dead)-1]
		var ids []job.ID
		for _, j := range dead[:min(left, len(dead))] {
			ids = append(ids, j.ID)
			last = j
		}
		after = job.Cursor{Ended: last.Ended, ID: last.N}
		driven, held, err := s.redrive(ctx, ids)
		r.Jobs, r.Held = append(r.Jobs, driven...), r.Held+len(held)
		if err != nil {
			r.More = true
			return r, wrap("re-drive jobs", err)
		}
	}
}

// heldBack is a dead job whose key another one has.
type heldBack struct {
	key string
	by  job.ID
}

// redrive makes those of these jobs live that are dead, in one transaction; of several with one key the first. Nobody sees
// their rows before it commits, so that the locks of their children are taken after theirs without waiting for anyone who
// waits for them.
func (s *Store) redrive(ctx context.Context, ids []job.ID) (driven []job.Waiting, held []heldBack, err error) {
	_, err = again(ctx, func() (struct{}, error) {
		return struct{}{}, s.withFreedKeys(ctx, func() error {
			driven, held = nil, nil
			return s.jobTx(ctx, func(q *sqlc.Queries) (err error) {
				var p sqlc.RedriveJobsParams
				if p, held, err = takeKeysBack(ctx, q, ids); err != nil || len(p.Ids) == 0 {
					return err
				}
				rows, err := q.RedriveJobs(ctx, p)
				if err != nil || len(rows) == 0 {
					return err
				}
				var live []int64
				for _, r := range rows {
					driven, live = append(driven, toRedriven(r)), append(live, r.ID)
				}
				return countLiveChildren(ctx, q, live)
			})
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return driven, held, nil
}

// takeKeysBack locks those of these jobs that are dead, and takes their unique keys. Who holds a key that they want is
// never waited for longer than its own statement takes: an end that frees it, or an enqueue.
func takeKeysBack(ctx context.Context, q *sqlc.Queries, ids []job.ID) (p sqlc.RedriveJobsParams, held []heldBack, err error) {
	var lock sqlc.LockDeadJobsParams
	for _, id := range ids {
		lock.Ids, lock.Salts = append(lock.Ids, id.N), append(lock.Salts, id.Salt)
	}
	dead, err := q.LockDeadJobs(ctx, lock)
	if err != nil {
		return p, nil, err
	}
	keys := keyring{kind: "unique"}
	rows := make(map[job.ID]sqlc.LockDeadJobsRow, len(dead))
	for _, d := range dead {
		rows[job.ID{N: d.ID, Salt: d.Salt}] = d
	}
	first := map[keyName]job.ID{}
	for _, id := range ids { // in the caller's order: of several with one key his first takes it
		d, ok := rows[id]
		n := keyName{d.Tenant, d.UniqueKey}
		if _, taken := first[n]; ok && d.UniqueKey != "" && !taken {
			first[n] = id
			keys.add(n, id, nil, 0)
		}
	}
	others, err := keys.take(ctx, q)
	if err != nil {
		return p, nil, err
	}
	for _, d := range dead {
		id, n := job.ID{N: d.ID, Salt: d.Salt}, keyName{d.Tenant, d.UniqueKey}
		holder := first[n]
		if other, ok := others[n]; ok {
			holder = job.ID{N: other.JobID, Salt: other.Salt}
		}
		if d.UniqueKey != "" && holder != id {
			held = append(held, heldBack{d.UniqueKey, holder})
			continue
		}
		p.Ids, p.Salts = append(p.Ids, d.ID), append(p.Salts, d.Salt)
	}
	return p, held, nil
}

// countLiveChildren gives jobs that live again the number of their children.
func countLiveChildren(ctx context.Context, q *sqlc.Queries, parents []int64) error {
	children, err := q.LockChildren(ctx, parents)
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
}

func toRedriven(r sqlc.RedriveJobsRow) job.Waiting {
	return job.Waiting{ID: r.ID, Queue: r.QueueID, Shard: r.Shard, Priority: int(r.Priority), Due: r.DueAt.Time.UTC(), Expires: at(r.ExpiresAt)}
}
