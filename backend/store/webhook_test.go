package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

func deliver(t *testing.T, db storetest.DB, tr trigger.Trigger, payload string, manual bool, key string) trigger.Delivery {
	t.Helper()
	d, err := db.DeliverWebhook(t.Context(), tr.Key, []byte(payload), manual, key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWebhookMakesAJob(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := makeTrigger(t, db, trigger.Webhook, "", func(t *trigger.Trigger) { t.Domain = "" })
		d := deliver(t, db, tr, `{"a": "<&>"}`, false, "")
		if d.Job.IsZero() || len(d.Ready) != 1 || d.Ready[0].ID != d.Job.N || d.Closes != 0 || d.Existing || d.Debounced {
			t.Fatalf("delivery %+v", d)
		}
		j := getJob(t, db, d.Job)
		var env trigger.Envelope = envelope(t, j.Envelope)
		if j.Ref != "m.v" || string(j.Payload) != `{"hello":1}` || j.TriggerID != tr.ID || string(env.Payload) != `{"a": "<&>"}` || env.Manual || env.Kind != trigger.Webhook || env.Trigger != tr.Key {
			t.Errorf("job %+v, %s", j, j.Envelope)
		}
		if env := envelope(t, getJob(t, db, deliver(t, db, tr, `[1]`, true, "").Job).Envelope); !env.Manual || string(env.Payload) != "[1]" {
			t.Errorf("envelope %+v", env)
		}
	})
}

func TestWebhookRefuses(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	hook, event := makeTrigger(t, db, trigger.Webhook, ""), makeTrigger(t, db, trigger.Event, "a.b")
	ctx := t.Context()
	for _, key := range []string{"", "nothing", strings.Repeat("0", 32)} {
		if _, err := db.DeliverWebhook(ctx, key, []byte(`{}`), false, ""); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("%q: %v", key, err)
		}
	}
	fault := (*trigger.Fault)(nil)
	if _, err := db.DeliverWebhook(ctx, event.Key, []byte(`{}`), false, ""); !errors.As(err, &fault) || fault.Detail != "Not a webhook" {
		t.Errorf("an event's: %v", err)
	}
	for _, payload := range []string{``, `{`, `"\u0000"`, `[1e131071]`, `"` + strings.Repeat("x", trigger.MaxDelivery) + `"`} {
		if _, err := db.DeliverWebhook(ctx, hook.Key, []byte(payload), false, ""); !errors.As(err, &fault) {
			t.Errorf("%.20s: %v", payload, err)
		}
	}
	if _, err := db.DeleteTrigger(ctx, "t", hook.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := db.DeliverWebhook(ctx, hook.Key, []byte(`{}`), false, ""); !errors.Is(err, cron.ErrNotFound) || countJobs(db) != 0 {
		t.Errorf("deleted: %v; %d jobs", err, countJobs(db))
	}
}

// Thirty an hour and domain; the others are told when to come again, and nothing is made of them.
func TestWebhookLimit(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr, same := makeTrigger(t, db, trigger.Webhook, ""), makeTrigger(t, db, trigger.Webhook, "", debounced(time.Minute))
		elsewhere := makeTrigger(t, db, trigger.Webhook, "", func(t *trigger.Trigger) { t.Domain = "bob.example" })
		for n := range 30 {
			deliver(t, db, tr, `{}`, false, fmt.Sprint("key ", n))
		}
		for n, want := range []string{trigger.LimitReached, trigger.LimitExceeded, trigger.LimitExceeded} {
			over := (*trigger.LimitError)(nil)
			_, err := db.DeliverWebhook(t.Context(), []string{tr.Key, tr.Key, same.Key}[n], []byte(`{}`), false, "a key that is not used up")
			if !errors.As(err, &over) || over.Text != want || over.RetryAfter < 59*time.Minute || over.RetryAfter > time.Hour {
				t.Errorf("%d: %#v", n, err)
			}
		}
		if d := deliver(t, db, tr, `{}`, false, "key 7"); !d.Existing || d.Job.IsZero() {
			t.Errorf("a repeated one: %+v", d)
		}
		deliver(t, db, elsewhere, `{}`, false, "")
		var windows int
		if db.Scan("SELECT count(*) FROM carillon.debounces", nil, &windows); countJobs(db) != 31 || windows != 0 {
			t.Errorf("%d jobs, %d windows", countJobs(db), windows)
		}
		db.Exec("UPDATE carillon.rate_limits SET opened_at = opened_at - interval '1 hour'")
		if d := deliver(t, db, tr, `{}`, false, "a key that is not used up"); d.Existing {
			t.Errorf("in the next hour: %+v", d)
		}
	})
}

// The worker's own limit puts a delivery off.
func TestWebhookOfALimitedWorker(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	tr := makeTrigger(t, db, trigger.Webhook, "", worker("sendmail"))
	db.Exec("INSERT INTO carillon.rate_limits (tenant, domain, kind, opened_at, count) VALUES ('t', 'alice.example', 'sendmail', now() - interval '10 minutes', 200)")
	if late := deliver(t, db, tr, `{}`, false, "").Ready[0].Due.Sub(db.Now()); late < 49*time.Minute || late > 50*time.Minute {
		t.Errorf("due in %s", late)
	}
}

// Fifty identical posts at once with one key are one job, or one match of a window; another body is refused.
func TestWebhookIdempotency(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		for _, tr := range []trigger.Trigger{makeTrigger(t, db, trigger.Webhook, ""), makeTrigger(t, db, trigger.Webhook, "", debounced(time.Hour))} {
			var wg sync.WaitGroup
			var mu sync.Mutex
			ids, fresh := map[job.ID]int{}, 0
			for range 50 {
				wg.Go(func() {
					d, err := db.DeliverWebhook(context.Background(), tr.Key, []byte(`{"a":1}`), false, "same")
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					if ids[d.Job]++; !d.Existing {
						fresh++
					}
				})
			}
			wg.Wait()
			if len(ids) != 1 || fresh != 1 {
				t.Errorf("%d jobs, %d of them new", len(ids), fresh)
			}
			if _, err := db.DeliverWebhook(t.Context(), tr.Key, []byte(`{"a":2}`), false, "same"); !errors.Is(err, cron.ErrExists) {
				t.Errorf("another body: %v", err)
			}
			db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second'")
			if d := deliver(t, db, tr, `{"a":2}`, false, "same"); d.Existing {
				t.Errorf("a day later: %+v", d)
			}
		}
		var matches int
		if db.Scan("SELECT sum(count) FROM carillon.debounces", nil, &matches); matches != 2 || countJobs(db) != 2 {
			t.Errorf("%d matches, %d jobs", matches, countJobs(db))
		}
	})
}

func TestDebouncedWebhook(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := makeTrigger(t, db, trigger.Webhook, "", debounced(time.Minute))
		for n, payload := range []string{`{"a": 1}`, `{"a": 2}`, `"<3>"`} {
			d := deliver(t, db, tr, payload, n == 1, "")
			if !d.Debounced || !d.Job.IsZero() || len(d.Ready) != 0 || d.Closes < 59*time.Second || d.Closes > time.Minute {
				t.Fatalf("delivery %+v", d)
			}
		}
		endWindows(db)
		if made := closeWindows(t, db, 10); len(made.Jobs) != 1 {
			t.Fatalf("made %+v", made)
		}
		if env := envelopes(t, db); !env[0].Manual || !env[0].Debounced || env[0].Events != 3 || string(env[0].Payload) != `{"payloads": [{"a": 1}, {"a": 2}, "<3>"]}` {
			t.Errorf("%+v, %s", env, env[0].Payload)
		}
		// A single one is wrapped as well; one after the end of a window that nobody closed opens the next.
		deliver(t, db, tr, `1`, false, "")
		endWindows(db)
		if d := deliver(t, db, tr, `2`, false, ""); len(d.Ready) != 1 || d.Closes < 59*time.Second {
			t.Errorf("delivery %+v", d)
		}
		if env := envelopes(t, db); len(env) != 2 || string(env[1].Payload) != `{"payloads": [1]}` || env[1].Manual {
			t.Errorf("%+v", env)
		}
	})
}

// What does not fit into one job goes into a second one, at the same time; nothing is dropped.
func TestFullWindow(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	tr := makeTrigger(t, db, trigger.Webhook, "", debounced(time.Minute))
	payload := `"` + strings.Repeat("x", 200<<10) + `"`
	ready := 0
	for range 7 {
		ready += len(deliver(t, db, tr, payload, false, "").Ready)
	}
	var ends, windows int
	db.Scan("SELECT count(DISTINCT due_at) + count(DISTINCT fire_at), count(DISTINCT CASE WHEN due_at <> fire_at THEN 1 END) FROM carillon.jobs, carillon.debounces", nil, &ends, &windows)
	endWindows(db)
	closeWindows(t, db, 10)
	var n int64
	for _, e := range envelopes(t, db) {
		n += e.Events
	}
	if ready != 3 || n != 7 || ends != 2 || windows != 0 || countJobs(db) != 4 {
		t.Errorf("%d jobs before the end, %d deliveries in %d jobs; ends %d, %d", ready, n, countJobs(db), ends, windows)
	}
}

// Deliveries that come together before there is a window are counted in it as if one had come after the other: nobody
// finds it absent and appends to it unseen.
func TestFirstDeliveriesFillOneWindow(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	tr := makeTrigger(t, db, trigger.Webhook, "", debounced(time.Minute))
	other := makeTrigger(t, db, trigger.Webhook, "")
	deliver(t, db, other, `1`, false, "") // there is a meter
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.rate_limits FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	const n = 2
	payload := `"` + strings.Repeat("x", trigger.MaxDelivery-2) + `"` // two do not fit into one
	var wg sync.WaitGroup
	var early atomic.Int32
	for range n {
		wg.Go(func() {
			d, err := db.DeliverWebhook(context.Background(), tr.Key, []byte(payload), false, "")
			if err != nil {
				t.Error(err)
			}
			early.Add(int32(len(d.Ready)))
		})
	}
	waitFor(t, func() bool { // all of them have looked for the window
		var waiting int
		db.Scan("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", nil, &waiting)
		return waiting == n
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	endWindows(db)
	closeWindows(t, db, 10)
	var matches int64
	for _, e := range envelopes(t, db) {
		if matches += e.Events; e.Debounced && (len(e.Payload) > job.MaxPayload/2+1<<10 || e.Events == 0) {
			t.Errorf("a window of %d deliveries and %d bytes", e.Events, len(e.Payload))
		}
	}
	if early.Load() != 1 || matches != n {
		t.Errorf("%d full windows, %d deliveries in jobs, want 1 and %d", early.Load(), matches, n)
	}
}
