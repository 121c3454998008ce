package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"carillon/backend/controller"
)

// controllerCmd runs one controller.
type controllerCmd struct {
	database
	Listen           string     `env:"CARILLON_LISTEN" default:"127.0.0.1:7800" placeholder:"ADDR" help:"Address to serve on (default ${default}). Anything but loopback needs both tokens."`
	Advertise        string     `env:"CARILLON_ADVERTISE" placeholder:"URL" help:"URL under which the other controllers and the runners reach this one (default: http:// and the address)."`
	AdminToken       string     `env:"CARILLON_ADMIN_TOKEN" placeholder:"TOKEN" help:"Token of people and the CLI. Prefer the environment: flags can be read by others."`
	AdminTokenFile   string     `env:"CARILLON_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"File that holds the admin token."`
	ClusterToken     string     `env:"CARILLON_CLUSTER_TOKEN" placeholder:"TOKEN" help:"Token of controllers and runners among each other."`
	ClusterTokenFile string     `env:"CARILLON_CLUSTER_TOKEN_FILE" placeholder:"FILE" help:"File that holds the cluster token."`
	Migrate          bool       `env:"CARILLON_MIGRATE" help:"Apply missing migrations at the start."`
	LogFormat        string     `env:"CARILLON_LOG_FORMAT" enum:"auto,text,json" default:"auto" placeholder:"auto|text|json" help:"auto is text on a terminal and json elsewhere."`
	LogLevel         slog.Level `env:"CARILLON_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"debug, info, warn or error."`

	MaxInFlight int `env:"CARILLON_MAX_IN_FLIGHT" placeholder:"N" help:"Calls at the same time; further slots wait."`
	KeepDays    int `env:"CARILLON_KEEP_DAYS" placeholder:"N" help:"How many days of history are kept."`

	ReservedWorkers []string `env:"CARILLON_RESERVED_WORKERS" sep:"," placeholder:"NAMES" help:"Workers that only operators of a tenant (tokens of kind cli) may use: verbs, modules or module.verb, separated by commas."`

	Beat       time.Duration `group:"timing" hidden:"" env:"CARILLON_BEAT" help:"How often to heartbeat."`
	Silence    time.Duration `group:"timing" hidden:"" env:"CARILLON_SILENCE" help:"When a member that does not beat leaves the ring."`
	Fence      time.Duration `group:"timing" hidden:"" env:"CARILLON_FENCE" help:"When a controller that cannot beat cancels its own calls."`
	Lease      time.Duration `group:"timing" hidden:"" env:"CARILLON_LEASE" help:"When the runs of a controller that does not beat are lost."`
	Grace      time.Duration `group:"timing" hidden:"" env:"CARILLON_GRACE" help:"How long the rows of a lost shard are kept."`
	StealDelay time.Duration `group:"timing" hidden:"" env:"CARILLON_STEAL_DELAY" help:"How long after the slot the second owner tries."`
	Reset      time.Duration `group:"timing" hidden:"" env:"CARILLON_RESET" help:"How often all owned rows are fetched anew."`
	HardGrace  time.Duration `group:"timing" hidden:"" env:"CARILLON_HARD_GRACE" help:"How long after the soft timeout a run is swept."`
	RunnerBeat time.Duration `group:"timing" hidden:"" env:"CARILLON_RUNNER_BEAT" help:"How often runners heartbeat."`
	Drain      time.Duration `group:"timing" env:"CARILLON_DRAIN" placeholder:"DURATION" help:"How long runs in flight may go on after a stop."`

	TestClockSkew time.Duration `hidden:"" env:"CARILLON_TEST_CLOCK_SKEW" help:"For tests: this controller's clock is wrong by so much."`
}

func (c *controllerCmd) Help() string {
	return `SIGTERM and SIGINT drain: the controller leaves the ring, finishes what it runs, writes the ends and exits 0. A second
signal ends it at once.

Examples:

  carillon controller --database-url postgres://carillon@db/carillon --migrate
  carillon controller --listen 0.0.0.0:7800 --advertise http://ctl-1:7800   # with both tokens in the environment`
}

// garbage is GOGC of a controller that is told nothing else. What it keeps is small and what it throws away is much: a
// fifth of its time went to collecting at 100.
const garbage = 400

func (c *controllerCmd) Run(ctx context.Context, a *app) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	cfg.Logger = newLogger(a.stderr, c.LogFormat, c.LogLevel)
	if c.Migrate {
		if err := controller.Migrate(ctx, cfg.DatabaseURL, io.Discard); err != nil {
			return explainDatabase(err)
		}
	} else if err := requireSchema(ctx, cfg.DatabaseURL); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	return controller.Run(ctx, cfg)
}

// config makes a Config of the flags, without the logger.
func (c *controllerCmd) config() (controller.Config, error) {
	cfg := controller.DefaultConfig()
	var err error
	if cfg.DatabaseURL, err = c.url(); err != nil {
		return cfg, err
	}
	if cfg.AdminToken, err = readToken(c.AdminToken, c.AdminTokenFile); err != nil {
		return cfg, fmt.Errorf("admin token: %w", err)
	}
	if cfg.ClusterToken, err = readToken(c.ClusterToken, c.ClusterTokenFile); err != nil {
		return cfg, fmt.Errorf("cluster token: %w", err)
	}
	if (cfg.AdminToken == "") != (cfg.ClusterToken == "") {
		return cfg, usage{mend(errors.New("only one of the two tokens is set"), "set both CARILLON_ADMIN_TOKEN and CARILLON_CLUSTER_TOKEN, or neither")}
	}
	if err := checkListen(c.Listen, cfg.AdminToken != "" && cfg.ClusterToken != ""); err != nil {
		return cfg, err
	}
	cfg.Listen, cfg.Version, cfg.Skew = c.Listen, version, c.TestClockSkew
	if cfg.Advertise, err = advertised(c.Advertise, c.Listen); err != nil {
		return cfg, err
	}
	if c.MaxInFlight != 0 {
		cfg.MaxInFlight = c.MaxInFlight
	}
	if c.KeepDays != 0 {
		cfg.KeepDays = c.KeepDays
	}
	for _, name := range c.ReservedWorkers {
		if name = strings.TrimSpace(name); name != "" {
			cfg.Reserved = append(cfg.Reserved, name)
		}
	}
	if err := cfg.Reserved.Check(); err != nil {
		return cfg, usage{fmt.Errorf("--reserved-workers: %w", err)}
	}
	for _, t := range []struct {
		to   *time.Duration
		flag time.Duration
	}{
		{&cfg.Timing.Beat, c.Beat}, {&cfg.Timing.Silence, c.Silence}, {&cfg.Timing.Fence, c.Fence}, {&cfg.Timing.Lease, c.Lease},
		{&cfg.Timing.Grace, c.Grace}, {&cfg.Timing.StealDelay, c.StealDelay}, {&cfg.Timing.Reset, c.Reset},
		{&cfg.Timing.HardGrace, c.HardGrace}, {&cfg.Timing.RunnerBeat, c.RunnerBeat},
		{&cfg.Timing.Drain, c.Drain},
	} {
		if t.flag != 0 {
			*t.to = t.flag
		}
	}
	return cfg, nil
}

// requireSchema refuses a database that lacks migrations.
func requireSchema(ctx context.Context, url string) error {
	bound, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	migrations, err := controller.MigrationStatus(bound, url)
	if err != nil {
		return explainDatabase(err)
	}
	const hint = "run `carillon migrate up`, or start with --migrate"
	switch n := pending(migrations); {
	case n > 0 && n == len(migrations):
		return mend(errors.New("the database has no schema yet"), hint)
	case n > 0:
		return mend(fmt.Errorf("the database's schema is old: %s of %d pending", plural(n, "migration"), len(migrations)), hint)
	}
	return nil
}

// checkListen refuses an address that others can reach unless tokens keep them out.
func checkListen(listen string, guarded bool) error {
	host, _, err := splitListen(listen)
	if err != nil {
		return err
	}
	if guarded || isLoopback(host) {
		return nil
	}
	return usage{mend(fmt.Errorf("listening on %s without tokens would let anybody in", listen),
		"set CARILLON_ADMIN_TOKEN and CARILLON_CLUSTER_TOKEN (or their _FILE forms), or listen on 127.0.0.1")}
}

// splitListen reads host:port.
func splitListen(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err == nil {
		port, err = strconv.Atoi(text)
		if err == nil && (port < 0 || port > 65535) {
			err = fmt.Errorf("no port has the number %d", port)
		}
	}
	if err != nil {
		return "", 0, usage{mend(fmt.Errorf("%q is no address to listen on: %w", listen, err), "write it as host:port, e.g. 127.0.0.1:7800")}
	}
	return host, port, nil
}

// isLoopback reports whether only this machine reaches the host.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// advertised is the URL by which others reach a controller; empty when only the listener will know its port.
func advertised(given, listen string) (string, error) {
	if given != "" {
		u, err := url.Parse(given)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "", usage{mend(fmt.Errorf("--advertise %q is not a URL", given), "write it as http://host:port")}
		}
		return given, nil
	}
	host, port, err := splitListen(listen)
	if err != nil || port == 0 {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "", usage{mend(fmt.Errorf("others cannot reach %s by that name", listen), "add --advertise http://host:port")}
	}
	return "http://" + listen, nil
}

// newLogger makes the logger of a server process.
func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // "1.5s", not nanoseconds
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	if format == "text" || format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}
