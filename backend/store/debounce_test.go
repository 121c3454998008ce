package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

func closeWindows(t *testing.T, db storetest.DB, page int) trigger.Made {
	t.Helper()
	made, err := db.CloseDebounces(t.Context(), page)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// endWindows moves the ends of all windows into the past.
func endWindows(db storetest.DB) {
	db.Exec("UPDATE carillon.debounces SET fire_at = fire_at - (SELECT max(fire_at) FROM carillon.debounces) + now() - interval '1 millisecond'")
}

// Ten thousand events, taken by several at once, are one job at the end of the window, however long it lasts.
func TestBurstIsOneJob(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	tr := makeTrigger(t, db, trigger.Event, "a.b", debounced(time.Hour))
	var many []trigger.Change
	for n := range 10_000 {
		many = append(many, created("a.b", fmt.Sprintf(`{"n": %d}`, n)))
	}
	ids := publish(t, db, many...)
	var wg sync.WaitGroup
	for lane := range 4 {
		wg.Go(func() {
			for at := lane * 200; at < len(ids); at += 800 {
				made, err := db.MakeOfEvents(context.Background(), matched(ids[at:at+200], tr.ID))
				if err != nil || made.Taken != 200 || len(made.Jobs) != 0 || made.Closes <= 59*time.Minute || made.Closes > time.Hour {
					t.Errorf("%+v, %v", made, err)
				}
			}
		})
	}
	wg.Wait()
	if wait, open, err := db.NextDebounce(t.Context()); err != nil || !open || wait <= 59*time.Minute || wait > time.Hour {
		t.Errorf("next %s, %v, %v", wait, open, err)
	}
	if made := closeWindows(t, db, 10); made.Taken != 0 || countJobs(db) != 0 {
		t.Errorf("before its end: %+v", made)
	}
	endWindows(db)
	if wait, open, err := db.NextDebounce(t.Context()); err != nil || !open || wait > 0 {
		t.Errorf("next %s, %v, %v", wait, open, err)
	}
	made := trigger.Made{}
	for range 4 {
		wg.Go(func() {
			m, err := db.CloseDebounces(context.Background(), 10)
			if err != nil {
				t.Error(err)
			}
			if m.Taken > 0 {
				made = m
			}
		})
	}
	wg.Wait()
	env := envelopes(t, db)
	if made.Taken != 1 || len(made.Jobs) != 1 || len(env) != 1 || !env[0].Debounced || env[0].Event != nil || env[0].Events != 10_000 || env[0].Trigger != tr.Key || env[0].Kind != trigger.Event {
		t.Errorf("made %+v: %+v", made, env)
	}
	if j := claimAll(t, db, job.ID{N: made.Jobs[0].ID})[0]; string(j.Payload) != `{"hello":1}` || j.TriggerID != tr.ID {
		t.Errorf("job %+v", j)
	}
	if _, open, err := db.NextDebounce(t.Context()); err != nil || open {
		t.Errorf("a window is left: %v", err)
	}
}

// A match after the end opens a new window, also where nobody has closed the old one yet: that one's job is made then.
func TestMatchAfterTheEndOpensAnother(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := makeTrigger(t, db, trigger.Event, "a.b", debounced(time.Minute))
		ids := publish(t, db, created("a.b", `{}`), created("a.b", `{}`), created("a.b", `{}`))
		var end, still time.Time
		makeOf(t, db, ids[:1], tr.ID)
		db.Scan("SELECT fire_at FROM carillon.debounces", nil, &end)
		makeOf(t, db, ids[1:2], tr.ID)
		if db.Scan("SELECT fire_at FROM carillon.debounces", nil, &still); !still.Equal(end) {
			t.Errorf("the window was extended from %s to %s", end, still)
		}
		endWindows(db)
		made := makeOf(t, db, ids[2:], tr.ID)
		if env := envelopes(t, db); len(made.Jobs) != 1 || made.Closes < 59*time.Second || len(env) != 1 || env[0].Events != 2 {
			t.Fatalf("made %+v: %+v", made, env)
		}
		endWindows(db)
		if closeWindows(t, db, 10); len(envelopes(t, db)) != 2 || envelopes(t, db)[1].Events != 1 {
			t.Errorf("%+v", envelopes(t, db))
		}
	})
}

func TestWindowsOfDeletedAndLimitedTriggers(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	gone, left := makeTrigger(t, db, trigger.Event, "a.b", debounced(time.Minute)), makeTrigger(t, db, trigger.Event, "a.b", debounced(time.Minute), worker("push"))
	makeOf(t, db, publish(t, db, created("a.b", `{}`)), gone.ID, left.ID)
	db.Exec("UPDATE carillon.triggers SET deleted_at = now() WHERE id = $1", gone.ID)
	db.Exec("INSERT INTO carillon.rate_limits (tenant, domain, kind, opened_at, count) VALUES ('t', 'alice.example', 'push', now() - interval '10 minutes', 30)")
	endWindows(db)
	made := closeWindows(t, db, 10)
	if made.Taken != 2 || len(made.Jobs) != 1 {
		t.Fatalf("made %+v", made)
	}
	if late := made.Jobs[0].Due.Sub(db.Now()); late < 49*time.Minute || late > 50*time.Minute {
		t.Errorf("above the limit: due in %s", late)
	}
}

// A window whose job the database refuses is given up, with a note; the others are closed.
func TestRefusedWindowHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	db.Exec("ALTER TABLE carillon.jobs ADD CHECK (priority <> 7)")
	var ids []int64
	var bad trigger.Trigger
	for n := range 6 {
		tr := makeTrigger(t, db, trigger.Event, "a.b", debounced(time.Minute), func(tr *trigger.Trigger) {
			if n == 3 {
				tr.Priority = 7
			}
		})
		if ids = append(ids, tr.ID); n == 3 {
			bad = tr
		}
	}
	makeOf(t, db, publish(t, db, created("a.b", `{}`)), ids...)
	endWindows(db)
	jobs := 0
	for range 20 {
		made := closeWindows(t, db, 10)
		if jobs += len(made.Jobs); made.Taken == 0 {
			break
		}
	}
	if _, open, err := db.NextDebounce(t.Context()); jobs != 5 || open || err != nil {
		t.Errorf("%d jobs, %v, %v", jobs, open, err)
	}
	if tr, err := db.GetTrigger(t.Context(), "t", bad.Key); err != nil || tr.LastError == "" {
		t.Errorf("trigger %+v, %v", tr, err)
	}
}

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

func TestTakeRate(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	take := func(worker string) trigger.Ruling {
		r, err := db.TakeRate(t.Context(), "t", "d", worker)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var wg sync.WaitGroup
	allowed := make(chan bool, 40)
	for range 40 {
		wg.Go(func() { allowed <- take("push").Allowed })
	}
	wg.Wait()
	close(allowed)
	n := 0
	for ok := range allowed {
		if ok {
			n++
		}
	}
	if n != 30 {
		t.Errorf("%d of 40 allowed", n)
	}
	for range 100 {
		if r := take("anything"); !r.Allowed {
			t.Fatalf("without a limit: %+v", r)
		}
	}
	db.Exec("UPDATE carillon.rate_limits SET opened_at = now() - interval '61 minutes'")
	if r := take("push"); !r.Allowed {
		t.Errorf("an hour later: %+v", r)
	}
	take("zip")
	db.Exec("UPDATE carillon.rate_limits SET opened_at = now() - interval '3 hours' WHERE kind = 'zip'")
	if n, err := db.DropIdleRates(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("dropped %d, %v", n, err)
	}
}
