package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
	"carillon/backend/core/schedule"
	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

// Triggers. Rows are locked in one order everywhere: cron job, trigger, windows and meters. What a row of the clock shall be
// is said by package trigger, inside the transaction, for it depends on the database's clock.

// CreateTrigger stores a checked trigger and returns it as it stands: with its key (made of chance unless it has one), and
// where the clock fires it with its timetable and first slot, by the database's clock, and the row in cron_jobs that a
// scheduler is to learn. Queues that it fires into are there afterwards.
//
// With an idempotency key, the same trigger again is the one that was made first, for 24 h, deleted or not;
// cron.ErrExists: the key belongs to another request. An error that is cron.ErrInvalid is a *trigger.Fault.
func (s *Store) CreateTrigger(ctx context.Context, t trigger.Trigger, idempotency string) (trigger.Trigger, error) {
	if t.Key == "" {
		var chance [16]byte
		rand.Read(chance[:])
		t.Key = hex.EncodeToString(chance[:])
	}
	if t.Tenant == "" {
		t.Tenant = job.DefaultTenant
	}
	if t.Kind == trigger.Interval {
		t.Kind = trigger.Every
	}
	full := job.Complete(job.New{Timeout: t.Timeout, Retry: t.Retry})
	t.Timeout, t.Retry = full.Timeout, full.Retry
	queues, err := s.PutQueues(ctx, []job.Queue{{Tenant: t.Tenant, Ref: t.Ref, Lane: job.Lane(t.Priority)}})
	if err != nil {
		return t, err
	}
	id, err := again(ctx, func() (id int64, err error) {
		err = s.keyed(ctx, s.api, key{kind: "trigger", tenant: t.Tenant, key: idempotency, hash: triggerHash(t)}, func(q *sqlc.Queries, name func(job.ID) error) error {
			if id, err = insertTrigger(ctx, q, t, queues[0].ID); err != nil {
				return err
			}
			return name(job.ID{N: id})
		}, func(held job.ID) { id = held.N })
		return id, err
	})
	if err != nil {
		return t, wrap("create a trigger", err)
	}
	r, err := s.q(s.api).GetTriggerByID(ctx, id)
	if err != nil {
		return t, wrap("create a trigger", err)
	}
	return toTrigger(sqlc.GetTriggerRow(r)), nil
}

func insertTrigger(ctx context.Context, q *sqlc.Queries, t trigger.Trigger, queue int32) (id int64, err error) {
	clock, err := q.Clock(ctx)
	if err != nil {
		return 0, err
	}
	now := clock.Time.UTC()
	var first time.Time
	if t.Kind.Timed() {
		if t.Timetable, err = trigger.Timetable(t.Kind, t.Arguments, t.TimeZone, t.Key, now); err != nil {
			return 0, err
		}
		sched, err := timetable(t.Timetable, t.TimeZone)
		if err != nil {
			return 0, err
		}
		first = trigger.First(sched, now)
	}
	var epoch int64
	if t.Kind == trigger.Event {
		if epoch, err = q.BumpEpoch(ctx); err != nil {
			return 0, err
		}
	}
	id, err = q.InsertTrigger(ctx, sqlc.InsertTriggerParams{
		Key: t.Key, Tenant: t.Tenant, Domain: t.Domain, Kind: sqlc.CarillonTriggerKind(t.Kind), Arguments: t.Arguments, TimeZone: t.TimeZone, Worker: t.Worker,
		Ref: t.Ref, QueueID: queue, Priority: int16(t.Priority), MaxAttempts: int32(t.Retry.Attempts), BackoffMs: int32(inMs(t.Retry.Backoff)),
		BackoffMaxMs: int32(inMs(t.Retry.Ceiling)), TimeoutMs: int32(inMs(t.Timeout)), Message: notNull(t.Message), Options: orNull(t.Options), Debounce: t.Debounce,
		DebounceMs: inMs(t.DebounceFor), Secret: orNull(t.Secret), CreatedBy: t.CreatedBy, Epoch: epoch, Now: stamp(now),
	})
	if err != nil || !t.Kind.Timed() {
		return id, err
	}
	_, err = q.InsertTriggerRow(ctx, sqlc.InsertTriggerRowParams{
		TriggerID: id, Shard: ring.Shard("@" + t.Key), Schedule: t.Timetable, NextExecution: ptr(first), Limited: trigger.LimitName(t.Ref) != "",
	})
	return id, err
}

// timetable reads the text of a trigger's row.
func timetable(text, zone string) (schedule.Schedule, error) {
	loc, err := schedule.LoadLocation(zone)
	if err != nil {
		return schedule.Schedule{}, err
	}
	return schedule.ParseText(text, loc)
}

func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// triggerHash tells one request from another under the same idempotency key.
func triggerHash(t trigger.Trigger) []byte {
	h := sha256.New()
	for _, s := range []string{t.Tenant, t.Domain, string(t.Kind), t.Arguments, t.TimeZone, t.Worker, t.Ref, string(t.Message), string(t.Options), t.Debounce, string(t.Secret)} {
		binary.Write(h, binary.BigEndian, int64(len(s)))
		h.Write([]byte(s))
	}
	binary.Write(h, binary.BigEndian, []int64{int64(t.Priority), int64(t.Retry.Attempts), int64(t.Retry.Backoff), int64(t.Retry.Ceiling), int64(t.Timeout)})
	return h.Sum(nil)
}

// key is an idempotency key of a request.
type key struct {
	kind, tenant, key string
	hash              []byte
}

var errHeld = errors.New("the key is held")

// keyed runs work in a transaction that takes a key (empty: none), which names what work made. Where the key is held by
// the same request, work counts for nothing and held is told what it made; by another one: cron.ErrExists.
func (s *Store) keyed(ctx context.Context, p *pool, k key, work func(q *sqlc.Queries, name func(job.ID) error) error, held func(job.ID)) error {
	if k.key == "" {
		return inTx(ctx, p, func(q *sqlc.Queries) error { return work(q, func(job.ID) error { return nil }) })
	}
	tenants, keys := []string{k.tenant}, []string{k.key}
	for try := 1; ; try++ {
		err := inTx(ctx, p, func(q *sqlc.Queries) error {
			return work(q, func(made job.ID) error {
				won, err := q.PutJobKeys(ctx, sqlc.PutJobKeysParams{
					Kind: k.kind, Tenants: tenants, Keys: keys, JobIds: []int64{made.N}, Salts: []int32{made.Salt}, Hashes: [][]byte{k.hash},
					KeepMs: []int64{inMs(job.IdempotencyKept)},
				})
				if err == nil && len(won) == 0 {
					err = errHeld
				}
				return err
			})
		})
		if !errors.Is(err, errHeld) {
			return err
		}
		rows, err := s.q(p).GetJobKeys(ctx, sqlc.GetJobKeysParams{Kind: k.kind, Tenants: tenants, Keys: keys})
		switch {
		case err != nil:
			return err
		case len(rows) == 1 && !rows[0].Expired && string(rows[0].Hash) != string(k.hash):
			return fmt.Errorf("%w: the idempotency key %q belongs to another request", cron.ErrExists, k.key)
		case len(rows) == 1 && !rows[0].Expired:
			held(job.ID{N: rows[0].JobID, Salt: rows[0].Salt})
			return nil
		case try == 100:
			return &freedError{}
		case len(rows) == 1:
			if err := s.q(p).DropExpiredKeys(ctx, sqlc.DropExpiredKeysParams{Kind: k.kind, Tenants: tenants, Keys: keys}); err != nil {
				return err
			}
		}
	}
}

// FindTriggerByMessage finds the first trigger of a tenant, of some workers, whose message is the one. However large
// messages are, it holds a few mebibytes of them at a time. cron.ErrNotFound: there is none.
func (s *Store) FindTriggerByMessage(ctx context.Context, tenant string, workers []string, is func(message []byte) bool) (trigger.Trigger, error) {
	p := sqlc.ListTriggerMessagesParams{Tenant: tenant, Workers: workers, Page: 1000, MaxBytes: 4 << 20}
	for {
		var rows []sqlc.ListTriggerMessagesRow
		err := s.jobTx(ctx, func(q *sqlc.Queries) (err error) { // planned for this tenant, not for any
			rows, err = q.ListTriggerMessages(ctx, p)
			return err
		})
		if err != nil {
			return trigger.Trigger{}, wrap("find a trigger by its message", err)
		}
		for _, r := range rows {
			if is(r.Message) {
				return s.GetTrigger(ctx, tenant, r.Key)
			}
			p.After = r.ID
		}
		if len(rows) == 0 {
			return trigger.Trigger{}, wrap("find a trigger by its message", fmt.Errorf("%w: no message is the one", cron.ErrNotFound))
		}
	}
}

// GetTrigger reads a trigger of a tenant (empty: of any) by its key. cron.ErrNotFound: there is none, or it was deleted.
func (s *Store) GetTrigger(ctx context.Context, tenant, key string) (trigger.Trigger, error) {
	r, err := s.q(s.api).GetTrigger(ctx, sqlc.GetTriggerParams{Tenant: tenant, Key: key})
	if err != nil {
		return trigger.Trigger{}, wrap("read a trigger", noTrigger(err, key))
	}
	return toTrigger(r), nil
}

// FindWebhook is GetTrigger for whoever knows the key alone. cron.ErrInvalid: it is no webhook.
func (s *Store) FindWebhook(ctx context.Context, key string) (trigger.Trigger, error) {
	t, err := s.GetTrigger(ctx, "", key)
	if err == nil && t.Kind != trigger.Webhook {
		err = wrap("find a webhook", &trigger.Fault{Title: trigger.InvalidAttribute, Detail: "Not a webhook"})
	}
	return t, err
}

func noTrigger(err error, key string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: no trigger %s", cron.ErrNotFound, cron.SafeText(key))
	}
	return err
}

// ListTriggers reads a page of triggers in order of id, after an id; of a tenant (empty: of all), of some kinds and some
// workers (none given: of all).
func (s *Store) ListTriggers(ctx context.Context, tenant string, kinds []trigger.Kind, workers []string, after int64, page int) ([]trigger.Trigger, error) {
	p := sqlc.ListTriggersParams{After: after, Tenant: tenant, Kinds: []string{}, Workers: append([]string{}, workers...), Page: int32(page)}
	for _, k := range kinds {
		p.Kinds = append(p.Kinds, string(k))
	}
	var rows []sqlc.ListTriggersRow
	err := s.jobTx(ctx, func(q *sqlc.Queries) (err error) { // planned for this tenant, not for any
		rows, err = q.ListTriggers(ctx, p)
		return err
	})
	if err != nil {
		return nil, wrap("list triggers", err)
	}
	out := make([]trigger.Trigger, len(rows))
	for i, r := range rows {
		out[i] = toTrigger(sqlc.GetTriggerRow(r))
	}
	return out, nil
}

func toTrigger(r sqlc.GetTriggerRow) trigger.Trigger {
	t := r.CarillonTrigger
	return trigger.Trigger{
		ID: t.ID, Key: t.Key, Tenant: t.Tenant, Domain: t.Domain, Kind: trigger.Kind(t.Kind), Arguments: t.Arguments, TimeZone: t.TimeZone, Worker: t.Worker,
		Ref: t.Ref, Priority: int(t.Priority), Retry: retryOf(t.MaxAttempts, t.BackoffMs, t.BackoffMaxMs), Timeout: milliseconds(t.TimeoutMs), Message: t.Message,
		Options: t.Options, Debounce: t.Debounce, DebounceFor: time.Duration(t.DebounceMs) * time.Millisecond, Secret: t.Secret, CreatedBy: t.CreatedBy,
		Rev: int(t.Rev), CreatedAt: t.CreatedAt.Time.UTC(), UpdatedAt: t.UpdatedAt.Time.UTC(), LastError: text(t.LastError),
		Timetable: r.Schedule, Next: inUTC(r.NextExecution), CronJob: r.CronJobID, PausedAt: inUTC(r.PausedAt), PausedNote: r.PausedNote,
	}
}
