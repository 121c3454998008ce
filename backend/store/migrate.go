package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"carillon/backend/core/cron"
	migrations "carillon/sql"
)

const versionTable = "carillon.schema_versions"

// Migration is one step of the schema.
type Migration struct {
	Version   int64
	Source    string
	AppliedAt time.Time // zero: pending
}

// Migrate brings the schema to this binary's version under a session lock: of several starters one applies, the
// others wait for it. It returns what this call applied.
func Migrate(ctx context.Context, url string) ([]Migration, error) {
	var applied []Migration
	err := withProvider(ctx, url, func(p *goose.Provider) error {
		current, target, err := p.GetVersions(ctx)
		if err != nil {
			return err
		}
		if current > target {
			return newer(current, target)
		}
		results, err := p.Up(ctx)
		for _, r := range results {
			applied = append(applied, Migration{Version: r.Source.Version, Source: r.Source.Path, AppliedAt: time.Now()})
		}
		return err
	})
	return applied, wrap("migrate the database", err)
}

// MigrateDown takes the last step back. Everything that the step made is lost.
func MigrateDown(ctx context.Context, url string) (Migration, error) {
	var m Migration
	err := withProvider(ctx, url, func(p *goose.Provider) error {
		r, err := p.Down(ctx)
		if errors.Is(err, goose.ErrNoNextVersion) {
			return fmt.Errorf("%w: no migration is applied", cron.ErrPrecond)
		}
		if err == nil {
			m = Migration{Version: r.Source.Version, Source: r.Source.Path}
		}
		return err
	})
	return m, wrap("migrate the database down", err)
}

// MigrationStatus lists all steps of this binary.
func MigrationStatus(ctx context.Context, url string) ([]Migration, error) {
	var all []Migration
	err := withProvider(ctx, url, func(p *goose.Provider) error {
		status, err := p.Status(ctx)
		for _, s := range status {
			all = append(all, Migration{Version: s.Source.Version, Source: s.Source.Path, AppliedAt: s.AppliedAt})
		}
		return err
	})
	return all, wrap("read the migration status", err)
}

// CheckSchema says whether the database has exactly this binary's schema.
func CheckSchema(ctx context.Context, url string) error {
	err := withProvider(ctx, url, func(p *goose.Provider) error {
		current, target, err := p.GetVersions(ctx)
		switch {
		case err != nil:
			return err
		case current > target:
			return newer(current, target)
		case current < target:
			return fmt.Errorf("%w: the database has schema version %d, this binary needs %d: run `carillon migrate up`", cron.ErrPrecond, current, target)
		}
		return nil
	})
	return wrap("check the database's schema", err)
}

func newer(current, target int64) error {
	return fmt.Errorf("%w: the database has schema version %d, newer than this binary's %d: use a newer carillon", cron.ErrPrecond, current, target)
}

func withProvider(ctx context.Context, url string, work func(*goose.Provider) error) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler may stand between, see pool.go
	cfg.RuntimeParams["timezone"] = "UTC"
	cfg.RuntimeParams["application_name"] = "carillon migrate"
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	if err := createSchema(ctx, db); err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
	if err != nil {
		return err
	}
	store, err := database.NewStore(goose.DialectPostgres, versionTable)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider("", db, migrations.Migrations(), goose.WithStore(store), goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	return work(p)
}

// createSchema makes the schema that the version table stands in. IF NOT EXISTS alone can lose a race of two starters
// with a unique violation, so they take turns.
func createSchema(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var exists bool
	if err := tx.QueryRowContext(ctx, "SELECT to_regnamespace('carillon') IS NOT NULL").Scan(&exists); err != nil || exists {
		return err
	}
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtext('carillon.schema'))"); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS carillon"); err != nil {
		return err
	}
	return tx.Commit()
}
