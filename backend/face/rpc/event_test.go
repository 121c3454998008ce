package rpc

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	carillonv1 "carillon/proto/carillon/v1"
)

func TestEventsAreTakenInOrRefusedTogether(t *testing.T) {
	t.Parallel()
	db, all := open(t, "")
	ctx := t.Context()
	publish := func(c clients, events ...*carillonv1.Event) error {
		_, err := c.events.PublishEvents(ctx, &carillonv1.PublishEventsRequest{Tenant: "acme", Events: events})
		return err
	}
	good := &carillonv1.Event{
		Type: "io.cozy.files", Verb: "UPDATED", DocId: "f1", Doc: []byte(`{"a":1}`), Old: []byte(`{"a":0}`), Path: "/x/b", OldPath: "/x/a",
		Dirs: []*carillonv1.Directory{{Id: "d1", Path: "/x"}},
	}
	for wire, c := range all {
		for name, tc := range map[string]struct {
			bad   *carillonv1.Event
			field string
		}{
			"type":  {&carillonv1.Event{Type: "Files", Verb: "CREATED"}, "events[1].type"},
			"verb":  {&carillonv1.Event{Type: "a.b.c", Verb: "created"}, "events[1].verb"},
			"id":    {&carillonv1.Event{Type: "a.b.c", Verb: "CREATED", DocId: strings.Repeat("x", 300)}, "events[1].doc_id"},
			"doc":   {&carillonv1.Event{Type: "a.b.c", Verb: "CREATED", Doc: []byte(`{`)}, "events[1].doc"},
			"NUL":   {&carillonv1.Event{Type: "a.b.c", Verb: "CREATED", Doc: []byte(`{"a":"\u0000"}`)}, "events[1].doc"},
			"old":   {&carillonv1.Event{Type: "a.b.c", Verb: "CREATED", Old: []byte(`7`)}, "events[1].old"},
			"large": {&carillonv1.Event{Type: "a.b.c", Verb: "CREATED", Doc: []byte(`{"a":"` + strings.Repeat("x", 1<<19) + `"}`)}, "events[1].doc"},
			"path":  {&carillonv1.Event{Type: "a.b.c", Verb: "CREATED", Path: "x"}, "events[1].path"},
			"old p": {&carillonv1.Event{Type: "a.b.c", Verb: "CREATED", OldPath: "x"}, "events[1].old_path"},
			"dirs":  {&carillonv1.Event{Type: "a.b.c", Verb: "CREATED", Dirs: []*carillonv1.Directory{{Path: "/"}}}, "events[1].dirs"},
		} {
			if err := publish(c, good, tc.bad, good); connect.CodeOf(err) != connect.CodeInvalidArgument || !slices.Equal(detailsOf(err).fields, []string{tc.field}) {
				t.Errorf("%s by %s: %v, %v", name, wire, err, detailsOf(err))
			}
		}
	}
	var n int
	db.Scan("SELECT count(*) FROM carillon.events", nil, &n)
	if n != 0 {
		t.Errorf("%d events of refused requests", n)
	}
	if err := publish(all["grpc"], good, &carillonv1.Event{Type: "a.b.c", Verb: "DELETED"}); err != nil {
		t.Fatal(err)
	}
	var doc, path string
	db.Scan("SELECT count(*) FROM carillon.events WHERE tenant = 'acme'", nil, &n)
	db.Scan("SELECT doc::text, old_path FROM carillon.events WHERE doc_id = 'f1'", nil, &doc, &path)
	if n != 2 || doc != `{"a": 1}` || path != "/x/a" {
		t.Errorf("%d events, %s, %s", n, doc, path)
	}
}
