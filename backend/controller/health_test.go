package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/schema"
	"carillon/backend/engine/cluster"
	"carillon/backend/face/rpc"
	"carillon/backend/store"
	"carillon/backend/store/storetest"
)

// patient is a house whose parts do not run, so that nobody mends what the test spoils.
func patient(t *testing.T, db storetest.DB) *house {
	t.Helper()
	cfg := DefaultConfig()
	cfg.DatabaseURL = db.URL
	h := &house{cfg: cfg, key: "doctor", store: named{db.Store, "doctor", cfg.Timing}}
	var err error
	if h.cluster, err = cluster.New(cluster.Config{Key: "doctor", Endpoint: "http://doctor"}, beats{h.store}, newPeers("")); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDoctorFindsWhatMustNotBe(t *testing.T) {
	for name, c := range map[string]struct{ spoil, check string }{
		"nothing":                {"SELECT 1", ""},
		"due a little":           {"UPDATE carillon.cron_jobs SET next_execution = now() - interval '10 s'", ""},
		"overdue":                {"UPDATE carillon.cron_jobs SET next_execution = now() - interval '20 s' WHERE ref = 'm.v0'", "overdue"},
		"overdue, but paused":    {"UPDATE carillon.cron_jobs SET next_execution = now() - interval '20 s', enabled = false, paused_at = now()", ""},
		"nobody's run":           {executingAs("nobody", "now() + interval '1 hour'"), "stuck"},
		"a live one's run":       {executingAs("alive", "now() + interval '1 hour'"), ""},
		"a live one's, for ever": {executingAs("alive", "now() - interval '20 s'"), "stuck"},
		"set aside":              {"UPDATE carillon.cron_jobs SET enabled = false, set_aside_at = now()", "set aside"},
		"two verdicts": {`INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at)
			SELECT id, now() - make_interval(secs => 60 - i * 10), now() - make_interval(secs => 20 - i * 10), 4, 'skipped_missed', now()
			FROM carillon.cron_jobs, generate_series(0, 1) i WHERE ref = 'm.v0'`, "double verdicts"},
		"neighbours": {`INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at)
			SELECT id, now() - make_interval(secs => 60 - i * 10), now() - make_interval(secs => 51 - i * 10), 9, 'skipped_missed', now()
			FROM carillon.cron_jobs, generate_series(0, 3) i`, ""},
		"other schema": {"INSERT INTO carillon.schema_versions (version_id, is_applied) VALUES (99999, true)", "migrations"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "America/New_York")
			db.Deploy(3, db.Now().Add(time.Hour))
			db.Controller("alive", time.Minute)
			db.Exec(c.spoil)
			found := map[string]rpc.Check{}
			for _, k := range patient(t, db).Health(t.Context()) {
				if found[k.Name] = k; !k.OK && k.Hint == "" {
					t.Errorf("%+v has no hint", k)
				}
			}
			for _, name := range []string{"database", "migrations", "overdue", "stuck", "set aside", "double verdicts"} {
				if k, there := found[name]; !there || k.OK == (name == c.check) || k.Detail == "" {
					t.Errorf("%s: %+v", name, k)
				}
			}
			if found["ring"].OK {
				t.Error("it is no member of any ring")
			}
		})
	}
}

// Jobs that nobody serves are named with the reason; those that only wait for room, or are paused, are not.
func TestDoctorNamesVerbsThatNobodyServes(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Kathmandu")
	db.Deploy(1, db.Now().Add(time.Hour))
	text := schema.Module{Language: schema.Go, Name: "m", Verbs: []schema.Verb{{Name: "v0"}}}.Text()
	db.Exec("UPDATE carillon.deployments SET schema = $$" + text + "$$")
	wait := func(ref, due string) {
		t.Helper()
		db.Exec("SELECT carillon.enqueue('" + ref + "')")
		db.Exec("UPDATE carillon.jobs j SET due_at = " + due + " FROM carillon.queues q WHERE q.id = j.queue_id AND q.ref = '" + ref + "'")
	}
	waiting := func() rpc.Check {
		t.Helper()
		for _, k := range patient(t, db).Health(t.Context()) {
			if k.Name == "waiting jobs" {
				return k
			}
		}
		t.Fatal("the doctor does not look at waiting jobs")
		return rpc.Check{}
	}
	wait("m.v0", "now() - interval '10 s'")
	wait("gone.v", "now() + interval '1 hour'")
	wait("held.v", "now() - interval '1 hour'")
	if _, err := db.PauseQueues(t.Context(), "", "held.v", ""); err != nil {
		t.Fatal(err)
	}
	if k := waiting(); !k.OK {
		t.Fatalf("%+v", k)
	}
	wait("gone.v", "now() - interval '40 s'")
	wait("m.v0", "now() - interval '2 minutes'")
	wait("m.typo", "now() - interval '1 minute'")
	k := waiting()
	if k.OK || k.Hint == "" {
		t.Fatalf("%+v", k)
	}
	for _, want := range []string{"m.v0 for 2m", ": module m has no runner; m.typo for 1m", ": module m has no such verb; gone.v for 4", "s: no module gone is deployed"} {
		if !strings.Contains(k.Detail, want) {
			t.Errorf("%q lacks %q", k.Detail, want)
		}
	}
	db.Exec("UPDATE carillon.deployments SET min_replicas = 0")
	if k := waiting(); !strings.Contains(k.Detail, "module m is scaled to 0") {
		t.Errorf("%+v", k)
	}
	db.Exec("UPDATE carillon.deployments SET min_replicas = 1")
	db.Exec("INSERT INTO carillon.runners (key, deployment_id, endpoint, capacity, stream) SELECT 'r', id, 'http://r', 1, true FROM carillon.deployments")
	if k := waiting(); strings.Contains(k.Detail, "m.v0") || !strings.Contains(k.Detail, "gone.v") {
		t.Errorf("%+v; m.v0 waits for room only", k)
	}
}

// What fails again and again is a finding, with its age; a blip is none, and neither is what works again.
func TestDoctorTellsOfUpkeepThatFails(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	gone, err := store.Open(t.Context(), store.Config{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	up := &upkeep{}
	away, here := named{Store: gone, t: DefaultConfig().Timing}, named{Store: db.Store, t: DefaultConfig().Timing}
	all := func(s named) {
		n := noted{s, up}
		n.Unswept(t.Context())
		n.Scan(t.Context())
		n.Sweep(t.Context(), []cron.Run{{}})
		n.Partitions(t.Context(), 7, 30)
		n.Forget(t.Context())
		n.ListShards(t.Context(), []int32{1}, func([]cron.Job) error { return nil })
		n.ListRunners(t.Context())
		n.FetchEvents(t.Context(), []int32{1}, 0, 0, 1)
		n.CloseDebounces(t.Context(), 1)
		j := notedJobs{jobs{s}, up}
		j.FindLostJobs(t.Context())
		j.ListQueues(t.Context())
		j.FetchWindow(t.Context(), []job.Cut{{Queue: 1}}, []int32{1}, time.Second, 1)
	}
	// later is what the doctor finds so long after all of it was done in one instant.
	later := func(d time.Duration) rpc.Check {
		instant := time.Now()
		for _, w := range up.works {
			if !w.since.IsZero() {
				w.since = instant
			}
			if !w.answered.IsZero() {
				w.answered = instant
			}
		}
		return up.check(instant.Add(d))
	}
	all(away)
	if k := later(4 * time.Second); !k.OK {
		t.Errorf("after a blip: %+v", k)
	}
	k := later(12 * time.Second)
	for _, what := range []string{"count silent controllers", "scan cron jobs", "sweep lost runs", "keep partitions", "forget what is old", "list cron jobs", "list runners",
		"read events", "close debounced windows", "find lost jobs", "list queues", "read waiting jobs"} {
		if k.OK || k.Hint == "" || !strings.Contains(k.Detail, what+": fails for 12s: ") {
			t.Errorf("%s: %+v", what, k)
		}
	}
	all(here)
	if k := later(12 * time.Second); !k.OK {
		t.Errorf("works again: %+v", k)
	}
	if k := later(time.Minute); k.OK || !strings.Contains(k.Detail, "count silent controllers: not done for 1m0s") || strings.Contains(k.Detail, "partitions") {
		t.Errorf("hangs: %+v", k)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	noted{away, up}.Unswept(ctx)
	up.note("x", true, context.Canceled)
	if k := later(12 * time.Second); strings.Contains(k.Detail, "x: ") {
		t.Errorf("stopped: %+v", k)
	}
}

func executingAs(controller, deadline string) string {
	return `UPDATE carillon.cron_jobs SET state = 'executing', run_id = gen_random_uuid(), run_slot = now(), started_at = now(), attempt = 1,
		run_deployment = deployment_id, controller = '` + controller + `', deadline_at = ` + deadline + ` WHERE ref = 'm.v1'`
}

func TestDoctorWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	h := patient(t, db)
	s, err := store.Open(t.Context(), store.Config{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	h.store.Store = s
	for _, k := range h.Health(context.Background()) {
		if k.OK && k.Name != "migrations" && k.Name != "upkeep" { // read over a connection of their own; no part runs here
			t.Errorf("%+v", k)
		}
	}
}
