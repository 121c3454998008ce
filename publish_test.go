package carillon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// bulletin is an EventService in memory, over real HTTP.
type bulletin struct {
	carillonv1connect.UnimplementedEventServiceHandler
	t *testing.T

	mu     sync.Mutex
	took   []*carillonv1.PublishEventsRequest
	asked  int
	faults []error // of the first requests
	lose   int     // answers that get lost after the work
}

func (b *bulletin) PublishEvents(_ context.Context, req *carillonv1.PublishEventsRequest) (*carillonv1.PublishEventsResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if len(b.faults) > 0 {
		err := b.faults[0]
		b.faults = b.faults[1:]
		return nil, err
	}
	if len(req.GetEvents()) > 1000 || proto.Size(req) > 4<<20 {
		b.t.Errorf("a request of %d events and %d bytes", len(req.GetEvents()), proto.Size(req))
	}
	b.took = append(b.took, req)
	if b.lose > 0 {
		b.lose--
		panic(http.ErrAbortHandler)
	}
	return &carillonv1.PublishEventsResponse{Accepted: int32(len(req.GetEvents()))}, nil
}

func newBulletin(t *testing.T) (*bulletin, string) {
	b := &bulletin{t: t}
	_, h := carillonv1connect.NewEventServiceHandler(b)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnauthenticated, errors.New("a valid bearer token is needed")))
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return b, server.URL
}

func TestPublishSaysWhatItIsTold(t *testing.T) {
	b, url := newBulletin(t)
	c := clientOf(t, url)
	var nothing map[string]any
	err := c.Publish(t.Context(),
		Event{Type: "io.cozy.files", Verb: Updated, ID: "f1", Doc: map[string]string{"name": "a<b>"}, Old: json.RawMessage(`{"name":"a"}`), Path: "/x/b", OldPath: "/x/a",
			Dirs: []Directory{{"d1", "/x"}}},
		Event{Type: "io.cozy.files", Verb: Deleted, ID: "f2", Doc: nothing, Old: json.RawMessage(nil)},
		Event{Type: "io.cozy.bills", Verb: Created, Tenant: "acme"})
	if err != nil || len(b.took) != 2 || b.took[0].GetTenant() != "" || b.took[1].GetTenant() != "acme" {
		t.Fatalf("%v, took %v", err, b.took)
	}
	first, second := b.took[0].GetEvents()[0], b.took[0].GetEvents()[1]
	if first.GetType() != "io.cozy.files" || first.GetVerb() != "UPDATED" || first.GetDocId() != "f1" || string(first.GetDoc()) != `{"name":"a<b>"}` ||
		string(first.GetOld()) != `{"name":"a"}` || first.GetPath() != "/x/b" || first.GetOldPath() != "/x/a" ||
		len(first.GetDirs()) != 1 || first.GetDirs()[0].GetId() != "d1" || first.GetDirs()[0].GetPath() != "/x" {
		t.Errorf("took %v", first)
	}
	if second.GetVerb() != "DELETED" || len(second.GetDoc())+len(second.GetOld()) != 0 || b.took[1].GetEvents()[0].GetVerb() != "CREATED" {
		t.Errorf("took %v and %v", second, b.took[1])
	}
	if err := c.Publish(t.Context()); err != nil || b.asked != 2 {
		t.Errorf("no events: %v after %d requests", err, b.asked)
	}
	ctx := WithClient(t.Context(), c)
	if err := ClientFrom(ctx).Publish(ctx, Event{Type: "a.b.c", Verb: Created}); err != nil || len(b.took) != 3 {
		t.Errorf("from a verb: %v", err)
	}
	if err := (*Client)(nil).Publish(ctx, Event{Type: "a.b.c", Verb: Created}); err != nil || len(b.took) != 4 {
		t.Errorf("by the verb's client: %v", err)
	}
}

func TestManyEventsGoInOrderAndInBoundedRequests(t *testing.T) {
	b, url := newBulletin(t)
	var events []Event
	for i := range 2500 {
		events = append(events, Event{Type: "a.b.c", Verb: Created, ID: fmt.Sprint(i)})
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 500<<10) + `"`)
	for i := range 8 {
		events = append(events, Event{Type: "a.b.c", Verb: Created, ID: fmt.Sprint(2500 + i), Doc: large})
	}
	if err := clientOf(t, url).Publish(t.Context(), events...); err != nil || len(b.took) != 4 {
		t.Fatalf("%v, %d requests", err, len(b.took))
	}
	n := 0
	for _, req := range b.took {
		for _, e := range req.GetEvents() {
			if e.GetDocId() != fmt.Sprint(n) {
				t.Fatalf("event %d is %s", n, e.GetDocId())
			}
			n++
		}
	}
	if n != len(events) {
		t.Errorf("%d events arrived", n)
	}
}

func TestRefusedEvents(t *testing.T) {
	b, url := newBulletin(t)
	c := clientOf(t, url)
	for field, e := range map[string]Event{
		"type": {Type: "\xff"}, "doc_id": {ID: "\xff"}, "doc": {Doc: func() {}}, "old": {Old: json.RawMessage("{")}, "tenant": {Tenant: "\xff"},
	} {
		err := c.Publish(t.Context(), Event{Type: "a.b.c", Verb: Created}, e)
		var got *RefusedError
		if !errors.As(err, &got) || got.Field != field || got.Code != "invalid_argument" || !strings.HasPrefix(err.Error(), "publish event 2 of 2: ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	big := Event{Doc: strings.Repeat("x", maxDocuments/2), Old: strings.Repeat("x", maxDocuments/2)}
	if err := c.Publish(t.Context(), big); err == nil || !strings.Contains(err.Error(), "doc: has 524292 bytes together with old") {
		t.Errorf("too large: %v", err)
	}
	if b.asked != 0 {
		t.Errorf("%d requests of events that cannot be sent", b.asked)
	}
	b.faults = []error{connect.NewError(connect.CodeInvalidArgument, errors.New("events[0].verb: there is no verb MOVED"))}
	err := c.Publish(t.Context(), Event{Type: "a.b.c", Verb: "MOVED"})
	var got *RefusedError
	if !errors.As(err, &got) || got.Code != "invalid_argument" || !strings.Contains(err.Error(), "publish events 1 to 1 of 1: invalid_argument: events[0].verb") {
		t.Errorf("by the cluster: %v", err)
	}
	if err := clientOf(t, url, WithToken("wrong")).Publish(t.Context(), Event{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a wrong token: %v", err)
	}
	if err := (*Client)(nil).Publish(t.Context(), Event{}); err == nil || !strings.Contains(err.Error(), "no client") {
		t.Errorf("no client: %v", err)
	}
}

// What may have been taken is sent again under its key only, and without one not at all.
func TestEventsAreNotDoubled(t *testing.T) {
	b, url := newBulletin(t)
	c := clientOf(t, nobody(t), WithControllers(url)) // whom it did not reach cannot have it
	ask := func(key *string, lose, most int) (keys []string, err error) {
		b.mu.Lock()
		b.took, b.lose = nil, lose
		b.mu.Unlock()
		events := make([]Event, 1001)[:most]
		for i := range events {
			events[i] = Event{Type: "a.b.c", Verb: Created, ID: fmt.Sprint(i)}
		}
		if key == nil {
			err = c.Publish(t.Context(), events...)
		} else {
			err = c.PublishOnce(t.Context(), *key, events...)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, req := range b.took {
			keys = append(keys, req.GetIdempotencyKey())
		}
		return keys, err
	}
	if keys, err := ask(nil, 2, 1); err != nil || len(keys) != 3 || len(keys[0]) != 32 || keys[0] != keys[1] || keys[0] != keys[2] {
		t.Errorf("two lost answers: keys %q, %v", keys, err)
	}
	if keys, err := ask(nil, 0, 1001); err != nil || len(keys) != 2 || keys[0] == keys[1] {
		t.Errorf("two requests: keys %q, %v", keys, err)
	}
	once, none, long := "mine", "", strings.Repeat("k", 241)
	if keys, err := ask(&once, 0, 1001); err != nil || !slices.Equal(keys, []string{"mine", "mine/1000"}) {
		t.Errorf("a key of the caller's: keys %q, %v", keys, err)
	}
	if keys, err := ask(&none, 1, 1); err == nil || len(keys) != 1 || keys[0] != "" {
		t.Errorf("without a key: %d requests, %v", len(keys), err)
	}
	var refused *RefusedError
	if keys, err := ask(&long, 0, 1); len(keys) != 0 || !errors.As(err, &refused) || refused.Field != "idempotency_key" {
		t.Errorf("a long key: %v after %d requests", err, len(keys))
	}
}

func TestEnvelopesReachTheVerb(t *testing.T) {
	var got Envelope
	var there bool
	verb := Plain(func(ctx context.Context) error {
		got, there = EnvelopeFrom(ctx)
		return nil
	})
	raw := `{"trigger":"aa","kind":"@event","domain":"acme.example","worker":"thumbnail","event":{"verb":"UPDATED","doc":{"a":[1]},"old":null},
		"payload":{"p":1},"manual":true,"debounced":true,"events":7,"options":{"priority":3},"later":"field"}`
	answerOf(t, verb, &carillonv1.CallRequest{JobId: "j1", Envelope: []byte(raw)}, nil)
	if !there || got.Trigger != "aa" || got.Kind != "@event" || got.Domain != "acme.example" || got.Worker != "thumbnail" || got.Event == nil || got.Event.Verb != Updated ||
		string(got.Event.Doc) != `{"a":[1]}` || !bytes.Equal(got.Event.Old, []byte("null")) || string(got.Payload) != `{"p":1}` || !got.Manual || !got.Debounced || got.Events != 7 ||
		string(got.Options) != `{"priority":3}` {
		t.Errorf("%+v, %t", got, there)
	}
	for _, raw := range []string{"", "{", "[]"} {
		answerOf(t, verb, &carillonv1.CallRequest{JobId: "j1", Envelope: []byte(raw)}, nil)
		if there || got.Trigger != "" {
			t.Errorf("envelope %q is %+v, %t", raw, got, there)
		}
	}
	if _, ok := EnvelopeFrom(t.Context()); ok {
		t.Error("an envelope outside a run")
	}
	want := Envelope{Kind: "@webhook", Payload: json.RawMessage(`{"a":1}`), Event: &Change{Verb: Created, Doc: json.RawMessage(`1`)}}
	if got, ok := EnvelopeFrom(WithEnvelope(t.Context(), want)); !ok || got.Kind != want.Kind || string(got.Payload) != `{"a":1}` || string(got.Event.Doc) != "1" {
		t.Errorf("%+v, %t", got, ok)
	}
	if _, ok := EnvelopeFrom(WithEnvelope(t.Context(), Envelope{Payload: json.RawMessage("{")})); ok {
		t.Error("an envelope that is no JSON")
	}
}
