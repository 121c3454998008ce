package store_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/schedule"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
	"carillon/integration/cozycases"
)

// conformance are the cases of the list that are about rows and what becomes of them, by area and id. Each has a database.
var conformance = map[string]map[string]func(t *testing.T, db storetest.DB, c cozycases.Case){
	"next-run/at": {"cz-181": overdueInstant, "cz-184": firesOnce},
	"next-run/in": {"cz-185": firesOnce, "cz-186d": keptInstant},
	"job-state":   {"cz-292": takenJob, "cz-293": doneJob, "cz-295d": restingJob},
	"scheduler": {
		"cz-301": mergedSlots, "cz-303d": oneJobOfTwo, "cz-304d": limitedCron, "cz-306d": limitedInstant, "cz-305d": firesForNobody,
	},
	"queue-crash": {"cz-451d": diedAfterTheClaim},
}

func TestConformance(t *testing.T) {
	for area, runs := range conformance {
		found := cozycases.Cases(t, area)
		if len(found) != len(runs) {
			t.Errorf("%s: got %d cases, want %d", area, len(found), len(runs))
		}
		for _, c := range found {
			t.Run(area+"/"+c.ID, func(t *testing.T) {
				run := runs[c.ID]
				if run == nil {
					t.Fatal("nobody runs it")
				}
				t.Parallel()
				run(t, storetest.Open(t, "America/New_York"), c)
			})
		}
	}
}

// ofWorker gives a trigger another worker, which is a verb of that name, and the domain a.
func ofWorker(worker string) func(*trigger.Trigger) {
	return func(tr *trigger.Trigger) { tr.Worker, tr.Ref, tr.Domain = worker, "m."+worker, "a" }
}

// gone demands that a trigger is not found any more, and has made one job; again is a claim that was won already.
func gone(t *testing.T, db storetest.DB, tr trigger.Trigger, again cron.Claim) {
	t.Helper()
	if more := fire(t, db, again); len(more) != 0 {
		t.Errorf("fired again: %+v", more)
	}
	if _, err := db.GetTrigger(t.Context(), tr.Tenant, tr.Key); !errors.Is(err, cron.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}
	if jobs, err := db.ListTriggerJobs(t.Context(), tr.ID, 10); err != nil || len(jobs) != 1 {
		t.Errorf("made %+v, %v; want one job", jobs, err)
	}
	if row := get(t, db, tr.CronJob); row.Enabled || !row.Next.IsZero() {
		t.Errorf("its row goes on: %+v", row)
	}
}

func overdueInstant(t *testing.T, db storetest.DB, c cozycases.Case) {
	ago, err := time.ParseDuration(strings.ReplaceAll(strings.TrimSuffix(c.Input["due"].(string), " ago"), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	tr := create(t, db, newTrigger(trigger.At, db.Now().Add(-ago).Format(time.RFC3339)))
	claim := dueClaim(t, db, tr.CronJob) // at once
	if fired := fire(t, db, claim); len(fired) != 1 {
		t.Fatalf("fired %+v", fired)
	}
	gone(t, db, tr, claim)
}

func firesOnce(t *testing.T, db storetest.DB, c cozycases.Case) {
	kind, arguments := trigger.Kind(c.Input["type"].(string)), ""
	if due, ok := c.Input["due"].(string); ok {
		after, err := time.ParseDuration(strings.TrimPrefix(due, "now+"))
		if err != nil {
			t.Fatal(err)
		}
		arguments = db.Now().Add(after).Format(time.RFC3339Nano)
	} else {
		arguments = c.Input["arguments"].(string)
	}
	tr := create(t, db, newTrigger(kind, arguments))
	row := get(t, db, tr.CronJob)
	early := cron.Claim{JobID: row.ID, Version: row.Version, Expected: row.Next, Slot: row.Next, RunID: newRun(), Fires: true}
	if fired := fire(t, db, early); len(fired) != 0 {
		t.Errorf("fired before its time: %+v", fired)
	}
	waitFor(t, func() bool { return !db.Now().Before(tr.Next) })
	claim := dueClaim(t, db, tr.CronJob)
	if fired := fire(t, db, claim); len(fired) != 1 {
		t.Fatalf("fired %+v", fired)
	}
	gone(t, db, tr, claim)
}

// keptInstant: who starts later reads the row, and finds the same instant.
func keptInstant(t *testing.T, db storetest.DB, c cozycases.Case) {
	delay, err := time.ParseDuration(c.Input["arguments"].(string))
	if err != nil {
		t.Fatal(err)
	}
	tr := create(t, db, newTrigger(trigger.In, c.Input["arguments"].(string)))
	row := get(t, db, tr.CronJob)
	sched, err := schedule.ParseText(row.Schedule, nil)
	if err != nil {
		t.Fatal(err)
	}
	due := tr.CreatedAt.Add(delay)
	if !row.Next.Equal(due) {
		t.Errorf("due at %v, created at %v", row.Next, tr.CreatedAt)
	}
	after := tr.CreatedAt.Add(9 * time.Minute)
	if mended, moved := cron.TooFar(row, sched, after); moved {
		t.Errorf("a reset moves it to %v", mended)
	}
	if d := cron.Decide(row, sched, after); !d.IsZero() {
		t.Errorf("after nine minutes: %+v", d)
	}
	if d := cron.Decide(row, sched, due); !d.Slot.Equal(due) || !d.Next.IsZero() {
		t.Errorf("at its time: %+v", d)
	}
}

// withEvent enqueues a job of a trigger that carries what an event and a delivery bring.
func withEvent(t *testing.T, db storetest.DB) (trigger.Trigger, job.ID) {
	t.Helper()
	q := putQueue(t, db, "t", "mail.mailer", 2)
	tr := create(t, db, newTrigger(trigger.Client, ""))
	e := triggered(q, tr, false)
	e.Envelope, _ = json.Marshal(trigger.Envelope{Trigger: tr.Key, Kind: tr.Kind, Event: json.RawMessage(`{"verb": "CREATED"}`), Payload: json.RawMessage(`{"a": 1}`)})
	return tr, enqueue(t, db, e)[0].ID
}

// shown demands the state that a trigger's newest job is shown with.
func shown(t *testing.T, db storetest.DB, tr trigger.Trigger, c cozycases.Case) {
	t.Helper()
	want, _, _ := strings.Cut(c.Expected["state"].(string), " ")
	if all, err := db.TriggerStates(t.Context(), []int64{tr.ID}); err != nil || string(all[tr.ID].Status) != want {
		t.Errorf("shown as %+v, %v; want %s", all[tr.ID], err, want)
	}
}

func takenJob(t *testing.T, db storetest.DB, c cozycases.Case) {
	tr, id := withEvent(t, db)
	before := db.Now()
	claimAll(t, db, id)
	shown(t, db, tr, c)
	if j := getJob(t, db, id); j.State != job.Running || j.Started.Before(before) || j.Started.After(db.Now()) {
		t.Errorf("since %v: %+v", before, j)
	}
}

func doneJob(t *testing.T, db storetest.DB, c cozycases.Case) {
	tr, id := withEvent(t, db)
	if e := envelope(t, getJob(t, db, id).Envelope); e.Event == nil || e.Payload == nil {
		t.Fatalf("it waits with %+v", e)
	}
	won := claimAll(t, db, id)
	before := db.Now()
	finish(t, db, endOf(won[0], succeeded))
	shown(t, db, tr, c)
	j := getJob(t, db, id)
	if e := envelope(t, j.Envelope); j.State != job.Succeeded || j.Ended.Before(before) || j.Ended.After(db.Now()) || e.Event != nil || e.Payload != nil {
		t.Errorf("since %v: %+v with %s", before, j, j.Envelope)
	}
}

func restingJob(t *testing.T, db storetest.DB, c cozycases.Case) {
	tr, id := withEvent(t, db)
	won := claimAll(t, db, id)
	before := db.Now()
	end := endOf(won[0], failed)
	retry(t, db, end)
	shown(t, db, tr, c)
	j := getJob(t, db, id)
	if j.Attempt != 1 || end.Step.Delay <= 0 || j.Due.Before(before.Add(end.Step.Delay)) || j.Due.After(db.Now().Add(end.Step.Delay)) {
		t.Errorf("%v after %v: %+v", end.Step.Delay, before, j)
	}
	if again := claimAll(t, db, id); len(again) != 0 {
		t.Errorf("it is executed before it is due: %+v", again)
	}
}

func mergedSlots(t *testing.T, db storetest.DB, c cozycases.Case) {
	tr := create(t, db, newTrigger(trigger.Cron, "0 * * * * *"))
	rewind(db, tr, time.Hour)
	now := db.Now()
	decideAll(t, db, tr.CronJob, now)
	if jobs, err := db.ListTriggerJobs(t.Context(), tr.ID, 100); err != nil || len(jobs) != int(c.Expected["jobs on recovery"].(float64)) {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	if next, want := get(t, db, tr.CronJob).Next, now.Truncate(time.Minute).Add(time.Minute); !next.Equal(want) {
		t.Errorf("goes on at %v, want %v", next, want)
	}
}

// oneJobOfTwo: both have read the same due row before either claims it.
func oneJobOfTwo(t *testing.T, db storetest.DB, c cozycases.Case) {
	tr := create(t, db, newTrigger(trigger.Every, "1m"))
	rewind(db, tr, 71*time.Second)
	var wg sync.WaitGroup
	var fired [2][]cron.Firing
	claims := [2]cron.Claim{dueClaim(t, db, tr.CronJob), dueClaim(t, db, tr.CronJob)}
	begin := make(chan struct{})
	for i := range claims {
		wg.Go(func() {
			<-begin
			var err error
			if fired[i], err = db.FireCronJobs(t.Context(), []string{"c1", "c2"}[i], claims[i:i+1]); err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	wg.Wait()
	want := int(c.Expected["fired"].(float64))
	if jobs, err := db.ListTriggerJobs(t.Context(), tr.ID, 10); err != nil || len(jobs) != want || len(fired[0])+len(fired[1]) != want {
		t.Errorf("%d jobs, %+v, %v", len(jobs), fired, err)
	}
}

// overLimit fires a trigger whose limit is used up, in a window that began 20 minutes ago.
func overLimit(t *testing.T, db storetest.DB, tr trigger.Trigger) cron.Claim {
	t.Helper()
	limit, _ := trigger.LimitOf("push")
	db.Exec("INSERT INTO carillon.rate_limits (tenant, domain, kind, opened_at, count) VALUES ($1, 'a', 'push', now() - interval '20 minutes', $2)", tr.Tenant, limit)
	claim := dueClaim(t, db, tr.CronJob)
	fired := fire(t, db, claim)
	if len(fired) != 1 {
		t.Fatalf("fired %+v", fired)
	}
	var opens time.Time
	db.Scan("SELECT opened_at + interval '1 hour' FROM carillon.rate_limits", nil, &opens)
	if j := getJob(t, db, job.ID(fired[0].Made)); j.State != job.Ready || !j.Due.Equal(opens) {
		t.Errorf("due at %v, the window opens at %v: %+v", j.Due, opens, j)
	}
	return claim
}

func limitedCron(t *testing.T, db storetest.DB, _ cozycases.Case) {
	tr := create(t, db, newTrigger(trigger.Cron, "0 * * * * *", ofWorker("push")))
	rewind(db, tr, time.Minute)
	claim := overLimit(t, db, tr)
	if row := get(t, db, tr.CronJob); !row.Enabled || !row.Next.Equal(claim.Next) || !row.Next.After(claim.Slot) {
		t.Errorf("goes on with %+v", row)
	}
}

func limitedInstant(t *testing.T, db storetest.DB, _ cozycases.Case) {
	tr := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z", ofWorker("push")))
	gone(t, db, tr, overLimit(t, db, tr))
}

// firesForNobody: no deployment has the verb; another trigger fires in the same batch.
func firesForNobody(t *testing.T, db storetest.DB, _ cozycases.Case) {
	db.Deploy(1, db.Now().Add(time.Hour))
	db.Exec(`UPDATE carillon.deployments SET min_replicas = 1, schema = E'module m\nverb v0() Unit\n'`)
	lost := create(t, db, newTrigger(trigger.Every, "1m", func(tr *trigger.Trigger) { tr.Worker, tr.Ref = "nobody", "m.nobody" }))
	other := create(t, db, newTrigger(trigger.Every, "1m", func(tr *trigger.Trigger) { tr.Worker, tr.Ref = "v0", "m.v0" }))
	rewind(db, lost, 90*time.Second)
	rewind(db, other, 90*time.Second)
	bad, good := dueClaim(t, db, lost.CronJob), dueClaim(t, db, other.CronJob)
	fire(t, db, bad, good)
	for _, want := range []struct {
		tr    trigger.Trigger
		error string
		next  time.Time
	}{{lost, "jobs: could not find worker", bad.Next}, {other, "", good.Next}} {
		got, err := db.GetTrigger(t.Context(), want.tr.Tenant, want.tr.Key)
		if err != nil || got.LastError != want.error {
			t.Errorf("%s: last error %q, %v", want.tr.Worker, got.LastError, err)
		}
		if row := get(t, db, want.tr.CronJob); !row.Enabled || !row.Next.Equal(want.next) {
			t.Errorf("%s: goes on with %+v", want.tr.Worker, row)
		}
	}
	if jobs, err := db.ListTriggerJobs(t.Context(), other.ID, 10); err != nil || len(jobs) != 1 {
		t.Errorf("the other one has made %+v, %v", jobs, err)
	}
}

// diedAfterTheClaim: who finds the job of a controller that is silent frees it, and the next claim is one execution more.
func diedAfterTheClaim(t *testing.T, db storetest.DB, _ cozycases.Case) {
	q := putQueue(t, db, "t", "m.v", 2)
	id := ready(t, db, q, 1)[0]
	first := claimAll(t, db, id)[0] // by c1
	for _, key := range []string{"sweeper", "c1"} {
		db.Controller(key, time.Minute)
	}
	if lost, err := db.FindLostJobs(t.Context(), "sweeper", lease, silence, 10); err != nil || len(lost) != 0 {
		t.Fatalf("lost while its controller beats: %+v, %v", lost, err)
	}
	db.Exec("UPDATE carillon.controllers SET heartbeat_at = now() - interval '7 seconds' WHERE key = 'c1'")
	lost, err := db.FindLostJobs(t.Context(), "sweeper", lease, silence, 10)
	if err != nil || len(lost) != 1 || lost[0].ID != id {
		t.Fatalf("lost %+v, %v", lost, err)
	}
	retry(t, db, endOf(lost[0].Claimed, job.Outcome{Verdict: cron.Lost, Text: "controller c1 stopped"}))
	db.Exec("UPDATE carillon.jobs SET due_at = now()")
	won := claimAll(t, db, id)
	if len(won) != 1 || won[0].Attempt != first.Attempt+1 || won[0].Run == first.Run {
		t.Fatalf("after attempt %d: %+v", first.Attempt, won)
	}
	if late := finish(t, db, endOf(first, succeeded)); late[0].Accepted {
		t.Errorf("the end of the dead one's run: %+v", late)
	}
}
