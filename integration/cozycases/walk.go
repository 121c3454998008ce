package cozycases

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"carillon/backend/core/permission"
)

// Route is one path of the API with its methods.
type Route struct {
	Pattern string
	Methods []string
	Open    bool // needs no token
}

// visit is how one method of one route is walked.
type visit struct {
	body    any
	query   string
	ok      int    // the status for who may do everything in the tenant
	foreign int    // and for who may do everything in another
	thing   string // what {id} stands for: job, client, trigger, webhook, or connection (of a konnector)
	raw     bool   // the body is sent as it is
}

var attributes = map[string]any{"type": "@in", "arguments": "1h", "worker": "print"}

var visits = map[string]visit{
	"GET /jobs/{id}":                  {ok: 200, foreign: 404, thing: "job"},
	"PATCH /jobs/{id}":                {ok: 200, foreign: 404, thing: "client", body: map[string]any{"state": "done"}},
	"GET /jobs/queue":                 {ok: 200, foreign: 200},
	"GET /jobs/queue/{worker}":        {ok: 200, foreign: 200},
	"POST /jobs/queue/{worker}":       {ok: 202, foreign: 202, body: map[string]any{"arguments": 1}},
	"POST /jobs/support":              {ok: 204, foreign: 204, body: map[string]any{"arguments": map[string]any{"subject": "s", "body": "b"}}},
	"POST /jobs/campaign-emails":      {ok: 204, foreign: 204, body: map[string]any{"arguments": map[string]any{"subject": "s", "parts": []any{map[string]any{"body": "b", "type": "text/plain"}}}}},
	"GET /jobs/triggers":              {ok: 200, foreign: 200},
	"POST /jobs/triggers":             {ok: 201, foreign: 201, body: attributes},
	"GET /jobs/triggers/{id}":         {ok: 200, foreign: 404, thing: "trigger"},
	"PATCH /jobs/triggers/{id}":       {ok: 200, foreign: 404, thing: "trigger", body: map[string]any{"message": 1}},
	"DELETE /jobs/triggers/{id}":      {ok: 204, foreign: 404, thing: "trigger"},
	"GET /jobs/triggers/{id}/state":   {ok: 200, foreign: 404, thing: "trigger"},
	"GET /jobs/triggers/{id}/jobs":    {ok: 200, foreign: 404, thing: "trigger"},
	"POST /jobs/triggers/{id}/launch": {ok: 201, foreign: 404, thing: "trigger"},
	"POST /jobs/webhooks/{id}":        {ok: 204, foreign: 204, thing: "webhook", body: `{"a":1}`, raw: true},
	"POST /jobs/webhooks/bi":          {ok: 204, foreign: 404, thing: "connection", query: "?event=CONNECTION_SYNCED&bi_url=https://bi.example/", body: `{"connection":{"id":7}}`, raw: true},
	"DELETE /jobs/purge":              {ok: 200, foreign: 200},
	"GET /jobs/launchers":             {ok: 200, foreign: 200},
	"GET /jobs/launchers/{$}":         {ok: 200, foreign: 200},
	"GET /jobs/launchers/{id}":        {ok: 200, foreign: 404, thing: "trigger"},
	"DELETE /jobs/launchers/{id}":     {ok: 204, foreign: 404, thing: "trigger"},
	"POST /jobs/launchers/{id}":       {ok: 201, foreign: 201, body: map[string]any{"type": "@in", "arguments": "1h"}, raw: true, thing: "worker"},
}

// Walk goes to every method of every route without a token, with a wrong one, with one that may do nothing, with one
// that may do everything in another tenant, and with the right one.
func Walk(t *testing.T, w World, routes []Route) {
	walked := 0
	for _, r := range routes {
		for _, method := range r.Methods {
			name := method + " " + r.Pattern
			t.Run(strings.ReplaceAll(name, "/", "."), func(t *testing.T) {
				v, known := visits[name]
				if !known {
					t.Fatalf("nobody knows how to walk %s", name)
				}
				w.Home(t).walk(method, r, v)
			})
			walked++
		}
	}
	if walked != len(visits) {
		t.Errorf("%d methods were walked, %d are known", walked, len(visits))
	}
}

func (h Home) walk(method string, r Route, v visit) {
	h.t.Helper()
	foreign := h.World.Home(h.t)
	path, body := h.path(r.Pattern, v)+v.query, v.body
	if body != nil && !v.raw {
		body = wrap(body)
	}
	ask := func(token string) Answer { return h.Do(h.t, method, path, token, body) }
	powerless := h.Grant(permission.Token{Kind: permission.App, Slug: "nobody"})
	if r.Open {
		for _, token := range []string{"", "car_garbage", powerless, foreign.All} {
			if a := ask(token); a.Status != v.ok {
				h.t.Errorf("an open route answers %d, want %d: %s", a.Status, v.ok, a.Text)
			}
		}
		return
	}
	none := h.want(ask(""), http.StatusUnauthorized)
	if none.At("errors.0.detail") != "No token in request" || none.Header.Get("WWW-Authenticate") == "" {
		h.t.Errorf("without a token: %s", none.Text)
	}
	for _, token := range []string{"car_garbage", h.All + "x", strings.ToUpper(h.All)} {
		if a := h.want(ask(token), http.StatusUnauthorized); a.Header.Get("WWW-Authenticate") != `Bearer error="invalid_token"` {
			h.t.Errorf("with a wrong token: %v", a.Header)
		}
	}
	denied := h.want(ask(powerless), http.StatusForbidden)
	if v.thing != "" && v.foreign == http.StatusNotFound {
		h.alike(method, r, v, body, foreign, powerless, denied)
	}
	before := h.census()
	h.want(ask(foreign.All), v.foreign)
	if after := h.census(); after != before {
		h.t.Errorf("a foreign token changed %s into %s", before, after)
	}
	if a := foreign.Do(h.t, "GET", path, foreign.All, nil); method == http.MethodGet && v.foreign == 200 && a.At("meta.count") != 0.0 {
		h.t.Errorf("a foreign token sees %s", a.Text)
	}
	if a := ask(h.All); a.Status != v.ok {
		h.t.Errorf("the right token is answered %d, want %d: %s", a.Status, v.ok, a.Text)
	}
}

// alike demands that what is another's is answered as what is not there: to who may do everything elsewhere, and to who
// may do nothing here.
func (h Home) alike(method string, r Route, v visit, body any, foreign Home, powerless string, denied Answer) {
	h.t.Helper()
	if v.thing == "connection" {
		return
	}
	there := h.path(r.Pattern, v)
	absent := strings.Replace(r.Pattern, "{id}", map[bool]string{true: noJob, false: noTrigger}[v.thing == "job" || v.thing == "client"], 1)
	theirs, none := h.Do(h.t, method, there, foreign.All, body), h.Do(h.t, method, absent, foreign.All, body)
	if theirs.Status != none.Status || theirs.Text != none.Text {
		h.t.Errorf("another's is answered %d %s, what is absent %d %s", theirs.Status, theirs.Text, none.Status, none.Text)
	}
	if none := h.Do(h.t, method, absent, powerless, body); denied.Status != none.Status || denied.Text != none.Text {
		h.t.Errorf("what one may not do is answered %d %s, what is absent %d %s", denied.Status, denied.Text, none.Status, none.Text)
	}
}

func (h Home) path(pattern string, v visit) string {
	h.t.Helper()
	id := ""
	switch v.thing {
	case "job":
		id = h.push("print")
	case "client":
		id = h.launch(h.trigger("@client", "", ""))
	case "trigger":
		id = h.trigger("@every", "1h", "print")
	case "webhook":
		id = h.trigger("@webhook", "", "print")
	case "connection":
		h.trigger("@webhook", "", "konnector", "message", map[string]any{"konnector": "bank", "connection": 7})
	case "worker":
		id = "print"
	}
	return strings.NewReplacer("{id}", id, "{worker}", "print", "{$}", "").Replace(pattern)
}

// census is what a tenant has.
func (h Home) census() string {
	h.t.Helper()
	triggers := h.want(h.Do(h.t, "GET", "/jobs/triggers", h.All, nil), 200)
	text, err := json.Marshal(triggers.At("meta.count"))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, item := range triggers.At("data").([]any) {
		id := item.(map[string]any)["id"].(string)
		rev := item.(map[string]any)["meta"].(map[string]any)["rev"].(string)
		jobs := h.want(h.Do(h.t, "GET", "/jobs/triggers/"+id+"/jobs", h.All, nil), 200)
		text = append(text, " "+id+" "+rev+" of "+string(must(json.Marshal(jobs.At("meta.count"))))...)
	}
	return string(text)
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}
