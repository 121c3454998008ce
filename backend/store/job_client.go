package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// Jobs of the worker client: nobody claims them and no sweep of runs knows them. They stand blocked, with a run, until their
// client says how it went, somebody cancels them, or their timeout has passed.

// CreateClientJob begins a job that its client runs. Its ref is job.ClientRef whatever n says; the key of idempotency counts
// as for other jobs: existing says that it made this job before, which may have ended since.
func (s *Store) CreateClientJob(ctx context.Context, n job.New) (j job.Job, existing bool, err error) {
	n.Ref = job.ClientRef
	n = job.Complete(n)
	queues, err := s.PutQueues(ctx, []job.Queue{{Tenant: n.Tenant, Ref: n.Ref, Lane: job.Lane(n.Priority)}})
	if err != nil {
		return j, false, err
	}
	p := sqlc.InsertClientJobParams{
		QueueID: queues[0].ID, MaxAttempts: int32(n.Retry.Attempts), BackoffMs: int32(inMs(n.Retry.Backoff)), BackoffMaxMs: int32(inMs(n.Retry.Ceiling)),
		TimeoutMs: int32(inMs(n.Timeout)), Priority: int16(n.Priority), Payload: notNull(n.Payload), TriggerID: n.TriggerID, Envelope: orNull(n.Envelope),
	}
	made, err := again(ctx, func() (made job.ID, err error) {
		run, err := uuid.NewV7()
		if err != nil {
			return made, err
		}
		k := key{kind: "idempotency", tenant: n.Tenant, key: n.Idempotency, hash: job.RequestHash(n)}
		err = s.keyed(ctx, s.api, k, func(q *sqlc.Queries, name func(job.ID) error) error {
			ids, err := q.NextJobIDs(ctx, 1)
			if err != nil {
				return err
			}
			made = job.ID{N: ids[0], Salt: newSalts(1)[0]}
			p.ID, p.Salt, p.RunID = made.N, made.Salt, uid(cron.RunID(run))
			if _, err := q.InsertClientJob(ctx, p); err != nil {
				return err
			}
			return name(made)
		}, func(held job.ID) { made, existing = held, true })
		return made, err
	})
	if err != nil {
		return j, false, wrap("begin a client's job", err)
	}
	j, err = s.GetJob(ctx, made)
	return j, existing, err
}

// EndLateClientJobs fails jobs whose clients did not end them within their timeout ("context deadline exceeded"), up to page
// of them, and returns how many.
func (s *Store) EndLateClientJobs(ctx context.Context, page int) (int, error) {
	n, err := again(ctx, func() (int64, error) { return s.q(s.jobs.end).EndLateClientJobs(ctx, int32(page)) })
	return int(n), wrap("end late jobs of clients", err)
}

// EndClientJob ends a job that its client ran: job.Succeeded, or job.Failed with an error. Of two at once one succeeds.
// cron.ErrNotFound: there is no such job; cron.ErrInvalid: it is no client's, or the state is none of the two;
// cron.ErrPrecond: it has ended.
func (s *Store) EndClientJob(ctx context.Context, id job.ID, state job.State, text string) (job.Job, error) {
	if state != job.Succeeded && state != job.Failed {
		return job.Job{}, wrap("end a client's job", fmt.Errorf("%w: state %s is none of succeeded and failed", cron.ErrInvalid, state))
	}
	_, err := again(ctx, func() (int64, error) {
		return s.q(s.api).EndClientJob(ctx, sqlc.EndClientJobParams{ID: id.N, Salt: id.Salt, State: string(state), Text: cron.SafeText(text)})
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return job.Job{}, wrap("end a client's job", err)
	}
	j, getErr := s.GetJob(ctx, id)
	switch {
	case getErr != nil:
		return job.Job{}, getErr
	case err == nil:
		return j, nil
	case j.Ref != job.ClientRef:
		return j, wrap("end a client's job", fmt.Errorf("%w: %s is not a client's job", cron.ErrInvalid, id))
	}
	return j, wrap("end a client's job", fmt.Errorf("%w: %s has ended: %s", cron.ErrPrecond, id, j.State))
}
