package store_test

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
	"carillon/backend/store/storetest"
)

func TestTokens(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		scope, err := permission.Parse("io.cozy.jobs:POST:sendmail:worker io.cozy.triggers")
		if err != nil {
			t.Fatal(err)
		}
		expires := db.Now().Add(time.Hour).Truncate(time.Microsecond)
		secret, made, err := db.CreateToken(ctx, permission.Record{Name: "notes", Token: permission.Token{
			Tenant: "t", Domain: "alice.example", Kind: permission.Konnector, Slug: "bank", Trigger: "abc", Scope: scope, Expires: expires,
		}})
		if err != nil || !strings.HasPrefix(secret, "car_") || len(secret) != 47 || made.Created.IsZero() || made.Name != "notes" {
			t.Fatalf("%q, %+v, %v", secret, made, err)
		}
		other, _, err := db.CreateToken(ctx, permission.Record{Name: "all", Token: permission.Token{Tenant: "u", Kind: permission.CLI, Scope: permission.Full()}})
		if err != nil || other == secret {
			t.Fatal(err)
		}
		got, err := db.FindToken(ctx, permission.Hash(secret))
		if err != nil || got.ID != made.ID || got.Tenant != "t" || got.Domain != "alice.example" || got.Kind != permission.Konnector || got.Slug != "bank" || got.Trigger != "abc" ||
			got.Scope.String() != scope.String() || !got.Expires.Equal(expires) {
			t.Errorf("token %+v, %v", got, err)
		}
		if all, err := db.FindToken(ctx, permission.Hash(other)); err != nil || !all.Scope.Everything() || !all.Expires.IsZero() {
			t.Errorf("token %+v, %v", all, err)
		}
		for _, hash := range [][]byte{nil, permission.Hash(""), permission.Hash(secret + "x"), permission.Hash(secret)[:31]} {
			if _, err := db.FindToken(ctx, hash); !errors.Is(err, cron.ErrNotFound) {
				t.Errorf("%x: %v", hash, err)
			}
		}
		var row []byte
		if db.Scan("SELECT string_agg(k::text, ' ')::bytea FROM carillon.tokens k", nil, &row); bytes.Contains(row, []byte(secret[4:])) {
			t.Error("the secret is stored")
		}
		// Used: noted at most once a minute.
		used := func() time.Time {
			if err := db.TouchToken(ctx, got.ID); err != nil {
				t.Fatal(err)
			}
			list, err := db.ListTokens(ctx, "t", false)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].Used
		}
		first := used()
		if again := used(); first.IsZero() || !again.Equal(first) {
			t.Errorf("used %s, then %s", first, again)
		}
		db.Exec("UPDATE carillon.tokens SET used_at = now() - interval '2 minutes'")
		if later := used(); later.Before(first) {
			t.Errorf("used %s, then %s", first, later)
		}
		// Expired and revoked ones are nobody's any more.
		db.Exec("UPDATE carillon.tokens SET expires_at = now() WHERE tenant = 't'")
		if _, err := db.FindToken(ctx, permission.Hash(secret)); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("expired: %v", err)
		}
		list, err := db.ListTokens(ctx, "", false)
		if err != nil || len(list) != 1 || list[0].Name != "all" {
			t.Fatalf("list %+v, %v", list, err)
		}
		id, err := strconv.ParseInt(list[0].ID, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := db.RevokeToken(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.FindToken(ctx, permission.Hash(other)); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("revoked: %v", err)
		}
		if err := db.RevokeToken(ctx, id+100); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("revoke: %v", err)
		}
		if list, err := db.ListTokens(ctx, "", true); err != nil || len(list) != 2 || list[1].Revoked.IsZero() || !list[0].Revoked.IsZero() {
			t.Errorf("all %+v, %v", list, err)
		}
	})
}

// A scope that cannot be read allows nothing.
func TestTokenWithABrokenScope(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	secret, _, err := db.CreateToken(t.Context(), permission.Record{Name: "x", Token: permission.Token{Tenant: "t", Kind: permission.App, Scope: permission.Full()}})
	if err != nil {
		t.Fatal(err)
	}
	db.Exec("UPDATE carillon.tokens SET scope = ':::'")
	if got, err := db.FindToken(t.Context(), permission.Hash(secret)); err != nil || got.Scope.Everything() || got.MayPurge() {
		t.Errorf("token %+v, %v", got, err)
	}
}
