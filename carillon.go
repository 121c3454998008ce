// Package carillon is the SDK: it makes a runner out of functions. A runner serves its module's verbs to the
// controllers of a cluster over Connect, makes itself known to them, and drains when it is asked to stop. Generated
// code calls Main; a plain verb needs no import of this package at all, and one that wants to know which run it is
// asks RunFrom.
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
	"syscall"
	"time"
)

// Verbs are the functions of a module by the name of their verb, without the module's name.
type Verbs map[string]func(context.Context) error

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
	Slot           time.Time // nominal time of the start, UTC; zero where no clock started the run
	Attempt        int       // 1 for the first
	IdempotencyKey string    // the same for every attempt of one slot
	Traceparent    string    // W3C trace context of the controller's span, if it traces
	Deadline       time.Time // when the context ends, by the local clock
}

type runKey struct{}

// RunFrom tells which run the context of a verb belongs to; false for any other context.
func RunFrom(ctx context.Context) (Run, bool) {
	run, ok := ctx.Value(runKey{}).(*Run)
	if !ok {
		return Run{}, false
	}
	return *run, true
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
	if err := Serve(ctx, cfg.Config); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", m.Name, err)
		os.Exit(1)
	}
}
