package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"carillon"
	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/store/storetest"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// office is a controller with the verbs m.sendmail and m.open, of which the latter is reserved, and a tenant's operator.
type office struct {
	*tenant
	t        *testing.T
	db       storetest.DB
	operator string
}

func newOffice(t *testing.T) office {
	db := storetest.Open(t, "")
	n := move(t, db, func(c *Config) { c.Reserved = permission.Reserved{"open"} })
	eventually(t, "it is ready", n.ready)
	work := carillon.Func(func(context.Context, any) (any, error) { return nil, nil })
	play(t, n, carillon.Verbs{"sendmail": work, "open": work}, nil)
	o := office{n, t, db, ""}
	o.operator = o.token(permission.CLI, "*")
	return o
}

func (o office) token(kind permission.Kind, scope string) string {
	o.t.Helper()
	set, err := permission.ParseGrant(scope)
	if err != nil {
		o.t.Fatal(err)
	}
	secret, _, err := o.db.CreateToken(o.t.Context(), permission.Record{Name: "t", Token: permission.Token{Tenant: "acme", Domain: "acme.example", Kind: kind, Slug: "s", Scope: set}})
	if err != nil {
		o.t.Fatal(err)
	}
	return secret
}

// ask posts attributes, and says the status with the id of what was made; the header's entries come in pairs.
func (o office) ask(path, token, attributes string, header ...string) (status int, id, text string) {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.t.Context(), http.MethodPost, o.url+path, strings.NewReader(`{"data":{"attributes":`+attributes+`}}`))
	if err != nil {
		o.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		o.t.Error(err)
		return 0, "", ""
	}
	defer res.Body.Close()
	var said struct {
		Data   struct{ ID string }
		Errors []struct{ Detail string }
	}
	_ = json.NewDecoder(res.Body).Decode(&said) // an answer without a document
	if len(said.Errors) > 0 {
		text = said.Errors[0].Detail
	}
	return res.StatusCode, said.Data.ID, text
}

// A request that comes again is answered by what it made, however full the hour is, and counts once; by whichever name
// the worker is asked for, and for launches and jobs of clients as well.
func TestARepeatedRequestCountsOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	uses := func(limit string) (n int) {
		o.db.Scan("SELECT COALESCE((SELECT count FROM carillon.rate_limits WHERE tenant = 'acme' AND domain = 'acme.example' AND kind = $1), 0)", []any{limit}, &n)
		return n
	}
	const key = "Idempotency-Key"
	status, trig, _ := o.ask("/jobs/triggers", o.operator, `{"type":"@webhook","worker":"m.sendmail"}`)
	if status != 201 {
		t.Fatal(status)
	}
	for _, c := range []struct {
		limit, path, attributes string
		max, ok                 int
	}{
		{"sendmail", "/jobs/queue/sendmail", `{"arguments":1}`, 200, 202}, {"sendmail", "/jobs/queue/m.sendmail", `{"arguments":1}`, 200, 202},
		{"sendmail", "/jobs/triggers/" + trig + "/launch", `{}`, 200, 201}, {"client", "/jobs/queue/client", `{"arguments":1}`, 100, 202},
	} {
		o.db.Exec("DELETE FROM carillon.rate_limits")
		var twins sync.WaitGroup
		var first sync.Map
		for range 20 {
			twins.Go(func() {
				status, id, text := o.ask(c.path, o.operator, c.attributes, key, "k1")
				if status != c.ok {
					t.Errorf("%s: a twin is answered %d %s", c.path, status, text)
				}
				first.Store(id, true)
			})
		}
		twins.Wait()
		ids := 0
		first.Range(func(any, any) bool { ids++; return true })
		if ids != 1 || uses(c.limit) != 1 {
			t.Errorf("%s: twenty twins are %d jobs and %d uses, want 1 and 1", c.path, ids, uses(c.limit))
		}
		o.db.Exec("UPDATE carillon.rate_limits SET count = $1", c.max-1)
		status, last, _ := o.ask(c.path, o.operator, c.attributes, key, "k2")
		o.ask(c.path, o.operator, c.attributes, key, "k2") // is not the first one over
		if over, _, text := o.ask(c.path, o.operator, c.attributes, key, "k3"); status != c.ok || over != 429 || text != "Rate limit reached" {
			t.Errorf("%s: the last one is answered %d, the next %d %q", c.path, status, over, text)
		}
		for range 3 {
			if status, id, text := o.ask(c.path, o.operator, c.attributes, key, "k2"); status != c.ok || id != last {
				t.Errorf("%s: a repeat is answered %d %s, want job %s: %s", c.path, status, id, last, text)
			}
		}
		if c.attributes != `{}` {
			if status, _, _ := o.ask(c.path, o.operator, `{"arguments":2}`, key, "k2"); status != 422 {
				t.Errorf("%s: another request with the key is answered %d", c.path, status)
			}
		}
		if over, _, text := o.ask(c.path, o.operator, c.attributes); over != 429 || text != "Rate limit exceeded" || uses(c.limit) != c.max+2 {
			t.Errorf("%s: after the repeats: %d %q, %d uses", c.path, over, text, uses(c.limit))
		}
	}
	o.out(t)
}

// What is refused for something else uses nothing of the hour up.
func TestRefusedRequestsCountNothing(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	h := &house{store: named{Store: db.Store}, log: discard}
	n, want := job.New{Tenant: "acme", Ref: "m.sendmail"}, 0
	for _, c := range []struct {
		made   job.Enqueued
		err    error
		counts int
	}{
		{made: job.Enqueued{}, counts: 1},
		{made: job.Enqueued{Existing: true}},
		{err: &job.FieldError{Field: "payload", Problem: "is no JSON"}},
		{err: fmt.Errorf("%w: no such verb", cron.ErrNotFound)},
		{err: fmt.Errorf("%w: another request", cron.ErrExists)},
		{err: fmt.Errorf("%w: it may be in", cron.ErrUnavailable), counts: 1},
	} {
		_, err := h.counted(t.Context(), "acme.example", n, func() (job.Enqueued, error) { return c.made, c.err })
		if err != c.err {
			t.Errorf("answered %v, want %v", err, c.err)
		}
		uses := 0
		db.Scan("SELECT count FROM carillon.rate_limits WHERE kind = 'sendmail'", nil, &uses)
		if want += c.counts; uses != want {
			t.Errorf("after %+v, %v: %d uses, want %d", c.made, c.err, uses, want)
		}
	}
}

// The setting reaches both faces, by each name of the worker.
func TestReservedWorkers(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	rules := "io.cozy.jobs:ALL:open,m.open,sendmail:worker io.cozy.triggers:ALL:open,m.open,sendmail:worker"
	app, operator := o.token(permission.App, rules), o.token(permission.CLI, rules)
	rpc := func(token, procedure, body string) string {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, o.url+procedure, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var said struct {
			Code string
			Jobs []struct{ Error struct{ Code string } }
		}
		if err := json.NewDecoder(res.Body).Decode(&said); err != nil {
			t.Fatal(err)
		}
		if len(said.Jobs) > 0 {
			return said.Jobs[0].Error.Code
		}
		return said.Code
	}
	for _, name := range []string{"open", "m.open"} {
		trigger := fmt.Sprintf(`{"type":"@in","arguments":"1h","worker":%q}`, name)
		for token, want := range map[string][2]int{app: {403, 403}, operator: {202, 201}} {
			if status, _, text := o.ask("/jobs/queue/"+name, token, `{"arguments":1}`); status != want[0] {
				t.Errorf("push to %s: %d %s, want %d", name, status, text, want[0])
			}
			if status, _, text := o.ask("/jobs/triggers", token, trigger); status != want[1] {
				t.Errorf("trigger of %s: %d %s, want %d", name, status, text, want[1])
			}
		}
		body := fmt.Sprintf(`{"kind":"@in","arguments":"1h","worker":%q}`, name)
		for token, want := range map[string]string{app: "permission_denied", operator: ""} {
			if got := rpc(token, carillonv1connect.TriggerServiceCreateTriggerProcedure, body); got != want {
				t.Errorf("trigger of %s by RPC: %q, want %q", name, got, want)
			}
		}
	}
	for token, want := range map[string]string{app: "permission_denied", operator: ""} {
		if got := rpc(token, carillonv1connect.JobServiceEnqueueJobsProcedure, `{"jobs":[{"ref":"m.open"}]}`); got != want {
			t.Errorf("enqueue m.open: %q, want %q", got, want)
		}
	}
	if status, _, text := o.ask("/jobs/queue/sendmail", app, `{"arguments":1}`); status != 202 {
		t.Errorf("a worker that is not reserved: %d %s", status, text)
	}
	o.out(t)
}

// A page of another origin may use a token that it was given, and a webhook's address that it knows, but not what lets its
// reader in.
func TestPagesOfElsewhere(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	status, hook, _ := o.ask("/jobs/triggers", o.operator, `{"type":"@webhook","worker":"sendmail"}`)
	if status != 201 {
		t.Fatal(status)
	}
	for _, from := range [][]string{
		{"Origin", "https://app.acme.example", "Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, {"Origin", "null"},
	} {
		if status, _, text := o.ask("/jobs/queue/sendmail", o.operator, `{"arguments":1}`, from...); status != 202 {
			t.Errorf("%v with a token: %d %s", from, status, text)
		}
		if status, _, text := o.ask("/jobs/queue/sendmail", "car_garbage", `{"arguments":1}`, from...); status != 401 {
			t.Errorf("%v with a wrong token: %d %s", from, status, text)
		}
		if status, _, text := o.ask("/jobs/webhooks/"+hook, "", `{}`, from...); status != 204 {
			t.Errorf("%v to a webhook: %d %s", from, status, text)
		}
		basic := append([]string{"Authorization", "Basic YTpi"}, from...)
		for _, path := range []string{"/jobs/queue/sendmail", "/jobs/webhooks/bi", "/jobs/webhooks/x", carillonv1connect.CronServicePauseCronJobProcedure} {
			if status, _, _ := o.ask(path, "", `{}`, basic...); status != 403 {
				t.Errorf("%v without a token to %s: %d", from, path, status)
			}
		}
	}
	o.out(t)
}
