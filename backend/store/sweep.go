package store

import (
	"context"
	"errors"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/store/internal/sqlc"
)

const scanPage = 2000

// ScanCronJobs reads, in one pass, what the ring should never leave behind (see the query): rows overdue for anybody,
// runs in the controller's own name older than own, and runs past their hard timeout or under a silent controller.
func (s *Store) ScanCronJobs(ctx context.Context, controller string, late, own, lease time.Duration) (overdue []int64, mine, stuck []cron.Run, err error) {
	rows, err := s.q(s.api).ScanCronJobs(ctx, sqlc.ScanCronJobsParams{
		Controller: controller, OverdueSecs: late.Seconds(), MineSecs: own.Seconds(), LeaseSecs: lease.Seconds(), Page: scanPage,
	})
	if err != nil {
		return nil, nil, nil, wrap("scan cron jobs", err)
	}
	for _, r := range rows {
		run := cron.Run{ID: cron.RunID(r.RunID.Bytes), JobID: r.ID, Ref: r.Ref, Slot: at(r.RunSlot)}
		if r.Controller != nil {
			run.Controller = *r.Controller
		}
		if r.Overdue {
			overdue = append(overdue, r.ID)
		}
		if r.Mine {
			mine = append(mine, run)
		}
		if r.Stuck {
			stuck = append(stuck, run)
		}
	}
	return overdue, mine, stuck, nil
}

// SweepCronJobs frees those of the given runs that are still lost, judged by the statement itself, which also asks
// whether the sweeping controller may judge at all. It returns them with their verdict.
func (s *Store) SweepCronJobs(ctx context.Context, controller string, lease, silence time.Duration, stuck []cron.Run) ([]cron.Run, error) {
	if len(stuck) == 0 {
		return nil, nil
	}
	p := sqlc.SweepCronJobsParams{Controller: controller, LeaseSecs: lease.Seconds(), SilenceSecs: silence.Seconds()}
	for _, r := range sortedByID(stuck, func(r cron.Run) int64 { return r.JobID }) {
		p.Ids = append(p.Ids, r.JobID)
		p.RunIds = append(p.RunIds, uid(r.ID))
	}
	rows, err := again(ctx, func() ([]sqlc.SweepCronJobsRow, error) { return s.q(s.end).SweepCronJobs(ctx, p) })
	if err = wrap("sweep cron jobs", err); isData(err) {
		return s.sweepHalves(ctx, controller, lease, silence, stuck, err)
	}
	if err != nil {
		return nil, err
	}
	freed := make([]cron.Run, len(rows))
	for i, r := range rows {
		freed[i] = cron.Run{ID: cron.RunID(r.RunID.Bytes), JobID: r.ID, Ref: r.Ref, Slot: at(r.RunSlot), Verdict: cron.Lost}
		if r.TimedOut {
			freed[i].Verdict = cron.TimedOut
		}
		if r.Controller != nil {
			freed[i].Controller = *r.Controller
		}
	}
	return freed, nil
}

func (s *Store) sweepHalves(ctx context.Context, controller string, lease, silence time.Duration, stuck []cron.Run, cause error) ([]cron.Run, error) {
	if len(stuck) > 1 {
		half := len(stuck) / 2
		first, err1 := s.SweepCronJobs(ctx, controller, lease, silence, stuck[:half])
		second, err2 := s.SweepCronJobs(ctx, controller, lease, silence, stuck[half:])
		return append(first, second...), errors.Join(err1, err2)
	}
	r := stuck[0]
	s.log.ErrorContext(ctx, "lost run refused by the ledger", "job", r.JobID, "run", r.ID, "error", cause)
	n, err := s.q(s.end).ReleaseCronJob(ctx, sqlc.ReleaseCronJobParams{ID: r.JobID, RunID: uid(r.ID)})
	if err != nil || n == 0 {
		return nil, wrap("release a cron job", err)
	}
	r.Verdict = cron.Lost
	return []cron.Run{r}, nil
}

// CreateRunPartitions makes the ledger's partitions up to so many days ahead; DropRunPartitions drops those older
// than keep days. Both return how many.
func (s *Store) CreateRunPartitions(ctx context.Context, ahead int) (int, error) {
	n, err := s.q(s.api).CreateRunPartitions(ctx, int32(ahead))
	return int(n), wrap("create partitions of the ledger", err)
}

func (s *Store) DropRunPartitions(ctx context.Context, keep int) (int, error) {
	n, err := s.q(s.api).DropRunPartitions(ctx, int32(keep))
	return int(n), wrap("drop partitions of the ledger", err)
}
