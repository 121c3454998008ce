package main

import (
	"context"
	"errors"
	"fmt"

	"carillon/backend/controller"
	"carillon/backend/core/cron"
)

// migrateCmd groups what changes the database's schema.
type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply the migrations that are missing."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and whether they are applied."`
	Down   migrateDownCmd   `cmd:"" help:"Take the latest migration back, with the data that only it can hold."`
}

// database is the flag of the commands that speak to Postgres themselves.
type database struct {
	DatabaseURL string `name:"database-url" env:"DATABASE_URL" placeholder:"URL" help:"The cluster's Postgres: postgres://user:password@host:port/name."`
}

// url is the database's URL, or an error that says how to give it.
func (d database) url() (string, error) {
	if d.DatabaseURL == "" {
		return "", usage{mend(errors.New("no database is named"), "set DATABASE_URL or give --database-url postgres://user:password@host:port/name")}
	}
	return d.DatabaseURL, nil
}

// explainDatabase says what to look at when the database does not answer.
func explainDatabase(err error) error {
	if errors.Is(err, cron.ErrUnavailable) {
		return mend(err, "is Postgres running, and is the database URL right?")
	}
	return err
}

type migrateUpCmd struct{ database }

func (c *migrateUpCmd) Run(ctx context.Context, a *app) error {
	url, err := c.url()
	if err != nil {
		return err
	}
	return explainDatabase(controller.Migrate(ctx, url, a.stdout))
}

type migrateDownCmd struct{ database }

func (c *migrateDownCmd) Run(ctx context.Context, a *app) error {
	url, err := c.url()
	if err != nil {
		return err
	}
	return explainDatabase(controller.MigrateDown(ctx, url, a.stdout))
}

type migrateStatusCmd struct {
	database
	listing
}

func (c *migrateStatusCmd) Run(ctx context.Context, a *app) error {
	url, err := c.url()
	if err != nil {
		return err
	}
	migrations, err := controller.MigrationStatus(ctx, url)
	if err != nil {
		return explainDatabase(err)
	}
	type row struct {
		Version   int64   `json:"version"`
		Source    string  `json:"source"`
		Applied   bool    `json:"applied"`
		AppliedAt *string `json:"applied_at"`
	}
	rows := list(migrations, func(m controller.Migration) row {
		r := row{m.Version, m.Source, m.Applied, nil}
		if m.Applied {
			at := m.AppliedAt.UTC().Format(layoutMicros)
			r.AppliedAt = &at
		}
		return r
	})
	return c.print(a, rows, func() {
		a.table([]string{"version", "migration", "applied (UTC)"}, list(migrations, func(m controller.Migration) []string {
			at := a.paint(yellow, "pending")
			if m.Applied {
				at = m.AppliedAt.UTC().Format(layoutTable)
			}
			return []string{fmt.Sprint(m.Version), m.Source, at}
		}))
	})
}

// pending counts the migrations that the database lacks.
func pending(migrations []controller.Migration) int {
	n := 0
	for _, m := range migrations {
		if !m.Applied {
			n++
		}
	}
	return n
}
