package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	carillonv1 "carillon/proto/carillon/v1"
)

// jobsWatchCmd follows one job.
type jobsWatchCmd struct {
	Output string `short:"o" enum:"table,json" default:"table" placeholder:"table|json" help:"table, or json: one object on each line."`
	ID     string `arg:"" name:"id" help:"The job's id."`
}

func (c *jobsWatchCmd) Help() string {
	return `A line for each change: state, attempt, progress. The watch goes on at another controller when the one it reads dies.
The exit code is 0 when the job succeeded, 1 when it failed or was cancelled, and 130 after Ctrl-C, which leaves the job
as it is.

Examples:

  carillon jobs watch j1k0000abc
  carillon jobs watch j1k0000abc -o json | jq -r .progress`
}

func (c *jobsWatchCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	last, err := followJob(ctx, a, r, cl, c.ID, func(j *carillonv1.Job) {
		if c.Output == "json" {
			json.NewEncoder(a.stdout).Encode(jobRow(j))
			return
		}
		line := fmt.Sprintf("%s  %s  attempt %s", time.Now().UTC().Format("15:04:05.000"), a.paint(stateColour(j.GetState()), fmt.Sprintf("%-12s", stateCell(j))), attemptCell(j))
		switch {
		case j.GetState() == carillonv1.JobState_JOB_STATE_READY && j.GetDueAt() != nil:
			line += "  due " + ago(j.GetDueAt(), time.Now())
		case jobEnded(j.GetState()):
			line += "  took " + jobTook(j)
		}
		if text := clean(j.GetProgress(), 120); text != "" && !jobEnded(j.GetState()) {
			line += "  " + text
		}
		if text := clean(latestError(j), 160); text != "" {
			line += "  " + a.paint(red, text)
		}
		fmt.Fprintln(a.stdout, line)
	})
	if err != nil {
		return err
	}
	return verdictOf(last)
}

// verdictOf is the error of a command that waited for a job: none when it succeeded.
func verdictOf(j *carillonv1.Job) error {
	if j.GetState() == carillonv1.JobState_JOB_STATE_SUCCEEDED {
		return nil
	}
	return silent
}

// wait follows the job that was enqueued and prints what it returned.
func (c *jobsEnqueueCmd) wait(ctx context.Context, a *app, r *remote, cl *client, e *carillonv1.EnqueuedJob) error {
	if e.GetExisting() {
		fmt.Fprintf(a.stderr, "%s was there already\n", e.GetId())
	}
	progress := ""
	j, err := followJob(ctx, a, r, cl, e.GetId(), func(j *carillonv1.Job) {
		if text := clean(j.GetProgress(), 120); text != progress && text != "" && c.Output == "table" {
			progress = text
			fmt.Fprintf(a.stderr, "%s: %s\n", e.GetId(), text)
		}
	})
	if err != nil {
		return err
	}
	if c.Output == "json" {
		if err := a.json(jobRow(j)); err != nil {
			return err
		}
		return verdictOf(j)
	}
	if err := verdictOf(j); err != nil {
		text := clean(latestError(j), 0)
		if text != "" {
			text = ": " + text
		}
		fmt.Fprintf(a.stderr, "carillon: %s ended as %s after %s%s\n", j.GetId(), stateName(j.GetState()), plural(int(j.GetAttempt()), "attempt"), text)
		return err
	}
	fmt.Fprintf(a.stderr, "%s succeeded in %s\n", j.GetId(), jobTook(j))
	if len(j.GetOutput()) > 0 {
		output := string(jsonValue(j.GetOutput())) // as it is, for programs
		if isTerminal(a.stdout) {
			output = clean(output, 0)
		}
		fmt.Fprintln(a.stdout, output)
	}
	return nil
}

// followJob calls show for each change of a job, and returns it as it ended. A stream that breaks is taken up again, at
// another controller if there is one; an error at the very beginning is one to report.
func followJob(ctx context.Context, a *app, r *remote, cl *client, id string, show func(*carillonv1.Job)) (*carillonv1.Job, error) {
	others := []*client{cl}
	pause := watchFirstGap
	for try := 0; ; try++ {
		last, spoke, err := followStream(ctx, others[try%len(others)], id, show)
		switch {
		case ctx.Err() != nil:
			fmt.Fprintf(a.stderr, "interrupted; the job goes on: `carillon jobs watch %s`, `carillon jobs cancel %s`\n", id, id)
			return nil, errInterrupted
		case err == nil:
			return last, nil
		case !spoke && try == 0, isFinal(err):
			return nil, explainJob("watch job", id, err)
		case spoke:
			pause = watchFirstGap
			fmt.Fprintf(a.stderr, "lost %s, going on: %s\n", others[try%len(others)].url, clean(err.Error(), 200))
		}
		if len(others) == 1 {
			others = append(others, otherControllers(ctx, r, cl)...)
		}
		sleep(ctx, pause)
		pause = min(2*pause, watchLastGap)
	}
}

// isFinal says that the same request would be refused everywhere.
func isFinal(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeNotFound, connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	}
	return false
}

// otherControllers asks for those that live; none when nobody says.
func otherControllers(ctx context.Context, r *remote, cl *client) (others []*client) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	resp, err := cl.cluster.ListControllers(ctx, &carillonv1.ListControllersRequest{})
	if err != nil {
		return nil
	}
	for _, m := range resp.GetControllers() {
		if m.GetState() != "live" || m.GetEndpoint() == cl.url {
			continue
		}
		elsewhere := *r
		elsewhere.URL = m.GetEndpoint()
		if other, err := elsewhere.dial(); err == nil {
			others = append(others, other)
		}
	}
	return others
}

// followStream follows one stream until the job has ended or the stream breaks, also by silence.
func followStream(ctx context.Context, cl *client, id string, show func(*carillonv1.Job)) (last *carillonv1.Job, spoke bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(watchSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	stream, err := cl.jobs.WatchJob(ctx, &carillonv1.WatchJobRequest{Id: id})
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	for stream.Receive() {
		silence.Reset(watchSilence)
		spoke = true
		if j := stream.Msg().GetJob(); j != nil {
			last = j
			show(j)
		}
	}
	switch {
	case last != nil && jobEnded(last.GetState()):
		return last, true, nil
	case errors.Is(context.Cause(ctx), errSilent):
		return nil, spoke, errSilent
	case stream.Err() != nil:
		return nil, spoke, stream.Err()
	}
	return nil, spoke, errors.New("the stream ended before the job")
}
