package cluster

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/integration/checker"
)

// Quiesce stops the starts of modules and waits until nothing of them executes, so that a history is whole.
func (c *Cluster) Quiesce(t testing.TB, modules ...*Module) {
	t.Helper()
	for _, m := range modules {
		c.Scale(t, c.Any(t), m, 0)
	}
	Eventually(t, 30*time.Second, "an end of all runs", func() error {
		for _, m := range modules {
			var n int
			err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.cron_jobs WHERE state = 'executing' AND ref LIKE $1`, m.Name+".%").Scan(&n)
			if err == nil && n > 0 {
				err = fmt.Errorf("%d runs of %s go on", n, m.Name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// InFlight waits until runs of these verbs began a moment ago, at one controller or at any: for faults that shall hit runs
// in flight, on a machine that is late itself.
func (c *Cluster) InFlight(t testing.TB, m *Module, prefix, controller string) {
	t.Helper()
	Eventually(t, 10*time.Second, "a run in flight", func() error {
		var n int
		err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.cron_jobs WHERE state = 'executing' AND starts_with(ref, $1) AND controller LIKE $2
			AND started_at > now() - interval '200 ms'`, m.Name+"."+prefix, cmp.Or(controller, "%")).Scan(&n)
		if err == nil && n == 0 {
			err = fmt.Errorf("no run of %s.%s began within 200 ms", m.Name, prefix)
		}
		return err
	})
}

// History reads all that is known of a module.
func (c *Cluster) History(t testing.TB, m *Module) checker.History {
	t.Helper()
	h := checker.History{}
	c.mu.Lock()
	for ref, job := range c.jobs {
		if m.owns(ref) {
			j := *job
			j.Eras, j.Pauses = slices.Clone(job.Eras), slices.Clone(job.Pauses)
			h.Jobs = append(h.Jobs, j)
		}
	}
	slices.SortFunc(h.Jobs, func(a, b checker.Job) int { return strings.Compare(a.Ref, b.Ref) })
	h.Faults = slices.Clone(c.faults)
	for _, s := range c.samples {
		if m.owns(s.Ref) {
			h.Samples = append(h.Samples, s)
		}
	}
	c.mu.Unlock()
	err := pgx.BeginTxFunc(t.Context(), c.SQL, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return readTables(t.Context(), tx, m.Name, &h)
	})
	if err == nil {
		h.Records, err = readRecords(m.Record)
	}
	if err != nil {
		t.Fatalf("read the history of %s: %v", m.Name, err)
	}
	return h
}

func readTables(ctx context.Context, tx pgx.Tx, module string, h *checker.History) error {
	rows, err := tx.Query(ctx, `SELECT j.ref, r.slot, r.slot_to, r.count, COALESCE(r.run_id::text, ''), r.kind = 'manual', COALESCE(r.controller, ''),
			COALESCE(r.started_at, r.ended_at), r.ended_at, r.verdict::text, COALESCE(r.error, '')
		FROM carillon.runs r JOIN carillon.cron_jobs j ON j.id = r.cron_job_id WHERE j.ref LIKE $1`, module+".%")
	if err != nil {
		return err
	}
	h.Rows, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (x checker.Row, err error) {
		return x, r.Scan(&x.Ref, &x.Slot, &x.SlotTo, &x.Count, &x.RunID, &x.Manual, &x.Controller, &x.StartedAt, &x.EndedAt, &x.Verdict, &x.Error)
	})
	if err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `SELECT j.ref, COALESCE(j.next_execution, '0001-01-01Z'), j.enabled, j.state = 'executing', COALESCE(j.run_slot, '0001-01-01Z'), COALESCE(j.run_id::text, ''),
			EXISTS (SELECT FROM carillon.controllers c WHERE c.key = j.controller AND c.heartbeat_at > now() - interval '12 s'), now()
		FROM carillon.cron_jobs j WHERE j.ref LIKE $1`, module+".%")
	if err != nil {
		return err
	}
	h.Final, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (f checker.Final, err error) {
		return f, r.Scan(&f.Ref, &f.Next, &f.Enabled, &f.Executing, &f.Slot, &f.RunID, &f.OwnerLive, &h.Read)
	})
	return err
}

func readRecords(path string) ([]checker.Record, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []checker.Record
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p := strings.Split(lines.Text(), "\t")
		if len(p) != 8 || p[0] != "begin" && p[0] != "end" {
			return nil, fmt.Errorf("record %q is none", lines.Text())
		}
		slot, err1 := strconv.ParseInt(p[4], 10, 64)
		at, err2 := strconv.ParseInt(p[6], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("record %q: %w", lines.Text(), err)
		}
		all = append(all, checker.Record{Begin: p[0] == "begin", Runner: p[1], RunID: p[2], Ref: p[3], Slot: time.UnixMicro(slot), At: time.Unix(0, at), Err: p[7]})
	}
	return all, lines.Err()
}

const shownViolations = 25

// unblocked shows claims and ends that waited for a lock until they gave up. They lock in one order, so that none should,
// but a deploy of a large module may hold its rows for that long.
func (c *Cluster) unblocked(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.controllers {
		text, n := k.Log(), 0
		for line := range strings.Lines(text[min(k.read, len(text)):]) {
			if strings.Contains(line, "lock timeout") {
				n++
			}
		}
		if k.read = len(text); n > 0 {
			t.Logf("controller %s: %d statements gave up waiting for a lock", k.Key, n)
		}
	}
}

// Judge quiesces modules, and demands that every promise was kept. It returns their histories.
func (c *Cluster) Judge(t testing.TB, modules ...*Module) []checker.History {
	t.Helper()
	c.Quiesce(t, modules...)
	c.unblocked(t)
	c.strained(t)
	var all []checker.History
	for _, m := range modules {
		h := c.History(t, m)
		all = append(all, h)
		found := checker.Check(h)
		for i, v := range found {
			if i == shownViolations {
				t.Errorf("and %d more", len(found)-i)
				break
			}
			t.Errorf("%v", v)
		}
		t.Logf("%s: %v; %v", m.Name, Verdicts(h), LatenessOf(h))
		c.retire(m)
	}
	return all
}

// Verdicts counts slots by verdict.
func Verdicts(h checker.History) map[string]int {
	n := map[string]int{}
	for _, r := range h.Rows {
		n[r.Verdict] += r.Count
	}
	return n
}

// Lateness of starts, from slot to claim and to the verb's begin.
type Lateness struct {
	Runs             int
	P50, P99, Max    time.Duration // of claims
	Begin50, Begin99 time.Duration
	Excluded         int // runs in the way of a fault
}

func (l Lateness) String() string {
	r := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d calm runs, claimed p50 %v p99 %v max %v, begun p50 %v p99 %v (%d near a fault left out)",
		l.Runs, r(l.P50), r(l.P99), r(l.Max), r(l.Begin50), r(l.Begin99), l.Excluded)
}

// LatenessOf measures the runs that no fault touched.
func LatenessOf(h checker.History) Lateness {
	var l Lateness
	begins := map[string]time.Time{}
	for _, r := range h.Records {
		if r.Begin {
			begins[r.RunID] = r.At
		}
	}
	var claims, begun []time.Duration
	for _, r := range h.Rows {
		if r.RunID == "" || r.Manual {
			continue
		}
		if slices.ContainsFunc(h.Faults, func(f checker.Fault) bool {
			return f.Concerns(r.Ref) && r.Slot.After(f.From.Add(-time.Second)) && r.Slot.Before(f.To.Add(f.Recovery))
		}) {
			l.Excluded++
			continue
		}
		claims = append(claims, r.StartedAt.Sub(r.Slot))
		if at, ok := begins[r.RunID]; ok {
			begun = append(begun, at.Sub(r.Slot))
		}
	}
	slices.Sort(claims)
	slices.Sort(begun)
	l.Runs = len(claims)
	l.P50, l.P99, l.Max = share(claims, 0.5), share(claims, 0.99), share(claims, 1)
	l.Begin50, l.Begin99 = share(begun, 0.5), share(begun, 0.99)
	return l
}

func share(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}
