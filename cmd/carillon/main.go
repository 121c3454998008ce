// Command carillon is the one binary: it runs controllers and runners, starts a whole cluster on one machine for
// development, and speaks to a running cluster.
//
// Every command that shows or changes a cluster goes through the RPCs and nothing else; only controller, migrate and dev
// know a database URL, and none of them knows SQL. A file holds one command or one part that several share.
//
// On failure a command says on stderr what was tried, why it did not work and how to mend it, and exits with 1. A command
// line that cannot be understood exits with 2, a wait that a signal cut short with 130.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	// Zones are those of the release that this binary was built with, whatever the host has.
	_ "time/tzdata"
)

// Exit codes.
const (
	exitOK     = 0
	exitError  = 1
	exitUsage  = 2
	exitSignal = 130
)

// cli is the command line. The order of the commands is that of the help page.
type cli struct {
	Remote remote `embed:""`

	Dev         devCmd         `cmd:"" help:"Start a whole cluster on this machine and show what runs."`
	Controller  controllerCmd  `cmd:"" help:"Run one controller."`
	Run         runCmd         `cmd:"" help:"Build a module and serve its verbs."`
	Build       buildCmd       `cmd:"" help:"Build a module into a runner binary."`
	Schema      schemaCmd      `cmd:"" help:"Print the schema of a module."`
	Check       checkCmd       `cmd:"" help:"Check the annotations of modules."`
	Deploy      deployCmd      `cmd:"" help:"Make a module's schema the live one."`
	Ps          psCmd          `cmd:"" help:"List deployments and their runners."`
	Scale       scaleCmd       `cmd:"" help:"Set the number of runners that a module wants."`
	Kill        killCmd        `cmd:"" help:"Stop all starts of a module (scale it to 0)."`
	Cron        cronCmd        `cmd:"" help:"Show and steer cron jobs, and try out schedules."`
	Runs        runsCmd        `cmd:"" help:"Show what ran."`
	Jobs        jobsCmd        `cmd:"" help:"Enqueue jobs, show and steer them."`
	Triggers    triggersCmd    `cmd:"" help:"Make, show and steer triggers, and try out their texts."`
	Events      eventsCmd      `cmd:"" help:"Publish events."`
	Token       tokenCmd       `cmd:"" help:"Make, list and revoke bearer tokens."`
	Ring        ringCmd        `cmd:"" help:"Show which controller owns which shards."`
	Controllers controllersCmd `cmd:"" help:"List the controllers of the cluster."`
	Migrate     migrateCmd     `cmd:"" help:"Bring the database's schema up to date."`
	Doctor      doctorCmd      `cmd:"" help:"Check the cluster's health and say what to do."`
	Bench       benchCmd       `cmd:"" help:"Measure lateness and throughput on this machine."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
	Completion  completionCmd  `cmd:"" help:"Print a completion script for a shell."`
}

// app is what every command may use of the process around it.
type app struct {
	stdin          *os.File
	stdout, stderr io.Writer
	colour         bool // whether stdout understands colours and nobody declined them
}

func main() {
	// The first signal asks for an orderly end; from then on the default action is back, and a second one ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// exit unwinds the parser when it has answered by itself, e.g. to --help.
type exit int

// run is the whole program but for the process around it, so that tests can call it. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exit:
			code = int(r)
		default:
			panic(r)
		}
	}()
	a := &app{stdin: os.Stdin, stdout: stdout, stderr: stderr, colour: wantsColour(stdout)}
	var c cli
	k, err := newParser(&c, a)
	if err != nil {
		return report(stderr, err, &c.Remote)
	}
	if len(args) > 0 && args[0] == completeWord {
		complete(stdout, k.Model.Node, args[1:])
		return exitOK
	}
	kctx, err := k.Parse(joinNegatives(guardExpressions(args)))
	if err != nil {
		return reportUsage(stderr, err)
	}
	if err := checkFlags(kctx); err != nil {
		return report(stderr, err, &c.Remote)
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	return report(stderr, kctx.Run(a, &c.Remote, k), &c.Remote)
}

func newParser(c *cli, a *app) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("carillon"),
		kong.Description("Carillon runs code on time, on a cluster, without losing or doubling a run."),
		kong.Vars{"dev_data": devData()},
		kong.Writers(a.stdout, a.stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 120}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "remote", Title: "Which cluster:"},
			{Key: "timing", Title: "Timing (for drills; production keeps the defaults):"},
		}),
	)
}

// problem is an error with what to do about it.
type problem struct {
	err  error
	hint string
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

// mend adds a hint to an error.
func mend(err error, hint string, args ...any) error {
	return &problem{err: err, hint: fmt.Sprintf(hint, args...)}
}

// usage marks an error as one of the command line, although the parser let it pass.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

// silent is the error of a command that has already said what is wrong.
var silent = errors.New("already reported")

// errInterrupted is the error of a command that a signal kept from waiting to the end, and that has said so.
var errInterrupted = errors.New("interrupted")

// report prints an error for a person and returns the exit code.
func report(stderr io.Writer, err error, r *remote) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, silent):
		return exitError
	case errors.Is(err, errInterrupted):
		return exitSignal
	}
	err = explainRPC(err, r)
	fmt.Fprintf(stderr, "carillon: %s\n", strings.TrimRight(err.Error(), "\n"))
	var p *problem
	if errors.As(err, &p) && p.hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", p.hint)
	}
	var u usage
	if errors.As(err, &u) {
		return exitUsage
	}
	return exitError
}

// reportUsage prints what is wrong with a command line.
func reportUsage(stderr io.Writer, err error) int {
	text := err.Error()
	if flag, ok := strings.CutPrefix(text, "unknown flag "); ok && isNegative(flag) {
		number, _, _ := strings.Cut(flag, ",")
		text = number + ": no argument can be negative (a request that begins with a dash goes behind --)"
	}
	fmt.Fprintf(stderr, "carillon: %s\n", text)
	command := "carillon"
	var p *kong.ParseError
	if errors.As(err, &p) && p.Context != nil {
		if node := p.Context.Selected(); node != nil {
			command = node.FullPath()
		}
	}
	fmt.Fprintf(stderr, "hint: %s --help\n", command)
	return exitUsage
}
