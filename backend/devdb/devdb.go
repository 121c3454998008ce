// Package devdb finds or starts the Postgres that `carillon dev` and the tests use.
//
// Given a database URL it hands that out and touches nothing. Otherwise it runs a private cluster: a data directory of
// its own, 127.0.0.1 only, a random password, durable settings. The server belongs to the process that started it and
// ends with it, also when that process is killed with -9 (see watchdog.go); the data stay for the next start.
//
// It must never know what is stored in the database: no migrations, no tables, nothing of the other rooms.
//
// On failure Start leaves nothing running and says what was tried, where it looked, and the tail of the server's log.
// A server that ends by itself is logged as an error and not started again: whoever holds the connections will notice,
// and a crash loop would hide the reason.
package devdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	startBound = 30 * time.Second // until the server accepts connections
	fastBound  = 10 * time.Second // a fast stop, before it becomes an immediate one
	quitBound  = 5 * time.Second  // an immediate stop, before SIGKILL

	// name is both the superuser and the database of a private cluster.
	name = "carillon"
)

// ErrInUse is returned by Start when another living process holds the data directory.
var ErrInUse = errors.New("data directory in use")

// ErrNotPrivate is returned when a server that was only given by URL is asked to stop or restart.
var ErrNotPrivate = errors.New("not a private server")

// Config says which Postgres is wanted. The zero value is a durable private cluster in DefaultDataDir on a free port.
type Config struct {
	// DatabaseURL, when set, is used untouched and everything below is ignored.
	DatabaseURL string
	// DataDir holds cluster/ (Postgres's own directory), password, server.log and lock. Empty: DefaultDataDir.
	DataDir string
	// Temporary makes a new data directory (inside DataDir, or the system's temporary directory) that is removed with
	// the server, also when this process is killed.
	Temporary bool
	// CacheDir, when set, keeps one freshly initialised cluster per version of Postgres and copies it instead of running
	// initdb. The copies share a password: for tests.
	CacheDir string
	// BinDir is where initdb and postgres are. Empty: FindBinaries looks around.
	BinDir string
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
	// Settings are server settings, as on `postgres -c name=value`. Those that keep the server private are refused.
	Settings map[string]string
	// NoSync gives up durability for speed (fsync off). For tests only.
	NoSync bool
	// MaxConnections is Postgres's setting of that name; 0 means 100.
	MaxConnections int
	// Logger gets starts, stops and an unexpected end. Nil: slog.Default().
	Logger *slog.Logger
}

// Server is a Postgres that accepts connections. Its methods are safe for concurrent use.
type Server struct {
	url     string
	cluster *cluster // nil when only a URL was given
	dog     *watchdog
	log     *slog.Logger

	mu     sync.Mutex // held while the process is being started or stopped
	proc   *process
	closed bool
}

// Start returns a server that accepts connections, within 30 s. The context bounds the start only: the server lives until
// Close or the end of this process. Errors: ErrInUse (wrapped) when another process runs a server on the same data
// directory; otherwise what was tried, with the tail of the server's log where there is one.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	log := cmp.Or(cfg.Logger, slog.Default())
	if cfg.DatabaseURL != "" {
		return &Server{url: cfg.DatabaseURL, log: log}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()

	began := time.Now()
	c, err := openCluster(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start a private postgres: %w", err)
	}
	s := &Server{cluster: c, log: log}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start a private postgres in %s: %w", c.base, err), s.Close())
	}
	log.InfoContext(ctx, "postgres started", "version", c.bin.version, "dir", c.base, "port", c.port, "pid", s.PID(),
		"took", time.Since(began).Round(time.Millisecond))
	return s, nil
}

func (s *Server) open(ctx context.Context) error {
	temporary := ""
	if s.cluster.temporary {
		temporary = s.cluster.base
	}
	var err error
	if s.dog, err = newWatchdog(s.cluster.pidPath(), temporary, s.log); err != nil {
		return err
	}
	if err := s.cluster.prepare(ctx, s.log); err != nil {
		return err
	}
	if s.proc, err = s.cluster.start(ctx, s.dog, s.log); err != nil {
		return err
	}
	s.url = s.cluster.url(name)
	return createDatabase(ctx, s.cluster.url("postgres"))
}

// URL is the URL of the database to use: the one given, or "carillon" in the private cluster, password included.
func (s *Server) URL() string { return s.url }

// Private reports whether this package runs the server.
func (s *Server) Private() bool { return s.cluster != nil }

// PID is the postmaster's process id; 0 when the server is not private or not running. It waits for a stop or restart in
// progress.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return 0
	}
	return s.proc.pid
}

// StopImmediate ends the private server as a crash would (`pg_ctl stop -m immediate`): clients are cut off and the next
// start recovers from the log. For fault drills. A server that has already ended is no error.
func (s *Server) StopImmediate() error {
	if !s.Private() {
		return fmt.Errorf("stop postgres: %w", ErrNotPrivate)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(immediate)
}

// Restart starts the private server again on the same port, after StopImmediate where it still runs. For fault drills.
func (s *Server) Restart(ctx context.Context) error {
	if !s.Private() {
		return fmt.Errorf("restart postgres: %w", ErrNotPrivate)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("restart postgres: %w", os.ErrClosed)
	}
	if err := s.stop(immediate); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	p, err := s.cluster.start(ctx, s.dog, s.log)
	if err != nil {
		return fmt.Errorf("restart postgres: %w", err)
	}
	s.proc = p
	return nil
}

// Close stops a private server (a fast stop; after 10 s an immediate one) and gives the data directory free. It does
// nothing to a server that was given by URL. A second Close does nothing.
func (s *Server) Close() error {
	if !s.Private() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.stop(fast)
	if s.dog != nil {
		err = errors.Join(err, s.dog.close())
	}
	return errors.Join(err, s.cluster.close())
}

func (s *Server) stop(how []stopStep) error {
	if s.proc == nil {
		return nil
	}
	return s.proc.stop(how)
}

// createDatabase makes the database `carillon` where it is missing. That is also the proof that the password fits.
func createDatabase(ctx context.Context, admin string) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return fmt.Errorf("connect to the new server: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %s: %w", name, err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

func (c *cluster) url(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(name, c.password),
		Host:     "127.0.0.1:" + strconv.Itoa(c.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}
