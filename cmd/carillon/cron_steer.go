package main

import (
	"context"
	"fmt"

	carillonv1 "carillon/proto/carillon/v1"
)

// cronPauseCmd stops the starts of a cron job.
type cronPauseCmd struct {
	oneCronJob
	listing
	Reason string `placeholder:"TEXT" help:"Why; shown with the pause."`
}

func (c *cronPauseCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.cron.PauseCronJob(ctx, &carillonv1.PauseCronJobRequest{Ref: c.Ref, Reason: c.Reason})
	if err != nil {
		return c.explain("pause cron job", err)
	}
	return c.print(a, cronJobRow(resp.GetCronJob()), func() {
		fmt.Fprintf(a.stdout, "%s is paused; `carillon cron resume %s` lets it start again\n", c.Ref, c.Ref)
	})
}

// cronResumeCmd lets a paused cron job start again.
type cronResumeCmd struct {
	oneCronJob
	listing
}

func (c *cronResumeCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.cron.ResumeCronJob(ctx, &carillonv1.ResumeCronJobRequest{Ref: c.Ref})
	if err != nil {
		return c.explain("resume cron job", err)
	}
	j := resp.GetCronJob()
	return c.print(a, cronJobRow(j), func() {
		if !j.GetEnabled() {
			fmt.Fprintf(a.stdout, "%s is no longer paused, but does not start: %s\n", c.Ref, clean(j.GetReason(), 200))
			return
		}
		fmt.Fprintf(a.stdout, "%s starts again at %s UTC\n", c.Ref, when(j.GetNextExecution()))
	})
}

// cronRunCmd starts a run now.
type cronRunCmd struct {
	oneCronJob
	listing
}

func (c *cronRunCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.cron.RunCronJob(ctx, &carillonv1.RunCronJobRequest{Ref: c.Ref})
	if err != nil {
		return c.explain("run cron job", err)
	}
	started := struct {
		Ref   string  `json:"ref"`
		RunID string  `json:"run_id"`
		Slot  *string `json:"slot"`
	}{c.Ref, resp.GetRunId(), stamp(resp.GetSlot())}
	return c.print(a, started, func() {
		fmt.Fprintf(a.stdout, "%s runs now as %s; see `carillon runs ls --ref %s`\n", c.Ref, resp.GetRunId(), c.Ref)
	})
}
