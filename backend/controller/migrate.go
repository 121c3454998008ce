package controller

import (
	"context"
	"fmt"
	"io"
	"time"

	"carillon/backend/store"
)

// Migration is one step of the database's schema.
type Migration struct {
	Version   int64
	Source    string
	Applied   bool
	AppliedAt time.Time
}

// Migrate brings the schema to this binary's version, and says on w what it did. Of several at once, one does it.
func Migrate(ctx context.Context, url string, w io.Writer) error {
	applied, err := store.Migrate(ctx, url)
	for _, m := range applied {
		fmt.Fprintf(w, "applied %s\n", m.Source)
	}
	if err == nil && len(applied) == 0 {
		fmt.Fprintln(w, "the schema is up to date")
	}
	return err
}

// MigrateDown takes the last step back, with all data it holds.
func MigrateDown(ctx context.Context, url string, w io.Writer) error {
	m, err := store.MigrateDown(ctx, url)
	if err == nil {
		fmt.Fprintf(w, "took back %s\n", m.Source)
	}
	return err
}

// MigrationStatus lists all steps that this binary knows.
func MigrationStatus(ctx context.Context, url string) ([]Migration, error) {
	all, err := store.MigrationStatus(ctx, url)
	out := make([]Migration, len(all))
	for i, m := range all {
		out[i] = Migration{Version: m.Version, Source: m.Source, Applied: !m.AppliedAt.IsZero(), AppliedAt: m.AppliedAt}
	}
	return out, err
}
