package rpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// open is a database with a face that asks for no tokens, and clients of it.
func open(t *testing.T, zone string) (storetest.DB, map[string]clients) {
	t.Helper()
	db := storetest.Open(t, zone)
	face, _ := handler(t, db.Store, Tokens{})
	url, h2c := serve(t, face)
	all := map[string]clients{}
	for name, w := range wires(h2c) {
		all[name] = w.clients(url)
	}
	return db, all
}

func TestTriggersOfEveryKind(t *testing.T) {
	t.Parallel()
	db, all := open(t, "Asia/Tokyo")
	ctx := t.Context()
	for i, tc := range []struct {
		kind, arguments, zone string
		slots                 int // that are shown
	}{
		{"@at", db.Now().Add(time.Hour).Format(time.RFC3339), "", 1}, {"@in", "90m", "", 1}, {"@every", "10m", "", 5}, {"@interval", "10m", "", 5},
		{"@cron", "0 9 * * *", "Europe/Paris", 5}, {"@hourly", "", "", 5}, {"@daily", "between 8am and 6pm", "", 5}, {"@weekly", "on mon-wed", "", 5},
		{"@monthly", "on the 1-5", "", 5}, {"@event", "io.cozy.files:CREATED", "", 0}, {"@webhook", "", "", 0}, {"@client", "", "", 0},
	} {
		names := []string{"connect proto", "connect json", "grpc", "grpc-web"}
		c := all[names[i%len(names)]].triggers
		req := &carillonv1.CreateTriggerRequest{Tenant: "acme", Kind: tc.kind, Arguments: tc.arguments, TimeZone: tc.zone, Worker: "v1", Message: []byte(`{"a":1}`)}
		res, err := c.CreateTrigger(ctx, req)
		if err != nil {
			t.Errorf("%s: %v", tc.kind, err)
			continue
		}
		made := res.GetTrigger()
		worker, ref := "v1", "m.v1"
		if tc.kind == "@client" {
			worker, ref = "client", "client"
		}
		if kind, _ := trigger.ParseKind(tc.kind); made.GetKind() != string(kind) || made.GetTenant() != "acme" || made.GetArguments() != tc.arguments || made.GetTimeZone() != tc.zone ||
			made.GetWorker() != worker || made.GetRef() != ref || string(made.GetMessage()) != `{"a":1}` || made.GetPriority() != 50 || made.GetCreatedAt() == nil ||
			(made.GetNextExecution() != nil) != kind.Timed() || made.GetStatus() != "done" || made.GetPaused() {
			t.Errorf("%s: made %v", tc.kind, made)
		}
		if want := map[string]string{"@webhook": "/jobs/webhooks/" + made.GetId()}[tc.kind]; made.GetWebhook() != want {
			t.Errorf("%s: webhook %q", tc.kind, made.GetWebhook())
		}
		got, err := c.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: made.GetId()})
		if err != nil || got.GetTrigger().GetId() != made.GetId() || len(got.GetNextSlots()) != tc.slots {
			t.Errorf("%s: %v, %v", tc.kind, got, err)
			continue
		}
		for k, slot := range got.GetNextSlots() {
			if k == 0 && !slot.AsTime().Equal(made.GetNextExecution().AsTime()) || k > 0 && !slot.AsTime().After(got.GetNextSlots()[k-1].AsTime()) {
				t.Errorf("%s: slots %v", tc.kind, got.GetNextSlots())
			}
		}
	}
}

func TestWhatATriggersJobsGet(t *testing.T) {
	t.Parallel()
	_, all := open(t, "")
	c, ctx := all["connect json"].triggers, t.Context()
	create := func(change func(*carillonv1.CreateTriggerRequest)) *carillonv1.Trigger {
		t.Helper()
		req := &carillonv1.CreateTriggerRequest{Kind: "@webhook", Worker: "v1"}
		change(req)
		res, err := c.CreateTrigger(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return res.GetTrigger()
	}
	// The worker allows five executions of two minutes: they are only lowered.
	for name, tc := range map[string]struct {
		change             func(*carillonv1.CreateTriggerRequest)
		priority, attempts int32
		timeout, backoff   time.Duration
	}{
		"nothing": {func(*carillonv1.CreateTriggerRequest) {}, 50, 5, 2 * time.Minute, 10 * time.Second},
		"lower": {func(r *carillonv1.CreateTriggerRequest) {
			r.Priority, r.MaxAttempts, r.Timeout, r.Backoff = new(int32(7)), 2, durationpb.New(30*time.Second), durationpb.New(time.Second)
		}, 7, 2, 30 * time.Second, time.Second},
		"higher": {func(r *carillonv1.CreateTriggerRequest) {
			r.Priority, r.MaxAttempts, r.Timeout, r.Backoff = new(int32(100)), 50, durationpb.New(time.Hour), durationpb.New(time.Minute)
		}, 100, 5, 2 * time.Minute, time.Minute},
	} {
		got := create(tc.change)
		if got.GetPriority() != tc.priority || got.GetMaxAttempts() != tc.attempts || got.GetTimeout().AsDuration() != tc.timeout || got.GetBackoff().AsDuration() != tc.backoff || got.GetTenant() != "default" {
			t.Errorf("%s: %v", name, got)
		}
	}
	secret := strings.Repeat("s", 20)
	got := create(func(r *carillonv1.CreateTriggerRequest) {
		r.Debounce, r.Secret = durationpb.New(90*time.Second), []byte(secret)
	})
	if got.GetDebounce().AsDuration() != 90*time.Second || strings.Contains(got.String(), secret) {
		t.Errorf("%v", got)
	}
	again := func(key, worker string) (string, error) {
		res, err := c.CreateTrigger(ctx, &carillonv1.CreateTriggerRequest{Kind: "@webhook", Worker: worker, IdempotencyKey: key})
		return res.GetTrigger().GetId(), err
	}
	one, err := again("k", "v1")
	two, err2 := again("k", "v1")
	other, err3 := again("l", "v1")
	if err != nil || err2 != nil || err3 != nil || one != two || one == other {
		t.Errorf("%s, %s, %s; %v, %v, %v", one, two, other, err, err2, err3)
	}
	if _, err := again("k", "v2"); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("another request with the key: %v", err)
	}
}

func TestRefusedTriggersNameTheField(t *testing.T) {
	t.Parallel()
	db, all := open(t, "")
	before := contents(db)
	for name, tc := range map[string]struct {
		change func(*carillonv1.CreateTriggerRequest)
		field  string
		code   connect.Code
		text   string
	}{
		"kind":      {func(r *carillonv1.CreateTriggerRequest) { r.Kind = "@yearly" }, "kind", connect.CodeInvalidArgument, "Unknown trigger type"},
		"no kind":   {func(r *carillonv1.CreateTriggerRequest) { r.Kind = "" }, "kind", connect.CodeInvalidArgument, ""},
		"arguments": {func(r *carillonv1.CreateTriggerRequest) { r.Arguments = "between 6pm and 8am" }, "arguments", connect.CodeInvalidArgument, ""},
		"cron": {func(r *carillonv1.CreateTriggerRequest) { r.Kind, r.Arguments = "@cron", "0 0 30 2 *" }, "arguments", connect.CodeInvalidArgument,
			""},
		"event":    {func(r *carillonv1.CreateTriggerRequest) { r.Kind, r.Arguments = "@event", "" }, "arguments", connect.CodeInvalidArgument, "Permission scope is empty or malformed"},
		"zone":     {func(r *carillonv1.CreateTriggerRequest) { r.TimeZone = "Mars/Base" }, "time_zone", connect.CodeInvalidArgument, ""},
		"worker":   {func(r *carillonv1.CreateTriggerRequest) { r.Worker = "nobody" }, "worker", connect.CodeNotFound, `could not find worker "nobody"`},
		"none":     {func(r *carillonv1.CreateTriggerRequest) { r.Worker = "" }, "worker", connect.CodeNotFound, ""},
		"message":  {func(r *carillonv1.CreateTriggerRequest) { r.Message = []byte("{") }, "message", connect.CodeInvalidArgument, "JSON"},
		"priority": {func(r *carillonv1.CreateTriggerRequest) { r.Priority = new(int32(0)) }, "priority", connect.CodeInvalidArgument, "1 to 100"},
		"attempts": {func(r *carillonv1.CreateTriggerRequest) { r.MaxAttempts = -1 }, "max_attempts", connect.CodeInvalidArgument, "negative"},
		"timeout":  {func(r *carillonv1.CreateTriggerRequest) { r.Timeout = durationpb.New(-1) }, "timeout", connect.CodeInvalidArgument, "negative"},
		"brief":    {func(r *carillonv1.CreateTriggerRequest) { r.Timeout = durationpb.New(1) }, "timeout", connect.CodeInvalidArgument, "1ms"},
		"backoff":  {func(r *carillonv1.CreateTriggerRequest) { r.Backoff = durationpb.New(1 << 62) }, "backoff", connect.CodeInvalidArgument, "1ms to"},
		"debounce": {func(r *carillonv1.CreateTriggerRequest) { r.Debounce = durationpb.New(time.Minute) }, "debounce", connect.CodeInvalidArgument, "@event and @webhook"},
		"negative": {func(r *carillonv1.CreateTriggerRequest) { r.Debounce = durationpb.New(-time.Minute) }, "debounce", connect.CodeInvalidArgument, "negative"},
		"secret":   {func(r *carillonv1.CreateTriggerRequest) { r.Secret = []byte("0123456789abcdef") }, "secret", connect.CodeInvalidArgument, "@webhook"},
		"short":    {func(r *carillonv1.CreateTriggerRequest) { r.Kind, r.Arguments, r.Secret = "@webhook", "", []byte("x") }, "secret", connect.CodeInvalidArgument, "16 bytes"},
		"tenant":   {func(r *carillonv1.CreateTriggerRequest) { r.Tenant = "a\nb" }, "tenant", connect.CodeInvalidArgument, "control"},
	} {
		for wire, c := range all {
			req := &carillonv1.CreateTriggerRequest{Kind: "@daily", Arguments: "after 8am", Worker: "v1"}
			tc.change(req)
			_, err := c.triggers.CreateTrigger(t.Context(), req)
			if d := detailsOf(err); connect.CodeOf(err) != tc.code || len(d.fields) != 1 || d.fields[0] != tc.field || d.request == "" || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%s by %s: %v, %+v", name, wire, err, d)
			}
		}
	}
	if after := contents(db); after != before {
		t.Errorf("something was written:\n%swas\n%s", after, before)
	}
}

func TestTriggersAreListedInPages(t *testing.T) {
	t.Parallel()
	_, all := open(t, "")
	c, ctx := all["connect proto"].triggers, t.Context()
	var want []string
	for i := range 130 {
		req := &carillonv1.CreateTriggerRequest{Tenant: "acme", Kind: "@webhook", Worker: fmt.Sprintf("v%d", i%2)}
		if i >= 120 {
			req.Message = []byte(`"` + strings.Repeat("x", 1<<20-2) + `"`)
		}
		res, err := c.CreateTrigger(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, res.GetTrigger().GetId())
	}
	list := func(req *carillonv1.ListTriggersRequest) (ids []string, pages int) {
		t.Helper()
		for {
			res, err := c.ListTriggers(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			for _, tr := range res.GetTriggers() {
				ids = append(ids, tr.GetId())
			}
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				return ids, pages
			}
		}
	}
	if ids, pages := list(&carillonv1.ListTriggersRequest{Tenant: "acme", PageSize: 1000}); !slices.Equal(ids, want) || pages < 3 {
		t.Errorf("%d triggers in %d pages", len(ids), pages)
	}
	if ids, pages := list(&carillonv1.ListTriggersRequest{PageSize: 60}); !slices.Equal(ids, want) || pages < 3 {
		t.Errorf("%d triggers in %d pages", len(ids), pages)
	}
	if ids, _ := list(&carillonv1.ListTriggersRequest{Workers: []string{"v1"}, Kinds: []string{"@webhook", "@in"}}); len(ids) != 65 {
		t.Errorf("%d triggers of v1", len(ids))
	}
	for _, req := range []*carillonv1.ListTriggersRequest{{Tenant: "other"}, {Kinds: []string{"@in"}}, {Workers: []string{"v9"}}} {
		if ids, _ := list(req); len(ids) != 0 {
			t.Errorf("%v: %d triggers", req, len(ids))
		}
	}
	if _, err := c.ListTriggers(ctx, &carillonv1.ListTriggersRequest{Kinds: []string{"@in", "@soon"}}); connect.CodeOf(err) != connect.CodeInvalidArgument || detailsOf(err).fields[0] != "kinds[1]" {
		t.Errorf("%v", err)
	}
	first, err := c.ListTriggers(ctx, &carillonv1.ListTriggersRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ListTriggers(ctx, &carillonv1.ListTriggersRequest{Tenant: "acme", PageToken: first.GetNextPageToken()}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("the token of another list: %v", err)
	}
}

func TestSteeringTriggers(t *testing.T) {
	t.Parallel()
	_, all := open(t, "America/New_York")
	c, ctx := all["connect json"].triggers, t.Context()
	made, err := c.CreateTrigger(ctx, &carillonv1.CreateTriggerRequest{Tenant: "acme", Kind: "@every", Arguments: "1h", Worker: "v1", Message: []byte(`[7]`)})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetTrigger().GetId()
	launched, err := c.LaunchTrigger(ctx, &carillonv1.LaunchTriggerRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	got, err := all["grpc"].jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: launched.GetJobId()})
	if err != nil || got.GetJob().GetTenant() != "acme" || string(got.GetJob().GetPayload()) != `[7]` {
		t.Errorf("%v, %v", got, err)
	}
	shown, err := c.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: id})
	if err != nil || shown.GetTrigger().GetStatus() != "queued" {
		t.Errorf("with a job that waits: %v, %v", shown, err)
	}
	paused, err := c.PauseTrigger(ctx, &carillonv1.PauseTriggerRequest{Id: id, Reason: "why"})
	if err != nil || !paused.GetTrigger().GetPaused() || paused.GetTrigger().GetNextExecution() != nil {
		t.Errorf("%v, %v", paused, err)
	}
	if shown, err := c.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: id}); err != nil || len(shown.GetNextSlots()) != 0 {
		t.Errorf("paused: %v, %v", shown, err)
	}
	resumed, err := c.PauseTrigger(ctx, &carillonv1.PauseTriggerRequest{Id: id, Resume: true})
	if err != nil || resumed.GetTrigger().GetPaused() || resumed.GetTrigger().GetNextExecution() == nil {
		t.Errorf("%v, %v", resumed, err)
	}
	hook, err := c.CreateTrigger(ctx, &carillonv1.CreateTriggerRequest{Kind: "@webhook", Worker: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PauseTrigger(ctx, &carillonv1.PauseTriggerRequest{Id: hook.GetTrigger().GetId()}); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("no clock fires it: %v", err)
	}
	if _, err := c.DeleteTrigger(ctx, &carillonv1.DeleteTriggerRequest{Id: id}); err != nil {
		t.Error(err)
	}
	for name, ask := range map[string]func() error{
		"get":    func() error { _, err := c.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: id}); return err },
		"delete": func() error { _, err := c.DeleteTrigger(ctx, &carillonv1.DeleteTriggerRequest{Id: id}); return err },
		"launch": func() error { _, err := c.LaunchTrigger(ctx, &carillonv1.LaunchTriggerRequest{Id: id}); return err },
	} {
		if err := ask(); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s one that is deleted: %v", name, err)
		}
	}
	if _, err := all["grpc"].jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: launched.GetJobId()}); err != nil {
		t.Errorf("its job is gone, too: %v", err)
	}
}

func TestPreviewOfTriggers(t *testing.T) {
	t.Parallel()
	_, all := open(t, "")
	ctx, from := t.Context(), time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	for wire, c := range all {
		res, err := c.triggers.PreviewTrigger(ctx, &carillonv1.PreviewTriggerRequest{Kind: "@cron", Arguments: "0 9 * * *", TimeZone: "Europe/Paris", From: timestamppb.New(from), Count: 2})
		if err != nil || len(res.GetSlots()) != 2 || !res.GetSlots()[0].AsTime().Equal(time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC)) || res.GetDescription() == "" {
			t.Errorf("%s: %v, %v", wire, res, err)
		}
	}
	c := all["connect json"].triggers
	if res, err := c.PreviewTrigger(ctx, &carillonv1.PreviewTriggerRequest{Kind: "@daily", Arguments: "between 8am and 6pm"}); err != nil || len(res.GetSlots()) != nextSlots || res.GetSlots()[0].AsTime().Before(time.Now()) {
		t.Errorf("%v, %v", res, err)
	}
	if res, err := c.PreviewTrigger(ctx, &carillonv1.PreviewTriggerRequest{Kind: "@event", Arguments: "a.b.c"}); err != nil || len(res.GetSlots()) != 0 {
		t.Errorf("%v, %v", res, err)
	}
	if _, err := c.PreviewTrigger(ctx, &carillonv1.PreviewTriggerRequest{Kind: "@in", Arguments: "-5m"}); connect.CodeOf(err) != connect.CodeInvalidArgument || !slices.Equal(detailsOf(err).fields, []string{"arguments"}) {
		t.Errorf("%v", err)
	}
}
