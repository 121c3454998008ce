package carillon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	carillonv1 "carillon/proto/carillon/v1"

	"google.golang.org/protobuf/encoding/protojson"
)

// Config is what Serve needs. The zero value of every optional field takes the default named beside it.
type Config struct {
	Module Module
	Verbs  Verbs

	// Controllers are base URLs to register at; any one that answers will do. Without any, the runner registers
	// nowhere and serves calls meant for Deployment.
	Controllers []string
	Deployment  string // key of the deployment, only for a runner without controllers

	Listen    string       // host:port; 127.0.0.1:0
	Listener  net.Listener // instead of Listen; Serve closes it
	Advertise string       // URL under which controllers reach the listener; http:// and its address
	Capacity  int          // calls in flight; 100
	Token     string       // cluster token, sent to and demanded from controllers; none is for loopback only
	Deploy    bool         // deploy the schema when its digest was never deployed
	Runner    string       // key of this process; a random one

	Drain   time.Duration // how long calls in flight may go on after a stop; 25 s
	Silence time.Duration // a controller that says nothing for so long has its calls cancelled; 4 s
	Grace   time.Duration // how long a verb whose context ended may take before its run is answered without it; 1 s

	Log    *slog.Logger      // slog.Default()
	Client http.RoundTripper // the way to controllers; a transport of its own
}

// Limits of what comes in and goes out.
const (
	defaultTimeout = 5 * time.Minute // soft timeout of a call that names none
	maxTimeout     = 25 * time.Hour
	maxMessage     = 4 << 20 // bytes of one message from a controller
	maxError       = 8 << 10 // bytes of an error text
	maxCapacity    = 100_000
	maxStreams     = 256 // controllers attached at once
)

// settings are Config and what the command line alone can ask for.
type settings struct {
	Config
	printSchema bool
}

func isHelp(err error) bool { return errors.Is(err, flag.ErrHelp) }

// parse reads a runner's command line; flags win over the environment.
func parse(args []string, env func(string) string, out io.Writer) (settings, error) {
	var s settings
	or := func(name, fallback string) string {
		if v := env(name); v != "" {
			return v
		}
		return fallback
	}
	capacity, err := strconv.Atoi(or("CARILLON_CAPACITY", "100"))
	if err != nil {
		return s, fmt.Errorf("CARILLON_CAPACITY=%q is no number", env("CARILLON_CAPACITY"))
	}
	drain, err := time.ParseDuration(or("CARILLON_DRAIN", "25s"))
	if err != nil {
		return s, fmt.Errorf("CARILLON_DRAIN=%q is no duration such as 25s", env("CARILLON_DRAIN"))
	}
	deploy, err := strconv.ParseBool(or("CARILLON_DEPLOY", "false"))
	if err != nil {
		return s, fmt.Errorf("CARILLON_DEPLOY=%q is neither true nor false", env("CARILLON_DEPLOY"))
	}
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	flags.SetOutput(out)
	var controllers, tokenFile string
	flags.StringVar(&controllers, "controller", or("CARILLON_CONTROLLER", "http://127.0.0.1:7800"), "`URL`[,URL] of the controllers (CARILLON_CONTROLLER)")
	flags.StringVar(&s.Listen, "listen", or("CARILLON_LISTEN", "127.0.0.1:0"), "`address` to serve the verbs on (CARILLON_LISTEN)")
	flags.StringVar(&s.Advertise, "advertise", env("CARILLON_ADVERTISE"), "`URL` under which controllers reach this runner (CARILLON_ADVERTISE)")
	flags.IntVar(&s.Capacity, "capacity", capacity, "calls in flight (CARILLON_CAPACITY)")
	// The environment's token is no flag's default: usage would print it.
	flags.StringVar(&s.Token, "token", "", "cluster `token` (CARILLON_CLUSTER_TOKEN)")
	flags.StringVar(&tokenFile, "token-file", "", "`file` with the cluster token (CARILLON_CLUSTER_TOKEN_FILE)")
	flags.BoolVar(&s.Deploy, "deploy", deploy, "deploy the schema if this build was never deployed (CARILLON_DEPLOY)")
	flags.DurationVar(&s.Drain, "drain", drain, "how long calls in flight may go on after a stop (CARILLON_DRAIN)")
	flags.BoolVar(&s.printSchema, "print-schema", false, "print the schema as JSON and exit; also: runner schema")
	if len(args) > 0 && args[0] == "schema" {
		s.printSchema, args = true, args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if s.Token == "" && tokenFile == "" {
		s.Token, tokenFile = env("CARILLON_CLUSTER_TOKEN"), env("CARILLON_CLUSTER_TOKEN_FILE")
	}
	if s.Token == "" && tokenFile != "" {
		raw, err := os.ReadFile(tokenFile)
		if err != nil {
			return s, fmt.Errorf("read the cluster token: %w", err)
		}
		s.Token = strings.TrimSpace(string(raw))
		if s.Token == "" {
			return s, fmt.Errorf("the token file %s is empty", tokenFile)
		}
	}
	for u := range strings.SplitSeq(controllers, ",") {
		if u = strings.TrimSpace(u); u != "" {
			s.Controllers = append(s.Controllers, u)
		}
	}
	return s, nil
}

// settle checks cfg and fills in its defaults.
func (cfg *Config) settle() (*carillonv1.Schema, error) {
	schema := new(carillonv1.Schema)
	if cfg.Module.Schema != "" || len(cfg.Controllers) > 0 {
		if err := protojson.Unmarshal([]byte(cfg.Module.Schema), schema); err != nil {
			return nil, fmt.Errorf("read the schema of module %s: %w", cfg.Module.Name, err)
		}
	}
	if cfg.Module.Name == "" {
		return nil, errors.New("the module has no name")
	}
	for _, u := range append(cfg.Controllers[:len(cfg.Controllers):len(cfg.Controllers)], cfg.Advertise) {
		if err := checkURL(u); u != "" && err != nil {
			return nil, err
		}
	}
	if strings.ContainsFunc(cfg.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("the cluster token holds a character that no header may carry")
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&cfg.Drain, 25*time.Second)
	def(&cfg.Silence, 4*time.Second)
	def(&cfg.Grace, time.Second)
	if cfg.Capacity == 0 {
		cfg.Capacity = 100
	}
	if cfg.Capacity < 1 || cfg.Capacity > maxCapacity {
		return nil, fmt.Errorf("a capacity of %d is not within 1 and %d", cfg.Capacity, maxCapacity)
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Runner == "" {
		cfg.Runner = cfg.Module.Name + "-" + randomHex(6)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return schema, nil
}

// checkURL demands scheme and host and nothing that would be lost on the way.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return fmt.Errorf("%q is no URL such as http://127.0.0.1:7800", s)
	}
	return nil
}

// open listens, refuses to stand open without a token, and finds the URL to advertise.
func (cfg *Config) open(ctx context.Context) (net.Listener, error) {
	listener := cfg.Listener
	if listener == nil {
		var err error
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", cfg.Listen, err)
		}
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); ok {
		if cfg.Token == "" && !addr.IP.IsLoopback() {
			listener.Close()
			return nil, fmt.Errorf("serving %s without a cluster token would let anybody call: set CARILLON_CLUSTER_TOKEN or listen on 127.0.0.1", addr)
		}
		if cfg.Advertise == "" && addr.IP.IsUnspecified() {
			listener.Close()
			return nil, fmt.Errorf("listening on %s needs --advertise: the URL under which controllers reach this runner", addr)
		}
	}
	if cfg.Advertise == "" {
		cfg.Advertise = "http://" + listener.Addr().String()
	}
	return listener, nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}
