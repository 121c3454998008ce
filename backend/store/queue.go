package store

import (
	"context"
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// PutQueues makes sure that queues exist and returns them as they are now, in order of id; of the given ones only tenant,
// ref and lane count. One that is new is paused and limited as what covers it.
func (s *Store) PutQueues(ctx context.Context, queues []job.Queue) ([]job.Queue, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	var p sqlc.PutQueuesParams
	for _, q := range queues {
		p.Tenants = append(p.Tenants, q.Tenant)
		p.Refs = append(p.Refs, q.Ref)
		p.Lanes = append(p.Lanes, int16(q.Lane))
	}
	rows, err := again(ctx, func() (rows []sqlc.GetQueuesRow, err error) {
		if rows, err = s.q(s.jobs.enqueue).GetQueues(ctx, sqlc.GetQueuesParams(p)); err != nil || len(rows) == distinct(queues) {
			return rows, err
		}
		err = inTx(ctx, s.jobs.enqueue, func(q *sqlc.Queries) error {
			if err := q.ShareQueues(ctx); err != nil {
				return err
			}
			if err := q.PutQueues(ctx, p); err != nil {
				return err
			}
			rows, err = q.GetQueues(ctx, sqlc.GetQueuesParams(p))
			return err
		})
		return rows, err
	})
	if err != nil {
		return nil, wrap("make queues", err)
	}
	out := make([]job.Queue, len(rows))
	for i, r := range rows {
		out[i] = toQueue(r)
	}
	return out, nil
}

func distinct(queues []job.Queue) int {
	type name struct {
		tenant, ref string
		lane        int
	}
	seen := map[name]bool{}
	for _, q := range queues {
		seen[name{q.Tenant, q.Ref, q.Lane}] = true
	}
	return len(seen)
}

// ListQueues reads all queues, in order of id.
func (s *Store) ListQueues(ctx context.Context) ([]job.Queue, error) {
	rows, err := s.q(s.jobs.claim).ListQueues(ctx)
	if err != nil {
		return nil, wrap("list queues", err)
	}
	out := make([]job.Queue, len(rows))
	for i, r := range rows {
		out[i] = toQueue(sqlc.GetQueuesRow(r))
	}
	return out, nil
}

func toQueue(r sqlc.GetQueuesRow) job.Queue {
	return job.Queue{ID: r.ID, Tenant: r.Tenant, Ref: r.Ref, Lane: int(r.Lane), Paused: r.PausedAt != nil, Limit: int(r.MaxRunning), Running: int(r.Running)}
}

// PauseQueues holds back the jobs of a tenant, of a ref, or of both (empty: of all), also in queues that come later, and
// returns the queues it covers now. Runs in flight go on. No claim begins after it has returned.
func (s *Store) PauseQueues(ctx context.Context, tenant, ref, reason string) ([]int32, error) {
	return s.changeQueues(ctx, "pause queues", func(q *sqlc.Queries) ([]int32, error) {
		return q.PauseQueues(ctx, sqlc.PauseQueuesParams{Tenant: tenant, Ref: ref, Reason: reason})
	})
}

// ResumeQueues takes the pause of the same tenant and ref back; what another pause covers stays paused. Where no such
// pause stands, nothing happens.
func (s *Store) ResumeQueues(ctx context.Context, tenant, ref string) (job.Resumed, error) {
	var done job.Resumed
	_, err := s.changeQueues(ctx, "resume queues", func(q *sqlc.Queries) ([]int32, error) {
		dropped, err := q.DropPause(ctx, sqlc.DropPauseParams{Tenant: tenant, Ref: ref})
		if err != nil {
			return nil, err
		}
		resumed, err := q.ResumeQueues(ctx, sqlc.ResumeQueuesParams{Tenant: tenant, Ref: ref})
		if err != nil {
			return nil, err
		}
		held, err := q.CountPaused(ctx, sqlc.CountPausedParams{Tenant: tenant, Ref: ref})
		done = job.Resumed{Queues: len(resumed), WasPaused: dropped > 0, Held: int(held)}
		return nil, err
	})
	return done, err
}

const (
	queuesPatience = 5 * time.Second
	queuesPause    = 20 * time.Millisecond
)

// lockQueues tries to be alone with the queues for some seconds. cron.ErrUnavailable: others go on making queues.
func lockQueues(ctx context.Context, q *sqlc.Queries) error {
	for end := time.Now().Add(queuesPatience); ; {
		locked, err := q.LockQueues(ctx)
		if err != nil || locked {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: a transaction that made a queue has not ended", cron.ErrUnavailable)
		}
		t := time.NewTimer(queuesPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// changeQueues runs work while no queue is made.
func (s *Store) changeQueues(ctx context.Context, tried string, work func(*sqlc.Queries) ([]int32, error)) ([]int32, error) {
	ids, err := again(ctx, func() (ids []int32, err error) {
		err = s.tx(ctx, func(q *sqlc.Queries) error {
			if err := lockQueues(ctx, q); err != nil {
				return err
			}
			ids, err = work(q)
			return err
		})
		return ids, err
	})
	return ids, wrap(tried, err)
}

// ListPauses reads the pauses that stand.
func (s *Store) ListPauses(ctx context.Context) ([]job.Pause, error) {
	rows, err := s.q(s.api).ListPauses(ctx)
	if err != nil {
		return nil, wrap("list pauses", err)
	}
	out := make([]job.Pause, len(rows))
	for i, r := range rows {
		out[i] = job.Pause{Tenant: r.Tenant, Ref: r.Ref, Reason: r.Reason, At: r.PausedAt.Time.UTC()}
	}
	return out, nil
}

// ListWaitingRefs reads the refs, a hundred at most, whose jobs have been due for longer than a bound, longest first.
func (s *Store) ListWaitingRefs(ctx context.Context, bound time.Duration) ([]job.WaitingRef, error) {
	rows, err := s.q(s.api).ListWaitingRefs(ctx, bound.Seconds())
	if err != nil {
		return nil, wrap("list refs whose jobs wait", err)
	}
	out := make([]job.WaitingRef, len(rows))
	for i, r := range rows {
		out[i] = job.WaitingRef{Ref: r.Ref, Since: r.Since.Time.UTC()}
	}
	return out, nil
}

// PutLimit bounds the running jobs of a verb in the whole cluster, from now on. Runs in flight keep going and count; a
// claim that was under way in this very moment may be missed, until MendLimits counts it.
func (s *Store) PutLimit(ctx context.Context, ref string, maxRunning int) error {
	_, err := s.changeQueues(ctx, "limit a verb", func(q *sqlc.Queries) ([]int32, error) {
		if err := q.PutLimit(ctx, sqlc.PutLimitParams{Ref: ref, MaxRunning: int32(maxRunning)}); err != nil {
			return nil, err
		}
		return nil, q.MarkQueues(ctx, sqlc.MarkQueuesParams{Ref: ref, Limited: true})
	})
	if err != nil {
		return err
	}
	_, err = s.MendLimits(ctx, ref)
	return err
}

// DropLimit takes a verb's limit away; nothing happens if it has none.
func (s *Store) DropLimit(ctx context.Context, ref string) error {
	_, err := s.changeQueues(ctx, "drop the limit of a verb", func(q *sqlc.Queries) ([]int32, error) {
		if err := q.MarkQueues(ctx, sqlc.MarkQueuesParams{Ref: ref, Limited: false}); err != nil {
			return nil, err
		}
		return nil, q.DropLimit(ctx, ref)
	})
	return err
}

// MendLimits counts the running jobs of a limited verb (empty: of all) anew, those included that began before the limit,
// and returns how many counts were wrong. They are exact by themselves, but for runs that began as the limit came: a
// sweep does this now and then. It reads all live jobs once.
func (s *Store) MendLimits(ctx context.Context, ref string) (int, error) {
	mended, err := again(ctx, func() (mended int, err error) {
		err = s.tx(ctx, func(q *sqlc.Queries) error {
			refs, err := q.LockLimits(ctx, ref)
			if err != nil || len(refs) == 0 {
				return err
			}
			if err := q.AdoptRunning(ctx, refs); err != nil {
				return err
			}
			rows, err := q.CountRunning(ctx, refs)
			mended = len(rows)
			return err
		})
		return mended, err
	})
	return mended, wrap("count the running jobs of limited verbs", err)
}
