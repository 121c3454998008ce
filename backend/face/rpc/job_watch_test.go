package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// one is a reader of a single job.
type one struct {
	JobReader
	mu    sync.Mutex
	job   job.Job
	err   error
	reads int
}

func (o *one) GetJob(context.Context, job.ID) (job.Job, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	return o.job, o.err
}

func (o *one) put(change func(*job.Job)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.job)
}

func (o *one) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reads
}

// following watches a job in a bubble; what it sends comes as text.
func following(t *testing.T, o *one) (sent chan string, done chan error, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	sent, done = make(chan string, 100), make(chan error, 1)
	go func() {
		done <- (&jobFace{Config: Config{Jobs: desk{}, JobReader: o}}).followJob(ctx, job.ID{}, func(j *carillonv1.Job) error {
			if j == nil {
				sent <- "alive"
				return nil
			}
			sent <- fmt.Sprint(j.GetState(), " ", j.GetAttempt(), j.GetProgress())
			return nil
		})
	}()
	t.Cleanup(cancel)
	return sent, done, cancel
}

func TestWatchOfAJobSendsEveryChangeUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &one{job: job.Job{State: job.Ready}}
		sent, done, _ := following(t, o)
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-sent:
				if got != want {
					t.Errorf("sent %q, want %q", got, want)
				}
			default:
				t.Errorf("nothing was sent, want %q", want)
			}
		}
		expect("JOB_STATE_READY 0")
		o.put(func(j *job.Job) { j.State, j.Attempt = job.Running, 1 })
		<-time.After(110 * time.Millisecond)
		expect("JOB_STATE_RUNNING 1")
		<-time.After(10 * time.Second)
		o.put(func(j *job.Job) { j.Progress = " half" })
		<-time.After(1010 * time.Millisecond)
		expect("JOB_STATE_RUNNING 1 half")
		o.put(func(j *job.Job) { j.State = job.Succeeded })
		<-time.After(1010 * time.Millisecond)
		expect("JOB_STATE_SUCCEEDED 1 half")
		if err := <-done; err != nil || len(sent) > 0 {
			t.Errorf("%v, and %d more", err, len(sent))
		}
	})
}

func TestWatchOfAJobIsQuietWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &one{job: job.Job{State: job.Blocked}}
		sent, done, stop := following(t, o)
		<-time.After(time.Minute)
		if n := o.count(); n > 70 {
			t.Errorf("%d reads in a minute", n)
		}
		if len(sent) != 1+3 && len(sent) != 1+4 {
			t.Errorf("%d messages in a minute, want the job and a sign of life every 15 s", len(sent))
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestWatchOfAJobTellsOfItsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &one{job: job.Job{State: job.Ready}}
		_, done, _ := following(t, o)
		<-time.After(time.Second)
		o.mu.Lock()
		o.err = cron.ErrUnavailable
		o.mu.Unlock()
		if err := <-done; !errors.Is(err, cron.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

func TestWatchesOfJobsAreBounded(t *testing.T) {
	f := &jobFace{Config: Config{Jobs: desk{}, JobReader: &one{}}}
	f.watchers.Store(maxJobWatchers)
	if err := f.WatchJob(t.Context(), &carillonv1.WatchJobRequest{Id: aJobID}, nil); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%v", err)
	}
	if n := f.watchers.Load(); n != maxJobWatchers {
		t.Errorf("%d watchers afterwards", n)
	}
}

// On Postgres, over the wire: a job is watched until somebody cancels it.
func TestWatchOfAJobOnPostgres(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Tokyo")
	face, _ := handler(t, db.Store, Tokens{})
	base, h2c := serve(t, face)
	c := wires(h2c)["connect json"].clients(base)
	in, err := c.jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Ref: "m.v1", Payload: []byte(`[1]`)}}})
	if err != nil {
		t.Fatal(err)
	}
	id := in.GetJobs()[0].GetId()
	stream, err := c.jobs.WatchJob(t.Context(), &carillonv1.WatchJobRequest{Id: id})
	if err != nil || !stream.Receive() || stream.Msg().GetJob().GetState() != carillonv1.JobState_JOB_STATE_READY {
		t.Fatal(err, stream.Err(), stream.Msg())
	}
	if _, err := c.jobs.CancelJob(t.Context(), &carillonv1.CancelJobRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	var last *carillonv1.Job
	for stream.Receive() {
		last = stream.Msg().GetJob()
	}
	if stream.Err() != nil || last.GetState() != carillonv1.JobState_JOB_STATE_CANCELLED || string(last.GetPayload()) != "[1]" {
		t.Errorf("%v, %v", last, stream.Err())
	}
}
