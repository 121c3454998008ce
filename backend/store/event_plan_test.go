package store_test

import (
	"os"
	"strings"
	"testing"

	"carillon/backend/store/storetest"
)

// TestTriggersOfEventsAreFoundByTheirKey: also before their table is analysed, when very many have just been made.
func TestTriggersOfEventsAreFoundByTheirKey(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	const n = 5000
	db.Exec("ALTER TABLE carillon.triggers SET (autovacuum_enabled = off)")
	db.Exec("ALTER TABLE carillon.events SET (autovacuum_enabled = off)")
	db.Exec(`INSERT INTO carillon.triggers (key, tenant, kind, arguments, worker, ref, queue_id, priority, max_attempts, backoff_ms, backoff_max_ms, timeout_ms)
		SELECT md5(i::text), 't', '@event', 'io.cozy.files', 'v', 'm.v', $1, 500, 1, 1000, 1000, 1000 FROM generate_series(1, $2::int) i`, q.ID, n)
	db.Exec("INSERT INTO carillon.events (id, shard, tenant, type, verb) SELECT i, i, 't', 'io.cozy.files', 'CREATED' FROM generate_series(1, 500) i")
	for _, tc := range []struct {
		statement, arguments string
		ways                 []string
	}{
		{"GetMakers", "(NULL)", []string{"triggers_pkey"}}, {"InsertEventJobs", "(NULL, NULL, NULL, NULL)", []string{"triggers_pkey", "events_pkey"}},
		{"InsertTriggerJobs", "(NULL, NULL, NULL, NULL, NULL, NULL, NULL)", []string{"triggers_pkey"}}, {"LockDueDebounces", "(NULL)", []string{"triggers_pkey"}},
	} {
		plan := planOfJobs(t, db, eventStatement(t, tc.statement), tc.arguments)
		for _, way := range tc.ways {
			if !strings.Contains(plan, way) {
				t.Errorf("%s does not go by %s:\n%s", tc.statement, way, plan)
			}
		}
	}
}

// eventStatement is a statement about events as the store sends it.
func eventStatement(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile("internal/sqlc/event.sql.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(source), "`-- name: "+name+" ")
	_, text, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, "`")
	if !found {
		t.Fatalf("there is no statement %s", name)
	}
	return text
}

// planOfJobs is the generic plan that a connection of the jobs makes.
func planOfJobs(t *testing.T, db storetest.DB, statement, arguments string) string {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	for _, set := range []string{"plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off", "enable_bitmapscan = off", "random_page_cost = 1.1"} {
		if _, err := tx.Exec(t.Context(), "SET LOCAL "+set); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec(t.Context(), "PREPARE planned AS "+statement); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(t.Context(), "EXPLAIN EXECUTE planned "+arguments)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "DEALLOCATE planned"); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
