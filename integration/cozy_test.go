package integration

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon"
	"carillon/backend/core/permission"
	"carillon/backend/face/cozy"
	"carillon/integration/cluster"
	"carillon/integration/cozycases"
)

// cozyHouse is a cluster with workers for the Cozy API, and whom they saw.
type cozyHouse struct {
	cozycases.World
	*cluster.Cluster
	seen sync.Map // string: *atomic.Int64, how often a worker got a message
}

// newCozy deploys the workers that the cases speak of. What they get decides what they do.
func newCozy(t *testing.T) *cozyHouse {
	t.Helper()
	c := settled(t)
	h := &cozyHouse{Cluster: c}
	work := carillon.Func(func(ctx context.Context, message any) (any, error) {
		text, err := json.Marshal(message)
		if err != nil {
			return nil, err
		}
		n, _ := h.seen.LoadOrStore(string(text), new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		run, _ := carillon.RunFrom(ctx)
		asked, _ := message.(map[string]any)
		switch {
		case asked["fails"] != nil && float64(run.Attempt) <= asked["fails"].(float64):
			return nil, fmt.Errorf("attempt %d: the test asked for it at %d", run.Attempt, time.Now().UnixNano())
		case asked["panics"] != nil:
			panic("the test asked for it")
		case asked["final"] != nil:
			return nil, carillon.Fail(errors.New("USER_ACTION_NEEDED"))
		case asked["ms"] != nil:
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Duration(asked["ms"].(float64)) * time.Millisecond):
			}
		}
		return map[string]any{"got": message}, nil
	})
	for _, name := range []string{"print", "sendmail", "konnector", "service", "zip"} {
		c.Serve(t, name, carillon.Verbs{name: work})
	}
	c.Serve(t, "files", carillon.Verbs{"thumbnail": work, "shareUpload": work})
	c.Serve(t, cluster.Reserved, carillon.Verbs{"open": work})
	c.Serve(t, "strict", carillon.Verbs{"strict": carillon.Takes(func(context.Context, struct{ To string }) error { return nil })})
	h.World = cozycases.World{URL: c.Any(t).URL, Reserved: cluster.Reserved, Works: true, Use: h.use, Token: h.token}
	return h
}

// use makes a meter show so many uses in a window that began so long ago.
func (h *cozyHouse) use(t testing.TB, in cozycases.Home, limit string, used int, ago time.Duration) {
	t.Helper()
	done, err := h.SQL.Exec(t.Context(), `UPDATE carillon.rate_limits SET count = $4, opened_at = now() - $5::interval WHERE tenant = $1 AND domain = $2 AND kind = $3`,
		in.Tenant, in.Domain, limit, used, ago.String())
	if err != nil || done.RowsAffected() != 1 {
		t.Fatalf("set the meter %s: %v, %v", limit, done, err)
	}
}

// token keeps a token as the command line would, with what only konnectors' tokens have.
func (h *cozyHouse) token(t testing.TB, p permission.Token) string {
	t.Helper()
	secret := permission.SecretPrefix + rand.Text() + "a"
	if _, err := h.SQL.Exec(t.Context(), `INSERT INTO carillon.tokens (name, hash, tenant, domain, kind, scope, slug, trigger_key) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		"cozy_test", permission.Hash(secret), p.Tenant, p.Domain, string(p.Kind), p.Scope.String(), p.Slug, p.Trigger); err != nil {
		t.Fatal(err)
	}
	return secret
}

// skippedCozy is the case of a sentinel that there is not.
const skippedCozy = 1

// TestTheCozyAPI: the conformance list over HTTP against a whole cluster, every route with every kind of token, and the
// life of jobs and triggers as a client sees it.
func TestTheCozyAPI(t *testing.T) {
	t.Parallel()
	h := newCozy(t)
	t.Run("conformance", func(t *testing.T) { cozycases.Run(t, h.World, skippedCozy) })
	t.Run("tokens", func(t *testing.T) {
		var routes []cozycases.Route
		for _, r := range cozy.Routes() {
			routes = append(routes, cozycases.Route(r))
		}
		cozycases.Walk(t, h.World, routes)
	})
	t.Run("life of a job", h.lifeOfAJob)
	t.Run("a retried job", h.retriedJob)
	t.Run("triggers fire", h.triggersFire)
	t.Run("fifty identical deliveries", h.fiftyDeliveries)
	t.Run("nothing bad is stored", h.nothingBad)
	t.Run("pages", h.pages)
	t.Run("purge", h.purge)
	t.Run("a revoked token", h.revoked)
}

// ask is Do with the right token and attributes.
func ask(t *testing.T, in cozycases.Home, status int, method, path string, attributes any) cozycases.Answer {
	t.Helper()
	var body any
	if attributes != nil {
		body = map[string]any{"data": map[string]any{"attributes": attributes}}
	}
	a := in.Do(t, method, path, in.All, body)
	if a.Status != status {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, a.Status, status, a.Text)
	}
	return a
}

type attrs = map[string]any

// becomes waits until a job has a state.
func becomes(t *testing.T, in cozycases.Home, id, state string) cozycases.Answer {
	t.Helper()
	var a cozycases.Answer
	cluster.Eventually(t, 20*time.Second, "job "+id+" "+state, func() error {
		a = in.Do(t, "GET", "/jobs/"+id, in.All, nil)
		if got := a.At("data.attributes.state"); got != state {
			return fmt.Errorf("it is %v: %s", got, a.Text)
		}
		return nil
	})
	return a
}

func (h *cozyHouse) lifeOfAJob(t *testing.T) {
	in := h.Home(t)
	id := ask(t, in, 202, "POST", "/jobs/queue/print", attrs{"arguments": attrs{"ms": 400, "of": in.Tenant}}).ID()
	a := becomes(t, in, id, "running")
	if a.At("data.attributes.try_count") != 1.0 || a.At("data.attributes.worker_id") == nil {
		t.Errorf("running: %s", a.Text)
	}
	a = becomes(t, in, id, "done")
	if a.At("data.attributes.finished_at") == nil || a.At("data.attributes.output.got.of") != in.Tenant || a.At("data.attributes.error") != "" {
		t.Errorf("done: %s", a.Text)
	}
	id = ask(t, in, 202, "POST", "/jobs/queue/print", attrs{"arguments": attrs{"final": true}}).ID()
	a = becomes(t, in, id, "errored")
	if a.At("data.attributes.error") != "USER_ACTION_NEEDED" || a.At("data.attributes.errors.0") != "USER_ACTION_NEEDED" || a.At("data.attributes.try_count") != 1.0 {
		t.Errorf("errored: %s", a.Text)
	}
}

// retriedJob: options of a job lower its worker's limits, and between two attempts it is shown running.
func (h *cozyHouse) retriedJob(t *testing.T) {
	in := h.Home(t)
	id := ask(t, in, 202, "POST", "/jobs/queue/print", attrs{"arguments": attrs{"fails": 9, "of": in.Tenant}, "options": attrs{"max_exec_count": 2, "retry_delay": 1}}).ID()
	a := becomes(t, in, id, "running")
	if !strings.HasPrefix(a.Text, "{") || a.At("data.attributes.started_at") == "0001-01-01T00:00:00Z" {
		t.Errorf("between two attempts: %s", a.Text)
	}
	began := a.At("data.attributes.started_at")
	a = becomes(t, in, id, "errored")
	if errs, _ := a.At("data.attributes.errors").([]any); len(errs) != 2 || a.At("data.attributes.try_count") != 2.0 || a.At("data.attributes.started_at") != began {
		t.Errorf("after two attempts from %v on: %s", began, a.Text)
	}
}

// triggersFire: what the clock and a webhook make is seen as the jobs of their trigger, and what fires once is gone then.
func (h *cozyHouse) triggersFire(t *testing.T) {
	in := h.Home(t)
	once := ask(t, in, 201, "POST", "/jobs/triggers", attrs{"type": "@in", "arguments": "1s", "worker": "print", "message": attrs{"once": in.Tenant}}).ID()
	every := ask(t, in, 201, "POST", "/jobs/triggers", attrs{"type": "@every", "arguments": "1s", "worker": "print", "message": attrs{"every": in.Tenant}}).ID()
	hook := ask(t, in, 201, "POST", "/jobs/triggers", attrs{"type": "@webhook", "worker": "print", "message": attrs{"hook": in.Tenant}}).ID()
	if a := in.Do(t, "POST", "/jobs/webhooks/"+hook, "", `{"account_id":"x"}`); a.Status != http.StatusNoContent {
		t.Fatalf("deliver: %d %s", a.Status, a.Text)
	}
	cluster.Eventually(t, 20*time.Second, "the jobs of the triggers", func() error {
		if a := in.Do(t, "GET", "/jobs/triggers/"+once, in.All, nil); a.Status != http.StatusNotFound {
			return fmt.Errorf("the @in is there still: %d", a.Status)
		}
		for id, want := range map[string]float64{every: 2, hook: 1} {
			a := in.Do(t, "GET", "/jobs/triggers/"+id+"/jobs", in.All, nil)
			if n, _ := a.At("meta.count").(float64); n < want || a.At("data.0.attributes.state") != "done" {
				return fmt.Errorf("trigger %s has %v jobs: %.300s", id, n, a.Text)
			}
		}
		return nil
	})
	state := ask(t, in, 200, "GET", "/jobs/triggers/"+hook+"/state", nil)
	if state.At("data.attributes.status") != "done" || state.At("data.attributes.last_success") == nil {
		t.Errorf("state: %s", state.Text)
	}
	if n, ok := h.seen.Load(fmt.Sprintf(`{"once":%q}`, in.Tenant)); !ok || n.(*atomic.Int64).Load() != 1 {
		t.Errorf("the @in ran %v times", n)
	}
	ask(t, in, 204, "DELETE", "/jobs/triggers/"+every, nil)
	jobs := ask(t, in, 200, "GET", "/jobs/queue", nil) // they are left, and end
	t.Logf("%v jobs are live", jobs.At("meta.count"))
}

// fiftyDeliveries: fifty identical posts in parallel with one idempotency key make one job.
func (h *cozyHouse) fiftyDeliveries(t *testing.T) {
	in := h.Home(t)
	hook := ask(t, in, 201, "POST", "/jobs/triggers", attrs{"type": "@webhook", "worker": "print"}).ID()
	var posts sync.WaitGroup
	live := h.Live()
	for i := range 50 {
		there := in.World
		there.URL = live[i%len(live)].URL
		posts.Go(func() {
			if a := there.Do(t, "POST", "/jobs/webhooks/"+hook, "", `{"n":1}`, "Idempotency-Key", "same"); a.Status != http.StatusNoContent {
				t.Errorf("post: %d %s", a.Status, a.Text)
			}
		})
	}
	posts.Wait()
	if n := ask(t, in, 200, "GET", "/jobs/triggers/"+hook+"/jobs", nil).At("meta.count"); n != 1.0 {
		t.Errorf("%v jobs, want 1", n)
	}
}

// nothingBad: what is refused is not in the database, whatever a text holds.
func (h *cozyHouse) nothingBad(t *testing.T) {
	in := h.Home(t)
	count := func() (n int) {
		t.Helper()
		err := h.SQL.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM carillon.triggers WHERE tenant = $1) + (SELECT count(*) FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE q.tenant = $1)
			+ (SELECT count(*) FROM carillon.job_history j JOIN carillon.queues q ON q.id = j.queue_id WHERE q.tenant = $1)`, in.Tenant).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	hook := ask(t, in, 201, "POST", "/jobs/triggers", attrs{"type": "@webhook", "worker": "print"}).ID()
	before := count()
	for _, bad := range []struct {
		to, body string
		status   int
	}{
		{"POST /jobs/triggers", `{"data":{"attributes":{"type":"@in","arguments":"1h\u0000","worker":"print"}}}`, 422},
		{"POST /jobs/triggers", `{"data":{"attributes":{"type":"@webhook","arguments":"a\u0000b","worker":"print"}}}`, 422},
		{"POST /jobs/triggers", `{"data":{"attributes":{"type":"@event","arguments":"io.cozy.files:ALL","worker":"print"}}}`, 422},
		{"POST /jobs/triggers", `{"data":{"attributes":{"type":"@cron","arguments":"0 0 0 31 2 *","worker":"print"}}}`, 422},
		{"POST /jobs/triggers", `{"data":{"attributes":{"type":"@in","arguments":"1h","worker":"print\u0000"}}}`, 404},
		{"POST /jobs/queue/print", `{"arguments":`, 400},
		{"POST /jobs/queue/print%00", `{"arguments":1}`, 404},
		{"POST /jobs/webhooks/" + hook, `{"a":"\u0000"}`, 422},
		{"POST /jobs/webhooks/" + hook, `{"a":"\ud800"}`, 422},
		{"POST /jobs/webhooks/" + hook, `{"a":1e1000000}`, 422},
		{"POST /jobs/webhooks/" + hook, strings.Repeat("[", 9000) + strings.Repeat("]", 9000), 422},
		{"GET /jobs/queue?page[cursor]=zz.-1", ``, 400},
		{"GET /jobs/triggers?Worker=%ff", ``, 400},
		{"DELETE /jobs/purge?workers=a%00", ``, 400},
		{"GET /jobs/triggers/%00", ``, 404},
	} {
		method, path, _ := strings.Cut(bad.to, " ")
		a := in.Do(t, method, path, in.All, bad.body)
		if a.Status != bad.status || a.At("errors.0.detail") == nil || strings.Contains(strings.ToLower(a.Text), "sqlstate") {
			t.Errorf("%s with %.60q: %d, want %d: %.300s", bad.to, bad.body, a.Status, bad.status, a.Text)
		}
	}
	if after := count(); after != before {
		t.Errorf("%d rows became %d", before, after)
	}
	// What a message may hold is the worker's matter: it is kept as it was sent.
	odd := `{"data":{"attributes":{"arguments":{"nul":"\u0000","half":"\ud800","long":1e400}}}}`
	if a := in.Do(t, "POST", "/jobs/queue/print", in.All, odd); a.Status != http.StatusAccepted {
		t.Errorf("an odd message: %d %s", a.Status, a.Text)
	}
}

// pages: each job that waits is on one page.
func (h *cozyHouse) pages(t *testing.T) {
	in := h.Home(t)
	trigger := ask(t, in, 201, "POST", "/jobs/triggers", attrs{"type": "@client"}).ID()
	want := map[string]bool{}
	for range 25 {
		want[ask(t, in, 201, "POST", "/jobs/triggers/"+trigger+"/launch", nil).ID()] = true
	}
	for _, path := range []string{"/jobs/queue", "/jobs/queue/client"} {
		seen := map[string]int{}
		for next := path + "?page[limit]=10"; next != ""; {
			a := ask(t, in, 200, "GET", next, nil)
			for _, item := range a.At("data").([]any) {
				seen[item.(map[string]any)["id"].(string)]++
			}
			next, _ = a.At("links.next").(string)
		}
		for id := range want {
			if seen[id] != 1 {
				t.Errorf("%s: job %s is on %d pages", path, id, seen[id])
			}
		}
	}
	var ends sync.WaitGroup
	wins := new(atomic.Int64)
	id := ask(t, in, 201, "POST", "/jobs/triggers/"+trigger+"/launch", nil).ID()
	for range 8 { // one of several that end a job at the same time is right
		ends.Go(func() {
			a := in.Do(t, "PATCH", "/jobs/"+id, in.All, attrs{"data": attrs{"attributes": attrs{"state": "errored", "error": "LOGIN_FAILED"}}})
			switch a.Status {
			case 200:
				wins.Add(1)
			case 409:
			default:
				t.Errorf("PATCH: %d %s", a.Status, a.Text)
			}
		})
	}
	ends.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d clients ended one job", wins.Load())
	}
}

// purge keeps the newest, and what lives.
func (h *cozyHouse) purge(t *testing.T) {
	in := h.Home(t)
	var last string
	for range 60 {
		last = ask(t, in, 202, "POST", "/jobs/queue/print", attrs{"arguments": 1}).ID()
	}
	waits := ask(t, in, 202, "POST", "/jobs/queue/client", attrs{"arguments": 1}).ID()
	cluster.Eventually(t, 20*time.Second, "the end of the jobs", func() error {
		if n := in.Do(t, "GET", "/jobs/queue/print", in.All, nil).At("meta.count"); n != 0.0 {
			return fmt.Errorf("%v are live", n)
		}
		return nil
	})
	if a := ask(t, in, 200, "DELETE", "/jobs/purge?duration=1W", nil); a.At("deleted") != 0.0 {
		t.Errorf("what is young: %s", a.Text)
	}
	if a := ask(t, in, 200, "DELETE", "/jobs/purge?duration=0D&workers=print", nil); a.At("deleted") != 10.0 {
		t.Errorf("60 old ones: %s, want 10 deleted and the 50 newest kept", a.Text)
	}
	ask(t, in, 200, "GET", "/jobs/"+last, nil)
	ask(t, in, 200, "GET", "/jobs/"+waits, nil)
}

// revoked: a token that was revoked opens nothing some seconds later, on any controller.
func (h *cozyHouse) revoked(t *testing.T) {
	in := h.Home(t)
	ask(t, in, 200, "GET", "/jobs/triggers", nil)
	if _, err := h.SQL.Exec(t.Context(), `UPDATE carillon.tokens SET revoked_at = now() WHERE tenant = $1`, in.Tenant); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, 20*time.Second, "a refusal", func() error {
		if a := in.Do(t, "GET", "/jobs/triggers", in.All, nil); a.Status != http.StatusUnauthorized {
			return fmt.Errorf("answered %d", a.Status)
		}
		return nil
	})
}
