package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
)

// runsLsCmd lists runs.
type runsLsCmd struct {
	listing
	Ref     string   `placeholder:"REF" help:"Only this cron job (module.verb)."`
	Module  string   `placeholder:"NAME" help:"Only this module."`
	Verdict []string `placeholder:"NAME" help:"Only these verdicts: succeeded, failed, timed_out, lost, fired, skipped_overlap, skipped_missed, skipped_paused, cancelled, executing."`
	By      string   `name:"by" placeholder:"KEY" help:"Only runs of this controller."`
	From    string   `placeholder:"WHEN" help:"Only slots from this instant on: RFC 3339, or a length of time before now such as 15m."`
	To      string   `placeholder:"WHEN" help:"Only slots up to this instant."`
	Limit   int      `default:"100" placeholder:"N" help:"How many rows at most; 0 for all (default ${default})."`
}

func (c *runsLsCmd) Help() string {
	return `Examples:

  carillon runs ls --ref heartbeat.beat --limit 20
  carillon runs ls --verdict lost,failed --from 1h -o json`
}

func (c *runsLsCmd) Run(ctx context.Context, a *app, r *remote) error {
	req, err := c.request(time.Now())
	if err != nil {
		return err
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	runs, err := pages(c.Limit, func(size int32, token string) ([]*carillonv1.Run, string, error) {
		req.PageSize, req.PageToken = size, token
		resp, err := cl.runs.ListRuns(ctx, req)
		return resp.GetRuns(), resp.GetNextPageToken(), err
	})
	if err != nil {
		return fmt.Errorf("list runs: %w", err)
	}
	return c.print(a, list(runs, runRow), func() { runTable(a, runs) })
}

func (c *runsLsCmd) request(now time.Time) (*carillonv1.ListRunsRequest, error) {
	if c.Limit < 0 {
		return nil, usage{fmt.Errorf("--limit %d is negative", c.Limit)}
	}
	if c.Ref != "" && !isRef(c.Ref) {
		return nil, usage{mend(fmt.Errorf("--ref: %q is no cron job", clean(c.Ref, 80)), "write it as module.verb; --module chooses a whole module")}
	}
	req := &carillonv1.ListRunsRequest{Ref: c.Ref, Module: c.Module, Controller: c.By}
	for _, name := range c.Verdict {
		v, err := parseVerdict(name)
		if err != nil {
			return nil, err
		}
		req.Verdicts = append(req.Verdicts, v)
	}
	var err error
	if req.From, err = parseInstant("--from", c.From, now); err != nil {
		return nil, err
	}
	if req.To, err = parseInstant("--to", c.To, now); err != nil {
		return nil, err
	}
	return req, nil
}

// parseInstant reads an RFC 3339 time, or how long before now it was. The empty text is no bound.
func parseInstant(flag, s string, now time.Time) (*timestamppb.Timestamp, error) {
	if s == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return timestamppb.New(t), nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return timestamppb.New(now.Add(-d)), nil
	}
	return nil, usage{mend(fmt.Errorf("%s %q is no instant", flag, s),
		"write it like 2026-01-31T09:00:00Z, or as a length of time before now: 90s, 15m, 24h")}
}
