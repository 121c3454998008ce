package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

func TestSQLPublishes(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		heard := make(chan struct{}, 100)
		listening, stop := context.WithCancel(ctx)
		defer stop()
		go db.ListenAll(listening, func() {}, func() { heard <- struct{}{} })
		<-heard
		var id *int64
		db.Scan(`SELECT carillon.publish('io.cozy.files', 'UPDATED', '{"_id": "f"}', old => '{}', tenant => 't', path => '/a/b', old_path => '/b', dirs => '[{"id": "d", "path": "/a"}]')`, nil, &id)
		<-heard
		got := fetchEvents(t, db)
		if len(got) != 1 || id == nil || got[0].ID != *id || got[0].Tenant != "t" || got[0].Path != "/a/b" || got[0].OldPath != "/b" || string(got[0].Old) != "{}" || len(got[0].Dirs) != 1 {
			t.Fatalf("event %+v", got)
		}
		var shard, size int
		db.Scan("SELECT shard, bytes FROM carillon.events", nil, &shard, &size)
		if int64(shard) != *id%1021 || size == 0 {
			t.Errorf("shard %d of %d, %d bytes", shard, *id, size)
		}
		if db.Scan("SELECT carillon.publish('a.b', 'NOTIFIED', NULL)", nil, &id); id != nil {
			t.Errorf("NOTIFIED is stored as %d", *id)
		}
		tx, err := db.Pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "SELECT carillon.publish('a.b', 'CREATED', '{}')"); err != nil {
			t.Fatal(err)
		}
		if tx.Rollback(ctx); countEvents(db) != 1 {
			t.Error("an event of a transaction that was rolled back")
		}
		// By the argument, or the setting, nobody is told.
		for _, quiet := range []string{"SELECT carillon.publish('a.b', 'CREATED', '{}', notify => false)", "SET carillon.notify = off; SELECT carillon.publish('a.b', 'CREATED', '{}'); RESET carillon.notify"} {
			db.Exec(quiet)
		}
		db.Exec("SELECT carillon.publish('a.b', 'CREATED', '{}')")
		<-heard
		if len(heard) != 0 {
			t.Error("somebody was told")
		}
	})
}

// Keys of carillon.publish() are those of the RPC.
func TestSQLPublishesOnce(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	const call = `SELECT carillon.publish('io.cozy.files', 'UPDATED', '{"n": "\u00e9"}', 'f', '{"o": 1}', 't', '/a/b', '/b', dirs => '[{"path": "/a", "id": "d"}, {"id": "e", "path": "/"}]', idempotency_key => 'k')`
	var first, second int64
	db.Scan(call, nil, &first)
	db.Scan(call, nil, &second)
	if first == 0 || first != second || countEvents(db) != 1 {
		t.Errorf("events %d and %d, %d in all", first, second, countEvents(db))
	}
	change := trigger.Change{
		Type: "io.cozy.files", Verb: trigger.Updated, ID: "f", Doc: []byte(`{"n": "é"}`), Old: []byte(`{"o": 1}`), Path: "/a/b", OldPath: "/b",
		Dirs: []trigger.Directory{{ID: "d", Path: "/a"}, {ID: "e", Path: "/"}},
	}
	if ids, err := db.PublishEvents(t.Context(), "t", "k", []trigger.Change{change}); err != nil || len(ids) != 0 {
		t.Errorf("the same by Go: %v, %v", ids, err)
	}
	pg := (*pgconn.PgError)(nil)
	if _, err := db.Pool.Exec(t.Context(), strings.Replace(call, "'f'", "'g'", 1)); !errors.As(err, &pg) || pg.Code != "23505" || pg.ColumnName != "idempotency_key" {
		t.Errorf("another event: %v", err)
	}
	db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second'")
	if db.Scan(call, nil, &second); second == first || countEvents(db) != 2 {
		t.Errorf("a day later: event %d again, %d in all", second, countEvents(db))
	}
}

// carillon.publish refuses what Go refuses, and names the argument.
func TestSQLPublishRefuses(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	for _, tc := range []struct {
		args, field string // empty: accepted
		same        trigger.Change
	}{
		{"'a.b', 'CREATED', NULL", "", created("a.b", "")},
		{"'a.b', 'CREATED', 'null'", "", created("a.b", "null")},
		{"'a', 'CREATED', '{}'", "", created("a", "{}")},
		{"NULL, 'CREATED', '{}'", "type", created("", "{}")},
		{"'', 'CREATED', '{}'", "type", created("", "{}")},
		{"'A.b', 'CREATED', '{}'", "type", created("A.b", "{}")},
		{"'a..b', 'CREATED', '{}'", "type", created("a..b", "{}")},
		{"'a.b.c.*', 'CREATED', '{}'", "type", created("a.b.c.*", "{}")},
		{"E'a.b\\n', 'CREATED', '{}'", "type", created("a.b\n", "{}")},
		{"'a.' || repeat('b', 255), 'CREATED', '{}'", "type", created("a."+strings.Repeat("b", 255), "{}")},
		{"'a.b', 'created', '{}'", "verb", trigger.Change{Type: "a.b", Verb: "created"}},
		{"'a.b', NULL, '{}'", "verb", trigger.Change{Type: "a.b"}},
		{"'a.b', 'CREATED', '[]'", "doc", created("a.b", "[]")},
		{"'a.b', 'UPDATED', '{}', old => '1'", "old", trigger.Change{Type: "a.b", Verb: trigger.Updated, Old: json.RawMessage("1")}},
		{"'a.b', 'CREATED', jsonb_build_object('a', repeat('x', 524289))", "doc", created("a.b", `{"a": "`+strings.Repeat("x", 524289)+`"}`)},
		{"'a.b', 'CREATED', '{}', repeat('x', 257)", "doc_id", trigger.Change{Type: "a.b", Verb: trigger.Created, ID: strings.Repeat("x", 257)}},
		{"'a.b', 'CREATED', '{}', path => 'a'", "path", trigger.Change{Type: "a.b", Verb: trigger.Created, Path: "a"}},
		{"'a.b', 'CREATED', '{}', path => '/' || repeat('x', 4096)", "path", trigger.Change{Type: "a.b", Verb: trigger.Created, Path: "/" + strings.Repeat("x", 4096)}},
		{"'a.b', 'CREATED', '{}', old_path => 'a'", "old_path", trigger.Change{Type: "a.b", Verb: trigger.Created, OldPath: "a"}},
		{`'a.b', 'CREATED', '{}', dirs => '[{"id": "", "path": "/a"}]'`, "dirs", trigger.Change{Type: "a.b", Verb: trigger.Created, Dirs: []trigger.Directory{{Path: "/a"}}}},
		{`'a.b', 'CREATED', '{}', dirs => '[{"id": "d", "path": "a"}]'`, "dirs", trigger.Change{Type: "a.b", Verb: trigger.Created, Dirs: []trigger.Directory{{ID: "d", Path: "a"}}}},
		{`'a.b', 'CREATED', '{}', dirs => '[1]'`, "dirs", trigger.Change{Type: "a.b", Verb: trigger.Created, Dirs: []trigger.Directory{{}}}},
		{`'a.b', 'CREATED', '{}', dirs => '{}'`, "dirs", trigger.Change{Type: "a.b", Verb: trigger.Created, Dirs: []trigger.Directory{{}}}},
	} {
		_, err := db.Pool.Exec(context.Background(), "SELECT carillon.publish("+tc.args+")")
		if inGo := tc.same.Check(); (inGo == nil) != (tc.field == "") {
			t.Errorf("%.80s: Go says %v", tc.args, inGo)
		}
		pg := (*pgconn.PgError)(nil)
		switch {
		case tc.field == "" && err != nil:
			t.Errorf("%.80s: %v", tc.args, err)
		case tc.field != "" && (!errors.As(err, &pg) || pg.Code != "22023" || pg.ColumnName != tc.field || !strings.Contains(pg.Message, "invalid: "+tc.field+": ")):
			t.Errorf("%.80s: %v, want the field %s", tc.args, err, tc.field)
		}
	}
	// An application gets no more than it was given.
	role := fmt.Sprintf("app_%d", time.Now().UnixNano())
	db.Exec("CREATE ROLE " + role)
	t.Cleanup(func() { db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	var allowed bool
	if db.Scan("SELECT has_function_privilege($1, 'carillon.publish(text,text,jsonb,text,jsonb,text,text,text,boolean,jsonb,text)', 'EXECUTE')", []any{role}, &allowed); allowed {
		t.Error("everybody may publish")
	}
}
