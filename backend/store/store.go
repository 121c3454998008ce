// Package store is the one room that knows SQL and pgx. Every change of state is one conditional statement (or, for a
// module, one short transaction); only the database's clock decides; rows are handed out as plain nouns.
//
// It must never know why a row is changed: policies and schedules live above. On failure it says which of three
// things happened (see errors.go): nothing was written and it may be tried again, the outcome is unknown, or the data
// was refused.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says how to reach Postgres.
type Config struct {
	URL         string
	Application string // application_name, shown in pg_stat_activity
	// Connections of each kind. A beat never queues behind an end, an end never behind a claim.
	ClaimConns, EndConns, APIConns int
	// The same for jobs: enqueues, windows and claims, ends.
	EnqueueConns, JobClaimConns, JobEndConns int
	TimeZone                                 string // session zone; UTC unless a test says otherwise
	Logger                                   *slog.Logger
}

// Store is safe for concurrent use.
type Store struct {
	beat, claim, end, api *pool
	upkeep                *pool // what a controller reads each second, and runners' beats: never behind somebody's search
	jobs                  jobPools
	pooler                bool // between us and Postgres, in transaction mode
	log                   *slog.Logger
}

// Open connects, and refuses a database that would lose acknowledged claims or cannot take writes.
// The caller migrates before.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := &Store{log: c.Logger}
	if s.log == nil {
		s.log = slog.Default()
	}
	var err error
	open := func(kind string, conns int, statement time.Duration, more ...string) *pool {
		if err != nil {
			return nil
		}
		var p *pool
		p, err = s.openPool(ctx, c, kind, conns, statement, more...)
		return p
	}
	if s.pooler, err = c.pooler(ctx); err != nil {
		return nil, wrap("connect to the database", err)
	}
	s.beat = open("beat", 1, time.Second)
	s.claim = open("claim", max(c.ClaimConns, 2), 5*time.Second)
	s.end = open("end", max(c.EndConns, 2), 5*time.Second)
	s.upkeep = open("upkeep", 2, 5*time.Second)
	// Searches have many parts that may be left out: planned for what is asked, each time.
	s.api = open("api", max(c.APIConns, 4), 15*time.Second, "plan_cache_mode", "force_custom_plan")
	s.jobs.enqueue = open("enqueue", max(c.EnqueueConns, 2), 5*time.Second, jobPlans...)
	s.jobs.claim = open("job claim", max(c.JobClaimConns, 3), 5*time.Second, jobPlans...)
	s.jobs.end = open("job end", max(c.JobEndConns, 2), 5*time.Second, jobPlans...)
	if err == nil {
		err = s.check(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// lockTimeout is how long a statement waits for somebody's row lock. Claims and ends never hold one for longer than a
// commit, so that more is a foreign transaction, and their neighbours wait with them. People's changes queue for their
// module.
func lockTimeout(kind string) time.Duration {
	switch kind {
	case "claim", "end", "job claim", "enqueue":
		return 200 * time.Millisecond
	case "api":
		return 5 * time.Second
	}
	return time.Second
}

func (s *Store) openPool(ctx context.Context, c Config, kind string, conns int, statement time.Duration, more ...string) (*pool, error) {
	cfg, err := c.poolConfig(kind, statement, more...)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(conns)
	p := &pool{}
	if s.pooler {
		p.begin = behindPooler(cfg.ConnConfig)
	}
	if p.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open the %s connections: %w", kind, err)
	}
	return p, nil
}

// pooler asks over which way the database is reached.
func (c Config) pooler(ctx context.Context) (bool, error) {
	cfg, err := c.poolConfig("probe", time.Second)
	if err != nil {
		return false, err
	}
	return isPooler(ctx, cfg.ConnConfig)
}

func (c Config) poolConfig(kind string, statement time.Duration, more ...string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	cfg.MaxConnLifetime = time.Hour
	cfg.MaxConnIdleTime = 10 * time.Minute
	cfg.HealthCheckPeriod = 5 * time.Second
	cfg.ConnConfig.ConnectTimeout = 3 * time.Second
	zone := c.TimeZone
	if zone == "" {
		zone = "UTC"
	}
	for k, v := range map[string]string{
		"application_name":                    "carillon " + kind + " " + c.Application,
		"timezone":                            zone,
		"search_path":                         "pg_catalog", // every other name says its schema; nobody's function is to stand in for ours
		"statement_timeout":                   fmt.Sprint(statement.Milliseconds()),
		"lock_timeout":                        fmt.Sprint(lockTimeout(kind).Milliseconds()),
		"idle_in_transaction_session_timeout": "5000",
		"jit":                                 "off", // compiling a scan of 1M rows costs more than the scan
		"tcp_user_timeout":                    "10000",
		"tcp_keepalives_idle":                 "5",
		"tcp_keepalives_interval":             "3",
		"tcp_keepalives_count":                "3",
	} {
		cfg.ConnConfig.RuntimeParams[k] = v
	}
	for i := 0; i+1 < len(more); i += 2 {
		cfg.ConnConfig.RuntimeParams[more[i]] = more[i+1]
	}
	if kind == "claim" || kind == "end" {
		// Claims, ends and the sweep lock rows in id order or they deadlock, and only a plan that reaches them by the
		// primary key does: on a small or unanalysed table the planner would rather scan it, in the heap's order.
		for _, way := range []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin"} {
			cfg.ConnConfig.RuntimeParams[way] = "off"
		}
	}
	return cfg, nil
}

// check asserts what the design rests on: a primary that keeps what it acknowledged.
func (s *Store) check(ctx context.Context) error {
	var standby bool
	var commit string
	var version int
	err := s.api.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('synchronous_commit'), current_setting('server_version_num')::int`).
		Scan(&standby, &commit, &version)
	if err != nil {
		return wrap("connect to the database", err)
	}
	switch {
	case standby:
		return errors.New("the database is a standby: give the URL of the primary")
	case commit == "off":
		return errors.New("synchronous_commit is off: acknowledged claims would be lost in a crash; set it to on for this database or role")
	case version < 140000:
		return fmt.Errorf("the database is PostgreSQL %d: 14 or later is needed", version/10000)
	}
	return nil
}

// Close ends all connections.
func (s *Store) Close() {
	for _, p := range []*pool{s.beat, s.claim, s.end, s.api, s.upkeep, s.jobs.enqueue, s.jobs.claim, s.jobs.end} {
		if p != nil {
			p.Close()
		}
	}
}

// Ping asks the database for its clock, for readiness.
func (s *Store) Ping(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.api.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now.UTC(), wrap("ask the database's clock", err)
}

// Version is the server's version, as it says it.
func (s *Store) Version(ctx context.Context) (string, error) {
	var v string
	err := s.api.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&v)
	return v, wrap("ask the database's version", err)
}
