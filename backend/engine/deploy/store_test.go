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
