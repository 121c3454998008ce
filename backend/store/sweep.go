package store

import (
	"context"
	"errors"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/store/internal/sqlc"
)

const scanPage = 2000

// ScanCronJobs reads, in one pass, what the ring should never leave behind (see the query). own is the age from which
// runs in the controller's own name are listed.
func (s *Store) ScanCronJobs(ctx context.Context, controller string, overdue, own, lease time.Duration) ([]cron.Found, error) {
	rows, err := s.q(s.api).ScanCronJobs(ctx, sqlc.ScanCronJobsParams{
		Controller: controller, OverdueSecs: overdue.Seconds(), MineSecs: own.Seconds(), LeaseSecs: lease.Seconds(), Page: scanPage,
	})
	if err != nil {
		return nil, wrap("scan cron jobs", err)
	}
	found := make([]cron.Found, len(rows))
	for i, r := range rows {
		found[i] = cron.Found{JobID: r.ID, RunID: cron.RunID(r.RunID.Bytes), Ref: r.Ref, Slot: at(r.RunSlot), Overdue: r.Overdue, Mine: r.Mine, Stuck: r.Stuck}
	}
	return found, nil
}

// SweepCronJobs frees those of the given runs that are still lost, judged by the statement itself, which also asks
// whether the sweeping controller may judge at all.
func (s *Store) SweepCronJobs(ctx context.Context, controller string, lease, silence time.Duration, stuck []cron.Found) ([]cron.Freed, error) {
	if len(stuck) == 0 {
		return nil, nil
	}
	p := sqlc.SweepCronJobsParams{Controller: controller, LeaseSecs: lease.Seconds(), SilenceSecs: silence.Seconds()}
	for _, f := range sortedByID(stuck, func(f cron.Found) int64 { return f.JobID }) {
		p.Ids = append(p.Ids, f.JobID)
		p.RunIds = append(p.RunIds, uid(f.RunID))
	}
	rows, err := again(ctx, func() ([]sqlc.SweepCronJobsRow, error) { return s.q(s.end).SweepCronJobs(ctx, p) })
	if err = wrap("sweep cron jobs", err); isData(err) {
		return s.sweepHalves(ctx, controller, lease, silence, stuck, err)
	}
	if err != nil {
		return nil, err
	}
	freed := make([]cron.Freed, len(rows))
	for i, r := range rows {
		freed[i] = cron.Freed{JobID: r.ID, RunID: cron.RunID(r.RunID.Bytes), Ref: r.Ref, Slot: at(r.RunSlot), TimedOut: r.TimedOut}
		if r.Controller != nil {
			freed[i].Controller = *r.Controller
		}
	}
	return freed, nil
}

func (s *Store) sweepHalves(ctx context.Context, controller string, lease, silence time.Duration, stuck []cron.Found, cause error) ([]cron.Freed, error) {
	if len(stuck) > 1 {
		half := len(stuck) / 2
		first, err1 := s.SweepCronJobs(ctx, controller, lease, silence, stuck[:half])
		second, err2 := s.SweepCronJobs(ctx, controller, lease, silence, stuck[half:])
		return append(first, second...), errors.Join(err1, err2)
	}
	f := stuck[0]
	s.log.ErrorContext(ctx, "lost run refused by the ledger", "job", f.JobID, "run", f.RunID, "error", cause)
	n, err := s.q(s.end).ReleaseCronJob(ctx, sqlc.ReleaseCronJobParams{ID: f.JobID, RunID: uid(f.RunID)})
	if err != nil || n == 0 {
		return nil, wrap("release a cron job", err)
	}
	return []cron.Freed{{JobID: f.JobID, RunID: f.RunID, Ref: f.Ref, Slot: f.Slot}}, nil
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
