package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// FireCronJobs claims slots of rows that fire, in the name of a controller, and makes a job of each: one statement, and
// for rows that cancel what went before, or that count for a limit, one transaction. It returns the claims that were won; a missing one was lost:
// read its row with GetCronJobs. Unknown() of the error: each slot is fired once all the same; LookupFired says which.
//
// The jobs are in slot order within their queue. Where they run one at a time, a failed one that waits for its next
// attempt lets later slots go first: a slot that fails for an hour must not stop the clock for as long.
func (s *Store) FireCronJobs(ctx context.Context, controller string, claims []cron.Claim) ([]cron.Firing, error) {
	var kinds [3][]cron.Claim // plain, cancelling, limited
	for _, c := range sortedByID(claims, func(c cron.Claim) int64 { return c.JobID }) {
		kind := 0
		if c.Cancels {
			kind = 1
		} else if c.Limited {
			kind = 2
		}
		kinds[kind] = append(kinds[kind], c)
	}
	var fired []cron.Firing
	var errs []error
	for _, claims := range kinds {
		more, err := s.fire(ctx, controller, claims)
		fired, errs = append(fired, more...), append(errs, err)
	}
	return fired, errors.Join(errs...)
}

// fire is FireCronJobs for claims that all cancel, or count for a limit, or all do neither.
func (s *Store) fire(ctx context.Context, controller string, claims []cron.Claim) ([]cron.Firing, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	fired, err := s.fireOnce(ctx, controller, claims)
	if isLocked(err) { // what somebody holds counts as lost; its neighbours go on
		free, lockErr := unlocked(ctx, s.q(s.claim), claims, func(c cron.Claim) int64 { return c.JobID })
		if lockErr != nil || len(free) == 0 || len(free) == len(claims) {
			return nil, errors.Join(err, lockErr)
		}
		return s.fire(ctx, controller, free)
	}
	if !isData(err) {
		return fired, err
	}
	if len(claims) > 1 { // one bad row must not hold its neighbours back
		half := len(claims) / 2
		first, err1 := s.fire(ctx, controller, claims[:half])
		second, err2 := s.fire(ctx, controller, claims[half:])
		return append(first, second...), errors.Join(err1, err2)
	}
	return s.fireBadRow(ctx, controller, claims[0], err)
}

// fireBadRow fires a slot whose row was refused: without the skipped range, and if the slot itself has a verdict already
// (a restored backup, a hand), not at all: that verdict stands and the row goes on.
func (s *Store) fireBadRow(ctx context.Context, controller string, c cron.Claim, cause error) ([]cron.Firing, error) {
	s.log.ErrorContext(ctx, "firing refused by the ledger", "job", c.JobID, "slot", c.Slot, "error", cause)
	if !c.Skip.IsZero() {
		c.Skip = cron.Range{}
		if fired, err := s.fireOnce(ctx, controller, []cron.Claim{c}); !isData(err) {
			return fired, err
		}
	}
	_, err := s.q(s.claim).PassCronJob(ctx, sqlc.PassCronJobParams{
		ID: c.JobID, Version: c.Version, Expected: stamp(c.Expected), Slot: stamp(c.Slot), NextAfter: stamp(c.Next),
	})
	return nil, wrap("pass a decided slot", err)
}

func (s *Store) fireOnce(ctx context.Context, controller string, claims []cron.Claim) ([]cron.Firing, error) {
	p := sqlc.FireCronJobsParams{Controller: controller, Cancels: claims[0].Cancels, Limited: claims[0].Limited, MaxLive: cron.MaxLive, Priority: job.DefaultPriority, Salts: newSalts(len(claims))}
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
	var parents map[int64]int
	fired, err := again(ctx, func() (fired []cron.Firing, err error) {
		if !p.Cancels && !p.Limited {
			return fireRows(ctx, s.q(s.claim), p)
		}
		err = inTx(ctx, s.claim, func(q *sqlc.Queries) error {
			if fired, err = fireRows(ctx, q, p); err != nil {
				return err
			}
			if p.Limited {
				return deferFirings(ctx, q, fired)
			}
			parents, err = cancelEarlier(ctx, q, fired)
			return err
		})
		return fired, err
	})
	if err != nil {
		return nil, wrap("fire cron jobs", err)
	}
	s.fellEarlier(ctx, fired, parents)
	return fired, nil
}

func fireRows(ctx context.Context, q *sqlc.Queries, p sqlc.FireCronJobsParams) ([]cron.Firing, error) {
	rows, err := q.FireCronJobs(ctx, p)
	if err != nil {
		return nil, err
	}
	fired := make([]cron.Firing, len(rows))
	for i, r := range rows {
		fired[i] = cron.Firing{JobID: r.ID, Ref: r.Ref, RunID: cron.RunID(r.RunID.Bytes), Slot: r.Slot.Time.UTC(), At: at(r.StartedAt), Queue: *r.QueueID}
		if r.JobID != 0 {
			fired[i].Made = cron.Made{N: r.JobID, Salt: r.Salt}
		}
	}
	return fired, nil
}

// deferFirings counts firings for the limits of their workers; the jobs that are too many are due when the next window
// opens. The meters are locked after the rows.
func deferFirings(ctx context.Context, q *sqlc.Queries, fired []cron.Firing) error {
	var made []int64
	place := make(map[int64]int, len(fired))
	for i, f := range fired {
		if f.Made.N != 0 {
			made = append(made, f.Made.N)
			place[f.Made.N] = i
		}
	}
	if len(made) == 0 {
		return nil
	}
	rows, err := q.ListFiringUses(ctx, made)
	if err != nil {
		return err
	}
	uses := make([]use, len(rows))
	for i, r := range rows {
		uses[i] = useOf(r.Tenant, r.Domain, r.Ref)
	}
	rulings, err := takeRates(ctx, q, uses)
	if err != nil {
		return err
	}
	var off sqlc.PutOffJobsParams
	for i, r := range rows {
		if due := rulings[i].Due; !due.IsZero() {
			fired[place[r.ID]].Due = due
			off.Ids, off.Due = append(off.Ids, r.ID), append(off.Due, stamp(due))
		}
	}
	if len(off.Ids) == 0 {
		return nil
	}
	return q.PutOffJobs(ctx, off)
}

// cancelEarlier cancels what the same cron jobs made before: what waits ends at once, what runs is noted in the answer.
// It returns those of them that have children, with the place of the firing that cancelled them.
func cancelEarlier(ctx context.Context, q *sqlc.Queries, fired []cron.Firing) (parents map[int64]int, err error) {
	var p sqlc.CancelEarlierJobsParams
	place := make(map[int64]int, len(fired))
	for i, f := range fired {
		if f.Made.N != 0 {
			p.CronJobIds = append(p.CronJobIds, f.JobID)
			p.JobIds = append(p.JobIds, f.Made.N)
			place[f.JobID] = i
		}
	}
	if len(p.JobIds) == 0 {
		return nil, nil
	}
	rows, err := q.CancelEarlierJobs(ctx, p)
	if err != nil {
		return nil, err
	}
	parents = map[int64]int{}
	var waiting []int64
	for _, r := range rows {
		i := place[*r.CronJobID]
		if r.Children > 0 {
			parents[r.ID] = i
		}
		if job.State(r.State) != job.Running {
			waiting = append(waiting, r.ID)
			continue
		}
		fired[i].Cancelled = append(fired[i].Cancelled, cron.CancelledRun{
			Made: cron.Made{N: r.ID, Salt: r.Salt}, Run: cron.RunID(r.RunID.Bytes), Controller: r.Controller,
		})
	}
	slices.Sort(waiting)
	_, err = endWaiting(ctx, q, sqlc.EndWaitingParams{Ids: waiting, Text: "a later slot came"}, nil)
	return parents, err
}

// fellEarlier cancels what lives below jobs that a firing cancelled, after its commit, as CancelJob does.
func (s *Store) fellEarlier(ctx context.Context, fired []cron.Firing, parents map[int64]int) {
	for id, i := range parents {
		for _, c := range s.fell(ctx, id) {
			fired[i].Cancelled = append(fired[i].Cancelled, cron.CancelledRun{Made: cron.Made(c.ID), Run: c.Run, Controller: c.Controller})
		}
	}
}

// LookupFired says which of these claims were fired although their answer got lost, as FireCronJobs would have said it.
// Behind LookupCronJobs on their rows it knows all that have arrived.
func (s *Store) LookupFired(ctx context.Context, claims []cron.Claim) ([]cron.Firing, error) {
	var p sqlc.GetFiredParams
	for _, c := range claims {
		p.Ids = append(p.Ids, c.JobID)
		p.Slots = append(p.Slots, stamp(c.Slot))
		p.RunIds = append(p.RunIds, uid(c.RunID))
	}
	rows, err := s.q(s.claim).GetFired(ctx, p)
	if err != nil {
		return nil, wrap("look firings up", err)
	}
	fired := make([]cron.Firing, len(rows))
	index, cancelling := make(map[int64]int, len(rows)), []int64(nil)
	for i, r := range rows {
		fired[i] = cron.Firing{
			JobID: r.CronJobID, Ref: r.Ref, RunID: cron.RunID(r.RunID.Bytes), Slot: r.Slot.Time.UTC(), At: at(r.StartedAt),
			Made: cron.Made{N: *r.JobID, Salt: *r.JobSalt}, Queue: r.QueueID,
		}
		index[r.CronJobID] = i
	}
	for _, c := range claims {
		if _, ok := index[c.JobID]; ok && c.Cancels {
			cancelling = append(cancelling, c.JobID)
		}
	}
	if len(cancelling) == 0 {
		return fired, nil
	}
	runs, err := s.q(s.claim).ListCancelledRuns(ctx, cancelling)
	for _, r := range runs {
		f := &fired[index[*r.CronJobID]]
		f.Cancelled = append(f.Cancelled, cron.CancelledRun{Made: cron.Made{N: r.ID, Salt: r.Salt}, Run: cron.RunID(r.RunID.Bytes), Controller: r.Controller})
	}
	return fired, wrap("look cancelled runs up", err)
}

// FireManualRun makes a job of a row that fires now (run now); id is what the ledger names it by, beside the job's. The
// job in the answer has it as Current. ErrNotFound: no such verb; ErrPrecond: jobs that it made are in the way, as they
// would be for a slot, or it does not fire, or not now.
func (s *Store) FireManualRun(ctx context.Context, controller, ref string, id cron.RunID) (cron.Job, cron.Firing, error) {
	salt := newSalts(1)[0]
	var parents map[int64]int
	fired, err := again(ctx, func() (fired []cron.Firing, err error) {
		err = inTx(ctx, s.api, func(q *sqlc.Queries) error {
			rows, err := q.FireManualRun(ctx, sqlc.FireManualRunParams{
				RunID: uid(id), Controller: controller, Ref: ref, Salt: salt, MaxLive: cron.MaxLive, Priority: job.DefaultPriority,
			})
			if err != nil || len(rows) == 0 {
				return err
			}
			r := rows[0]
			fired = []cron.Firing{{
				JobID: r.ID, Ref: r.Ref, RunID: id, Slot: r.Slot.Time.UTC(), At: at(r.StartedAt), Made: cron.Made{N: r.JobID, Salt: salt}, Queue: *r.QueueID,
			}}
			if r.Cancels {
				parents, err = cancelEarlier(ctx, q, fired)
			}
			return err
		})
		return fired, err
	})
	if err != nil {
		return cron.Job{}, cron.Firing{}, wrap("fire a manual run", err)
	}
	s.fellEarlier(ctx, fired, parents)
	j, _, err := s.GetCronJob(ctx, ref)
	if err != nil && len(fired) == 0 {
		return cron.Job{}, cron.Firing{}, err
	}
	if len(fired) == 0 {
		return cron.Job{}, cron.Firing{}, wrap("fire a manual run", whyNotFired(j))
	}
	f := fired[0]
	j.ID, j.Ref, j.Fires = f.JobID, f.Ref, true
	j.Current = cron.Run{
		ID: id, JobID: f.JobID, Ref: f.Ref, Slot: f.Slot, SlotTo: f.Slot, Count: 1, Kind: cron.ManualRun, Deployment: j.Deployment, Controller: controller,
		StartedAt: f.At, EndedAt: f.At, Verdict: cron.Fired, Made: f.Made,
	}
	return j, f, nil
}

func whyNotFired(j cron.Job) error {
	switch {
	case !j.RemovedAt.IsZero():
		return fmt.Errorf("%w: %s was removed by a later deployment", cron.ErrPrecond, j.Ref)
	case !j.Fires:
		return fmt.Errorf("%w: %s makes no jobs", cron.ErrPrecond, j.Ref)
	case j.State == cron.Executing:
		return fmt.Errorf("%w: %s is executing", cron.ErrPrecond, j.Ref)
	case j.Overlap == cron.OverlapSkip && j.Catchup != cron.CatchupAll:
		return fmt.Errorf("%w: the job before of %s has not ended, or its module is scaled to 0", cron.ErrPrecond, j.Ref)
	}
	return fmt.Errorf("%w: %d jobs of %s have not ended, or its module is scaled to 0", cron.ErrPrecond, cron.MaxLive, j.Ref)
}
