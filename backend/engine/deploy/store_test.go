package deploy

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/schema"
	"carillon/backend/store/storetest"
)

// rows is the store with a silence after which a runner does not count.
type rows struct{ storetest.DB }

func (r rows) ListRunners(ctx context.Context) ([]deployment.Runner, error) {
	return r.DB.ListRunners(ctx, 8*time.Second)
}

func onPostgres(t *testing.T) (*Engine, storetest.DB) {
	db := storetest.Open(t, "Asia/Tokyo")
	return New(Config{Store: rows{db}, Now: time.Now, Changed: func(context.Context, string) {}, Logger: slog.New(slog.DiscardHandler)}), db
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func only(t *testing.T, db storetest.DB, ref string) cron.Job {
	t.Helper()
	j, _, err := db.GetCronJob(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func claim(t *testing.T, db storetest.DB, j cron.Job) cron.RunID {
	t.Helper()
	id := cron.RunID(uuid.Must(uuid.NewV7()))
	won, err := db.StartCronJobs(t.Context(), "c1", time.Minute, []cron.Claim{{
		JobID: j.ID, Version: j.Version, Expected: j.Next, Slot: j.Next, Next: j.Next.Add(time.Minute), RunID: id,
	}})
	if err != nil || len(won) != 1 {
		t.Fatalf("claim of %+v: %v, %v", j, won, err)
	}
	return id
}

func TestRedeployKeepsTheRunAndItsHistory(t *testing.T) {
	t.Parallel()
	e, db := onPostgres(t)
	ctx, ok := t.Context(), must[Result](t)
	first := ok(e.Deploy(ctx, beats("* * * * * *"), one, false))
	j := only(t, db, "m.beat")
	db.Exec("UPDATE carillon.cron_jobs SET next_execution = date_trunc('second', now())")
	run := claim(t, db, only(t, db, "m.beat"))

	r := ok(e.Deploy(ctx, beats(hourly), two, false))
	if r.Replaced != first.Deployment || len(r.Changes) != 1 || r.Changes[0].Kind != Changed {
		t.Errorf("%+v", r)
	}
	now := only(t, db, "m.beat")
	if now.ID != j.ID || now.Version <= j.Version || now.State != cron.Executing || now.Current.ID != run || now.Schedule != hourly || now.Deployment != r.Deployment {
		t.Errorf("row %+v", now)
	}
	done, err := db.EndCronJobs(ctx, []cron.End{{JobID: j.ID, RunID: run, Slot: now.Current.Slot, Verdict: cron.Succeeded, Version: now.Version}})
	if err != nil || !done[0].Accepted {
		t.Fatalf("the old run's end: %+v, %v", done, err)
	}
	history := must[[]cron.Run](t)(db.ListHistory(ctx, j.ID, time.Time{}, 10))
	if len(history) != 1 || history[0].Deployment != first.Deployment || history[0].ID != run {
		t.Errorf("history %+v", history)
	}
}

func TestTheSameRefRevivesTheSameRow(t *testing.T) {
	t.Parallel()
	e, db := onPostgres(t)
	ctx, ok := t.Context(), must[Result](t)
	ok(e.Deploy(ctx, beats("* * * * * *"), one, false))
	j := only(t, db, "m.beat")
	db.Exec("UPDATE carillon.cron_jobs SET next_execution = date_trunc('second', now()) - interval '3 seconds'")
	without := beats(minutely)
	without.Verbs = without.Verbs[1:]
	if r := ok(e.Deploy(ctx, without, two, false)); len(r.Changes) != 1 || r.Changes[0].Kind != Removed {
		t.Errorf("%+v", r)
	}
	if gone := only(t, db, "m.beat"); gone.ID != j.ID || gone.Enabled || gone.RemovedAt.IsZero() || !gone.Next.IsZero() {
		t.Errorf("removed row %+v", gone)
	}
	if err := e.Pause(ctx, "m.beat", ""); err == nil {
		t.Error("a removed verb was paused")
	}
	history := must[[]cron.Run](t)(db.ListHistory(ctx, j.ID, time.Time{}, 10))
	if len(history) != 1 || history[0].Verdict != cron.SkippedPaused || history[0].Count < 4 || history[0].Error != "verb removed" {
		t.Errorf("history %+v", history)
	}
	if r := ok(e.Deploy(ctx, beats("* * * * * *"), one, false)); len(r.Changes) != 1 || r.Changes[0].Kind != Revived {
		t.Errorf("%+v", r)
	}
	if back := only(t, db, "m.beat"); back.ID != j.ID || !back.Enabled || !back.RemovedAt.IsZero() || back.Next.IsZero() {
		t.Errorf("revived row %+v", back)
	}
	if double := must[[]cron.DoubleVerdict](t)(db.FindOverlaps(ctx, j.Next.Add(-time.Hour))); len(double) != 0 {
		t.Errorf("double verdicts %+v", double)
	}
}

// Sixteen deploys of two versions at once: the rows stay one per ref, belong to the live version, and everybody hears
// a consistent answer.
func TestDeploysAtOnce(t *testing.T) {
	t.Parallel()
	e, db := onPostgres(t)
	versions := []schema.Module{beats(minutely), beats(hourly)}
	digests := []string{one, two}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if _, err := e.Deploy(context.Background(), versions[i%2], digests[i%2], true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	m := must[deployment.Module](t)(db.GetModule(t.Context(), "m"))
	if len(m.Jobs) != 1 || m.Live == nil {
		t.Fatalf("%+v", m)
	}
	want := map[string]string{one: minutely, two: hourly}[m.Live.Digest]
	if m.Jobs[0].Schedule != want || only(t, db, "m.beat").Deployment != m.Live.Key {
		t.Errorf("live %+v, row %+v", m.Live, m.Jobs[0])
	}
	var active, deployments int
	db.Scan("SELECT count(*) FILTER (WHERE superseded_at IS NULL), count(*) FROM carillon.deployments", nil, &active, &deployments)
	if active != 1 || deployments != 2 {
		t.Errorf("%d of %d deployments are not superseded", active, deployments)
	}
}

func TestSteeringWritesTheLedger(t *testing.T) {
	t.Parallel()
	e, db := onPostgres(t)
	ctx := t.Context()
	must[Result](t)(e.Deploy(ctx, beats("* * * * * *"), one, false))
	j := only(t, db, "m.beat")
	if err := e.Pause(ctx, "m.beat", "because"); err != nil {
		t.Fatal(err)
	}
	db.Exec("UPDATE carillon.cron_jobs SET next_execution = date_trunc('second', now()) - interval '10 seconds'")
	if err := e.Resume(ctx, "m.beat", "because"); err != nil {
		t.Fatal(err)
	}
	must[deployment.Deployment](t)(e.Scale(ctx, "m", 0))
	db.Exec("UPDATE carillon.cron_jobs SET next_execution = date_trunc('second', now()) + interval '1 hour'")
	must[deployment.Deployment](t)(e.Scale(ctx, "m", 2))
	history := must[[]cron.Run](t)(db.ListHistory(ctx, j.ID, time.Time{}, 10))
	if len(history) != 1 || history[0].Error != "paused: because" || history[0].Count < 11 || history[0].Verdict != cron.SkippedPaused {
		t.Errorf("history %+v", history)
	}
	if now := only(t, db, "m.beat"); !now.Enabled || now.Version < j.Version+4 || now.Next.After(db.Now().Add(2*time.Second)) {
		t.Errorf("row %+v", now)
	}
}

// A verb without a cron has no row: its module is deployed and listed all the same, with the limit of the verb.
func TestAModuleWithoutACron(t *testing.T) {
	t.Parallel()
	e, db := onPostgres(t)
	ctx := t.Context()
	s := beats(minutely)
	s.Verbs = s.Verbs[1:]
	s.Verbs[0].Concurrency = 4
	r := must[Result](t)(e.Deploy(ctx, s, one, false))
	if r.Unchanged || len(r.Changes) != 0 {
		t.Errorf("%+v", r)
	}
	list := must[[]deployment.Deployment](t)(db.ListDeployments(ctx, "", false))
	if len(list) != 1 || !list[0].Active || list[0].CronJobs != 0 || list[0].Key != r.Deployment {
		t.Errorf("listed %+v", list)
	}
	if n := limitOf(db, "m.plain"); n != 4 {
		t.Errorf("limit %d", n)
	}
	if again := must[Result](t)(e.Deploy(ctx, s, one, false)); !again.Unchanged {
		t.Errorf("again %+v", again)
	}
	if d := must[deployment.Deployment](t)(e.Scale(ctx, "m", 0)); d.MinReplicas != 0 || limitOf(db, "m.plain") != 4 {
		t.Errorf("killed %+v", d)
	}
	s.Verbs[0].Concurrency = 0
	must[Result](t)(e.Deploy(ctx, s, two, true))
	if n := limitOf(db, "m.plain"); n != 0 {
		t.Errorf("limit %d after it was taken away", n)
	}
}

func limitOf(db storetest.DB, ref string) (n int) {
	db.Scan("SELECT COALESCE((SELECT max_running FROM carillon.limits WHERE ref = $1), 0)", []any{ref}, &n)
	return n
}

// A row becomes one that fires while it executes: the run ends normally, the next slot is a job; and back again.
func TestAVerbBecomesOneThatFires(t *testing.T) {
	t.Parallel()
	e, db := onPostgres(t)
	ctx := t.Context()
	must[Result](t)(e.Deploy(ctx, beats("* * * * * *"), one, false))
	due := func() cron.Job {
		db.Exec("UPDATE carillon.cron_jobs SET next_execution = clock_timestamp()") // no slot twice
		return only(t, db, "m.beat")
	}
	run := claim(t, db, due())
	firing := beats("* * * * * *")
	firing.Verbs[0].Cron.Overlap, firing.Verbs[0].Retry = schema.OverlapQueue, &schema.Retry{Attempts: 3}
	must[Result](t)(e.Deploy(ctx, firing, two, true))
	fire := func() []cron.Firing {
		j := due()
		fired, err := db.FireCronJobs(ctx, "c1", []cron.Claim{cron.Decision{Slot: j.Next, Next: j.Next.Add(time.Second)}.Claim(j, cron.RunID(uuid.Must(uuid.NewV7())))})
		if err != nil {
			t.Fatal(err)
		}
		return fired
	}
	if fired := fire(); len(fired) != 0 {
		t.Fatalf("fired while it executes: %+v", fired)
	}
	j := only(t, db, "m.beat")
	if !j.Fires || j.Retry.Attempts != 3 || j.State != cron.Executing || limitOf(db, "m.beat") != 1 {
		t.Errorf("row %+v, limit %d", j, limitOf(db, "m.beat"))
	}
	done, err := db.EndCronJobs(ctx, []cron.End{{JobID: j.ID, RunID: run, Slot: j.Current.Slot, Verdict: cron.Succeeded, Version: j.Version}})
	if err != nil || !done[0].Accepted {
		t.Fatalf("the end of the run: %+v, %v", done, err)
	}
	if fired := fire(); len(fired) != 1 || fired[0].Made.N == 0 {
		t.Errorf("fired %+v", fired)
	}
	// Pausing and scaling keep what it is.
	if err := e.Pause(ctx, "m.beat", ""); err != nil {
		t.Fatal(err)
	}
	if err := e.Resume(ctx, "m.beat", ""); err != nil {
		t.Fatal(err)
	}
	if j := only(t, db, "m.beat"); !j.Fires || j.Retry.Attempts != 3 || j.Overlap != cron.OverlapQueue || limitOf(db, "m.beat") != 1 {
		t.Errorf("after a pause %+v", j)
	}
	must[Result](t)(e.Deploy(ctx, beats("* * * * * *"), one, true))
	back := due()
	if back.Fires || back.Retry != (cron.Retry{}) || limitOf(db, "m.beat") != 0 {
		t.Errorf("back again %+v", back)
	}
	claim(t, db, back)
}

// Deploys that change limits and make queues, pauses of queues and firings, all at once: nobody waits for the other in a
// circle, and the limits are those of the live version.
func TestDeploysAndFiringsAtOnce(t *testing.T) {
	t.Parallel()
	e, db := onPostgres(t)
	versions := []schema.Module{beats("* * * * * *"), beats("* * * * * *")}
	for i, overlap := range []schema.Overlap{schema.OverlapQueue, schema.OverlapCancel} {
		versions[i].Verbs[0].Cron.Overlap = overlap
		versions[i].Verbs[1].Concurrency = i + 2
	}
	must[Result](t)(e.Deploy(t.Context(), versions[0], one, true))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 4 {
				if _, err := e.Deploy(context.Background(), versions[i%2], []string{one, two}[i%2], true); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				jobs, now, err := db.LookupCronJobs(context.Background(), []int64{1})
				if err != nil || len(jobs) != 1 {
					t.Error(jobs, err)
					return
				}
				j := jobs[0]
				c := cron.Decision{Slot: j.Next, Next: j.Next.Add(time.Microsecond)}.Claim(j, cron.RunID(uuid.Must(uuid.NewV7())))
				if j.Next.After(now) {
					continue
				}
				if _, err := db.FireCronJobs(context.Background(), "c1", []cron.Claim{c}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 5 {
				if _, err := db.PauseQueues(context.Background(), "", "m.beat", ""); err != nil {
					t.Error(err)
				}
				if _, err := db.ResumeQueues(context.Background(), "", "m.beat"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	m := must[deployment.Module](t)(db.GetModule(t.Context(), "m"))
	wantBeat, wantPlain := 1, 2
	if m.Live.Digest == two {
		wantBeat, wantPlain = 0, 3
	}
	if got, plain := limitOf(db, "m.beat"), limitOf(db, "m.plain"); got != wantBeat || plain != wantPlain {
		t.Errorf("limits %d, %d; want %d, %d", got, plain, wantBeat, wantPlain)
	}
	var slots, ledger, jobs int
	db.Scan("SELECT count(DISTINCT slot), count(*), (SELECT count(*) FROM carillon.jobs) + (SELECT count(*) FROM carillon.job_history) FROM carillon.runs WHERE verdict = 'fired'", nil, &slots, &ledger, &jobs)
	if slots != ledger || jobs != ledger {
		t.Errorf("%d slots, %d ledger rows, %d jobs", slots, ledger, jobs)
	}
}
