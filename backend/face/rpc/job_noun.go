package rpc

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	carillonv1 "carillon/proto/carillon/v1"
)

// fromNewJob reads a job to be enqueued; now is the database's time, needed where jobFace.clock reads it. What is
// left to be checked, the payload above all, is checked where the job is taken in.
func fromNewJob(n *carillonv1.NewJob, now time.Time) (job.New, error) {
	j := job.New{
		Tenant: n.GetTenant(), Ref: n.GetRef(), Priority: job.DefaultPriority, Retry: job.Retry{Attempts: int(n.GetMaxAttempts())},
		Payload: n.GetPayload(), Tags: n.GetTags(), Unique: n.GetUniqueKey(), Idempotency: n.GetIdempotencyKey(),
	}
	if n.Priority != nil {
		j.Priority = int(n.GetPriority())
	}
	if j.Priority < 0 || j.Priority > job.MaxPriority {
		return j, invalid("priority", "must be 0 to %d (higher is sooner), got %d", job.MaxPriority, j.Priority)
	}
	if len(j.Payload) > job.MaxPayload {
		return j, invalid("payload", "has %d bytes, at most %d are accepted", len(j.Payload), job.MaxPayload)
	}
	if err := readTimes(n, now, &j); err != nil {
		return j, err
	}
	return j, readParent(n, &j)
}

func readTimes(n *carillonv1.NewJob, now time.Time, j *job.New) (err error) {
	for _, d := range []struct {
		field string
		from  *durationpb.Duration
		into  *time.Duration
	}{
		{"delay", n.GetDelay(), &j.Delay}, {"timeout", n.GetTimeout(), &j.Timeout}, {"backoff", n.GetBackoff(), &j.Retry.Backoff},
		{"backoff_ceiling", n.GetBackoffCeiling(), &j.Retry.Ceiling}, {"unique_window", n.GetUniqueWindow(), &j.Window},
	} {
		if *d.into, err = fromLength(d.field, d.from); err != nil {
			return err
		}
	}
	if j.Expires, err = fromStamp("expires_at", n.GetExpiresAt()); err != nil {
		return err
	}
	if n.GetExpiresIn() != nil {
		if n.GetExpiresAt() != nil {
			return invalid("expires_in", "cannot be given together with expires_at")
		}
		if j.Within, err = fromLength("expires_in", n.GetExpiresIn()); err != nil {
			return err
		}
		if j.Within <= 0 || j.Within > job.MaxDelay {
			return invalid("expires_in", "must be more than 0 and at most ten years, got %s", j.Within)
		}
		j.Expires = now.Add(j.Within)
	}
	due, err := fromStamp("due_at", n.GetDueAt())
	switch {
	case err != nil:
		return err
	case n.GetDueAt() == nil:
		return nil
	case n.GetDelay() != nil:
		return invalid("due_at", "cannot be given together with delay")
	case due.Sub(now) > job.MaxDelay:
		return invalid("due_at", "must be within ten years, got %s", due.Format(time.RFC3339))
	}
	j.Delay, j.Due = max(due.Sub(now), 0), due
	return nil
}

func readParent(n *carillonv1.NewJob, j *job.New) (err error) {
	if n.GetParentId() == "" {
		if n.GetParentRunId() != "" {
			return invalid("parent_run_id", "needs a parent_id")
		}
		return nil
	}
	if j.Parent, err = fromJobID("parent_id", n.GetParentId()); err != nil {
		return err
	}
	if n.GetParentRunId() == "" {
		return invalid("parent_run_id", "is missing: a child belongs to a run of its parent")
	}
	if j.ParentRun, err = cron.ParseRunID(n.GetParentRunId()); err != nil {
		return invalid("parent_run_id", "is no run id")
	}
	return nil
}

// fromLength leaves an unset length of time zero, and refuses a negative one.
func fromLength(field string, d *durationpb.Duration) (time.Duration, error) {
	switch {
	case d == nil:
		return 0, nil
	case !d.IsValid():
		return 0, invalid(field, "is no duration")
	case d.GetSeconds() < 0 || d.GetNanos() < 0:
		return 0, invalid(field, "must not be negative, got %s", d.AsDuration())
	}
	return d.AsDuration(), nil
}

func fromJobID(field, s string) (job.ID, error) {
	id, err := job.ParseID(s)
	if f := (*job.FieldError)(nil); errors.As(err, &f) {
		return id, invalid(field, "%s", f.Problem)
	}
	return id, err
}

func (s *jobFace) toJob(j job.Job) *carillonv1.Job {
	out := &carillonv1.Job{
		Id: j.ID.String(), Tenant: j.Tenant, Ref: j.Ref, State: toJobState(j.State), Priority: int32(j.Priority), DueAt: stamp(j.Due),
		CreatedAt: stamp(j.Created), StartedAt: stamp(j.Started), EndedAt: stamp(j.Ended), ExpiresAt: stamp(j.Expires), Slot: stamp(j.Slot),
		Attempt: int32(j.Attempt), MaxAttempts: int32(j.Retry.Attempts), Backoff: length(j.Retry.Backoff), BackoffCeiling: length(j.Retry.Ceiling),
		Timeout: length(j.Timeout), RunId: j.Run.String(), Controller: j.Controller, ParentId: j.Parent.String(), Children: int32(j.Children), Progress: j.Progress,
		Tags: j.Tags, Payload: j.Payload, Output: j.Output, CancelAsked: j.CancelAsked,
	}
	if j.State == job.Ready {
		out.WaitingFor = s.Jobs.WaitingFor(j.Ref)
	}
	for _, e := range j.Errors {
		out.Errors = append(out.Errors, &carillonv1.JobError{At: stamp(e.At), Attempt: int32(e.Attempt), RunId: e.Run, Verdict: e.Verdict, Text: e.Text})
	}
	return out
}

// toJobState follows the order of the enum, which is that of job.States.
func toJobState(s job.State) carillonv1.JobState {
	for i, known := range job.States {
		if s == known {
			return carillonv1.JobState(i + 1)
		}
	}
	return carillonv1.JobState_JOB_STATE_UNSPECIFIED
}
