package main

import (
	"context"

	carillonv1 "carillon/proto/carillon/v1"
)

// cronHistoryCmd lists what became of the slots of one cron job.
type cronHistoryCmd struct {
	oneCronJob
	listing
	Limit int `default:"20" placeholder:"N" help:"How many rows at most; 0 for all (default ${default})."`
}

func (c *cronHistoryCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	runs, err := pages(c.Limit, func(size int32, token string) ([]*carillonv1.Run, string, error) {
		resp, err := cl.cron.GetHistory(ctx, &carillonv1.GetHistoryRequest{Ref: c.Ref, PageSize: size, PageToken: token})
		return resp.GetRuns(), resp.GetNextPageToken(), err
	})
	if err != nil {
		return c.explain("read the history of cron job", err)
	}
	return c.print(a, list(runs, runRow), func() { runTable(a, runs) })
}
