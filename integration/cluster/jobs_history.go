package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/integration/checker"
)

// WatchLimits looks at the limits of the module's verbs until stop is called.
func (d *Desk) WatchLimits(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			rows, err := d.c.SQL.Query(ctx, `SELECT l.ref, l.max_running, l.running, (SELECT count(*)::int FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
				WHERE q.ref = l.ref AND j.state = 'running' AND j.limited) FROM carillon.limits l WHERE starts_with(l.ref, $1)`, d.Name+".")
			if err != nil {
				continue // no database, no look
			}
			found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (l checker.Limit, err error) {
				l.At = time.Now()
				return l, r.Scan(&l.Ref, &l.Max, &l.Running, &l.Rows)
			})
			if err == nil {
				d.mu.Lock()
				d.limits = append(d.limits, found...)
				d.mu.Unlock()
			}
		}
	}()
	return func() { cancel(); <-done }
}

// Left counts the live jobs of the module.
func (d *Desk) Left(ctx context.Context) (n int, err error) {
	err = d.c.SQL.QueryRow(ctx, `SELECT count(*) FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE starts_with(q.ref, $1)`, d.Name+".").Scan(&n)
	return n, err
}

// Await waits until none of the module's jobs is live.
func (d *Desk) Await(t testing.TB, bound time.Duration) time.Duration {
	t.Helper()
	began, slow := time.Now(), time.Time{}
	Eventually(t, bound, "an end of all jobs", func() error {
		if time.Since(slow) < 100*time.Millisecond {
			return errors.New("jobs are live still")
		}
		slow = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		n, err := d.Left(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d jobs are live: %s", n, d.sample(ctx))
		}
		return err
	})
	return time.Since(began)
}

// sample shows some live jobs.
func (d *Desk) sample(ctx context.Context) string {
	rows, err := d.c.SQL.Query(ctx, `SELECT format('%s %s due %s s ago, attempt %s, children %s, controller %s', q.ref, j.state, round(extract(epoch FROM now() - j.due_at)::numeric, 1), j.attempt, j.children, j.controller)
		FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE starts_with(q.ref, $1) LIMIT 5`, d.Name+".")
	if err != nil {
		return err.Error()
	}
	some, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err.Error()
	}
	return strings.Join(some, "; ")
}

// Work reads all that is known of the module's jobs.
func (d *Desk) Work(t testing.TB) checker.Work {
	t.Helper()
	w := checker.Work{}
	d.mu.Lock()
	w.Asks, w.Acks, w.Cancels, w.Limits = append(w.Asks, d.asks...), append(w.Acks, d.acks...), append(w.Cancels, d.cancels...), append(w.Limits, d.limits...)
	d.mu.Unlock()
	d.c.mu.Lock()
	for _, f := range d.c.faults {
		if f.Module == "" || f.Module == d.Name {
			w.Faults = append(w.Faults, f)
		}
	}
	d.c.mu.Unlock()
	err := pgx.BeginTxFunc(t.Context(), d.c.SQL, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return readJobs(t.Context(), tx, d.Name+".", &w)
	})
	if err == nil {
		w.Doings, err = readDoings(d.Record + ".jobs")
	}
	if err != nil {
		t.Fatalf("read the jobs of %s: %v", d.Name, err)
	}
	return w
}

const markOf = `COALESCE(convert_from(NULLIF(payload, ''), 'UTF8')::jsonb ->> 'mark', '')`

func readJobs(ctx context.Context, tx pgx.Tx, prefix string, w *checker.Work) error {
	if err := tx.QueryRow(ctx, "SELECT now()").Scan(&w.Read); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT j.id, `+markOf+`, q.ref, j.state::text, j.due_at, j.attempt, COALESCE(j.parent_id, 0), j.children, j.limited, COALESCE(j.run_id::text, ''),
			EXISTS (SELECT FROM carillon.controllers c WHERE c.key = j.controller AND c.heartbeat_at > now() - interval '12 s')
		FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE starts_with(q.ref, $1)`, prefix)
	if err != nil {
		return err
	}
	w.Live, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (l checker.LiveJob, err error) {
		return l, r.Scan(&l.ID, &l.Mark, &l.Ref, &l.State, &l.Due, &l.Attempt, &l.Parent, &l.Children, &l.Limited, &l.Run, &l.OwnerLive)
	})
	if err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `SELECT h.id, `+markOf+`, q.ref, h.state::text, h.ended_at, h.attempt, COALESCE(h.parent_id, 0), COALESCE(h.run_id::text, ''), COALESCE(h.controller, ''),
			COALESCE(h.errors, '[]'), h.redriven
		FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id WHERE starts_with(q.ref, $1)`, prefix)
	if err != nil {
		return err
	}
	w.Ended, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (e checker.EndedJob, err error) {
		var errs []struct {
			At            time.Time
			Attempt       int
			Run           *string
			Verdict, Text string
		}
		err = r.Scan(&e.ID, &e.Mark, &e.Ref, &e.State, &e.Ended, &e.Attempt, &e.Parent, &e.Run, &e.Controller, &errs, &e.Redriven)
		for _, x := range errs {
			run := ""
			if x.Run != nil {
				run = *x.Run
			}
			e.Errors = append(e.Errors, checker.JobError{At: x.At, Attempt: x.Attempt, Run: run, Verdict: x.Verdict, Text: x.Text})
		}
		return e, err
	})
	if err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `SELECT DISTINCT q.ref FROM carillon.queues q WHERE q.paused_at IS NOT NULL AND starts_with(q.ref, $1)`, prefix)
	if err != nil {
		return err
	}
	if w.Paused, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `SELECT now(), l.ref, l.max_running, l.running, (SELECT count(*)::int FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
		WHERE q.ref = l.ref AND j.state = 'running' AND j.limited) FROM carillon.limits l WHERE starts_with(l.ref, $1)`, prefix)
	if err != nil {
		return err
	}
	limits, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (l checker.Limit, err error) {
		return l, r.Scan(&l.At, &l.Ref, &l.Max, &l.Running, &l.Rows)
	})
	w.Limits = append(w.Limits, limits...)
	return err
}

func readDoings(path string) ([]checker.Doing, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	defer f.Close()
	var all []checker.Doing
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p := strings.Split(lines.Text(), "\t")
		if len(p) != 9 || p[0] != "begin" && p[0] != "end" {
			return nil, fmt.Errorf("record %q is none", lines.Text())
		}
		attempt, err1 := strconv.Atoi(p[5])
		at, err2 := strconv.ParseInt(p[6], 10, 64)
		wait, err3 := strconv.ParseInt(p[8], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("record %q: %w", lines.Text(), err)
		}
		all = append(all, checker.Doing{
			Begin: p[0] == "begin", Runner: p[1], Run: p[2], Ref: p[3], Job: number(p[4]), Attempt: attempt, At: time.Unix(0, at),
			Said: strings.TrimPrefix(p[7], "-"), Wait: time.Duration(wait) * time.Millisecond,
		})
	}
	return all, lines.Err()
}

// Judge demands that every promise was kept to the desk's jobs, and ends the module's runners.
func (d *Desk) Judge(t testing.TB, settled bool) checker.Work {
	t.Helper()
	d.c.unblocked(t)
	d.c.strained(t)
	w := d.Work(t)
	w.Settled = settled
	found := checker.CheckWork(w)
	for i, v := range found {
		if i == shownViolations {
			t.Errorf("and %d more", len(found)-i)
			break
		}
		t.Errorf("%v", v)
	}
	states, errs, said, begun := map[string]int{}, map[string]int{}, map[string]int{}, 0
	for _, e := range w.Ended {
		states[e.State]++
		for _, x := range e.Errors {
			errs[x.Verdict]++
		}
	}
	for _, x := range w.Doings {
		if x.Begin {
			begun++
		} else {
			said[x.Said]++
		}
	}
	t.Logf("%s: %d asked for, ended %v, %d live, %d runs begun, said %v, errors %v, %d wishes uttered again", d.Name, len(w.Asks), states, len(w.Live), begun, said, errs, d.Again())
	d.c.retire(d.Module)
	return w
}

// CLI runs the one binary as a person would, against a controller, and returns what it said and its exit code.
func (c *Cluster) CLI(t testing.TB, k *Controller, stdin string, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin.dir, "carillon"), args...)
	cmd.Env = append(os.Environ(), "CARILLON_CONTROLLER="+k.URL, "CARILLON_ADMIN_TOKEN="+c.admin, "NO_COLOR=1")
	cmd.Stdin = strings.NewReader(stdin)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return both.String(), cmd.ProcessState.ExitCode()
}

// Acks counts the jobs that were acknowledged.
func (d *Desk) Acks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := map[int64]bool{}
	for _, a := range d.acks {
		ids[a.ID] = true
	}
	return len(ids)
}

// Begins says when each acknowledged wish was first begun, by its mark.
func (d *Desk) Begins(t testing.TB) map[string]time.Time {
	t.Helper()
	doings, err := readDoings(d.Record + ".jobs")
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	marks := map[int64]string{}
	for _, a := range d.acks {
		marks[a.ID] = a.Mark
	}
	first := map[string]time.Time{}
	for _, x := range doings {
		mark := marks[x.Job]
		if have, ok := first[mark]; x.Begin && (!ok || x.At.Before(have)) {
			first[mark] = x.At
		}
	}
	return first
}

// Begun counts the runs that began so far by what the runners wrote: a look that costs the database nothing. For one
// goroutine at a time.
func (d *Desk) Begun() (int, error) {
	f, err := os.Open(d.Record + ".jobs")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Seek(d.read, io.SeekStart); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	d.read += int64(len(text))
	d.begun += bytes.Count(text, []byte("begin\t"))
	return d.begun, nil
}

// Retire ends the runners of a module that is not judged otherwise.
func (d *Desk) Retire() { d.c.retire(d.Module) }
