package main

import (
	"context"
	"fmt"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

// jobFilter is the choice of the commands about many jobs.
type jobFilter struct {
	Ref    string `placeholder:"REF" help:"Only jobs of this verb (module.verb)."`
	Module string `placeholder:"NAME" help:"Only this module."`
	Tenant string `placeholder:"NAME" help:"Only this tenant."`
	Tag    string `placeholder:"TAG" help:"Only jobs that have this tag."`
	From   string `placeholder:"WHEN" help:"Only from this instant on: RFC 3339, or a length of time before now such as 15m. Counts the creation of live jobs and the end of ended ones."`
	To     string `placeholder:"WHEN" help:"Only before this instant."`
}

func (f *jobFilter) request(now time.Time) (*carillonv1.ListJobsRequest, error) {
	if f.Ref != "" && !isRef(f.Ref) {
		return nil, usage{mend(fmt.Errorf("--ref: %q is no verb", clean(f.Ref, 80)), "write it as module.verb; --module chooses a whole module")}
	}
	req := &carillonv1.ListJobsRequest{Ref: f.Ref, Module: f.Module, Tenant: f.Tenant, Tag: f.Tag}
	var err error
	if req.From, err = parseInstant("--from", f.From, now); err != nil {
		return nil, err
	}
	req.To, err = parseInstant("--to", f.To, now)
	return req, err
}

// jobsLsCmd lists jobs.
type jobsLsCmd struct {
	listing
	jobFilter
	State  []string `placeholder:"NAME" help:"Only these states: ready, running, blocked, succeeded, failed, cancelled."`
	Parent string   `placeholder:"ID" help:"Only children of this job."`
	Limit  int      `default:"100" placeholder:"N" help:"How many jobs at most; 0 for all (default ${default})."`
}

func (c *jobsLsCmd) Help() string {
	return `The list has no payloads and outputs; 'jobs show' has.

Examples:

  carillon jobs ls --state ready,running
  carillon jobs ls --ref mailroom.sendMail --from 1h --limit 0 -o json | jq -r .[].id`
}

func (c *jobsLsCmd) Run(ctx context.Context, a *app, r *remote) error {
	now := time.Now()
	req, err := c.request(now)
	if err != nil {
		return err
	}
	req.ParentId = c.Parent
	for _, name := range c.State {
		s, err := parseState(name)
		if err != nil {
			return err
		}
		req.States = append(req.States, s)
	}
	jobs, err := listJobs(ctx, r, req, c.Limit)
	if err != nil {
		return err
	}
	return c.print(a, list(jobs, jobRow), func() {
		if len(jobs) == 0 {
			fmt.Fprintln(a.stderr, "no such jobs")
			return
		}
		jobTable(a, jobs, now)
	})
}

// listJobs reads pages until there are limit jobs (0: all).
func listJobs(ctx context.Context, r *remote, req *carillonv1.ListJobsRequest, limit int) ([]*carillonv1.Job, error) {
	cl, err := r.dial()
	if err != nil {
		return nil, err
	}
	jobs, err := pages(limit, func(size int32, token string) ([]*carillonv1.Job, string, error) {
		req.PageSize, req.PageToken = size, token
		resp, err := cl.jobs.ListJobs(ctx, req)
		return resp.GetJobs(), resp.GetNextPageToken(), err
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs, nil
}

// jobsDeadCmd lists dead jobs.
type jobsDeadCmd struct {
	listing
	jobFilter
	Limit int `default:"100" placeholder:"N" help:"How many jobs at most; 0 for all (default ${default})."`
}

func (c *jobsDeadCmd) Help() string {
	return `A dead job has no attempt left, or its verb gave it up. 'jobs redrive' makes it live again.

Examples:

  carillon jobs dead
  carillon jobs dead --ref mailroom.sendMail --from 24h -o json`
}

func (c *jobsDeadCmd) Run(ctx context.Context, a *app, r *remote) error {
	now := time.Now()
	req, err := c.request(now)
	if err != nil {
		return err
	}
	req.Dead = true
	jobs, err := listJobs(ctx, r, req, c.Limit)
	if err != nil {
		return err
	}
	return c.print(a, list(jobs, jobRow), func() {
		if len(jobs) == 0 {
			fmt.Fprintln(a.stderr, "no dead jobs")
			return
		}
		a.table([]string{"job", "ref", "tenant", "attempts", "died (UTC)", "", "error"}, list(jobs, func(j *carillonv1.Job) []string {
			return []string{j.GetId(), clean(j.GetRef(), 60), clean(j.GetTenant(), 30), attemptCell(j), when(j.GetEndedAt()), ago(j.GetEndedAt(), now), clean(latestError(j), 100)}
		}))
		fmt.Fprintln(a.stdout, "`carillon jobs show ID` tells more; `carillon jobs redrive ID` makes one live again")
	})
}
