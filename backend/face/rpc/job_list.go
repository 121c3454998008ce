package rpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"carillon/backend/core/job"
	carillonv1 "carillon/proto/carillon/v1"
)

// maxJobsAnswer bounds one page of jobs: each may have many errors with long texts. A page that would be larger is cut
// short, and the next one goes on behind it.
const maxJobsAnswer = 4 << 20

// jobsCursor is where a page of jobs ended: among the live ones, or in the history.
type jobsCursor struct {
	Live  bool
	Ended time.Time
	ID    int64
}

// ListJobs lists the live jobs, then the history. What was there when the listing began comes once; a job that was
// listed alive on an earlier page and ended since comes again, ended.
func (s *jobFace) ListJobs(ctx context.Context, req *carillonv1.ListJobsRequest) (*carillonv1.ListJobsResponse, error) {
	bound := proto.CloneOf(req)
	bound.PageSize, bound.PageToken = 0, ""
	of := bind("jobs", bound)
	after, err := readToken[jobsCursor](of, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	f, live, ended, err := jobFilter(req)
	if err != nil {
		return nil, err
	}
	if err := s.mayList(ctx, &f); err != nil {
		return nil, err
	}
	page := pageSize(req.GetPageSize())
	var jobs []job.Job
	if live = live && (req.GetPageToken() == "" || after.Live); live {
		if jobs, err = s.JobReader.ListJobs(ctx, f, job.Cursor{ID: after.ID}, page); err != nil {
			return nil, err
		}
		after = jobsCursor{}
	}
	more := len(jobs) == page
	if ended && !more {
		room := page - len(jobs)
		history, err := s.JobReader.ListEndedJobs(ctx, f, job.Cursor{Ended: after.Ended, ID: after.ID}, room)
		if err != nil {
			return nil, err
		}
		more = len(history) == room
		jobs = append(slices.DeleteFunc(jobs, func(j job.Job) bool { return endedMeanwhile(j, history) }), history...)
	}
	return s.jobsPage(of, jobs, more), nil
}

// endedMeanwhile says that a job ended between the two reads. One that was re-driven is in both places: its due time is
// that of the re-drive, which came after the end.
func endedMeanwhile(live job.Job, history []job.Job) bool {
	return slices.ContainsFunc(history, func(h job.Job) bool {
		return h.ID == live.ID && (h.State != job.Failed || !h.Ended.Before(live.Due))
	})
}

// jobsPage makes the answer of what was read, cut short where it is too large.
func (s *jobFace) jobsPage(of string, jobs []job.Job, more bool) *carillonv1.ListJobsResponse {
	res := &carillonv1.ListJobsResponse{}
	size := 0
	for _, j := range jobs {
		out := s.toJob(j)
		if size += proto.Size(out); size > maxJobsAnswer && len(res.Jobs) > 0 {
			more = true
			break
		}
		res.Jobs = append(res.Jobs, out)
	}
	if n := len(res.Jobs); n > 0 && more {
		last := jobs[n-1]
		res.NextPageToken = nextToken(of, jobsCursor{Live: !last.State.Ended(), Ended: last.Ended, ID: last.ID.N})
	}
	return res
}

// jobFilter reads what is asked for, and whether live jobs and ended ones belong to it.
func jobFilter(req *carillonv1.ListJobsRequest) (f job.Filter, live, ended bool, err error) {
	f = job.Filter{Tenant: req.GetTenant(), Ref: req.GetRef(), Module: req.GetModule(), Tag: req.GetTag(), Dead: req.GetDead()}
	if f.From, err = fromStamp("from", req.GetFrom()); err != nil {
		return f, false, false, err
	}
	if f.To, err = fromStamp("to", req.GetTo()); err != nil {
		return f, false, false, err
	}
	if req.GetParentId() != "" {
		if f.Parent, err = fromJobID("parent_id", req.GetParentId()); err != nil {
			return f, false, false, err
		}
	}
	for _, st := range req.GetStates() {
		if st < 1 || int(st) > len(job.States) {
			return f, false, false, invalid("states", "there is no state %d", st)
		}
		state := job.States[st-1]
		f.States = append(f.States, state)
		live, ended = live || !state.Ended(), ended || state.Ended()
	}
	switch {
	case f.Dead:
		return f, false, true, nil
	case len(f.States) == 0:
		return f, true, true, nil
	}
	return f, live, ended, nil
}
