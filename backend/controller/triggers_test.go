package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"carillon"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// book is what a verb was told, by the trigger that made its job.
type book struct {
	mu   sync.Mutex
	told map[string][]carillon.Envelope
}

func (b *book) of(id string) []carillon.Envelope {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]carillon.Envelope(nil), b.told[id]...)
}

// One controller, one runner and a database: a trigger of each kind makes what it shall, and no more.
func TestTriggersOfAllKinds(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	at := move(t, db, nil)
	defer at.out(t)
	eventually(t, "the controller is ready", at.ready)
	b := book{told: map[string][]carillon.Envelope{}}
	play(t, at, carillon.Verbs{"ring": carillon.Plain(func(ctx context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		e, _ := carillon.EnvelopeFrom(ctx)
		b.told[e.Trigger] = append(b.told[e.Trigger], e)
		return nil
	})}, nil)

	triggers := carillonv1connect.NewTriggerServiceClient(http.DefaultClient, at.url, withToken(adminToken))
	create := func(kind, arguments string, debounce time.Duration) *carillonv1.Trigger {
		t.Helper()
		req := &carillonv1.CreateTriggerRequest{Kind: kind, Arguments: arguments, Worker: "m.ring"}
		if debounce > 0 {
			req.Debounce = durationpb.New(debounce)
		}
		resp, err := triggers.CreateTrigger(t.Context(), req)
		if err != nil {
			t.Fatalf("%s %s: %v", kind, arguments, err)
		}
		return resp.GetTrigger()
	}
	instant, in := create("@at", "2020-01-01T00:00:00Z", 0), create("@in", "300ms", 0)
	every, cron := create("@every", "1s", 0), create("@cron", "* * * * * *", 0)
	var periodic []*carillonv1.Trigger
	for _, kind := range []string{"@hourly", "@daily", "@weekly", "@monthly"} {
		periodic = append(periodic, create(kind, "", 0))
	}
	event, burst := create("@event", "io.cozy.bills:CREATED", 0), create("@event", "io.cozy.bills", 500*time.Millisecond)
	hook, herd := create("@webhook", "", 0), create("@webhook", "", 500*time.Millisecond)
	client := create("@client", "", 0)

	// Their slots are hours away: what a reset finds is fired as what they had would be.
	db.Exec("UPDATE carillon.cron_jobs SET next_execution = now() WHERE trigger_id IN (SELECT id FROM carillon.triggers WHERE kind IN ('@hourly', '@daily', '@weekly', '@monthly'))")
	sdk, err := carillon.NewClient(at.url, carillon.WithToken(adminToken))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time under the key of the first
		if err := sdk.PublishOnce(t.Context(), "bills", []carillon.Event{
			{Type: "io.cozy.bills", Verb: carillon.Created, ID: "b1", Doc: map[string]int{"n": 1}},
			{Type: "io.cozy.bills", Verb: carillon.Updated, ID: "b1", Doc: map[string]int{"n": 2}},
			{Type: "io.cozy.other", Verb: carillon.Created, ID: "b1"},
		}...); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(method, path, body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, at.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if method != http.MethodPost {
			req.Header.Set("Authorization", "Bearer "+adminToken)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for n := range 2 {
		for _, w := range []*carillonv1.Trigger{hook, herd} {
			if code := ask(http.MethodPost, "/jobs/webhooks/"+w.GetId(), fmt.Sprintf(`{"n":%d}`, n)); code != http.StatusNoContent {
				t.Fatalf("webhook: %d", code)
			}
		}
	}
	launched, err := triggers.LaunchTrigger(t.Context(), &carillonv1.LaunchTriggerRequest{Id: client.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	if code := ask(http.MethodPatch, "/jobs/"+launched.GetJobId(), `{"data":{"attributes":{"state":"done"}}}`); code != http.StatusOK {
		t.Errorf("the client ends its job: %d", code)
	}

	for _, tr := range append(periodic, instant, in, event, burst, herd) {
		eventually(t, tr.GetKind()+" makes its job", func() bool { return len(b.of(tr.GetId())) > 0 })
	}
	for _, tr := range []*carillonv1.Trigger{every, cron, hook} {
		eventually(t, tr.GetKind()+" makes its jobs", func() bool { return len(b.of(tr.GetId())) > 1 })
	}
	for name, tr := range map[string]*carillonv1.Trigger{"@at": instant, "@in": in, "@event": event, "the burst": burst, "the herd of deliveries": herd, "@hourly": periodic[0], "@monthly": periodic[3]} {
		if got := b.of(tr.GetId()); len(got) != 1 || got[0].Kind != tr.GetKind() {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := b.of(event.GetId())[0]; got.Event == nil || got.Event.Verb != carillon.Created || string(got.Event.Doc) != `{"n":1}` && string(got.Event.Doc) != `{"n": 1}` {
		t.Errorf("the event %+v", got)
	}
	if got := b.of(burst.GetId())[0]; !got.Debounced || got.Events != 2 || got.Event != nil {
		t.Errorf("the burst %+v", got)
	}
	if got := b.of(herd.GetId())[0]; !got.Debounced || strings.ReplaceAll(string(got.Payload), " ", "") != `{"payloads":[{"n":0},{"n":1}]}` {
		t.Errorf("the deliveries %+v, %s", got, got.Payload)
	}
	if got := b.of(client.GetId()); len(got) != 0 {
		t.Errorf("a runner was given a client's job: %+v", got)
	}
	var done, left, events int
	db.Scan("SELECT (SELECT count(*) FROM carillon.job_history WHERE state = 'succeeded' AND trigger_id = (SELECT id FROM carillon.triggers WHERE kind = '@client')), (SELECT count(*) FROM carillon.triggers WHERE kind IN ('@at', '@in') AND deleted_at IS NULL), (SELECT count(*) FROM carillon.events)", nil, &done, &left, &events)
	if done != 1 || left != 0 || events != 0 {
		t.Errorf("%d jobs of the client, %d triggers that fired once are left, and %d events", done, left, events)
	}
	if wrong, err := db.FindOverlaps(t.Context(), db.Now().Add(-time.Hour)); err != nil || len(wrong) != 0 {
		t.Errorf("overlaps %v, %v", wrong, err)
	}
}
