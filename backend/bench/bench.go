// Package bench measures what Carillon promises in figures: how late cron jobs start, and how many claims and ends a
// second the store makes beside a hand-written pgx loop on the same table.
//
// It runs what a user runs: controllers and runners are processes of the same binary, deployed and called over the
// network, on a durable Postgres of its own; "in process" is the same SDK inside the controller's process. It must never
// know a shorter way than the product's, and never touch a database that it did not start.
//
// On failure, and when its context ends, everything that was started is stopped and the temporary data are removed.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/devdb"
)

// What can be measured.
const (
	Lateness = "lateness"
	Claims   = "claims"
)

// Process is a child that was started.
type Process interface {
	PID() int
	Wait() error // called once
	Terminate()
	Kill()
}

// Config of one benchmark. Spawn and Progress are required; the rest has to make sense (see Run).
type Config struct {
	Only        string        // Lateness or Claims; empty: both
	Jobs        []int         // numbers of cron jobs to measure the lateness of
	Seconds     int           // measured of the lateness of each case
	Controllers int           // processes of the cluster
	Capacity    int           // calls in flight at each runner; 0: as many as it has verbs
	Rows        int           // of cron_jobs for the claims
	Rounds      int           // of the claims; each kind once in a round
	DataDir     string        // of Postgres; empty: a temporary one
	BinDir      string        // Postgres programs; empty: looked for
	SharedMB    int           // shared_buffers
	Leg         time.Duration // one kind in one round

	// Spawn starts this program again with other arguments, bound to the life of this process.
	Spawn    func(log io.Writer, env []string, args ...string) (Process, error)
	Progress io.Writer
}

// Report is all that was measured.
type Report struct {
	Command  string            `json:"command"`
	Machine  Machine           `json:"machine"`
	Lateness []LatenessResult  `json:"lateness,omitempty"`
	Claims   *ClaimsResult     `json:"claims,omitempty"`
	Settings map[string]string `json:"postgres_settings"`
}

// Run measures what the Config asks for.
func Run(ctx context.Context, c Config) (Report, error) {
	r := Report{Command: "carillon " + strings.Join(os.Args[1:], " ")}
	if err := c.check(); err != nil {
		return r, err
	}
	server, err := c.startPostgres(ctx)
	if err != nil {
		return r, err
	}
	defer server.Close()
	admin, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return r, fmt.Errorf("connect to the private postgres: %w", err)
	}
	defer admin.Close(context.WithoutCancel(ctx))
	b := &bench{Config: c, server: server.URL(), admin: admin}
	if r.Machine, r.Settings, err = b.describe(ctx); err != nil {
		return r, err
	}
	if c.Only != Claims {
		if r.Lateness, err = b.lateness(ctx); err != nil {
			return r, err
		}
	}
	if c.Only != Lateness {
		if r.Claims, err = b.claims(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (c Config) check() error {
	switch {
	case c.Rows < 4*batchSize && c.Only != Lateness:
		return fmt.Errorf("%d rows are too few: %d at least", c.Rows, 4*batchSize)
	case c.Seconds < 1, c.Rounds < 1, c.Controllers < 1, c.Leg <= 0:
		return errors.New("seconds, rounds and controllers are at least 1")
	case slices.ContainsFunc(c.Jobs, func(n int) bool { return n < 1 || n > 100_000 }):
		return errors.New("from 1 to 100000 cron jobs can be measured")
	}
	return nil
}

// startPostgres starts a durable server. Checkpoints come by time alone, so that no leg has one that the other had not.
func (c Config) startPostgres(ctx context.Context) (*devdb.Server, error) {
	return devdb.Start(ctx, devdb.Config{
		DataDir: c.DataDir, Temporary: c.DataDir == "", BinDir: c.BinDir, MaxConnections: 200,
		Settings: map[string]string{
			"shared_buffers": fmt.Sprintf("%dMB", c.SharedMB), "max_wal_size": "16GB", "min_wal_size": "4GB",
			"track_activity_query_size": "16384", // the plans are asked of the very text that ran
		},
		Logger: slog.New(slog.DiscardHandler),
	})
}

// bench is one benchmark under way.
type bench struct {
	Config
	server string
	admin  *pgx.Conn // of the database that comes with the server
	made   int
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.Progress, format+"\n", args...)
}

// database makes an empty database of its own, and drops it with the function it returns.
func (b *bench) database(ctx context.Context) (string, func(), error) {
	b.made++
	name := fmt.Sprintf("bench_%d_%d", os.Getpid(), b.made)
	if _, err := b.admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, fmt.Errorf("create database %s: %w", name, err)
	}
	u, err := url.Parse(b.server)
	if err != nil {
		return "", nil, fmt.Errorf("read the server's URL: %w", err)
	}
	u.Path = "/" + name
	return u.String(), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_, _ = b.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	}, nil
}

// pause waits for d; the error is the context's.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
