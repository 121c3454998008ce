package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/schedule"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

// newTrigger is one of worker mailer, the verb mail.mailer, in tenant t.
func newTrigger(kind trigger.Kind, arguments string, change ...func(*trigger.Trigger)) trigger.Trigger {
	t := trigger.Trigger{
		Tenant: "t", Domain: "alice.example", Kind: kind, Arguments: arguments, Worker: "mailer", Ref: "mail.mailer", Priority: 700,
		Retry: job.Retry{Attempts: 3, Backoff: 10 * time.Second, Ceiling: time.Hour}, Timeout: time.Minute,
		Message: []byte(`{"to": "bob"}`), Options: json.RawMessage(`{"priority": 70, "odd": null}`), CreatedBy: "app",
	}
	for _, c := range change {
		c(&t)
	}
	return t
}

func create(t *testing.T, db storetest.DB, want trigger.Trigger) trigger.Trigger {
	t.Helper()
	made, err := db.CreateTrigger(t.Context(), want, "")
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// dueClaim is what a scheduler claims of a trigger's row at the database's time.
func dueClaim(t *testing.T, db storetest.DB, id int64) cron.Claim {
	t.Helper()
	row := get(t, db, id)
	sched, err := schedule.ParseText(row.Schedule, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := cron.Decide(row, sched, db.Now())
	if d.IsZero() {
		t.Fatalf("nothing of %+v is due", row)
	}
	return d.Claim(row, newRun())
}

// rewind makes a trigger's next slot lie in the past, and an interval count from further back.
func rewind(db storetest.DB, tr trigger.Trigger, by time.Duration) {
	text := tr.Timetable
	if every, from, ok := strings.Cut(text, " from "); ok {
		start, _ := time.Parse(time.RFC3339, from)
		text = every + " from " + start.Add(-by).Format(time.RFC3339)
	}
	db.Exec("UPDATE carillon.cron_jobs SET next_execution = next_execution - $2::interval, version = version + 1, schedule = $3 WHERE id = $1", tr.CronJob, by.String(), text)
}

func envelope(t *testing.T, raw []byte) (e trigger.Envelope) {
	t.Helper()
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatalf("envelope %q: %v", raw, err)
	}
	return e
}

func TestATriggerOfTheClock(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		before := db.Now()
		want := newTrigger(trigger.Every, "90s")
		made := create(t, db, want)
		if len(made.Key) != 32 || made.Rev != 1 || made.CronJob == 0 || !made.PausedAt.IsZero() || made.CreatedAt.Before(before) {
			t.Errorf("made %+v", made)
		}
		if first := made.CreatedAt.Truncate(time.Second).Add(90 * time.Second); !made.Next.Equal(first) {
			t.Errorf("created %v, first %v", made.CreatedAt, made.Next)
		}
		row := get(t, db, made.CronJob)
		if row.Ref != "@"+made.Key || !row.Fires || !row.Enabled || row.Limited || row.Trigger != made.ID || row.Overlap != cron.OverlapAllow ||
			row.Catchup != cron.CatchupLast || row.Timeout != time.Minute || row.Retry.Attempts != 3 || row.Deployment != "" {
			t.Errorf("row %+v", row)
		}
		if listed := false; true {
			_, err := db.ListShards(t.Context(), []int32{row.Shard}, func(jobs []cron.Job) error {
				listed = len(jobs) == 1 && jobs[0].ID == row.ID
				return nil
			})
			if err != nil || !listed {
				t.Errorf("its shard does not list it: %v", err)
			}
		}

		rewind(db, made, 24*time.Hour) // all missed slots are one firing
		c := dueClaim(t, db, made.CronJob)
		fired := fire(t, db, c)
		if len(fired) != 1 || fired[0].Made.N == 0 || !fired[0].Due.IsZero() || c.Skip.Count < 900 {
			t.Fatalf("claim %+v, fired %+v", c, fired)
		}
		j := getJob(t, db, job.ID(fired[0].Made))
		if j.Tenant != "t" || j.Ref != "mail.mailer" || j.Priority != 700 || string(j.Payload) != `{"to": "bob"}` || j.Timeout != time.Minute ||
			j.Retry != want.Retry || j.TriggerID != made.ID || !j.Slot.Equal(c.Slot) {
			t.Errorf("job %+v", j)
		}
		e := envelope(t, j.Envelope)
		if e.Trigger != made.Key || e.Kind != trigger.Every || e.Domain != "alice.example" || e.Worker != "mailer" || e.Manual || string(e.Options) != `{"odd": null, "priority": 70}` {
			t.Errorf("envelope %s", j.Envelope)
		}
		if runs := history(t, db, made.CronJob); len(runs) != 2 || runs[0].Verdict != cron.Fired || runs[1].Verdict != cron.SkippedMissed {
			t.Errorf("ledger %+v", runs)
		}
		runs, err := db.ListRuns(t.Context(), cron.RunFilter{Ref: "@" + made.Key}, cron.RunCursor{}, 10)
		if err != nil || len(runs) != 2 {
			t.Errorf("runs %+v, %v", runs, err)
		}
		if again, err := db.GetTrigger(t.Context(), "t", made.Key); err != nil || !again.Next.After(db.Now().Add(-time.Second)) {
			t.Errorf("afterwards %+v, %v", again, err)
		}
		run := claimJob(t, db, fired[0].Made)
		db.Exec("UPDATE carillon.jobs SET envelope = envelope || '{\"event\": {\"verb\": \"CREATED\"}}'")
		finish(t, db, endOf(job.Claimed{ID: j.ID, Run: run, Attempt: 1}, succeeded))
		if ended := getJob(t, db, j.ID); ended.TriggerID != made.ID || envelope(t, ended.Envelope).Event != nil || envelope(t, ended.Envelope).Trigger != made.Key {
			t.Errorf("ended %+v %s", ended, ended.Envelope)
		}
	})
}

func TestATriggerThatFiresOnceIsGoneThen(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		for _, made := range []trigger.Trigger{
			create(t, db, newTrigger(trigger.At, "2001-02-03T04:05:06.789+05:30")), // overdue: fires at once
			create(t, db, newTrigger(trigger.In, "1ms")),
		} {
			waitFor(t, func() bool { return db.Now().After(made.Next) })
			if made.Kind == trigger.At && !made.Next.Equal(time.Date(2001, 2, 2, 22, 35, 6, 789e6, time.UTC)) {
				t.Errorf("first slot %v", made.Next)
			}
			c := dueClaim(t, db, made.CronJob)
			if !c.Next.IsZero() || !c.Skip.IsZero() {
				t.Errorf("claim %+v", c)
			}
			fired := fire(t, db, c)
			if len(fired) != 1 || getJob(t, db, job.ID(fired[0].Made)).TriggerID != made.ID {
				t.Fatalf("fired %+v", fired)
			}
			if _, err := db.GetTrigger(t.Context(), "t", made.Key); !errors.Is(err, cron.ErrNotFound) {
				t.Errorf("it is still there: %v", err)
			}
			if row := get(t, db, made.CronJob); row.Enabled || row.RemovedAt.IsZero() || !row.Next.IsZero() {
				t.Errorf("row %+v", row)
			}
			if found, err := db.LookupFired(t.Context(), []cron.Claim{c}); err != nil || len(found) != 1 || found[0].Made != fired[0].Made {
				t.Errorf("looked up %+v, %v", found, err)
			}
			if again := fire(t, db, c); len(again) != 0 {
				t.Errorf("fired again: %+v", again)
			}
			if jobs, err := db.ListTriggerJobs(t.Context(), made.ID, 50); err != nil || len(jobs) != 1 {
				t.Errorf("jobs %+v, %v", jobs, err)
			}
		}
		if n, err := db.ForgetTriggers(t.Context(), time.Hour); err != nil || n != 0 {
			t.Errorf("forgot %d, %v", n, err)
		}
		if n, err := db.ForgetTriggers(t.Context(), 0); err != nil || n != 2 {
			t.Errorf("forgot %d, %v", n, err)
		}
		var rows, ledger int
		db.Scan("SELECT (SELECT count(*) FROM carillon.cron_jobs), (SELECT count(*) FROM carillon.runs)", nil, &rows, &ledger)
		if rows != 0 || ledger != 2 {
			t.Errorf("%d rows, %d in the ledger", rows, ledger)
		}
	})
}

// A slot that the ledger has already, by hand or by a restored backup, ends a trigger that fires once.
func TestADecidedInstantEndsItsTrigger(t *testing.T) {
	db := storetest.Open(t, "")
	made := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z"))
	other := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z"))
	db.Exec("INSERT INTO carillon.runs (cron_job_id, slot, slot_to, verdict, ended_at, run_id) VALUES ($1, $2, $2, 'lost', now(), gen_random_uuid())", made.CronJob, made.Next)
	fired := fire(t, db, dueClaim(t, db, made.CronJob), dueClaim(t, db, other.CronJob))
	if len(fired) != 1 || fired[0].JobID != other.CronJob {
		t.Errorf("fired %+v", fired)
	}
	if _, err := db.GetTrigger(t.Context(), "", made.Key); !errors.Is(err, cron.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}
}

// Several claimers of the same rows: one job per trigger and slot, whoever wins.
func TestOneJobPerTriggerAndSlot(t *testing.T) {
	db := storetest.Open(t, "")
	var ids []int64
	for i := range 40 {
		made := create(t, db, newTrigger(trigger.Every, "1s", func(tr *trigger.Trigger) {
			if i%2 == 0 {
				tr.Ref = "m.push" // limited: the other path
			}
		}))
		rewind(db, made, 10*time.Second)
		ids = append(ids, made.CronJob)
	}
	for range 20 {
		once := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z"))
		ids = append(ids, once.CronJob)
	}
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for range 30 {
				var claims []cron.Claim
				jobs, now, err := db.GetCronJobs(t.Context(), ids)
				if err != nil {
					t.Error(err)
					return
				}
				for _, row := range jobs {
					sched, _ := schedule.ParseText(row.Schedule, nil)
					row.Catchup = cron.CatchupAll // a slot at a time
					if d := cron.Decide(row, sched, now); !d.IsZero() {
						claims = append(claims, d.Claim(row, newRun()))
					}
				}
				if _, err := db.FireCronJobs(t.Context(), fmt.Sprintf("c%d", c), claims); err != nil && !errors.Is(err, cron.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var jobs, slots, fired, onces, deleted, late int
	db.Scan(`SELECT count(*), count(DISTINCT (trigger_id, slot)), (SELECT count(*) FROM carillon.runs WHERE verdict = 'fired'),
		count(*) FILTER (WHERE envelope->>'kind' = '@at'), (SELECT count(*) FROM carillon.triggers WHERE deleted_at IS NOT NULL),
		count(*) FILTER (WHERE due_at > now() + interval '30 minutes') FROM carillon.jobs`, nil, &jobs, &slots, &fired, &onces, &deleted, &late)
	if jobs != slots || jobs != fired || onces != 20 || deleted != 20 || jobs < 20+40*9 {
		t.Errorf("%d jobs of %d slots, %d fired, %d of instants, %d deleted", jobs, slots, fired, onces, deleted)
	}
	limit, _ := trigger.LimitOf("push")
	var pushed int
	db.Scan("SELECT count(*) FROM carillon.jobs j JOIN carillon.triggers t ON t.id = j.trigger_id WHERE t.ref = 'm.push'", nil, &pushed)
	if late != pushed-limit {
		t.Errorf("%d of %d put off, %d are allowed", late, pushed, limit)
	}
	if wrong, err := db.FindOverlaps(t.Context(), db.Now().Add(-time.Hour)); err != nil || len(wrong) != 0 {
		t.Errorf("overlaps %v, %v", wrong, err)
	}
}

func TestFiringsOverTheLimitArePutOff(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		limit, _ := trigger.LimitOf("push")
		fireOne := func(domain string) cron.Firing {
			made := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z", func(tr *trigger.Trigger) { tr.Worker, tr.Ref, tr.Domain = "an alias", "m.push", domain }))
			if !get(t, db, made.CronJob).Limited {
				t.Fatal("its row is not limited")
			}
			return fire(t, db, dueClaim(t, db, made.CronJob))[0]
		}
		db.Exec("INSERT INTO carillon.rate_limits (tenant, domain, kind, opened_at, count) VALUES ('t', 'a', 'push', now() - interval '20 minutes', $1)", limit-1)
		if f := fireOne("a"); !f.Due.IsZero() {
			t.Errorf("the last one is put off to %v", f.Due)
		}
		f := fireOne("a")
		if wait := f.Due.Sub(db.Now()); wait < 39*time.Minute || wait > 40*time.Minute || !getJob(t, db, job.ID(f.Made)).Due.Equal(f.Due) {
			t.Errorf("put off by %v: %+v", wait, f)
		}
		if f := fireOne("b"); !f.Due.IsZero() {
			t.Errorf("another domain is put off: %+v", f)
		}
		db.Exec("UPDATE carillon.rate_limits SET opened_at = now() - interval '61 minutes'")
		if f := fireOne("a"); !f.Due.IsZero() {
			t.Errorf("the next window is not open: %+v", f)
		}
		var count int
		db.Scan("SELECT count FROM carillon.rate_limits WHERE domain = 'a'", nil, &count)
		if count != 1 {
			t.Errorf("the window has counted %d", count)
		}
		// A claim that does not know of the limit does not win.
		made := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z", func(tr *trigger.Trigger) { tr.Ref = "push.any" }))
		c := dueClaim(t, db, made.CronJob)
		c.Limited = false
		if fired := fire(t, db, c); len(fired) != 0 {
			t.Errorf("fired %+v", fired)
		}
	})
}

// 5,000 triggers that are due in the same second, in batches as two lanes of a scheduler send them.
func TestAHerdOfTriggersFires(t *testing.T) {
	db := storetest.Open(t, "")
	const herd, batch = 5000, 250
	first := create(t, db, newTrigger(trigger.Every, "1h"))
	db.Exec(`INSERT INTO carillon.triggers (key, tenant, kind, worker, ref, queue_id, priority, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, message, options)
		SELECT md5(n::text), 't', '@every', worker, ref, queue_id, priority, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, message, options
		FROM carillon.triggers, generate_series(2, $1::int) n`, herd)
	db.Exec(`INSERT INTO carillon.cron_jobs (trigger_id, ref, shard, schedule, timeout_ms, overlap, enabled, next_execution, fires, queue_id)
		SELECT id, '@' || key, id % 1021, '@every 1h from 2026-01-01T00:00:00Z', timeout_ms, 'allow', true, now(), true, queue_id FROM carillon.triggers WHERE id <> $1`, first.ID)
	db.Exec("UPDATE carillon.cron_jobs SET next_execution = '2026-11-01T12:00:00Z', schedule = '@every 1h from 2026-01-01T00:00:00Z', version = version + 1")
	db.Exec("ANALYZE carillon.triggers, carillon.cron_jobs")
	var claims []cron.Claim
	for id := range int64(herd) {
		slot := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
		claims = append(claims, cron.Claim{JobID: first.CronJob + id, Version: 1, Expected: slot, Slot: slot, Next: slot.Add(time.Hour), RunID: newRun(), Fires: true})
	}
	db.Exec("UPDATE carillon.cron_jobs SET version = 1")
	begin := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	fired := 0
	for lane := range 2 {
		wg.Go(func() {
			for i := lane * batch; i < herd; i += 2 * batch {
				won, err := db.FireCronJobs(t.Context(), "c1", claims[i:i+batch])
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				fired += len(won)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	var jobs, carried int
	db.Scan("SELECT count(*), count(*) FILTER (WHERE envelope->>'worker' = 'mailer' AND payload = $1) FROM carillon.jobs", []any{first.Message}, &jobs, &carried)
	if fired != herd || jobs != herd || carried != herd || took > 10*time.Second {
		t.Errorf("%d fired, %d jobs, %d with what they carry, in %v", fired, jobs, carried, took)
	}
	t.Logf("%d firings in %v", fired, took)
}
