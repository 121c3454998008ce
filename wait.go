package carillon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// Job looks a job up, live or ended; errors.Is(err, ErrNotFound) when there is none.
func (c *Client) Job(ctx context.Context, id JobID) (Job, error) {
	j, err := c.job(ctx, id)
	if err != nil {
		return Job{}, err
	}
	return fromJob(j), nil
}

func (c *Client) job(ctx context.Context, id JobID) (j *carillonv1.Job, err error) {
	err = c.do(ctx, "look up job "+string(id), true, func(ctx context.Context, s carillonv1connect.JobServiceClient) error {
		resp, err := s.GetJob(ctx, &carillonv1.GetJobRequest{Id: string(id)})
		j = resp.GetJob()
		return err
	})
	return j, err
}

// Cancel ends a job that waits at once, and the context of a verb that runs. It returns the state after it: cancelled,
// or running while the verb ends.
func (c *Client) Cancel(ctx context.Context, id JobID, reason string) (state JobState, err error) {
	err = c.do(ctx, "cancel job "+string(id), false, func(ctx context.Context, s carillonv1connect.JobServiceClient) error {
		resp, err := s.CancelJob(ctx, &carillonv1.CancelJobRequest{Id: string(id), Reason: reason})
		state = fromJob(&carillonv1.Job{State: resp.GetState()}).State
		return err
	})
	return state, err
}

// Retry makes a job that waits for its time due now, and a dead one live again.
func (c *Client) Retry(ctx context.Context, id JobID) (j Job, err error) {
	err = c.do(ctx, "retry job "+string(id), false, func(ctx context.Context, s carillonv1connect.JobServiceClient) error {
		resp, err := s.RetryJob(ctx, &carillonv1.RetryJobRequest{Id: string(id)})
		j = fromJob(resp.GetJob())
		return err
	})
	return j, err
}

// JobFilter narrows a list of jobs; zero values narrow nothing.
type JobFilter struct {
	States                   []JobState
	Ref, Module, Tenant, Tag string
	From, To                 time.Time // created (live) or ended in [From, To)
	Dead                     bool      // failed and not made live again
	Parent                   JobID
}

// Jobs lists live jobs, latest first, then ended ones, latest end first, without payloads and outputs. A job that ends
// meanwhile may come twice. An error is the last thing that comes.
func (c *Client) Jobs(ctx context.Context, f JobFilter) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		req := &carillonv1.ListJobsRequest{
			Ref: f.Ref, Module: f.Module, Tenant: f.Tenant, Tag: f.Tag, From: stamp(f.From), To: stamp(f.To),
			Dead: f.Dead, ParentId: string(f.Parent), PageSize: 500,
		}
		for _, s := range f.States {
			i := slices.Index(jobStates, s)
			if i < 1 {
				yield(Job{}, fmt.Errorf("list jobs: %q is no state", s))
				return
			}
			req.States = append(req.States, carillonv1.JobState(i))
		}
		for {
			var page *carillonv1.ListJobsResponse
			if err := c.do(ctx, "list jobs", true, func(ctx context.Context, s carillonv1connect.JobServiceClient) (err error) {
				page, err = s.ListJobs(ctx, req)
				return err
			}); err != nil {
				yield(Job{}, err)
				return
			}
			for _, j := range page.GetJobs() {
				if !yield(fromJob(j), nil) {
					return
				}
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// Children lists the children of the job whose verb has this context, without payloads and outputs.
func Children(ctx context.Context) ([]Job, error) {
	c, err := pick(ctx, nil)
	if err != nil {
		return nil, err
	}
	run, _ := RunFrom(ctx)
	if run.Job == "" {
		return nil, errors.New("list children: only the verb of a job has some")
	}
	var all []Job
	seen := map[JobID]int{}
	for j, err := range c.Jobs(ctx, JobFilter{Parent: run.Job}) {
		if err != nil {
			return nil, err
		}
		if i, twice := seen[j.ID]; twice { // it ended between two pages
			all[i] = j
			continue
		}
		seen[j.ID] = len(all)
		all = append(all, j)
	}
	return all, nil
}

// Wait waits until a job has ended and returns its response. One that did not succeed is a *JobError. From within a
// verb c may be nil; a verb that waits keeps its place meanwhile, AwaitChildren does not.
func Wait[R any](ctx context.Context, c *Client, id JobID) (R, error) {
	var r R
	c, err := pick(ctx, c)
	if err != nil {
		return r, err
	}
	for j, err := range c.Watch(ctx, id) {
		switch {
		case err != nil:
			return r, err
		case !j.State.Ended():
			continue
		case j.State != JobSucceeded:
			return r, j.err()
		}
		if err := decodeOutput(j.Output, &r); err != nil {
			return r, fmt.Errorf("job %s (%s): %w", id, j.Ref, err)
		}
		return r, nil
	}
	return r, fmt.Errorf("watch job %s: it ended unseen", id)
}

func decodeOutput[R any](output []byte, r *R) error {
	switch t := reflect.TypeFor[R](); {
	case t == reflect.TypeFor[Unit](), len(output) == 0 && nullable(t):
		return nil
	case len(output) == 0:
		return errors.New("response: it succeeded without one")
	}
	if err := json.Unmarshal(output, r); err != nil {
		return misfit("response", err)
	}
	return nil
}

// Watch tells a job as it is and whenever it changes, until it has ended. When the controller goes away it goes on with
// another one. An error is the last thing that comes: the context's end, a refusal, or no controller for longer than
// the client's patience.
func (c *Client) Watch(ctx context.Context, id JobID) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		w := watch{client: c, id: id, yield: yield, heard: time.Now(), pause: 50 * time.Millisecond}
		for !w.over {
			for _, url := range c.order() {
				if err := w.at(ctx, url); w.over || w.fatal(ctx, err) {
					break
				}
			}
			if w.over {
				return
			}
			sleep(ctx, w.pause/2+rand.N(w.pause))
			w.pause = min(2*w.pause, longestPause)
		}
	}
}

// watch is one Watch under way.
type watch struct {
	client *Client
	id     JobID
	yield  func(Job, error) bool
	last   *carillonv1.Job
	heard  time.Time // when a controller answered last
	pause  time.Duration
	over   bool
}

// tell passes a job on if it is news.
func (w *watch) tell(j *carillonv1.Job) {
	if j == nil || w.last != nil && proto.Equal(w.last, j) {
		return
	}
	w.last = j
	job := fromJob(j)
	if !w.yield(job, nil) || job.State.Ended() {
		w.over = true
	}
}

// at watches at one controller until the job has ended or the stream breaks.
func (w *watch) at(ctx context.Context, url string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	silent := time.AfterFunc(watchSilence, stop)
	defer silent.Stop()
	stream, err := w.client.at(url).jobs.WatchJob(ctx, &carillonv1.WatchJobRequest{Id: string(w.id)})
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		silent.Reset(watchSilence)
		w.heard, w.pause = time.Now(), 50*time.Millisecond
		w.client.prefer(url)
		if w.tell(stream.Msg().GetJob()); w.over {
			return nil
		}
	}
	return stream.Err()
}

// fatal says whether err, or the time since a controller answered, ends the watch; then it has been told.
func (w *watch) fatal(ctx context.Context, err error) bool {
	what := "watch job " + string(w.id)
	switch code := connect.CodeOf(err); {
	case ctx.Err() != nil:
		err = fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case err != nil && code == connect.CodeResourceExhausted && connect.IsWireError(err): // too many watch there: look instead
		j, lookErr := w.client.job(ctx, w.id)
		if lookErr == nil {
			w.heard = time.Now()
			w.tell(j)
			return w.over
		}
		err = lookErr
	case err == nil || unsent(err) || unclear(err) || code == connect.CodeCanceled:
		if time.Since(w.heard) <= w.client.patience {
			return false
		}
		err = fmt.Errorf("%s: no controller answers: %w", what, err)
	default:
		err = fmt.Errorf("%s: %w", what, refused(err))
	}
	w.over = true
	w.yield(Job{}, err)
	return true
}
