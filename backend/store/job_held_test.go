package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// held runs a statement in a transaction that stays open until the test ends.
func held(t *testing.T, db storetest.DB, sql string, args ...any) {
	t.Helper()
	tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// TestAHeldKeyStopsNoNeighbour: an application enqueues under a key and does not commit.
func TestAHeldKeyStopsNoNeighbour(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	held(t, db, "SELECT carillon.enqueue('m.v', NULL, tenant => 't', unique_key => 'K')")
	batch := make([]job.Enqueue, 16)
	for i := range batch {
		batch[i] = aJob(q)
	}
	batch[5].Unique = "K"
	began := time.Now()
	out, err := db.EnqueueJobs(t.Context(), "c1", time.Minute, batch)
	if err != nil || len(out) != len(batch) {
		t.Fatalf("%d answers, %v", len(out), err)
	}
	for i, a := range out {
		if i == 5 {
			if !errors.Is(a.Err, cron.ErrUnavailable) {
				t.Errorf("the held one: %+v", a)
			}
			continue
		}
		if a.Err != nil || a.N == 0 {
			t.Errorf("neighbour %d: %+v", i, a)
		}
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestAHeldRowStopsNoClaim: somebody looks at a ready job FOR UPDATE.
func TestAHeldRowStopsNoClaim(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	ids := ready(t, db, q, 10)
	held(t, db, "SELECT FROM carillon.jobs WHERE id = $1 FOR UPDATE", ids[4].N)
	won, _, err := db.ClaimJobs(t.Context(), "c1", time.Minute, claimOf(ids...), "")
	if err != nil || len(won) != 9 {
		t.Fatalf("won %d, %v", len(won), err)
	}
}
