package rpc

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode"

	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	carillonv1 "carillon/proto/carillon/v1"
)

// TokenStore keeps tokens, without their secrets.
type TokenStore interface {
	// CreateToken makes a token of a record, whose id and times but Expires the store gives.
	CreateToken(ctx context.Context, r permission.Record) (secret string, made permission.Record, err error)
	// ListTokens lists those of a tenant (empty: of all), every: the revoked and expired ones, too.
	ListTokens(ctx context.Context, tenant string, every bool) ([]permission.Record, error)
	RevokeToken(ctx context.Context, id int64) error
}

// tokenFace manages tokens. They are open to the cluster's admin alone: none of its methods asks what a scope allows.
type tokenFace struct{ Config }

func (s *tokenFace) CreateToken(ctx context.Context, req *carillonv1.CreateTokenRequest) (*carillonv1.CreateTokenResponse, error) {
	r, err := fromNewToken(req)
	if err != nil {
		return nil, err
	}
	if req.GetExpiresIn() != nil {
		d, err := fromLength("expires_in", req.GetExpiresIn())
		switch {
		case err != nil:
			return nil, err
		case d < time.Second || d > job.MaxDelay:
			return nil, invalid("expires_in", "must be 1s to ten years, got %s", d)
		}
		now, err := s.Reader.Ping(ctx)
		if err != nil {
			return nil, err
		}
		r.Expires = now.Add(d)
	}
	secret, made, err := s.TokenStore.CreateToken(ctx, r)
	if err != nil {
		return nil, err
	}
	s.Logger.InfoContext(ctx, "token created", "token", made.ID, "tenant", made.Tenant, "kind", string(made.Kind))
	return &carillonv1.CreateTokenResponse{Secret: secret, Token: toToken(made)}, nil
}

func fromNewToken(req *carillonv1.CreateTokenRequest) (r permission.Record, err error) {
	for field, text := range map[string]string{
		"name": req.GetName(), "tenant": req.GetTenant(), "domain": req.GetDomain(), "slug": req.GetSlug(), "scope": req.GetScope(),
	} {
		if strings.ContainsFunc(text, unicode.IsControl) {
			return r, invalid(field, "has a control character")
		}
	}
	r = permission.Record{Name: req.GetName(), Token: permission.Token{
		Tenant: req.GetTenant(), Domain: req.GetDomain(), Kind: permission.Kind(req.GetKind()), Slug: req.GetSlug(), Trigger: req.GetTrigger(),
	}}
	if r.Tenant == "" {
		r.Tenant = job.DefaultTenant
	}
	if r.Kind == "" {
		r.Kind = permission.App
	}
	switch {
	case r.Kind == permission.CLI && r.Slug != "":
		return r, invalid("slug", "is for an app or a konnector")
	case r.Kind != permission.Konnector && r.Trigger != "":
		return r, invalid("trigger", "is for a konnector")
	case r.Trigger != "" && !isKey(r.Trigger):
		return r, invalid("trigger", "%.64q is no id of a trigger", r.Trigger)
	case r.Kind != permission.CLI && r.Slug == "":
		r.Slug = r.Name
	}
	if req.GetScope() != "" {
		if r.Scope, err = permission.ParseGrant(req.GetScope()); err != nil {
			return r, invalid("scope", "%s", err)
		}
	}
	return r, nil
}

func (s *tokenFace) ListTokens(ctx context.Context, req *carillonv1.ListTokensRequest) (*carillonv1.ListTokensResponse, error) {
	records, err := s.TokenStore.ListTokens(ctx, req.GetTenant(), req.GetAll())
	if err != nil {
		return nil, err
	}
	res := &carillonv1.ListTokensResponse{}
	for _, r := range records {
		res.Tokens = append(res.Tokens, toToken(r))
	}
	return res, nil
}

func (s *tokenFace) RevokeToken(ctx context.Context, req *carillonv1.RevokeTokenRequest) (*carillonv1.RevokeTokenResponse, error) {
	if req.GetId() <= 0 {
		return nil, invalid("id", "%d is no token", req.GetId())
	}
	if err := s.TokenStore.RevokeToken(ctx, req.GetId()); err != nil {
		return nil, err
	}
	s.Logger.InfoContext(ctx, "token revoked", "token", req.GetId())
	return &carillonv1.RevokeTokenResponse{}, nil
}

func toToken(r permission.Record) *carillonv1.Token {
	id, _ := strconv.ParseInt(r.ID, 10, 64) // the store's own
	return &carillonv1.Token{
		Id: id, Name: r.Name, Tenant: r.Tenant, Domain: r.Domain, Kind: string(r.Kind), Scope: r.Scope.String(), CreatedAt: stamp(r.Created),
		ExpiresAt: stamp(r.Expires), RevokedAt: stamp(r.Revoked), UsedAt: stamp(r.Used), Slug: r.Slug, Trigger: r.Trigger,
	}
}
