package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/ring"
	"carillon/backend/store"
)

// setBack is how long ago the first slot of each row was: every execution takes the row one second on, and no slot may
// come to stand in the future.
const setBack = 2 * time.Hour

// fill makes a database with so many enabled, idle cron jobs of one module that have run before.
func fill(ctx context.Context, url string, n int) (*pgx.Conn, []int64, error) {
	if _, err := store.Migrate(ctx, url); err != nil {
		return nil, nil, err
	}
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the new database: %w", err)
	}
	first := time.Now().Add(-setBack).Truncate(time.Second).UTC()
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO carillon.modules (id, name) VALUES (1, 'bench')`, nil},
		{`INSERT INTO carillon.deployments (id, key, module_id, digest, language, schema, activated_at)
			VALUES (1, 'bench-0badcafe', 1, '0badcafe', 'go', 'module bench', now())`, nil},
		{`UPDATE carillon.modules SET deployment_id = 1`, nil},
		{`INSERT INTO carillon.cron_jobs (module_id, deployment_id, ref, shard, schedule, timeout_ms, enabled, next_execution,
				run_slot, started_at, deadline_at, run_deployment, attempt, run_id, controller)
			SELECT 1, 1, 'bench.tick' || i, i % $2, '* * * * * *', 300000, true, $3::timestamptz,
				$3::timestamptz, $3::timestamptz, $3::timestamptz, 1, 1, gen_random_uuid(), $4
			FROM generate_series(1, $1::int) i`, []any{n, ring.Shards, first, controllerKey}},
		{`VACUUM ANALYZE carillon.cron_jobs`, nil},
		// A server that has run for a while writes into old segments of its log; a new one would make each of them first,
		// and the more a kind writes the more it would pay for that.
		{`SELECT pg_logical_emit_message(false, 'bench', repeat('x', 1 << 20)) FROM generate_series(1, 2500)`, nil},
		{`CHECKPOINT`, nil},
	} {
		if _, err := db.Exec(ctx, step.sql, step.args...); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("fill the table: %w", err), db.Close(context.WithoutCancel(ctx)))
		}
	}
	ids := make([]int64, 0, n)
	slots, err := readSlots(ctx, db)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close(context.WithoutCancel(ctx)))
	}
	for id := range slots {
		ids = append(ids, id)
	}
	return db, ids, nil
}

// readSlots reads where each row stands, in microseconds.
func readSlots(ctx context.Context, db *pgx.Conn) (map[int64]int64, error) {
	rows, err := db.Query(ctx, `SELECT id, next_execution FROM carillon.cron_jobs`)
	if err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	slots := map[int64]int64{}
	var id int64
	var next time.Time
	if _, err := pgx.ForEachRow(rows, []any{&id, &next}, func() error {
		slots[id] = next.UnixMicro()
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	return slots, nil
}

// hotShare counts updates and those that touched no index.
type hotShare struct{ all, hot int64 }

func (h hotShare) minus(o hotShare) hotShare { return hotShare{h.all - o.all, h.hot - o.hot} }
func (h hotShare) plus(o hotShare) hotShare  { return hotShare{h.all + o.all, h.hot + o.hot} }

func (h hotShare) part() float64 {
	if h.all == 0 {
		return 0
	}
	return float64(h.hot) / float64(h.all)
}

func readHOT(ctx context.Context, db *pgx.Conn) (h hotShare, err error) {
	err = db.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'carillon.cron_jobs'::regclass`).Scan(&h.all, &h.hot)
	if err != nil {
		err = fmt.Errorf("read the counts of updates: %w", err)
	}
	return h, err
}
