package rpc

import (
	"strings"
	"testing"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// All pages together hold every job that was there once, live before ended, whatever ends and comes meanwhile.
func TestPagesOfJobsCoverEverythingOnce(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "America/New_York")
	face, _ := handler(t, db.Store, Tokens{})
	base, h2c := serve(t, face)
	c := wires(h2c)["connect proto"].clients(base)
	enqueue := func(n int) (ids []string) {
		req := &carillonv1.EnqueueJobsRequest{}
		for range n {
			req.Jobs = append(req.Jobs, &carillonv1.NewJob{Ref: "m.v1"})
		}
		res, err := c.jobs.EnqueueJobs(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range res.GetJobs() {
			ids = append(ids, j.GetId())
		}
		return ids
	}
	want := map[string]string{} // state of each job that was there, "any" where it changes meanwhile
	ids := enqueue(60)
	for i, id := range ids {
		want[id] = "ready"
		if i%2 == 0 {
			want[id] = "cancelled"
			if _, err := c.jobs.CancelJob(t.Context(), &carillonv1.CancelJobRequest{Id: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 10 {
		want[fail(t, db, "m.v2").String()] = "failed"
	}
	again := fail(t, db, "m.v2").String() // twice: re-driven, it waits, and it died
	if _, err := c.jobs.RetryJob(t.Context(), &carillonv1.RetryJobRequest{Id: again}); err != nil {
		t.Fatal(err)
	}
	seen, ended := map[string]int{}, false
	req := &carillonv1.ListJobsRequest{PageSize: 7, Module: "m"}
	for pages := 0; ; pages++ {
		res, err := c.jobs.ListJobs(t.Context(), req)
		if err != nil || len(res.GetJobs()) > 7 {
			t.Fatal(len(res.GetJobs()), err)
		}
		for _, j := range res.GetJobs() {
			state := strings.ToLower(strings.TrimPrefix(j.GetState().String(), "JOB_STATE_"))
			if was := want[j.GetId()]; was == state || j.GetId() == again {
				seen[j.GetId()+" "+state]++
			}
			if now := j.GetEndedAt() != nil; ended && !now {
				t.Errorf("live %s after an ended one", j.GetId())
			} else {
				ended = now
			}
			if len(j.GetPayload()) > 0 {
				t.Errorf("a list with the payload of %s", j.GetId())
			}
		}
		newer := enqueue(2)
		if _, err := c.jobs.CancelJob(t.Context(), &carillonv1.CancelJobRequest{Id: newer[0]}); err != nil {
			t.Fatal(err)
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" || pages > 100 {
			break
		}
	}
	want[again] = "failed"
	for id, state := range want {
		if n := seen[id+" "+state]; n != 1 {
			t.Errorf("%s job %s: %d times", state, id, n)
		}
	}
	if n := seen[again+" ready"]; n != 1 {
		t.Errorf("the re-driven job: %d times", n)
	}
}

func TestFiltersOfJobs(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	face, _ := handler(t, db.Store, Tokens{})
	base, h2c := serve(t, face)
	c := wires(h2c)["grpc-web"].clients(base)
	begin := db.Now()
	if _, err := c.jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{
		{Ref: "m.v1", Tags: []string{"blue"}}, {Ref: "m.v2", Tenant: "acme"},
	}}); err != nil {
		t.Fatal(err)
	}
	fail(t, db, "m.v3")
	twice := fail(t, db, "m.v4")
	if _, err := c.jobs.RetryJob(t.Context(), &carillonv1.RetryJobRequest{Id: twice.String()}); err != nil {
		t.Fatal(err)
	}
	states := func(s ...carillonv1.JobState) *carillonv1.ListJobsRequest {
		return &carillonv1.ListJobsRequest{States: s}
	}
	ready, failed, cancelled := carillonv1.JobState_JOB_STATE_READY, carillonv1.JobState_JOB_STATE_FAILED, carillonv1.JobState_JOB_STATE_CANCELLED
	for name, tc := range map[string]struct {
		req  *carillonv1.ListJobsRequest
		want string
	}{
		"all":             {states(), "m.v4 m.v2 m.v1 m.v4 m.v3"},
		"ready":           {states(ready), "m.v4 m.v2 m.v1"},
		"failed":          {states(failed), "m.v4 m.v3"},
		"ready or failed": {states(ready, failed), "m.v4 m.v2 m.v1 m.v4 m.v3"},
		"cancelled":       {states(cancelled), ""},
		"dead":            {&carillonv1.ListJobsRequest{Dead: true}, "m.v3"},
		"ref":             {&carillonv1.ListJobsRequest{Ref: "m.v2"}, "m.v2"},
		"module":          {&carillonv1.ListJobsRequest{Module: "x"}, ""},
		"tenant":          {&carillonv1.ListJobsRequest{Tenant: "acme"}, "m.v2"},
		"tag":             {&carillonv1.ListJobsRequest{Tag: "blue"}, "m.v1"},
		"before":          {&carillonv1.ListJobsRequest{To: stamp(begin)}, ""},
		"since":           {&carillonv1.ListJobsRequest{From: stamp(begin), Tag: "dying"}, "m.v4 m.v4 m.v3"},
	} {
		res, err := c.jobs.ListJobs(t.Context(), tc.req)
		var got []string
		for _, j := range res.GetJobs() {
			got = append(got, j.GetRef())
		}
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, tc.want)
		}
	}
	res, err := c.jobs.RedriveJobs(t.Context(), &carillonv1.RedriveJobsRequest{Module: "m", Limit: 5})
	if err != nil || res.GetRedriven() != 1 || res.GetMore() {
		t.Errorf("%v, %v", res, err)
	}
}

// A page of jobs with long errors is cut short, and the next one goes on behind it.
func TestLargePagesOfJobsAreCutShort(t *testing.T) {
	long := job.Job{State: job.Ready, Created: time.Unix(1, 0)}
	for range job.MaxErrors {
		long.Errors = append(long.Errors, job.Error{Text: strings.Repeat("x", 4<<10)})
	}
	var jobs []job.Job
	for i := range 1000 {
		long.ID = job.ID{N: int64(1000 - i), Salt: 1}
		jobs = append(jobs, long)
	}
	pages := 0
	for rest := jobs; len(rest) > 0; pages++ {
		res := (&jobFace{Config: Config{Jobs: desk{}}}).jobsPage("all", rest, false)
		n := len(res.GetJobs())
		after, err := readToken[jobsCursor]("all", res.GetNextPageToken())
		if n == 0 || err != nil || n < len(rest) && (after.ID != rest[n-1].ID.N || !after.Live) || n == len(rest) && res.GetNextPageToken() != "" {
			t.Fatal(n, after, err)
		}
		rest = rest[n:]
	}
	if pages < 10 || pages > 50 {
		t.Errorf("%d pages", pages)
	}
}

func TestAJobThatEndedMeanwhileStandsOnce(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	live := job.Job{ID: job.ID{N: 1}, State: job.Running, Due: at(10)}
	for name, tc := range map[string]struct {
		ended job.Job
		want  bool
	}{
		"another":          {job.Job{ID: job.ID{N: 2}, State: job.Succeeded, Ended: at(11)}, false},
		"succeeded":        {job.Job{ID: live.ID, State: job.Succeeded, Ended: at(11)}, true},
		"cancelled early":  {job.Job{ID: live.ID, State: job.Cancelled, Ended: at(9)}, true},
		"failed":           {job.Job{ID: live.ID, State: job.Failed, Ended: at(11)}, true},
		"failed, redriven": {job.Job{ID: live.ID, State: job.Failed, Ended: at(9)}, false},
	} {
		if got := endedMeanwhile(live, []job.Job{tc.ended}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
