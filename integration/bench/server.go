package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/devdb"
)

// bench is one run.
type bench struct {
	options
	figures  *figures
	server   *devdb.Server
	admin    *pgx.Conn
	counts   bool   // statements are counted where a database asks for it
	dir      string // for the binary and logs
	binary   string // carillon
	made     int
	settings []string
	machine  string
	load     string // before
}

// shown are the settings that a figure depends on.
var shown = []string{
	"shared_buffers", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "max_wal_size", "min_wal_size", "checkpoint_timeout", "autovacuum",
	"jit", "max_connections",
}

// open starts the server and builds the product.
func (b *bench) open(ctx context.Context) (err error) {
	if b.load = loadNow(); b.load == "" {
		b.load = "unknown"
	}
	if b.dir, err = os.MkdirTemp("", "carillon-jobs-bench-"); err != nil {
		return err
	}
	if b.measures(costLeg) || b.measures(clockLeg) || b.measures(eventLeg) || slices.ContainsFunc(b.all(), func(c candidate) bool { return c.processes }) {
		if err := b.build(ctx); err != nil {
			return err
		}
	}
	b.counts = true
	if b.server, err = b.start(ctx, map[string]string{
		"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none",
	}); err != nil { // the library is not everywhere
		say("without pg_stat_statements: %v", err)
		b.counts = false
		if b.server, err = b.start(ctx, nil); err != nil {
			return err
		}
	}
	if b.admin, err = pgx.Connect(ctx, b.server.URL()); err != nil {
		return fmt.Errorf("connect to the private postgres: %w", err)
	}
	if err := b.describe(ctx); err != nil {
		return err
	}
	return b.wear(ctx)
}

// wear makes a server that has run for a while: it writes into old segments of its log, where a new one makes each of
// them first.
func (b *bench) wear(ctx context.Context) error {
	for _, sql := range []string{
		"CREATE TABLE worn AS SELECT repeat(md5(i::text), 28) AS t FROM generate_series(1, 800000) i", "DROP TABLE worn", "CHECKPOINT", "CHECKPOINT",
	} {
		if _, err := b.admin.Exec(ctx, sql); err != nil {
			return fmt.Errorf("wear the log in: %w", err)
		}
	}
	return nil
}

// start starts a durable server. Checkpoints come by time and before each measurement, so that no candidate has one
// that another had not.
func (b *bench) start(ctx context.Context, more map[string]string) (*devdb.Server, error) {
	set := map[string]string{"shared_buffers": fmt.Sprintf("%dMB", b.sharedMB), "max_wal_size": "16GB", "min_wal_size": "4GB"}
	for name, value := range more {
		set[name] = value
	}
	return devdb.Start(ctx, devdb.Config{Temporary: true, MaxConnections: 200, Settings: set, Logger: quiet})
}

func (b *bench) close() error {
	var err error
	if b.admin != nil {
		err = b.admin.Close(context.Background())
	}
	if b.server != nil {
		err = errors.Join(err, b.server.Close())
	}
	if b.dir != "" {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err
}

// build makes the product's binary, in its own module.
func (b *bench) build(ctx context.Context) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "carillon").Output()
	if err != nil {
		return fmt.Errorf("find the product's source: run this in integration/bench: %w", err)
	}
	b.binary = filepath.Join(b.dir, "carillon")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", b.binary, "./cmd/carillon")
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build carillon: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) describe(ctx context.Context) error {
	for _, name := range shown {
		var value string
		if err := b.admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return fmt.Errorf("ask for the setting %s: %w", name, err)
		}
		if (name == "fsync" || name == "synchronous_commit") && value != "on" {
			return fmt.Errorf("%s is %s: the figures of a server that is not durable mean nothing", name, value)
		}
		b.settings = append(b.settings, name+" "+value)
	}
	var version string
	if err := b.admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return fmt.Errorf("ask the version of postgres: %w", err)
	}
	b.machine = fmt.Sprintf("%d cores (%s), %s/%s, %s, PostgreSQL %s", runtime.NumCPU(), cpuModel(), runtime.GOOS, runtime.GOARCH, runtime.Version(), version)
	return nil
}

// database makes an empty one; drop ends what is connected to it.
func (b *bench) database(ctx context.Context) (address string, drop func(), err error) {
	b.made++
	name := fmt.Sprintf("bench_%d", b.made)
	if _, err := b.admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, fmt.Errorf("create database %s: %w", name, err)
	}
	u, err := url.Parse(b.server.URL())
	if err != nil {
		return "", nil, fmt.Errorf("read the server's URL: %w", err)
	}
	u.Path = "/" + name
	return u.String(), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if _, err := b.admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			say("%s stays: %v", name, err)
		}
	}, nil
}

// settle gives every measurement the same start: statistics of what is queued, and no checkpoint soon.
func settle(ctx context.Context, db *pgx.Conn, table string) error {
	if _, err := db.Exec(ctx, "VACUUM ANALYZE "+table); err != nil {
		return fmt.Errorf("vacuum %s: %w", table, err)
	}
	if _, err := db.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func loadNow() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
