package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/ring"
	"carillon/backend/store"
	"carillon/backend/store/storetest"
)

const lease, silence = 6 * time.Second, 3 * time.Second

// running claims a slot in the name of a controller and returns the run as the sweep's scan would find it.
func running(t *testing.T, db storetest.DB, j cron.Job, controller string) cron.Run {
	t.Helper()
	c := claim(j)
	won, err := db.StartCronJobs(t.Context(), controller, time.Minute, []cron.Claim{c})
	if err != nil || len(won) != 1 {
		t.Fatalf("won %v, %v", won, err)
	}
	return cron.Run{JobID: j.ID, ID: c.RunID}
}

func sweep(t *testing.T, db storetest.DB, found ...cron.Run) []cron.Run {
	t.Helper()
	freed, err := db.SweepCronJobs(t.Context(), "sweeper", lease, silence, found)
	if err != nil {
		t.Fatal(err)
	}
	return freed
}

func TestSweepFreesOnlyWhatIsLost(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		slot := db.Now().Truncate(time.Second)
		jobs := db.Deploy(4, slot)
		db.Controller("sweeper", time.Minute)
		db.Controller("alive", time.Minute)
		db.Controller("silent", time.Minute)
		ofAlive, ofSilent, ofAbsent := running(t, db, jobs[0], "alive"), running(t, db, jobs[1], "silent"), running(t, db, jobs[2], "absent")
		overdue := running(t, db, jobs[3], "alive")
		db.Exec("UPDATE carillon.controllers SET heartbeat_at = now() - interval '7 seconds' WHERE key = 'silent'")
		db.Exec("UPDATE carillon.cron_jobs SET deadline_at = now() - interval '1 second' WHERE id = $1", overdue.JobID)
		old := ofSilent
		old.ID = newRun() // a run that was current once

		freed := sweep(t, db, ofAlive, old)
		if len(freed) != 0 {
			t.Fatalf("freed a live or an older run: %+v", freed)
		}
		_, _, found, err := db.ScanCronJobs(t.Context(), "sweeper", 5*time.Second, 10*time.Second, lease)
		if err != nil || len(found) != 3 {
			t.Fatalf("found %+v, %v", found, err)
		}
		if freed = sweep(t, db, found...); len(freed) != 3 {
			t.Fatalf("freed %+v", freed)
		}
		verdicts := map[int64]cron.Verdict{}
		runs, _ := db.ListRuns(t.Context(), cron.RunFilter{}, cron.RunCursor{}, 10)
		for _, r := range runs {
			verdicts[r.JobID] = r.Verdict
		}
		if verdicts[ofSilent.JobID] != cron.Lost || verdicts[ofAbsent.JobID] != cron.Lost || verdicts[overdue.JobID] != cron.TimedOut || len(verdicts) != 3 {
			t.Errorf("verdicts %v", verdicts)
		}
		row := get(t, db, ofSilent.JobID)
		if row.State != cron.Idle || !row.Next.Equal(slot.Add(time.Second)) {
			t.Errorf("row %+v", row)
		}
		// The zombie's end comes late and is refused.
		done := end(t, db, cron.End{JobID: ofSilent.JobID, RunID: ofSilent.ID, Slot: slot, Verdict: cron.Succeeded})
		if done[0].Accepted {
			t.Error("a late end was accepted")
		}
		if sweep(t, db, found...) != nil && len(sweep(t, db, found...)) != 0 {
			t.Error("swept twice")
		}
	})
}

// After an outage of the database nobody looks dead: a sweeper may judge only when its own beats went on for a lease.
func TestSweeperMustBeAlive(t *testing.T) {
	for name, spoil := range map[string]string{
		"not long enough":  "UPDATE carillon.controllers SET alive_since = now() - interval '5 seconds' WHERE key = 'sweeper'",
		"silent itself":    "UPDATE carillon.controllers SET heartbeat_at = now() - interval '4 seconds' WHERE key = 'sweeper'",
		"not there at all": "DELETE FROM carillon.controllers WHERE key = 'sweeper'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "America/New_York")
			j := db.Deploy(1, db.Now().Truncate(time.Second))[0]
			db.Controller("sweeper", time.Minute)
			found := running(t, db, j, "absent")
			db.Exec(spoil)
			if freed := sweep(t, db, found); len(freed) != 0 {
				t.Errorf("freed %+v", freed)
			}
		})
	}
}

func TestBeat(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		for _, key := range []string{"a", "b"} {
			if _, err := db.RegisterController(ctx, ring.Controller{Member: ring.Member{Key: key, Endpoint: "http://" + key}}); err != nil {
				t.Fatal(err)
			}
		}
		first, err := db.BeatController(ctx, "a", silence)
		if err != nil || len(first.Members) != 2 || first.State != ring.Live || db.Now().Sub(first.Now).Abs() > time.Second {
			t.Fatalf("%+v, %v", first, err)
		}
		// A regular beat leaves alive_since; a gap, a beat from the future, and a return from the grave restart it.
		if again, _ := db.BeatController(ctx, "a", silence); !again.AliveSince.Equal(first.AliveSince) {
			t.Errorf("alive since %s, then %s", first.AliveSince, again.AliveSince)
		}
		for _, spoil := range []string{
			"UPDATE carillon.controllers SET alive_since = now() - interval '1 hour', heartbeat_at = now() - interval '4 seconds' WHERE key = 'a'",
			"UPDATE carillon.controllers SET alive_since = now() - interval '1 hour', heartbeat_at = now() + interval '1 hour' WHERE key = 'a'",
			"UPDATE carillon.controllers SET alive_since = now() - interval '1 hour', state = 'gone' WHERE key = 'a'",
		} {
			db.Exec(spoil)
			if b, err := db.BeatController(ctx, "a", silence); err != nil || db.Now().Sub(b.AliveSince) > time.Second || b.State != ring.Live {
				t.Errorf("after %s: %+v, %v", spoil, b, err)
			}
		}
		db.Exec("UPDATE carillon.controllers SET heartbeat_at = now() - interval '4 seconds' WHERE key = 'b'")
		if b, _ := db.BeatController(ctx, "a", silence); len(b.Members) != 1 {
			t.Errorf("a silent member: %+v", b.Members)
		}
		db.RegisterController(ctx, ring.Controller{Member: ring.Member{Key: "a2", Endpoint: "http://a"}})
		if b, _ := db.BeatController(ctx, "a", silence); b.State != ring.Superseded || len(b.Members) != 1 || b.Members[0].Key != "a2" {
			t.Errorf("superseded: %+v", b)
		}
		db.DeregisterController(ctx, "a2")
		if b, err := db.BeatController(ctx, "a2", silence); err != nil || b.State != ring.Absent {
			t.Errorf("deregistered: %+v, %v", b, err)
		}
	})
}

func TestSixMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := storetest.EmptyURL(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied := 0
	for range 6 {
		wg.Go(func() {
			m, err := store.Migrate(context.Background(), url)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			applied += len(m)
		})
	}
	wg.Wait()
	status, err := store.MigrationStatus(t.Context(), url)
	if err != nil || applied != len(status) || store.CheckSchema(t.Context(), url) != nil {
		t.Errorf("applied %d of %d, %v", applied, len(status), err)
	}
	for range status {
		if _, err := store.MigrateDown(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.CheckSchema(t.Context(), url); err == nil {
		t.Error("an old schema was accepted")
	}
	if _, err := store.Migrate(t.Context(), url); err != nil {
		t.Errorf("up again: %v", err)
	}
}

func TestPartitionsComeAndGo(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		if n, err := db.CreateRunPartitions(ctx, 7); err != nil || n != 0 { // the migration made them
			t.Errorf("created %d, %v", n, err)
		}
		if n, err := db.CreateRunPartitions(ctx, 9); err != nil || n != 2 {
			t.Errorf("created %d, %v", n, err)
		}
		slot := db.Now().Truncate(time.Second).Add(-20 * 24 * time.Hour)
		db.Exec("INSERT INTO carillon.runs (cron_job_id, slot, slot_to, verdict, ended_at) VALUES (1, $1, $1, 'skipped_missed', now()), (1, now(), now(), 'skipped_missed', now())", slot)
		db.Exec(`CREATE TABLE carillon.runs_20200101 (LIKE carillon.runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS)`)
		db.Exec(`ALTER TABLE carillon.runs ATTACH PARTITION carillon.runs_20200101 FOR VALUES FROM ('2020-01-01+0') TO ('2020-01-02+0')`)
		if n, err := db.DropRunPartitions(ctx, 10); err != nil || n != 1 {
			t.Errorf("dropped %d, %v", n, err)
		}
		var left int
		db.Scan("SELECT count(*) FROM carillon.runs", nil, &left)
		if left != 1 {
			t.Errorf("%d rows left", left)
		}
		if _, err := db.DropRunPartitions(ctx, 0); err == nil {
			t.Error("a history of no days was accepted")
		}
	})
}

// Pause, scale and redeploy take the row's lock: a claim in the same instant wins before or loses after, never both.
func TestDisableAgainstClaims(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	slot := db.Now().Truncate(time.Second).Add(-time.Second)
	jobs := db.Deploy(50, slot)
	var wg sync.WaitGroup
	begin := make(chan struct{})
	var won []cron.Claimed
	var claims []cron.Claim
	for _, j := range jobs {
		claims = append(claims, claim(j))
	}
	var disabledAt time.Time
	wg.Go(func() {
		<-begin
		_, err := db.UpdateModule(context.Background(), "m", 0, func(m deployment.Module) (deployment.Update, error) {
			zero, u := 0, deployment.Update{}
			u.MinReplicas = &zero
			for _, j := range m.Jobs {
				j.Enabled = false
				u.Jobs = append(u.Jobs, deployment.JobUpdate{Job: j})
			}
			return u, nil
		})
		if err != nil {
			t.Error(err)
		}
		disabledAt = db.Now()
	})
	wg.Go(func() {
		<-begin
		for i := range claims {
			w, err := db.StartCronJobs(context.Background(), "c1", time.Minute, claims[i:i+1])
			for lockTimedOut(err) { // a busy machine holds the rows for longer than a claim waits
				w, err = db.StartCronJobs(t.Context(), "c1", time.Minute, claims[i:i+1])
			}
			if err != nil {
				t.Error(err)
			}
			won = append(won, w...)
		}
	})
	close(begin)
	wg.Wait()
	for _, w := range won {
		if w.StartedAt.After(disabledAt) {
			t.Errorf("job %d started at %s, after the scale returned at %s", w.JobID, w.StartedAt, disabledAt)
		}
	}
	var executing, enabled int
	db.Scan("SELECT count(*) FILTER (WHERE state = 'executing'), count(*) FILTER (WHERE enabled) FROM carillon.cron_jobs", nil, &executing, &enabled)
	if executing != len(won) || enabled != 0 {
		t.Errorf("%d executing, %d won, %d enabled", executing, len(won), enabled)
	}
}

func lockTimedOut(err error) bool {
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && pg.Code == "55P03"
}

func TestRunnersAndDeployments(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Tokyo")
	ctx := t.Context()
	db.Deploy(2, db.Now())
	d, err := db.PutDeployment(ctx, deployment.Deployment{Key: "m-def", Module: "m", Language: "go", Digest: "def", Schema: "module m"})
	if err != nil || d.Active || !d.ActivatedAt.IsZero() {
		t.Fatalf("%+v, %v", d, err)
	}
	for i := range 2 {
		if err := db.RegisterRunner(ctx, d.ID, deployment.Runner{Key: fmt.Sprint("runner-", i), Endpoint: "http://same", Capacity: 10, Stream: true}); err != nil {
			t.Fatal(err)
		}
	}
	runners, err := db.ListRunners(ctx, silence)
	if err != nil || len(runners) != 1 || runners[0].Key != "runner-1" || runners[0].Deployment != "m-def" {
		t.Errorf("one endpoint, one runner: %+v, %v", runners, err)
	}
	if active, err := db.BeatRunner(ctx, "runner-1"); err != nil || active {
		t.Errorf("active %t, %v", active, err)
	}
	if _, err := db.BeatRunner(ctx, "runner-0"); err == nil {
		t.Error("an unknown runner's beat was accepted")
	}
	all, err := db.ListDeployments(ctx, "", true)
	if err != nil || len(all) != 2 || all[0].Key != "m-def" || all[1].CronJobs != 2 || !all[1].Active {
		t.Errorf("%+v, %v", all, err)
	}
}

// A transaction that waited for its locks decides by the time after them: by its own now(), a slot that was claimed
// meanwhile would look like one to come, and run twice.
func TestModulesAreDecidedAfterTheWaitForTheirLocks(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "America/New_York")
	j := db.Deploy(1, db.Now())[0]
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM carillon.modules FOR NO KEY UPDATE"); err != nil {
		t.Fatal(err)
	}
	decided := make(chan time.Time)
	go func() {
		_, err := db.UpdateModule(context.Background(), "m", 0, func(m deployment.Module) (deployment.Update, error) {
			decided <- m.Now
			return deployment.Update{}, nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	waitFor(t, func() bool {
		var n int
		db.Scan("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", nil, &n)
		return n > 0
	})
	c := claim(j)
	c.Slot = db.Now()
	won := start(t, db, c)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := <-decided; len(won) != 1 || now.Before(won[0].StartedAt) {
		t.Errorf("decided by %s, although a slot was claimed at %v", now, won)
	}
}

func TestManualRunIsRefusedAtZero(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	j := db.Deploy(1, db.Now())[0]
	db.Exec("UPDATE carillon.deployments SET min_replicas = 0")
	if _, err := db.StartManualRun(t.Context(), "c1", time.Minute, j.Ref, newRun()); err == nil || !strings.Contains(err.Error(), "scaled to 0") {
		t.Errorf("error %v", err)
	}
}

// TestLiveControllersLookAtNoRow: they are asked for with each change of a trigger, however many rows there are.
func TestLiveControllersLookAtNoRow(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "UTC")
	for _, key := range []string{"alive", "leaving", "silent"} {
		db.Controller(key, time.Minute)
	}
	db.Exec("UPDATE carillon.controllers SET state = 'draining' WHERE key = 'leaving'")
	db.Exec("UPDATE carillon.controllers SET heartbeat_at = now() - interval '7 seconds' WHERE key = 'silent'")
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "LOCK TABLE carillon.cron_jobs"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	live, err := db.LiveControllers(ctx, silence)
	if err != nil || len(live) != 1 || live[0].Key != "alive" {
		t.Errorf("%v, %v: want the one that is alive", live, err)
	}
}
