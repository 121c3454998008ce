package store_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// sqlEnqueue calls carillon.enqueue with named arguments, such as "ref => 'm.v'".
func sqlEnqueue(t *testing.T, db storetest.DB, args string) job.ID {
	t.Helper()
	id, err := trySQLEnqueue(db, args)
	if err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	return id
}

func trySQLEnqueue(db storetest.DB, args string) (job.ID, error) {
	var text string
	if err := db.Pool.QueryRow(context.Background(), "SELECT carillon.enqueue("+args+")").Scan(&text); err != nil {
		return job.ID{}, err
	}
	return job.ParseID(text)
}

func TestSQLWritesIDsAsGoDoes(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	rnd := rand.New(rand.NewPCG(1, 2))
	ids := []job.ID{{N: 1}, {N: 1, Salt: -1}, {N: 35, Salt: math.MinInt32}, {N: 36, Salt: math.MaxInt32}, {N: math.MaxInt64, Salt: 1}}
	for range 500 {
		ids = append(ids, job.ID{N: 1 + rnd.Int64N(1<<rnd.Int64N(62)+1), Salt: int32(rnd.Uint32())})
	}
	for _, id := range ids {
		var text string
		db.Scan("SELECT carillon.job_id($1, $2)", []any{id.N, id.Salt}, &text)
		if back, err := job.ParseID(text); err != nil || back != id || text != id.String() {
			t.Fatalf("%+v is %q in SQL, %q in Go: %v", id, text, id, err)
		}
	}
}

func TestSQLEnqueues(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		before := db.Now()
		plain := getJob(t, db, sqlEnqueue(t, db, "'mail.send'"))
		want := job.Complete(job.New{Ref: "mail.send", Priority: job.DefaultPriority})
		if plain.State != job.Ready || plain.Ref != want.Ref || plain.Tenant != want.Tenant || plain.Priority != want.Priority || plain.Retry != want.Retry ||
			plain.Timeout != want.Timeout || len(plain.Payload) != 0 || plain.Due.Before(before) || plain.Due.Sub(db.Now()) > 0 || plain.Tags != nil || !plain.Expires.IsZero() {
			t.Errorf("job %+v", plain)
		}
		full := getJob(t, db, sqlEnqueue(t, db, `ref => 'mail.send', payload => '{"to": "a@b"}', delay => '1 day 2 hours', priority => 900, tenant => 't2',
			tags => '{a,"b, c"}', timeout => '10 seconds', max_attempts => 7, backoff => '2 seconds', backoff_ceiling => '1 minute', expires_at => '2100-01-01 00:00:00Z'`))
		if string(full.Payload) != `{"to": "a@b"}` || full.Due.Sub(full.Created) != 26*time.Hour || full.Priority != 900 || full.Tenant != "t2" ||
			!slices.Equal(full.Tags, []string{"a", "b, c"}) || full.Timeout != 10*time.Second || full.Retry != (job.Retry{Attempts: 7, Backoff: 2 * time.Second, Ceiling: time.Minute}) ||
			!full.Expires.Equal(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("job %+v", full)
		}
		// It is worked as any other: the queue is there, the window shows it, a claim takes it.
		queues, err := db.ListQueues(t.Context())
		if err != nil || len(queues) != 2 || queues[1].Lane != 4 || queues[0].Lane != 2 {
			t.Fatalf("queues %+v, %v", queues, err)
		}
		if w := window(t, db, job.Cut{Queue: queues[0].ID}, 10); len(w) != 1 || w[0].ID != plain.N || int64(w[0].Shard) != plain.N%1021 {
			t.Errorf("window %+v", w)
		}
		if done := finish(t, db, endOf(claimAll(t, db, plain.ID)[0], succeeded)); !done[0].Accepted {
			t.Errorf("done %+v", done)
		}
		// In the caller's transaction: rolled back, it is gone.
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var text string
		if err := tx.QueryRow(t.Context(), "SELECT carillon.enqueue('m.gone')").Scan(&text); err != nil {
			t.Fatal(err)
		}
		tx.Rollback(t.Context())
		if id, err := job.ParseID(text); err != nil {
			t.Error(err)
		} else if _, err := db.GetJob(t.Context(), id); err == nil {
			t.Error("a job of a transaction that was rolled back")
		}
	})
}

// What Go refuses SQL refuses, and names the argument; what Go accepts SQL accepts.
func TestSQLValidatesAsGoDoes(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "America/St_Johns")
	for _, tc := range []struct {
		args, field string // empty: accepted
		same        job.New
	}{
		{"NULL", "ref", job.New{}},
		{"''", "ref", job.New{}},
		{"'mail'", "ref", job.New{Ref: "mail"}},
		{"'.send'", "ref", job.New{Ref: ".send"}},
		{"'mail.'", "ref", job.New{Ref: "mail."}},
		{"E'mail.se\\nnd'", "ref", job.New{Ref: "mail.se\nnd"}},
		{"'mail.' || repeat('x', 129)", "ref", job.New{Ref: "mail." + strings.Repeat("x", 129)}},
		{"'mail.send_out'", "ref", job.New{Ref: "mail.send_out"}},
		{"'m_ail.send'", "ref", job.New{Ref: "m_ail.send"}},
		{"'Mail.send'", "ref", job.New{Ref: "Mail.send"}},
		{"'mail.send.now'", "ref", job.New{Ref: "mail.send.now"}},
		{"repeat('m', 128) || '.' || repeat('x', 128)", "", job.New{Ref: strings.Repeat("m", 128) + "." + strings.Repeat("x", 128)}},
		{"'m.v', priority => -1", "priority", job.New{Ref: "m.v", Priority: -1}},
		{"'m.v', priority => 1001", "priority", job.New{Ref: "m.v", Priority: 1001}},
		{"'m.v', priority => 1000", "", job.New{Ref: "m.v", Priority: 1000}},
		{"'m.v', delay => '-1 second'", "delay", job.New{Ref: "m.v", Delay: -time.Second}},
		{"'m.v', delay => '87600:00:01'", "delay", job.New{Ref: "m.v", Delay: job.MaxDelay + time.Second}},
		{"'m.v', delay => '87600:00:00'", "", job.New{Ref: "m.v", Delay: job.MaxDelay}},
		{"'m.v', tenant => repeat('t', 257)", "tenant", job.New{Ref: "m.v", Tenant: strings.Repeat("t", 257)}},
		{"'m.v', tenant => E'a\\u0085'", "tenant", job.New{Ref: "m.v", Tenant: "a\u0085"}},
		{"'m.v', tenant => 'ü'", "", job.New{Ref: "m.v", Tenant: "ü"}},
		{"'m.v', timeout => '-1 second'", "timeout", job.New{Ref: "m.v", Timeout: -time.Second}},
		{"'m.v', timeout => '0.0001 seconds'", "timeout", job.New{Ref: "m.v", Timeout: 100 * time.Microsecond}},
		{"'m.v', timeout => '7 days 1 second'", "timeout", job.New{Ref: "m.v", Timeout: job.MaxTimeout + time.Second}},
		{"'m.v', timeout => '7 days'", "", job.New{Ref: "m.v", Timeout: job.MaxTimeout}},
		{"'m.v', max_attempts => -1", "max_attempts", job.New{Ref: "m.v", Retry: job.Retry{Attempts: -1}}},
		{"'m.v', max_attempts => 1001", "max_attempts", job.New{Ref: "m.v", Retry: job.Retry{Attempts: 1001}}},
		{"'m.v', backoff => '8 days'", "backoff", job.New{Ref: "m.v", Retry: job.Retry{Backoff: 8 * 24 * time.Hour}}},
		{"'m.v', backoff => '1 hour'", "", job.New{Ref: "m.v", Retry: job.Retry{Backoff: time.Hour}}},
		{"'m.v', backoff => '1 hour', backoff_ceiling => '1 minute'", "backoff_ceiling", job.New{Ref: "m.v", Retry: job.Retry{Backoff: time.Hour, Ceiling: time.Minute}}},
		{"'m.v', to_jsonb(repeat('x', 1048575))", "payload", job.New{Ref: "m.v", Payload: []byte(`"` + strings.Repeat("x", 1048575) + `"`)}},
		{"'m.v', to_jsonb(repeat('x', 1048574))", "", job.New{Ref: "m.v", Payload: []byte(`"` + strings.Repeat("x", 1048574) + `"`)}},
		{"'m.v', tags => array_fill('a'::text, ARRAY[17])", "tags", job.New{Ref: "m.v", Tags: slices.Repeat([]string{"a"}, 17)}},
		{"'m.v', tags => '{a,a}'", "tags", job.New{Ref: "m.v", Tags: []string{"a", "a"}}},
		{"'m.v', tags => '{a,\"\"}'", "tags", job.New{Ref: "m.v", Tags: []string{"a", ""}}},
		{"'m.v', tags => '{a,NULL}'", "tags", job.New{Ref: "m.v", Tags: []string{"a", ""}}},
		{"'m.v', tags => ARRAY[repeat('x', 65)]", "tags", job.New{Ref: "m.v", Tags: []string{strings.Repeat("x", 65)}}},
		{"'m.v', unique_key => repeat('x', 257)", "unique_key", job.New{Ref: "m.v", Unique: strings.Repeat("x", 257)}},
		{"'m.v', idempotency_key => E'a\\tb'", "idempotency_key", job.New{Ref: "m.v", Idempotency: "a\tb"}},
		{"'m.v', unique_window => '1 hour'", "unique_window", job.New{Ref: "m.v", Window: time.Hour}},
		{"'m.v', unique_key => 'u', unique_window => '-1 hour'", "unique_window", job.New{Ref: "m.v", Unique: "u", Window: -time.Hour}},
		{"'m.v', expires_at => 'infinity'", "expires_at", job.New{Ref: "m.v", Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"'m.v', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL", "", job.New{Ref: "m.v"}},
	} {
		_, err := trySQLEnqueue(db, tc.args)
		if inGo := job.Validate(job.Complete(tc.same)); (inGo == nil) != (tc.field == "") {
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
}

// Keys mean the same on both ways in, and have the same hash.
func TestSQLKeysAreTheStores(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		const request = `'m.v', '{"n": [1, "ü"]}', '1.5 seconds', 300, 't', tags => '{a,bü}', timeout => '3 seconds', max_attempts => 2, backoff => '0.25 seconds', idempotency_key => `
		q := putQueue(t, db, "t", "m.v", 1)
		e := job.Enqueue{Queue: q.ID, New: job.Complete(job.New{
			Tenant: "t", Ref: "m.v", Priority: 300, Delay: 1500 * time.Millisecond, Timeout: 3 * time.Second, Retry: job.Retry{Attempts: 2, Backoff: 250 * time.Millisecond},
			Payload: []byte(`{"n": [1, "ü"]}`), Tags: []string{"a", "bü"}, Idempotency: "one",
		})}
		first := sqlEnqueue(t, db, request+"'one'")
		if got := enqueue(t, db, e)[0]; got.Err != nil || !got.Existing || got.ID != first {
			t.Errorf("the store after SQL: %+v, want %s", got, first)
		}
		e.Idempotency = "two"
		second := enqueue(t, db, e)[0].ID
		if got := sqlEnqueue(t, db, request+"'two'"); got != second {
			t.Errorf("SQL after the store: %s, want %s", got, second)
		}
		pg := (*pgconn.PgError)(nil)
		if _, err := trySQLEnqueue(db, "'m.v', '1', tenant => 't', idempotency_key => 'two'"); !errors.As(err, &pg) || pg.Code != "23505" || pg.ColumnName != "idempotency_key" {
			t.Errorf("another request: %v", err)
		}
		// An instant is a part of the request.
		e.Idempotency, e.Expires = "instant", time.Date(2100, 1, 2, 3, 4, 5, 678901000, time.UTC)
		third := enqueue(t, db, e)[0].ID
		if got := sqlEnqueue(t, db, request+"'instant', expires_at => '2100-01-02 03:04:05.678901Z'"); got != third {
			t.Errorf("the same instant: %s, want %s", got, third)
		}
		for _, other := range []string{"", ", expires_at => '2100-01-02 03:04:05.678902Z'"} {
			if _, err := trySQLEnqueue(db, request+"'instant'"+other); !errors.As(err, &pg) || pg.Code != "23505" {
				t.Errorf("another instant%s: %v", other, err)
			}
		}
		// Unique: while the job lives, or for a window; an idempotency key beside it then names the job that is there.
		u := sqlEnqueue(t, db, "'m.v', tenant => 't', unique_key => 'u'")
		if got := sqlEnqueue(t, db, "'m.v', '2', tenant => 't', unique_key => 'u', idempotency_key => 'three'"); got != u {
			t.Errorf("unique: %s, want %s", got, u)
		}
		if got := sqlEnqueue(t, db, "'m.v', '2', tenant => 't', unique_key => 'u', idempotency_key => 'three'"); got != u {
			t.Errorf("unique, by the idempotency key: %s, want %s", got, u)
		}
		finish(t, db, endOf(claimAll(t, db, u)[0], succeeded))
		if got := sqlEnqueue(t, db, "'m.v', tenant => 't', unique_key => 'u'"); got == u {
			t.Error("the key is held after the end")
		}
		w := sqlEnqueue(t, db, "'m.v', tenant => 't', unique_key => 'w', unique_window => '1 hour'")
		finish(t, db, endOf(claimAll(t, db, w)[0], succeeded))
		if got := sqlEnqueue(t, db, "'m.v', tenant => 't', unique_key => 'w', unique_window => '1 hour'"); got != w {
			t.Error("the window ended with the job")
		}
		db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second' WHERE key IN ('w', 'one')")
		if got := sqlEnqueue(t, db, "'m.v', tenant => 't', unique_key => 'w', unique_window => '1 hour'"); got == w {
			t.Error("an expired window holds")
		}
		if got := sqlEnqueue(t, db, request+"'one'"); got == first {
			t.Error("an expired idempotency key holds")
		}
	})
}

// Fifty at once over both ways, each in a transaction: one job.
func TestSQLCreatesInParallelMakeOneJob(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "default", "m.v", 2)
	e := aJob(q)
	e.Unique, e.Payload = "u", nil
	ids := make(chan job.ID, 50)
	for n := range 50 {
		go func() {
			if n%2 == 0 {
				id, err := trySQLEnqueue(db, "'m.v', unique_key => 'u'")
				if err != nil {
					t.Error(err)
				}
				ids <- id
				return
			}
			out, err := db.EnqueueJobs(context.Background(), "c1", time.Minute, []job.Enqueue{e})
			if err != nil || out[0].Err != nil {
				t.Error(err, out)
			}
			ids <- append(out, job.Enqueued{})[0].ID
		}()
	}
	seen := map[job.ID]int{}
	for range 50 {
		seen[<-ids]++
	}
	var jobs int
	db.Scan("SELECT count(*) FROM carillon.jobs", nil, &jobs)
	if len(seen) != 1 || jobs != 1 {
		t.Errorf("%d ids, %d jobs", len(seen), jobs)
	}
}

// A pause and a limit cover the queue that SQL makes; a job of a paused queue waits.
func TestSQLMakesQueuesAsTheyAreCovered(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	if _, err := db.PauseQueues(t.Context(), "", "m.v", "no"); err != nil {
		t.Fatal(err)
	}
	if err := db.PutLimit(t.Context(), "m.v", 3); err != nil {
		t.Fatal(err)
	}
	id := sqlEnqueue(t, db, "'m.v'")
	queues, err := db.ListQueues(t.Context())
	if err != nil || len(queues) != 1 || !queues[0].Paused || queues[0].Limit != 3 {
		t.Errorf("queues %+v, %v", queues, err)
	}
	if won := claimAll(t, db, id); len(won) != 0 {
		t.Errorf("won %+v", won)
	}
}

// A role that may use the schema and execute the function enqueues, and can do nothing else.
func TestSQLNeedsExecuteOnly(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	role := fmt.Sprintf("app_%d", rand.Uint64())
	db.Exec("CREATE ROLE " + role)
	t.Cleanup(func() {
		for _, sql := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := db.Pool.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	as := func(sql string) error {
		return pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
	}
	refused := func(sql string) {
		t.Helper()
		if pg := (*pgconn.PgError)(nil); !errors.As(as(sql), &pg) || pg.Code != "42501" {
			t.Errorf("%s is not refused", sql)
		}
	}
	db.Exec("GRANT USAGE ON SCHEMA carillon TO " + role)
	refused("SELECT carillon.enqueue('m.v')")
	db.Exec("GRANT EXECUTE ON FUNCTION carillon.enqueue TO " + role)
	if err := as("SELECT carillon.enqueue('m.v', '{}', unique_key => 'u', tags => '{a}')"); err != nil {
		t.Error(err)
	}
	if err := as("SET LOCAL search_path = pg_temp, public; SELECT carillon.enqueue('m.v')"); err != nil {
		t.Error(err)
	}
	for _, sql := range []string{
		"SELECT FROM carillon.jobs", "DELETE FROM carillon.job_keys", "SELECT carillon.drop_job_partitions(1)", "SELECT carillon.drop_run_partitions(1)",
		"SELECT nextval('carillon.job_ids')",
	} {
		refused(sql)
	}
}

// Listeners hear of each transaction once, of none that was switched off, and of a new connection.
func TestListenersHear(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	heard := make(chan struct{}, 100)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- db.ListenJobs(ctx, func() { heard <- struct{}{} }) }()
	wait := func(why string) {
		t.Helper()
		select {
		case <-heard:
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing heard of %s", why)
		}
	}
	wait("the connection")
	sqlEnqueue(t, db, "'m.v'")
	wait("a job")
	silent := func() {
		db.Exec("SELECT carillon.enqueue('m.v', notify => false)")
		db.Exec("BEGIN; SET LOCAL carillon.notify = off; SELECT carillon.enqueue('m.v'); COMMIT")
		db.Exec("BEGIN; SELECT carillon.enqueue('m.v'); ROLLBACK")
	}
	silent()
	db.Exec("BEGIN; SELECT carillon.enqueue('m.v') FROM generate_series(1, 1000); COMMIT")
	wait("a thousand jobs")
	silent()
	sqlEnqueue(t, db, "'m.v'") // notifications come in order: what was heard beside would be in the channel by then
	wait("the last job")
	if len(heard) != 0 {
		t.Errorf("heard %d times too often", len(heard))
	}
	var killed int
	db.Scan("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'carillon listen%' AND datname = current_database()", nil, &killed)
	if killed != 1 {
		t.Fatalf("%d listeners", killed)
	}
	wait("the new connection")
	sqlEnqueue(t, db, "'m.v'")
	wait("a job after it")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
