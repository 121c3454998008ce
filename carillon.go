// Package carillon is the SDK: it makes a runner out of functions, and a client that enqueues jobs for them. A runner
// serves its module's verbs to the controllers of a cluster over Connect, makes itself known to them, and drains when it
// is asked to stop. Generated code calls Main; a plain verb needs no import of this package at all. One that wants to
// know which run it is asks RunFrom, says with Progress how far it is, and answers with RetryAfter, Snooze, Fail, Cancel
// or AwaitChildren where an ordinary error says too little. Enqueue, Wait and Client are for those who want work done.
//
// The package knows the contract (proto) and nothing of how controllers decide: schedules, ledger and retries are
// theirs. A verb that panics, fails or overstays ends its own run only; a controller that falls silent has its calls
// cancelled; while no controller can be reached the runner goes on serving and keeps trying to register.
package carillon

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// Module is what a runner's binary knows of the code it carries.
type Module struct {
	Name     string // of the module: the part of a ref before the dot
	Language string // "go"
	Digest   string // of the deployment, hex
	Schema   string // carillon.v1.Schema as protojson
}

// Run is the run that a verb's context belongs to.
type Run struct {
	ID             string    // unique for each attempt
	Ref            string    // module.verb
	Job            JobID     // of a job's run; empty for a cron job's
	Tenant         string    // of the job
	Slot           time.Time // nominal time of the start, UTC; zero where no clock started the run
	Attempt        int       // 1 for the first
	IdempotencyKey string    // the same for every attempt of one slot or job
	Traceparent    string    // W3C trace context of the controller's span, if it traces
	Deadline       time.Time // when the context ends, by the local clock
}

type insideKey struct{}

// inside is what the context of a verb carries.
type inside struct {
	run      *Run              // nil: no run
	progress func(text string) // nil: nobody hears it
	client   *Client           // nil: none
	envelope []byte            // JSON; empty: none
}

func insideOf(ctx context.Context) inside {
	in, _ := ctx.Value(insideKey{}).(inside)
	return in
}

// RunFrom tells which run the context of a verb belongs to; false for any other context.
func RunFrom(ctx context.Context) (Run, bool) {
	run := insideOf(ctx).run
	if run == nil {
		return Run{}, false
	}
	return *run, true
}

// WithRun is a context in which RunFrom tells run, for calling a verb without a cluster, in a test for example.
func WithRun(ctx context.Context, run Run) context.Context {
	in := insideOf(ctx)
	in.run = &run
	return context.WithValue(ctx, insideKey{}, in)
}

// Progress says how far a verb is, for those who look at its job. The last text is kept, cut to 1 KiB; texts in quick
// succession may be passed over, and over the way of simple runners (unary calls) none is sent. Outside a run it does
// nothing.
func Progress(ctx context.Context, text string) {
	if say := insideOf(ctx).progress; say != nil {
		say(text)
	}
}

// Main is the whole of a runner's program: it reads flags and environment, serves the verbs until SIGTERM or SIGINT,
// drains and exits: 0 after a drain, 1 when it cannot serve, 2 for a wrong command line. A second signal ends it at
// once.
func Main(m Module, verbs Verbs) {
	cfg, err := parse(os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case isHelp(err):
		os.Exit(0)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", m.Name, err)
		os.Exit(2)
	case cfg.printSchema:
		fmt.Println(m.Schema)
		os.Exit(0)
	}
	cfg.Module, cfg.Verbs = m, verbs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal takes its default way
	weight := ballast(os.Getenv)
	err = Serve(ctx, cfg.Config)
	runtime.KeepAlive(weight)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", m.Name, err)
		os.Exit(1)
	}
}

// ballast lets a small heap collect its garbage less often: a busy runner keeps little and throws much away, and a third of
// its time went to collecting. It is never written to, so that it takes no memory by itself, only up to as much of garbage
// again; a heap that is large already hardly notices. Who has set the collector by the environment gets none.
func ballast(env func(string) string) []byte {
	if env("GOGC") != "" || env("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, 32<<20)
}
