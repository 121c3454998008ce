package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

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

func TestTakeRate(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	take := func(worker string) trigger.Ruling {
		r, err := db.TakeRate(t.Context(), "t", "d", "m."+worker)
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
	take("webhook")
	var uses int
	db.Scan("SELECT count FROM carillon.rate_limits WHERE kind = 'push'", nil, &uses)
	if err := db.GiveBackRate(t.Context(), "t", "d", "push.any"); err != nil {
		t.Fatal(err)
	}
	db.Exec("INSERT INTO carillon.rate_limits (tenant, domain, kind, opened_at, count) VALUES ('t', 'd', 'notes', now() - interval '61 minutes', 7), ('t', 'e', 'push', now(), 0)")
	for _, other := range [][2]string{{"d", "m.notes"}, {"e", "m.push"}, {"d", "m.anything"}, {"d", "m.webhook"}} { // over, nothing counted, none, none
		if err := db.GiveBackRate(t.Context(), "t", other[0], other[1]); err != nil {
			t.Fatal(err)
		}
	}
	var all string
	db.Scan("SELECT string_agg(domain || ' ' || kind || ' ' || count, ', ' ORDER BY domain, kind) FROM carillon.rate_limits", nil, &all)
	if want := fmt.Sprintf("d notes 7, d push %d, e push 0", uses-1); all != want {
		t.Errorf("given back: %s, want %s", all, want)
	}
	db.Exec("DELETE FROM carillon.rate_limits WHERE kind = 'notes'")
	take("zip")
	db.Exec("UPDATE carillon.rate_limits SET opened_at = now() - interval '3 hours' WHERE kind = 'zip'")
	if n, err := db.DropIdleRates(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("dropped %d, %v", n, err)
	}
}
