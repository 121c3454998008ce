package cozycases

import (
	"net/http"
	"reflect"
	"strings"
)

// specials are the cases that need more than one request, or say in words what to look at.
var specials = map[string]func(h Home, c Case) (skip string){
	"cz-356": func(h Home, _ Case) string {
		body := map[string]any{"arguments": "foobar", "options": map[string]any{"timeout": 42}}
		a := h.want(h.Do(h.t, "POST", "/jobs/queue/print", h.All, wrap(body)), 202)
		a = h.want(h.Do(h.t, "GET", "/jobs/"+a.ID(), h.All, nil), 200)
		h.equal(a, "data.attributes.options.timeout", 42.0)
		return ""
	},
	"cz-360": func(h Home, _ Case) string {
		names := []string{h.Reserved, "open", h.Reserved + ".open"}
		rules := strings.Join(names, ",") + ":worker"
		token := h.App("io.cozy.jobs:POST:" + rules + " io.cozy.triggers:POST:" + rules)
		for _, name := range names {
			body := map[string]any{"type": "@in", "arguments": "1h", "worker": name}
			h.want(h.Do(h.t, "POST", "/jobs/queue/"+name, token, wrap(map[string]any{"arguments": 1})), 403)
			h.want(h.Do(h.t, "POST", "/jobs/triggers", token, wrap(body)), 403)
			h.want(h.Do(h.t, "POST", "/jobs/launchers/"+name, token, body), 403)
			h.want(h.Do(h.t, "POST", "/jobs/queue/"+name, h.All, wrap(map[string]any{"arguments": 1})), 202) // the operator
			h.want(h.Do(h.t, "POST", "/jobs/triggers", h.All, wrap(body)), 201)
		}
		return ""
	},
	"cz-361": func(h Home, _ Case) string {
		token := h.App("io.cozy.jobs:POST:none:worker")
		h.want(h.Do(h.t, "POST", "/jobs/queue/none", token, wrap(map[string]any{"arguments": 1})), 404)
		return ""
	},
	"cz-383": func(h Home, _ Case) string {
		one, two := h.trigger("@every", "1h", "print"), h.trigger("@every", "1h", "print")
		a := h.want(h.Do(h.t, "GET", "/jobs/triggers", h.All, nil), 200)
		if one == two || a.At("meta.count") != 2.0 {
			h.t.Errorf("two identical requests made %s and %s: %s", one, two, a.Text)
		}
		return ""
	},
	"cz-387": func(h Home, _ Case) string {
		id := h.trigger("@cron", "0 0 0 1 1 *", "print")
		first, second := h.launch(id), h.launch(id)
		a := h.want(h.Do(h.t, "GET", "/jobs/triggers/"+id+"/jobs?Limit=1", h.All, nil), 200)
		h.equal(a, "meta.count", 1.0)
		h.equal(a, "data.0.id", second)
		a = h.want(h.Do(h.t, "GET", "/jobs/triggers/"+id+"/jobs", h.All, nil), 200)
		h.equal(a, "data.0.id", second)
		h.equal(a, "data.1.id", first)
		return ""
	},
	"cz-391": func(h Home, c Case) string {
		id := h.trigger("@cron", "0 0 0 1 1 *", "print")
		h.want(h.Do(h.t, "PATCH", "/jobs/triggers/"+id, h.All, wrap(c.Input["body"])), 200)
		a := h.want(h.Do(h.t, "GET", "/jobs/triggers/"+id, h.All, nil), 200)
		h.equal(a, "data.attributes.arguments", c.Expected["then GET arguments"])
		return ""
	},
	"cz-396d": func(h Home, c Case) string {
		id := h.trigger("@every", "1h", "print", "message", "old")
		a := h.want(h.Do(h.t, "PATCH", "/jobs/triggers/"+id, h.All, wrap(c.Input["body"])), 422)
		h.equal(a, "errors.0.detail", "Invalid type for trigger (@cron expected)")
		a = h.want(h.Do(h.t, "GET", "/jobs/triggers/"+id, h.All, nil), 200)
		h.equal(a, "data.attributes.message", "old")
		h.equal(a, "data.attributes.arguments", "1h")
		return ""
	},
	"cz-402": func(h Home, _ Case) string {
		h.trigger("@in", "1h", "print")
		h.trigger("@in", "1h", "konnector")
		h.equal(h.want(h.Do(h.t, "GET", "/jobs/triggers?Worker=print", h.All, nil), 200), "meta.count", 1.0)
		return ""
	},
	"cz-404": func(h Home, _ Case) string {
		h.trigger("@in", "1h", "print")
		h.trigger("@every", "1h", "print")
		h.equal(h.want(h.Do(h.t, "GET", "/jobs/triggers?Type=@in", h.All, nil), 200), "meta.count", 1.0)
		h.equal(h.want(h.Do(h.t, "GET", "/jobs/triggers?Type=@in,@interval", h.All, nil), 200), "meta.count", 2.0)
		return ""
	},
	"cz-409": func(h Home, _ Case) string { return h.manual("true", true) },
	"cz-410": func(h Home, _ Case) string { return h.manual("1", nil) },
	"cz-412": func(h Home, _ Case) string {
		token := h.App("io.cozy.jobs:POST:sendmail:worker")
		parts := []any{map[string]any{"body": "So many new features to check out!", "type": "text/plain"}}
		mail := map[string]any{"subject": "Checkout the new cool stuff!", "parts": parts}
		h.want(h.Do(h.t, "POST", "/jobs/campaign-emails", token, wrap(map[string]any{"arguments": mail})), 204)
		h.want(h.Do(h.t, "POST", "/jobs/campaign-emails", token, wrap(map[string]any{"arguments": map[string]any{"subject": "x"}})), 400)
		h.want(h.Do(h.t, "POST", "/jobs/campaign-emails", h.App("io.cozy.jobs"), wrap(map[string]any{"arguments": mail})), 403)
		return ""
	},
	"cz-414": func(h Home, _ Case) string {
		mail := map[string]any{"arguments": map[string]any{"subject": "Cozy is so cool!", "body": "I really love Cozy. Thank you so much!"}}
		h.want(h.Do(h.t, "POST", "/jobs/support", h.App("io.cozy.support"), wrap(mail)), 204)
		h.want(h.Do(h.t, "POST", "/jobs/support", h.App("io.cozy.jobs:POST:sendmail:worker"), wrap(mail)), 204)
		h.want(h.Do(h.t, "POST", "/jobs/support", h.App("io.cozy.support:GET"), wrap(mail)), 403)
		h.want(h.Do(h.t, "POST", "/jobs/support", h.All, wrap(map[string]any{"arguments": map[string]any{"subject": "x"}})), 400)
		return ""
	},
	"cz-416d": func(h Home, _ Case) string {
		id := h.push("print")
		for _, path := range []string{"/jobs/" + id, "/jobs/" + id + "?legacy=1"} {
			h.equal(h.want(h.Do(h.t, "GET", path, h.All, nil), 200), "data.links.self", "/jobs/"+id)
		}
		launched := h.want(h.Do(h.t, "POST", "/jobs/triggers/"+h.trigger("@in", "1h", "print")+"/launch", h.All, nil), 201)
		h.equal(launched, "data.links.self", "/jobs/"+launched.ID())
		return ""
	},
	"cz-417": func(h Home, _ Case) string {
		id := h.trigger("@in", "1h", "print")
		h.launch(id)
		for _, path := range []string{"/jobs/queue", "/jobs/queue/print", "/jobs/triggers", "/jobs/triggers/" + id + "/jobs", "/jobs/launchers"} {
			a := h.want(h.Do(h.t, "GET", path, h.All, nil), 200)
			items, ok := a.At("data").([]any)
			if !ok || a.At("meta.count") != float64(len(items)) || a.At("links") == nil {
				h.t.Errorf("%s: %s", path, a.Text)
			}
		}
		return ""
	},
	"cz-418": func(h Home, _ Case) string {
		h.want(h.Do(h.t, "GET", "/jobs/"+noJob, h.All, nil), 404)
		h.want(h.Do(h.t, "POST", "/jobs/triggers", h.All, "no JSON"), 400)
		h.want(h.Do(h.t, "POST", "/jobs/triggers", h.All, wrap(map[string]any{"type": "@never", "worker": "print"})), 422)
		return ""
	},
	"cz-320d": func(h Home, _ Case) string {
		do := func() Answer {
			return h.Do(h.t, "POST", "/jobs/queue/sendmail", h.All, wrap(map[string]any{"arguments": map[string]any{}}))
		}
		h.limited(h.drain(200, 202, do), "Rate limit reached")
		h.limited(do(), "Rate limit exceeded")
		other := h.World.Home(h.t) // another domain has its own
		other.push("sendmail")
		return ""
	},
	"cz-281": func(Home, Case) string {
		return "a verb that has nothing to do returns: there is no sentinel of an abort"
	},
	"cz-448": func(h Home, _ Case) string { // as the queue shows it
		for _, manual := range []bool{true, false} {
			h.want(h.Do(h.t, "POST", "/jobs/queue/client", h.All, wrap(map[string]any{"arguments": 1, "manual": manual})), 202)
		}
		h.equal(h.want(h.Do(h.t, "GET", "/jobs/queue/client", h.All, nil), 200), "meta.count", 2.0)
		h.equal(h.want(h.Do(h.t, "GET", "/jobs/queue", h.All, nil), 200), "meta.count", 2.0)
		return ""
	},
	"cz-321d": func(h Home, _ Case) string {
		one, two := h.trigger("@webhook", "", "print"), h.trigger("@webhook", "", "print")
		h.limited(h.drain(30, 204, func() Answer { return h.Do(h.t, "POST", "/jobs/webhooks/"+one, "", `{}`) }), "Rate limit reached")
		h.limited(h.Do(h.t, "POST", "/jobs/webhooks/"+two, "", `{}`), "Rate limit exceeded")
		return ""
	},
	"cz-453": func(h Home, _ Case) string {
		body := map[string]any{"type": "@interval", "arguments": "30m10s", "options": map[string]any{"priority": 3, "timeout": 60, "retry_max_count": 3, "retry_delay": 10, "arguments": map[string]any{}}}
		made := h.want(h.Do(h.t, "POST", "/jobs/launchers/sendmail", h.All, body), 201)
		got := h.want(h.Do(h.t, "GET", "/jobs/launchers/"+made.ID(), h.All, nil), 200)
		for _, a := range []Answer{made, got} {
			h.equal(a, "data.type", "io.cozy.launchers")
			h.equal(a, "data.links.self", "/jobs/launchers/"+made.ID())
			h.equal(a, "data.attributes.type", "@interval")
			h.equal(a, "data.attributes.worker", "sendmail")
			h.equal(a, "data.attributes.arguments", "30m10s")
			h.equal(a, "data.attributes.options", map[string]any{"priority": 3.0, "timeout": 60.0, "retry_max_count": 3.0, "retry_delay": 10.0, "arguments": map[string]any{}})
		}
		a := h.want(h.Do(h.t, "GET", "/jobs/triggers/"+made.ID(), h.All, nil), 200) // the same row
		h.equal(a, "data.attributes.type", "@every")
		h.equal(a, "data.attributes.options.max_exec_count", 4.0)
		return ""
	},
	"cz-457d": func(h Home, _ Case) string {
		h.want(h.Do(h.t, "GET", "/jobs/"+noJob, h.All, nil), 404)
		id := h.launch(h.trigger("@client", "", "print"))
		h.want(h.Do(h.t, "PATCH", "/jobs/"+id, h.All, wrap(map[string]any{"state": "done"})), 200)
		a := h.want(h.Do(h.t, "GET", "/jobs/"+id, h.All, nil), 200)
		h.equal(a, "data.attributes.state", "done")
		return ""
	},
	"cz-458": func(h Home, _ Case) string {
		seen := map[string]bool{}
		for range 3 {
			h.launch(h.trigger("@client", "", "")) // they stay
		}
		path, pages := "/jobs/queue?page[limit]=2", 0
		for path != "" {
			a := h.want(h.Do(h.t, "GET", path, h.All, nil), 200)
			for _, item := range a.At("data").([]any) {
				seen[item.(map[string]any)["id"].(string)] = true
			}
			path, _ = a.At("links.next").(string)
			if pages++; path != "" && !strings.HasPrefix(path, "/jobs/queue?page[cursor]=") || pages > 3 {
				h.t.Fatalf("page %d goes on at %q", pages, path)
			}
		}
		if len(seen) != 3 || pages != 2 {
			h.t.Errorf("%d jobs on %d pages, want 3 on 2", len(seen), pages)
		}
		h.want(h.Do(h.t, "GET", "/jobs/queue?page[cursor]=!", h.All, nil), 400)
		h.want(h.Do(h.t, "GET", "/jobs/queue?page[limit]=many", h.All, nil), 400)
		return ""
	},
	"cz-459": func(h Home, c Case) string {
		a := h.want(h.Do(h.t, "POST", "/jobs/queue/sendmail", h.All, c.Input["body"]), 202)
		h.equal(a, "data.attributes.options", map[string]any{"priority": 3.0, "timeout": 60.0, "retry_max_count": 3.0, "retry_delay": 10.0, "arguments": map[string]any{}})
		_, tries := a.At("data.attributes.try_count").(float64)
		_, list := a.At("data.attributes.errors").([]any)
		_, object := a.At("data.attributes.output").(map[string]any)
		if !tries || !list || !object {
			h.t.Errorf("not the attributes of the early document: %s", a.Text)
		}
		h.equal(a, "data.attributes.launcher", "")
		return ""
	},
	"cz-461": func(h Home, _ Case) string {
		a := h.want(h.Do(h.t, "GET", "/jobs/"+h.push("print"), h.All, nil), 200)
		h.equal(a, "data.attributes.options", map[string]any{"priority": 50.0, "timeout": 60.0, "max_exec_count": 3.0, "retry_delay": 10.0})
		return ""
	},
	"cz-463": func(h Home, _ Case) string {
		id := h.want(h.Do(h.t, "POST", "/jobs/launchers/print", h.All, map[string]any{"type": "@interval", "arguments": "1.5h"}), 201).ID()
		a := h.want(h.Do(h.t, "GET", "/jobs/triggers/"+id, h.All, nil), 200)
		h.equal(a, "data.attributes.type", "@every")
		h.equal(a, "data.attributes.arguments", "1.5h")
		return ""
	},
	"cz-503": func(h Home, c Case) string {
		a := h.want(h.Do(h.t, "POST", "/jobs/queue/print", h.All, c.Input["body"]), 202)
		a = h.want(h.Do(h.t, "GET", "/jobs/"+a.ID(), h.All, nil), 200)
		h.equal(a, "data.attributes.options.max_exec_count", 1.0)
		return ""
	},
}

// manual delivers to a webhook, and looks at the job.
func (h Home) manual(said string, want any) string {
	h.t.Helper()
	id := h.trigger("@webhook", "", "print")
	h.want(h.Do(h.t, "POST", "/jobs/webhooks/"+id+"?Manual="+said, "", `{"account_id":"x"}`), http.StatusNoContent)
	a := h.want(h.Do(h.t, "GET", "/jobs/triggers/"+id+"/jobs", h.All, nil), 200)
	h.equal(a, "meta.count", 1.0)
	h.equal(a, "data.0.attributes.manual_execution", want)
	return ""
}

func (h Home) equal(a Answer, path string, want any) {
	h.t.Helper()
	if got := a.At(path); !reflect.DeepEqual(got, want) {
		h.t.Errorf("%s is %v, want %v: %s", path, got, want, a.Text)
	}
}
