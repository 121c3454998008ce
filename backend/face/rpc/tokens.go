package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/authn"
	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"carillon/backend/core/cron"
	"carillon/backend/core/permission"
	carillonv1 "carillon/proto/carillon/v1"
)

// Tokens are the bearer tokens that open a cluster. Admin is that of people and the CLI, Cluster that of controllers and
// runners: neither opens the other's RPCs. Those of tenants, which Lookup finds (nil: there are none), open what their
// scope allows. Admin and Cluster both empty: no authentication, for a cluster on loopback alone.
type Tokens struct {
	Admin, Cluster string
	Lookup         Lookup
	Now            func() time.Time // about the database's time; nil: the local clock's
}

// Lookup finds the token whose secret has this permission.Hash. cron.ErrNotFound: there is none that is good now.
type Lookup func(ctx context.Context, hash []byte) (permission.Token, error)

// guard refuses a request before anything of its body is read. What a method allows stands in its proto option; a
// method without one is open to nobody.
func (t Tokens) guard(next http.Handler) http.Handler {
	if t.Admin == "" && t.Cluster == "" {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(authn.SetInfo(r.Context(), caller{everything: true})))
		})
	}
	g := &gate{Tokens: t, bearers: NewBearers(t.Lookup, t.Now)}
	return authn.NewMiddleware(g.authenticate).Wrap(next)
}

// gate is Tokens at work.
type gate struct {
	Tokens
	bearers *Bearers
}

func (g *gate) authenticate(ctx context.Context, r *http.Request) (any, error) {
	procedure, known := authn.InferProcedure(r.URL)
	if known && strings.HasPrefix(procedure, "/"+grpchealth.HealthV1ServiceName+"/") {
		return caller{}, nil // says only whether the controller is ready
	}
	bearer, _ := authn.BearerToken(r)
	access := Access(procedure)
	admin, cluster := equal(bearer, g.Admin), equal(bearer, g.Cluster)
	if !admin && !cluster {
		return g.authenticateTenant(ctx, bearer, access)
	}
	switch {
	case admin && (access == carillonv1.Access_ACCESS_ADMIN || access == carillonv1.Access_ACCESS_TOKEN),
		cluster && access == carillonv1.Access_ACCESS_CLUSTER, access == carillonv1.Access_ACCESS_MEMBER:
		return caller{everything: true}, nil
	}
	return nil, connect.NewError(connect.CodePermissionDenied, errForbidden)
}

// authenticateTenant lets a tenant's own token in where the handler asks what it may do.
func (g *gate) authenticateTenant(ctx context.Context, bearer string, access carillonv1.Access) (any, error) {
	token, err := g.bearers.Authenticate(ctx, bearer)
	switch {
	case errors.Is(err, cron.ErrNotFound):
		return nil, authn.Errorf("a valid bearer token is needed")
	case err != nil:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("tokens cannot be looked up now; nothing was done, try again"))
	case access != carillonv1.Access_ACCESS_TOKEN && access != carillonv1.Access_ACCESS_MEMBER:
		return nil, connect.NewError(connect.CodePermissionDenied, errForbidden)
	}
	return caller{token: token, again: func(ctx context.Context) error {
		_, err := g.bearers.Authenticate(ctx, bearer)
		if errors.Is(err, cron.ErrNotFound) {
			return authn.Errorf("a valid bearer token is needed")
		}
		return err
	}}, nil
}

// equal compares in constant time, whatever the lengths; an unset token equals nothing.
func equal(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && want != ""
}

// Bearers finds tenants' tokens by what callers present, and keeps what it found for some seconds: a token that is
// revoked opens nothing after them. One that expires is looked up again at once. It may be used by any number of goroutines.
type Bearers struct {
	lookup Lookup
	now    func() time.Time
	turns  chan struct{} // bounds the lookups under way

	mu    sync.Mutex
	found map[[sha256.Size]byte]finding
	swept time.Time // when old findings were last dropped
}

// finding is what a lookup came to; of no token, too.
type finding struct {
	token permission.Token
	known bool
	at    time.Time
}

const (
	keepFinding = 4 * time.Second
	maxFindings = 10_000
	maxLookups  = 16
	lookupLimit = 5 * time.Second
	maxSecret   = 256 // bytes of what is looked up at all
)

var errNoToken = fmt.Errorf("%w: no such token", cron.ErrNotFound)

// NewBearers keeps what lookup finds; without one there is no token. now is about the database's time (nil: the local
// clock's): it says when to look again, and the database whether a token has expired.
func NewBearers(lookup Lookup, now func() time.Time) *Bearers {
	if now == nil {
		now = time.Now
	}
	return &Bearers{lookup: lookup, now: now, turns: make(chan struct{}, maxLookups), found: map[[sha256.Size]byte]finding{}}
}

// Authenticate finds the token that a caller presents. cron.ErrNotFound: there is none that is good; any other error:
// it cannot be said now.
func (b *Bearers) Authenticate(ctx context.Context, bearer string) (permission.Token, error) {
	if b.lookup == nil || !strings.HasPrefix(bearer, permission.SecretPrefix) || len(bearer) > maxSecret {
		return permission.Token{}, errNoToken
	}
	hash := [sha256.Size]byte(permission.Hash(bearer))
	f, ok := b.kept(hash)
	if !ok {
		var err error
		if f, err = b.ask(ctx, hash); err != nil {
			return permission.Token{}, err
		}
	}
	if !f.known {
		return permission.Token{}, errNoToken
	}
	return f.token, nil
}

func (b *Bearers) kept(hash [sha256.Size]byte) (finding, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.found[hash]
	return f, ok && time.Since(f.at) < keepFinding && !f.token.Expired(b.now())
}

// ask looks a token up when its turn comes, unless somebody else has done so meanwhile.
func (b *Bearers) ask(ctx context.Context, hash [sha256.Size]byte) (f finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	select {
	case b.turns <- struct{}{}:
		defer func() { <-b.turns }()
	case <-ctx.Done():
		return f, fmt.Errorf("look up a token: %w", ctx.Err())
	}
	if f, ok := b.kept(hash); ok {
		return f, nil
	}
	f.at = time.Now() // what is revoked while the lookup is under way may be found by it
	f.token, err = b.lookup(ctx, hash[:])
	switch {
	case err == nil:
		f.known = f.token.Tenant != "" // in the store none is any
	case !errors.Is(err, cron.ErrNotFound):
		return f, fmt.Errorf("look up a token: %w", err)
	}
	b.keep(hash, f)
	return f, nil
}

func (b *Bearers) keep(hash [sha256.Size]byte, f finding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.found) >= maxFindings && time.Since(b.swept) >= keepFinding {
		b.swept = time.Now()
		for h, old := range b.found {
			if time.Since(old.at) >= keepFinding {
				delete(b.found, h)
			}
		}
	}
	for h := range b.found { // no matter which: it is looked up again
		if len(b.found) < maxFindings {
			break
		}
		delete(b.found, h)
	}
	b.found[hash] = f
}

// Access reads which token opens a procedure ("/carillon.v1.CronService/ListCronJobs").
func Access(procedure string) carillonv1.Access {
	if strings.HasPrefix(procedure, "/grpc.reflection.") {
		return carillonv1.Access_ACCESS_ADMIN
	}
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if _, isMethod := d.(protoreflect.MethodDescriptor); err != nil || !isMethod {
		return carillonv1.Access_ACCESS_UNSPECIFIED // options of anything else hold no access, and asking them for it panics
	}
	access, _ := proto.GetExtension(d.Options(), carillonv1.E_Access).(carillonv1.Access)
	return access
}
