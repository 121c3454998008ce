package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"carillon/integration/cluster"
)

// TestAnApplicationEnqueuesInItsTransaction: carillon.enqueue() beside a row of the application: both are there after a
// commit, neither after a rollback; with the notification jobs begin at once, without it the poll finds them.
func TestAnApplicationEnqueuesInItsTransaction(t *testing.T) {
	t.Parallel()
	c := settled(t)
	d, _ := c.JobsUp(t, 1, cluster.JobVerb{Name: "work"})
	if _, err := c.SQL.Exec(t.Context(), `CREATE TABLE drill.orders (mark text PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	const rounds = 40
	p50 := map[string]time.Duration{}
	for _, way := range []string{"argument off", "setting off", "notify"} { // one after the other: a notification wakes all
		asked := map[string]time.Time{}
		for i := range rounds {
			mark, commits := fmt.Sprintf("%s %d", way, i), i%4 != 0
			id, err := order(t, c, d, way, mark, commits)
			if commits != (err == nil) || err != nil && !errors.Is(err, errRefused) {
				t.Fatalf("%s: %v", mark, err)
			}
			if commits {
				asked[mark] = time.Now()
				d.Acked(mark, id, false)
			}
			cluster.Let(t, 37*time.Millisecond) // all parts of the poll's second are met
		}
		d.Await(t, 20*time.Second)
		begins := d.Begins(t)
		var waits []time.Duration
		for mark, at := range asked {
			waits = append(waits, begins[mark].Sub(at))
		}
		slices.Sort(waits)
		p50[way] = waits[len(waits)/2]
		worst := waits[len(waits)-1]
		t.Logf("%s: %d committed jobs began p50 %v max %v after the commit", way, len(waits), p50[way].Round(100*time.Microsecond), worst.Round(time.Millisecond))
		if worst > 4*time.Second {
			t.Errorf("%s: a job began %v after its commit", way, worst)
		}
	}
	if p50["notify"] > 3*p50["argument off"]/4 {
		t.Errorf("with the notification half of the jobs began %v after the commit or later, without it %v", p50["notify"], p50["argument off"])
	}
	w := d.Judge(t, true)
	var orders int
	if err := c.SQL.QueryRow(t.Context(), "SELECT count(*) FROM drill.orders").Scan(&orders); err != nil {
		t.Fatal(err)
	}
	if orders != len(w.Ended) {
		t.Errorf("%d orders and %d jobs are there, want one job for each", orders, len(w.Ended))
	}
	badSQL(t, c, d)
}

var errRefused = errors.New("the application changed its mind")

// order is a transaction of the application with a row of its own and a job.
func order(t *testing.T, c *cluster.Cluster, d *cluster.Desk, way, mark string, commits bool) (id string, err error) {
	t.Helper()
	task, err := json.Marshal(cluster.Task{Mark: mark})
	if err != nil {
		return "", err
	}
	if commits {
		d.Noted(cluster.Wish{Task: cluster.Task{Mark: mark}, Verb: "work"}, time.Now())
	}
	err = pgx.BeginFunc(t.Context(), c.SQL, func(tx pgx.Tx) error {
		if way == "setting off" {
			if _, err := tx.Exec(t.Context(), "SET LOCAL carillon.notify = off"); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO drill.orders VALUES ($1)", mark); err != nil {
			return err
		}
		if err := tx.QueryRow(t.Context(), `SELECT carillon.enqueue($1, $2::jsonb, backoff => '100 ms', backoff_ceiling => '1 s', timeout => '1 min', notify => $3)`,
			d.Name+".work", string(task), way != "argument off").Scan(&id); err != nil {
			return err
		}
		if !commits {
			return errRefused
		}
		return nil
	})
	return id, err
}

// badSQL: the same refusals, with the field named.
func badSQL(t *testing.T, c *cluster.Cluster, d *cluster.Desk) {
	t.Helper()
	for field, args := range map[string]string{
		"ref": `'work'`, "delay": `$1, delay => '-1 s'`, "priority": `$1, priority => 100000`, "max_attempts": `$1, max_attempts => 1000000`,
		"backoff": `$1, backoff => '1 year'`, "tags": `$1, tags => ARRAY['a', 'a']`, "unique_window": `$1, unique_window => '1 h'`,
		"payload": `$1, to_jsonb(repeat('x', 1100000))`,
	} {
		query := "SELECT carillon.enqueue(" + args + ")"
		var err error
		if field == "ref" {
			_, err = c.SQL.Exec(t.Context(), query)
		} else {
			_, err = c.SQL.Exec(t.Context(), query, d.Name+".work")
		}
		if e := (*pgconn.PgError)(nil); !errors.As(err, &e) || e.Code != "22023" || e.ColumnName != field {
			t.Errorf("%s: %v, want 22023 that names %s", query, err, field)
		}
	}
	if n, err := d.Left(t.Context()); n != 0 || err != nil {
		t.Errorf("%d jobs were stored (%v)", n, err)
	}
}
