package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

var failedForGood = job.Outcome{Verdict: cron.Failed, Text: "no such mailbox", Final: true}

// triggered enqueues a job as a launch of a trigger does.
func triggered(q job.Queue, tr trigger.Trigger, manual bool) job.Enqueue {
	e := aJob(q)
	e.TriggerID = tr.ID
	e.Envelope, _ = json.Marshal(trigger.Envelope{Trigger: tr.Key, Kind: tr.Kind, Worker: tr.Worker, Manual: manual, Payload: json.RawMessage(`{"a": 1}`)})
	return e
}

// What a trigger gave a job stays with it through all statements that copy rows.
func TestTriggerAndEnvelopeStayWithTheJob(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "mail.mailer", 2)
		tr := create(t, db, newTrigger(trigger.Client, ""))
		plain := aJob(q)
		made := enqueue(t, db, triggered(q, tr, true), plain, triggered(q, tr, false))
		for i, m := range made {
			j := getJob(t, db, m.ID)
			if i == 1 {
				if j.TriggerID != 0 || j.Envelope != nil {
					t.Errorf("a job without one has %+v", j)
				}
				continue
			}
			if e := envelope(t, j.Envelope); j.TriggerID != tr.ID || e.Manual != (i == 0) || string(e.Payload) != `{"a": 1}` {
				t.Errorf("job %+v, %s", j, j.Envelope)
			}
		}
		carried := func(step string, id int64, raw []byte, payload bool) {
			t.Helper()
			if e := envelope(t, raw); id != tr.ID || e.Trigger != tr.Key || (e.Payload != nil) != payload {
				t.Errorf("%s: trigger %d, %s", step, id, raw)
			}
		}
		won := claimAll(t, db, made[0].ID)
		carried("claimed", won[0].TriggerID, won[0].Envelope, true)
		retry(t, db, endOf(won[0], job.Outcome{Verdict: cron.Failed}))
		db.Exec("UPDATE carillon.jobs SET due_at = now() WHERE id = $1", won[0].N)
		won = claimAll(t, db, made[0].ID)
		carried("claimed again", won[0].TriggerID, won[0].Envelope, true)
		finish(t, db, endOf(won[0], failedForGood))
		j := getJob(t, db, made[0].ID)
		carried("failed", j.TriggerID, j.Envelope, false) // shown without; kept for a re-drive
		if _, err := db.RedriveJob(t.Context(), made[0].ID); err != nil {
			t.Fatal(err)
		}
		j = getJob(t, db, made[0].ID)
		carried("re-driven", j.TriggerID, j.Envelope, true)
		if _, err := db.CancelJob(t.Context(), made[2].ID, ""); err != nil {
			t.Fatal(err)
		}
		j = getJob(t, db, made[2].ID)
		carried("cancelled", j.TriggerID, j.Envelope, false)
		live, err := db.ListJobs(t.Context(), job.Filter{}, job.Cursor{}, 10)
		if err != nil || len(live) != 2 {
			t.Fatalf("%+v, %v", live, err)
		}
		carried("listed", live[1].TriggerID, live[1].Envelope, false)
		if e := aJob(q); string(job.RequestHash(e.New)) == string(job.RequestHash(triggered(q, tr, true).New)) {
			t.Error("the trigger is no part of the request's hash")
		}
	})
}

func TestJobsAndStateOfATrigger(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "mail.mailer", 2)
		tr, idle, other := create(t, db, newTrigger(trigger.Client, "")), create(t, db, newTrigger(trigger.Client, "")), create(t, db, newTrigger(trigger.Client, ""))
		state := func(of trigger.Trigger) trigger.State {
			t.Helper()
			all, err := db.TriggerStates(t.Context(), []int64{tr.ID, idle.ID, other.ID, 4711})
			if err != nil || len(all) != 3 || all[of.ID].TriggerID != of.Key {
				t.Fatalf("states %+v, %v", all, err)
			}
			return all[of.ID]
		}
		if s := state(idle); s.Status != trigger.Done || !s.LastExecution.IsZero() || s.LastExecutedJobID != "" {
			t.Errorf("none yet: %+v", s)
		}
		var ids []job.ID
		for i := range 12 { // two succeed, one fails, ..; the manual one is the first
			made := enqueue(t, db, triggered(q, tr, i == 0))[0]
			ids = append(ids, made.ID)
			o := succeeded
			if i%3 == 2 {
				o = failedForGood
			}
			finish(t, db, endOf(claimAll(t, db, made.ID)[0], o))
		}
		enqueue(t, db, triggered(q, other, false))
		s := state(tr)
		if s.Status != trigger.Errored || s.LastExecutedJobID != ids[11].String() || s.LastFailedJobID != ids[11].String() || s.LastError != "no such mailbox" ||
			s.LastSuccessfulJobID != ids[10].String() || s.LastManualJobID != ids[0].String() || s.LastManualExecution.IsZero() || s.LastSuccess.After(s.LastFailure) {
			t.Errorf("state %+v of %v", s, ids)
		}
		live := enqueue(t, db, triggered(q, tr, true))[0]
		if s := state(tr); s.Status != trigger.Queued || s.LastManualJobID != live.ID.String() || !s.LastExecution.IsZero() || s.LastFailedJobID != ids[11].String() {
			t.Errorf("queued: %+v", s)
		}
		won := claimAll(t, db, live.ID)
		if s := state(tr); s.Status != trigger.Running || s.LastExecution.IsZero() {
			t.Errorf("running: %+v", s)
		}
		retry(t, db, endOf(won[0], job.Outcome{Verdict: cron.Failed}))
		first := won[0].Started
		if s := state(tr); s.Status != trigger.Running || !s.LastExecution.Equal(first) {
			t.Errorf("between two attempts, since %v: %+v", first, s)
		}
		db.Exec("UPDATE carillon.jobs SET due_at = now()")
		again := claimAll(t, db, live.ID)[0]
		if s := state(tr); !again.Started.After(first) || !s.LastExecution.Equal(first) {
			t.Errorf("in the second attempt, since %v: %+v", again.Started, s)
		}
		finish(t, db, endOf(again, job.Outcome{Verdict: cron.TimedOut, Text: "timed out: context deadline exceeded", Final: true}))
		if s, j := state(tr), getJob(t, db, live.ID); s.LastError != "context deadline exceeded" || !s.LastExecution.Equal(first) || !s.LastFailure.Equal(first) || !j.Started.Equal(again.Started) ||
			len(j.Errors) != 2 || !j.Errors[0].Started.Equal(first) || !j.Errors[1].Started.Equal(again.Started) {
			t.Errorf("after two attempts from %v on: %+v, %+v", first, s, j.Errors)
		}
		ids = append(ids, live.ID)
		jobs, err := db.ListTriggerJobs(t.Context(), tr.ID, 5)
		if err != nil || len(jobs) != 5 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		for i, j := range jobs {
			if j.ID != ids[12-i] || j.TriggerID != tr.ID {
				t.Errorf("place %d is %s, want %s", i, j.ID, ids[12-i])
			}
		}
		if jobs, _ := db.ListTriggerJobs(t.Context(), tr.ID, 50); len(jobs) != 13 {
			t.Errorf("%d jobs", len(jobs))
		}
		if jobs, _ := db.ListTriggerJobs(t.Context(), idle.ID, 50); len(jobs) != 0 {
			t.Errorf("%d jobs", len(jobs))
		}
	})
}

// The state of a trigger with a long history, and its newest jobs, are steps of an index.
func TestLongHistoriesAreNotRead(t *testing.T) {
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "mail.mailer", 2)
	tr := create(t, db, newTrigger(trigger.Client, ""))
	fillHistory(db, q, tr.ID, "succeeded", 100_000, 24*time.Hour)
	fillHistory(db, q, tr.ID, "failed", 1, 48*time.Hour)
	for name, query := range map[string]string{
		"states": `SELECT h.id FROM carillon.job_history h WHERE h.trigger_id = 1 AND h.state = 'failed' ORDER BY h.created_at DESC, h.id DESC LIMIT 1`,
		"manual": `SELECT h.id FROM carillon.job_history h WHERE h.trigger_id = 1 AND (h.envelope ->> 'manual') = 'true' ORDER BY h.created_at DESC, h.id DESC LIMIT 1`,
	} {
		if plan := explain(t, db, query); strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Sort Method") {
			t.Errorf("%s: %s", name, plan)
		}
	}
	begin := time.Now()
	states, err := db.TriggerStates(t.Context(), []int64{tr.ID})
	if err != nil || states[tr.ID].LastFailedJobID == "" || states[tr.ID].Status != trigger.Done {
		t.Errorf("states %+v, %v", states, err)
	}
	if jobs, err := db.ListTriggerJobs(t.Context(), tr.ID, 50); err != nil || len(jobs) != 50 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v", took)
	}
}

// explain is the plan of a query on the connections of the jobs.
func explain(t *testing.T, db storetest.DB, query string, args ...any) string {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SET LOCAL enable_bitmapscan = off; SET LOCAL random_page_cost = 1.1"); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// fillHistory makes ended jobs, a second apart, the newest so old.
func fillHistory(db storetest.DB, q job.Queue, of int64, state string, n int, old time.Duration) {
	db.Exec(`INSERT INTO carillon.job_history (id, ended_at, created_at, due_at, started_at, queue_id, salt, attempt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms,
			priority, state, run_id, payload, trigger_id, envelope)
		SELECT nextval('carillon.job_ids'), t, t, t, t, $1, 7, 1, 3, 1000, 1000, 1000, 500, $2::text::carillon.job_status, gen_random_uuid(), '{}', NULLIF($3::bigint, 0), '{"worker": "mailer"}'
		FROM (SELECT now() - $5::interval - make_interval(secs => s) AS t FROM generate_series(1, $4::int) s) times`, q.ID, state, of, n, old.String())
	db.Exec("ANALYZE carillon.job_history")
}

func TestPurgeKeepsTheNewestAndTheLive(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		day := 24 * time.Hour
		mail, urgent, zip, others := putQueue(t, db, "t", "mail.mailer", 2), putQueue(t, db, "t", "mail.mailer", 3), putQueue(t, db, "t", "files.zip", 2), putQueue(t, db, "u", "mail.mailer", 2)
		fillHistory(db, mail, 0, "succeeded", 1500, 20*day)
		fillHistory(db, urgent, 0, "succeeded", 30, 19*day)
		fillHistory(db, urgent, 0, "succeeded", 10, 0)
		fillHistory(db, mail, 0, "failed", 40, 20*day)
		fillHistory(db, mail, 0, "cancelled", 40, 30*day)
		fillHistory(db, zip, 0, "succeeded", 80, 20*day)
		fillHistory(db, others, 0, "succeeded", 80, 20*day)
		live := ready(t, db, mail, 1)[0]
		db.Exec("UPDATE carillon.jobs SET created_at = now() - interval '1 year'")
		purge := func(tenant string, keep time.Duration, want int, workers ...string) {
			t.Helper()
			if n, err := db.Purge(t.Context(), tenant, workers, keep); err != nil || n != want {
				t.Errorf("purged %d of %s, want %d: %v", n, workers, want, err)
			}
		}
		purge("t", 60*day, 0)
		purge("t", 14*day, 0, "nobody", "", "mail.nobody")
		purge("t", 14*day, 30, "files")               // by the name of its module; 50 are kept
		purge("t", 14*day, 1490+30, "mailer", "mail") // the newest 10 and 30 of the urgent lane, and 10 more; of what went wrong the newest 50
		purge("t", 14*day, 0)                         // nothing is left
		purge("u", 0, 30, "mail.mailer", "zip")       // by ref
		if j := getJob(t, db, live); j.State != job.Ready {
			t.Errorf("live %+v", j)
		}
		var failed, cancelled int
		db.Scan("SELECT count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'cancelled') FROM carillon.job_history", nil, &failed, &cancelled)
		if failed != 40 || cancelled != 10 {
			t.Errorf("%d failed, %d cancelled are kept", failed, cancelled)
		}
	})
}

func TestPurgeUsesItsIndex(t *testing.T) {
	db := storetest.Open(t, "")
	q, other := putQueue(t, db, "t", "mail.mailer", 2), putQueue(t, db, "u", "mail.mailer", 2)
	fillHistory(db, q, 0, "succeeded", 5000, 30*24*time.Hour)
	fillHistory(db, other, 0, "succeeded", 100_000, 30*24*time.Hour)
	for name, plan := range map[string]string{
		"find": explain(t, db, `SELECT e.created_at, e.id, e.ended_at FROM carillon.job_history e
			WHERE e.queue_id = $1 AND e.state = 'succeeded' AND e.envelope IS NOT NULL AND e.created_at < now() AND (e.created_at, e.id) < (now(), 1::bigint)
			  AND (e.created_at, e.id) > ('-infinity', 0) ORDER BY e.created_at, e.id LIMIT 1000`, q.ID),
		"drop": explain(t, db, `DELETE FROM carillon.job_history h
			USING (SELECT unnest(ARRAY(SELECT id FROM carillon.job_history ORDER BY id LIMIT 1000)) AS id, unnest(ARRAY(SELECT ended_at FROM carillon.job_history ORDER BY id LIMIT 1000)) AS ended_at) a
			WHERE h.id = a.id AND h.ended_at = a.ended_at AND h.ended_at >= now() - interval '1 year' AND h.ended_at <= now()`),
	} {
		if strings.Contains(plan, "Seq Scan on job_history_default") || name == "find" && !strings.Contains(plan, "queue_id_state_created_at_id") {
			t.Errorf("%s: %s", name, plan)
		}
	}
	begin := time.Now()
	if n, err := db.Purge(t.Context(), "t", nil, time.Hour); err != nil || n != 4950 {
		t.Errorf("purged %d, %v", n, err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestListQueueJobs(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		mail, urgent, zip := putQueue(t, db, "t", "mail.mailer", 2), putQueue(t, db, "t", "mail.mailer", 4), putQueue(t, db, "t", "files.zip", 2)
		putQueue(t, db, "u", "mail.mailer", 2)
		want := map[string]int{"": 25, "mailer": 20, "mail": 20, "mail.mailer": 20, "files.zip": 5, "zip": 5, "files": 5, "nobody": 0, "mail.nobody": 0}
		ids := append(append(ready(t, db, mail, 10), ready(t, db, urgent, 10)...), ready(t, db, zip, 5)...)
		claimAll(t, db, ids[3], ids[12])
		for worker, n := range want {
			seen := map[job.ID]bool{}
			for after := (job.Cursor{}); ; {
				jobs, more, err := db.ListQueueJobs(t.Context(), "t", worker, after, 4)
				if err != nil || more && len(jobs) != 4 {
					t.Fatalf("%d jobs, more %v, %v", len(jobs), more, err)
				}
				for _, j := range jobs {
					if seen[j.ID] || j.Due.Before(after.Due) || len(j.Payload) == 0 {
						t.Errorf("job %+v after %+v", j, after)
					}
					seen[j.ID] = true
					after = job.Cursor{Due: j.Due, ID: j.N}
				}
				if !more {
					break
				}
			}
			if len(seen) != n {
				t.Errorf("worker %q has %d jobs, want %d", worker, len(seen), n)
			}
		}
		large := aJob(mail)
		large.Payload = []byte(`"` + strings.Repeat("x", 900_000) + `"`)
		for range 30 {
			enqueue(t, db, large)
		}
		jobs, more, err := db.ListQueueJobs(t.Context(), "t", "mailer", job.Cursor{}, 200)
		if err != nil || !more || len(jobs) >= 50 || len(jobs) < 20 {
			t.Errorf("%d jobs in a page of large ones, more %v, %v", len(jobs), more, err)
		}
	})
}
