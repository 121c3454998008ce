package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"carillon/backend/bench"
)

// benchCmd measures this machine.
type benchCmd struct {
	Cron   benchCronCmd   `cmd:"" help:"Lateness of cron jobs, and claims and ends per second."`
	Runner benchRunnerCmd `cmd:"" hidden:"" help:"Serve verbs that do nothing, for a benchmark."`
}

// benchCronCmd is the benchmark of the clock.
type benchCronCmd struct {
	listing
	Only        string `enum:"all,lateness,claims" default:"all" placeholder:"lateness|claims" help:"Measure one of the two."`
	Jobs        []int  `default:"1000,10000" placeholder:"N,..." help:"Numbers of cron jobs to measure the lateness of (default ${default})."`
	Seconds     int    `default:"15" placeholder:"N" help:"How long the lateness of each case is measured (default ${default})."`
	Controllers int    `default:"1" placeholder:"N" help:"Controllers of the cluster, each a process (default ${default})."`
	Capacity    int    `default:"0" placeholder:"N" help:"Calls in flight at each runner (default: as many as it has verbs)."`
	Rows        int    `default:"1000000" placeholder:"N" help:"Cron jobs in the table for the claims (default ${default})."`
	Rounds      int    `default:"5" placeholder:"N" help:"Rounds of the claims, each kind once in a round (default ${default})."`
	DataDir     string `placeholder:"DIR" help:"Where the private Postgres keeps its data (default: a temporary directory)."`
	PgBin       string `placeholder:"DIR" help:"Where the programs of Postgres are (default: looked for)."`
	SharedMB    int    `name:"shared-buffers" default:"1024" placeholder:"MB" help:"shared_buffers of the private Postgres (default ${default})."`
	CPUProfile  string `name:"cpu-profile" hidden:"" help:"Write a profile of this process to a file."`
}

func (c *benchCronCmd) Help() string {
	return `Everything runs on this machine: a private, durable Postgres, the controllers, and a runner for each 1,000 cron jobs.
Progress goes to stderr. The default takes a few minutes; let nothing else run meanwhile.

Examples:

  carillon bench cron
  carillon bench cron --only lateness --jobs 1000 --controllers 3
  carillon bench cron --only claims --rows 20000 -o json`
}

func (c *benchCronCmd) Run(ctx context.Context, a *app) error {
	if c.CPUProfile != "" {
		f, err := os.Create(c.CPUProfile)
		if err != nil {
			return fmt.Errorf("write a profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	cfg := bench.Config{
		Only: strings.TrimPrefix(c.Only, "all"), Jobs: c.Jobs, Seconds: c.Seconds, Controllers: c.Controllers, Capacity: c.Capacity,
		Rows: c.Rows, Rounds: c.Rounds, DataDir: c.DataDir, BinDir: c.PgBin, SharedMB: c.SharedMB, Leg: 1200 * time.Millisecond,
		Spawn: spawnSelf, Progress: a.stderr,
	}
	r, err := bench.Run(ctx, cfg)
	if ctx.Err() != nil {
		return fmt.Errorf("stopped: %w", ctx.Err())
	}
	if err != nil {
		return err
	}
	return c.print(a, r, func() { showBench(a, r) })
}

// spawnSelf starts this program again.
func spawnSelf(log io.Writer, env []string, args ...string) (bench.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environ(env...), log, log
	return startChild(cmd)
}

func showBench(a *app, r bench.Report) {
	fmt.Fprintf(a.stdout, "%s\n%d cores (%s), %s, %s, PostgreSQL %s, load before %s\n", r.Command, r.Machine.Cores, dash(r.Machine.CPU),
		r.Machine.OS, r.Machine.Go, r.Machine.Postgres, dash(r.Machine.Load))
	var set []string
	for name, value := range r.Settings {
		set = append(set, name+" "+value)
	}
	slices.Sort(set)
	fmt.Fprintln(a.stdout, strings.Join(set, ", "))
	if len(r.Lateness) > 0 {
		fmt.Fprintln(a.stdout, "\nLateness: of started_at in the ledger by the database's clock, and of the verb's begin in the runner")
		a.table([]string{"cron jobs", "due", "runner", "controllers", "slots", "ran", "undecided", "ledger p50", "p99", "max", "verb p50", "p99", "max", "median instant p50", "p99"},
			list(r.Lateness, latenessRow))
	}
	if r.Claims != nil {
		showClaims(a, r.Claims)
	}
}

func latenessRow(l bench.LatenessResult) []string {
	due := "each second"
	if l.Period != 1 {
		due = fmt.Sprintf("at once, every %d s", l.Period)
	}
	row := []string{fmt.Sprint(l.Jobs), due, l.Runner, fmt.Sprint(l.Controllers), fmt.Sprint(l.Slots),
		fmt.Sprintf("%.1f %%", 100*float64(l.Ran)/float64(max(l.Slots, 1))), fmt.Sprint(l.Undecided)}
	for _, s := range []bench.Spread{l.Ledger, l.Verb} {
		row = append(row, took(s.P50), took(s.P99), took(s.Max))
	}
	return append(row, took(l.Instant.P50), took(l.Instant.P99))
}

func showClaims(a *app, c *bench.ClaimsResult) {
	fmt.Fprintf(a.stdout, "\nClaim and end: %d rows, batches of %d, %d connections; medians of rounds\n", c.Rows, c.Batch, c.Lanes)
	var rows [][]string
	for _, o := range c.Orders {
		for i, k := range o.Kinds {
			ratio := fmt.Sprintf("%.0f %%", 100*k.Median/max(o.Kinds[0].Median, 1))
			if i == 1 {
				ratio = fmt.Sprintf("%.0f %% (%.0f-%.0f, best rounds %.0f)", 100*o.Ratio, 100*o.RatioMin, 100*o.RatioMax, 100*o.RatioBest)
			}
			rows = append(rows, []string{o.Order, k.Kind, fmt.Sprintf("%.0f", k.Median),
				fmt.Sprintf("%.0f-%.0f", slices.Min(k.Rounds), slices.Max(k.Rounds)), ratio, fmt.Sprintf("%.0f %%", 100*k.HOT)})
		}
	}
	a.table([]string{"batches", "kind", "per second", "rounds", "of the ceiling", "hot"}, rows)
	fmt.Fprintln(a.stdout)
	a.table([]string{"statement", "plan", "cost", "in id order", "way to cron_jobs"}, list(c.Plans, func(p bench.Plan) []string {
		return []string{p.Statement, p.Mode, fmt.Sprintf("%.0f", p.Cost), fmt.Sprint(p.Ordered), strings.Join(p.Nodes, " > ")}
	}))
	fmt.Fprintf(a.stdout, "\nScan of %d rows: p50 %s, max %s\n", c.Rows, took(c.Scan.P50), took(c.Scan.Max))
}

// benchRunnerCmd is the runner that a benchmark starts.
type benchRunnerCmd struct {
	Module      string   `required:""`
	Verbs       int      `required:""`
	Schedule    string   `required:""`
	Controllers []string `required:""`
	Capacity    int      `required:""`
	Samples     string   `required:""`
}

func (c *benchRunnerCmd) Run(ctx context.Context, a *app) error {
	return bench.Runner(ctx, bench.RunnerConfig{
		Module: c.Module, Verbs: c.Verbs, Schedule: c.Schedule, Controllers: c.Controllers, Capacity: c.Capacity, Samples: c.Samples,
		Log: newLogger(a.stderr, "text", slog.LevelWarn),
	})
}
