package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
)

func aTrigger(id, kind, arguments string) *carillonv1.Trigger {
	return &carillonv1.Trigger{Id: id, Tenant: "acme", Domain: "acme.example", Kind: kind, Arguments: arguments, Worker: "sendmail", Ref: "sendmail.sendmail", Priority: 50,
		MaxAttempts: 3, Timeout: durationpb.New(time.Minute), Backoff: durationpb.New(10 * time.Second), CreatedAt: at(0), Status: "done", Message: []byte(`{"a":{"b":1}}`)}
}

func TestCommandLinesOfTriggers(t *testing.T) {
	for _, tc := range []struct {
		args   string
		stderr string
	}{
		{"triggers create", `expected "<text>`},
		{"triggers create daily --worker w", `"daily" is no kind of trigger` + "\nhint: the text begins with one of @at, @in, @every"},
		{"triggers create @daily", "which worker?"},
		{"triggers create @daily --worker w --priority 101", "1 to 100"},
		{"triggers create @daily --worker w --debounce 1m", "not for @daily"},
		{"triggers create @event a.b.c --worker w --secret-file f", "is for @webhook"},
		{"triggers create @event a.b.c --worker w --debounce -5m", "cannot be negative"},
		{"triggers ls --kind daily", "--kind: "},
		{"triggers ls --limit -1", "cannot be negative"},
		{"triggers show", `expected "<id>`},
		{"triggers rm", `expected "<id>`},
		{"triggers show ", "a trigger's id is empty\nhint: `carillon triggers ls`"},
		{"triggers pause t1 ", "a trigger's id is empty"},
		{"events publish a.b.c CREATED --idempotency " + strings.Repeat("k", 257), "at most 256 bytes"},
		{"triggers preview noon", `"noon" is no kind`},
		{"triggers preview @daily -n 0", "ask for 1 to"},
		{"triggers preview @daily -n 1001", "ask for 1 to"},
		{"events publish a.b.c MOVED", `"MOVED" is no verb of an event`},
		{"events publish a.b.c UPDATED - --old -", "only one document"},
		{"token create", `expected "<name>"`},
		{"token create x --kind root", "must be one of"},
		{"token create x --scope io.cozy.jobs:FETCH", "unknown verb"},
		{"token revoke x", "<id>"},
	} {
		args := strings.Split(tc.args, " ") // an empty one counts
		code, stdout, stderr := carillon(t, args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tc.stderr) {
			t.Errorf("%s: code %d, stdout %q, stderr %q lacks %q", tc.args, code, stdout, stderr, tc.stderr)
		}
	}
}

func TestEveryCommandOfTriggersShowsExamples(t *testing.T) {
	for group, names := range map[string]string{"triggers": "ls show create launch pause resume rm preview", "events": "publish", "token": "create ls revoke"} {
		for _, name := range strings.Fields(names) {
			if code, stdout, _ := carillon(t, group, name, "--help"); code != 0 || !strings.Contains(stdout, "Examples:") || !strings.Contains(stdout, "carillon "+group+" "+name) {
				t.Errorf("%s %s --help: code %d, %q", group, name, code, stdout)
			}
		}
	}
}

// A preview asks no cluster: the URL here leads nowhere.
func TestPreviewNeedsNoCluster(t *testing.T) {
	preview := func(args ...string) (code int, stdout, stderr string) {
		t.Helper()
		return carillon(t, append([]string{"triggers", "preview", "--from", "2026-01-01T00:00:30Z", "--controller", "http://127.0.0.1:1"}, args...)...)
	}
	for _, tc := range []struct {
		args []string
		want string // slots
	}{
		{[]string{"@every 90m", "-n", "2"}, "2026-01-01T01:30:30Z 2026-01-01T03:00:30Z"},
		{[]string{"@interval", "10m", "-n", "1"}, "2026-01-01T00:10:30Z"},
		{[]string{"@in 30m"}, "2026-01-01T00:30:30Z"},
		{[]string{"@at 2026-02-01T09:00:00+01:00"}, "2026-02-01T08:00:00Z"},
		{[]string{"@at 2025-02-01T09:00:00Z"}, "2025-02-01T09:00:00Z"}, // overdue: it fires at once
		{[]string{"@cron 0 0 9 * * MON", "-n", "1"}, "2026-01-05T09:00:00Z"},
		{[]string{"@cron", "0", "9", "*", "*", "*", "-n", "1", "--tz", "Europe/Paris"}, "2026-01-01T08:00:00Z"},
		{[]string{"@event io.cozy.files:CREATED"}, ""},
		{[]string{"@webhook"}, ""},
	} {
		code, stdout, stderr := preview(append(tc.args, "-o", "json")...)
		var slots []string
		if err := json.Unmarshal([]byte(stdout), &slots); err != nil || code != 0 || slots == nil || strings.Join(slots, " ") != tc.want {
			t.Errorf("%v: code %d, %v, %q; want %s; %s", tc.args, code, err, stdout, tc.want, stderr)
		}
	}
	hours := map[int]bool{}
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		_, stdout, _ := preview("@daily between 8am and 6pm", "-o", "json", "--id", id, "-n", "1")
		var slots []time.Time
		if err := json.Unmarshal([]byte(stdout), &slots); err != nil || len(slots) != 1 || slots[0].Hour() < 8 || slots[0].Hour() >= 18 {
			t.Fatalf("%q, %v", stdout, err)
		}
		hours[slots[0].Hour()] = true
	}
	if len(hours) < 3 {
		t.Errorf("eight triggers share the hours %v", hours)
	}
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"@daily between 8am and 6pm", "--tz", "Europe/Paris"}, []string{"EUROPE/PARIS", "CET", "--id shows that of a trigger"}},
		{[]string{"@in 30m"}, []string{"30m0s", "no more: it fires once"}},
		{[]string{"@at 2020-01-01T00:00:00Z"}, []string{"2020-01-01T00:00:00Z  overdue: at once"}},
		{[]string{"@at 2026-03-02T03:30:30Z"}, []string{"60d3h"}},
		{[]string{"@cron 30 2 * * *", "--tz", "Europe/Paris", "--from", "2026-03-28T12:00:00Z"}, []string{"2026-03-29T01:00:00Z", "Sun 2026-03-29 03:00:00 CEST"}},
		{[]string{"@cron 30 2 * * *", "--tz", "Europe/Paris", "--from", "2026-10-24T12:00:00Z"}, []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{[]string{"@event io.cozy.files:CREATED"}, []string{"no slots: the text is good"}},
	} {
		code, stdout, stderr := preview(tc.args...)
		for _, want := range tc.want {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%v: code %d, %q lacks %q; %s", tc.args, code, stdout, want, stderr)
			}
		}
	}
	for text, want := range map[string]string{
		"@cron @daily": "bad trigger: ", "@every 5": "bad trigger: ", "@daily between 6pm and 8am": "hint: `carillon triggers create --help`", "@event": "Permission scope is empty or malformed",
		"@hourly after 8am": "bad trigger: ", "@in -5m": "bad trigger: ", "@cron 0 0 30 2 *": "bad trigger: ", "@at 2026-01-01": "bad trigger: ",
	} {
		if code, stdout, stderr := preview(text); code != exitError || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, stdout %q, stderr %q lacks %q", text, code, stdout, stderr, want)
		}
	}
	if code, _, stderr := preview("@daily", "--tz", "Mars/Base"); code != exitError || !strings.Contains(stderr, "Europe/Paris") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestCreateSendsWhatTheFlagsSay(t *testing.T) {
	f := startFake(t, &fakeController{fakeTriggers: fakeTriggers{trigger: aTrigger("t1", "@daily", "between 8am and 6pm")}})
	f.trigger.NextExecution = at(7)
	code, stdout, stderr := carillon(t, "triggers", "create", "@daily", "between", "8am", "and", "6pm", "--worker", "sendmail", "--message", `{"a":1}`, "--tz", "Europe/Paris",
		"--tenant", "acme", "--priority", "7", "--attempts", "4", "--attempt-timeout", "2m", "--backoff", "3s", "--idempotency", "k", "--controller", f.url)
	if code != 0 || stdout != "t1\n" || !strings.Contains(stderr, "2026-01-31 12:00:07 UTC") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	req := f.created[0]
	if req.GetKind() != "@daily" || req.GetArguments() != "between 8am and 6pm" || req.GetWorker() != "sendmail" || string(req.GetMessage()) != `{"a":1}` || req.GetTimeZone() != "Europe/Paris" ||
		req.GetTenant() != "acme" || req.GetPriority() != 7 || req.GetMaxAttempts() != 4 || req.GetTimeout().AsDuration() != 2*time.Minute || req.GetBackoff().AsDuration() != 3*time.Second ||
		req.GetIdempotencyKey() != "k" || req.GetDebounce() != nil {
		t.Errorf("sent %v", req)
	}
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, " secret\n")
	f.trigger = aTrigger("t2", "@webhook", "")
	f.trigger.Webhook = "/jobs/webhooks/t2"
	if code, stdout, stderr := carillon(t, "triggers", "create", "@webhook", "--worker", "m.v", "--secret-file", key, "--debounce", "1m", "--controller", f.url); code != 0 || stdout != "t2\n" || !strings.Contains(stderr, "POST /jobs/webhooks/t2") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if req := f.created[1]; string(req.GetSecret()) != "secret" || req.GetDebounce().AsDuration() != time.Minute || req.Priority != nil || len(req.GetMessage()) > 0 || req.GetTimeout() != nil {
		t.Errorf("sent %v", req)
	}
	if got := decode[triggerJSON](t, f, "triggers", "create", "@client"); got.ID != "t2" || got.Webhook == "" || string(got.Message) == "" || f.created[2].GetKind() != "@client" {
		t.Errorf("%+v", got)
	}
	if got := decode[triggerJSON](t, f, "triggers", "create", "@interval 5m", "--worker", "w"); got.ID == "" || f.created[3].GetKind() != "@every" || f.created[3].GetArguments() != "5m" {
		t.Errorf("sent %v", f.created[3])
	}
	if code, stdout, stderr := carillon(t, "triggers", "create", "@daily", "--worker", "nobody", "--controller", f.url); code != 1 || stdout != "" || !strings.Contains(stderr, "create trigger: worker: could not find worker") || !strings.Contains(stderr, "`carillon ps`") || strings.Contains(stderr, "\x1b") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	sent := len(f.created)
	for _, args := range [][]string{{"--message", "{"}, {"--message", "@/nowhere"}} {
		if code, _, _ := carillon(t, append([]string{"triggers", "create", "@daily", "--worker", "w", "--controller", f.url}, args...)...); code != exitError || len(f.created) != sent {
			t.Errorf("%v: code %d, sent %d", args, code, len(f.created)-sent)
		}
	}
}

func TestCreateSaysWhatANewTriggerWaitsFor(t *testing.T) {
	f := startFake(t, &fakeController{})
	for _, tc := range []struct {
		kind, arguments string
		next            *timestamppb.Timestamp
		want            string
	}{
		{"@every", "10m", at(7), "it fires at 2026-01-31 12:00:07 UTC for the first time"},
		{"@in", "7s", at(7), "it fires once, at 2026-01-31 12:00:07 UTC"},
		{"@at", "2026-01-31T11:59:50Z", at(-10), "its time is past: it fires now, once"},
		{"@event", "a.b.c", nil, "it waits for events"},
		{"@client", "", nil, "it waits to be launched"},
	} {
		f.trigger = aTrigger("t1", tc.kind, tc.arguments)
		f.trigger.NextExecution = tc.next
		if code, stdout, stderr := carillon(t, "triggers", "create", tc.kind, tc.arguments, "--worker", "w", "--controller", f.url); code != 0 || stdout != "t1\n" || !strings.HasPrefix(stderr, tc.want) {
			t.Errorf("%s: code %d, stdout %q, stderr %q", tc.kind, code, stdout, stderr)
		}
	}
}

// A trigger that has made no job is not done with one; times of another zone name it.
func TestANewTriggerHasNoStatus(t *testing.T) {
	idle, ran := aTrigger("t1", "@daily", ""), aTrigger("t2", "@cron", "0 9 * * *")
	idle.TimeZone, ran.LastExecution = "Europe/Paris", at(3)
	f := startFake(t, &fakeController{fakeTriggers: fakeTriggers{triggers: []*carillonv1.Trigger{idle, ran}, trigger: idle}})
	if _, stdout, _ := carillon(t, "triggers", "ls", "--controller", f.url); strings.Count(stdout, "done") != 1 || strings.Count(stdout, "@daily  Europe/Paris") != 1 || strings.Count(stdout, "Europe/Paris") != 1 {
		t.Errorf("%s", stdout)
	}
	if _, stdout, _ := carillon(t, "triggers", "show", "t1", "--controller", f.url); strings.Contains(stdout, "status") {
		t.Errorf("%s", stdout)
	}
}

func TestTriggersLsFiltersAndPages(t *testing.T) {
	paused, hook := aTrigger("t2", "@every", "10m"), aTrigger("t3", "@webhook", "")
	paused.Paused, paused.Status, paused.LastError = true, "errored", "why\x1b[2J"
	first := aTrigger("t1", "@daily", "")
	first.NextExecution, first.LastExecution = at(9), at(3)
	f := startFake(t, &fakeController{fakeTriggers: fakeTriggers{triggers: []*carillonv1.Trigger{first, paused, hook}}})
	rows := decode[[]object](t, f, "triggers", "ls", "--tenant", "acme", "--kind", "@daily,@interval", "--worker", "a,b", "--limit", "0")
	if len(rows) != 3 || rows[0]["next_execution"] != "2026-01-31T12:00:09.000000Z" || rows[1]["paused"] != true || rows[2]["next_execution"] != nil || rows[0]["message"].(object)["a"] == nil {
		t.Errorf("rows %v", rows)
	}
	req := f.askedFor[0]
	if req.GetTenant() != "acme" || !slices.Equal(req.GetKinds(), []string{"@daily", "@every"}) || !slices.Equal(req.GetWorkers(), []string{"a", "b"}) {
		t.Errorf("asked %v", req)
	}
	if rows := decode[[]object](t, f, "triggers", "ls", "--limit", "2"); len(rows) != 2 {
		t.Errorf("limit 2 gives %d", len(rows))
	}
	code, stdout, stderr := carillon(t, "triggers", "ls", "--controller", f.url)
	for _, want := range []string{"@every 10m", "paused", "by webhook", "2026-01-31 12:00:09", "errored"} {
		if code != 0 || !strings.Contains(stdout, want) || strings.Contains(stdout, "\x1b") {
			t.Errorf("code %d, %q lacks %q; %s", code, stdout, want, stderr)
		}
	}
	f.triggers = nil
	if _, stdout, _ := carillon(t, "triggers", "ls", "-o", "json", "--controller", f.url); stdout != "[]\n" {
		t.Errorf("none are %q", stdout)
	}
}

func TestTriggersShowTellsAll(t *testing.T) {
	tr := aTrigger("t1", "@cron", "0 9 * * *")
	tr.TimeZone, tr.NextExecution, tr.LastExecution, tr.LastError, tr.Status = "Europe/Paris", at(5), at(1), "no luck", "errored"
	f := startFake(t, &fakeController{fakeTriggers: fakeTriggers{trigger: tr}})
	code, stdout, stderr := carillon(t, "triggers", "show", "t1", "--controller", f.url)
	for _, want := range []string{"@cron 0 9 * * *", "Europe/Paris", "sendmail  (sendmail.sendmail)", "2026-01-31 12:00:05, 2026-01-31 12:00:10", "no luck", "acme.example", "ago)", "3, backoff 10s",
		"\nmessage\n  {\n    \"a\": {\n"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("code %d, %q lacks %q; %s", code, stdout, want, stderr)
		}
	}
	if got := decode[triggerJSON](t, f, "triggers", "show", "t1"); len(got.NextSlots) != 2 || got.LastError != "no luck" {
		t.Errorf("%+v", got)
	}
	tr.Paused, tr.PausedReason = true, "the bank is closed"
	if _, stdout, _ := carillon(t, "triggers", "show", "t1", "--controller", f.url); !strings.Contains(stdout, "paused: the bank is closed\n") {
		t.Errorf("%s", stdout)
	}
	if code, _, stderr := carillon(t, "triggers", "show", "gone", "--controller", f.url); code != 1 || !strings.Contains(stderr, "show trigger gone: there is none\nhint: `carillon triggers ls`") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestSteeringTriggersGoesOnBehindRefusals(t *testing.T) {
	f := startFake(t, &fakeController{})
	code, stdout, stderr := carillon(t, "triggers", "pause", "t1", "gone", "hook", "t2", "--reason", "why", "--controller", f.url)
	if code != 1 || strings.Count(stdout, "is paused") != 2 || !strings.Contains(stderr, "pause trigger gone: there is none") || !strings.Contains(stderr, "no clock fires hook") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if !slices.Equal(f.steered, []string{"pause why t1", "pause why gone", "pause why hook", "pause why t2"}) {
		t.Errorf("steered %v", f.steered)
	}
	if code, stdout, _ := carillon(t, "triggers", "launch", "t1", "--controller", f.url); code != 0 || stdout != "j-of-t1\n" {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	code, stdout, _ = carillon(t, "triggers", "launch", "gone", "t1", "-o", "json", "--controller", f.url)
	var rows []visited
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || code != 1 || len(rows) != 2 || rows[0].Error == "" || rows[0].ID != "gone" || rows[1].JobID != "j-of-t1" {
		t.Errorf("code %d, %q, %v", code, stdout, err)
	}
	if code, stdout, _ := carillon(t, "triggers", "resume", "t1", "--controller", f.url); code != 0 || !strings.Contains(stdout, "t1 fires again at 2026-01-31 12:00:05 UTC") {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	if code, stdout, _ := carillon(t, "triggers", "rm", "t1", "t2", "--controller", f.url); code != 0 || stdout != "t1 is removed\nt2 is removed\n" {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	if code, _, stderr := carillon(t, "triggers", "rm", "away", "t2", "t3", "--controller", f.url); code != 1 || !strings.Contains(stderr, "2 triggers behind it not tried") || !strings.Contains(stderr, "unavailable") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestEventsPublish(t *testing.T) {
	f := startFake(t, &fakeController{})
	stdin(t, `{"a":1}`)
	code, stdout, stderr := carillon(t, "events", "publish", "io.cozy.files", "UPDATED", "-", "--old", `{"a":0}`, "--id", "f1", "--path", "/b", "--old-path", "/a", "--tenant", "acme", "--controller", f.url)
	if code != 0 || stdout != "1 event accepted\n" {
		t.Fatalf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	req := f.published[0]
	e := req.GetEvents()[0]
	if req.GetTenant() != "acme" || e.GetType() != "io.cozy.files" || e.GetVerb() != "UPDATED" || e.GetDocId() != "f1" || string(e.GetDoc()) != `{"a":1}` || string(e.GetOld()) != `{"a":0}` ||
		e.GetPath() != "/b" || e.GetOldPath() != "/a" {
		t.Errorf("sent %v", req)
	}
	if got := decode[object](t, f, "events", "publish", "a.b.c", "DELETED"); got["accepted"] != 1.0 {
		t.Errorf("%v", got)
	}
	f.refuseEvent = connect.NewError(connect.CodeInvalidArgument, errString("events[0].type: no type"))
	if code, _, stderr := carillon(t, "events", "publish", "a", "DELETED", "--controller", f.url); code != 1 || !strings.Contains(stderr, "publish event: events[0].type: no type") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestTokens(t *testing.T) {
	f := startFake(t, &fakeController{fakeTriggers: fakeTriggers{tokens: []*carillonv1.Token{
		{Id: 1, Name: "shop", Tenant: "acme", Kind: "app", Scope: "io.cozy.jobs:GET", CreatedAt: at(0), UsedAt: at(3)},
		{Id: 2, Name: "evil\x1b[2J", Tenant: "acme", Kind: "cli", CreatedAt: at(0), RevokedAt: at(4)},
	}}})
	code, stdout, stderr := carillon(t, "token", "create", "shop", "--tenant", "acme", "--domain", "acme.example", "--kind", "konnector", "--scope", "io.cozy.triggers", "--expires", "5s", "--slug", "s", "--trigger", "aa",
		"--controller", f.url)
	if code != 0 || stdout != "car_secret\n" || !strings.Contains(stderr, "token 7 of tenant acme, until 2026-01-31 12:00:05 UTC; it is not shown again") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if req := f.madeTokens[0]; req.GetName() != "shop" || req.GetTenant() != "acme" || req.GetDomain() != "acme.example" || req.GetKind() != "konnector" || req.GetScope() != "io.cozy.triggers" || req.GetExpiresIn().AsDuration() != 5*time.Second ||
		req.GetSlug() != "s" || req.GetTrigger() != "aa" {
		t.Errorf("sent %v", req)
	}
	if _, _, stderr := carillon(t, "token", "create", "bare", "--controller", f.url); !strings.Contains(stderr, "no scope") || f.madeTokens[1].GetExpiresIn() != nil || f.madeTokens[1].GetKind() != "app" {
		t.Errorf("stderr %q, sent %v", stderr, f.madeTokens[1])
	}
	if got := decode[tokenJSON](t, f, "token", "create", "ops", "--scope", "*"); got.Secret != "car_secret" || got.ID != 7 || got.ExpiresAt != nil {
		t.Errorf("%+v", got)
	}
	rows := decode[[]object](t, f, "token", "ls", "--tenant", "acme", "--all")
	if len(rows) != 2 || rows[0]["secret"] != nil || rows[1]["revoked_at"] == nil || !f.tokenLists[0].GetAll() || f.tokenLists[0].GetTenant() != "acme" {
		t.Errorf("rows %v", rows)
	}
	code, stdout, _ = carillon(t, "token", "ls", "--controller", f.url)
	if code != 0 || !strings.Contains(stdout, "revoked 2026-01-31 12:00:04") || strings.Contains(stdout, "\x1b") {
		t.Errorf("code %d, %q", code, stdout)
	}
	code, stdout, stderr = carillon(t, "token", "revoke", "404", "1", "--controller", f.url)
	if code != 1 || stdout != "token 1 is revoked\n" || !strings.Contains(stderr, "revoke token 404: there is none") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestCompletionOfTriggers(t *testing.T) {
	f := startFake(t, &fakeController{fakeTriggers: fakeTriggers{
		triggers: []*carillonv1.Trigger{aTrigger("t2", "@daily", ""), aTrigger("t1", "@in", "5m"), aTrigger("evil\x1b[2J", "@in", "5m")}, tokens: []*carillonv1.Token{{Id: 7}, {Id: 12}},
	}})
	for line, want := range map[string]string{
		"triggers ": "ls show create launch pause resume rm preview", "triggers show ": "t1 t2", "triggers rm t": "t1 t2", "triggers ls --worker ": "sendmail",
		"triggers ls --kind @d": "@daily", "triggers preview @w": "@weekly @webhook", "triggers ls --tenant ": "acme default", "token revoke ": "12 7",
		"token create x --kind ": "app konnector cli", "events publish a.b.c ": "CREATED UPDATED DELETED", "events publish --tenant a": "acme",
	} {
		words := append([]string{completeWord, "--controller", f.url}, strings.Split(line, " ")...)
		if code, stdout, _ := carillon(t, words...); code != 0 || strings.Join(strings.Fields(stdout), " ") != want {
			t.Errorf("after %q: %q, want %q", line, stdout, want)
		}
	}
}
