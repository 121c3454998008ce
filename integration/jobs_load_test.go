package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/integration/checker"
	"carillon/integration/cluster"
)

// TestExhaustedConnectionsLoseNoJob: other clients hold all connections of Postgres but a few, and row locks of live jobs,
// limits and queues, for some seconds. Then everything goes on.
func TestExhaustedConnectionsLoseNoJob(t *testing.T) {
	c := settled(t)
	rng := chance(t)
	length := seconds(t, 12)
	n := int(length.Seconds()) * 500
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"}, cluster.JobVerb{Name: "few", Concurrency: 10})
	stop := d.WatchLimits(t)
	l := produce(t, d, rng.Uint64(), n, length, "work", "few")
	cluster.Let(t, 2*time.Second)
	from := time.Now()
	held := hog(t, c, 6*time.Second)
	to := time.Now()
	c.Fault(checker.Fault{Kind: checker.Outage, From: from, To: to, Recovery: 10 * time.Second})
	var first time.Time
	cluster.Eventually(t, 10*time.Second, "an end of a job after the hogs left", func() error {
		return c.SQL.QueryRow(t.Context(), `SELECT ended_at FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id
			WHERE starts_with(q.ref, $1) AND ended_at > $2 ORDER BY ended_at LIMIT 1`, d.Name+".", to).Scan(&first)
	})
	l.work.Wait()
	rest := d.Await(t, 60*time.Second)
	stop()
	d.Judge(t, true)
	if int(l.done.Load()) != n {
		t.Errorf("%d jobs of %d were acknowledged", l.done.Load(), n)
	}
	t.Logf("%d connections held for %v under %d jobs: the first end came %v after, all were done %v after the last was acknowledged; %d wishes uttered again",
		held, to.Sub(from).Round(time.Millisecond), n, first.Sub(to).Round(time.Millisecond), rest.Round(time.Millisecond), d.Again())
}

// hog takes all connections but a few, cuts those of the controllers so that they need new ones, and holds row locks.
func hog(t *testing.T, c *cluster.Cluster, length time.Duration) int {
	t.Helper()
	const spared = 4
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var conns []*pgx.Conn
	defer func() {
		var all sync.WaitGroup
		for _, conn := range conns {
			all.Go(func() { conn.Close(context.WithoutCancel(ctx)) })
		}
		all.Wait()
	}()
	take := func() {
		for range 300 {
			conn, err := pgx.Connect(ctx, c.DB.URL())
			if err != nil {
				return // none is left
			}
			conns = append(conns, conn)
		}
	}
	take()
	for range 3 {
		if _, err := c.SQL.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name LIKE 'carillon %' AND application_name NOT LIKE 'carillon drill%' AND backend_type = 'client backend'`); err != nil {
			t.Fatal(err)
		}
		take()
	}
	if len(conns) < 100 {
		t.Fatalf("only %d connections could be had: nothing is exhausted", len(conns))
	}
	for _, conn := range conns[len(conns)-spared:] {
		conn.Close(ctx)
	}
	conns = conns[:len(conns)-spared]
	for i, lock := range []string{
		`SELECT FROM carillon.jobs WHERE state = 'running' LIMIT 200 FOR UPDATE SKIP LOCKED`,
		`SELECT FROM carillon.jobs WHERE state = 'ready' ORDER BY due_at LIMIT 200 FOR UPDATE SKIP LOCKED`,
		`SELECT FROM carillon.limits FOR UPDATE SKIP LOCKED`,
	} {
		for _, q := range []string{"BEGIN", lock} {
			if _, err := conns[i].Exec(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
	}
	cluster.Let(t, length)
	return len(conns)
}

// flood keeps so many jobs waiting until it is stopped, so that the cluster works as fast as it can.
func flood(t *testing.T, d *cluster.Desk, waiting int) (stop func() (asked int)) {
	t.Helper()
	const portion = 500
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	asked := 0
	work.Go(func() {
		for ctx.Err() == nil {
			begun, err := d.Begun()
			if err != nil || asked-begun > waiting {
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond):
				}
				continue
			}
			var both sync.WaitGroup
			for range 2 {
				wishes := make([]cluster.Wish, portion)
				for i := range wishes {
					wishes[i] = cluster.Wish{Task: cluster.Task{Mark: fmt.Sprintf("f%d", asked+i)}, Verb: "work", Anonymous: true}
				}
				asked += portion
				both.Go(func() {
					if err := d.Enqueue(ctx, wishes...); err != nil && ctx.Err() == nil {
						t.Error(err)
						cancel()
					}
				})
			}
			both.Wait()
		}
	})
	return func() int { cancel(); work.Wait(); return asked }
}

// TestAHeldSnapshotSlowsNothing: a transaction that holds back vacuum while the cluster works as fast as it can. The
// hot table is full of dead rows then, and the throughput stays within 20 %.
func TestAHeldSnapshotSlowsNothing(t *testing.T) {
	c := settled(t)
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"})
	stop := flood(t, d, 6000)
	cluster.Let(t, 3*time.Second) // warm
	grow, look, rounds := 4*time.Second, 2*time.Second, 2
	if isLong() {
		look, rounds = 30*time.Second, 1
		grow = seconds(t, 60) - look
	}
	alternate(t, rounds, "a held snapshot", func() pace {
		if _, err := c.SQL.Exec(t.Context(), "VACUUM carillon.jobs"); err != nil {
			t.Fatal(err)
		}
		return observe(t, c, d, look)
	}, func() pace {
		tx, err := c.SQL.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.WithoutCancel(t.Context()))
		var was int
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM carillon.jobs").Scan(&was); err != nil {
			t.Fatal(err)
		}
		cluster.Let(t, grow)
		return observe(t, c, d, look)
	})
	asked := stop()
	d.Await(t, 30*time.Second)
	t.Logf("%d jobs", asked)
	endedOnce(t, c, d)
}

// endedOnce is the short judgment of a flood: as many jobs are in the history as were acknowledged, and no job is twice.
func endedOnce(t *testing.T, c *cluster.Cluster, d *cluster.Desk) {
	t.Helper()
	var rows, ids int
	if err := c.SQL.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT h.id) FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id
		WHERE starts_with(q.ref, $1) AND h.state = 'succeeded'`, d.Name+".").Scan(&rows, &ids); err != nil {
		t.Fatal(err)
	}
	if acked := d.Acks(); rows != ids || ids < acked {
		t.Errorf("%d rows of %d jobs have a success in the history, %d jobs were acknowledged", rows, ids, acked)
	}
	d.Retire()
}

// TestFinishedJobsSlowNothing: millions of finished jobs in the history; claims are as quick and as many as when empty.
func TestFinishedJobsSlowNothing(t *testing.T) {
	c := settled(t)
	ballast, rounds := 200_000, 2
	if isLong() {
		ballast, rounds = 10_000_000, 1
	}
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"})
	dash(t, d, "warm", 3000)
	turn := 0
	measured := func() pace { turn++; return measure(t, c, d, fmt.Sprint("turn", turn)) }
	alternate(t, rounds, fmt.Sprintf("%d finished jobs", ballast), func() pace { unearth(t, c); return measured() }, func() pace { bury(t, c, ballast); return measured() })
	d.Await(t, 10*time.Second)
	d.Judge(t, true)
}

// measure takes the best of three dashes, and 60 single jobs.
func measure(t *testing.T, c *cluster.Cluster, d *cluster.Desk, name string) (p pace) {
	t.Helper()
	const dashes, each = 3, 5000
	spent := c.DatabaseCPU()
	for i := range dashes {
		p.rate = max(p.rate, dash(t, d, fmt.Sprintf("%s-%d", name, i), each))
	}
	p.cost = ((c.DatabaseCPU() - spent) / (dashes * each)).Round(100 * time.Nanosecond)
	const singles = 60
	asked := map[string]time.Time{}
	for i := range singles {
		mark := fmt.Sprintf("%s-single%d", name, i)
		asked[mark] = time.Now()
		if err := d.Enqueue(t.Context(), cluster.Wish{Task: cluster.Task{Mark: mark}, Verb: "work"}); err != nil {
			t.Fatal(err)
		}
		cluster.Let(t, 10*time.Millisecond)
	}
	d.Await(t, 20*time.Second)
	var waits []time.Duration
	begun := d.Begins(t)
	for mark, at := range asked {
		waits = append(waits, begun[mark].Sub(at))
	}
	slices.Sort(waits)
	p.wait = waits[len(waits)/10].Round(10 * time.Microsecond)
	return p
}

// dash enqueues n jobs at once, and says how many were done per second.
func dash(t *testing.T, d *cluster.Desk, name string, n int) float64 {
	t.Helper()
	var wishes []cluster.Wish
	for i := range n {
		wishes = append(wishes, cluster.Wish{Task: cluster.Task{Mark: fmt.Sprintf("%s-%d", name, i)}, Verb: "work", Anonymous: true})
	}
	began := time.Now()
	if err := d.Enqueue(t.Context(), wishes...); err != nil {
		t.Fatal(err)
	}
	d.Await(t, 60*time.Second)
	last := began
	for mark, at := range d.Begins(t) {
		if len(mark) > len(name) && mark[:len(name)+1] == name+"-" && at.After(last) {
			last = at
		}
	}
	return float64(n) / last.Sub(began).Seconds()
}

// bury writes finished jobs of other verbs into the history, over the last days.
func bury(t *testing.T, c *cluster.Cluster, n int) {
	t.Helper()
	if _, err := c.SQL.Exec(t.Context(), `INSERT INTO carillon.queues (tenant, ref, lane) SELECT 'default', 'buried.v' || i, 2 FROM generate_series(1, 50) i ON CONFLICT DO NOTHING`); err != nil {
		t.Fatal(err)
	}
	const portion = 250_000
	for from := 0; from < n; from += portion {
		if _, err := c.SQL.Exec(t.Context(), `
			INSERT INTO carillon.job_history (id, ended_at, created_at, due_at, started_at, queue_id, salt, attempt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, state, run_id, controller, tags, payload, output)
			SELECT -i, at, at - interval '1 s', at - interval '1 s', at - interval '1 s', q.ids[1 + i % 50], i, 1, 5, 1000, 60000, 60000, 500,
				CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'succeeded' END::carillon.job_status, gen_random_uuid(), 'buried', ARRAY['old'], '{"mark":"old"}'::bytea, '{}'::bytea
			FROM generate_series($1::int + 1, $2::int) i, LATERAL (SELECT now() - (i % 172800) * interval '1 s' AS at) a,
				(SELECT array_agg(id) AS ids FROM carillon.queues WHERE starts_with(ref, 'buried.')) q`, from, min(from+portion, n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.SQL.Exec(t.Context(), `ANALYZE carillon.job_history`); err != nil {
		t.Fatal(err)
	}
	var found int
	if err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.job_history WHERE id < 0`).Scan(&found); err != nil {
		t.Fatal(err)
	}
	if found != n {
		t.Fatal(errors.New("the history was not filled"))
	}
}

// unearth removes them.
func unearth(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, q := range []string{`DELETE FROM carillon.job_history WHERE id < 0`, `VACUUM carillon.job_history`} {
		if _, err := c.SQL.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}
