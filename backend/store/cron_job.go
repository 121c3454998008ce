package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/store/internal/sqlc"
)

const pageSize = 5000

// StartCronJobs claims slots in the name of a controller, in one statement, and returns the claims that were won.
// A claim that is missing from the answer was lost: read its row with GetCronJobs. grace is added to a row's soft
// timeout for its hard one. Unknown() of the error: look the claims up by run id (LookupCronJobs).
func (s *Store) StartCronJobs(ctx context.Context, controller string, grace time.Duration, claims []cron.Claim) ([]cron.Claimed, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	claims = sortedByID(claims, func(c cron.Claim) int64 { return c.JobID })
	won, err := s.startCronJobs(ctx, controller, grace, claims)
	if isLocked(err) { // what somebody holds counts as lost; its neighbours go on
		free, lockErr := unlocked(ctx, s.q(s.claim), claims, func(c cron.Claim) int64 { return c.JobID })
		if lockErr != nil || len(free) == 0 || len(free) == len(claims) {
			return nil, errors.Join(err, lockErr)
		}
		return s.StartCronJobs(ctx, controller, grace, free)
	}
	if !isData(err) {
		return won, err
	}
	if len(claims) > 1 { // one bad row must not hold its neighbours back
		half := len(claims) / 2
		first, err1 := s.StartCronJobs(ctx, controller, grace, claims[:half])
		second, err2 := s.StartCronJobs(ctx, controller, grace, claims[half:])
		return append(first, second...), errors.Join(err1, err2)
	}
	// Alone, only the skipped range can be refused: it is in the ledger already (a restored backup, a hand).
	if claims[0].Skip.IsZero() {
		return nil, err
	}
	s.log.ErrorContext(ctx, "skipped slots refused by the ledger", "job", claims[0].JobID, "from", claims[0].Skip.From, "to", claims[0].Skip.To, "error", err)
	claims = slices.Clone(claims)
	claims[0].Skip = cron.Range{}
	return s.startCronJobs(ctx, controller, grace, claims)
}

func (s *Store) startCronJobs(ctx context.Context, controller string, grace time.Duration, claims []cron.Claim) ([]cron.Claimed, error) {
	p := sqlc.StartCronJobsParams{Controller: controller, GraceMs: int32(grace.Milliseconds())}
	for _, c := range claims {
		p.Ids = append(p.Ids, c.JobID)
		p.Versions = append(p.Versions, c.Version)
		p.Expected = append(p.Expected, stamp(c.Expected))
		p.Slots = append(p.Slots, stamp(c.Slot))
		p.NextAfter = append(p.NextAfter, stamp(c.Next))
		p.RunIds = append(p.RunIds, uid(c.RunID))
		p.SkipFrom = append(p.SkipFrom, stamp(c.Skip.From))
		p.SkipTo = append(p.SkipTo, stamp(c.Skip.To))
		p.SkipCount = append(p.SkipCount, int32(c.Skip.Count))
	}
	rows, err := again(ctx, func() ([]sqlc.StartCronJobsRow, error) { return s.q(s.claim).StartCronJobs(ctx, p) })
	if err != nil {
		return nil, wrap("claim cron jobs", err)
	}
	won := make([]cron.Claimed, len(rows))
	for i, r := range rows {
		won[i] = cron.Claimed{JobID: r.ID, StartedAt: at(r.StartedAt), DeadlineAt: at(r.DeadlineAt)}
	}
	return won, nil
}

// SkipCronJobs decides ranges of missed slots of which none runs; the rows stay idle. Claims that lost are silent.
func (s *Store) SkipCronJobs(ctx context.Context, controller string, claims []cron.Claim) error {
	if len(claims) == 0 {
		return nil
	}
	p := sqlc.SkipCronJobsParams{Controller: controller}
	for _, c := range sortedByID(claims, func(c cron.Claim) int64 { return c.JobID }) {
		p.Ids = append(p.Ids, c.JobID)
		p.Versions = append(p.Versions, c.Version)
		p.SkipFrom = append(p.SkipFrom, stamp(c.Skip.From))
		p.SkipTo = append(p.SkipTo, stamp(c.Skip.To))
		p.NextAfter = append(p.NextAfter, stamp(c.Next))
		p.SkipCount = append(p.SkipCount, int32(c.Skip.Count))
	}
	_, err := again(ctx, func() ([]int64, error) { return s.q(s.claim).SkipCronJobs(ctx, p) })
	return wrap("skip missed slots", err)
}

// StartManualRun starts a run now, in the name of a controller. ErrNotFound: no such verb; ErrPrecond: it executes, or it
// is a row that fires (FireManualRun).
func (s *Store) StartManualRun(ctx context.Context, controller string, grace time.Duration, ref string, id cron.RunID) (cron.Job, error) {
	_, err := s.q(s.api).StartManualRun(ctx, sqlc.StartManualRunParams{
		Ref: ref, RunID: uid(id), Controller: controller, GraceMs: int32(grace.Milliseconds()),
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return cron.Job{}, wrap("start a manual run", err)
	}
	job, _, getErr := s.GetCronJob(ctx, ref)
	switch {
	case getErr != nil:
		return cron.Job{}, getErr
	case err == nil && job.Current.ID == id:
		return job, nil
	case !job.RemovedAt.IsZero():
		return cron.Job{}, wrap("start a manual run", fmt.Errorf("%w: %s was removed by a later deployment", cron.ErrPrecond, ref))
	case job.Fires:
		return cron.Job{}, wrap("start a manual run", fmt.Errorf("%w: %s makes jobs and never executes: fire it", cron.ErrPrecond, ref))
	case job.State == cron.Idle:
		return cron.Job{}, wrap("start a manual run", fmt.Errorf("%w: the module of %s is scaled to 0", cron.ErrPrecond, ref))
	default:
		return cron.Job{}, wrap("start a manual run", fmt.Errorf("%w: %s is executing", cron.ErrPrecond, ref))
	}
}

// EndCronJobs ends runs and writes the ledger, in one statement, and answers each end. The context should outlive a
// shutdown. A bad row is isolated by halving, and ended with a safe text.
func (s *Store) EndCronJobs(ctx context.Context, ends []cron.End) ([]cron.Ended, error) {
	if len(ends) == 0 {
		return nil, nil
	}
	ends = sortedByID(ends, func(e cron.End) int64 { return e.JobID })
	done, err := s.endCronJobs(ctx, ends)
	if isLocked(err) { // what somebody holds gets no answer and is sent again; its neighbours are ended
		free, lockErr := unlocked(ctx, s.q(s.end), ends, func(e cron.End) int64 { return e.JobID })
		if lockErr != nil || len(free) == 0 || len(free) == len(ends) {
			return nil, errors.Join(err, lockErr)
		}
		done, endErr := s.EndCronJobs(ctx, free)
		return done, errors.Join(err, endErr)
	}
	if !isData(err) {
		return done, err
	}
	if len(ends) > 1 {
		half := len(ends) / 2
		first, err1 := s.EndCronJobs(ctx, ends[:half])
		second, err2 := s.EndCronJobs(ctx, ends[half:])
		return append(first, second...), errors.Join(err1, err2)
	}
	return s.endBadRow(ctx, ends[0], err)
}

// endBadRow ends a run whose row the database refused: with a safe text, then without its skipped range, and at last
// without a ledger row, if its slot has a verdict already. It must not stay executing.
func (s *Store) endBadRow(ctx context.Context, e cron.End, cause error) ([]cron.Ended, error) {
	s.log.ErrorContext(ctx, "end refused by the database", "job", e.JobID, "run", e.RunID, "error", cause)
	if safe := cron.SafeText(e.Error); safe != e.Error {
		e.Error = safe
		if done, err := s.endCronJobs(ctx, []cron.End{e}); !isData(err) {
			return done, err
		}
	}
	e.Overlap = cron.Range{}
	done, err := s.endCronJobs(ctx, []cron.End{e})
	if !isData(err) {
		return done, err
	}
	n, err := s.q(s.end).ReleaseCronJob(ctx, sqlc.ReleaseCronJobParams{ID: e.JobID, RunID: uid(e.RunID)})
	return []cron.Ended{{JobID: e.JobID, RunID: e.RunID, Accepted: n > 0, Repeated: true}}, wrap("release a cron job", err)
}

func (s *Store) endCronJobs(ctx context.Context, ends []cron.End) ([]cron.Ended, error) {
	var p sqlc.EndCronJobsParams
	for _, e := range ends {
		p.Ids = append(p.Ids, e.JobID)
		p.RunIds = append(p.RunIds, uid(e.RunID))
		p.Verdicts = append(p.Verdicts, string(e.Verdict))
		p.Errors = append(p.Errors, e.Error)
		p.Versions = append(p.Versions, e.Version)
		p.SkipFrom = append(p.SkipFrom, stamp(e.Overlap.From))
		p.SkipTo = append(p.SkipTo, stamp(e.Overlap.To))
		p.SkipCount = append(p.SkipCount, int32(e.Overlap.Count))
		p.NextAfter = append(p.NextAfter, stamp(e.Next))
	}
	rows, err := again(ctx, func() ([]sqlc.EndCronJobsRow, error) { return s.q(s.end).EndCronJobs(ctx, p) })
	if err != nil {
		return nil, wrap("end cron jobs", err)
	}
	done := make([]cron.Ended, 0, len(ends))
	accepted := make(map[cron.RunID]bool, len(rows))
	for _, r := range rows {
		id := cron.RunID(r.RunID.Bytes)
		accepted[id] = true
		done = append(done, cron.Ended{JobID: r.ID, RunID: id, Accepted: true, Next: at(r.NextExecution), Version: r.Version, Enabled: r.Enabled, Skipped: r.Applied})
	}
	if len(rows) == len(ends) {
		return done, nil
	}
	missing := slices.DeleteFunc(slices.Clone(ends), func(e cron.End) bool { return accepted[e.RunID] })
	late, err := s.lateEnds(ctx, missing)
	return append(done, late...), err
}

// lateEnds tells ends that were written before (their answer got lost) from ends of runs that are not current.
func (s *Store) lateEnds(ctx context.Context, ends []cron.End) ([]cron.Ended, error) {
	var p sqlc.GetEndedRunsParams
	for _, e := range ends {
		p.Ids = append(p.Ids, e.JobID)
		p.Slots = append(p.Slots, stamp(e.Slot))
		p.RunIds = append(p.RunIds, uid(e.RunID))
	}
	rows, err := s.q(s.end).GetEndedRuns(ctx, p)
	if err != nil {
		return nil, wrap("look ended runs up", err)
	}
	type said struct {
		verdict cron.Verdict
		text    string
	}
	written := make(map[cron.RunID]said, len(rows))
	for _, r := range rows {
		written[cron.RunID(r.RunID.Bytes)] = said{cron.Verdict(r.Verdict), text(r.Error)}
	}
	late := make([]cron.Ended, len(ends))
	for i, e := range ends {
		// Another verdict or another text is the sweep's: this end came too late.
		w := written[e.RunID]
		same := w.verdict == e.Verdict && (w.text == e.Error || w.text == cron.SafeText(e.Error))
		late[i] = cron.Ended{JobID: e.JobID, RunID: e.RunID, Accepted: same, Repeated: same}
	}
	return late, nil
}

// GetCronJobs reads rows as they are now; deleted ones are missing. The time is the database's, taken with the rows.
func (s *Store) GetCronJobs(ctx context.Context, ids []int64) ([]cron.Job, time.Time, error) {
	rows, err := s.q(s.claim).GetCronJobs(ctx, ids)
	if err != nil {
		return nil, time.Time{}, wrap("read cron jobs", err)
	}
	jobs, now := toJobs(rows)
	return jobs, now, nil
}

func toJobs(rows []sqlc.GetCronJobsRow) (jobs []cron.Job, now time.Time) {
	jobs = make([]cron.Job, len(rows))
	for i, r := range rows {
		jobs[i], now = toJob(r.CronJob, r.Deployment), r.Now.Time.UTC()
	}
	return jobs, now
}

// LookupCronJobs reads rows whose claim has an unknown outcome; it waits for a claim still under way on them.
func (s *Store) LookupCronJobs(ctx context.Context, ids []int64) ([]cron.Job, time.Time, error) {
	var rows []sqlc.GetCronJobsRow
	err := inTx(ctx, s.claim, func(q *sqlc.Queries) (err error) {
		if _, err = q.AwaitCronJobs(ctx, ids); err == nil {
			rows, err = q.GetCronJobs(ctx, ids)
		}
		return err
	})
	if err != nil {
		return nil, time.Time{}, wrap("look claims up", err)
	}
	jobs, now := toJobs(rows)
	return jobs, now, nil
}

// GetCronJob reads one row by its ref, also a removed one. ErrNotFound: there is none.
func (s *Store) GetCronJob(ctx context.Context, ref string) (cron.Job, time.Time, error) {
	r, err := s.q(s.api).GetCronJob(ctx, ref)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: no cron job %s", cron.ErrNotFound, ref)
	}
	if err != nil {
		return cron.Job{}, time.Time{}, wrap("read a cron job", err)
	}
	return toJob(r.CronJob, r.Deployment), r.Now.Time.UTC(), nil
}

// ListShards hands out all rows of some shards, page by page, and the database's time of the last page.
func (s *Store) ListShards(ctx context.Context, shards []int32, yield func([]cron.Job) error) (time.Time, error) {
	var now time.Time
	for after := int64(0); ; {
		rows, err := s.q(s.claim).ListShards(ctx, sqlc.ListShardsParams{Shards: shards, After: after, Page: pageSize})
		if err != nil {
			return now, wrap("read shards", err)
		}
		jobs := make([]cron.Job, len(rows))
		for i, r := range rows {
			jobs[i], now, after = toJob(r.CronJob, r.Deployment), r.Now.Time.UTC(), r.CronJob.ID
		}
		if err := yield(jobs); err != nil || len(rows) < pageSize {
			return now, err
		}
	}
}

// ListModules reads all rows of some modules, also the removed ones.
func (s *Store) ListModules(ctx context.Context, modules []string) ([]cron.Job, error) {
	var jobs []cron.Job
	for after := int64(0); ; {
		rows, err := s.q(s.claim).ListModules(ctx, sqlc.ListModulesParams{Modules: modules, After: after, Page: pageSize})
		if err != nil {
			return nil, wrap("read modules", err)
		}
		for _, r := range rows {
			jobs, after = append(jobs, toJob(r.CronJob, r.Deployment)), r.CronJob.ID
		}
		if len(rows) < pageSize {
			return jobs, nil
		}
	}
}

// SetAsideCronJob takes a row whose schedule cannot be used off the clock; nothing happens if it changed meanwhile.
func (s *Store) SetAsideCronJob(ctx context.Context, id, version int64, reason string) error {
	_, err := s.q(s.claim).SetAsideCronJob(ctx, sqlc.SetAsideCronJobParams{ID: id, Version: version, Reason: cron.SafeText(reason)})
	return wrap("set a cron job aside", err)
}

// RepairCronJob mends a next slot that the schedule does not have; nothing happens if the row changed meanwhile.
func (s *Store) RepairCronJob(ctx context.Context, id, version int64, expected, next time.Time) error {
	_, err := s.q(s.claim).RepairCronJob(ctx, sqlc.RepairCronJobParams{ID: id, Version: version, Expected: ptr(expected), NextExecution: stamp(next)})
	return wrap("repair a cron job", err)
}

// unlocked returns the part of a list whose rows nobody holds.
func unlocked[T any](ctx context.Context, q *sqlc.Queries, list []T, id func(T) int64) ([]T, error) {
	ids := make([]int64, len(list))
	for i, v := range list {
		ids[i] = id(v)
	}
	free, err := q.ListUnlocked(ctx, ids)
	if err != nil {
		return nil, wrap("ask which rows are locked", err)
	}
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool {
		_, found := slices.BinarySearch(free, id(v))
		return !found
	}), nil
}

// again repeats what a deadlock or a serialization failure undid: nothing was written, and the winner is through.
func again[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := call()
		if err == nil || !isDeadlock(err) || try == 5 || ctx.Err() != nil {
			return v, err
		}
		slog.DebugContext(ctx, "deadlock repeated", "try", try)
	}
}

func sortedByID[T any](list []T, id func(T) int64) []T {
	less := func(a, b T) int { return int(min(max(id(a)-id(b), -1), 1)) }
	if slices.IsSortedFunc(list, less) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, less)
	return list
}
