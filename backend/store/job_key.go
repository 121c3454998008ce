package store

import (
	"context"
	"errors"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// keyName is what a key is called by, among those of its kind.
type keyName struct{ tenant, key string }

// keyring is keys of one kind that a transaction takes, each for one job.
type keyring struct {
	kind string
	put  sqlc.PutJobKeysParams
}

// add wants a key for a job, for some time; no time: as long as the job lives. It must not be wanted twice.
func (k *keyring) add(n keyName, id job.ID, hash []byte, keep time.Duration) {
	p := &k.put
	p.Tenants, p.Keys = append(p.Tenants, n.tenant), append(p.Keys, n.key)
	p.JobIds, p.Salts = append(p.JobIds, id.N), append(p.Salts, id.Salt)
	p.Hashes, p.KeepMs = append(p.Hashes, notNull(hash)), append(p.KeepMs, inMs(keep))
}

// take takes the keys, and returns who holds those that others have. A *freedError begs for another try.
func (k *keyring) take(ctx context.Context, q *sqlc.Queries) (map[keyName]sqlc.GetJobKeysRow, error) {
	if len(k.put.Keys) == 0 {
		return nil, nil
	}
	k.put.Kind = k.kind
	won, err := q.PutJobKeys(ctx, k.put)
	if err != nil || len(won) == len(k.put.Keys) {
		return nil, err
	}
	ours := make(map[keyName]bool, len(won))
	for _, w := range won {
		ours[keyName{w.Tenant, w.Key}] = true
	}
	ask := sqlc.GetJobKeysParams{Kind: k.kind}
	for i, tenant := range k.put.Tenants {
		if !ours[keyName{tenant, k.put.Keys[i]}] {
			ask.Tenants, ask.Keys = append(ask.Tenants, tenant), append(ask.Keys, k.put.Keys[i])
		}
	}
	rows, err := q.GetJobKeys(ctx, ask)
	if err != nil {
		return nil, err
	}
	held, freed := make(map[keyName]sqlc.GetJobKeysRow, len(rows)), &freedError{expired: sqlc.DropExpiredKeysParams{Kind: k.kind}}
	for _, r := range rows {
		if r.Expired {
			freed.expired.Tenants, freed.expired.Keys = append(freed.expired.Tenants, r.Tenant), append(freed.expired.Keys, r.Key)
			continue
		}
		held[keyName{r.Tenant, r.Key}] = r
	}
	if len(held) < len(ask.Keys) {
		return nil, freed
	}
	return held, nil
}

// freedError says that keys were held a moment ago and are free by now, or expired: the transaction begins anew. In the
// same one they could be taken out of their order only, and two batches would wait for each other.
type freedError struct{ expired sqlc.DropExpiredKeysParams }

func (*freedError) Error() string { return cron.ErrUnavailable.Error() + ": keys change hands" }
func (*freedError) Unwrap() error { return cron.ErrPrecond } // refused: nothing was written

// withFreedKeys does work that takes keys, again as long as some of them become free meanwhile.
func (s *Store) withFreedKeys(ctx context.Context, work func() error) error {
	for try := 1; ; try++ {
		err := work()
		freed := (*freedError)(nil)
		if !errors.As(err, &freed) || try == 100 {
			return err
		}
		if err := s.q(s.jobs.enqueue).DropExpiredKeys(ctx, freed.expired); err != nil {
			return err
		}
	}
}
