package mailroom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"carillon"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// queue is as much of a cluster as a newsletter needs: it takes children in, by their idempotency keys, and lists them.
type queue struct {
	carillonv1connect.UnimplementedJobServiceHandler
	mu     sync.Mutex
	byKey  map[string]string
	jobs   []*carillonv1.Job
	refuse int // requests to refuse from now on
}

func (q *queue) EnqueueJobs(_ context.Context, req *carillonv1.EnqueueJobsRequest) (*carillonv1.EnqueueJobsResponse, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	res := &carillonv1.EnqueueJobsResponse{}
	for _, j := range req.GetJobs() {
		if q.refuse > 0 {
			q.refuse--
			res.Jobs = append(res.Jobs, &carillonv1.EnqueuedJob{Error: &carillonv1.EnqueueError{Code: "failed_precondition", Field: "parent_id", Message: "the parent's run is over"}})
			continue
		}
		id, existing := q.byKey[j.GetIdempotencyKey()]
		if !existing {
			id = "j" + strconv.Itoa(len(q.jobs)+10)
			q.byKey[j.GetIdempotencyKey()] = id
			q.jobs = append(q.jobs, &carillonv1.Job{Id: id, Ref: j.GetRef(), ParentId: j.GetParentId(), Payload: j.GetPayload(), State: carillonv1.JobState_JOB_STATE_READY, Tags: j.GetTags()})
		}
		res.Jobs = append(res.Jobs, &carillonv1.EnqueuedJob{Id: id, Existing: existing})
	}
	return res, nil
}

func (q *queue) ListJobs(_ context.Context, req *carillonv1.ListJobsRequest) (*carillonv1.ListJobsResponse, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	res := &carillonv1.ListJobsResponse{}
	for _, j := range q.jobs {
		if j.GetParentId() == req.GetParentId() {
			res.Jobs = append(res.Jobs, j)
		}
	}
	return res, nil
}

// newsletter is a queue and the context of a newsletter's run in it.
func newsletter(t *testing.T) (context.Context, *queue) {
	t.Helper()
	q := &queue{byKey: map[string]string{}}
	mux := http.NewServeMux()
	mux.Handle(carillonv1connect.NewJobServiceHandler(q))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := carillon.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx := carillon.WithRun(t.Context(), carillon.Run{ID: "r1", Ref: "mailroom.newsletter", Job: "j1", IdempotencyKey: "job 1"})
	return carillon.WithClient(ctx, client), q
}

func asks(err error) carillon.Ask {
	o := (*carillon.OutcomeError)(nil)
	if !errors.As(err, &o) {
		return 0
	}
	return o.Ask
}

func TestANewsletterIsAMailToEachAndWaitsForAll(t *testing.T) {
	ctx, q := newsletter(t)
	issue := Issue{Subject: "News", Body: "all"}
	for i := range 1200 { // more than a request takes
		issue.To = append(issue.To, fmt.Sprintf("n%d@example.com", i))
	}
	issue.To = append(issue.To, issue.To[0]) // twice is once
	for range 2 {                            // the second attempt finds its children there
		if _, err := Newsletter(ctx, issue); asks(err) != carillon.AskChildren {
			t.Fatal(err)
		}
	}
	if len(q.jobs) != 1200 {
		t.Fatalf("%d mails", len(q.jobs))
	}
	seen := map[string]bool{}
	for i, j := range q.jobs {
		var m Mail
		if err := json.Unmarshal(j.GetPayload(), &m); err != nil || m.Subject != "News" || j.GetRef() != "mailroom.sendMail" || j.GetParentId() != "j1" {
			t.Fatalf("%v, %v", j, err)
		}
		seen[m.To] = true
		if j.State = carillonv1.JobState_JOB_STATE_SUCCEEDED; i < 3 {
			j.State = carillonv1.JobState_JOB_STATE_FAILED
		}
	}
	if len(seen) != 1200 {
		t.Errorf("%d recipients", len(seen))
	}
	if d, err := Newsletter(ctx, issue); err != nil || d != (Delivery{Sent: 1197, Failed: 3}) {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestANewsletterHalfEnqueuedIsCompletedByItsNextAttempt(t *testing.T) {
	ctx, q := newsletter(t)
	issue := Issue{Subject: "News", To: []string{"a@b.c", "d@e.f", "g@h.i"}}
	q.refuse = 1
	_, err := Newsletter(ctx, issue)
	if r := (*carillon.RefusedError)(nil); !errors.As(err, &r) || asks(err) != 0 {
		t.Fatalf("a refused child: %v", err)
	}
	if len(q.jobs) != 2 {
		t.Fatalf("%d mails", len(q.jobs))
	}
	if _, err := Newsletter(ctx, issue); asks(err) != carillon.AskChildren || len(q.jobs) != 3 {
		t.Errorf("%d mails, %v", len(q.jobs), err)
	}
}

func TestWhatIsNoNewsletterFailsForGood(t *testing.T) {
	ctx, q := newsletter(t)
	for name, try := range map[string]struct {
		ctx context.Context
		to  []string
	}{
		"no job": {t.Context(), []string{"a@b.c"}}, "nobody": {ctx, nil}, "too many": {ctx, many(maxRecipients + 1)},
	} {
		if _, err := Newsletter(try.ctx, Issue{Subject: "x", To: try.to}); !forGood(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(q.jobs) > 0 {
		t.Errorf("%d mails", len(q.jobs))
	}
}

func many(n int) []string {
	to := make([]string, n)
	for i := range to {
		to[i] = strconv.Itoa(i) + "@example.com"
	}
	return to
}

var _ carillonv1connect.JobServiceHandler = (*queue)(nil)
