package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
	"carillon/backend/store/internal/sqlc"
)

// jobPools are the connections of the job queue: an end never queues behind a claim, a claim never behind an enqueue.
type jobPools struct{ enqueue, claim, end *pool }

// jobPlans are the settings of these connections. The table of jobs fills and empties faster than it is analyzed, so
// nothing may rest on what the planner believes to be in it. Plans are made once, for planning a statement anew costs more
// than a statement about one job (claim and end of single jobs: 1,275/s, 3,300/s with plans that stay), and every way but
// the index in its order is closed: a plan that was made while the table was empty is good when it is full.
var jobPlans = []string{"plan_cache_mode", "force_generic_plan", "enable_seqscan", "off", "enable_hashjoin", "off", "enable_mergejoin", "off", "enable_bitmapscan", "off", "random_page_cost", "1.1"}

// searchPlans are those of searches and of what people change: planned each time for what is asked, since parts that are
// left out decide which index serves.
var searchPlans = []string{"plan_cache_mode", "force_custom_plan", "enable_bitmapscan", "off", "random_page_cost", "1.1"}

// jobTx runs work in a transaction on the API connections, planned as searches of jobs are. Its error is wrapped by the
// caller.
func (s *Store) jobTx(ctx context.Context, work func(*sqlc.Queries) error) error {
	begin := cmp.Or(s.api.begin, "BEGIN")
	for i := 0; i+1 < len(searchPlans); i += 2 {
		begin += fmt.Sprintf("; SET LOCAL %s = '%s'", searchPlans[i], searchPlans[i+1])
	}
	return pgx.BeginTxFunc(ctx, s.api.Pool, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error { return work(sqlc.New(tx)) })
}

// FetchWindow reads what may be claimed next of some queues, up to page jobs of each, in order of due time and id, and
// the database's time; the time is zero if nothing was found. Jobs that come due within ahead are among them.
//
// A cut skips what was read before. Rows that committed late, and those that came back, stand before it: read again
// from the head, or from some seconds ago, now and then.
func (s *Store) FetchWindow(ctx context.Context, cuts []job.Cut, shards []int32, ahead time.Duration, page int) ([]job.Waiting, time.Time, error) {
	p := sqlc.FetchWindowParams{Owned: bitmap(shards), AheadSecs: ahead.Seconds(), Page: int32(page)}
	for _, c := range cuts {
		p.QueueIds = append(p.QueueIds, c.Queue)
		p.AfterDue = append(p.AfterDue, stamp(or(c.Due, beginning)))
		p.AfterID = append(p.AfterID, c.ID)
	}
	rows, err := s.q(s.jobs.claim).FetchWindow(ctx, p)
	if err != nil {
		return nil, time.Time{}, wrap("read windows", err)
	}
	waiting, now := toWaiting(rows)
	return waiting, now, nil
}

// bitmap is a set of shards as get_bit reads it.
func bitmap(shards []int32) []byte {
	set := make([]byte, (ring.Shards+7)/8)
	for _, s := range shards {
		if s >= 0 && s < ring.Shards {
			set[s/8] |= 1 << (s % 8)
		}
	}
	return set
}

// FetchOverdue reads ready jobs of any shard that have been due for longer than late, up to page of each queue that is
// not paused: what no owner took up.
func (s *Store) FetchOverdue(ctx context.Context, late time.Duration, page int) ([]job.Waiting, time.Time, error) {
	rows, err := s.q(s.jobs.claim).FetchOverdue(ctx, sqlc.FetchOverdueParams{LateSecs: late.Seconds(), Page: int32(page)})
	if err != nil {
		return nil, time.Time{}, wrap("look for overdue jobs", err)
	}
	same := make([]sqlc.FetchWindowRow, len(rows))
	for i, r := range rows {
		same[i] = sqlc.FetchWindowRow(r)
	}
	waiting, now := toWaiting(same)
	return waiting, now, nil
}

// FetchExpired reads the ids of ready jobs in some shards that must not begin any more, the longest expired first.
func (s *Store) FetchExpired(ctx context.Context, shards []int32, page int) ([]int64, error) {
	ids, err := s.q(s.jobs.claim).FetchExpired(ctx, sqlc.FetchExpiredParams{Owned: bitmap(shards), Page: int32(page)})
	return ids, wrap("look for expired jobs", err)
}

// ClaimJobs claims ready jobs in the name of a controller and returns those that were won. The others are not to run
// now: somebody has them, they ended, are not due, have expired, or their queue is paused. grace is added to a job's
// timeout for its hard one.
//
// Jobs of a verb with a limit are claimed only if limit names the verb, all of one call being of that verb, and as many
// as it has places: of the first in the order given. over are those for which there was no place; they are ready still.
//
// Unknown() of the error: some may have been claimed; FindOwnJobs finds them.
func (s *Store) ClaimJobs(ctx context.Context, controller string, grace time.Duration, claims []job.Claim, limit string) (won []job.Claimed, over []job.Claim, err error) {
	if len(claims) == 0 {
		return nil, nil, nil
	}
	p := sqlc.ClaimJobsParams{Controller: controller, GraceMs: int32(grace.Milliseconds()), Limited: limit != "", Ref: limit}
	if limit != "" {
		return s.claimLimited(ctx, p, claims)
	}
	won, err = again(ctx, func() ([]job.Claimed, error) { return claimJobs(ctx, s.q(s.jobs.claim), p, claims) })
	if isLocked(err) { // what somebody holds counts as lost; its neighbours go on
		won, err = again(ctx, func() (won []job.Claimed, err error) {
			err = inTx(ctx, s.jobs.claim, func(q *sqlc.Queries) error {
				open, err := freeOf(ctx, q, claims)
				if won = nil; err == nil && len(open) > 0 {
					won, err = claimJobs(ctx, q, p, open)
				}
				return err
			})
			return won, err
		})
	}
	return won, nil, wrap("claim jobs", err)
}

// claimLimited takes the places first. Who holds their lock must wait for no job, so that those which somebody is changing
// count as lost.
func (s *Store) claimLimited(ctx context.Context, p sqlc.ClaimJobsParams, claims []job.Claim) (won []job.Claimed, over []job.Claim, err error) {
	free, err := s.q(s.jobs.claim).GetLimit(ctx, p.Ref)
	if free == 0 && (err == nil || errors.Is(err, pgx.ErrNoRows)) { // full; or no limit any more, as the list of queues will say
		return nil, claims, nil
	}
	taken := 0
	if err == nil {
		won, err = again(ctx, func() (won []job.Claimed, err error) {
			err = inTx(ctx, s.jobs.claim, func(q *sqlc.Queries) error {
				free, err := q.LockLimit(ctx, p.Ref)
				if taken = min(int(free), len(claims)); err != nil || taken == 0 {
					return noRows(err)
				}
				open, err := freeOf(ctx, q, claims[:taken])
				if err != nil || len(open) == 0 {
					won = nil
					return err
				}
				if won, err = claimJobs(ctx, q, p, open); err != nil || len(won) == 0 {
					return err
				}
				return q.AddRunning(ctx, sqlc.AddRunningParams{Ref: p.Ref, N: int32(len(won))})
			})
			return won, err
		})
	}
	switch {
	case isLocked(err): // others have the places' lock for long: there is none now
		return nil, claims, nil
	case err != nil:
		return nil, nil, wrap("claim jobs of a limited verb", err)
	}
	return won, claims[taken:], nil
}

func freeOf(ctx context.Context, q *sqlc.Queries, claims []job.Claim) (open []job.Claim, err error) {
	ids := make([]int64, len(claims))
	for i, c := range claims {
		ids[i] = c.ID
	}
	rows, err := q.FreeJobs(ctx, ids)
	if err != nil {
		return nil, err
	}
	locked := make(map[int64]bool, len(rows))
	for _, id := range rows {
		locked[id] = true
	}
	for _, c := range claims {
		if locked[c.ID] {
			open = append(open, c)
		}
	}
	return open, nil
}

func claimJobs(ctx context.Context, q *sqlc.Queries, p sqlc.ClaimJobsParams, claims []job.Claim) ([]job.Claimed, error) {
	p.Ids, p.RunIds, p.RunDeployments = nil, nil, nil
	for _, c := range sortedByID(claims, func(c job.Claim) int64 { return c.ID }) {
		p.Ids = append(p.Ids, c.ID)
		p.RunIds = append(p.RunIds, uid(c.Run))
		p.RunDeployments = append(p.RunDeployments, c.Deployment)
	}
	rows, err := q.ClaimJobs(ctx, p)
	if err != nil {
		return nil, err
	}
	won := make([]job.Claimed, len(rows))
	for i, r := range rows {
		won[i] = toClaimed(r)
	}
	return won, nil
}

// FindLostJobs reads runs past their hard timeout or under a controller that has been silent for lease, unless the
// asking controller may not judge (see SweepCronJobs). They are without their payloads.
func (s *Store) FindLostJobs(ctx context.Context, controller string, lease, silence time.Duration, page int) ([]job.Lost, error) {
	rows, err := s.q(s.upkeep).FindLostJobs(ctx, sqlc.FindLostJobsParams{
		Controller: controller, LeaseSecs: lease.Seconds(), SilenceSecs: silence.Seconds(), Page: int32(page),
	})
	if err != nil {
		return nil, wrap("look for lost jobs", err)
	}
	lost := make([]job.Lost, len(rows))
	for i, r := range rows {
		lost[i] = job.Lost{Controller: r.Controller, TimedOut: r.TimedOut, Claimed: toClaimed(sqlc.ClaimJobsRow{
			ID: r.ID, RunID: r.RunID, QueueID: r.QueueID, Tenant: r.Tenant, Ref: r.Ref, Salt: r.Salt, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts,
			TimeoutMs: r.TimeoutMs, BackoffMs: r.BackoffMs, BackoffMaxMs: r.BackoffMaxMs, Slot: r.Slot, DueAt: r.DueAt, CreatedAt: r.CreatedAt,
			StartedAt: r.StartedAt, ExpiresAt: r.ExpiresAt, ParentID: r.ParentID, Limited: r.Limited,
		})}
		lost[i].CancelAsked = r.Cancelled
	}
	return lost, nil
}

// FindOwnJobs reads the runs in a controller's own name that began longer than older ago, after an id, without their
// payloads: the controller knows which of them it has.
func (s *Store) FindOwnJobs(ctx context.Context, controller string, older time.Duration, after int64, page int) ([]job.Claimed, error) {
	rows, err := s.q(s.upkeep).FindOwnJobs(ctx, sqlc.FindOwnJobsParams{Controller: controller, OlderSecs: older.Seconds(), After: after, Page: int32(page)})
	if err != nil {
		return nil, wrap("read own jobs", err)
	}
	own := make([]job.Claimed, len(rows))
	for i, r := range rows {
		own[i] = toClaimed(sqlc.ClaimJobsRow{
			ID: r.ID, RunID: r.RunID, QueueID: r.QueueID, Tenant: r.Tenant, Ref: r.Ref, Salt: r.Salt, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts,
			TimeoutMs: r.TimeoutMs, BackoffMs: r.BackoffMs, BackoffMaxMs: r.BackoffMaxMs, Slot: r.Slot, DueAt: r.DueAt, CreatedAt: r.CreatedAt,
			StartedAt: r.StartedAt, ExpiresAt: r.ExpiresAt, ParentID: r.ParentID, Limited: r.Limited,
		})
		own[i].CancelAsked = r.Cancelled
	}
	return own, nil
}

func toWaiting(rows []sqlc.FetchWindowRow) ([]job.Waiting, time.Time) {
	var now time.Time
	waiting := make([]job.Waiting, len(rows))
	for i, r := range rows {
		waiting[i] = job.Waiting{ID: r.ID, Queue: r.QueueID, Shard: r.Shard, Priority: int(r.Priority), Due: r.DueAt.Time.UTC(), Expires: at(r.ExpiresAt)}
		now = r.Now.Time.UTC()
	}
	return waiting, now
}

func toClaimed(r sqlc.ClaimJobsRow) job.Claimed {
	return job.Claimed{
		ID: job.ID{N: r.ID, Salt: r.Salt}, Tenant: r.Tenant, Ref: r.Ref, Queue: r.QueueID, Run: cron.RunID(r.RunID.Bytes), Attempt: int(r.Attempt),
		Retry: retryOf(r.MaxAttempts, r.BackoffMs, r.BackoffMaxMs), Timeout: milliseconds(r.TimeoutMs), Slot: at(r.Slot), Due: r.DueAt.Time.UTC(),
		Created: r.CreatedAt.Time.UTC(), Started: at(r.StartedAt), Expires: at(r.ExpiresAt), Parent: r.ParentID, Payload: r.Payload, Limited: r.Limited,
		TriggerID: r.TriggerID, Envelope: r.Envelope,
	}
}

func retryOf(attempts, backoff, ceiling int32) job.Retry {
	return job.Retry{Attempts: int(attempts), Backoff: milliseconds(backoff), Ceiling: milliseconds(ceiling)}
}

func milliseconds(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// inMs rounds up, so that nothing comes early.
func inMs(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// noRows makes an absent row no error.
func noRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// newSalts are the chance in the public ids of jobs.
func newSalts(n int) []int32 {
	raw := make([]byte, 4*n)
	rand.Read(raw)
	salts := make([]int32, n)
	for i := range salts {
		salts[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return salts
}
