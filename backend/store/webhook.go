package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

// DeliverWebhook makes a job of a delivery to the webhook with this key, or appends it to the trigger's window. A
// delivery with the same idempotency key (empty: none) within 24 h is the same one. The limits of the domain are counted in the
// same transaction: above that of deliveries the error is a *trigger.LimitError, and nothing is made; above the worker's, the job becomes due
// when the limit's next hour begins. The job of a manual delivery, or of a window with one, has the priority of what
// somebody waits for, unless the trigger's options give one.
//
// cron.ErrNotFound: no such trigger; a *trigger.Fault: it is no webhook, or the payload is refused; cron.ErrExists: the
// key belongs to another delivery. Unknown() of the error: it may be in; with an idempotency key it may be sent again.
func (s *Store) DeliverWebhook(ctx context.Context, key string, payload []byte, manual bool, idempotency string) (trigger.Delivery, error) {
	if len(payload) > trigger.MaxDelivery {
		return trigger.Delivery{}, badDelivery(fmt.Sprintf("has %d bytes, at most %d are accepted", len(payload), trigger.MaxDelivery))
	}
	if err := trigger.FitsDocument(payload, 4*trigger.MaxDelivery); err != nil {
		return trigger.Delivery{}, badDelivery(err.Error())
	}
	var refused *trigger.LimitError
	d, err := again(ctx, func() (d trigger.Delivery, err error) {
		for try := 1; ; try++ {
			w := delivering{payload: payload, manual: manual, idempotency: idempotency}
			err = inTx(ctx, s.jobs.enqueue, func(q *sqlc.Queries) error { return w.deliver(ctx, q, key) })
			refused, d = w.refused, w.out
			freed := (*freedError)(nil)
			if !errors.As(err, &freed) || try == 100 {
				return d, err
			}
			if err := s.q(s.jobs.enqueue).DropExpiredKeys(ctx, freed.expired); err != nil {
				return d, err
			}
		}
	})
	if err != nil {
		if fault := (*trigger.Fault)(nil); errors.As(err, &fault) {
			return trigger.Delivery{}, fault
		}
		return trigger.Delivery{}, wrap("deliver to a webhook", err)
	}
	if refused != nil {
		return trigger.Delivery{}, refused
	}
	return d, nil
}

func badDelivery(problem string) error {
	return &trigger.Fault{Title: "Invalid Body", Detail: "the payload " + problem}
}

// delivering is one try of a delivery.
type delivering struct {
	payload     []byte
	manual      bool
	idempotency string
	hook        sqlc.GetWebhookRow
	id          job.ID
	out         trigger.Delivery
	refused     *trigger.LimitError // committed all the same: the use counts
}

// deliver takes the key first, then the window, then the limits.
func (w *delivering) deliver(ctx context.Context, q *sqlc.Queries, key string) (err error) {
	w.hook, err = q.GetWebhook(ctx, key)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: no such webhook", cron.ErrNotFound)
	case err != nil:
		return err
	case w.hook.Kind != string(trigger.Webhook):
		return &trigger.Fault{Title: "Not a webhook", Detail: "Not a webhook"}
	}
	w.out.Debounced = w.hook.DebounceMs > 0
	if done, err := w.takeKey(ctx, q, key); done || err != nil {
		return err
	}
	var open []sqlc.LockDebouncesRow
	if w.out.Debounced {
		if open, err = lockWindows(ctx, q, []int64{w.hook.ID}, []int64{w.hook.DebounceMs}); err != nil {
			return err
		}
	}
	hook := use{w.hook.Tenant, w.hook.Domain, trigger.WebhookLimit}
	rulings, err := takeRates(ctx, q, []use{hook})
	if err != nil {
		return err
	}
	if !rulings[0].Allowed {
		w.refused, w.out = &trigger.LimitError{Ruling: rulings[0]}, trigger.Delivery{}
		if len(open) > 0 && open[0].Count == 0 {
			if err := q.DropDebounces(ctx, []int64{w.hook.ID}); err != nil {
				return err
			}
		}
		if w.idempotency == "" {
			return nil
		}
		return q.DropDeliveryKey(ctx, sqlc.DropDeliveryKeyParams{Tenant: w.hook.Tenant, Key: w.storedKey(key)})
	}
	if w.out.Debounced {
		return w.collect(ctx, q, open[0])
	}
	return w.makeJob(ctx, q)
}

func (w *delivering) worker() use { return useOf(w.hook.Tenant, w.hook.Domain, w.hook.Ref) }

// storedKey keeps the keys of deliveries apart from those of jobs, which have no control characters.
func (w *delivering) storedKey(key string) string {
	return "webhook\x1f" + key + "\x1f" + w.idempotency
}

// takeKey says done where the same delivery came before. A delivery into a window has no job yet, and its key names none.
func (w *delivering) takeKey(ctx context.Context, q *sqlc.Queries, key string) (done bool, err error) {
	if !w.out.Debounced {
		ids, err := q.NextJobIDs(ctx, 1)
		if err != nil {
			return false, err
		}
		w.id = job.ID{N: ids[0], Salt: newSalts(1)[0]}
	}
	if w.idempotency == "" {
		return false, nil
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%t %s", w.manual, w.payload))
	n, err := q.PutDeliveryKey(ctx, sqlc.PutDeliveryKeyParams{
		Tenant: w.hook.Tenant, Key: w.storedKey(key), JobID: w.id.N, Salt: w.id.Salt, Hash: hash[:], KeepMs: job.IdempotencyKept.Milliseconds(),
	})
	if err != nil || n == 1 {
		return false, err
	}
	ask := sqlc.GetJobKeysParams{Kind: "idempotency", Tenants: []string{w.hook.Tenant}, Keys: []string{w.storedKey(key)}}
	held, err := q.GetJobKeys(ctx, ask)
	switch {
	case err != nil:
		return false, err
	case len(held) == 0:
		return false, &freedError{expired: sqlc.DropExpiredKeysParams{Kind: ask.Kind}}
	case held[0].Expired:
		return false, &freedError{expired: sqlc.DropExpiredKeysParams(ask)}
	case string(held[0].Hash) != string(hash[:]):
		return false, fmt.Errorf("%w: the idempotency key %q belongs to another delivery", cron.ErrExists, w.idempotency)
	}
	w.out.Job, w.out.Existing = job.ID{N: held[0].JobID, Salt: held[0].Salt}, true
	return true, nil
}

// collect takes the delivery into the trigger's window. One that is over, or full, makes its job before.
func (w *delivering) collect(ctx context.Context, q *sqlc.Queries, open sqlc.LockDebouncesRow) error {
	put := sqlc.PutDeliveryParams{TriggerID: w.hook.ID, DebounceMs: w.hook.DebounceMs, Payload: w.payload, Manual: w.manual}
	window := toWindow(open.FireAt.Time, open.Count, open.Payloads, open.Manual)
	next, over := window.Arrive(open.Now.Time.UTC(), time.Duration(w.hook.DebounceMs)*time.Millisecond, trigger.Arrival{Payload: w.payload, Manual: w.manual})
	if over && window.Events > 0 {
		full := next.FireAt.Equal(window.FireAt)
		if put.Replace = true; full {
			put.FireAt = &next.FireAt
		}
		rulings, err := takeRates(ctx, q, []use{w.worker()})
		if err != nil {
			return err
		}
		made := trigger.Made{}
		ended := []endedWindow{{trigger: w.hook.ID, use: w.worker(), raised: raisedQueue(window.Manual, w.hook.Tenant, w.hook.Ref, w.hook.Options), kind: trigger.Webhook, window: window, early: full}}
		if err := insertWindowJobs(ctx, q, ended, rulings, &made); err != nil {
			return err
		}
		w.out.Ready = made.Jobs
	}
	row, err := q.PutDelivery(ctx, put)
	w.out.Closes = max(seconds(row.InSecs), 1)
	return err
}

// makeJob makes the job of a delivery that waits for nothing.
func (w *delivering) makeJob(ctx context.Context, q *sqlc.Queries) error {
	rulings, err := takeRates(ctx, q, []use{w.worker()})
	if err != nil {
		return err
	}
	extra, err := extraOf(trigger.Envelope{Payload: w.payload, Manual: w.manual})
	if err != nil {
		return err
	}
	raised, err := raisedIDs(ctx, q, []job.Queue{raisedQueue(w.manual, w.hook.Tenant, w.hook.Ref, w.hook.Options)})
	if err != nil {
		return err
	}
	rows, err := q.InsertTriggerJobs(ctx, sqlc.InsertTriggerJobsParams{
		RaisedIds: raised, RaisedPriority: raisedPriority,
		Ids: []int64{w.id.N}, TriggerIds: []int64{w.hook.ID}, Salts: []int32{w.id.Salt}, Due: []pgtype.Timestamptz{stamp(rulings[0].Due)}, Extras: []string{extra},
	})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w: no such webhook", cron.ErrNotFound) // deleted in this moment
	}
	w.out.Job, w.out.Ready = w.id, []job.Waiting{waitingOf(rows[0])}
	return nil
}

// extraOf is what an envelope says beside the trigger's own, as JSON.
func extraOf(e trigger.Envelope) (string, error) {
	e.Kind = "" // the trigger's row says it
	data, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("write an envelope: %w", err)
	}
	return string(data), nil
}

func waitingOf(r sqlc.InsertTriggerJobsRow) job.Waiting {
	return job.Waiting{ID: r.ID, Queue: r.QueueID, Shard: r.Shard, Priority: int(r.Priority), Due: r.DueAt.Time.UTC()}
}
