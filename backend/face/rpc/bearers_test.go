package rpc

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

func TestRevokedTokensEndWithinSeconds(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	secret, id := g.token("acme", "app", "io.cozy.jobs:ALL:v1:worker")
	job := g.enqueue("acme", "m.v1")
	c := g.as(secret)
	if _, err := c.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: job}); err != nil {
		t.Fatal(err)
	}
	stream, err := c.jobs.WatchJob(ctx, &carillonv1.WatchJobRequest{Id: job})
	if err != nil || !stream.Receive() {
		t.Fatal(err, stream.Err())
	}
	if _, err := g.as(adminToken).tokens.RevokeToken(ctx, &carillonv1.RevokeTokenRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	for stream.Receive() {
	}
	if err := stream.Err(); told(err) != none || time.Since(revoked) > 10*time.Second {
		t.Errorf("the watch ends with %v after %s", err, time.Since(revoked))
	}
	if _, err := c.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: job}); told(err) != none {
		t.Errorf("%v", err)
	}
}

func TestLookupsAreKeptAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, good, away := 0, true, false
		b := NewBearers(func(_ context.Context, hash []byte) (permission.Token, error) {
			asked++
			switch {
			case away:
				return permission.Token{}, fmt.Errorf("find a token: %w", cron.ErrUnavailable)
			case good && bytes.Equal(hash, permission.Hash("car_a")):
				return permission.Token{Tenant: "acme"}, nil
			}
			return permission.Token{}, cron.ErrNotFound
		}, nil)
		look := func(bearer string) (tenant string, err error) {
			token, err := b.Authenticate(t.Context(), bearer)
			return token.Tenant, err
		}
		for range 10 {
			if tenant, err := look("car_a"); tenant != "acme" || err != nil {
				t.Fatal(tenant, err)
			}
			if _, err := look("car_b"); !isNotFound(err) {
				t.Fatal(err)
			}
		}
		if asked != 2 {
			t.Errorf("%d lookups for two tokens", asked)
		}
		for _, never := range []string{"", "a", "Car_a", "car_" + strings.Repeat("x", 300)} {
			if _, err := look(never); !isNotFound(err) || asked != 2 {
				t.Errorf("%q: %v after %d lookups", never, err, asked)
			}
		}
		good = false
		time.Sleep(keepFinding)
		if _, err := look("car_a"); !isNotFound(err) {
			t.Errorf("revoked, and after %s: %v", keepFinding, err)
		}
		good, away = true, true
		time.Sleep(keepFinding)
		if _, err := look("car_a"); err == nil || isNotFound(err) {
			t.Errorf("the database is away: %v", err)
		}
		away = false
		if tenant, err := look("car_a"); tenant != "acme" || err != nil {
			t.Errorf("it is back: %q, %v", tenant, err)
		}
		for i := range 2 * maxFindings {
			look(fmt.Sprintf("car_%d", i))
		}
		if n := len(b.found); n > maxFindings {
			t.Errorf("%d findings are kept", n)
		}
	})
}

// A token that expires while it is kept is asked for again, and opens nothing; it is the database's time that counts.
func TestExpiredTokensEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead, asked := time.Hour, 0 // the database's clock is
		now := func() time.Time { return time.Now().Add(ahead) }
		expires := now().Add(time.Second)
		b := NewBearers(func(context.Context, []byte) (permission.Token, error) {
			if asked++; !now().Before(expires) {
				return permission.Token{}, cron.ErrNotFound
			}
			return permission.Token{Tenant: "acme", Expires: expires}, nil
		}, now)
		for range 3 {
			if _, err := b.Authenticate(t.Context(), "car_a"); err != nil || asked != 1 {
				t.Fatalf("%v after %d lookups", err, asked)
			}
		}
		time.Sleep(time.Second)
		if _, err := b.Authenticate(t.Context(), "car_a"); !isNotFound(err) {
			t.Errorf("expired: %v", err)
		}
	})
}

func isNotFound(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), cron.ErrNotFound.Error())
}

// A thousand callers with one token at once ask the database a few times, not a thousand.
func TestOneLookupForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{}, 10_000)
		b := NewBearers(func(context.Context, []byte) (permission.Token, error) {
			asked <- struct{}{}
			time.Sleep(10 * time.Millisecond)
			return permission.Token{Tenant: "acme"}, nil
		}, nil)
		done := make(chan error, 1000)
		for range 1000 {
			go func() {
				_, err := b.Authenticate(t.Context(), "car_a")
				done <- err
			}()
		}
		for range 1000 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(asked); n > maxLookups {
			t.Errorf("%d lookups", n)
		}
	})
}

// With the database away nobody is told that a good token is a bad one.
func TestATokenThatCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	face, _ := handler(t, db.Store, Tokens{Admin: adminToken, Lookup: func(context.Context, []byte) (permission.Token, error) {
		return permission.Token{}, fmt.Errorf("find a token: %w: a secret of the pool", cron.ErrUnavailable)
	}})
	url, _ := serve(t, face)
	c := guarded{t, db, url}.as("car_a")
	if _, err := c.jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Id: aJobID}); connect.CodeOf(err) != connect.CodeUnavailable || strings.Contains(err.Error(), "pool") {
		t.Errorf("%v", err)
	}
}

// Without configured tokens everything is open, whatever a caller presents.
func TestWithoutTokensEverythingIsOpen(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	face, _ := handler(t, db.Store, Tokens{Lookup: db.FindToken})
	url, _ := serve(t, face)
	for _, token := range []string{"", "car_x", "anything"} {
		c := guarded{t, db, url}.as(token)
		res, err := c.jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Ref: "m.v1", Tenant: "acme", DueAt: timestamppb.New(db.Now().Add(time.Hour))}}})
		if err != nil || res.GetJobs()[0].GetError() != nil {
			t.Errorf("with %q: %v, %v", token, res, err)
		}
		if _, err := c.tokens.ListTokens(t.Context(), &carillonv1.ListTokensRequest{}); err != nil {
			t.Errorf("with %q: %v", token, err)
		}
	}
}
