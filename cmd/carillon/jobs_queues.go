package main

import (
	"context"
	"fmt"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

// jobsQueuesCmd lists queues and pauses.
type jobsQueuesCmd struct {
	listing
}

func (c *jobsQueuesCmd) Help() string {
	return `A queue is the jobs of one verb, tenant and class of priority. The count of running jobs is kept where a verb has a bound
in the whole cluster (//carillon:concurrency).

Examples:

  carillon jobs queues
  carillon jobs queues -o json | jq .pauses`
}

type queuesJSON struct {
	Queues []queueJSON `json:"queues"`
	Pauses []pauseJSON `json:"pauses"`
}

type queueJSON struct {
	Ref        string  `json:"ref"`
	Tenant     string  `json:"tenant"`
	Lane       int32   `json:"lane"`
	PausedAt   *string `json:"paused_at"`
	MaxRunning int32   `json:"max_running"` // 0: no bound
	Running    int32   `json:"running"`     // where there is a bound
	WaitingFor string  `json:"waiting_for"` // a deployment, a verb, a runner; empty: none of these
}

type pauseJSON struct {
	Ref      string  `json:"ref"`
	Tenant   string  `json:"tenant"`
	PausedAt *string `json:"paused_at"`
	Reason   string  `json:"reason"`
}

func (c *jobsQueuesCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.jobs.ListQueues(ctx, &carillonv1.ListQueuesRequest{})
	if err != nil {
		return fmt.Errorf("list queues: %w", err)
	}
	rows := queuesJSON{
		Queues: list(resp.GetQueues(), func(q *carillonv1.Queue) queueJSON {
			return queueJSON{q.GetRef(), q.GetTenant(), q.GetLane(), stamp(q.GetPausedAt()), q.GetMaxRunning(), q.GetRunning(), q.GetWaitingFor()}
		}),
		Pauses: list(resp.GetPauses(), func(p *carillonv1.Pause) pauseJSON {
			return pauseJSON{p.GetRef(), p.GetTenant(), stamp(p.GetPausedAt()), p.GetReason()}
		}),
	}
	return c.print(a, rows, func() {
		if len(rows.Queues) == 0 {
			fmt.Fprintln(a.stderr, "no queues: no job was ever enqueued")
		} else {
			queueTable(a, resp.GetQueues())
		}
		for _, p := range resp.GetPauses() {
			why := clean(p.GetReason(), 200)
			if why != "" {
				why = ": " + why
			}
			fmt.Fprintf(a.stdout, "%s are paused since %s UTC (%s)%s\n", coverage(p.GetRef(), p.GetTenant()), when(p.GetPausedAt()), ago(p.GetPausedAt(), time.Now()), why)
		}
	})
}

func queueTable(a *app, queues []*carillonv1.Queue) {
	a.table([]string{"ref", "tenant", "priority", "starts", "running"}, list(queues, func(q *carillonv1.Queue) []string {
		starts, running := a.paint(green, "on"), "-"
		switch {
		case q.GetPausedAt() != nil:
			starts = a.paint(yellow, "paused")
		case q.GetWaitingFor() != "":
			starts = a.paint(red, "waits for "+clean(q.GetWaitingFor(), 120))
		}
		if q.GetMaxRunning() > 0 {
			running = fmt.Sprintf("%d of %d", q.GetRunning(), q.GetMaxRunning())
		}
		return []string{clean(q.GetRef(), 60), clean(q.GetTenant(), 30), laneCell(q.GetLane()), starts, running}
	}))
}

// laneCell is the range of priorities of a lane.
func laneCell(lane int32) string {
	if lane >= 4 {
		return "800-1000"
	}
	return fmt.Sprintf("%d-%d", lane*200, lane*200+199)
}
