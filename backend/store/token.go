package store

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
	"carillon/backend/store/internal/sqlc"
)

const maxTokens = 10_000 // in one list

// CreateToken makes a token of a record (of which the store gives the id and the times but Expires), and returns the secret
// that its holder presents. Nobody can read it again: a hash is kept.
func (s *Store) CreateToken(ctx context.Context, r permission.Record) (secret string, made permission.Record, err error) {
	chance := make([]byte, 32)
	rand.Read(chance)
	secret = permission.SecretPrefix + base64.RawURLEncoding.EncodeToString(chance)
	row, err := s.q(s.api).PutToken(ctx, sqlc.PutTokenParams{
		Name: r.Name, Hash: permission.Hash(secret), Tenant: r.Tenant, Domain: r.Domain, Kind: string(r.Kind), Slug: r.Slug, TriggerKey: r.Trigger,
		Scope: r.Scope.String(), ExpiresAt: ptr(r.Expires),
	})
	if err != nil {
		return "", permission.Record{}, wrap("create a token", err)
	}
	return secret, s.toToken(row), nil
}

// FindToken reads the token with this permission.Hash of its secret. cron.ErrNotFound: there is none that is good now,
// by the database's clock.
func (s *Store) FindToken(ctx context.Context, hash []byte) (permission.Token, error) {
	row, err := s.q(s.api).FindToken(ctx, hash)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: no such token", cron.ErrNotFound)
	}
	if err != nil {
		return permission.Token{}, wrap("find a token", err)
	}
	return s.toToken(row).Token, nil
}

// ListTokens reads the tokens of a tenant (empty: of all), in order of id; every: the revoked and expired ones, too.
func (s *Store) ListTokens(ctx context.Context, tenant string, every bool) ([]permission.Record, error) {
	rows, err := s.q(s.api).ListTokens(ctx, sqlc.ListTokensParams{Tenant: tenant, Every: every, Page: maxTokens})
	if err != nil {
		return nil, wrap("list tokens", err)
	}
	out := make([]permission.Record, len(rows))
	for i, row := range rows {
		out[i] = s.toToken(row)
	}
	return out, nil
}

// RevokeToken makes a token useless for good; a second time changes nothing. cron.ErrNotFound: there is none.
func (s *Store) RevokeToken(ctx context.Context, id int64) error {
	n, err := s.q(s.api).RevokeToken(ctx, id)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: no token %d", cron.ErrNotFound, id)
	}
	return wrap("revoke a token", err)
}

// TouchToken notes that a token was used, at most once a minute. id is permission.Token's.
func (s *Store) TouchToken(ctx context.Context, id string) error {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return wrap("note the use of a token", fmt.Errorf("%w: %.40q is no token's id", cron.ErrInvalid, id))
	}
	return wrap("note the use of a token", s.q(s.api).TouchToken(ctx, n))
}

// toToken reads a row. A scope that cannot be read allows nothing.
func (s *Store) toToken(r sqlc.CarillonToken) permission.Record {
	out := permission.Record{
		Token: permission.Token{
			ID: strconv.FormatInt(r.ID, 10), Tenant: r.Tenant, Domain: r.Domain, Kind: permission.Kind(r.Kind), Slug: r.Slug, Trigger: r.TriggerKey, Expires: at(r.ExpiresAt),
		},
		Name: r.Name, Created: r.CreatedAt.Time.UTC(), Revoked: at(r.RevokedAt), Used: at(r.UsedAt),
	}
	if r.Scope == "" {
		return out
	}
	set, err := permission.ParseGrant(r.Scope)
	if err != nil {
		s.log.Warn("scope of a token not read", "token", r.ID, "error", err)
		return out
	}
	out.Scope = set
	return out
}
