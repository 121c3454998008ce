package store_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

// makeTrigger makes a trigger of tenant t that calls m.v.
func makeTrigger(t *testing.T, db storetest.DB, kind trigger.Kind, arguments string, change ...func(*trigger.Trigger)) trigger.Trigger {
	t.Helper()
	in := trigger.Trigger{
		Tenant: "t", Domain: "alice.example", Kind: kind, Arguments: arguments, Worker: "v", Ref: "m.v", Priority: 500, Retry: job.Retry{Attempts: 3, Backoff: 10 * time.Second, Ceiling: time.Hour},
		Timeout: time.Minute, Message: []byte(`{"hello":1}`),
	}
	for _, c := range change {
		c(&in)
	}
	out, err := db.CreateTrigger(t.Context(), in, "")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func debounced(d time.Duration) func(*trigger.Trigger) {
	return func(t *trigger.Trigger) { t.Debounce, t.DebounceFor = d.String(), d }
}

// worker makes jobs of a verb of this name, whatever its worker is called.
func worker(name string) func(*trigger.Trigger) {
	return func(t *trigger.Trigger) { t.Worker, t.Ref = "anything", "m."+name }
}

func publish(t *testing.T, db storetest.DB, changes ...trigger.Change) []int64 {
	t.Helper()
	ids, err := db.PublishEvents(t.Context(), "t", "", changes)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func created(doctype, doc string) trigger.Change {
	return trigger.Change{Type: doctype, Verb: trigger.Created, Doc: json.RawMessage(doc)}
}

func fetchEvents(t *testing.T, db storetest.DB) []trigger.Published {
	t.Helper()
	events, _, err := db.FetchEvents(t.Context(), allShards, 0, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// makeOf makes of events what these triggers say.
func makeOf(t *testing.T, db storetest.DB, ids []int64, triggers ...int64) trigger.Made {
	t.Helper()
	made, err := db.MakeOfEvents(t.Context(), matched(ids, triggers...))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func matched(ids []int64, triggers ...int64) (out []trigger.Matched) {
	for _, id := range ids {
		out = append(out, trigger.Matched{Event: id, Triggers: triggers})
	}
	return out
}

func envelopes(t *testing.T, db storetest.DB) (out []trigger.Envelope) {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), "SELECT envelope FROM carillon.jobs WHERE envelope IS NOT NULL ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var raw []byte
		var e trigger.Envelope
		if err := rows.Scan(&raw); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func countEvents(db storetest.DB) (n int) {
	db.Scan("SELECT count(*) FROM carillon.events", nil, &n)
	return n
}

func countJobs(db storetest.DB) (n int) {
	db.Scan("SELECT count(*) FROM carillon.jobs", nil, &n)
	return n
}

func TestEventsBecomeJobs(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := makeTrigger(t, db, trigger.Event, "io.cozy.files", func(t *trigger.Trigger) { t.Options, t.Priority = json.RawMessage(`{"priority": 80}`), 800 })
		other := makeTrigger(t, db, trigger.Event, "io.cozy.files", func(t *trigger.Trigger) { t.Domain = "" })
		change := trigger.Change{
			Type: "io.cozy.files", Verb: trigger.Updated, ID: "f1", Doc: json.RawMessage(`{"_id": "f1", "n": null, "x": "é"}`), Old: json.RawMessage(`{"n": 1}`),
			Path: "/foo/bar", OldPath: "/bar", Dirs: []trigger.Directory{{ID: "d1", Path: "/foo"}},
		}
		ids := publish(t, db, change, trigger.Change{Type: "a.b", Verb: trigger.Notified}, created("a.b", "null"))
		if len(ids) != 2 {
			t.Fatalf("ids %v", ids)
		}
		before := db.Now()
		got := fetchEvents(t, db)
		if len(got) != 2 || got[0].ID != ids[0] || got[1].ID != ids[1] || got[1].Doc != nil || got[0].At.After(before) || before.Sub(got[0].At) > time.Minute {
			t.Fatalf("events %+v", got)
		}
		e := got[0]
		if e.Tenant != "t" || e.Type != change.Type || e.Verb != change.Verb || e.ID != ids[0] || e.Change.ID != "f1" || e.Path != change.Path || e.OldPath != change.OldPath ||
			!slices.Equal(e.Dirs, change.Dirs) || len(e.Doc) == 0 || len(e.Old) == 0 {
			t.Errorf("event %+v", e)
		}
		if few, more, err := db.FetchEvents(t.Context(), []int32{int32(ids[1] % 1021)}, 0, 0, 1); err != nil || len(few) != 1 || few[0].ID != ids[1] || !more {
			t.Errorf("of one shard: %+v, %v, %v", few, more, err)
		}
		if old, _, err := db.FetchEvents(t.Context(), allShards, time.Hour, 0, 10); err != nil || len(old) != 0 {
			t.Errorf("old ones: %+v, %v", old, err)
		}
		made := makeOf(t, db, ids[:1], tr.ID, other.ID)
		if made.Taken != 1 || len(made.Jobs) != 2 || made.Closes != 0 || made.Jobs[0].Priority != 800 || made.Jobs[0].Due.Before(before) {
			t.Fatalf("made %+v", made)
		}
		j := claimAll(t, db, job.ID{N: made.Jobs[0].ID})[0]
		if j.Ref != "m.v" || j.Tenant != "t" || string(j.Payload) != `{"hello":1}` || j.Retry != tr.Retry || j.Timeout != time.Minute || j.TriggerID != tr.ID || j.ID.Salt == 0 {
			t.Errorf("job %+v", j)
		}
		var env trigger.Envelope
		if err := json.Unmarshal(j.Envelope, &env); err != nil {
			t.Fatal(err)
		}
		if env.Trigger != tr.Key || env.Kind != trigger.Event || env.Domain != "alice.example" || env.Worker != "v" || string(env.Options) != `{"priority": 80}` || env.Debounced {
			t.Errorf("envelope %s", j.Envelope)
		}
		var event struct {
			Verb string
			Doc  map[string]any
			Old  map[string]any
		}
		if err := json.Unmarshal(env.Event, &event); err != nil || event.Verb != "UPDATED" || event.Doc["x"] != "é" || event.Old["n"] != 1.0 {
			t.Errorf("event %s: %v", env.Event, err)
		}
		if _, there := event.Doc["n"]; !there {
			t.Error("a null field of the document is lost")
		}
		if all := envelopes(t, db); len(all) != 2 || all[1].Domain != "" || all[1].Options != nil {
			t.Errorf("envelopes %+v", all)
		}
		// What no trigger waits for is done with; what is gone makes nothing.
		if made := makeOf(t, db, ids); made.Taken != 1 || len(made.Jobs) != 0 || countEvents(db) != 0 {
			t.Errorf("made %+v", made)
		}
		if made := makeOf(t, db, ids, tr.ID); made.Taken != 0 || len(made.Jobs) != 0 {
			t.Errorf("again: %+v", made)
		}
	})
}

// Two that make of the same events make each one's jobs once; who waits is passed over.
func TestEventsAreMadeOnce(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := makeTrigger(t, db, trigger.Event, "a.b")
		var many []trigger.Change
		for range 300 {
			many = append(many, created("a.b", `{}`))
		}
		ids := publish(t, db, many...)
		var wg sync.WaitGroup
		var mu sync.Mutex
		taken, jobs := 0, 0
		for n := range 6 {
			wg.Go(func() {
				for at := 0; at < len(ids); at += 50 {
					part := slices.Clone(ids[at : at+50])
					if n%2 == 1 {
						slices.Reverse(part)
					}
					made, err := db.MakeOfEvents(context.Background(), matched(part, tr.ID))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					taken, jobs = taken+made.Taken, jobs+len(made.Jobs)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if taken != 300 || jobs != 300 || countEvents(db) != 0 || countJobs(db) != 300 {
			t.Errorf("taken %d, made %d; left %d events, %d jobs", taken, jobs, countEvents(db), countJobs(db))
		}
	})
}

// What somebody holds is passed over without waiting, and neighbours go on.
func TestHeldEventsArePassedOver(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	tr := makeTrigger(t, db, trigger.Event, "a.b")
	ids := publish(t, db, created("a.b", `{}`), created("a.b", `{}`))
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.events WHERE id = $1 FOR UPDATE", ids[0]); err != nil {
		t.Fatal(err)
	}
	if made := makeOf(t, db, ids, tr.ID); made.Taken != 1 || len(made.Jobs) != 1 {
		t.Errorf("made %+v", made)
	}
	tx.Rollback(t.Context())
	if made := makeOf(t, db, ids, tr.ID); made.Taken != 1 || len(made.Jobs) != 1 || countJobs(db) != 2 {
		t.Errorf("made %+v", made)
	}
}

// A controller that dies in the middle has lost and doubled nothing: its backend is ended while its transaction has
// removed events and waits before the commit.
func TestBrokenTransactionLosesNothing(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	plain, windowed := makeTrigger(t, db, trigger.Event, "a.b"), makeTrigger(t, db, trigger.Event, "a.b", debounced(time.Hour))
	limited := makeTrigger(t, db, trigger.Event, "a.b", worker("push"))
	ids := publish(t, db, created("a.b", `{}`), created("a.b", `{}`))
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	// Whoever makes of these events has to wait here: jobs and windows come before the limits, the removal after them.
	db.Exec("INSERT INTO carillon.rate_limits (tenant, domain, kind, count) VALUES ('t', 'alice.example', 'push', 0)")
	if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.rate_limits FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := db.MakeOfEvents(context.Background(), matched(ids, plain.ID, windowed.ID, limited.ID))
		done <- err
	}()
	var backend int
	waitFor(t, func() bool {
		return db.Pool.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&backend) == nil
	})
	db.Exec("SELECT pg_terminate_backend($1)", backend)
	if err := <-done; err == nil {
		t.Fatal("the transaction was not broken")
	}
	tx.Rollback(t.Context())
	var windows int
	db.Scan("SELECT count(*) FROM carillon.debounces", nil, &windows)
	if countEvents(db) != 2 || countJobs(db) != 0 || windows != 0 {
		t.Fatalf("%d events, %d jobs, %d windows", countEvents(db), countJobs(db), windows)
	}
	made := makeOf(t, db, ids, plain.ID, windowed.ID, limited.ID)
	db.Scan("SELECT count FROM carillon.debounces", nil, &windows)
	if made.Taken != 2 || len(made.Jobs) != 4 || windows != 2 || countEvents(db) != 0 {
		t.Errorf("made %+v, %d matches in the window", made, windows)
	}
}

// Who reads the epoch after an event sees every trigger that was committed before it.
func TestEpochCoversEarlierTriggers(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	ctx := t.Context()
	epoch := func() int64 {
		n, err := db.ReadEpoch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	changed := func(since int64) []trigger.EventTrigger {
		list, err := db.FetchEventTriggers(ctx, since)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	start := epoch()
	first := makeTrigger(t, db, trigger.Event, "a.b")
	makeTrigger(t, db, trigger.Webhook, "")
	second := makeTrigger(t, db, trigger.Event, "a.c:CREATED")
	if now := epoch(); now < start+2 {
		t.Errorf("epoch %d after two triggers, from %d", now, start)
	}
	if list := changed(-1); len(list) != 2 || list[0].ID != first.ID || list[1].Arguments != "a.c:CREATED" || list[1].Tenant != "t" || list[1].Epoch != epoch() {
		t.Errorf("all: %+v", list)
	}
	since := epoch()
	if list := changed(since); len(list) != 0 {
		t.Errorf("nothing changed: %+v", list)
	}
	if _, err := db.DeleteTrigger(ctx, "t", first.Key); err != nil {
		t.Fatal(err)
	}
	if list := changed(since); len(list) != 1 || list[0].ID != first.ID || !list[0].Gone || epoch() == since {
		t.Errorf("after the removal: %+v", list)
	}
	if list := changed(-1); len(list) != 1 || list[0].ID != second.ID {
		t.Errorf("all after the removal: %+v", list)
	}
	// A deleted trigger makes nothing, whoever still believes in it.
	if made := makeOf(t, db, publish(t, db, created("a.b", `{}`)), first.ID); made.Taken != 1 || len(made.Jobs) != 0 {
		t.Errorf("made %+v", made)
	}
	// Neither does one of another tenant.
	foreign := makeTrigger(t, db, trigger.Event, "a.b", func(t *trigger.Trigger) { t.Tenant = "other" })
	if made := makeOf(t, db, publish(t, db, created("a.b", `{}`)), foreign.ID); made.Taken != 1 || len(made.Jobs) != 0 {
		t.Errorf("made %+v", made)
	}
}

// Above the limit nothing is dropped: the jobs are due when the next hour of it begins.
func TestEventsAboveTheLimitAreLate(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := makeTrigger(t, db, trigger.Event, "a.b", worker("push")) // 30 an hour
		free := makeTrigger(t, db, trigger.Event, "a.b")
		var many []trigger.Change
		for range 20 {
			many = append(many, created("a.b", `{}`))
		}
		makeOf(t, db, publish(t, db, many...), tr.ID, free.ID)
		makeOf(t, db, publish(t, db, many...), tr.ID, free.ID)
		var now, late, freeLate int
		db.Scan("SELECT count(*) FILTER (WHERE j.due_at <= now()), count(*) FILTER (WHERE j.due_at = r.opened_at + interval '1 hour') FROM carillon.jobs j, carillon.rate_limits r WHERE trigger_id = $1",
			[]any{tr.ID}, &now, &late)
		db.Scan("SELECT count(*) FROM carillon.jobs WHERE trigger_id = $1 AND due_at > now()", []any{free.ID}, &freeLate)
		if now != 30 || late != 10 || freeLate != 0 {
			t.Errorf("%d now, %d later, %d of the other one late", now, late, freeLate)
		}
		db.Exec("UPDATE carillon.rate_limits SET opened_at = opened_at - interval '1 hour'")
		if made := makeOf(t, db, publish(t, db, many[0]), tr.ID); made.Jobs[0].Due.After(db.Now()) {
			t.Errorf("in the next hour: %+v", made)
		}
	})
}

// A trigger whose job the database refuses is left out, and says why; the others of the event, and other events, go on.
func TestRefusedJobHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	good, bad := makeTrigger(t, db, trigger.Event, "a.b"), makeTrigger(t, db, trigger.Event, "a.b", func(t *trigger.Trigger) { t.Priority = 7 })
	db.Exec("ALTER TABLE carillon.jobs ADD CHECK (priority <> 7)")
	ids := publish(t, db, created("a.b", `{}`), created("a.b", `{}`), created("a.b", `{}`))
	made, err := db.MakeOfEvents(t.Context(), []trigger.Matched{
		{Event: ids[0], Triggers: []int64{good.ID}}, {Event: ids[1], Triggers: []int64{good.ID, bad.ID}}, {Event: ids[2], Triggers: []int64{bad.ID}},
	})
	if err != nil || made.Taken != 3 || len(made.Jobs) != 2 || countEvents(db) != 0 {
		t.Errorf("made %+v, %v; %d events left", made, err, countEvents(db))
	}
	if tr, err := db.GetTrigger(t.Context(), "t", bad.Key); err != nil || !strings.Contains(tr.LastError, "check constraint") {
		t.Errorf("trigger %+v, %v", tr, err)
	}
}

// An event with very many triggers is made of in parts, each once.
func TestEventInParts(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	a, b := makeTrigger(t, db, trigger.Event, "a.b"), makeTrigger(t, db, trigger.Event, "a.b")
	id := publish(t, db, created("a.b", `{}`))[0]
	first, last := trigger.Matched{Event: id, Triggers: []int64{a.ID}, Upto: a.ID}, trigger.Matched{Event: id, After: a.ID, Triggers: []int64{b.ID}}
	for i, m := range []trigger.Matched{last, first, first, last, last} {
		made, err := db.MakeOfEvents(t.Context(), []trigger.Matched{m})
		if want := i == 1 || i == 3; err != nil || (made.Taken == 1) != want {
			t.Errorf("%d: %+v, %v", i, made, err)
		}
		if i == 2 {
			if got := fetchEvents(t, db); len(got) != 1 || got[0].Upto != a.ID {
				t.Errorf("event %+v", got)
			}
		}
	}
	if countJobs(db) != 2 || countEvents(db) != 0 {
		t.Errorf("%d jobs, %d events", countJobs(db), countEvents(db))
	}
}
