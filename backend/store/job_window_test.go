package store_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// Pages by keyset see each ready job of the given shards once, in order, and nothing of other queues.
func TestWindowPages(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q, other := putQueue(t, db, "t", "m.v", 2), putQueue(t, db, "t", "m.v", 4)
		ids := ready(t, db, q, 95) // one statement: all due in the same instant
		ids = append(ids, ready(t, db, q, 5)...)
		ready(t, db, other, 10)
		delayed := aJob(q)
		delayed.Delay = 30 * time.Second
		soon := enqueue(t, db, delayed)[0].ID
		delayed.Delay = time.Hour
		enqueue(t, db, delayed)
		var seen []int64
		cut := job.Cut{Queue: q.ID}
		for {
			page := window(t, db, cut, 30)
			for _, w := range page {
				if w.Queue != q.ID || w.Priority != 500 {
					t.Fatalf("waiting %+v", w)
				}
				seen, cut.Due, cut.ID = append(seen, w.ID), w.Due, w.ID
			}
			if len(page) < 30 {
				break
			}
		}
		var want []int64
		for _, id := range append(ids, soon) {
			want = append(want, id.N)
		}
		if !slices.Equal(seen, want) {
			t.Errorf("saw %v, want %v", seen, want)
		}
		some := []int32{int32(ids[3].N % 1021), int32(ids[50].N % 1021)}
		both, now, err := db.FetchWindow(t.Context(), []job.Cut{{Queue: other.ID}, {Queue: q.ID}}, some, 0, 4)
		if err != nil || db.Now().Sub(now).Abs() > time.Second || slices.ContainsFunc(both, func(w job.Waiting) bool { return !slices.Contains(some, w.Shard) }) {
			t.Errorf("both %+v at %s, %v", both, now, err)
		}
		if got, _, err := db.FetchWindow(t.Context(), []job.Cut{{Queue: other.ID}, {Queue: q.ID}}, allShards, 0, 4); err != nil || len(got) != 8 {
			t.Errorf("%d of two queues, %v", len(got), err)
		}
		db.Exec("UPDATE carillon.jobs SET due_at = due_at - interval '10 seconds' WHERE id = ANY ($1)", want[:3])
		if late, _, err := db.FetchOverdue(t.Context(), 5*time.Second, 2); err != nil || len(late) != 2 || late[0].ID != want[0] {
			t.Errorf("overdue %+v, %v", late, err)
		}
		if _, err := db.PauseQueues(t.Context(), "t", "", ""); err != nil {
			t.Fatal(err)
		}
		if late, _, err := db.FetchOverdue(t.Context(), 5*time.Second, 2); err != nil || len(late) != 0 {
			t.Errorf("overdue in a paused queue: %+v, %v", late, err)
		}
	})
}

// A job that was inserted before the cut and committed after it is missed by the cut, and found from the head.
func TestLateCommitsAreFoundByRefetch(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "America/New_York")
	q := putQueue(t, db, "t", "m.v", 2)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	var late int64
	err = tx.QueryRow(t.Context(), `INSERT INTO carillon.jobs (queue_id, shard, salt, due_at, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload)
		VALUES ($1, 0, 1, now(), 1, 1, 1, 1000, 500, '') RETURNING id`, q.ID).Scan(&late)
	if err != nil {
		t.Fatal(err)
	}
	ready(t, db, q, 3)
	page := window(t, db, job.Cut{Queue: q.ID}, 10)
	if len(page) != 3 {
		t.Fatalf("page %+v", page)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if more := window(t, db, job.Cut{Queue: q.ID, Due: page[2].Due, ID: page[2].ID}, 10); len(more) != 0 {
		t.Fatalf("after the cut %+v", more)
	}
	if again := window(t, db, job.Cut{Queue: q.ID}, 10); len(again) != 4 || again[0].ID != late {
		t.Errorf("from the head %+v", again)
	}
}

// While a snapshot is held nothing can be vacuumed; a window that goes on from its cut does not read what was finished.
func TestWindowUnderAHeldSnapshot(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "DECLARE held CURSOR FOR SELECT * FROM carillon.jobs"); err != nil { // keeps its snapshot open
		t.Fatal(err)
	}
	cut := job.Cut{Queue: q.ID}
	for range 20 {
		ids := ready(t, db, q, 500)
		page := window(t, db, cut, 1000)
		if len(page) != 500 {
			t.Fatalf("page of %d", len(page))
		}
		cut.Due, cut.ID = page[499].Due, page[499].ID
		var ends []job.End
		for _, c := range claimAll(t, db, ids...) {
			ends = append(ends, endOf(c, succeeded))
		}
		if done := finish(t, db, ends...); len(done) != 500 {
			t.Fatalf("done %d", len(done))
		}
	}
	ready(t, db, q, 10)
	read := func(c job.Cut) (buffers int) {
		var plan strings.Builder
		rows, err := db.Pool.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) "+statementOf(t, "FetchWindow"),
			[]int32{c.Queue}, []time.Time{c.Due}, []int64{c.ID}, bytes.Repeat([]byte{255}, 128), 5.0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan.WriteString(line + "\n")
			if _, after, ok := strings.Cut(line, "Buffers: shared hit="); ok && buffers == 0 {
				for _, r := range after {
					if r < '0' || r > '9' {
						break
					}
					buffers = 10*buffers + int(r-'0')
				}
			}
		}
		if !strings.Contains(plan.String(), "jobs_window") {
			t.Errorf("the window's index is not used:\n%s", plan.String())
		}
		return buffers
	}
	if n := read(cut); n == 0 || n > 40 {
		t.Errorf("%d buffers read from the cut on", n)
	}
	if n := read(job.Cut{Queue: q.ID, Due: cut.Due.Add(-time.Hour)}); n < 100 {
		t.Logf("%d buffers from the head: the snapshot held nothing back, the test shows little", n)
	}
}

// statementOf is a statement as the store sends it.
func statementOf(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile("internal/sqlc/job.sql.go")
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

// Plans must not rest on what the planner knew of the table: neither a generic one that was made while it was empty, nor
// statistics that say so, make a claim or an end read the backlog.
func TestPlansFollowTheTable(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	round := func(n int) time.Duration {
		ids := ready(t, db, q, n)
		began := time.Now()
		var ends []job.End
		for _, c := range claimAll(t, db, ids...) {
			ends = append(ends, endOf(c, succeeded))
		}
		if done := finish(t, db, ends...); len(done) != n {
			t.Fatalf("done %d of %d", len(done), n)
		}
		return time.Since(began)
	}
	best := func(n int) time.Duration {
		d := time.Hour
		for range 8 {
			d = min(d, round(n))
		}
		return d
	}
	db.Exec("ALTER TABLE carillon.jobs SET (autovacuum_enabled = off)")
	backlog := func(n int, state string) {
		db.Exec(`INSERT INTO carillon.jobs (queue_id, shard, salt, due_at, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload, state,
				run_id, started_at, deadline_at, controller)
			SELECT $1, 0, 1, now() - interval '1 minute', 1, 1, 1, 1000, 500, '', $3, gen_random_uuid(), now(), now(), 'c' FROM generate_series(1, $2)`, q.ID, n, state)
	}
	for range 10 { // prepared, used, and analyzed while there is nothing
		round(1)
		db.Exec("VACUUM ANALYZE carillon.jobs")
	}
	empty := best(500)
	check := func(when string) {
		full := best(500)
		for range 4 { // a neighbour's load passes, a bad plan stays
			if full > 3*empty {
				full = min(full, best(500))
			}
		}
		if full > 3*empty {
			t.Errorf("500 jobs take %s beside a backlog %s, %s without", full, when, empty)
		}
	}
	backlog(100_000, "ready")
	check("of 100,000 that came after the statistics")
	db.Exec("TRUNCATE carillon.jobs")
	backlog(20_000, "running")
	db.Exec("VACUUM ANALYZE carillon.jobs")
	db.Exec("TRUNCATE carillon.jobs")
	backlog(20_000, "ready")
	check("of 20,000, nothing of which is ready by the statistics")
	db.Exec("TRUNCATE carillon.jobs")
	backlog(50_000, "ready")
	db.Exec("DELETE FROM carillon.jobs WHERE id NOT IN (SELECT min(id) FROM carillon.jobs UNION SELECT max(id) FROM carillon.jobs)")
	db.Exec("VACUUM carillon.jobs") // the two that are left keep the primary key high
	db.Exec("REINDEX INDEX carillon.jobs_window")
	round(1)
	backlog(20_000, "ready")
	check("of 20,000 that came when the window's index was the smaller one")
}

// A claim writes a new row beside the old one, whose room nobody can have before the claim has committed, and it comes for
// all rows of a page at once: a page that has no such room for all of them costs each update its entries in every index.
func TestClaimsOfABacklogStayHot(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	batch := make([]job.Enqueue, 1000)
	for i := range batch {
		batch[i] = aJob(q)
	}
	var ids []job.ID
	for _, j := range enqueue(t, db, batch...) {
		ids = append(ids, j.ID)
	}
	for part := range slices.Chunk(ids, 250) {
		claimAll(t, db, part...)
	}
	db.Store.Close() // sessions report what they counted as they end
	var updates, hot int
	waitFor(t, func() bool {
		db.Scan("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'", nil, &updates, &hot)
		return updates >= len(ids)
	})
	if hot < updates*9/10 {
		t.Errorf("%d of %d updates are HOT", hot, updates)
	}
}

// Whoever may make functions in the database must not be able to say how jobs end: FinishJobs names columns in a way that
// a function of that name would answer, were it found.
func TestForeignFunctionsAreNotAsked(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	for _, name := range []string{"final", "output", "fault", "words", "told"} {
		db.Exec("CREATE FUNCTION public." + name + "(anyelement) RETURNS text LANGUAGE sql AS $$ SELECT 'cancelled'::text $$")
	}
	q := putQueue(t, db, "t", "m.v", 2)
	id := ready(t, db, q, 1)[0]
	finish(t, db, endOf(claimAll(t, db, id)[0], succeeded))
	if j := getJob(t, db, id); j.State != job.Succeeded {
		t.Errorf("it ended as %v", j.State)
	}
}
