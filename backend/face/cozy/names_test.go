package cozy

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"carillon/backend/core/permission"
)

// A worker is one, by whichever name it is asked for: vault.open, the one verb of its module, is vault and open, too;
// sendmail is sendmail.sendmail.
func TestAWorkerIsKnownByAllItsNames(t *testing.T) {
	d := open(t)
	body := attributes(map[string]any{"arguments": 1})
	trig := func(worker string) any {
		return attributes(map[string]any{"type": "@in", "arguments": "1h", "worker": worker})
	}
	names := []string{"mail", "send", "mail.send"}
	for _, rule := range names {
		token := d.App("io.cozy.jobs:ALL:" + rule + ":worker io.cozy.triggers:ALL:" + rule + ":worker")
		var job, id string
		for _, name := range names {
			job = d.status(d.Do(t, "POST", "/jobs/queue/"+name, token, body), 202).ID()
			id = d.status(d.Do(t, "POST", "/jobs/triggers", token, trig(name)), 201).ID()
			d.status(d.Do(t, "POST", "/jobs/launchers/"+name, token, map[string]any{"type": "@in", "arguments": "1h"}), 201)
			d.status(d.Do(t, "GET", "/jobs/"+job, token, nil), 200)
			d.status(d.Do(t, "GET", "/jobs/triggers/"+id, token, nil), 200)
			d.status(d.Do(t, "PATCH", "/jobs/triggers/"+id, token, attributes(map[string]any{"message": 1})), 200)
		}
		for _, name := range names {
			d.is(d.status(d.Do(t, "GET", "/jobs/queue/"+name, token, nil), 200), "meta.count", float64(len(d.fake.jobs)))
			d.is(d.status(d.Do(t, "GET", "/jobs/triggers?Worker="+name, token, nil), 200), "meta.count", float64(len(d.fake.triggers)))
		}
		d.status(d.Do(t, "GET", "/jobs/queue/print", token, nil), 403)
		d.status(d.Do(t, "POST", "/jobs/queue/post.print", token, body), 403)
	}
	d.status(d.all("DELETE", "/jobs/purge?workers=mail,nobody,print", nil), 200)
	if got := d.fake.purged[0]; !strings.Contains(got, "[mail.send nobody print.print]") {
		t.Errorf("purges %s", got)
	}
	// The verb of another module that is called as a worker is not that worker.
	prints := d.App("io.cozy.jobs:ALL:print:worker io.cozy.triggers:ALL:print:worker")
	d.status(d.Do(t, "POST", "/jobs/queue/post.print", prints, body), 403)
	d.status(d.Do(t, "POST", "/jobs/triggers", prints, trig("post.print")), 403)
	d.status(d.Do(t, "POST", "/jobs/queue/post", prints, body), 403)
	d.status(d.Do(t, "POST", "/jobs/queue/print.print", prints, body), 202)
}

// lateHouse knows no verb until somebody asks for one, as a controller does of a deployment that it has not heard of.
type lateHouse struct {
	*fake
	asked bool
}

func (h *lateHouse) Names(tenant, name string) []string {
	if !h.asked {
		return nil
	}
	return h.fake.Names(tenant, name)
}

func (h *lateHouse) Worker(ctx context.Context, tenant, name string) (Worker, bool) {
	h.asked = true
	return h.fake.Worker(ctx, tenant, name)
}

// The first request after a deployment is refused, too: "open" is a name of vault.open, whose module is reserved.
func TestAReservedWorkerIsRefusedAtOnce(t *testing.T) {
	f, w := world(t)
	late := &lateHouse{fake: f}
	server := httptest.NewServer(Handler(Config{House: late, Reader: f, Tokens: f, Reserved: permission.Reserved{"vault", "client"}, Logger: slog.New(slog.DiscardHandler)}))
	defer server.Close()
	w.URL = server.URL
	h := w.Home(t)
	rules := "io.cozy.jobs:POST:open:worker io.cozy.triggers:POST:open,client:worker"
	app := h.App(rules)
	scope, err := permission.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	operator := h.Grant(permission.Token{Kind: permission.CLI, Scope: scope})
	hook := map[string]any{"type": "@webhook", "worker": "open"}
	for _, c := range []struct {
		path  string
		body  any
		as    string
		wants int
	}{
		{"/jobs/queue/open", attributes(map[string]any{"arguments": 1}), app, 403},
		{"/jobs/triggers", attributes(hook), app, 403},
		{"/jobs/launchers/open", hook, app, 403},
		{"/jobs/triggers", attributes(map[string]any{"type": "@client", "worker": "open"}), app, 201},
		{"/jobs/queue/open", attributes(map[string]any{"arguments": 1}), operator, 202},
		{"/jobs/triggers", attributes(hook), operator, 201},
	} {
		late.asked = false
		if a := h.Do(t, "POST", c.path, c.as, c.body); a.Status != c.wants {
			t.Errorf("%s %v: %d, want %d: %s", c.path, c.body, a.Status, c.wants, a.Text)
		}
	}
}

// Who may do everything of a type, and who has everything but is no operator, names no worker: neither runs any.
func TestAWholeTypeRunsNothing(t *testing.T) {
	d := open(t)
	everything := d.Grant(permission.Token{Kind: permission.App, Slug: "drive", Scope: permission.Full()})
	konnector := d.Grant(permission.Token{Kind: permission.Konnector, Slug: "bank", Scope: permission.Full()})
	mail := attributes(map[string]any{"arguments": map[string]any{"subject": "s", "parts": []any{map[string]any{"body": "b", "type": "text/plain"}}}})
	for name, token := range map[string]string{
		"*": everything, "a konnector's *": konnector, "whole types": d.App("io.cozy.jobs io.cozy.triggers"), "ids": d.App("io.cozy.jobs:POST:* io.cozy.triggers:POST:*"),
		"a star": d.App("io.cozy.jobs:POST:*:worker io.cozy.triggers:ALL:*:worker"), "the other type": d.App("io.cozy.jobs:ALL:print:id io.cozy.files:ALL:print:worker"),
	} {
		for _, c := range []struct {
			path string
			body any
		}{
			{"/jobs/queue/print", attributes(map[string]any{"arguments": 1})}, {"/jobs/queue/print.print", attributes(map[string]any{"arguments": 1})},
			{"/jobs/queue/client", attributes(map[string]any{"arguments": 1})}, {"/jobs/queue/vault", attributes(map[string]any{"arguments": 1})},
			{"/jobs/queue/nobody", attributes(map[string]any{"arguments": 1})},
			{"/jobs/triggers", attributes(map[string]any{"type": "@in", "arguments": "1h", "worker": "print"})}, {"/jobs/triggers", attributes(map[string]any{"type": "@client"})},
			{"/jobs/launchers/print", map[string]any{"type": "@in", "arguments": "1h"}}, {"/jobs/campaign-emails", mail},
		} {
			if a := d.Do(t, "POST", c.path, token, c.body); a.Status != 403 {
				t.Errorf("%s: POST %s: %d %s", name, c.path, a.Status, a.Text)
			}
		}
	}
	if len(d.fake.jobs)+len(d.fake.triggers) != 0 {
		t.Errorf("%d jobs and %d triggers were made", len(d.fake.jobs), len(d.fake.triggers))
	}
	d.status(d.Do(t, "GET", "/jobs/triggers", everything, nil), 200)
	d.status(d.Do(t, "GET", "/jobs/queue", everything, nil), 200)
}

func TestNumbersThatAreTooLarge(t *testing.T) {
	d := open(t)
	id := d.made(map[string]any{"type": "@client"})
	for range 60 {
		d.status(d.all("POST", "/jobs/triggers/"+id+"/launch", nil), 201)
	}
	const huge = "99999999999999999999999"
	for limit, want := range map[string]float64{"0": 50, "": 50, "7": 7, "51": 50, "2147483648": 50, huge: 50} {
		d.is(d.status(d.all("GET", "/jobs/triggers/"+id+"/jobs?Limit="+limit, nil), 200), "meta.count", want)
	}
	for _, limit := range []string{"-1", "-" + huge, "x", "1.5", "1e3", huge + "x"} {
		d.status(d.all("GET", "/jobs/triggers/"+id+"/jobs?Limit="+limit, nil), 400)
		d.status(d.all("GET", "/jobs/queue?page[limit]="+limit, nil), 400)
	}
	for _, path := range []string{"/jobs/queue", "/jobs/queue/client"} {
		d.is(d.status(d.all("GET", path+"?page[limit]="+huge, nil), 200), "meta.count", 60.0)
	}
	d.is(d.status(d.all("GET", "/jobs/triggers?page[limit]="+huge, nil), 200), "meta.count", 1.0)
}
