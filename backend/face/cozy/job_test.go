package cozy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

func TestStatesOfJobs(t *testing.T) {
	for _, c := range []struct {
		state   job.State
		attempt int
		want    trigger.Status
	}{
		{job.Ready, 0, trigger.Queued}, {job.Ready, 1, trigger.Running}, {job.Running, 1, trigger.Running}, {job.Blocked, 0, trigger.Running},
		{job.Succeeded, 1, trigger.Done}, {job.Failed, 3, trigger.Errored}, {job.Failed, 0, trigger.Errored}, {job.Cancelled, 0, trigger.Errored},
	} {
		if got := stateOf(job.Job{State: c.state, Attempt: c.attempt}); got != c.want {
			t.Errorf("%s after %d attempts is %s, want %s", c.state, c.attempt, got, c.want)
		}
	}
}

func TestJobsShowTheAttributesOfBothDocuments(t *testing.T) {
	d := open(t)
	made := d.all("POST", "/jobs/queue/sendmail", attributes(map[string]any{
		"manual": true, "forward_logs": true, "arguments": map[string]any{"mode": "noreply"}, "options": map[string]any{"timeout": 30, "max_exec_count": 2},
	}))
	d.status(made, 202)
	for path, want := range map[string]any{
		"data.type": "io.cozy.jobs", "data.attributes.domain": d.Domain, "data.attributes.worker": "sendmail", "data.attributes.worker_id": nil,
		"data.attributes.state": "queued", "data.attributes.try_count": 0.0, "data.attributes.started_at": "0001-01-01T00:00:00Z", "data.attributes.finished_at": nil,
		"data.attributes.manual_execution": true, "data.attributes.forward_logs": true, "data.attributes.error": "", "data.attributes.launcher": nil,
		"data.attributes.options.priority": 100.0, "data.attributes.options.timeout": 30.0, "data.attributes.options.max_exec_count": 2.0,
		"data.attributes.options.retry_max_count": nil, "data.attributes.arguments.mode": "noreply", "data.attributes.debounced": nil,
	} {
		d.is(made, path, want)
	}
	j := d.fake.jobs[0]
	if j.Priority != 1000 || j.Timeout != 30*time.Second || j.Retry.Attempts != 2 || string(j.Payload) != `{"mode":"noreply"}` {
		t.Errorf("stored %+v", j)
	}

	// It fails once, and waits.
	began := d.fake.now
	j.Attempt, j.Errors = 1, []job.Error{{At: began.Add(time.Second), Started: began, Attempt: 1, Text: "one"}}
	a := d.all("GET", "/jobs/"+made.ID()+"?legacy=1", nil)
	for path, want := range map[string]any{
		"data.attributes.state": "running", "data.attributes.try_count": 1.0, "data.attributes.started_at": began.Format(time.RFC3339Nano), "data.attributes.error": "one",
		"data.attributes.launcher": "", "data.attributes.launcher_id": "", "data.attributes.options.retry_max_count": 1.0, "data.attributes.options.arguments.mode": "noreply",
		"data.rev": a.At("data.meta.rev"),
	} {
		d.is(a, path, want)
	}

	// It runs again, and is over.
	j.State, j.Attempt, j.Started, j.Ended, j.Controller = job.Failed, 2, began.Add(time.Minute), began.Add(2*time.Minute), "ctl-1"
	j.Errors = append(j.Errors, job.Error{At: began, Attempt: 2, Text: strings.Repeat("é", 4000)})
	j.Output = []byte(`{"sent":1}`)
	a = d.all("GET", "/jobs/"+made.ID(), nil)
	last, _ := a.At("data.attributes.errors.1").(string)
	if len(last) > maxErrorText || len(last) < maxErrorText-2 || strings.ContainsRune(last, '�') || a.At("data.attributes.error") != last {
		t.Errorf("the last error has %d bytes", len(last))
	}
	for path, want := range map[string]any{
		"data.attributes.state": "errored", "data.attributes.worker_id": "ctl-1", "data.attributes.finished_at": j.Ended.Format(time.RFC3339Nano),
		"data.attributes.errors.0": "one", "data.attributes.output.sent": 1.0, "data.attributes.started_at": began.Format(time.RFC3339Nano),
	} {
		d.is(a, path, want)
	}
	for text, want := range map[string]string{
		"timed out: context deadline exceeded": "context deadline exceeded", "timed out: upload: context deadline exceeded": "upload: context deadline exceeded",
		"timed out after 30s": "context deadline exceeded", "hard timeout": "context deadline exceeded",
	} {
		j.Errors[1] = job.Error{Attempt: 2, Verdict: "timed_out", Text: text}
		d.is(d.all("GET", "/jobs/"+made.ID(), nil), "data.attributes.error", want)
	}
	j.State = job.Cancelled
	d.is(d.all("GET", "/jobs/"+made.ID(), nil), "data.attributes.error", "cancelled")
}

func TestEventsAndPayloadsAreClearedAtTheEnd(t *testing.T) {
	e := envelope{Envelope: trigger.Envelope{Worker: "print", Event: json.RawMessage(`{"verb":"CREATED"}`), Payload: json.RawMessage(`{"p":1}`), Debounced: true}}
	j := job.Job{ID: job.ID{N: 1, Salt: 1}, State: job.Running, Attempt: 1, Envelope: e.text(), Errors: make([]job.Error, 30)}
	a := jobResource(j, permission.Token{}, false).Attributes.(*jobAttributes)
	if string(a.Event) != `{"verb":"CREATED"}` || string(a.Payload) != `{"p":1}` || !a.Debounced || len(a.Errors) != job.MaxErrors {
		t.Errorf("running: %+v", a)
	}
	j.State = job.Succeeded
	if a = jobResource(j, permission.Token{}, false).Attributes.(*jobAttributes); a.Event != nil || a.Payload != nil {
		t.Errorf("done: %+v", a)
	}
}

func TestRevisionsGrow(t *testing.T) {
	j, before := job.Job{ID: job.ID{N: 1, Salt: 1}, State: job.Ready}, 0
	for _, step := range []struct {
		state   job.State
		attempt int
	}{{job.Ready, 0}, {job.Running, 1}, {job.Ready, 1}, {job.Running, 2}, {job.Ready, 2}, {job.Running, 3}, {job.Failed, 3}} {
		j.State, j.Attempt = step.state, step.attempt
		var n int
		var hash string
		if _, err := fmt.Sscanf(jobRevision(j), "%d-%s", &n, &hash); err != nil || n <= before || len(hash) != 32 {
			t.Errorf("%v has revision %s after %d", step, jobRevision(j), before)
		}
		before = n
	}
}

func TestAJobOfAClientEndsOnce(t *testing.T) {
	d := open(t)
	id := d.status(d.all("POST", "/jobs/triggers/"+d.made(map[string]any{"type": "@client", "worker": "other"})+"/launch", nil), 201).ID()
	end := func(members map[string]any) any { return attributes(members) }
	for _, members := range []map[string]any{{"state": "queued"}, {"state": ""}, {}, {"state": 7}} {
		a := d.status(d.all("PATCH", "/jobs/"+id, end(members)), 422)
		d.is(a, "errors.0.detail", badState)
		d.is(a, "errors.0.source.pointer", "/data/attributes/State")
	}
	d.status(d.all("PATCH", "/jobs/"+id, end(map[string]any{"state": "errored", "error": 7})), 422)
	d.status(d.all("PATCH", "/jobs/"+id, `{}`), 400)
	a := d.status(d.all("PATCH", "/jobs/"+id, end(map[string]any{"state": "errored", "error": "LOGIN_FAILED"})), 200)
	d.is(a, "data.attributes.state", "errored")
	d.is(a, "data.attributes.error", "LOGIN_FAILED")
	d.status(d.all("PATCH", "/jobs/"+id, end(map[string]any{"state": "done"})), 409)

	server := d.status(d.all("POST", "/jobs/queue/print", end(map[string]any{"arguments": 1})), 202).ID()
	d.status(d.all("PATCH", "/jobs/"+server, end(map[string]any{"state": "done"})), 403)
	d.status(d.all("PATCH", "/jobs/jzzzzzz0000001", end(map[string]any{"state": "done"})), 404)
	pushed := d.status(d.all("POST", "/jobs/queue/client", end(map[string]any{"arguments": 1})), 202)
	d.is(pushed, "data.attributes.state", "running")
	d.is(pushed, "data.attributes.worker", "client")
}

func TestWhatATokenMayNotSeeIsAnsweredAsWhatIsNotThere(t *testing.T) {
	d := open(t)
	job := d.status(d.all("POST", "/jobs/queue/print", attributes(map[string]any{"arguments": 1})), 202).ID()
	trig := d.made(map[string]any{"type": "@in", "arguments": "1h", "worker": "print"})
	mails := d.App("io.cozy.jobs:ALL:sendmail:worker io.cozy.triggers:ALL:sendmail:worker")
	prints := d.App("io.cozy.jobs:ALL:print:worker io.cozy.triggers:ALL:print:worker")
	for there, absent := range map[string]string{"/jobs/" + job: "/jobs/jzzzzzz0000001", "/jobs/triggers/" + trig: "/jobs/triggers/00000000000000000000000000000000"} {
		one, two := d.Do(t, "GET", there, mails, nil), d.Do(t, "GET", absent, mails, nil)
		if one.Status != 403 || one.Status != two.Status || one.Text != two.Text {
			t.Errorf("%s: %d %s; what is absent: %d %s", there, one.Status, one.Text, two.Status, two.Text)
		}
		d.status(d.Do(t, "GET", there, prints, nil), 200)
		d.status(d.Do(t, "GET", there, d.App("io.cozy.jobs:GET:"+job+" io.cozy.triggers:GET:"+trig), nil), 200)
	}
	for path, want := range map[string]int{
		"/jobs/queue": 403, "/jobs/queue/print": 200, "/jobs/queue/sendmail": 403, "/jobs/triggers": 403, "/jobs/triggers?Worker=print": 200,
		"/jobs/triggers?Worker=print,sendmail": 403, "/jobs/triggers?Worker=print&Worker=sendmail": 403, "/jobs/launchers?Worker=print": 200,
	} {
		if a := d.Do(t, "GET", path, prints, nil); a.Status != want {
			t.Errorf("GET %s: %d, want %d", path, a.Status, want)
		}
	}
	// The whole type is not enough to make jobs, and a rule on other workers lets no client in.
	whole := d.App("io.cozy.jobs io.cozy.triggers")
	d.status(d.Do(t, "POST", "/jobs/queue/print", whole, attributes(map[string]any{"arguments": 1})), 403)
	d.status(d.Do(t, "POST", "/jobs/triggers", whole, attributes(map[string]any{"type": "@in", "arguments": "1h", "worker": "print"})), 403)
	d.status(d.Do(t, "POST", "/jobs/triggers", prints, attributes(map[string]any{"type": "@client", "worker": "print"})), 403)
	d.status(d.Do(t, "POST", "/jobs/launchers/sendmail", prints, map[string]any{"type": "@in", "arguments": "1h"}), 403)
	d.status(d.Do(t, "POST", "/jobs/queue/wrok", prints, attributes(map[string]any{"arguments": 1})), 403) // not 404
}

func TestAKonnectorsOwnTrigger(t *testing.T) {
	d := open(t)
	message := map[string]any{"konnector": "bank", "account": "x"}
	own := d.made(map[string]any{"type": "@cron", "arguments": "0 0 0 1 1 *", "worker": "konnector", "message": message})
	other := d.made(map[string]any{"type": "@cron", "arguments": "0 0 0 1 1 *", "worker": "konnector", "message": map[string]any{"konnector": "shop"}})
	token := d.Grant(permission.Token{Kind: permission.Konnector, Slug: "bank"})
	for path, want := range map[string]int{own: 200, own + "/state": 200, other: 403, other + "/state": 403, own + "/jobs": 403} {
		if a := d.Do(t, "GET", "/jobs/triggers/"+path, token, nil); a.Status != want {
			t.Errorf("GET %s: %d, want %d", path, a.Status, want)
		}
	}
	d.status(d.Do(t, "POST", "/jobs/triggers/"+own+"/launch", token, nil), 403)
	d.status(d.Do(t, "PATCH", "/jobs/triggers/"+own, token, attributes(map[string]any{"arguments": "0 0 1 1 1 *"})), 200)
	d.status(d.Do(t, "DELETE", "/jobs/triggers/"+other, token, nil), 403)
	d.status(d.Do(t, "DELETE", "/jobs/triggers/"+own, token, nil), 204)
}

func TestTriggersAreShownWithTheirState(t *testing.T) {
	d := open(t)
	id := d.made(map[string]any{"type": "@webhook", "arguments": "ignored", "worker": "print", "debounce": "10m", "message": 1})
	a := d.all("GET", "/jobs/triggers/"+id, nil)
	for path, want := range map[string]any{
		"data.attributes.current_state.status": "done", "data.attributes.current_state.last_execution": nil, "data.attributes.debounce": "10m",
		"data.attributes.arguments": "ignored", "data.links.webhook": "https://" + d.Domain + "/jobs/webhooks/" + id, "data.attributes.cozyMetadata.createdByApp": "CLI",
		"data.attributes.cozyMetadata.createdAt": d.fake.triggers[0].CreatedAt.Format(time.RFC3339Nano),
	} {
		d.is(a, path, want)
	}
	job := d.all("POST", "/jobs/triggers/"+id+"/launch", nil).ID()
	state := d.status(d.all("GET", "/jobs/triggers/"+id+"/state", nil), 200)
	for path, want := range map[string]any{
		"data.type": "io.cozy.triggers.state", "data.id": id, "data.attributes.status": "queued", "data.attributes.last_executed_job_id": job,
		"data.attributes.last_execution": nil, "data.attributes.last_manual_job_id": job, "data.attributes.trigger_id": id,
	} {
		d.is(state, path, want)
	}
	d.is(d.all("GET", "/jobs/triggers?Type=@webhook", nil), "data.0.attributes.current_state.last_executed_job_id", job)
	d.is(d.all("GET", "/jobs/triggers?Type=@nothing", nil), "meta.count", 0.0)
}

func TestTriggersComeInPages(t *testing.T) {
	d := open(t)
	for range 5 {
		d.made(map[string]any{"type": "@in", "arguments": "1h", "worker": "print"})
	}
	seen, path, pages := map[string]bool{}, "/jobs/triggers?Type=@in,@at&page[limit]=2", 0
	for path != "" {
		a := d.status(d.all("GET", path, nil), 200)
		for _, item := range a.At("data").([]any) {
			seen[item.(map[string]any)["id"].(string)] = true
		}
		path, _ = a.At("links.next").(string)
		pages++
	}
	if len(seen) != 5 || pages != 3 {
		t.Errorf("%d triggers on %d pages, want 5 on 3", len(seen), pages)
	}
}

func TestALaterPatchIsSeen(t *testing.T) {
	d := open(t)
	id := d.made(map[string]any{"type": "@cron", "arguments": "0 0 0 1 1 *", "worker": "print"})
	before := d.all("GET", "/jobs/triggers/"+id, nil).At("data.meta.rev")
	a := d.status(d.all("PATCH", "/jobs/triggers/"+id, attributes(map[string]any{"worker_arguments": map[string]any{"Data": "InZhbHVlIgo=", "Type": "json"}})), 200)
	d.is(a, "data.attributes.message", "value")
	if rev := a.At("data.meta.rev"); rev == before || !strings.HasPrefix(rev.(string), "2-") {
		t.Errorf("the revision was %v, and is %v", before, rev)
	}
}

func TestPurgeAsksForWhatWasGiven(t *testing.T) {
	d := open(t)
	for query, want := range map[string]string{
		"": "[] 336h0m0s", "?duration=3W": "[] 504h0m0s", "?duration=2D12h&workers=print,sendmail": "[print.print sendmail.sendmail] 60h0m0s",
	} {
		a := d.status(d.all("DELETE", "/jobs/purge"+query, nil), 200)
		d.is(a, "deleted", 42.0)
		if got := d.fake.purged[len(d.fake.purged)-1]; got != d.Tenant+want {
			t.Errorf("%s purges %s, want %s", query, got, d.Tenant+want)
		}
	}
	d.status(d.Do(t, "DELETE", "/jobs/purge", d.App("io.cozy.jobs:DELETE:print:worker"), nil), 403)
}

// A list in which no worker stands is not that of all.
func TestPurgeOfNobody(t *testing.T) {
	d := open(t)
	for _, list := range []string{"workers=,", "workers=%20", "workers=,&workers=,%20,", "workers=&workers=,"} {
		a := d.status(d.all("DELETE", "/jobs/purge?"+list, nil), 422)
		d.is(a, "errors.0.source.parameter", "workers")
	}
	if len(d.fake.purged) > 0 {
		t.Errorf("purged %v", d.fake.purged)
	}
	d.status(d.all("DELETE", "/jobs/purge?workers=", nil), 200)
}

// A message is any JSON, null as well; arguments that are null are not there.
func TestAPatchGoesByWhatIsThere(t *testing.T) {
	d := open(t)
	for _, kind := range []string{"@cron", "@webhook"} {
		id := d.made(map[string]any{"type": kind, "arguments": "0 0 0 1 1 *", "worker": "print", "message": 7})
		for _, c := range []struct {
			attributes map[string]any
			status     int
			message    any
		}{
			{map[string]any{"arguments": nil, "message": 8}, 200, 8.0},
			{map[string]any{"message": nil}, 200, nil},
			{map[string]any{"arguments": nil, "message": nil}, 200, nil},
			{map[string]any{"message": nil, "worker_arguments": 9}, 200, 9.0},
			{map[string]any{"arguments": nil}, 400, 9.0},
			{map[string]any{"worker_arguments": nil}, 400, 9.0},
			{map[string]any{"arguments": "", "message": 1}, 422, 9.0},
		} {
			d.status(d.all("PATCH", "/jobs/triggers/"+id, attributes(c.attributes)), c.status)
			a := d.all("GET", "/jobs/triggers/"+id, nil)
			d.is(a, "data.attributes.message", c.message)
			d.is(a, "data.attributes.arguments", "0 0 0 1 1 *")
		}
	}
}

// A new trigger has no jobs that could be looked for; one that is answered again may have.
func TestOnlyARepeatLooksForJobs(t *testing.T) {
	d := open(t)
	hook := map[string]any{"type": "@webhook", "worker": "print"}
	d.made(hook)
	if d.summed != 0 {
		t.Errorf("%d looks for the jobs of a new trigger", d.summed)
	}
	first := d.status(d.all("POST", "/jobs/triggers", attributes(hook), "Idempotency-Key", "k"), 201).ID()
	job := d.status(d.all("POST", "/jobs/triggers/"+first+"/launch", nil), 201).ID()
	a := d.status(d.all("POST", "/jobs/triggers", attributes(hook), "Idempotency-Key", "k"), 201)
	d.is(a, "data.id", first)
	d.is(a, "data.attributes.current_state.last_executed_job_id", job)
}
