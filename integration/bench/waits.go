package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchWaits looks, many times a second, at what statements run or wait for; stop returns how often each was seen.
func (f *belfry) watchWaits(ctx context.Context) (stop func() map[string]int) {
	if !f.b.statements {
		return func() map[string]int { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	seen, done := map[string]int{}, make(chan struct{})
	go func() {
		defer close(done)
		db, err := pgx.Connect(ctx, f.url)
		if err != nil {
			return
		}
		defer db.Close(context.WithoutCancel(ctx))
		for pause(ctx, 20*time.Millisecond) == nil {
			rows, err := db.Query(ctx, `SELECT split_part(query, ' ', 3) || ': ' || COALESCE(wait_event_type || ' ' || wait_event, 'runs') FROM pg_stat_activity
				WHERE state = 'active' AND datname = current_database() AND pid <> pg_backend_pid()`)
			if err != nil {
				return
			}
			all, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return
			}
			for _, what := range all {
				seen[what]++
			}
		}
	}()
	return func() map[string]int {
		cancel()
		<-done
		return seen
	}
}

// sayStatements says which statements took most of a stretch, and what they waited for.
func (f *belfry) sayStatements(ctx context.Context, e expense, waits map[string]int) error {
	if !f.b.statements || !f.b.counts {
		return nil
	}
	rows, err := f.db.Query(ctx, `SELECT calls, total_exec_time, rows, left(regexp_replace(query, '\s+', ' ', 'g'), 90) FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY total_exec_time DESC LIMIT 15`)
	if err != nil {
		return fmt.Errorf("list statements: %w", err)
	}
	var calls, n int64
	var ms float64
	var text string
	_, err = pgx.ForEachRow(rows, []any{&calls, &ms, &n, &text}, func() error {
		say("  %8.1f calls/s %8.1f ms/s %10.1f rows/s  %s", float64(calls)/e.took.Seconds(), ms/e.took.Seconds(), float64(n)/e.took.Seconds(), text)
		return nil
	})
	order := slices.SortedFunc(maps.Keys(waits), func(a, b string) int { return waits[b] - waits[a] })
	for _, what := range order[:min(len(order), 15)] {
		say("  seen %6d times: %s", waits[what], what)
	}
	return err
}
