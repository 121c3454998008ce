package store

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"carillon/backend/core/cron"
	"carillon/backend/store/internal/sqlc"
)

// Generated types stop here: what leaves this package are nouns with UTC times.

func toJob(r sqlc.CronJob, deployment string) cron.Job {
	j := cron.Job{
		ID: r.ID, Ref: r.Ref, Shard: r.Shard, Version: r.Version, Enabled: r.Enabled, State: cron.State(r.State),
		Next: at(r.NextExecution), Schedule: r.Schedule, Zone: r.TimeZone,
		Timeout: time.Duration(r.TimeoutMs) * time.Millisecond, Catchup: cron.Catchup(r.Catchup), Overlap: cron.Overlap(r.Overlap),
		Fires: r.Fires, Limited: r.Limited, Deployment: deployment, PausedAt: at(r.PausedAt), RemovedAt: at(r.RemovedAt), SetAsideAt: at(r.SetAsideAt),
	}
	if r.Fires {
		j.Retry = cron.Retry(retryOf(r.MaxAttempts, r.BackoffMs, r.BackoffMaxMs))
	}
	if r.TriggerID != nil {
		j.Trigger = *r.TriggerID
	}
	if r.RunID.Valid {
		j.Current = cron.Run{
			ID: cron.RunID(r.RunID.Bytes), JobID: r.ID, Ref: r.Ref, Slot: at(r.RunSlot), SlotTo: at(r.RunSlot), Count: 1,
			Kind: cron.Kind(r.RunKind), Attempt: int(r.Attempt), StartedAt: at(r.StartedAt), DeadlineAt: at(r.DeadlineAt),
		}
		if r.Controller != nil {
			j.Current.Controller = *r.Controller
		}
	}
	return j
}

func toRun(r sqlc.Run, ref, deployment string) cron.Run {
	run := cron.Run{
		ID: cron.RunID(r.RunID.Bytes), JobID: r.CronJobID, Ref: ref, Slot: r.Slot.Time.UTC(), SlotTo: r.SlotTo.Time.UTC(),
		Count: int(r.Count), Kind: cron.Kind(r.Kind), Attempt: int(r.Attempt), Deployment: deployment,
		StartedAt: at(r.StartedAt), EndedAt: r.EndedAt.Time.UTC(), Verdict: cron.Verdict(r.Verdict),
	}
	if r.Controller != nil {
		run.Controller = *r.Controller
	}
	if r.Error != nil {
		run.Error = *r.Error
	}
	if r.JobID != nil && r.JobSalt != nil {
		run.Made = cron.Made{N: *r.JobID, Salt: *r.JobSalt}
	}
	return run
}

// at reads a nullable time; the zero time stands for NULL.
func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func ptr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func stamp(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()} }

func uid(id cron.RunID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: !id.IsZero()} }

// text reads a nullable text.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
