package main

import (
	"context"
	"fmt"
	"strings"

	carillonv1 "carillon/proto/carillon/v1"
)

// cronLsCmd lists cron jobs.
type cronLsCmd struct {
	listing
	Module  string `placeholder:"NAME" help:"Only this module."`
	Removed bool   `help:"Also cron jobs whose verb is gone."`
}

func (c *cronLsCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	req := &carillonv1.ListCronJobsRequest{Module: c.Module, Removed: c.Removed, PageSize: pageSize}
	var jobs []*carillonv1.CronJob
	for {
		resp, err := cl.cron.ListCronJobs(ctx, req)
		if err != nil {
			return fmt.Errorf("list cron jobs: %w", err)
		}
		jobs = append(jobs, resp.GetCronJobs()...)
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	return c.print(a, list(jobs, cronJobRow), func() {
		if len(jobs) == 0 {
			fmt.Fprintln(a.stderr, "no cron jobs; deploy a module with `carillon deploy DIR`")
			return
		}
		a.table([]string{"ref", "schedule", "zone", "next (UTC)", "starts", "state", "owners", "reason"},
			list(jobs, func(j *carillonv1.CronJob) []string {
				return []string{j.GetRef(), j.GetSchedule(), zoneName(j.GetTimeZone()), nextCell(j),
					a.paint(standingColour(j), standing(j)), j.GetState(), dash(strings.Join(j.GetOwners(), ", ")), clean(j.GetReason(), 60)}
			}))
	})
}

// nextCell is the next slot that a cron job will start: none while it does not start by itself, whatever its schedule says.
func nextCell(j *carillonv1.CronJob) string {
	if s := standing(j); s != "on" {
		return "- (" + s + ")"
	}
	return when(j.GetNextExecution())
}

func standingColour(j *carillonv1.CronJob) string {
	if standing(j) == "on" {
		return green
	}
	return yellow
}
