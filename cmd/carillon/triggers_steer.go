package main

import (
	"context"
	"fmt"

	carillonv1 "carillon/proto/carillon/v1"
)

// triggersLaunchCmd makes jobs of triggers now.
type triggersLaunchCmd struct {
	listing
	someTriggers
}

func (c *triggersLaunchCmd) Help() string {
	return `The job is the trigger's own, with its message; the trigger goes on as if nothing had been.

Examples:

  carillon triggers launch 0f2c8e1b7a6d4c3e9b8a7f6e5d4c3b2a
  carillon triggers launch 0f2c8e1b7a6d4c3e9b8a7f6e5d4c3b2a -o json | jq -r .[].job_id | xargs carillon jobs watch`
}

func (c *triggersLaunchCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	return visit(a, r, c.listing, c.IDs, "launch trigger", func(id string) (visited, string, error) {
		resp, err := cl.triggers.LaunchTrigger(ctx, &carillonv1.LaunchTriggerRequest{Id: id})
		return visited{JobID: resp.GetJobId()}, resp.GetJobId(), err
	})
}

// triggersPauseCmd stops the clock for triggers.
type triggersPauseCmd struct {
	listing
	someTriggers
	Reason string `placeholder:"TEXT" help:"Why; it stands with the slots that are skipped."`
}

func (c *triggersPauseCmd) Help() string {
	return `The slots that pass meanwhile are skipped for good. A trigger that no clock fires cannot be paused.

Examples:

  carillon triggers pause 0f2c8e1b7a6d4c3e9b8a7f6e5d4c3b2a --reason "the bank is closed"
  carillon triggers ls --worker konnector -o json | jq -r .[].id | xargs carillon triggers pause`
}

func (c *triggersPauseCmd) Run(ctx context.Context, a *app, r *remote) error {
	return pauseTriggers(ctx, a, r, c.listing, c.IDs, &carillonv1.PauseTriggerRequest{Reason: c.Reason})
}

// triggersResumeCmd lets paused triggers go on.
type triggersResumeCmd struct {
	listing
	someTriggers
}

func (c *triggersResumeCmd) Help() string {
	return `Examples:

  carillon triggers resume 0f2c8e1b7a6d4c3e9b8a7f6e5d4c3b2a`
}

func (c *triggersResumeCmd) Run(ctx context.Context, a *app, r *remote) error {
	return pauseTriggers(ctx, a, r, c.listing, c.IDs, &carillonv1.PauseTriggerRequest{Resume: true})
}

func pauseTriggers(ctx context.Context, a *app, r *remote, l listing, ids []string, req *carillonv1.PauseTriggerRequest) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	tried := "pause trigger"
	if req.GetResume() {
		tried = "resume trigger"
	}
	return visit(a, r, l, ids, tried, func(id string) (visited, string, error) {
		req.Id = id
		resp, err := cl.triggers.PauseTrigger(ctx, req)
		said := fmt.Sprintf("%s is paused; `carillon triggers resume %s` lets it go on", id, id)
		if req.GetResume() {
			said = fmt.Sprintf("%s fires again at %s UTC", id, when(resp.GetTrigger().GetNextExecution()))
		}
		return visited{}, said, err
	})
}

// triggersRmCmd removes triggers.
type triggersRmCmd struct {
	listing
	someTriggers
}

func (c *triggersRmCmd) Help() string {
	return `A removed trigger makes no further job, and cannot be brought back. Those that it made stay, and go on.

Examples:

  carillon triggers rm 0f2c8e1b7a6d4c3e9b8a7f6e5d4c3b2a`
}

func (c *triggersRmCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	return visit(a, r, c.listing, c.IDs, "remove trigger", func(id string) (visited, string, error) {
		_, err := cl.triggers.DeleteTrigger(ctx, &carillonv1.DeleteTriggerRequest{Id: id})
		return visited{}, id + " is removed", err
	})
}
