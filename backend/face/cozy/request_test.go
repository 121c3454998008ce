package cozy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

func TestBadBodiesAreRefusedBeforeAnythingIsStored(t *testing.T) {
	d := open(t)
	cron := d.made(map[string]any{"type": "@cron", "arguments": "0 0 0 1 1 *", "worker": "print", "message": "old"})
	hook := d.made(map[string]any{"type": "@webhook", "worker": "print"})
	large := `{"data":{"attributes":{"arguments":"` + strings.Repeat("x", MaxBody) + `"}}}`
	wrapped := func(members string) string { return `{"data":{"attributes":{` + members + `}}}` }
	trig := func(more string) string { return wrapped(`"type":"@in","arguments":"1h","worker":"print",` + more) }
	const queue, triggers, launchers = "POST /jobs/queue/print", "POST /jobs/triggers", "POST /jobs/launchers/print"
	for _, c := range []struct {
		name, to, body  string
		status          int
		detail, pointer string
	}{
		{"nothing", queue, ``, 400, malformed, ""},
		{"no JSON", queue, `{"data":`, 400, malformed, ""},
		{"two JSONs", queue, wrapped(`"arguments":1`) + `{}`, 400, malformed, ""},
		{"a list", queue, `[]`, 400, malformed, ""},
		{"null", queue, `null`, 400, malformed, ""},
		{"a text", queue, `"x"`, 400, malformed, ""},
		{"no known member", queue, `{"x":1}`, 400, malformed, ""},
		{"no UTF-8", queue, "{\"arguments\":\"\xff\"}", 400, malformed, ""},
		{"data that is a list", queue, `{"data":[],"arguments":1}`, 400, malformed, ""},
		{"data that is null", queue, `{"data":null,"arguments":1}`, 400, malformed, ""},
		{"no attributes", queue, `{"data":{"arguments":1}}`, 400, malformed, ""},
		{"very deep", queue, strings.Repeat(`[`, 20_000), 400, malformed, ""},
		{"too large", queue, large, 413, "", ""},
		{"manual that is none", queue, wrapped(`"manual":"yes"`), 422, "", "/data/attributes/manual"},
		{"options that are none", queue, wrapped(`"options":7`), 422, "", "/data/attributes/options"},
		{"a timeout that is a text", queue, wrapped(`"options":{"timeout":"1s"}`), 422, "", "/data/attributes/options/timeout"},
		{"a negative timeout", queue, wrapped(`"options":{"timeout":-1}`), 422, "", "/data/attributes/options/timeout"},
		{"half an execution", queue, wrapped(`"options":{"max_exec_count":1.5}`), 422, "", "/data/attributes/options/max_exec_count"},
		{"counts that differ", queue, wrapped(`"options":{"max_exec_count":3,"retry_max_count":3}`), 422, "", "/data/attributes/options/max_exec_count"},
		{"a flat priority", queue, `{"priority":101}`, 422, "", "/options/priority"},
		{"names that differ", queue, wrapped(`"message":1,"worker_arguments":2`), 422, "", "/data/attributes/worker_arguments"},
		{"what its verb refuses", queue, wrapped(`"arguments":"odd"`), 422, "must be a String", "/data/attributes/arguments/parts/1/body"},
		{"a flat trigger", triggers, `{"type":"@in","arguments":"1h","worker":"print"}`, 400, malformed, ""},
		{"no worker", triggers, wrapped(`"type":"@in","arguments":"1h"`), 400, malformed, ""},
		{"an unknown worker", triggers, wrapped(`"type":"@in","arguments":"1h","worker":"wrok"`), 404, unknownWorker, ""},
		{"a worker with a NUL", triggers, wrapped(`"type":"@in","arguments":"1h","worker":"a\u0000b"`), 404, unknownWorker, ""},
		{"no type", triggers, wrapped(`"arguments":"1h","worker":"print"`), 422, "Unknown trigger type", "/data/attributes/Type"},
		{"an unknown type", triggers, wrapped(`"type":"@never","worker":"print"`), 422, "Unknown trigger type", "/data/attributes/Type"},
		{"a type that is a number", triggers, wrapped(`"type":7,"worker":"print"`), 422, "", "/data/attributes/Type"},
		{"arguments that are none", triggers, wrapped(`"type":"@in","arguments":5,"worker":"print"`), 422, "", "/data/attributes/arguments"},
		{"an unknown zone", triggers, trig(`"time_zone":"Mars/Olympus"`), 422, "", "/data/attributes/time_zone"},
		{"a zone with a NUL", triggers, trig(`"time_zone":"UTC\u0000"`), 422, "", "/data/attributes/time_zone"},
		{"a negative debounce", triggers, trig(`"debounce":"-5m"`), 422, "", "/data/attributes/debounce"},
		{"a secret of nothing", triggers, trig(`"secret":"0123456789abcdef"`), 422, "", "/data/attributes/secret"},
		{"a short secret", triggers, wrapped(`"type":"@webhook","worker":"print","secret":"short"`), 422, "", "/data/attributes/secret"},
		{"a message its verb refuses", triggers, trig(`"message":"odd"`), 422, "is not there", "/data/attributes/message/x"},
		{"a flat launcher without members", launchers, `{}`, 400, malformed, ""},
		{"a launcher of an unknown worker", "POST /jobs/launchers/wrok", `{"type":"@in","arguments":"1h"}`, 404, unknownWorker, ""},
		{"a launcher's options", launchers, `{"type":"@in","arguments":"1h","options":{"retry_delay":-1}}`, 422, "", "/options/retry_delay"},
		{"an empty patch", "PATCH /jobs/triggers/" + cron, wrapped(``), 400, emptyPatch, ""},
		{"a patch of the worker", "PATCH /jobs/triggers/" + cron, wrapped(`"worker":"sendmail"`), 400, emptyPatch, ""},
		{"a good message and bad arguments", "PATCH /jobs/triggers/" + cron, wrapped(`"message":"new","arguments":"0 0 0 31 2 *"`), 422, "", "/data/attributes/arguments"},
		{"a webhook's text", "POST /jobs/webhooks/" + hook, `no JSON`, 400, malformed, ""},
		{"a webhook's NUL", "POST /jobs/webhooks/" + hook, `{"a":"\u0000"}`, 422, "", ""},
		{"a webhook's number", "POST /jobs/webhooks/" + hook, `{"a":1e999999}`, 422, "", ""},
		{"a webhook's load", "POST /jobs/webhooks/" + hook, `"` + strings.Repeat("x", trigger.MaxDelivery) + `"`, 413, "", ""},
		{"a mail without a body", "POST /jobs/support", wrapped(`"arguments":{"subject":"x"}`), 400, malformed, ""},
		{"a mail that is a number", "POST /jobs/support", wrapped(`"arguments":7`), 400, malformed, ""},
		{"a campaign without parts", "POST /jobs/campaign-emails", wrapped(`"arguments":{"subject":"x","parts":[]}`), 400, malformed, ""},
		{"a part of another type", "POST /jobs/campaign-emails", wrapped(`"arguments":{"subject":"x","parts":[{"body":"b","type":"image/png"}]}`), 422, "", "/data/attributes/arguments/parts/0/type"},
		{"a cursor of nothing", "GET /jobs/queue?page[cursor]=zzz", ``, 400, "", ""},
		{"a cursor far away", "GET /jobs/queue?page[cursor]=1y2p0ij32e8e7.1", ``, 400, "", ""},
		{"a limit of nothing", "GET /jobs/queue?page[limit]=0", ``, 400, "", ""},
		{"a cursor of triggers", "GET /jobs/triggers?page[cursor]=-1", ``, 400, "", ""},
		{"a filter with a NUL", "GET /jobs/triggers?Worker=a%00b", ``, 400, "", ""},
		{"a query that is none", "GET /jobs/triggers?Worker=%zz", ``, 400, "", ""},
		{"a key that is no word", "GET /jobs/triggers/x%00y", ``, 404, noTrigger, ""},
		{"an id that is none", "GET /jobs/j%00", ``, 404, noJob, ""},
		{"a purge in days", "DELETE /jobs/purge?duration=2d", ``, 422, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			jobs, triggers := len(d.fake.jobs), len(d.fake.triggers)
			method, path, _ := strings.Cut(c.to, " ")
			a := d.Do(t, method, path, d.All, c.body)
			if a.Status != c.status || a.At("errors.0.status") != fmt.Sprint(c.status) {
				t.Fatalf("answered %d %s, want %d", a.Status, a.Text, c.status)
			}
			if c.detail != "" && a.At("errors.0.detail") != c.detail {
				t.Errorf("says %v, want %q", a.At("errors.0.detail"), c.detail)
			}
			if p, _ := a.At("errors.0.source.pointer").(string); p != c.pointer {
				t.Errorf("points at %q, want %q", p, c.pointer)
			}
			if len(a.Text) > 2000 {
				t.Errorf("says %d bytes", len(a.Text))
			}
			if len(d.fake.jobs) != jobs || len(d.fake.triggers) != triggers {
				t.Error("stored something")
			}
		})
	}
	a := d.all("GET", "/jobs/triggers/"+cron, nil)
	d.is(a, "data.attributes.message", "old")
	d.is(a, "data.attributes.arguments", "0 0 0 1 1 *")
}

func TestMethodsAndRoutes(t *testing.T) {
	d := open(t)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"PUT", "/jobs/queue/print", 405, "GET, HEAD, OPTIONS, POST"},
		{"POST", "/jobs/jabc", 405, "GET, HEAD, OPTIONS, PATCH"},
		{"PATCH", "/jobs/launchers/x", 405, "DELETE, GET, HEAD, OPTIONS, POST"},
		{"GET", "/jobs/purge", 405, "DELETE, OPTIONS"},
		{"TRACE", "/jobs/queue", 405, "GET, HEAD, OPTIONS"},
		{"OPTIONS", "/jobs/triggers", 204, "GET, HEAD, OPTIONS, POST"},
		{"HEAD", "/jobs/triggers", 200, ""},
		{"GET", "/jobs/launchers/", 200, ""},
		{"GET", "/jobs/", 404, ""},
		{"GET", "/jobs/triggers/a/b", 404, ""},
		{"POST", "/jobs/clean", 405, "GET, HEAD, OPTIONS, PATCH"}, // of the original, and not served: it is read as an id
		{"GET", "/elsewhere", 404, ""},
	} {
		a := d.status(d.all(c.method, c.path, nil), c.status)
		if got := a.Header.Get("Allow"); got != c.allow {
			t.Errorf("%s %s allows %q, want %q", c.method, c.path, got, c.allow)
		}
		if c.status >= 400 && a.At("errors.0.status") != fmt.Sprint(c.status) {
			t.Errorf("%s %s: no error of JSON:API: %q", c.method, c.path, a.Text)
		}
	}
	if a := d.Do(t, "HEAD", "/jobs/triggers", "", nil); a.Status != 401 {
		t.Errorf("HEAD without a token: %d", a.Status)
	}
}

func TestTheBearerIsReadAsItIsWritten(t *testing.T) {
	d := open(t)
	for header, want := range map[string]int{
		"Bearer " + d.All: 200, "bearer " + d.All: 200, "Bearer  " + d.All: 200, "Basic " + d.All: 401, d.All: 401, "Bearer": 401, "Bearer x": 401,
	} {
		if a := d.Do(t, "GET", "/jobs/triggers", "", nil, "Authorization", header); a.Status != want {
			t.Errorf("%.20q: %d, want %d", header, a.Status, want)
		}
	}
}

func TestRefusalsOfTheHouse(t *testing.T) {
	d := open(t)
	id := d.made(map[string]any{"type": "@every", "arguments": "1h", "worker": "print"})
	secret := "password of role carillon at 10.0.0.1"
	for _, c := range []struct {
		err    error
		status int
		retry  string
	}{
		{fmt.Errorf("read: %w: %s", cron.ErrUnavailable, secret), 503, "1"},
		{fmt.Errorf("read: %w: %s", context.DeadlineExceeded, secret), 503, "1"},
		{fmt.Errorf("read: %w: %s", cron.ErrPrecond, secret), 409, ""},
		{fmt.Errorf("read: %w: %s", cron.ErrExists, secret), 422, ""},
		{errors.New(secret), 500, ""},
		{&trigger.LimitError{Ruling: trigger.Ruling{Text: trigger.LimitReached, RetryAfter: 90e9}}, 429, "90"},
		{&job.FieldError{Field: "timeout", Problem: "is odd"}, 422, ""},
	} {
		d.fake.mu.Lock()
		d.fake.broken = c.err
		d.fake.mu.Unlock()
		for _, path := range []string{"GET /jobs/triggers", "GET /jobs/triggers/" + id, "POST /jobs/triggers/" + id + "/launch", "GET /jobs/jzzzzzz0000001", "DELETE /jobs/purge"} {
			method, path, _ := strings.Cut(path, " ")
			a := d.status(d.all(method, path, nil), c.status)
			if a.Header.Get("Retry-After") != c.retry || strings.Contains(a.Text, "10.0.0.1") {
				t.Errorf("%s: Retry-After %q: %s", path, a.Header.Get("Retry-After"), a.Text)
			}
			if _, named := a.At("errors.0.id").(string); named != (c.status == 500) {
				t.Errorf("%s: %s", path, a.Text)
			}
		}
	}
	d.fake.mu.Lock()
	d.fake.broken, d.fake.panics = nil, true
	d.fake.mu.Unlock()
	if a := d.status(d.all("GET", "/jobs/triggers", nil), 500); strings.Contains(a.Text, "goroutine") {
		t.Errorf("shows its stack: %s", a.Text)
	}
}

func TestADrainingControllerTakesNothing(t *testing.T) {
	d := open(t)
	id := d.made(map[string]any{"type": "@webhook", "worker": "print"})
	d.fake.mu.Lock()
	d.fake.draining = true
	d.fake.mu.Unlock()
	for _, c := range []string{"POST /jobs/queue/print", "POST /jobs/triggers", "DELETE /jobs/triggers/" + id, "POST /jobs/webhooks/" + id, "DELETE /jobs/purge"} {
		method, path, _ := strings.Cut(c, " ")
		if a := d.status(d.all(method, path, attributes(map[string]any{"arguments": 1})), 503); a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", c)
		}
	}
	d.status(d.all("GET", "/jobs/triggers/"+id, nil), 200)
}

func TestAnIdempotencyKeyMakesOne(t *testing.T) {
	d := open(t)
	body := attributes(map[string]any{"type": "@every", "arguments": "1h", "worker": "print", "message": 1})
	hook, every := d.made(map[string]any{"type": "@webhook", "worker": "print"}), d.made(map[string]any{"type": "@every", "arguments": "1h", "worker": "print"})
	const key, k = idempotencyHeader, "k"
	ids := map[string]bool{}
	for range 3 {
		ids[d.status(d.all("POST", "/jobs/triggers", body, key, k), 201).ID()] = true
		ids[d.status(d.all("POST", "/jobs/queue/print", attributes(map[string]any{"arguments": 1}), key, k), 202).ID()] = true
		ids[d.status(d.all("POST", "/jobs/triggers/"+every+"/launch", nil, key, k), 201).ID()] = true
		d.status(d.all("POST", "/jobs/webhooks/"+hook, `{}`, key, k), 204)
		d.status(d.all("POST", "/jobs/support", attributes(map[string]any{"arguments": map[string]any{"subject": "s", "body": "b"}}), key, k), 204)
	}
	if len(ids) != 3 || len(d.fake.jobs) != 4 {
		t.Errorf("three requests, three times, made %v and %d jobs; want 3 documents and 4 jobs", ids, len(d.fake.jobs))
	}
	other := d.Grant(permission.Token{Kind: permission.CLI, Scope: permission.Full()})
	if a := d.Do(t, "POST", "/jobs/queue/print", other, attributes(map[string]any{"arguments": 1}), key, k); ids[a.ID()] {
		t.Error("the key of one token counts for another")
	}
	a := d.status(d.all("POST", "/jobs/queue/print", attributes(map[string]any{"arguments": 2}), key, k), 422)
	d.is(a, "errors.0.source.header", key)
	d.status(d.all("POST", "/jobs/queue/print", attributes(map[string]any{"arguments": 2}), key, strings.Repeat("k", 300)), 400)
}

// FuzzBodies sends anything to every route that reads a body: each answers with a document, and none fails.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `{"data":{"attributes":{"type":"@in","arguments":"1h","worker":"print"}}}`, `{"arguments":{"Data":"InZhbHVlIgo=","Type":"json"}}`,
		`{"data":{"attributes":{"options":{"timeout":1e300,"max_exec_count":-0},"message":{"a":[1,{"b":null}]}}}}`, `{"connection":{"id":7}}`,
		`{"data":{"attributes":{"type":"@event","arguments":"io.cozy.files:CREATED:x:y","debounce":"1m","worker":"print","secret":"\ud800"}}}`,
	} {
		f.Add([]byte(seed))
	}
	house := newFake()
	house.tokens["t"] = permission.Token{ID: "1", Tenant: "a", Kind: permission.CLI, Scope: permission.Full()}
	handler := Handler(Config{House: house, Reader: house, Tokens: house, Logger: slog.New(slog.DiscardHandler)})
	hook, _ := house.CreateTrigger(f.Context(), trigger.Trigger{Tenant: "a", Kind: trigger.Webhook, Worker: "print"}, "")
	tick, _ := house.CreateTrigger(f.Context(), trigger.Trigger{Tenant: "a", Kind: trigger.Cron, Arguments: "0 0 0 1 1 *", Worker: "print"}, "")
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, to := range []string{
			"POST /jobs/queue/print", "POST /jobs/triggers", "POST /jobs/launchers/print", "PATCH /jobs/triggers/" + tick.Key, "POST /jobs/webhooks/" + hook.Key,
			"POST /jobs/support", "POST /jobs/campaign-emails", "POST /jobs/webhooks/bi?event=CONNECTION_SYNCED&bi_url=https://x.example/",
		} {
			method, path, _ := strings.Cut(to, " ")
			r := httptest.NewRequest(method, path, strings.NewReader(string(text)))
			r.Header.Set("Authorization", "Bearer t")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code >= 500 || w.Code != http.StatusNoContent && !strings.HasPrefix(w.Body.String(), "{") {
				t.Errorf("%s with %q: %d %s", to, text, w.Code, w.Body)
			}
		}
	})
}
