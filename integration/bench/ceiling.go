package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"carillon/backend/core/ring"
	"carillon/backend/store"
)

// ceiling is a hand-written pgx loop on Carillon's own tables: claims in batches with SKIP LOCKED, ends in batches that
// move the rows to the history, two connections that each send the next batch when the last one is done. Nothing is
// called between claim and end, nobody owns anything, nothing fails. Inserts are one multi-row statement of what
// gathered while the last one was under way, on two connections; plain ones are a statement and a connection for each
// producer.
type ceiling struct {
	plain bool // inserts

	lanes   [ceilingLanes]*pgx.Conn // claim and end
	fills   chan *pgx.Conn          // bulk
	singles []*pgx.Conn             // plain
	ids     atomic.Int64
	queue   int32
	intake  *intake

	mu      sync.Mutex
	lastDue time.Time // all rows up to here are claimed
	lastID  int64
	ended   atomic.Int64
	stop    context.CancelFunc
	working sync.WaitGroup
	failed  atomic.Pointer[error]
}

const (
	ceilingLanes = 2
	ceilingBatch = 500
)

func (c *ceiling) open(ctx context.Context, _ *bench, url string) error {
	if _, err := store.Migrate(ctx, url); err != nil {
		return err
	}
	connect := func() (*pgx.Conn, error) {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		// As the product's sessions: a plan that was made for an empty table is a trap.
		_, err = conn.Exec(ctx, "SET plan_cache_mode = force_custom_plan")
		return conn, err
	}
	var err error
	for i := range c.lanes {
		if c.lanes[i], err = connect(); err != nil {
			return err
		}
	}
	c.fills = make(chan *pgx.Conn, bulkProducers)
	for range bulkProducers {
		conn, err := connect()
		if err != nil {
			return err
		}
		c.fills <- conn
	}
	n := ceilingLanes
	if c.plain {
		n = producers[len(producers)-1]
	}
	for range n {
		conn, err := connect()
		if err != nil {
			return err
		}
		c.singles = append(c.singles, conn)
	}
	if !c.plain {
		c.intake = newIntake(c.singles, c.insert)
	}
	return c.lanes[0].QueryRow(ctx, `INSERT INTO carillon.queues (lane, tenant, ref) VALUES (2, 'default', $1) RETURNING id`, ref).Scan(&c.queue)
}

func (c *ceiling) bulk(ctx context.Context, n int) error {
	conn := <-c.fills
	defer func() { c.fills <- conn }()
	last := c.ids.Add(int64(n))
	now, i := time.Now(), 0
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"carillon", "jobs"},
		[]string{"id", "due_at", "queue_id", "shard", "salt", "max_attempts", "backoff_ms", "backoff_max_ms", "timeout_ms", "priority", "payload"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if i == n {
				return nil, nil
			}
			id := last - int64(n) + int64(i) + 1
			i++
			return []any{id, now, c.queue, int32(id % ring.Shards), int32(id), 5, 1000, 600_000, 300_000, int16(500), payload()}, nil
		}))
	return err
}

func payload() []byte { return fmt.Appendf(nil, `{"sent":%d}`, time.Now().UnixNano()) }

func (c *ceiling) enqueue(ctx context.Context, producer int) error {
	if c.plain {
		return c.insert(ctx, c.singles[producer%len(c.singles)], [][]byte{payload()})
	}
	return c.intake.put(payload())
}

// insert writes some jobs in one statement.
func (c *ceiling) insert(ctx context.Context, conn *pgx.Conn, payloads [][]byte) error {
	ids, salts := make([]int64, len(payloads)), make([]int32, len(payloads))
	last := c.ids.Add(int64(len(payloads)))
	for i := range ids {
		ids[i] = last - int64(i)
		salts[i] = int32(ids[i])
	}
	_, err := conn.Exec(ctx, `INSERT INTO carillon.jobs (id, due_at, queue_id, shard, salt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload)
		SELECT a.id, now(), $4, (a.id % $5)::int, a.salt, 5, 1000, 600000, 300000, 500, a.payload
		FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::int[]) AS salt, unnest($3::bytea[]) AS payload) a`, ids, salts, payloads, c.queue, int64(ring.Shards))
	return err
}

func (c *ceiling) work(ctx context.Context) error {
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, conn := range c.lanes {
		c.working.Go(func() {
			for ctx.Err() == nil {
				n, err := c.step(context.WithoutCancel(ctx), conn)
				if err != nil {
					c.failed.Store(&err)
					return
				}
				if n == 0 && pause(ctx, 2*time.Millisecond) != nil {
					return
				}
			}
		})
	}
	return nil
}

func (c *ceiling) hold(context.Context) error {
	c.stop()
	c.working.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastDue, c.lastID = time.Time{}, 0
	return nil
}

// step claims a batch and ends it. It goes on behind what was claimed last, so that the rows that are gone cost nothing.
func (c *ceiling) step(ctx context.Context, conn *pgx.Conn) (int, error) {
	c.mu.Lock()
	due, id := c.lastDue, c.lastID
	c.mu.Unlock()
	rows, err := conn.Query(ctx, `WITH next AS (
			SELECT w.id FROM carillon.jobs w
			WHERE w.queue_id = $1 AND (w.due_at, w.id) > ($2, $3) AND w.state = 'ready' AND w.due_at <= now()
			ORDER BY w.due_at, w.id LIMIT $4 FOR UPDATE SKIP LOCKED
		)
		UPDATE carillon.jobs j SET state = 'running', run_id = $5, controller = 'ctl-7800-0badcafe', attempt = j.attempt + 1, started_at = now(),
			deadline_at = now() + make_interval(secs => j.timeout_ms / 1000.0)
		FROM next WHERE j.id = next.id
		RETURNING j.id, j.due_at, j.payload`, c.queue, due, id, ceilingBatch, [16]byte(uuid.Must(uuid.NewV7())))
	if err != nil {
		return 0, fmt.Errorf("claim: %w", err)
	}
	var ids []int64
	var at time.Time
	var work []byte
	if _, err := pgx.ForEachRow(rows, []any{&id, &at, &work}, func() error {
		ids = append(ids, id)
		c.mu.Lock()
		if at.After(c.lastDue) || at.Equal(c.lastDue) && id > c.lastID {
			c.lastDue, c.lastID = at, id
		}
		c.mu.Unlock()
		return nil
	}); err != nil || len(ids) == 0 {
		return 0, err
	}
	// No state is asked for: the statistics of a backlog believe that nothing runs, and would read the whole table.
	tag, err := conn.Exec(ctx, `WITH gone AS (DELETE FROM carillon.jobs j WHERE j.id = ANY ($1::bigint[]) RETURNING j.*)
		INSERT INTO carillon.job_history (id, ended_at, created_at, due_at, started_at, queue_id, salt, attempt, max_attempts, backoff_ms, backoff_max_ms,
			timeout_ms, priority, state, run_id, controller, payload)
		SELECT id, now(), created_at, due_at, started_at, queue_id, salt, attempt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority,
			'succeeded', run_id, controller, payload FROM gone`, ids)
	if err != nil {
		return 0, fmt.Errorf("end: %w", err)
	}
	c.ended.Add(tag.RowsAffected())
	return len(ids), nil
}

func (c *ceiling) begun(context.Context) (int, error) {
	if err := c.failed.Load(); err != nil {
		return 0, *err
	}
	return int(c.ended.Load()), nil
}

func (c *ceiling) late(context.Context, int) ([]time.Duration, error) {
	return nil, fmt.Errorf("nothing is called")
}

func (c *ceiling) live(ctx context.Context, db *pgx.Conn) (bool, error) { return jobsLive(ctx, db) }

func (c *ceiling) verify(ctx context.Context, db *pgx.Conn, jobs int) error {
	return jobsEnded(ctx, db, jobs, int(c.ended.Load()))
}

func (c *ceiling) hot() string { return "carillon.jobs" }

func (c *ceiling) close(ctx context.Context) {
	if c.stop != nil {
		c.stop()
		c.working.Wait()
	}
	if c.intake != nil {
		c.intake.close()
	}
	for _, conn := range append(c.lanes[:], c.singles...) {
		if conn != nil {
			conn.Close(ctx)
		}
	}
	for len(c.fills) > 0 {
		(<-c.fills).Close(ctx)
	}
}

// jobsLive and jobsEnded look at Carillon's tables.
func jobsLive(ctx context.Context, db *pgx.Conn) (live bool, err error) {
	err = db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM carillon.jobs)`).Scan(&live)
	return live, err
}

func jobsEnded(ctx context.Context, db *pgx.Conn, jobs, runs int) error {
	var ended, once, live int
	err := db.QueryRow(ctx, `SELECT count(*), count(DISTINCT id) FILTER (WHERE state = 'succeeded' AND attempt = 1), (SELECT count(*) FROM carillon.jobs)
		FROM carillon.job_history`).Scan(&ended, &once, &live)
	if err == nil && (live > 0 && runs > 0 || ended+live != jobs || once != ended || runs != ended) {
		err = fmt.Errorf("%d jobs were enqueued: %d live, %d in the history, %d of them succeeded at their first attempt; %d runs", jobs, live, ended, once, runs)
	}
	return err
}

func (c *ceiling) cpu() time.Duration { return thisCPU() }
