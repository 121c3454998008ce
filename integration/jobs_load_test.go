package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// rate is how many jobs of the module ended per second between two times.
func rate(t *testing.T, c *cluster.Cluster, d *cluster.Desk, from, to time.Time) float64 {
	t.Helper()
	var n int
	if err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id
		WHERE starts_with(q.ref, $1) AND ended_at >= $2 AND ended_at < $3`, d.Name+".", from, to).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return float64(n) / to.Sub(from).Seconds()
}

// share is how much of a throughput must be left: in the long form 80 %; in the short one, of seconds on a machine that
// compiles meanwhile, what a plan that went wrong does not reach.
func share() float64 {
	if isLong() {
		return 0.8
	}
	return 0.4
}

// TestAHeldSnapshotSlowsNothing: a transaction that holds back vacuum while the cluster works as fast as it can. The
// hot table is full of dead rows then, and the throughput stays within 20 %.
func TestAHeldSnapshotSlowsNothing(t *testing.T) {
	c := settled(t)
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"})
	stop := flood(t, d, 6000)
	cluster.Let(t, 3*time.Second) // warm
	for try := 1; ; try++ {       // a machine that has other things to do in the second part is given another chance
		before, after := hold(t, c, d, seconds(t, 18))
		if after >= share()*before {
			break
		}
		if try == 2 {
			t.Errorf("throughput fell from %.0f to %.0f jobs/s under a held snapshot, want %.0f %% of it", before, after, 100*share())
			break
		}
	}
	asked := stop()
	d.Await(t, 30*time.Second)
	t.Logf("%d jobs", asked)
	endedOnce(t, c, d)
}

// hold measures the throughput for a third of the length, and in the second half of it under a held snapshot.
func hold(t *testing.T, c *cluster.Cluster, d *cluster.Desk, length time.Duration) (before, after float64) {
	t.Helper()
	from := time.Now()
	calm := busy(t, c, length/3)
	tx, err := c.SQL.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	var was int
	if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM carillon.jobs").Scan(&was); err != nil {
		t.Fatal(err)
	}
	held := time.Now()
	cluster.Let(t, length/2)
	late := busy(t, c, length-length/2)
	to := time.Now()
	var dead, size int64
	if err := c.SQL.QueryRow(t.Context(), `SELECT n_dead_tup, pg_table_size('carillon.jobs') FROM pg_stat_user_tables WHERE relid = 'carillon.jobs'::regclass`).Scan(&dead, &size); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, after = rate(t, c, d, from, held), rate(t, c, d, held.Add(length/2), to)
	t.Logf("%.0f jobs/s before, %.0f jobs/s in the second half of %v under a held snapshot (%.0f %%), %d dead rows in a table of %d MB",
		before, after, length, 100*after/before, dead, size>>20)
	t.Logf("connections at work on average, before: %s", calm)
	t.Logf("connections at work on average, in the second half: %s", late)
	return before, after
}

// busy lets the cluster live for so long, and says what Postgres does for it meanwhile: how many connections are at work
// on each statement, on average.
func busy(t *testing.T, c *cluster.Cluster, length time.Duration) string {
	t.Helper()
	seen, looks := map[string]int{}, 0
	for from := time.Now(); time.Since(from) < length; looks++ {
		rows, err := c.SQL.Query(t.Context(), `SELECT COALESCE(substring(query FROM '-- name: (\w+)'), left(query, 20)) FROM pg_stat_activity
			WHERE state = 'active' AND application_name LIKE 'carillon %' AND application_name NOT LIKE 'carillon drill%'`)
		if err != nil {
			t.Fatal(err)
		}
		active, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range active {
			seen[name]++
		}
		cluster.Let(t, 50*time.Millisecond)
	}
	names := slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return seen[b] - seen[a] })
	var out []string
	for _, name := range names[:min(len(names), 8)] {
		out = append(out, fmt.Sprintf("%s %.2f", name, float64(seen[name])/float64(looks)))
	}
	return strings.Join(out, ", ")
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
	ballast := 200_000
	if isLong() {
		ballast = 10_000_000
	}
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"})
	dash(t, d, "warm", 3000)
	first := measure(t, c, d, "empty")
	began := time.Now()
	bury(t, c, ballast)
	buried := time.Since(began)
	second := measure(t, c, d, "full")
	for range 2 { // the better of some: what disturbs the machine makes it only worse
		if second.rate >= share()*first.rate && share()*second.wait.Seconds() <= first.wait.Seconds() {
			break
		}
		again := measure(t, c, d, "again"+time.Now().Format("150405"))
		second.rate, second.wait = max(second.rate, again.rate), min(second.wait, again.wait)
	}
	t.Logf("%d finished jobs (written in %v): %.0f jobs/s and %v from enqueue to start, %.0f jobs/s and %v before",
		ballast, buried.Round(time.Millisecond), second.rate, second.wait, first.rate, first.wait)
	if second.rate < share()*first.rate {
		t.Errorf("%.0f jobs/s with %d finished jobs, %.0f without", second.rate, ballast, first.rate)
	}
	if share()*second.wait.Seconds() > first.wait.Seconds() && second.wait > 5*time.Millisecond {
		t.Errorf("%v from enqueue to start with %d finished jobs, %v without", second.wait, ballast, first.wait)
	}
	if _, err := c.SQL.Exec(t.Context(), `DELETE FROM carillon.job_history WHERE id < 0`); err != nil {
		t.Fatal(err)
	}
	d.Await(t, 10*time.Second)
	d.Judge(t, true)
}

type pace struct {
	rate float64       // of jobs that waited
	wait time.Duration // p50 from the request to the verb's begin, of single jobs
}

// measure takes the best of three dashes, and 60 single jobs.
func measure(t *testing.T, c *cluster.Cluster, d *cluster.Desk, name string) (p pace) {
	t.Helper()
	for i := range 3 {
		p.rate = max(p.rate, dash(t, d, fmt.Sprintf("%s%d", name, i), 4000))
	}
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
	p.wait = waits[len(waits)/2].Round(10 * time.Microsecond)
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
