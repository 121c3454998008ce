package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// EnqueueJobs writes a batch of validated jobs, with their keys, and answers each in order. Jobs without keys are one
// statement, others one transaction, and children one of their own: they wait for their parents' locks. A child whose
// parent is not running in the run that it names has cron.ErrPrecond in its answer. Those with a run start at once in the name of the controller, unless their queue is
// paused or limited; grace is added to their timeout for the hard one.
//
// A job that the database refuses, or whose key somebody holds, is found by halving and has the error in its answer, as one whose idempotency key
// belongs to another request has cron.ErrExists. Unknown() of the error: all may be in, or none; a job with an
// idempotency key may be sent again.
func (s *Store) EnqueueJobs(ctx context.Context, controller string, grace time.Duration, batch []job.Enqueue) ([]job.Enqueued, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	if plain := plainFirst(batch); plain != nil {
		return s.enqueueParts(ctx, controller, grace, batch, plain)
	}
	out, err := again(ctx, func() (out []job.Enqueued, err error) {
		err = s.withFreedKeys(ctx, func() (err error) {
			out, err = s.enqueueOnce(ctx, controller, grace, batch)
			return err
		})
		return out, err
	})
	if err == nil {
		return out, nil
	}
	locked := isLocked(err)
	if err = wrap("enqueue jobs", err); !isData(err) && !locked {
		return nil, err // what comes along with an error counts as an answer
	}
	if locked && len(batch) == 1 {
		return nil, wrap("enqueue jobs", fmt.Errorf("%w: another transaction is taking its key or making its queue", cron.ErrUnavailable))
	}
	if len(batch) == 1 {
		return []job.Enqueued{{Err: err}}, nil
	}
	out = nil
	for _, half := range [][]job.Enqueue{batch[:len(batch)/2], batch[len(batch)/2:]} {
		part, err := s.EnqueueJobs(ctx, controller, grace, half)
		if err != nil { // its neighbours may be in already: each has its own answer
			part = make([]job.Enqueued, len(half))
			for i := range part {
				part[i].Err = err
			}
		}
		out = append(out, part...)
	}
	return out, nil
}

// plainFirst is the order of a mixed batch in which the children come last; nil: it is not mixed.
func plainFirst(batch []job.Enqueue) (parts [][]int) {
	parts = make([][]int, 2)
	for i, b := range batch {
		kind := 0
		if !b.Parent.IsZero() {
			kind = 1
		}
		parts[kind] = append(parts[kind], i)
	}
	if len(parts[0]) == 0 || len(parts[1]) == 0 {
		return nil
	}
	return parts
}

// enqueueParts writes the parts of a batch one after the other; what goes wrong in one stands in its answers alone.
func (s *Store) enqueueParts(ctx context.Context, controller string, grace time.Duration, batch []job.Enqueue, parts [][]int) ([]job.Enqueued, error) {
	out := make([]job.Enqueued, len(batch))
	for _, places := range parts {
		part := make([]job.Enqueue, len(places))
		for i, place := range places {
			part[i] = batch[place]
		}
		answers, err := s.EnqueueJobs(ctx, controller, grace, part)
		for i, place := range places {
			if err != nil {
				out[place].Err = err
			} else {
				out[place] = answers[i]
			}
		}
	}
	return out, nil
}

func (s *Store) enqueueOnce(ctx context.Context, controller string, grace time.Duration, batch []job.Enqueue) ([]job.Enqueued, error) {
	e := enqueuing{controller: controller, grace: grace, batch: batch, out: make([]job.Enqueued, len(batch)), insert: make([]bool, len(batch))}
	salts := newSalts(len(batch))
	keyed, children := 0, false
	for i, b := range batch {
		e.out[i].Salt, e.insert[i] = salts[i], true
		if b.Unique != "" || b.Idempotency != "" {
			keyed++
		}
		children = children || !b.Parent.IsZero()
	}
	if keyed == 0 && !children {
		return e.out, e.write(ctx, s.q(s.jobs.enqueue))
	}
	err := inTx(ctx, s.jobs.enqueue, func(q *sqlc.Queries) error {
		if children {
			if err := e.lockParents(ctx, q); err != nil {
				return err
			}
		}
		if keyed > 0 {
			if err := e.takeIDs(ctx, q, keyed); err != nil {
				return err
			}
			if err := e.takeKeys(ctx, q); err != nil {
				return err
			}
		}
		if err := e.write(ctx, q); err != nil || !children {
			return err
		}
		return e.countChildren(ctx, q)
	})
	return e.out, err
}

// enqueuing is one try of a batch; parallel slices.
type enqueuing struct {
	controller string
	grace      time.Duration
	batch      []job.Enqueue
	out        []job.Enqueued
	insert     []bool // still to be written
}

// write inserts what is to be inserted. The answers come in the order of the rows.
func (e *enqueuing) write(ctx context.Context, q *sqlc.Queries) error {
	p := sqlc.InsertJobsParams{Controller: e.controller, GraceMs: int32(e.grace.Milliseconds())}
	var index []int
	for i, b := range e.batch {
		if !e.insert[i] {
			continue
		}
		index = append(index, i)
		held := b.Unique
		if b.Window > 0 {
			held = "" // the end does not free it
		}
		p.Ids = append(p.Ids, e.out[i].N)
		p.QueueIds = append(p.QueueIds, b.Queue)
		p.Salts = append(p.Salts, e.out[i].Salt)
		p.DelaysMs = append(p.DelaysMs, inMs(b.Delay))
		p.Expires = append(p.Expires, stamp(b.Expires))
		p.Slots = append(p.Slots, stamp(b.Slot))
		if !b.Parent.IsZero() { // then all are children; missing columns are null
			p.ParentIds, p.ParentSalts = append(p.ParentIds, b.Parent.N), append(p.ParentSalts, b.Parent.Salt)
		}
		p.CronJobIds = append(p.CronJobIds, b.CronJob)
		p.MaxAttempts = append(p.MaxAttempts, int32(b.Retry.Attempts))
		p.BackoffsMs = append(p.BackoffsMs, int32(inMs(b.Retry.Backoff)))
		p.BackoffMaxsMs = append(p.BackoffMaxsMs, int32(inMs(b.Retry.Ceiling)))
		p.TimeoutsMs = append(p.TimeoutsMs, int32(inMs(b.Timeout)))
		p.Priorities = append(p.Priorities, int16(b.Priority))
		p.UniqueKeys = append(p.UniqueKeys, held)
		p.Tags = append(p.Tags, strings.Join(b.Tags, "\x1f"))
		p.Payloads = append(p.Payloads, notNull(b.Payload))
		p.RunIds = append(p.RunIds, uid(b.Run))
		p.RunDeployments = append(p.RunDeployments, b.Deployment)
	}
	if len(index) == 0 {
		return nil
	}
	p.TriggerIds, p.Envelopes = e.carried(index)
	rows, err := q.InsertJobs(ctx, p)
	if err != nil {
		return err
	}
	for n, r := range rows {
		if n >= len(index) || e.out[index[n]].Salt != r.Salt {
			return errors.New("the database answered in another order")
		}
		o := &e.out[index[n]]
		o.N, o.Due, o.Created, o.Started = r.ID, r.DueAt.Time.UTC(), r.CreatedAt.Time.UTC(), at(r.StartedAt)
	}
	return nil
}

// carried is what jobs of triggers have beside the others; nothing where there is none among them, for missing columns
// are null.
func (e *enqueuing) carried(index []int) (triggers []int64, envelopes [][]byte) {
	any := false
	for _, i := range index {
		any = any || e.batch[i].TriggerID != 0 || len(e.batch[i].Envelope) > 0
	}
	if !any {
		return nil, nil
	}
	for _, i := range index {
		var envelope []byte // nil is null
		if len(e.batch[i].Envelope) > 0 {
			envelope = e.batch[i].Envelope
		}
		triggers, envelopes = append(triggers, e.batch[i].TriggerID), append(envelopes, envelope)
	}
	return triggers, envelopes
}

func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// lockParents locks the parents of a batch, and refuses the children of those that are not in the run they name.
func (e *enqueuing) lockParents(ctx context.Context, q *sqlc.Queries) error {
	var ids []int64
	for _, b := range e.batch {
		ids = append(ids, b.Parent.N)
	}
	rows, err := q.LockParents(ctx, unique64(ids))
	if err != nil {
		return err
	}
	parents := make(map[int64]sqlc.LockParentsRow, len(rows))
	for _, r := range rows {
		parents[r.ID] = r
	}
	for i, b := range e.batch {
		p, ok := parents[b.Parent.N]
		switch {
		case !ok, p.Salt != b.Parent.Salt, p.State != sqlc.CarillonJobStatusRunning, cron.RunID(p.RunID.Bytes) != b.ParentRun:
			e.refuse(i, job.NoParent("the parent's run is over"))
		case p.Cancelled:
			e.refuse(i, job.NoParent("the parent is cancelled"))
		}
	}
	return nil
}

func (e *enqueuing) refuse(i int, err error) {
	e.insert[i], e.out[i] = false, job.Enqueued{Err: err}
}

// countChildren counts those that were written; an existing job is its own parent's child already.
func (e *enqueuing) countChildren(ctx context.Context, q *sqlc.Queries) error {
	n := counts{}
	for i, b := range e.batch {
		if e.insert[i] {
			n[b.Parent.N]++
		}
	}
	if len(n) == 0 {
		return nil
	}
	var p sqlc.AddChildrenParams
	p.Ids, p.Counts = n.lists()
	return q.AddChildren(ctx, p)
}

// takeIDs gives an id to every job with a key: the key names it before it is written.
func (e *enqueuing) takeIDs(ctx context.Context, q *sqlc.Queries, n int) error {
	ids, err := q.NextJobIDs(ctx, int32(n))
	if err != nil {
		return err
	}
	for i, b := range e.batch {
		if e.insert[i] && (b.Unique != "" || b.Idempotency != "") {
			e.out[i].N, ids = ids[0], ids[1:]
		}
	}
	return nil
}

// takeKeys takes idempotency keys first and unique keys then, each in order, so that two batches do not wait for each
// other. What is held makes its job an existing one. A key that stands more than once in the batch is taken by its first
// job; the others follow it.
func (e *enqueuing) takeKeys(ctx context.Context, q *sqlc.Queries) error {
	byRequest, sameRequest := e.leaders(idempotency)
	known, err := e.take(ctx, q, "idempotency", byRequest, idempotency)
	if err != nil {
		return err
	}
	for i, h := range known {
		e.existing(i, job.ID{N: h.JobID, Salt: h.Salt}, string(h.Hash) == string(job.RequestHash(e.batch[i].New)))
	}
	for i := range sameRequest {
		e.insert[i] = false // whatever becomes of its leader; resolved below
	}

	byUnique, sameUnique := e.leaders(unique)
	held, err := e.take(ctx, q, "unique", byUnique, unique)
	if err != nil {
		return err
	}
	var moved []int
	for i, h := range held {
		e.existing(i, job.ID{N: h.JobID, Salt: h.Salt}, true)
		moved = append(moved, i)
	}
	for i, leader := range sameUnique {
		e.existing(i, e.out[leader].ID, true)
		moved = append(moved, i)
	}
	for i, leader := range sameRequest {
		id, hash := e.out[leader].ID, job.RequestHash(e.batch[leader].New)
		if h, ok := known[leader]; ok {
			id, hash = job.ID{N: h.JobID, Salt: h.Salt}, h.Hash
		}
		e.existing(i, id, string(job.RequestHash(e.batch[i].New)) == string(hash))
	}
	return e.point(ctx, q, moved)
}

func idempotency(b job.Enqueue) string { return b.Idempotency }
func unique(b job.Enqueue) string      { return b.Unique }

// leaders finds the first job of each key among those still to be written, and whom the others follow.
func (e *enqueuing) leaders(key func(job.Enqueue) string) (first []int, follow map[int]int) {
	seen := map[keyName]int{}
	follow = map[int]int{}
	for i, b := range e.batch {
		if !e.insert[i] || key(b) == "" {
			continue
		}
		n := keyName{b.Tenant, key(b)}
		if leader, ok := seen[n]; ok {
			follow[i] = leader
			continue
		}
		seen[n] = i
		first = append(first, i)
	}
	return first, follow
}

// take takes the keys of some jobs of the batch and returns who holds the others.
func (e *enqueuing) take(ctx context.Context, q *sqlc.Queries, kind string, jobs []int, key func(job.Enqueue) string) (map[int]sqlc.GetJobKeysRow, error) {
	keys := keyring{kind: kind}
	for _, i := range jobs {
		b, keep := e.batch[i], job.IdempotencyKept
		if kind == "unique" {
			keep = b.Window
		}
		keys.add(keyName{b.Tenant, key(b)}, e.out[i].ID, job.RequestHash(b.New), keep)
	}
	others, err := keys.take(ctx, q)
	if err != nil || len(others) == 0 {
		return nil, err
	}
	held := make(map[int]sqlc.GetJobKeysRow, len(others))
	for _, i := range jobs {
		if h, ok := others[keyName{e.batch[i].Tenant, key(e.batch[i])}]; ok {
			held[i] = h
		}
	}
	return held, nil
}

// existing answers a job with one that came before; not the same request: with a refusal.
func (e *enqueuing) existing(i int, id job.ID, same bool) {
	e.insert[i] = false
	if same {
		e.out[i] = job.Enqueued{ID: id, Existing: true}
		return
	}
	e.out[i] = job.Enqueued{Conflict: true, Err: fmt.Errorf("%w: the idempotency key %q belongs to another request", cron.ErrExists, e.batch[i].Idempotency)}
}

// point makes the idempotency keys of jobs that turned out to exist by their unique key name those.
func (e *enqueuing) point(ctx context.Context, q *sqlc.Queries, moved []int) error {
	var p sqlc.PointJobKeysParams
	for _, i := range moved {
		if b := e.batch[i]; b.Idempotency != "" {
			p.Tenants = append(p.Tenants, b.Tenant)
			p.Keys = append(p.Keys, b.Idempotency)
			p.JobIds = append(p.JobIds, e.out[i].N)
			p.Salts = append(p.Salts, e.out[i].Salt)
		}
	}
	if len(p.Keys) == 0 {
		return nil
	}
	return q.PointJobKeys(ctx, p)
}
