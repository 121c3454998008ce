// Command bench measures the job queue beside River and beside a hand-written pgx loop, in one run on one private,
// durable Postgres: no-op jobs worked to completion, bulk and single enqueue, enqueue to start, and what a job costs the
// database as controllers are added. It is a module of its own, so that a peer is no dependency of the product. When asked
// for, it also measures very many triggers of the clock, and events, on three controllers.
//
// Carillon runs as a user runs it: `carillon controller` is a process with its defaults, the runner is another one on
// the SDK that is called over the stream, and jobs come by the JobService over the network. River and the hand-written
// loop live in this process, which spares them every hop. Candidates take turns, each on an empty database of its own;
// the order moves on by one in each round. After each candidate everything that it was given is counted: a job that did
// not end exactly once fails the run.
//
// It must never touch a database that it did not start. When it ends, however that comes, its processes end by their
// pids and the temporary data are removed.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// What can be measured.
const (
	workLeg    = "work"
	enqueueLeg = "enqueue"
	latencyLeg = "latency"
	costLeg    = "cost"
	clockLeg   = "triggers"
	eventLeg   = "events"

	clockCostLeg = "triggers, cost" // a second table of triggers
)

var (
	queueLegs = []string{workLeg, enqueueLeg, latencyLeg, costLeg}
	legs      = append(slices.Clone(queueLegs), clockLeg, eventLeg)
)

// options of one run.
type options struct {
	only       []string // legs
	candidates []string // empty: all
	rounds     int
	jobs       int           // queued before they are worked
	slowJobs   int           // the same for River at its defaults
	costJobs   int           // the same for the cost by number of controllers
	leg        time.Duration // of single enqueues
	latency    time.Duration // of each rate in each round
	capacity   int           // of the runner
	sharedMB   int           // shared_buffers

	triggers      int           // of the clock
	firings       []float64     // rates a second, of all of them
	shortest      time.Duration // interval of them
	window        time.Duration // that each rate is measured for
	eventTriggers []int
	happen        int  // events of each burst
	statements    bool // say which took most

	out string
}

func (o options) measures(leg string) bool { return slices.Contains(o.only, leg) }

// init keeps the first goroutine on the first thread: Linux ends a child with the thread that started it.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		exit(serveRunner(os.Args[2:]))
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", strings.Join(queueLegs, ","), "`legs` to measure, with commas; there are also "+clockLeg+" and "+eventLeg+", which take minutes and are measured in the first round only")
	names := flags.String("candidates", "", "`names` of candidates, with commas: a part of each name is enough (all)")
	flags.IntVar(&o.rounds, "rounds", 3, "rounds; each candidate once in a round")
	flags.IntVar(&o.jobs, "jobs", 100_000, "jobs queued before they are worked")
	flags.IntVar(&o.slowJobs, "default-jobs", 10_000, "the same for River at its defaults, which needs 100 s for 100,000")
	flags.IntVar(&o.costJobs, "cost-jobs", 30_000, "the same for the cost by number of controllers")
	flags.DurationVar(&o.leg, "leg", 1500*time.Millisecond, "how long single enqueues are measured with each number of producers")
	flags.DurationVar(&o.latency, "latency", 7*time.Second, "how long enqueue to start is measured at each rate in each round")
	flags.IntVar(&o.capacity, "capacity", 1000, "calls in flight at Carillon's runner; River tuned has 1000 workers")
	flags.IntVar(&o.sharedMB, "shared-buffers", 1024, "shared_buffers in MB")
	flags.IntVar(&o.triggers, "triggers", 100_000, "triggers of the clock")
	firings := flags.String("firings", "0,500,1500", "firings a second of all of them, with commas")
	flags.DurationVar(&o.shortest, "shortest", time.Minute, "shortest interval of a trigger; the longest is ten times that")
	flags.DurationVar(&o.window, "window", 90*time.Second, "how long triggers are measured at each rate")
	eventTriggers := flags.String("event-triggers", "10,10000,100000", "numbers of event triggers, with commas")
	flags.IntVar(&o.happen, "events", 50_000, "events published for each number of triggers")
	flags.BoolVar(&o.statements, "statements", false, "say which statements took most while triggers are measured")
	flags.StringVar(&o.out, "out", "", "`file` for the tables (stdout)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	o.only = strings.Split(*only, ",")
	for _, leg := range o.only {
		if !slices.Contains(legs, leg) {
			return o, fmt.Errorf("nothing is called %q: there are %s", leg, strings.Join(legs, ", "))
		}
	}
	if err := o.readTriggers(*firings, *eventTriggers); err != nil {
		return o, err
	}
	if *names != "" {
		o.candidates = strings.Split(*names, ",")
	}
	if min(o.rounds, o.jobs, o.slowJobs, o.costJobs, o.capacity, o.sharedMB, o.triggers, o.happen) < 1 || min(o.leg, o.latency) <= 0 || o.window < 2*time.Second {
		return o, errors.New("every number must be positive")
	}
	return o, nil
}

func run(ctx context.Context, o options) (err error) {
	b := &bench{options: o, figures: newFigures()}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return err
	}
	all := b.all()
	if len(all) == 0 && !slices.ContainsFunc(o.only, func(leg string) bool { return leg == costLeg || leg == clockLeg || leg == eventLeg }) {
		return errors.New("no candidate has such a name")
	}
	began := time.Now()
	for round := range o.rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			if err := b.turn(ctx, c, round); err != nil {
				return cmp.Or(ctx.Err(), fmt.Errorf("%s, round %d: %w", c.name, round+1, err))
			}
		}
		if err := b.costs(ctx, round); err != nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("cost, round %d: %w", round+1, err))
		}
	}
	if err := b.belfries(ctx); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	text := b.report(time.Since(began))
	if o.out == "" {
		fmt.Print(text)
		return nil
	}
	return os.WriteFile(o.out, []byte(text), 0o644)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

var quiet = slog.New(slog.DiscardHandler)
