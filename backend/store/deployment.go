package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// PutDeployment makes sure that a deployment has a row; nothing of what is live changes.
func (s *Store) PutDeployment(ctx context.Context, d deployment.Deployment) (deployment.Deployment, error) {
	var out deployment.Deployment
	err := s.tx(ctx, func(q *sqlc.Queries) error {
		m, err := q.LockModule(ctx, d.Module)
		if err != nil {
			return err
		}
		row, err := q.PutDeployment(ctx, sqlc.PutDeploymentParams{Key: d.Key, ModuleID: m.ID, Digest: d.Digest, Language: d.Language, Schema: d.Schema})
		if err != nil {
			return err
		}
		out = toDeployment(row, d.Module)
		out.Active = m.DeploymentID != nil && *m.DeploymentID == row.ID
		return nil
	})
	return out, wrap("register a deployment", err)
}

// UpdateModule changes one module in one transaction, its row locked first and its cron jobs in id order: decide gets
// what stands there and returns what to write. It is called once, holds the locks, and must not wait. With a
// deployment ID, Update.Activate makes that one live. ErrNotFound: no such module.
func (s *Store) UpdateModule(ctx context.Context, module string, deploymentID int64, decide func(deployment.Module) (deployment.Update, error)) (deployment.Module, error) {
	var after deployment.Module
	var limited []string
	err := s.tx(ctx, func(q *sqlc.Queries) error {
		before, moduleID, err := lockModule(ctx, q, module)
		if err != nil {
			return err
		}
		update, err := decide(before)
		if err != nil {
			return err
		}
		live := deploymentID
		if !update.Activate {
			live = 0
			if before.Live != nil {
				live = before.Live.ID
			}
		}
		if limited, err = writeUpdate(ctx, q, module, moduleID, live, update); err != nil {
			return err
		}
		after, _, err = lockModule(ctx, q, module)
		return err
	})
	for _, ref := range limited { // runs in flight count from now on; if this fails, from the next sweep on
		if _, err := s.MendLimits(ctx, ref); err != nil {
			s.log.WarnContext(ctx, "running jobs not counted", "ref", ref, "error", err)
		}
	}
	return after, wrap("change module "+module, err)
}

// GetModule reads a module as UpdateModule hands it out, without its locks: for plans.
func (s *Store) GetModule(ctx context.Context, module string) (deployment.Module, error) {
	var m deployment.Module
	err := s.tx(ctx, func(q *sqlc.Queries) error {
		row, err := q.GetModule(ctx, module)
		if err != nil {
			return absent(err, module)
		}
		m, err = readModule(ctx, q, module, row, q.ListModuleCronJobs)
		return err
	})
	return m, wrap("read module "+module, err)
}

func lockModule(ctx context.Context, q *sqlc.Queries, module string) (deployment.Module, int64, error) {
	row, err := q.LockExistingModule(ctx, module)
	if err != nil {
		return deployment.Module{}, 0, absent(err, module)
	}
	m, err := readModule(ctx, q, module, sqlc.GetModuleRow(row), q.LockCronJobs)
	return m, row.ID, err
}

func absent(err error, module string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: no module %s is deployed", cron.ErrNotFound, module)
	}
	return err
}

// readModule reads the rows, and then the clock: all slots that were claimed before the rows were locked are past by it.
func readModule(ctx context.Context, q *sqlc.Queries, module string, row sqlc.GetModuleRow, list func(context.Context, int64) ([]sqlc.CronJob, error)) (deployment.Module, error) {
	m := deployment.Module{Name: module}
	key := ""
	if row.DeploymentID != nil {
		d, err := q.GetDeployment(ctx, *row.DeploymentID)
		if err != nil {
			return m, err
		}
		live := toDeployment(d, module)
		live.Active = true
		m.Live, key = &live, live.Key
	}
	jobs, err := list(ctx, row.ID)
	if err != nil {
		return m, err
	}
	for _, j := range jobs {
		m.Jobs = append(m.Jobs, toJob(j, key))
	}
	now, err := q.Clock(ctx)
	m.Now = now.Time.UTC()
	return m, err
}

// writeUpdate returns the verbs that have another limit from now on.
func writeUpdate(ctx context.Context, q *sqlc.Queries, module string, moduleID, live int64, u deployment.Update) (limited []string, err error) {
	if u.Activate || u.MinReplicas != nil {
		if live == 0 {
			return nil, fmt.Errorf("%w: nothing is deployed", cron.ErrPrecond)
		}
		replicas := int32(1)
		if u.MinReplicas != nil {
			replicas = int32(*u.MinReplicas)
		}
		if u.Activate {
			err = q.ActivateDeployment(ctx, sqlc.ActivateDeploymentParams{ModuleID: moduleID, ID: live, MinReplicas: replicas})
		} else {
			err = q.ScaleDeployment(ctx, sqlc.ScaleDeploymentParams{ID: live, MinReplicas: replicas})
		}
		if err != nil {
			return nil, err
		}
	}
	// Modules, cron jobs, queues: in this order everywhere. Of the locks on all queues the exclusive one comes first.
	if limited, err = writeLimits(ctx, q, module, u.Limits); err != nil {
		return nil, fmt.Errorf("write limits: %w", err)
	}
	queues, err := firingQueues(ctx, q, u.Jobs)
	if err != nil {
		return nil, fmt.Errorf("make queues: %w", err)
	}
	for _, j := range u.Jobs {
		if err := writeJob(ctx, q, moduleID, live, queues[j.Job.Ref], j); err != nil {
			return nil, fmt.Errorf("write %s: %w", j.Job.Ref, err)
		}
	}
	return limited, nil
}

// writeLimits makes the limits of a module's verbs what they shall be, as PutLimit and DropLimit do for one.
func writeLimits(ctx context.Context, q *sqlc.Queries, module string, want map[string]int) (limited []string, err error) {
	if want == nil {
		return nil, nil
	}
	rows, err := q.ListLimits(ctx, module)
	if err != nil {
		return nil, err
	}
	gone, put := []string(nil), maps.Clone(want)
	for _, r := range rows {
		switch n, ok := want[r.Ref]; {
		case !ok:
			gone = append(gone, r.Ref)
		case n == int(r.MaxRunning):
			delete(put, r.Ref)
		}
	}
	if len(gone)+len(put) == 0 {
		return nil, nil
	}
	if err := lockQueues(ctx, q); err != nil {
		return nil, err
	}
	for _, ref := range gone {
		if err := q.MarkQueues(ctx, sqlc.MarkQueuesParams{Ref: ref, Limited: false}); err != nil {
			return nil, err
		}
		if err := q.DropLimit(ctx, ref); err != nil {
			return nil, err
		}
	}
	limited = slices.Sorted(maps.Keys(put))
	for _, ref := range limited {
		if err := q.PutLimit(ctx, sqlc.PutLimitParams{Ref: ref, MaxRunning: int32(put[ref])}); err != nil {
			return nil, err
		}
		if err := q.MarkQueues(ctx, sqlc.MarkQueuesParams{Ref: ref, Limited: true}); err != nil {
			return nil, err
		}
	}
	return limited, nil
}

// firingQueues makes sure that rows which fire have a queue to fire into, and returns it by ref.
func firingQueues(ctx context.Context, q *sqlc.Queries, jobs []deployment.JobUpdate) (map[string]int32, error) {
	var p sqlc.PutQueuesParams
	for _, j := range jobs {
		if j.Job.Fires {
			p.Tenants = append(p.Tenants, job.DefaultTenant)
			p.Refs = append(p.Refs, j.Job.Ref)
			p.Lanes = append(p.Lanes, int16(job.Lane(job.DefaultPriority)))
		}
	}
	if len(p.Refs) == 0 {
		return nil, nil
	}
	rows, err := q.GetQueues(ctx, sqlc.GetQueuesParams(p))
	if err == nil && len(rows) < len(p.Refs) {
		if err = q.ShareQueues(ctx); err == nil {
			err = q.PutQueues(ctx, p)
		}
		if err == nil {
			rows, err = q.GetQueues(ctx, sqlc.GetQueuesParams(p))
		}
	}
	queues := make(map[string]int32, len(rows))
	for _, r := range rows {
		queues[r.Ref] = r.ID
	}
	return queues, err
}

// writeJob writes one row; queue is where it fires into, 0 if it does not.
func writeJob(ctx context.Context, q *sqlc.Queries, moduleID, live int64, queue int32, u deployment.JobUpdate) error {
	j := u.Job
	if !j.Fires {
		j.Retry = cron.Retry{}
	}
	retry := job.Complete(job.New{Retry: job.Retry(j.Retry)}).Retry // columns that mean nothing where nothing fires
	var into *int32
	if queue != 0 {
		into = &queue
	}
	if j.ID == 0 {
		_, err := q.InsertCronJob(ctx, sqlc.InsertCronJobParams{
			ModuleID: &moduleID, DeploymentID: &live, Ref: j.Ref, Shard: j.Shard, Schedule: j.Schedule, TimeZone: j.Zone,
			TimeoutMs: int32(j.Timeout.Milliseconds()), Catchup: sqlc.CarillonCatchup(j.Catchup), Overlap: sqlc.CarillonOverlap(j.Overlap),
			Enabled: j.Enabled, NextExecution: ptr(j.Next), Fires: j.Fires, QueueID: into,
			MaxAttempts: int32(retry.Attempts), BackoffMs: int32(inMs(retry.Backoff)), BackoffMaxMs: int32(inMs(retry.Ceiling)),
		})
		return err
	}
	if !u.Skipped.IsZero() {
		err := q.InsertSkippedRange(ctx, sqlc.InsertSkippedRangeParams{
			CronJobID: j.ID, Slot: stamp(u.Skipped.From), SlotTo: stamp(u.Skipped.To), Count: int32(u.Skipped.Count),
			Verdict: sqlc.CarillonVerdict(cron.SkippedPaused), Error: cron.SafeText(u.Reason),
		})
		if err != nil {
			return err
		}
	}
	if u.PausedNote != nil {
		if err := q.PutPausedNote(ctx, sqlc.PutPausedNoteParams{CronJobID: j.ID, Paused: cron.SafeText(*u.PausedNote)}); err != nil {
			return err
		}
	}
	return q.UpdateCronJob(ctx, sqlc.UpdateCronJobParams{
		ID: j.ID, DeploymentID: &live, Schedule: j.Schedule, TimeZone: j.Zone, TimeoutMs: int32(j.Timeout.Milliseconds()),
		Catchup: sqlc.CarillonCatchup(j.Catchup), Overlap: sqlc.CarillonOverlap(j.Overlap), Enabled: j.Enabled,
		NextExecution: ptr(j.Next), PausedAt: ptr(j.PausedAt), RemovedAt: ptr(j.RemovedAt), SetAsideAt: ptr(j.SetAsideAt),
		Fires: j.Fires, QueueID: into, MaxAttempts: int32(retry.Attempts), BackoffMs: int32(inMs(retry.Backoff)), BackoffMaxMs: int32(inMs(retry.Ceiling)),
	})
}

// ListDeployments lists the live deployment of each module (all: also the others), newest first within a module.
func (s *Store) ListDeployments(ctx context.Context, module string, all bool) ([]deployment.Deployment, error) {
	rows, err := s.q(s.api).ListDeployments(ctx, sqlc.ListDeploymentsParams{AllOfThem: all, Module: module})
	if err != nil {
		return nil, wrap("list deployments", err)
	}
	out := make([]deployment.Deployment, len(rows))
	for i, r := range rows {
		out[i] = toDeployment(r.Deployment, r.Module)
		out[i].Active, out[i].CronJobs = r.Active, int(r.CronJobs)
	}
	return out, nil
}

func toDeployment(d sqlc.Deployment, module string) deployment.Deployment {
	return deployment.Deployment{
		ID: d.ID, Key: d.Key, Module: module, Language: d.Language, Digest: d.Digest, Schema: d.Schema, MinReplicas: int(d.MinReplicas),
		CreatedAt: d.CreatedAt.Time.UTC(), ActivatedAt: at(d.ActivatedAt), SupersededAt: at(d.SupersededAt),
	}
}
