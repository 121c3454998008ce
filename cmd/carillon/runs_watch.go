package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// runsWatchCmd prints runs as they end.
type runsWatchCmd struct {
	Output string `short:"o" enum:"table,json" default:"table" placeholder:"table|json" help:"table, or json: one object on each line."`
	Ref    string `placeholder:"REF" help:"Only this cron job (module.verb)."`
	Module string `placeholder:"NAME" help:"Only this module."`
}

func (c *runsWatchCmd) Help() string {
	return `The watch goes on at another controller when the one it reads dies. Ctrl-C ends it.

Examples:

  carillon runs watch
  carillon runs watch --module heartbeat -o json | jq .verdict`
}

func (c *runsWatchCmd) Run(ctx context.Context, a *app, r *remote) error {
	token, err := readToken(r.Token, r.TokenFile)
	if err != nil {
		return err
	}
	first, err := newClient(r.base(), token, r.Timeout)
	if err != nil {
		return err
	}
	// A controller that cannot be reached at the start is a mistake to report; later ones are waited for.
	urls, err := c.controllers(ctx, first)
	if err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	s := newScreen(a, keyWidth)
	if c.Output == "table" {
		s.header()
	}
	w := watcher{
		endpoints: func() []string { return urls },
		runs: func(url string) (carillonv1connect.RunServiceClient, error) {
			cl, err := newClient(url, token, r.Timeout)
			if err != nil {
				return nil, err
			}
			if more, err := c.controllers(ctx, cl); err == nil {
				urls = more
			}
			return cl.runs, nil
		},
		ref: c.Ref, module: c.Module,
		emit: func(run *carillonv1.Run) {
			if c.Output == "json" {
				json.NewEncoder(a.stdout).Encode(runRow(run))
				return
			}
			s.run(run, time.Now(), run.GetController())
		},
		gap: func(url string, err error) {
			fmt.Fprintf(a.stderr, "lost %s, going on elsewhere: %s\n", url, clean(err.Error(), 200))
		},
	}
	w.run(ctx)
	return nil
}

// controllers lists where to watch: the named controller first, then the others that live.
func (c *runsWatchCmd) controllers(ctx context.Context, cl *client) ([]string, error) {
	resp, err := cl.cluster.ListControllers(ctx, &carillonv1.ListControllersRequest{})
	if err != nil {
		return nil, err
	}
	urls := []string{cl.url}
	for _, m := range resp.GetControllers() {
		if m.GetState() == "live" && m.GetEndpoint() != cl.url {
			urls = append(urls, m.GetEndpoint())
		}
	}
	return urls, nil
}

// screen prints runs and events line by line, in columns that keep their width. It is safe for concurrent use.
type screen struct {
	a     *app
	width int // of the controllers' names
	mu    sync.Mutex
}

func newScreen(a *app, width int) *screen { return &screen{a: a, width: width} }

// Widths of the controllers' names: as they are, and as ports.
const (
	keyWidth  = 18
	portWidth = 10
)

// columns joins the cells of a line. The verdict comes padded, since its colours would count.
func (s *screen) columns(at, ref, slot, late, controller, verdict, took string) string {
	return fmt.Sprintf("%-12s  %-24s  %-19s  %8s  %-*s  %s  %8s", at, clean(ref, 24), slot, late, s.width, clean(controller, s.width), verdict, took)
}

func padVerdict(verdict string) string { return fmt.Sprintf("%-17s", verdict) }

func (s *screen) header() {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.columns("TIME (UTC)", "REF", "SLOT (UTC)", "LATE", "CONTROLLER", padVerdict("VERDICT"), "TOOK") + "  ERROR"
	fmt.Fprintln(s.a.stdout, s.a.paint(bold, line))
}

// run prints one row of the ledger; controller is the name to show.
func (s *screen) run(r *carillonv1.Run, now time.Time, controller string) {
	at := now
	if r.GetEndedAt() != nil {
		at = r.GetEndedAt().AsTime()
	}
	verdict := s.a.paint(verdictColour(r.GetVerdict()), padVerdict(verdictCell(r)))
	line := s.columns(at.UTC().Format("15:04:05.000"), r.GetRef(), when(r.GetSlot()), lateCell(r), dash(controller), verdict, tookCell(r))
	if r.GetKind() == manual {
		line += "  (by hand)"
	}
	if text := clean(note(r), 160); text != "" {
		line += "  " + text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.a.stdout, line)
}

// event prints what happened beside the runs.
func (s *screen) event(colour, format string, args ...any) {
	line := time.Now().UTC().Format("15:04:05.000") + "  " + s.a.paint(colour, "* "+fmt.Sprintf(format, args...))
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.a.stdout, line)
}

// text prints lines as they are.
func (s *screen) text(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.a.stdout, text)
}
