package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/integration/checker"
	"carillon/integration/cluster"
)

// TestAnOutageOfPostgresMakesNobodyLookDead: Postgres is away for longer than the lease.
func TestAnOutageOfPostgresMakesNobodyLookDead(t *testing.T) {
	c := settled(t)
	away := 12 * time.Second
	if isLong() {
		away = 30 * time.Second
	}
	verbs := slices.Concat(cluster.Verbs(120, "v"), cluster.Verbs(30, "nap700"), []cluster.Verb{{Name: "slow", Every: 5}})
	const rare = 6 // jobs with one or two slots in the outage, and the next long after it
	now := time.Now().Unix()
	for i := range int64(rare) {
		verbs = append(verbs, cluster.Verb{Name: fmt.Sprintf("rarex%d", i), Every: 30, Phase: (now + 6 + i) % 30})
	}
	m, _ := c.Up(t, verbs...)
	cluster.Let(t, 2*time.Second)
	c.InFlight(t, m, "nap", "")
	// One controller stands still at the return: its heartbeat is as old as the outage then, and that must prove nothing.
	slow := c.Live()[1]
	from := crashPostgres(t, c)
	cluster.Let(t, away-time.Second)
	c.Stop(t, slow)
	cluster.Let(t, time.Second)
	to := restartPostgres(t, c, from)
	cluster.Let(t, 2500*time.Millisecond)
	c.Cont(t, slow)
	recovered := awaitStarts(t, c, m, to)
	cluster.Let(t, 8*time.Second) // long enough for a wrong sweep
	h := c.Judge(t, m)[0]

	latest := map[string]checker.Row{}
	for _, r := range h.Rows {
		switch {
		case r.Verdict == "lost" || r.Verdict == "failed" && r.StartedAt.After(to):
			t.Errorf("%s slot %v started %v ended as %s: %s", r.Ref, r.Slot, r.StartedAt, r.Verdict, r.Error)
		case r.RunID != "" && r.Slot.After(from) && r.Slot.Before(to):
			if other, twice := latest[r.Ref]; twice {
				t.Errorf("%s ran two slots of the outage: %v and %v", r.Ref, other.Slot, r.Slot)
			}
			latest[r.Ref] = r
		case r.Verdict == "skipped_missed" && r.Slot.After(to.Add(10*time.Second)):
			t.Errorf("%s missed %v long after the outage", r.Ref, r.Slot)
		}
	}
	if len(latest) < rare {
		t.Errorf("%d jobs ran their latest slot of the outage, want at least the %d that have no later one", len(latest), rare)
	}
	t.Logf("Postgres away for %v: starts again %v after its return, %d jobs ran a slot of the outage, none lost", to.Sub(from).Round(time.Millisecond), recovered.Round(time.Millisecond), len(latest))
}

// stopPostgres crashes it, waits, and starts it again.
func stopPostgres(t *testing.T, c *cluster.Cluster, away time.Duration) (from, to time.Time) {
	t.Helper()
	from = crashPostgres(t, c)
	cluster.Let(t, away)
	return from, restartPostgres(t, c, from)
}

// crashPostgres is pg_ctl stop -m immediate.
func crashPostgres(t *testing.T, c *cluster.Cluster) time.Time {
	t.Helper()
	from := time.Now()
	if err := c.DB.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	return from
}

func restartPostgres(t *testing.T, c *cluster.Cluster, from time.Time) time.Time {
	t.Helper()
	if err := c.DB.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	to := time.Now()
	c.Fault(checker.Fault{Kind: checker.Outage, From: from, To: to, Recovery: 10 * time.Second})
	return to
}

// awaitStarts waits until every enabled cron job of a module has started again, and says how long that took. The
// minute's own slots are not waited for.
func awaitStarts(t *testing.T, c *cluster.Cluster, m *cluster.Module, since time.Time) time.Duration {
	t.Helper()
	cluster.Eventually(t, 10*time.Second, "a start of every job after the outage", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var waiting string
		err := c.SQL.QueryRow(ctx, `SELECT ref FROM carillon.cron_jobs
			WHERE ref LIKE $1 AND enabled AND next_execution < now() + interval '5 s' AND COALESCE(started_at, '0001-01-01Z') < $2 LIMIT 1`, m.Name+".%", since).Scan(&waiting)
		switch {
		case err == pgx.ErrNoRows:
			return nil
		case err != nil:
			return err
		}
		return errorf("%s has not started", waiting)
	})
	return time.Since(since)
}

// TestACrashOfPostgresLosesNothingAcknowledged: stop -m immediate and start, then storms that cut every connection.
func TestACrashOfPostgresLosesNothingAcknowledged(t *testing.T) {
	c := settled(t)
	rng := chance(t)
	m, _ := c.Up(t, append(cluster.Verbs(150, "v"), cluster.Verbs(30, "nap600")...)...)
	for began := time.Now(); time.Since(began) < seconds(t, 1); {
		cluster.Let(t, 2*time.Second)
		late := deployedLast(t, c) // acknowledged just before the crash
		cluster.PartOfSecond(t, time.Duration(rng.IntN(1000))*time.Millisecond)
		_, to := stopPostgres(t, c, 500*time.Millisecond)
		var there bool
		cluster.Eventually(t, 5*time.Second, "an answer of Postgres", func() error { // our own connections broke, too
			return c.SQL.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM carillon.cron_jobs WHERE ref = $1 AND enabled)`, late.Name+".v").Scan(&there)
		})
		if !there {
			t.Errorf("the deploy of %s was acknowledged and is gone", late.Name)
		}
		t.Logf("crash of Postgres: every job started again %v after its return", awaitStarts(t, c, m, to).Round(time.Millisecond))
		c.Judge(t, late)
	}

	storm(t, c, rng, seconds(t, 3))
	t.Logf("storm: every job started again %v after its end", awaitStarts(t, c, m, time.Now()).Round(time.Millisecond))
	cluster.Let(t, time.Second)
	c.Judge(t, m)
}

// deployedLast deploys one verb and returns when that is acknowledged.
func deployedLast(t *testing.T, c *cluster.Cluster) *cluster.Module {
	t.Helper()
	m, _ := c.Up(t, cluster.Verb{Name: "v"})
	return m
}

// storm cuts random connections of the controllers for so long.
func storm(t *testing.T, c *cluster.Cluster, rng *rand.Rand, length time.Duration) {
	t.Helper()
	from, cut := time.Now(), 0
	for time.Since(from) < length {
		rows, err := c.SQL.Query(t.Context(), `SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'carillon %' AND application_name NOT LIKE 'carillon drill%' AND backend_type = 'client backend'`)
		if err != nil {
			t.Fatal(err)
		}
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			if rng.IntN(3) == 0 {
				if _, err := c.SQL.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid); err != nil {
					t.Fatal(err)
				}
				cut++
			}
		}
		cluster.Let(t, 100*time.Millisecond)
	}
	c.Fault(checker.Fault{Kind: checker.Outage, From: from, To: time.Now(), Recovery: 10 * time.Second})
	t.Logf("storm: %d connections cut in %v", cut, length)
	if cut < 10 {
		t.Errorf("only %d connections were cut: no storm", cut)
	}
}
