package store

import (
	"context"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/store/internal/sqlc"
)

var (
	beginning = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	forever   = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

// ListRuns reads a page of the ledger, latest end first.
func (s *Store) ListRuns(ctx context.Context, f cron.RunFilter, after cron.RunCursor, page int) ([]cron.Run, error) {
	p := sqlc.ListRunsParams{
		Ref: f.Ref, Module: f.Module, Controller: f.Controller, Verdicts: []string{}, Page: int32(page),
		SlotFrom: stamp(or(f.From, beginning)), SlotUntil: stamp(or(f.To, forever)),
		BeforeEnd: stamp(or(after.EndedAt, forever)), BeforeID: after.JobID, BeforeSlot: stamp(or(after.Slot, beginning)),
	}
	for _, v := range f.Verdicts {
		p.Verdicts = append(p.Verdicts, string(v))
	}
	rows, err := s.q(s.api).ListRuns(ctx, p)
	if err != nil {
		return nil, wrap("list runs", err)
	}
	runs := make([]cron.Run, len(rows))
	for i, r := range rows {
		runs[i] = toRun(r.Run, r.Ref, r.Deployment)
	}
	return runs, nil
}

// ListHistory reads a page of one cron job's ledger, latest slot first, before a slot (zero: from the latest).
func (s *Store) ListHistory(ctx context.Context, jobID int64, before time.Time, page int) ([]cron.Run, error) {
	rows, err := s.q(s.api).ListHistory(ctx, sqlc.ListHistoryParams{CronJobID: jobID, BeforeSlot: stamp(or(before, forever)), Page: int32(page)})
	if err != nil {
		return nil, wrap("read the history", err)
	}
	runs := make([]cron.Run, len(rows))
	for i, r := range rows {
		runs[i] = toRun(r.Run, r.Ref, r.Deployment)
	}
	return runs, nil
}

// ListRunsSince reads a page of ledger rows after a cursor, oldest end first. A cursor with nothing but a time stands
// before all rows that ended then.
func (s *Store) ListRunsSince(ctx context.Context, ref, module string, after cron.RunCursor, page int) ([]cron.Run, error) {
	rows, err := s.q(s.api).ListRunsSince(ctx, sqlc.ListRunsSinceParams{
		AfterEnd: stamp(or(after.EndedAt, beginning)), AfterID: after.JobID, AfterSlot: stamp(or(after.Slot, beginning)),
		Ref: ref, Module: module, Page: int32(page),
	})
	if err != nil {
		return nil, wrap("watch runs", err)
	}
	runs := make([]cron.Run, len(rows))
	for i, r := range rows {
		runs[i] = toRun(r.Run, r.Ref, r.Deployment)
	}
	return runs, nil
}

// ListExecuting reads a page of the runs in flight, latest start first, before the start of a job's run (zero: from the
// latest). The filter's verdicts do not count.
func (s *Store) ListExecuting(ctx context.Context, f cron.RunFilter, before time.Time, jobID int64, page int) ([]cron.Run, error) {
	rows, err := s.q(s.api).ListExecuting(ctx, sqlc.ListExecutingParams{
		Ref: f.Ref, Module: f.Module, Controller: f.Controller, Page: int32(page),
		SlotFrom: stamp(or(f.From, beginning)), SlotUntil: stamp(or(f.To, forever)), BeforeStart: stamp(or(before, forever)), BeforeID: jobID,
	})
	if err != nil {
		return nil, wrap("list executing runs", err)
	}
	runs := make([]cron.Run, len(rows))
	for i, r := range rows {
		runs[i] = toJob(r.CronJob, "").Current
		runs[i].Deployment = r.Deployment
	}
	return runs, nil
}

// ListCronJobs reads a page of cron jobs in order of ref, after a ref; ref narrows to one.
func (s *Store) ListCronJobs(ctx context.Context, module, ref, after string, removed bool, page int) ([]cron.JobView, time.Time, error) {
	rows, err := s.q(s.api).ListCronJobs(ctx, sqlc.ListCronJobsParams{Module: module, Ref: ref, After: after, Removed: removed, Page: int32(page)})
	if err != nil {
		return nil, time.Time{}, wrap("list cron jobs", err)
	}
	var now time.Time
	views := make([]cron.JobView, len(rows))
	for i, r := range rows {
		views[i] = cron.JobView{Job: toJob(r.CronJob, r.Deployment), PausedNote: r.PausedNote, SetAsideNote: r.SetAsideNote, MinReplicas: int(r.MinReplicas)}
		now = r.Now.Time.UTC()
	}
	return views, now, nil
}

// FindOverlaps looks for slots that were decided twice since a time; at most 100.
func (s *Store) FindOverlaps(ctx context.Context, since time.Time) ([]cron.DoubleVerdict, error) {
	rows, err := s.q(s.api).FindOverlaps(ctx, stamp(since))
	if err != nil {
		return nil, wrap("look for overlapping verdicts", err)
	}
	out := make([]cron.DoubleVerdict, len(rows))
	for i, r := range rows {
		out[i] = cron.DoubleVerdict{JobID: r.CronJobID, Slot: r.Slot.Time.UTC(), SlotTo: r.SlotTo.Time.UTC(), PrevTo: r.PrevTo.Time.UTC()}
	}
	return out, nil
}

// CountWedged scans for them.
func (s *Store) CountWedged(ctx context.Context, bound time.Duration) (cron.Wedged, error) {
	r, err := s.q(s.api).CountWedged(ctx, bound.Seconds())
	return cron.Wedged{Overdue: int(r.Overdue), Stuck: int(r.Stuck), SetAside: int(r.SetAside)}, wrap("count wedged cron jobs", err)
}

func or(t, other time.Time) time.Time {
	if t.IsZero() {
		return other
	}
	return t
}
