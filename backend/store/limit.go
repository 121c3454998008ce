package store

import (
	"context"
	"time"

	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

// TakeRate counts one use of what a domain may do per hour: one job of a verb, for trigger.LimitName of its ref. Refused
// uses count as well. Without such a limit nothing is written.
func (s *Store) TakeRate(ctx context.Context, tenant, domain, ref string) (trigger.Ruling, error) {
	u := useOf(tenant, domain, ref)
	if u.name == "" {
		return trigger.Ruling{Allowed: true}, nil
	}
	rulings, err := again(ctx, func() (r []trigger.Ruling, err error) {
		err = s.tx(ctx, func(q *sqlc.Queries) error {
			r, err = takeRates(ctx, q, []use{u})
			return err
		})
		return r, err
	})
	if err != nil {
		return trigger.Ruling{}, wrap("count a use", err)
	}
	return rulings[0], nil
}

// GiveBackRate takes a use that was allowed off again, for it made nothing: it was a request that came before.
func (s *Store) GiveBackRate(ctx context.Context, tenant, domain, ref string) error {
	u := useOf(tenant, domain, ref)
	if u.name == "" {
		return nil
	}
	return wrap("give a use back", s.q(s.api).GiveBackRate(ctx, sqlc.GiveBackRateParams{
		Tenant: u.tenant, Domain: u.domain, Kind: u.name, WindowSecs: trigger.LimitWindow.Seconds(),
	}))
}

// HasRequest says whether a request for a job came before with this idempotency key (empty: no).
func (s *Store) HasRequest(ctx context.Context, tenant, key string) (bool, error) {
	if key == "" {
		return false, nil
	}
	has, err := s.q(s.api).HasRequest(ctx, sqlc.HasRequestParams{Tenant: tenant, Key: key})
	return has, wrap("look for a request", err)
}

// DropIdleRates forgets the counts of windows that are long over, up to page of them, and returns how many.
func (s *Store) DropIdleRates(ctx context.Context, page int) (int, error) {
	n, err := s.q(s.api).DropIdleRateLimits(ctx, int32(page))
	return int(n), wrap("drop idle limits", err)
}

// use is one use of a limit; without a name, of none.
type use struct{ tenant, domain, name string }

// useOf is one job of a verb.
func useOf(tenant, domain, ref string) use { return use{tenant, domain, trigger.LimitName(ref)} }

// takeRates rules on uses, in their order. It locks the counts until the commit, after whatever else the transaction
// locks.
func takeRates(ctx context.Context, q *sqlc.Queries, uses []use) ([]trigger.Ruling, error) {
	rulings := make([]trigger.Ruling, len(uses))
	var ask sqlc.LockRateLimitsParams
	seen := map[use]bool{}
	for i, u := range uses {
		if _, limited := trigger.LimitOf(u.name); !limited {
			rulings[i].Allowed = true
		} else if !seen[u] {
			seen[u] = true
			ask.Tenants, ask.Domains, ask.Kinds = append(ask.Tenants, u.tenant), append(ask.Domains, u.domain), append(ask.Kinds, u.name)
		}
	}
	if len(seen) == 0 {
		return rulings, nil
	}
	rows, err := q.LockRateLimits(ctx, ask)
	if err != nil {
		return nil, err
	}
	meters := make(map[use]trigger.Meter, len(rows))
	var now time.Time
	for _, r := range rows {
		meters[use{r.Tenant, r.Domain, r.Kind}] = trigger.Meter{Count: int(r.Count), Start: r.OpenedAt.Time.UTC()}
		now = r.Now.Time.UTC()
	}
	for i, u := range uses {
		if rulings[i].Allowed {
			continue
		}
		limit, _ := trigger.LimitOf(u.name)
		meters[u], rulings[i] = meters[u].Use(now, limit)
	}
	var put sqlc.PutRateLimitsParams
	for u, m := range meters {
		put.Tenants, put.Domains, put.Kinds = append(put.Tenants, u.tenant), append(put.Domains, u.domain), append(put.Kinds, u.name)
		put.OpenedAt, put.Counts = append(put.OpenedAt, stamp(m.Start)), append(put.Counts, int32(m.Count))
	}
	return rulings, q.PutRateLimits(ctx, put)
}
