package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
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
		if err := writeUpdate(ctx, q, moduleID, live, update); err != nil {
			return err
		}
		after, _, err = lockModule(ctx, q, module)
		return err
	})
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

func writeUpdate(ctx context.Context, q *sqlc.Queries, moduleID, live int64, u deployment.Update) error {
	if u.Activate || u.MinReplicas != nil {
		if live == 0 {
			return fmt.Errorf("%w: nothing is deployed", cron.ErrPrecond)
		}
		replicas := int32(1)
		if u.MinReplicas != nil {
			replicas = int32(*u.MinReplicas)
		}
		var err error
		if u.Activate {
			err = q.ActivateDeployment(ctx, sqlc.ActivateDeploymentParams{ModuleID: moduleID, ID: live, MinReplicas: replicas})
		} else {
			err = q.ScaleDeployment(ctx, sqlc.ScaleDeploymentParams{ID: live, MinReplicas: replicas})
		}
		if err != nil {
			return err
		}
	}
	for _, j := range u.Jobs {
		if err := writeJob(ctx, q, moduleID, live, j); err != nil {
			return fmt.Errorf("write %s: %w", j.Job.Ref, err)
		}
	}
	return nil
}

func writeJob(ctx context.Context, q *sqlc.Queries, moduleID, live int64, u deployment.JobUpdate) error {
	j := u.Job
	if j.ID == 0 {
		_, err := q.InsertCronJob(ctx, sqlc.InsertCronJobParams{
			ModuleID: moduleID, DeploymentID: live, Ref: j.Ref, Shard: j.Shard, Schedule: j.Schedule, TimeZone: j.Zone,
			TimeoutMs: int32(j.Timeout.Milliseconds()), Catchup: sqlc.CarillonCatchup(j.Catchup), Overlap: sqlc.CarillonOverlap(j.Overlap),
			Enabled: j.Enabled, NextExecution: ptr(j.Next),
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
		ID: j.ID, DeploymentID: live, Schedule: j.Schedule, TimeZone: j.Zone, TimeoutMs: int32(j.Timeout.Milliseconds()),
		Catchup: sqlc.CarillonCatchup(j.Catchup), Overlap: sqlc.CarillonOverlap(j.Overlap), Enabled: j.Enabled,
		NextExecution: ptr(j.Next), PausedAt: ptr(j.PausedAt), RemovedAt: ptr(j.RemovedAt), SetAsideAt: ptr(j.SetAsideAt),
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
