package rpc

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	carillonv1 "carillon/proto/carillon/v1"
)

// maxJobWatchers bounds the watches at one controller: together they read so many rows in a second at worst, once
// nothing has changed for a while.
const maxJobWatchers = 500

// jobPauses are the waits between two looks at a job while it does not change; the last one stays.
var jobPauses = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

// WatchJob sends a job as it is, then whenever it has changed, until it has ended. Changes that come faster than it
// looks are sent as one.
func (s *jobFace) WatchJob(ctx context.Context, req *carillonv1.WatchJobRequest, stream *connect.ServerStream[carillonv1.WatchJobResponse]) error {
	id, err := fromJobID("id", req.GetId())
	if err != nil {
		return err
	}
	if s.watchers.Add(1) > maxJobWatchers {
		s.watchers.Add(-1)
		return connect.NewError(connect.CodeResourceExhausted, errors.New("too many watches at this controller; ask another one"))
	}
	defer s.watchers.Add(-1)
	if _, err := s.findJob(ctx, id, permission.Get); err != nil {
		return err
	}
	err = s.followJob(ctx, id, func(j *carillonv1.Job) error { return stream.Send(&carillonv1.WatchJobResponse{Job: j}) })
	if ctx.Err() != nil {
		return nil // the watcher went away
	}
	return err
}

// followJob sends nil as a sign of life. It ends when the token is not good any more.
func (s *jobFace) followJob(ctx context.Context, id job.ID, send func(*carillonv1.Job) error) error {
	var last *carillonv1.Job
	sent, again := time.Now(), callerOf(ctx).again
	for same := 0; ; same++ {
		if again != nil && same > 0 {
			if err := again(ctx); err != nil {
				return err
			}
		}
		j, err := s.JobReader.GetJob(ctx, id)
		if err != nil {
			return err
		}
		switch now := s.toJob(j); {
		case last == nil || !proto.Equal(now, last):
			if err := send(now); err != nil {
				return err
			}
			last, sent, same = now, time.Now(), 0
		case time.Since(sent) >= watchIdle:
			if err := send(nil); err != nil {
				return err
			}
			sent = time.Now()
		}
		if j.State.Ended() {
			return nil
		}
		select {
		case <-time.After(jobPauses[min(same, len(jobPauses)-1)]):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
