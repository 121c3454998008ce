// Package cluster is the kit of the drills: a real cluster of real processes (a private Postgres, controllers, runners)
// that can be killed, frozen, cut off and judged.
//
// It builds the binaries once, starts controllers on free ports with both tokens set, deploys over the API as a person
// would, and notes when it asked for what and what it broke, so that package checker can judge the whole. It decides
// nothing about right and wrong itself, and knows of the product only what anybody may: the command line, the API, and
// by SQL the ledger. Tests of several packages that use it wait for each other by a lock on the machine. What it
// started ends with it, by pid; on Linux also when the test process is killed.
package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"carillon/backend/devdb"
	"carillon/integration/checker"
)

// Shrunk settings of the controllers. The beats and what follows from them stay as in production.
const (
	HardGrace = 2 * time.Second
	Drain     = 10 * time.Second
	Lease     = 6 * time.Second
)

// Reserved is a worker that only operators of tenants may use.
const Reserved = "vault"

// Cluster is one of these. Drills that break nothing but their own module may use it at the same time; a Module is one
// drill's own.
type Cluster struct {
	DB  *devdb.Server
	SQL *pgxpool.Pool // our own connections, named so that storms spare them

	dir          string
	lock         io.Closer
	admin, token string
	stopWatch    func()
	settling     sync.Mutex

	mu          sync.Mutex
	controllers []*Controller // in order of their start, also those that ended
	runners     []*Runner
	named       int // modules and versions so far
	jobs        map[string]*checker.Job
	faults      []checker.Fault
	felt        int // of the faults, by strained
	samples     []checker.Sample
}

// Start makes a cluster without controllers. The error wraps devdb.ErrNoPostgres where this machine has no Postgres.
func Start(ctx context.Context) (_ *Cluster, err error) {
	c := &Cluster{admin: rand.Text(), token: rand.Text(), jobs: map[string]*checker.Job{}, stopWatch: func() {}}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if c.lock, err = LockMachine(ctx); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "carillon-drill-"); err != nil {
		return nil, err
	}
	cfg := devdb.Config{
		Temporary: true, MaxConnections: 200, Settings: map[string]string{"max_wal_size": "256MB"},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if cache, err := os.UserCacheDir(); err == nil {
		cfg.CacheDir = filepath.Join(cache, "carillon", "postgres-initdb")
	}
	if c.DB, err = devdb.Start(ctx, cfg); err != nil {
		return nil, err
	}
	if err := build(ctx); err != nil {
		return nil, err
	}
	pool, err := pgxpool.ParseConfig(c.DB.URL())
	if err != nil {
		return nil, err
	}
	pool.MaxConns = 4
	pool.ConnConfig.RuntimeParams["application_name"] = ownName
	pool.ConnConfig.RuntimeParams["timezone"] = "UTC"
	if c.SQL, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return nil, err
	}
	if _, err := c.SQL.Exec(ctx, pulseTable); err != nil {
		return nil, err
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	watchers.Go(func() { c.watch(watch) })
	watchers.Go(func() { c.feel(watch) })
	watchers.Go(func() { c.crowded(watch) })
	c.stopWatch = func() { stop(); watchers.Wait() }
	return c, nil
}

const ownName = "carillon drill"

// Close ends every process and removes what it left.
func (c *Cluster) Close() error {
	c.stopWatch()
	for _, r := range c.runners {
		r.kill()
	}
	for _, k := range c.controllers {
		k.kill()
	}
	if c.SQL != nil {
		c.SQL.Close()
	}
	var err error
	if c.DB != nil {
		err = c.DB.Close()
	}
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	if c.lock != nil {
		err = errors.Join(err, c.lock.Close())
	}
	return err
}

// Fault notes what was done to the cluster, for the judgment. Safe for concurrent use.
func (c *Cluster) Fault(f checker.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, f)
}

// Live are the controllers whose processes run, as far as we have not stopped them.
func (c *Cluster) Live() []*Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.controllers), func(k *Controller) bool { return k.ended() || k.frozen || k.URL == "" })
}

// Settle makes the cluster whole: n live controllers that all see a ring of n.
func (c *Cluster) Settle(t testing.TB, n int) {
	t.Helper()
	c.settling.Lock()
	defer c.settling.Unlock()
	for live := c.Live(); len(live) > n; live = live[:len(live)-1] {
		c.Term(t, live[len(live)-1])
	}
	for len(c.Live()) < n {
		c.StartController(t)
	}
	Eventually(t, 20*time.Second, "a ring of all controllers", func() error {
		for _, k := range c.Live() {
			if m, err := k.metric("carillon_ring_members"); err != nil || m != float64(n) {
				return fmt.Errorf("controller %s sees %v members of %d: %w", k.Key, m, n, err)
			}
			if err := k.ready(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Age waits until every controller has been there for a whole lease, so that it may sweep.
func (c *Cluster) Age(t testing.TB) {
	t.Helper()
	Eventually(t, 20*time.Second, "a lease of all controllers", func() error {
		var young int
		err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.controllers
			WHERE state = 'live' AND heartbeat_at > now() - interval '3 s' AND alive_since > now() - interval '6500 ms'`).Scan(&young)
		if err == nil && young > 0 {
			err = fmt.Errorf("%d controllers are young still", young)
		}
		return err
	})
}

// Report shows the ends of all logs when the test failed.
func (c *Cluster) Report(t testing.TB) {
	if !t.Failed() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.controllers {
		t.Logf("--- log of controller %s\n%s", k.Key, k.tail())
	}
	for _, r := range c.runners {
		if r.ended() {
			continue
		}
		t.Logf("--- log of runner %s\n%s", r.Key, r.tail())
	}
}

// Eventually polls until done says nil, for at most so long.
func Eventually(t testing.TB, bound time.Duration, what string, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s did not come within %s: %v", what, bound, err)
		}
	}
}

// Let lets the cluster live for so long: where the time itself is what a drill is about.
func Let(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("stopped")
	}
}

// PartOfSecond waits until a second is so old: for faults that shall hit runs in flight.
func PartOfSecond(t testing.TB, part time.Duration) {
	t.Helper()
	now := time.Now()
	at := now.Truncate(time.Second).Add(part)
	if !at.After(now) {
		at = at.Add(time.Second)
	}
	Let(t, at.Sub(now))
}
