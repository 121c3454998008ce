package cozycases

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"carillon/backend/core/permission"
)

// Run runs the areas of the list that an API answers for: as it says, or by a request that shows the same. The others
// are about parsers, engines and the store, and are run there.
func Run(t *testing.T, w World, skipped int) {
	n := 0
	for _, area := range []string{"http", "permission", "early-doc", "purge-duration", "queue-priority", "retry", "rate-limit"} {
		for _, c := range Cases(t, area) {
			t.Run(area+"/"+c.ID, func(t *testing.T) {
				if reason := runCase(t, w, c); reason != "" {
					n++
					t.Log("skipped: " + reason) // counted below; a case is never silently a success
				}
			})
		}
	}
	for _, area := range []string{"at", "in", "every", "cron", "periodic", "event", "debounce", "type"} {
		h := w.Home(t)
		for _, c := range Cases(t, "trigger-args/"+area) {
			t.Run("trigger-args/"+c.ID, func(t *testing.T) {
				h := h
				h.t = t
				h.arguments(c)
			})
		}
	}
	if n != skipped {
		t.Errorf("%d cases were skipped, want %d", n, skipped)
	}
}

// runCase returns why a case cannot be run here; empty: it was.
func runCase(t *testing.T, w World, c Case) (skip string) {
	h := w.Home(t)
	if special := specials[c.ID]; special != nil {
		return special(h, c)
	}
	if work := works[c.ID]; work != nil {
		if !w.Works {
			return "is about a worker at work"
		}
		work(h)
		return ""
	}
	switch c.Area {
	case "http", "early-doc":
		return h.request(c)
	case "permission":
		return h.permission(c)
	case "purge-duration":
		h.purge(c)
	case "retry", "queue-priority":
		return h.options(c)
	case "rate-limit":
		h.rate(c)
	}
	return ""
}

// arguments creates a trigger as a case of trigger-args says.
func (h Home) arguments(c Case) {
	h.t.Helper()
	body := map[string]any{"worker": "print"}
	for k, v := range c.Input {
		if k != "token" {
			body[k] = v
		}
	}
	if body["type"] == nil { // cases of debounce
		body["type"], body["arguments"] = "@event", "io.cozy.files"
	}
	if body["worker"] == "anything" || body["worker"] == "client or absent" {
		delete(body, "worker")
	}
	token := h.All
	if c.Input["token"] != nil {
		token = h.App("io.cozy.triggers:POST:client:worker")
	}
	want := http.StatusCreated
	if c.Expected["ok"] == false {
		want = http.StatusUnprocessableEntity
	}
	a := h.want(h.Do(h.t, "POST", "/jobs/triggers", token, wrap(body)), want)
	if want != http.StatusCreated {
		if p := c.Expected["pointer"]; p != nil && a.At("errors.0.source.pointer") != p {
			h.t.Errorf("points at %v, want %v", a.At("errors.0.source.pointer"), p)
		}
		return
	}
	if given, ok := body["arguments"]; ok && a.At("data.attributes.arguments") != given {
		h.t.Errorf("echoes %v for %v", a.At("data.attributes.arguments"), given)
	}
	for _, key := range []string{"worker forced to", "attributes.worker"} {
		if worker := c.Expected[key]; worker != nil && a.At("data.attributes.worker") != worker {
			h.t.Errorf("worker %v, want %v", a.At("data.attributes.worker"), worker)
		}
	}
	if c.Expected["links.webhook"] != nil {
		h.webhookLink(a)
	}
}

func (h Home) webhookLink(a Answer) {
	h.t.Helper()
	if want := "https://" + h.Domain + "/jobs/webhooks/" + a.ID(); a.At("data.links.webhook") != want {
		h.t.Errorf("links.webhook is %v, want %s", a.At("data.links.webhook"), want)
	}
}

// purge asks with a duration.
func (h Home) purge(c Case) {
	h.t.Helper()
	want := http.StatusOK
	if c.Expected["ok"] == false {
		want = http.StatusUnprocessableEntity
	}
	duration := strings.NewReplacer(" ", "%20", "+", "%2B").Replace(c.Input["duration"].(string))
	if a := h.Do(h.t, "DELETE", "/jobs/purge?duration="+duration, h.All, nil); a.Status != want {
		h.t.Errorf("answered %d, want %d: %s", a.Status, want, a.Text)
	}
}

// options pushes a job with options that are refused; other cases of these areas are about workers at work.
func (h Home) options(c Case) (skip string) {
	h.t.Helper()
	options, ok := c.Input["options"].(map[string]any)
	if p := c.Input["priority"]; p != nil {
		options, ok = map[string]any{"priority": p}, true
	}
	if !ok {
		return "has no request"
	}
	if c.Expected["http"] == nil { // options that lower a limit, or do not: the pure rules know more of it
		a := h.want(h.Do(h.t, "POST", "/jobs/queue/print", h.All, wrap(map[string]any{"arguments": 1, "options": options})), 202)
		if a.At("data.attributes.options") == nil {
			h.t.Errorf("shows no options: %s", a.Text)
		}
		return ""
	}
	a := h.want(h.Do(h.t, "POST", "/jobs/queue/print", h.All, wrap(map[string]any{"arguments": 1, "options": options})), 422)
	if p, _ := a.At("errors.0.source.pointer").(string); !strings.HasPrefix(p, "/data/attributes/options/") {
		h.t.Errorf("points at %q", p)
	}
	return ""
}

// request does what a case of http or early-doc says: one request, and what it is answered with.
func (h Home) request(c Case) (skip string) {
	h.t.Helper()
	method, path, ok := h.target(c.Input)
	if !ok {
		return "has no request"
	}
	token := h.All
	switch said := c.Input["token"]; {
	case said == "none" || c.Input["auth"] == "none":
		token = ""
	case said == "invalid or expired":
		token = "car_garbage"
	case said == "app token":
		token = h.App("io.cozy.jobs:ALL:print:worker")
	case said == "sendmail scope":
		token = h.App("io.cozy.jobs:POST:sendmail:worker")
	}
	body := c.Input["body"]
	if _, text := body.(string); body != nil && !text && c.Area == "http" && !strings.HasPrefix(path, "/jobs/webhooks/") {
		body = wrap(body)
	}
	status, _ := c.Expected["http"].(float64)
	if status == 0 {
		status = map[string]float64{"GET": 200, "POST": 202, "DELETE": 204, "PATCH": 200}[method]
	}
	h.expect(h.want(h.Do(h.t, method, path, token, body), int(status)), c)
	return ""
}

// expect holds an answer against what a case says of it. What is not looked at here is refused, so that no case is run
// in vain.
func (h Home) expect(a Answer, c Case) {
	h.t.Helper()
	for key, want := range c.Expected {
		var got any
		switch {
		case key == "http":
			continue
		case key == "header":
			name, value, _ := strings.Cut(want.(string), ": ")
			got, want = a.Header.Get(name), value
		case key == "message" || key == "detail":
			got = a.At("errors.0.detail")
		case key == "pointer":
			got = a.At("errors.0.source.pointer")
		case key == "data" && want == "array":
			_, is := a.At("data").([]any)
			got, want = is, true
		case key == "started_at":
			got, want = a.At("data.attributes.started_at") == "0001-01-01T00:00:00Z", false
		case strings.HasPrefix(key, "data.links.webhook"):
			h.webhookLink(a)
			continue
		case key == "attributes.cozyMetadata.createdByApp", strings.HasPrefix(key, "attributes."):
			got = a.At("data." + key)
			if want == "absent" {
				want = nil
			}
		case strings.HasPrefix(key, "data."):
			got = a.At(key)
		default:
			h.t.Fatalf("%s: nobody looks at %q", c.ID, key)
		}
		if !reflect.DeepEqual(got, want) {
			h.t.Errorf("%s is %v, want %v: %s", key, got, want, a.Text)
		}
	}
}

// target is the method and the path of a case, with ids in place of what stands for them.
func (h Home) target(input map[string]any) (method, path string, ok bool) {
	for _, method := range []string{"GET", "POST", "PATCH", "DELETE"} {
		if path, ok := input[method].(string); ok {
			return method, h.fill(path), true
		}
	}
	return "", "", false
}

func (h Home) fill(path string) string {
	open, end := strings.IndexByte(path, '<'), strings.IndexByte(path, '>')
	if open < 0 {
		return path
	}
	var id string
	switch thing := path[open+1 : end]; thing {
	case "known id":
		id = h.push("print")
	case "unknown id":
		id = noJob
	case "client job":
		id = h.launch(h.trigger("@client", "", "print"))
	case "deleted id":
		id = h.trigger("@cron", "0 0 0 1 1 *", "print")
		h.want(h.Do(h.t, "DELETE", "/jobs/triggers/"+id, h.All, nil), 204)
	case "id", "cron", "@cron", "any", "cron trigger":
		id = h.trigger("@cron", "0 0 0 1 1 *", "print")
	case "@every":
		id = h.trigger("@every", "1h", "print", "message", "old")
	case "client":
		id = h.trigger("@client", "", "print")
	case "webhook trigger":
		id = h.trigger("@webhook", "", "print")
	case "unknown":
		id = noTrigger
	default:
		h.t.Fatalf("nobody knows what %q stands for", thing)
	}
	return path[:open] + id + h.fill(path[end+1:])
}

// permission asks with a scope, and looks whether it is let in.
func (h Home) permission(c Case) (skip string) {
	h.t.Helper()
	scope, action := c.Input["scope"].(string), c.Input["action"].(string)
	verbs, path, _ := strings.Cut(action, " ")
	var token string
	own := strings.Contains(path, "<own>")
	if own {
		id := h.trigger("@cron", "0 0 0 1 1 *", "konnector", "message", map[string]any{"konnector": "bank"})
		path = strings.Replace(path, "<own>", id, 1)
		token = h.Grant(permission.Token{Kind: permission.Konnector, Slug: "bank", Trigger: id})
	} else {
		token = h.App(scope)
	}
	for method := range strings.SplitSeq(verbs, "|") {
		body := map[string]any{"arguments": "0 0 0 * * 1"}
		a := h.Do(h.t, method, path, token, wrap(body))
		if allowed := a.Status < 400; allowed != c.Expected["allowed"] {
			h.t.Errorf("%s %s with %q: %d, want it allowed: %v: %s", method, path, scope, a.Status, c.Expected["allowed"], a.Text)
		}
		if a.Status >= 400 && a.Status != http.StatusForbidden {
			h.t.Errorf("%s %s with %q: %d, want 403", method, path, scope, a.Status)
		}
	}
	return ""
}

// drain makes n requests of one kind and returns the answers' statuses, with the first that is not as wanted.
func (h Home) drain(n, want int, do func() Answer) (over Answer) {
	h.t.Helper()
	for i := range n {
		if over = do(); over.Status != want {
			h.t.Fatalf("request %d was answered %d, want %d: %s", i+1, over.Status, want, over.Text)
		}
	}
	return do()
}

func (h Home) limited(a Answer, text string) {
	h.t.Helper()
	h.want(a, http.StatusTooManyRequests)
	var seconds int
	if _, err := fmt.Sscan(a.Header.Get("Retry-After"), &seconds); err != nil || seconds < 1 || seconds > 3600 {
		h.t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
	}
	if a.At("errors.0.detail") != text {
		h.t.Errorf("says %v, want %q", a.At("errors.0.detail"), text)
	}
}
