// Package storetest gives tests a migrated database of their own, on a real Postgres.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/devdb/devtest"
	"carillon/backend/store"
)

// URL is a migrated, empty database, dropped after the test.
func URL(t testing.TB) string {
	t.Helper()
	return devtest.Template(t, "carillon", func(url string) error {
		_, err := store.Migrate(context.Background(), url)
		return err
	})
}

// DB is a database with a store and a pool of its own for looking and meddling by SQL.
type DB struct {
	*store.Store
	Pool *pgxpool.Pool
	URL  string // straight to the database
	Way  string // that the store goes, through a pooler perhaps
	t    testing.TB
}

// Open opens a store in a session zone (empty: UTC).
func Open(t testing.TB, zone string) DB {
	t.Helper()
	url := URL(t)
	return open(t, url, url, zone)
}

// looking is a pool of a test's own.
func looking(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Exec runs SQL, or fails the test.
func (db DB) Exec(sql string, args ...any) {
	db.t.Helper()
	if _, err := db.Pool.Exec(context.Background(), sql, args...); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
}

// Scan reads one row, or fails the test.
func (db DB) Scan(sql string, args []any, into ...any) {
	db.t.Helper()
	if err := db.Pool.QueryRow(context.Background(), sql, args...).Scan(into...); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
}

// Now is the database's clock, to the microsecond, in UTC.
func (db DB) Now() time.Time {
	var now time.Time
	db.Scan("SELECT clock_timestamp()", nil, &now)
	return now.UTC()
}

// Deploy makes n enabled cron jobs m.v0 .. of one live deployment, every second, their first undecided slot at next.
// It returns them in order of id.
func (db DB) Deploy(n int, next time.Time) []cron.Job {
	db.t.Helper()
	ctx := context.Background()
	d, err := db.PutDeployment(ctx, deployment.Deployment{Key: "m-abc", Module: "m", Language: "go", Digest: "abc", Schema: "module m"})
	if err != nil {
		db.t.Fatal(err)
	}
	m, err := db.UpdateModule(ctx, "m", d.ID, func(deployment.Module) (deployment.Update, error) {
		u := deployment.Update{Activate: true}
		for i := range n {
			u.Jobs = append(u.Jobs, deployment.JobUpdate{Job: cron.Job{
				Ref: fmt.Sprintf("m.v%d", i), Shard: int32(i % 1021), Schedule: "* * * * * *", Timeout: 5 * time.Second,
				Catchup: cron.CatchupLast, Overlap: cron.OverlapSkip, Enabled: true, Next: next,
			}})
		}
		return u, nil
	})
	if err != nil {
		db.t.Fatal(err)
	}
	return m.Jobs
}

// Controller registers a controller that has been alive for a while.
func (db DB) Controller(key string, alive time.Duration) {
	db.t.Helper()
	db.Exec("INSERT INTO carillon.controllers (key, endpoint, alive_since) VALUES ($1, $1, now() - $2::interval)", key, alive.String())
}

// EmptyURL is a database without our schema, dropped after the test.
func EmptyURL(t testing.TB) string { return devtest.Database(t) }
