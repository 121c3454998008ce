package rpc

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// bearerOf signs requests.
type bearerOf struct {
	token string
	next  http.RoundTripper
}

func (b bearerOf) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// guarded is a database with a face that asks for tokens over it, and clients by token.
type guarded struct {
	t  *testing.T
	db storetest.DB
	// url is that of the face.
	url string
}

func newGuarded(t *testing.T) guarded {
	db := storetest.Open(t, "")
	face, _ := handler(t, db.Store, Tokens{Admin: adminToken, Cluster: clusterToken, Lookup: db.FindToken})
	url, _ := serve(t, face)
	return guarded{t, db, url}
}

func (g guarded) as(token string) clients {
	return wire{&http.Client{Transport: bearerOf{token, http.DefaultTransport}}, []connect.ClientOption{connect.WithProtoJSON()}}.clients(g.url)
}

// token makes a stored token by RPC, as the admin does.
func (g guarded) token(tenant, kind, scope string) (secret string, id int64) {
	g.t.Helper()
	res, err := g.as(adminToken).tokens.CreateToken(g.t.Context(), &carillonv1.CreateTokenRequest{Name: "t", Tenant: tenant, Kind: kind, Scope: scope, Domain: tenant + ".example"})
	if err != nil {
		g.t.Fatal(err)
	}
	return res.GetSecret(), res.GetToken().GetId()
}

// enqueue makes a job by the admin.
func (g guarded) enqueue(tenant, ref string) string {
	g.t.Helper()
	res, err := g.as(adminToken).jobs.EnqueueJobs(g.t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Tenant: tenant, Ref: ref}}})
	if err != nil || res.GetJobs()[0].GetError() != nil {
		g.t.Fatal(err, res)
	}
	return res.GetJobs()[0].GetId()
}

func (g guarded) trigger(tenant, worker string) string {
	g.t.Helper()
	res, err := g.as(adminToken).triggers.CreateTrigger(g.t.Context(), &carillonv1.CreateTriggerRequest{Tenant: tenant, Kind: "@every", Arguments: "1h", Worker: worker})
	if err != nil {
		g.t.Fatal(err)
	}
	return res.GetTrigger().GetId()
}

// told is the code of an answer.
func told(err error) string {
	if err == nil {
		return ""
	}
	return connect.CodeOf(err).String()
}

const (
	none   = "unauthenticated"
	deny   = "permission_denied"
	absent = "not_found"
)

// Every RPC that tenants' tokens open, with no token, a wrong one, one of another tenant that may do everything there, one
// of the tenant that may do nothing, one whose scope is on another worker, and the right one.
func TestEveryRPCOfTenantsLooksAtTheObject(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	foreign, _ := g.token("other", "cli", "*")
	bare, _ := g.token("acme", "app", "")
	aside, _ := g.token("acme", "app", "io.cozy.jobs:ALL:v9:worker io.cozy.triggers:ALL:v9:worker io.cozy.files")
	right, _ := g.token("acme", "app", "io.cozy.jobs:ALL:v1:worker io.cozy.triggers:ALL:v1:worker io.cozy.bills")
	runs := func(job string) *carillonv1.GetJobRequest { return &carillonv1.GetJobRequest{Id: job} }
	calls := map[string]struct {
		// do makes its own objects of tenant acme, so that nobody's call is in another's way.
		do                           func(ctx context.Context, c clients) error
		foreign, bare, aside, rights string
	}{
		"JobService/EnqueueJobs": {func(ctx context.Context, c clients) error {
			res, err := c.jobs.EnqueueJobs(ctx, &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Tenant: "acme", Ref: "m.v1"}}})
			if e := res.GetJobs(); err == nil && e[0].GetError() != nil {
				return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s", e[0].GetError().GetCode()))
			}
			return err
		}, deny, deny, deny, ""},
		"JobService/GetJob": {func(ctx context.Context, c clients) error {
			_, err := c.jobs.GetJob(ctx, runs(g.enqueue("acme", "m.v1")))
			return err
		}, absent, deny, absent, ""},
		"JobService/ListJobs": {func(ctx context.Context, c clients) error {
			_, err := c.jobs.ListJobs(ctx, &carillonv1.ListJobsRequest{Tenant: "acme", Ref: "m.v1"})
			return err
		}, deny, deny, deny, ""},
		"JobService/WatchJob": {func(ctx context.Context, c clients) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			s, err := c.jobs.WatchJob(ctx, &carillonv1.WatchJobRequest{Id: g.enqueue("acme", "m.v1")})
			if err != nil {
				return err
			}
			s.Receive()
			return s.Err()
		}, absent, deny, absent, ""},
		"JobService/CancelJob": {func(ctx context.Context, c clients) error {
			_, err := c.jobs.CancelJob(ctx, &carillonv1.CancelJobRequest{Id: g.enqueue("acme", "m.v1")})
			return err
		}, absent, deny, absent, ""},
		"JobService/RetryJob": {func(ctx context.Context, c clients) error {
			res, err := g.as(adminToken).jobs.EnqueueJobs(g.t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Tenant: "acme", Ref: "m.v1"}}})
			if err != nil {
				return err
			}
			_, err = c.jobs.RetryJob(ctx, &carillonv1.RetryJobRequest{Id: res.GetJobs()[0].GetId()})
			if connect.CodeOf(err) == connect.CodeFailedPrecondition { // it was due already: whoever hears that was let in
				return nil
			}
			return err
		}, absent, deny, absent, ""},
		"TriggerService/CreateTrigger": {func(ctx context.Context, c clients) error {
			_, err := c.triggers.CreateTrigger(ctx, &carillonv1.CreateTriggerRequest{Tenant: "acme", Kind: "@in", Arguments: "1h", Worker: "v1"})
			return err
		}, deny, deny, deny, ""},
		"TriggerService/GetTrigger": {func(ctx context.Context, c clients) error {
			_, err := c.triggers.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: g.trigger("acme", "v1")})
			return err
		}, absent, deny, absent, ""},
		"TriggerService/ListTriggers": {func(ctx context.Context, c clients) error {
			_, err := c.triggers.ListTriggers(ctx, &carillonv1.ListTriggersRequest{Tenant: "acme", Workers: []string{"v1"}})
			return err
		}, deny, deny, deny, ""},
		"TriggerService/LaunchTrigger": {func(ctx context.Context, c clients) error {
			_, err := c.triggers.LaunchTrigger(ctx, &carillonv1.LaunchTriggerRequest{Id: g.trigger("acme", "v1")})
			return err
		}, absent, deny, absent, ""},
		"TriggerService/PauseTrigger": {func(ctx context.Context, c clients) error {
			_, err := c.triggers.PauseTrigger(ctx, &carillonv1.PauseTriggerRequest{Id: g.trigger("acme", "v1")})
			return err
		}, absent, deny, absent, ""},
		"TriggerService/DeleteTrigger": {func(ctx context.Context, c clients) error {
			_, err := c.triggers.DeleteTrigger(ctx, &carillonv1.DeleteTriggerRequest{Id: g.trigger("acme", "v1")})
			return err
		}, absent, deny, absent, ""},
		"TriggerService/PreviewTrigger": {func(ctx context.Context, c clients) error { // looks at nothing
			_, err := c.triggers.PreviewTrigger(ctx, &carillonv1.PreviewTriggerRequest{Kind: "@every", Arguments: "1h"})
			return err
		}, "", "", "", ""},
		"EventService/PublishEvents": {func(ctx context.Context, c clients) error {
			_, err := c.events.PublishEvents(ctx, &carillonv1.PublishEventsRequest{Tenant: "acme", Events: []*carillonv1.Event{{Type: "io.cozy.bills", Verb: "UPDATED", DocId: "b1"}}})
			return err
		}, deny, deny, deny, ""},
	}
	for _, m := range methods(t) {
		short := strings.TrimPrefix(procedureOf(m), "/carillon.v1.")
		access := Access(procedureOf(m))
		open := access == carillonv1.Access_ACCESS_TOKEN || access == carillonv1.Access_ACCESS_MEMBER
		if _, known := calls[short]; known != open {
			t.Errorf("%s is open to tenants: %t, and stands in this table: %t", short, open, known)
		}
	}
	for short, call := range calls {
		for _, by := range []struct{ name, token, want string }{
			{"no", "", none}, {"a wrong", "car_wrong", none}, {"a foreign", foreign, call.foreign}, {"a bare", bare, call.bare}, {"an aside", aside, call.aside},
			{"the right", right, call.rights}, {"the admin", adminToken, ""},
		} {
			before := ""
			if by.want != "" && slices.Contains([]string{"JobService/EnqueueJobs", "TriggerService/CreateTrigger", "EventService/PublishEvents"}, short) {
				before = contents(g.db)
			}
			if got := told(call.do(t.Context(), g.as(by.token))); got != by.want {
				t.Errorf("%s with %s token: %q, want %q", short, by.name, got, by.want)
			}
			if before != "" && contents(g.db) != before {
				t.Errorf("%s with %s token wrote something", short, by.name)
			}
		}
	}
}

// What is absent, what is another tenant's and what the scope does not cover read the same, to the letter.
func TestAbsentAndForeignAreTheSame(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	secret, _ := g.token("acme", "app", "io.cozy.jobs:ALL:v1:worker io.cozy.triggers:ALL:v1:worker")
	c := g.as(secret)
	answers := func(what string, ids []string, ask func(id string) error) {
		texts := map[string]bool{}
		for _, id := range ids {
			err := ask(id)
			if connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("%s %s: %v", what, id, err)
				continue
			}
			texts[strings.ReplaceAll(err.Error(), id, "ID")] = true
		}
		if len(texts) != 1 {
			t.Errorf("%s: %v", what, texts)
		}
	}
	jobs := []string{aJobID, g.enqueue("other", "m.v1"), g.enqueue("acme", "m.v2")}
	triggers := []string{aKey, "nonsense", g.trigger("other", "v1"), g.trigger("acme", "v2")}
	ctx := t.Context()
	answers("GetJob", jobs, func(id string) error { _, err := c.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: id}); return err })
	answers("CancelJob", jobs, func(id string) error {
		_, err := c.jobs.CancelJob(ctx, &carillonv1.CancelJobRequest{Id: id})
		return err
	})
	answers("RetryJob", jobs, func(id string) error { _, err := c.jobs.RetryJob(ctx, &carillonv1.RetryJobRequest{Id: id}); return err })
	answers("GetTrigger", triggers, func(id string) error {
		_, err := c.triggers.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: id})
		return err
	})
	answers("LaunchTrigger", triggers, func(id string) error {
		_, err := c.triggers.LaunchTrigger(ctx, &carillonv1.LaunchTriggerRequest{Id: id})
		return err
	})
	answers("PauseTrigger", triggers, func(id string) error {
		_, err := c.triggers.PauseTrigger(ctx, &carillonv1.PauseTriggerRequest{Id: id})
		return err
	})
	answers("DeleteTrigger", triggers, func(id string) error {
		_, err := c.triggers.DeleteTrigger(ctx, &carillonv1.DeleteTriggerRequest{Id: id})
		return err
	})
	if _, err := g.as(adminToken).triggers.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: triggers[3]}); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}

func TestTenantIsTheTokens(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	secret, _ := g.token("acme", "cli", "*")
	c, ctx := g.as(secret), t.Context()
	res, err := c.jobs.EnqueueJobs(ctx, &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{
		{Ref: "m.v1"}, {Ref: "m.v1", Tenant: "acme"}, {Ref: "m.v1", Tenant: "other"}, {Ref: "m.v1", ParentId: aJobID, ParentRunId: "018f0000-0000-7000-8000-000000000000"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "", "permission_denied tenant", "permission_denied parent_id"} {
		e := res.GetJobs()[i].GetError()
		if got := strings.TrimSpace(e.GetCode() + " " + e.GetField()); got != want {
			t.Errorf("job %d: %q, want %q", i, got, want)
		}
	}
	g.enqueue("other", "m.v1")
	jobs, err := c.jobs.ListJobs(ctx, &carillonv1.ListJobsRequest{})
	if err != nil || len(jobs.GetJobs()) != 2 || slices.ContainsFunc(jobs.GetJobs(), func(j *carillonv1.Job) bool { return j.GetTenant() != "acme" }) {
		t.Errorf("%v, %v", jobs, err)
	}
	made, err := c.triggers.CreateTrigger(ctx, &carillonv1.CreateTriggerRequest{Kind: "@every", Arguments: "1h", Worker: "v1"})
	if tr := made.GetTrigger(); err != nil || tr.GetTenant() != "acme" || tr.GetDomain() != "acme.example" {
		t.Errorf("%v, %v", made, err)
	}
	g.trigger("other", "v1")
	triggers, err := c.triggers.ListTriggers(ctx, &carillonv1.ListTriggersRequest{})
	if err != nil || len(triggers.GetTriggers()) != 1 {
		t.Errorf("%v, %v", triggers, err)
	}
	if _, err := c.events.PublishEvents(ctx, &carillonv1.PublishEventsRequest{Events: []*carillonv1.Event{{Type: "a.b.c", Verb: "CREATED"}}}); err != nil {
		t.Error(err)
	}
	var tenants string
	g.db.Scan("SELECT string_agg(DISTINCT tenant, ',') FROM carillon.events", nil, &tenants)
	if tenants != "acme" {
		t.Errorf("events of %s", tenants)
	}
}

func TestScopesByWorkerAndVerb(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	ctx := t.Context()
	enqueue := func(scope, kind, ref string) string {
		t.Helper()
		secret, _ := g.token("acme", kind, scope)
		res, err := g.as(secret).jobs.EnqueueJobs(ctx, &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Ref: ref}}})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetJobs()[0].GetError().GetCode()
	}
	for _, tc := range []struct{ scope, kind, ref, want string }{
		{"io.cozy.jobs:POST:v1:worker", "app", "m.v1", ""},
		{"io.cozy.jobs:POST:m.v1:worker", "app", "m.v1", ""},
		{"io.cozy.jobs:ALL:v1:worker", "app", "m.v1", ""},
		{"io.cozy.jobs:GET:v1:worker", "app", "m.v1", deny},
		{"io.cozy.jobs:POST:v2:worker", "app", "m.v1", deny},
		{"io.cozy.jobs:POST:v1", "app", "m.v1", deny}, // an id, not a worker
		{"io.cozy.jobs", "app", "m.v1", deny},         // a rule on the whole type is not enough
		{"io.cozy.triggers:POST:v1:worker", "app", "m.v1", deny},
		{"io.cozy.jobs:POST:sendmail:worker", "app", "m.sendmail", ""},
		{"io.cozy.jobs:POST:vlost:worker", "app", "m.vlost", deny}, // vlost is no worker's name
		{"io.cozy.jobs:POST:x1:worker", "app", "m.x1", deny},       // which says nothing of what is deployed
		{"io.cozy.jobs:POST:m.x1:worker", "app", "m.x1", absent},
		{"io.cozy.jobs:POST:vault:worker", "app", "m.vault", deny}, // reserved
		{"io.cozy.jobs:POST:vault:worker", "cli", "m.vault", ""},
	} {
		if got := enqueue(tc.scope, tc.kind, tc.ref); got != tc.want {
			t.Errorf("%s with %s by %s: %q, want %q", tc.ref, tc.scope, tc.kind, got, tc.want)
		}
	}
	secret, _ := g.token("acme", "app", "io.cozy.jobs:GET:sendmail:worker io.cozy.jobs:POST:sendmail:worker")
	c := g.as(secret)
	for ref, want := range map[string]string{"": deny, "m.v1": deny, "m.sendmail": ""} {
		if _, err := c.jobs.ListJobs(ctx, &carillonv1.ListJobsRequest{Ref: ref}); told(err) != want {
			t.Errorf("list %q: %v", ref, err)
		}
	}
	res, err := c.jobs.EnqueueJobs(ctx, &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Ref: "m.sendmail"}}})
	if err != nil {
		t.Fatal(err)
	}
	var envelope string
	g.db.Scan("SELECT envelope::text FROM carillon.jobs ORDER BY id DESC LIMIT 1", nil, &envelope)
	if !strings.Contains(envelope, `"worker": "sendmail"`) || !strings.Contains(envelope, `"domain": "acme.example"`) {
		t.Errorf("envelope %s", envelope)
	}
	id := res.GetJobs()[0].GetId()
	if _, err := c.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: id}); err != nil {
		t.Error(err)
	}
	if _, err := c.jobs.CancelJob(ctx, &carillonv1.CancelJobRequest{Id: id}); told(err) != deny {
		t.Errorf("cancel without PATCH: %v", err)
	}
}

// What the limit of a worker counts is counted over Connect, too, under whichever name its verb is enqueued.
func TestRatesOfTenantsHoldOverConnect(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for _, scope := range []string{"io.cozy.jobs:POST:sendmail:worker", "io.cozy.jobs:POST:m.sendmail:worker", "*"} {
		secret, _ := g.token(fmt.Sprintf("t%d", len(scope)), "cli", scope)
		var jobs []*carillonv1.NewJob
		for range 205 {
			jobs = append(jobs, &carillonv1.NewJob{Ref: "m.sendmail"})
		}
		res, err := g.as(secret).jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: jobs})
		if err != nil {
			t.Fatal(err)
		}
		refused := map[string]int{}
		for _, j := range res.GetJobs() {
			if e := j.GetError(); e != nil {
				refused[e.GetCode()]++
			}
		}
		if refused["resource_exhausted"] != 5 || len(refused) != 1 {
			t.Errorf("%s: refused %v", scope, refused)
		}
	}
	if _, err := g.as(adminToken).jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Ref: "m.sendmail"}}}); err != nil {
		t.Error(err)
	}
	id := g.trigger("acme", "vslow")
	_, err := g.as(adminToken).triggers.LaunchTrigger(t.Context(), &carillonv1.LaunchTriggerRequest{Id: id})
	if d := detailsOf(err); connect.CodeOf(err) != connect.CodeResourceExhausted || d.retry < time.Minute || d.reason != "RATE_LIMITED" || !strings.Contains(err.Error(), "Rate limit reached") {
		t.Errorf("%v, %+v", err, d)
	}
}

func TestAKonnectorKnowsItsOwnTrigger(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	ctx := t.Context()
	own := g.trigger("acme", "v1")
	res, err := g.as(adminToken).tokens.CreateToken(ctx, &carillonv1.CreateTokenRequest{Name: "bank", Tenant: "acme", Kind: "konnector", Trigger: own})
	if err != nil {
		t.Fatal(err)
	}
	c := g.as(res.GetSecret()).triggers
	if _, err := c.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: own}); err != nil {
		t.Error(err)
	}
	if _, err := c.LaunchTrigger(ctx, &carillonv1.LaunchTriggerRequest{Id: own}); told(err) != absent {
		t.Errorf("launch: %v", err)
	}
	if _, err := c.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: g.trigger("acme", "v1")}); told(err) != absent {
		t.Errorf("another: %v", err)
	}
	if _, err := c.DeleteTrigger(ctx, &carillonv1.DeleteTriggerRequest{Id: own}); err != nil {
		t.Error(err)
	}
}
