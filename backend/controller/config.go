package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"carillon/backend/core/permission"
)

// Config of one controller. DefaultConfig fills everything but the database.
type Config struct {
	DatabaseURL string
	Listen      string // host:port to serve on
	Advertise   string // URL under which others reach this controller; empty: http:// and the address served on
	// AdminToken opens what people and the CLI do, ClusterToken what controllers and runners say to each other. Both
	// or neither; without them Listen must be a loopback address.
	AdminToken, ClusterToken string
	Version                  string
	Logger                   *slog.Logger
	Timing                   Timing
	MaxInFlight              int // calls at the same time; further slots wait
	KeepDays                 int // of the ledger
	// Reserved are workers that only operators of a tenant may enqueue for and create triggers of, by any of their names.
	Reserved permission.Reserved

	// Skew is added wherever the local clock is read: for tests of a wrong clock.
	Skew time.Duration
}

// Timing of one controller; the members of a cluster should agree on it. Beat, Silence, Fence and Lease are checked
// against each other at the start.
type Timing struct {
	Beat       time.Duration // between heartbeats
	Silence    time.Duration // without a heartbeat a controller is no member after this
	Fence      time.Duration // a controller that cannot beat cancels its own calls after this
	Lease      time.Duration // the runs of a silent controller are lost after this
	Grace      time.Duration // rows of a lost shard are kept this long
	StealDelay time.Duration // the second owner tries this long after the slot
	Reset      time.Duration // between refetches of all owned rows
	HardGrace  time.Duration // a run is timed out for good this long after its soft timeout
	Drain      time.Duration // runs in flight may go on this long after a stop
	RunnerBeat time.Duration // between heartbeats of a runner; silent for four of them it is not called any more
}

// DefaultConfig is what a production controller starts from.
func DefaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:7800", Version: "dev", Logger: slog.Default(), MaxInFlight: 20_000, KeepDays: 30,
		Timing: Timing{
			Beat: time.Second, Silence: 3 * time.Second, Fence: 4 * time.Second, Lease: 6 * time.Second, Grace: 5 * time.Second,
			StealDelay: 250 * time.Millisecond, Reset: time.Minute, HardGrace: time.Minute, Drain: 25 * time.Second, RunnerBeat: 2 * time.Second,
		},
	}
}

// validate refuses what would let strangers in, what others could not reach, and timings in which one controller frees
// runs that another still executes.
func (c Config) validate() error {
	if c.DatabaseURL == "" {
		return errors.New("no database URL is given")
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen address %q: %w", c.Listen, err)
	}
	if err := c.validateTokens(host); err != nil {
		return err
	}
	ip := net.ParseIP(host)
	if c.Advertise == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("others cannot reach %s by that name: give the URL to advertise", c.Listen)
	}
	if c.Advertise != "" {
		if u, err := url.Parse(c.Advertise); err != nil || u.Scheme != "http" || u.Host == "" {
			return fmt.Errorf("advertised URL %q is not http://host:port", c.Advertise)
		}
	}
	if c.MaxInFlight < 0 || c.KeepDays < 0 {
		return fmt.Errorf("%d calls in flight, %d days of history: neither can be negative", c.MaxInFlight, c.KeepDays)
	}
	if err := c.Reserved.Check(); err != nil {
		return fmt.Errorf("reserved workers: %w", err)
	}
	return c.Timing.validate()
}

func (c Config) validateTokens(host string) error {
	if (c.AdminToken == "") != (c.ClusterToken == "") {
		return errors.New("one of the two tokens is missing: give both, the admin and the cluster token, or neither")
	}
	if ip := net.ParseIP(host); c.AdminToken == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("listening on %s without tokens would let anybody in: give both tokens, or listen on 127.0.0.1", c.Listen)
	}
	if c.AdminToken != "" && c.AdminToken == c.ClusterToken {
		return errors.New("the admin and the cluster token are the same: neither may open what the other does")
	}
	if strings.ContainsFunc(c.AdminToken+c.ClusterToken, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("a token holds a character that no header may carry")
	}
	return nil
}

func (t Timing) validate() error {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"beat", t.Beat}, {"grace", t.Grace}, {"steal delay", t.StealDelay}, {"reset", t.Reset},
		{"hard grace", t.HardGrace}, {"drain", t.Drain}, {"runner beat", t.RunnerBeat},
	} {
		if d.d <= 0 {
			return fmt.Errorf("%s of %s: must be positive", d.name, d.d)
		}
	}
	if 3*t.Beat > t.Silence || t.Silence >= t.Fence || t.Fence >= t.Lease {
		return fmt.Errorf("beat %s, silence %s, fence %s, lease %s: needs 3 beats <= silence < fence < lease", t.Beat, t.Silence, t.Fence, t.Lease)
	}
	return nil
}
