// Package cozycases runs the conformance list of the Cozy Jobs API, and a walk over all of its routes, against any
// server that speaks it: the face on a fake in its own tests, and a whole cluster in the drills. It knows of the server
// its address and how a token is made, and nothing else of the product but the nouns of permissions.
//
// A case that this package cannot run is skipped with its reason; how many are skipped is asserted.
package cozycases

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carillon/backend/core/permission"
)

// World is the server under test. It has the workers print, sendmail, konnector, service, zip, thumbnail and share-upload,
// which take anything and declare nothing.
type World struct {
	URL      string
	Reserved string // a worker that only operators may use: a module of that name, with the one verb open
	// Works says that jobs are done, and that the workers do what a message says: {"ms": n} takes so long, {"fails": n} fails in
	// the first n attempts, {"final": true} for good, {"panics": true} panics. Their errors end with when they began, in
	// nanoseconds. The worker strict takes an object whose member "to" is a text.
	Works bool
	// Use makes the meter of a limit show that a home used it so often, in a window that began so long ago.
	Use func(t testing.TB, h Home, limit string, used int, ago time.Duration)
	// Token keeps a token and returns its secret.
	Token func(t testing.TB, token permission.Token) string
}

var tenants atomic.Int64

// Home is one tenant of a world, with a token that may do anything in it.
type Home struct {
	World
	Tenant, Domain string
	All            string // the token
	t              testing.TB
}

// Home makes a tenant that nobody else has.
func (w World) Home(t testing.TB) Home {
	n := tenants.Add(1)
	h := Home{World: w, Tenant: fmt.Sprintf("home%d", n), Domain: fmt.Sprintf("home%d.example", n), t: t}
	h.All = h.Grant(permission.Token{Kind: permission.CLI, Scope: permission.Full()})
	return h
}

// Grant makes a token of this tenant.
func (h Home) Grant(p permission.Token) string {
	h.t.Helper()
	p.Tenant, p.Domain = h.Tenant, h.Domain
	return h.World.Token(h.t, p)
}

// App makes a token of an application with a scope.
func (h Home) App(scope string) string {
	h.t.Helper()
	set, err := permission.Parse(scope)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.Grant(permission.Token{Kind: permission.App, Slug: "drive", Scope: set})
}

// Answer is what a server said.
type Answer struct {
	Status int
	Header http.Header
	Text   string
	JSON   map[string]any // nil: no JSON object
}

// Do asks; a body that is a string is sent as it is, another one as JSON. An empty token is none. The header's entries
// come in pairs.
func (w World) Do(t testing.TB, method, path, token string, body any, header ...string) Answer {
	t.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	case []byte:
		text = b
	default:
		var err error
		if text, err = json.Marshal(b); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := Answer{Status: res.StatusCode, Header: res.Header, Text: string(got)}
	_ = json.Unmarshal(got, &a.JSON) // an answer without a document
	return a
}

// wrap is attributes as a document.
func wrap(attributes any) any {
	return map[string]any{"data": map[string]any{"attributes": attributes}}
}

// At is the value at a path of members and numbers, such as data.attributes.errors.0; nil: there is none.
func (a Answer) At(path string) any {
	var v any = a.JSON
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// ID is the id of the document.
func (a Answer) ID() string {
	id, _ := a.At("data.id").(string)
	return id
}

// want demands a status, and of an error the shape of one.
func (h Home) want(a Answer, status int) Answer {
	h.t.Helper()
	if a.Status != status {
		h.t.Fatalf("answered %d, want %d: %s", a.Status, status, a.Text)
	}
	if status >= 400 {
		if a.At("errors.0.status") != fmt.Sprint(status) || a.At("errors.0.title") == nil || a.At("errors.0.detail") == nil {
			h.t.Fatalf("no error of JSON:API: %s", a.Text)
		}
	}
	media := "application/vnd.api+json"
	if _, purged := a.JSON["deleted"]; purged {
		media = "application/json"
	}
	if a.Text != "" && a.Header.Get("Content-Type") != media {
		h.t.Errorf("Content-Type %q, want %s", a.Header.Get("Content-Type"), media)
	}
	return a
}

// trigger makes one of a kind, and returns its id.
func (h Home) trigger(kind, arguments, worker string, more ...any) string {
	h.t.Helper()
	attributes := map[string]any{"type": kind, "arguments": arguments, "worker": worker}
	for i := 0; i+1 < len(more); i += 2 {
		attributes[more[i].(string)] = more[i+1]
	}
	return h.want(h.Do(h.t, "POST", "/jobs/triggers", h.All, wrap(attributes)), 201).ID()
}

// push makes a job, and returns its id.
func (h Home) push(worker string) string {
	h.t.Helper()
	return h.want(h.Do(h.t, "POST", "/jobs/queue/"+worker, h.All, wrap(map[string]any{"arguments": "x"})), 202).ID()
}

// launch launches a trigger, and returns the job's id.
func (h Home) launch(trigger string) string {
	h.t.Helper()
	return h.want(h.Do(h.t, "POST", "/jobs/triggers/"+trigger+"/launch", h.All, nil), 201).ID()
}

// Ids that are well-formed, and nobody's.
const (
	noJob     = "jzzzzzz0000001"
	noTrigger = "00000000000000000000000000000000"
)

//go:embed cozy.json
var list []byte

// Case is one line of the list.
type Case struct {
	ID, Area, Note string
	Input          map[string]any
	Expected       map[string]any
}

// Cases are those of one area.
func Cases(t testing.TB, area string) (of []Case) {
	t.Helper()
	var raw []json.RawMessage
	if err := json.Unmarshal(list, &raw); err != nil {
		t.Fatal(err)
	}
	for _, text := range raw {
		var head struct{ Area string }
		if err := json.Unmarshal(text, &head); err != nil {
			t.Fatal(err)
		}
		if head.Area != area {
			continue
		}
		var c Case
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		of = append(of, c)
	}
	if len(of) == 0 {
		t.Fatalf("the list has no cases of %s", area)
	}
	return of
}
