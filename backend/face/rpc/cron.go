package rpc

import (
	"context"
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/schedule"
	carillonv1 "carillon/proto/carillon/v1"
)

func (s *server) ListCronJobs(ctx context.Context, req *carillonv1.ListCronJobsRequest) (*carillonv1.ListCronJobsResponse, error) {
	of := bind("cron jobs", &carillonv1.ListCronJobsRequest{Module: req.GetModule(), Removed: req.GetRemoved()})
	after, err := readToken[string](of, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	page := pageSize(req.GetPageSize())
	views, now, err := s.Reader.ListCronJobs(ctx, req.GetModule(), "", after, req.GetRemoved(), page)
	if err != nil {
		return nil, err
	}
	res := &carillonv1.ListCronJobsResponse{}
	for _, v := range views {
		res.CronJobs = append(res.CronJobs, s.toCronJob(v, now))
	}
	if len(views) == page {
		res.NextPageToken = nextToken(of, views[page-1].Ref)
	}
	return res, nil
}

func (s *server) GetCronJob(ctx context.Context, req *carillonv1.GetCronJobRequest) (*carillonv1.GetCronJobResponse, error) {
	j, err := s.cronJob(ctx, req.GetRef())
	if err != nil {
		return nil, err
	}
	return &carillonv1.GetCronJobResponse{CronJob: j}, nil
}

func (s *server) PauseCronJob(ctx context.Context, req *carillonv1.PauseCronJobRequest) (*carillonv1.PauseCronJobResponse, error) {
	if err := s.Config.Deploy.Pause(ctx, req.GetRef(), req.GetReason()); err != nil {
		return nil, err
	}
	j, err := s.cronJob(ctx, req.GetRef())
	if err != nil {
		return nil, err
	}
	return &carillonv1.PauseCronJobResponse{CronJob: j}, nil
}

func (s *server) ResumeCronJob(ctx context.Context, req *carillonv1.ResumeCronJobRequest) (*carillonv1.ResumeCronJobResponse, error) {
	v, _, err := s.view(ctx, req.GetRef())
	if err != nil {
		return nil, err
	}
	if err := s.Config.Deploy.Resume(ctx, req.GetRef(), v.PausedNote); err != nil {
		return nil, err
	}
	j, err := s.cronJob(ctx, req.GetRef())
	if err != nil {
		return nil, err
	}
	return &carillonv1.ResumeCronJobResponse{CronJob: j}, nil
}

func (s *server) RunCronJob(ctx context.Context, req *carillonv1.RunCronJobRequest) (*carillonv1.RunCronJobResponse, error) {
	j, err := s.House.RunNow(ctx, req.GetRef())
	if err != nil {
		return nil, err
	}
	return &carillonv1.RunCronJobResponse{RunId: j.Current.ID.String(), Slot: stamp(j.Current.Slot)}, nil
}

func (s *server) GetHistory(ctx context.Context, req *carillonv1.GetHistoryRequest) (*carillonv1.GetHistoryResponse, error) {
	of := bind("history", &carillonv1.GetHistoryRequest{Ref: req.GetRef()})
	before, err := readToken[time.Time](of, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	v, _, err := s.view(ctx, req.GetRef())
	if err != nil {
		return nil, err
	}
	page := pageSize(req.GetPageSize())
	runs, err := s.Reader.ListHistory(ctx, v.ID, before, page)
	if err != nil {
		return nil, err
	}
	res := &carillonv1.GetHistoryResponse{Runs: toRuns(runs)}
	if len(runs) == page {
		res.NextPageToken = nextToken(of, runs[page-1].Slot)
	}
	return res, nil
}

func (s *server) view(ctx context.Context, ref string) (cron.JobView, time.Time, error) {
	views, now, err := s.Reader.ListCronJobs(ctx, "", ref, "", true, 1)
	if err != nil {
		return cron.JobView{}, now, err
	}
	if len(views) == 0 {
		return cron.JobView{}, now, fmt.Errorf("%w: no cron job %s", cron.ErrNotFound, ref)
	}
	return views[0], now, nil
}

func (s *server) cronJob(ctx context.Context, ref string) (*carillonv1.CronJob, error) {
	v, now, err := s.view(ctx, ref)
	if err != nil {
		return nil, err
	}
	return s.toCronJob(v, now), nil
}

func (s *server) toCronJob(v cron.JobView, now time.Time) *carillonv1.CronJob {
	j := &carillonv1.CronJob{
		Ref: v.Ref, Schedule: v.Schedule, TimeZone: v.Zone, NextExecution: stamp(v.Next), State: string(v.State), Paused: !v.PausedAt.IsZero(),
		Enabled: v.Enabled, Reason: reason(v), Timeout: length(v.Timeout), Catchup: toCatchup(v.Catchup), Overlap: toOverlap(v.Overlap), Fires: v.Fires,
		Deployment: v.Deployment, Version: v.Version, Shard: v.Shard, RemovedAt: stamp(v.RemovedAt),
	}
	if j.TimeZone == "" {
		j.TimeZone = "UTC"
	}
	if first, second := s.House.Ring().Owners(v.Shard); first != "" {
		j.Owners = append(j.Owners, first)
		if second != "" {
			j.Owners = append(j.Owners, second)
		}
	}
	if v.State == cron.Executing {
		j.Current = toRun(v.Current)
	}
	loc, err := schedule.LoadLocation(v.Zone)
	if err != nil {
		return j
	}
	sched, err := schedule.Parse(v.Schedule, schedule.Verb, loc)
	if err != nil {
		return j
	}
	j.Description = sched.Describe()
	for t := now; len(j.NextSlots) < 3 && v.RemovedAt.IsZero(); {
		next, ok := sched.Next(t)
		if !ok {
			break
		}
		j.NextSlots, t = append(j.NextSlots, stamp(next)), next
	}
	return j
}

// reason says why the clock does not start a row.
func reason(v cron.JobView) string {
	switch {
	case !v.RemovedAt.IsZero():
		return "removed by a later deployment"
	case !v.SetAsideAt.IsZero():
		return "set aside: " + v.SetAsideNote
	case !v.PausedAt.IsZero() && v.PausedNote != "":
		return "paused: " + v.PausedNote
	case !v.PausedAt.IsZero():
		return "paused"
	case !v.Enabled && v.MinReplicas == 0:
		return "scaled to 0"
	case v.Next.IsZero() && v.Enabled:
		return "exhausted: the schedule has no further slot"
	}
	return ""
}
