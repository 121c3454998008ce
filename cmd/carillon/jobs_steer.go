package main

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	carillonv1 "carillon/proto/carillon/v1"
)

// steeredJSON is what became of one of the jobs that a command names.
type steeredJSON struct {
	ID    string `json:"id"`
	State string `json:"state"` // after the command; empty when it was refused
	Error string `json:"error"`
}

// steer does something to each job, whatever became of those before, and tells of all of them.
func steer(a *app, r *remote, l listing, ids []string, tried string, do func(id string) (carillonv1.JobState, error), done func(id string, s carillonv1.JobState)) error {
	rows, failed := []steeredJSON{}, false
	for i, id := range ids {
		state, err := do(id)
		if err == nil {
			rows = append(rows, steeredJSON{ID: id, State: stateName(state)})
			if l.Output == "table" {
				done(id, state)
			}
			continue
		}
		err = explainJob(tried, id, err)
		if len(ids) == 1 && l.Output == "table" || !isFinal(err) && !isRefusal(err) {
			return fmt.Errorf("%w%s", err, unreached(len(ids)-i-1))
		}
		failed = true
		err = explainRPC(err, r)
		rows = append(rows, steeredJSON{ID: id, Error: err.Error()})
		if l.Output == "table" {
			fmt.Fprintf(a.stderr, "carillon: %s\n", err)
		}
	}
	if l.Output == "json" {
		if err := a.json(rows); err != nil {
			return err
		}
	}
	if failed {
		return silent
	}
	return nil
}

// isRefusal says that the request was understood and refused for this job alone.
func isRefusal(err error) bool { return connect.CodeOf(err) == connect.CodeFailedPrecondition }

func unreached(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s behind it not tried)", plural(n, "job"))
}

// jobsCancelCmd cancels jobs.
type jobsCancelCmd struct {
	listing
	someJobs
	Reason string `placeholder:"TEXT" help:"Why; it stands among the job's errors."`
}

func (c *jobsCancelCmd) Help() string {
	return `Children that wait are cancelled with their parent. A verb that runs sees its context end.

Examples:

  carillon jobs cancel j1k0000abc --reason "sent by hand"
  carillon jobs ls --tag import-7 --state ready --limit 0 -o json | jq -r .[].id | xargs carillon jobs cancel`
}

func (c *jobsCancelCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	return steer(a, r, c.listing, c.IDs, "cancel job", func(id string) (carillonv1.JobState, error) {
		resp, err := cl.jobs.CancelJob(ctx, &carillonv1.CancelJobRequest{Id: id, Reason: c.Reason})
		return resp.GetState(), err
	}, func(id string, s carillonv1.JobState) {
		if s == carillonv1.JobState_JOB_STATE_RUNNING {
			fmt.Fprintf(a.stdout, "%s runs; its verb is asked to end (`carillon jobs watch %s`)\n", id, id)
			return
		}
		fmt.Fprintf(a.stdout, "%s is cancelled\n", id)
	})
}

// jobsRetryCmd makes jobs due now.
type jobsRetryCmd struct {
	listing
	someJobs
}

func (c *jobsRetryCmd) Help() string {
	return `Examples:

  carillon jobs retry j1k0000abc
  carillon jobs retry j1k0000abc j1k1000def -o json`
}

func (c *jobsRetryCmd) Run(ctx context.Context, a *app, r *remote) error {
	return retryJobs(ctx, a, r, c.listing, c.IDs, "retry job")
}

func retryJobs(ctx context.Context, a *app, r *remote, l listing, ids []string, tried string) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	return steer(a, r, l, ids, tried, func(id string) (carillonv1.JobState, error) {
		resp, err := cl.jobs.RetryJob(ctx, &carillonv1.RetryJobRequest{Id: id})
		return resp.GetJob().GetState(), err
	}, func(id string, s carillonv1.JobState) {
		fmt.Fprintf(a.stdout, "%s is due now (%s)\n", id, stateName(s))
	})
}
