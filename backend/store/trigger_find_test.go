package store_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

// Whatever its worker was called when they were made, triggers of one verb share one meter, and it is not that of
// deliveries for a verb called webhook.
func TestOneMeterByWhicheverName(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	db.Exec("INSERT INTO carillon.rate_limits (tenant, domain, kind, opened_at, count) VALUES ('t', 'alice.example', 'push', now() - interval '20 minutes', 26)")
	named := func(worker, ref string) func(*trigger.Trigger) {
		return func(t *trigger.Trigger) { t.Worker, t.Ref = worker, ref }
	}
	at := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z", named("push", "m.push")))
	fired := fire(t, db, dueClaim(t, db, at.CronJob))[0]
	hook := create(t, db, newTrigger(trigger.Webhook, "", named("m.push", "m.push")))
	delivered := deliver(t, db, hook, `{}`, false, "").Ready[0]
	event := create(t, db, newTrigger(trigger.Event, "a.b", named("m", "m.push")))
	matched := makeOf(t, db, publish(t, db, created("a.b", `{}`)), event.ID).Jobs[0]
	if r, err := db.TakeRate(t.Context(), "t", "alice.example", "m.push"); err != nil || !r.Allowed {
		t.Errorf("a push: %+v, %v", r, err)
	}
	late := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z", named("m", "m.push")))
	over := fire(t, db, dueClaim(t, db, late.CronJob))[0]
	now := db.Now()
	if !fired.Due.IsZero() || delivered.Due.After(now) || matched.Due.After(now) || over.Due.Sub(now) < 39*time.Minute {
		t.Errorf("30 uses are allowed: fired %v, delivered %v, matched %v, the 31st %v", fired.Due, delivered.Due, matched.Due, over.Due)
	}

	own := create(t, db, newTrigger(trigger.Webhook, "", named("webhook", "m.webhook")))
	for range 3 {
		deliver(t, db, own, `{}`, false, "")
	}
	var meters string
	db.Scan("SELECT string_agg(kind || ' ' || count, ', ' ORDER BY kind) FROM carillon.rate_limits", nil, &meters)
	if meters != "push 31, webhook 4" {
		t.Errorf("counted %s", meters)
	}
}

func TestHasRequest(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	e := aJob(putQueue(t, db, "t", "m.v", 2))
	e.Idempotency = "k"
	enqueue(t, db, e)
	for _, c := range []struct {
		tenant, key string
		want        bool
	}{{"t", "k", true}, {"u", "k", false}, {"t", "l", false}, {"t", "", false}} {
		if has, err := db.HasRequest(t.Context(), c.tenant, c.key); err != nil || has != c.want {
			t.Errorf("%q of %s: %v, %v", c.key, c.tenant, has, err)
		}
	}
	db.Exec("UPDATE carillon.job_keys SET expires_at = now()")
	if has, err := db.HasRequest(t.Context(), "t", "k"); err != nil || has {
		t.Errorf("a day later: %v, %v", has, err)
	}
}

func TestFindTriggerByMessage(t *testing.T) {
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "bank.konnector", 2)
	fill := func(tenant, worker, message string, n int) {
		db.Exec(`INSERT INTO carillon.triggers (key, tenant, kind, worker, ref, queue_id, priority, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, message)
			SELECT md5(random()::text), $1, '@webhook', $2, 'bank.konnector', $3, 500, 3, 1000, 1000, 1000, convert_to($4, 'UTF8') FROM generate_series(1, $5::int)`, tenant, worker, q.ID, message, n)
	}
	fill("u", "konnector", `{"account": "x"}`, 50_000)
	fill("t", "konnector", `{"account": "none"}`, 2500)
	fill("t", "bank.konnector", `"`+strings.Repeat("x", 1<<20)+`"`, 100)
	want := create(t, db, newTrigger(trigger.Webhook, "", func(tr *trigger.Trigger) {
		tr.Worker, tr.Ref, tr.Message = "bank", "bank.konnector", []byte(`{"account": "x"}`)
	}))
	gone := create(t, db, newTrigger(trigger.Webhook, "", func(tr *trigger.Trigger) { tr.Message = []byte(`{"account": "y"}`) }))
	if _, err := db.DeleteTrigger(t.Context(), "t", gone.Key); err != nil {
		t.Fatal(err)
	}
	db.Exec("ANALYZE carillon.triggers")
	asked, most := 0, uint64(0)
	find := func(text string, workers ...string) (trigger.Trigger, error) {
		return db.FindTriggerByMessage(t.Context(), "t", workers, func(message []byte) bool {
			if asked++; asked%10 == 0 && len(message) > 1000 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
			return bytes.Contains(message, []byte(text))
		})
	}
	if got, err := find(`"x"`, "konnector", "bank.konnector"); err != nil || got.Key != want.Key || asked != 2601 {
		t.Errorf("found %q after %d, %v; want %q after 2601", got.Key, asked, err, want.Key)
	}
	if most > 64<<20 {
		t.Errorf("%d MiB are held", most>>20)
	}
	for _, c := range [][]string{{`"y"`, "konnector", "mailer"}, {`"x"`, "mailer"}, {`"x"`}} {
		if got, err := find(c[0], c[1:]...); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("%v: found %q, %v", c, got.Key, err)
		}
	}
	plan := explain(t, db, `SELECT m.id, m.key, m.message FROM (
		SELECT t.id, t.key, t.message, sum(octet_length(t.message)) OVER (ORDER BY t.id) AS bytes, row_number() OVER (ORDER BY t.id) AS place
		FROM carillon.triggers t
		WHERE t.deleted_at IS NULL AND t.tenant = 't' AND t.id > 0 AND (t.worker = ANY ('{konnector}') OR t.ref = ANY ('{konnector}'))
		ORDER BY t.id LIMIT 1000) m
		WHERE m.place = 1 OR m.bytes <= 4194304 ORDER BY m.id`)
	if !strings.Contains(plan, "triggers_tenant") || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Sort") {
		t.Error(plan)
	}
}
