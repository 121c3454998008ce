package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// GetJob reads one job, live or from the history. cron.ErrNotFound: there is none, or the salt is another's.
func (s *Store) GetJob(ctx context.Context, id job.ID) (job.Job, error) {
	live, err := s.q(s.api).GetJob(ctx, sqlc.GetJobParams{ID: id.N, Salt: id.Salt})
	if err == nil {
		return toJobView(live)
	}
	var ended sqlc.GetEndedJobRow
	if errors.Is(err, pgx.ErrNoRows) {
		ended, err = s.q(s.api).GetEndedJob(ctx, sqlc.GetEndedJobParams{ID: id.N, Salt: id.Salt})
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: no job %s", cron.ErrNotFound, id)
	}
	if err != nil {
		return job.Job{}, wrap("read a job", err)
	}
	return toJobView(sqlc.GetJobRow(ended))
}

// ListJobs reads a page of live jobs, latest id first, without their payloads. The filter's times are those of creation.
func (s *Store) ListJobs(ctx context.Context, f job.Filter, after job.Cursor, page int) ([]job.Job, error) {
	before := after.ID
	if before == 0 {
		before = math.MaxInt64
	}
	p := sqlc.ListJobsParams{
		Parent: f.Parent.N, ParentSalt: f.Parent.Salt,
		Tenant: f.Tenant, Ref: f.Ref, Module: f.Module, States: stateNames(f.States), Tag: f.Tag,
		CreatedFrom: stamp(or(f.From, beginning)), CreatedUntil: stamp(or(f.To, forever)), Before: before, Page: int32(page),
	}
	var rows []sqlc.ListJobsRow
	err := s.jobTx(ctx, func(q *sqlc.Queries) (err error) {
		rows, err = q.ListJobs(ctx, p)
		return err
	})
	if err != nil {
		return nil, wrap("list jobs", err)
	}
	out := make([]job.Job, len(rows))
	for i, r := range rows {
		if out[i], err = toJobView(sqlc.GetJobRow(r)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ListEndedJobs reads a page of the history, latest end first, without payloads and outputs. The filter's times are
// those of the end.
func (s *Store) ListEndedJobs(ctx context.Context, f job.Filter, after job.Cursor, page int) ([]job.Job, error) {
	p := sqlc.ListEndedJobsParams{
		Parent: f.Parent.N, ParentSalt: f.Parent.Salt,
		Tenant: f.Tenant, Ref: f.Ref, Module: f.Module, States: stateNames(f.States), Tag: f.Tag, Dead: f.Dead,
		EndedFrom: stamp(or(f.From, beginning)), EndedUntil: stamp(or(f.To, forever)),
		BeforeEnd: stamp(or(after.Ended, forever)), BeforeID: after.ID, Page: int32(page),
	}
	var rows []sqlc.ListEndedJobsRow
	err := s.jobTx(ctx, func(q *sqlc.Queries) (err error) {
		rows, err = q.ListEndedJobs(ctx, p)
		return err
	})
	if err != nil {
		return nil, wrap("list ended jobs", err)
	}
	out := make([]job.Job, len(rows))
	for i, r := range rows {
		if out[i], err = toJobView(sqlc.GetJobRow(r)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func stateNames(states []job.State) []string {
	names := make([]string, len(states))
	for i, st := range states {
		names[i] = string(st)
	}
	return names
}

func toJobView(r sqlc.GetJobRow) (job.Job, error) {
	j := job.Job{
		ID: job.ID{N: r.ID, Salt: r.Salt}, Tenant: r.Tenant, Ref: r.Ref, State: job.State(r.State), Priority: int(r.Priority), Due: inUTC(r.DueAt),
		Created: inUTC(r.CreatedAt), Started: inUTC(r.StartedAt), Ended: inUTC(r.EndedAt), Expires: inUTC(r.ExpiresAt), Slot: inUTC(r.Slot),
		Attempt: int(r.Attempt), Retry: retryOf(r.MaxAttempts, r.BackoffMs, r.BackoffMaxMs), Timeout: milliseconds(r.TimeoutMs),
		Run: cron.RunID(r.RunID.Bytes), Controller: r.Controller, Parent: job.ID{N: r.ParentID, Salt: r.ParentSalt}, Children: int(r.Children), Progress: r.Progress, Tags: r.Tags,
		Payload: r.Payload, Output: r.Output, CancelAsked: r.Cancelled, TriggerID: r.TriggerID, Envelope: r.Envelope,
	}
	if len(r.Errors) > 0 {
		if err := json.Unmarshal(r.Errors, &j.Errors); err != nil {
			return j, fmt.Errorf("read the errors of job %s: %w", j.ID, err)
		}
	}
	for i := range j.Errors {
		j.Errors[i].At, j.Errors[i].Started = j.Errors[i].At.UTC(), j.Errors[i].Started.UTC()
	}
	return j, nil
}

func inUTC(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// CreateJobPartitions makes the history's partitions up to so many days ahead; DropJobPartitions drops those older than
// keep days. Both return how many.
func (s *Store) CreateJobPartitions(ctx context.Context, ahead int) (int, error) {
	n, err := s.q(s.api).CreateJobPartitions(ctx, int32(ahead))
	return int(n), wrap("create partitions of the job history", err)
}

func (s *Store) DropJobPartitions(ctx context.Context, keep int) (int, error) {
	n, err := s.q(s.api).DropJobPartitions(ctx, int32(keep))
	return int(n), wrap("drop partitions of the job history", err)
}

// ForgetJobKeys drops up to page expired keys and returns how many: fewer than page when none is left.
func (s *Store) ForgetJobKeys(ctx context.Context, page int) (int, error) {
	n, err := s.q(s.api).ForgetJobKeys(ctx, int32(page))
	return int(n), wrap("forget expired keys", err)
}
