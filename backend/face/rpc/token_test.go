package rpc

import (
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "carillon/proto/carillon/v1"
)

func TestTokensByRPC(t *testing.T) {
	t.Parallel()
	db, all := open(t, "Asia/Tokyo")
	c, ctx := all["connect json"].tokens, t.Context()
	create := func(change func(*carillonv1.CreateTokenRequest)) (*carillonv1.CreateTokenResponse, error) {
		req := &carillonv1.CreateTokenRequest{Name: "shop"}
		change(req)
		return c.CreateToken(ctx, req)
	}
	before := contents(db)
	for field, change := range map[string]func(*carillonv1.CreateTokenRequest){
		"name":       func(r *carillonv1.CreateTokenRequest) { r.Name = "a\tb" },
		"tenant":     func(r *carillonv1.CreateTokenRequest) { r.Tenant = "a\nb" },
		"kind":       func(r *carillonv1.CreateTokenRequest) { r.Kind = "root" },
		"scope":      func(r *carillonv1.CreateTokenRequest) { r.Scope = "io.cozy.jobs:FETCH" },
		"expires_in": func(r *carillonv1.CreateTokenRequest) { r.ExpiresIn = durationpb.New(-time.Second) },
		"trigger":    func(r *carillonv1.CreateTokenRequest) { r.Trigger = aKey },
		"slug":       func(r *carillonv1.CreateTokenRequest) { r.Kind, r.Slug = "cli", "x" },
	} {
		if _, err := create(change); connect.CodeOf(err) != connect.CodeInvalidArgument || !slices.Equal(detailsOf(err).fields, []string{field}) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if contents(db) != before {
		t.Error("a refused token was made")
	}
	made, err := create(func(r *carillonv1.CreateTokenRequest) {
		r.Tenant, r.Domain, r.Kind, r.Trigger, r.Scope, r.ExpiresIn = "acme", "acme.example", "konnector", aKey, "io.cozy.jobs:GET io.cozy.triggers", durationpb.New(time.Hour)
	})
	if err != nil || !strings.HasPrefix(made.GetSecret(), "car_") || len(made.GetSecret()) != 47 {
		t.Fatal(made, err)
	}
	tok := made.GetToken()
	left := tok.GetExpiresAt().AsTime().Sub(db.Now())
	if tok.GetTenant() != "acme" || tok.GetDomain() != "acme.example" || tok.GetKind() != "konnector" || tok.GetSlug() != "shop" || tok.GetTrigger() != aKey ||
		tok.GetScope() != "io.cozy.jobs:GET io.cozy.triggers" || left < 59*time.Minute || left > time.Hour {
		t.Errorf("%v, %s left", tok, left)
	}
	plain, err := create(func(*carillonv1.CreateTokenRequest) {})
	if err != nil || plain.GetToken().GetTenant() != "default" || plain.GetToken().GetKind() != "app" || plain.GetToken().GetScope() != "" || plain.GetToken().GetExpiresAt() != nil {
		t.Errorf("%v, %v", plain, err)
	}
	var kept string
	db.Scan("SELECT string_agg(t::text, ' ') FROM carillon.tokens t", nil, &kept)
	if strings.Contains(kept, made.GetSecret()) || strings.Contains(kept, made.GetSecret()[4:]) {
		t.Error("the secret is kept")
	}
	ids := func(req *carillonv1.ListTokensRequest) (ids []int64) {
		res, err := c.ListTokens(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, tok := range res.GetTokens() {
			ids = append(ids, tok.GetId())
		}
		return ids
	}
	if _, err := c.RevokeToken(ctx, &carillonv1.RevokeTokenRequest{Id: tok.GetId()}); err != nil {
		t.Fatal(err)
	}
	if got := ids(&carillonv1.ListTokensRequest{}); !slices.Equal(got, []int64{plain.GetToken().GetId()}) {
		t.Errorf("%v", got)
	}
	if got := ids(&carillonv1.ListTokensRequest{Tenant: "acme", All: true}); !slices.Equal(got, []int64{tok.GetId()}) {
		t.Errorf("%v", got)
	}
	for id, code := range map[int64]connect.Code{1 << 40: connect.CodeNotFound, 0: connect.CodeInvalidArgument, -1: connect.CodeInvalidArgument} {
		if _, err := c.RevokeToken(ctx, &carillonv1.RevokeTokenRequest{Id: id}); connect.CodeOf(err) != code {
			t.Errorf("revoke %d: %v", id, err)
		}
	}
	if _, err := c.RevokeToken(ctx, &carillonv1.RevokeTokenRequest{Id: tok.GetId()}); err != nil {
		t.Errorf("revoked again: %v", err)
	}
}
