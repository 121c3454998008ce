package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// aJobID is one that no test's job has.
var aJobID = job.ID{N: 1 << 60, Salt: 77}.String()

// desk is what the house does with jobs, by the database alone. Of the verbs m.* those are deployed that begin with v, and sendmail.
type desk struct{ *store.Store }

// shapeError is how another room may name a field.
type shapeError struct{ at string }

func (e *shapeError) Error() string     { return "invalid: " + e.at + ": expected string, got number" }
func (e *shapeError) FieldName() string { return e.at }

func (d desk) Enqueue(ctx context.Context, jobs []job.New) ([]job.Enqueued, error) {
	out := make([]job.Enqueued, len(jobs))
	for i, n := range jobs {
		n = job.Complete(n)
		switch {
		case job.Validate(n) != nil:
			out[i].Err = job.Validate(n)
			continue
		case !strings.HasPrefix(n.Ref, "m.v") && n.Ref != "m.sendmail":
			out[i].Err = fmt.Errorf("%w: verb %s is not deployed", cron.ErrNotFound, n.Ref)
			continue
		case string(n.Payload) == `{"to":1}`:
			out[i].Err = fmt.Errorf("check: %w", &shapeError{"payload.to"})
			continue
		case string(n.Payload) == `"boom"`:
			out[i].Err = fmt.Errorf("a secret of the desk")
			continue
		}
		queues, err := d.PutQueues(ctx, []job.Queue{{Tenant: n.Tenant, Ref: n.Ref, Lane: job.Lane(n.Priority)}})
		if err != nil {
			return nil, err
		}
		answers, err := d.EnqueueJobs(ctx, "c1", time.Minute, []job.Enqueue{{New: n, Queue: queues[0].ID}})
		if err != nil {
			return nil, err
		}
		out[i] = answers[0]
	}
	return out, nil
}

func (d desk) CancelJob(ctx context.Context, id job.ID, reason string) (job.State, error) {
	c, err := d.Store.CancelJob(ctx, id, reason)
	return c.State, err
}

func (d desk) RetryJob(ctx context.Context, id job.ID) error {
	_, err := d.RedriveJob(ctx, id)
	return err
}

func (d desk) WaitingFor(ref string) string {
	if ref == "m.v2" {
		return "a runner of v2"
	}
	return ""
}

func (d desk) PauseJobs(ctx context.Context, tenant, ref, reason string) (int, error) {
	ids, err := d.PauseQueues(ctx, tenant, ref, reason)
	return len(ids), err
}

func (d desk) ResumeJobs(ctx context.Context, tenant, ref string) (job.Resumed, error) {
	return d.ResumeQueues(ctx, tenant, ref)
}

// fail makes a job that dies, and returns its id.
func fail(t *testing.T, db storetest.DB, ref string) job.ID {
	t.Helper()
	n := job.Complete(job.New{Ref: ref, Tags: []string{"dying"}})
	queues, err := db.PutQueues(t.Context(), []job.Queue{{Tenant: n.Tenant, Ref: n.Ref, Lane: job.Lane(n.Priority)}})
	if err != nil {
		t.Fatal(err)
	}
	run := cron.RunID(uuid.Must(uuid.NewV7()))
	in, err := db.EnqueueJobs(t.Context(), "c1", time.Minute, []job.Enqueue{{New: n, Queue: queues[0].ID, Run: run}})
	if err != nil {
		t.Fatal(err)
	}
	end := job.End{ID: in[0].N, Run: run, Outcome: job.Outcome{Verdict: cron.Failed, Text: "no luck"}, Step: job.Step{State: job.Failed, Counted: true}}
	if ended, err := db.FinishJobs(t.Context(), []job.End{end}); err != nil || !ended[0].Accepted {
		t.Fatal(ended, err)
	}
	return in[0].ID
}

// Each bad job in every protocol: its code, its field, and nothing written; its neighbours are told of themselves alone.
func TestBadJobsAreRefusedOneByOne(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "America/New_York")
	face, _ := handler(t, db.Store, Tokens{})
	base, h2c := serve(t, face)
	run := uuid.Must(uuid.NewV7()).String()
	cases := map[string]struct {
		change      func(*carillonv1.NewJob)
		code, field string
	}{
		"no ref":              {func(n *carillonv1.NewJob) { n.Ref = "" }, "invalid_argument", "ref"},
		"no verb":             {func(n *carillonv1.NewJob) { n.Ref = "m" }, "invalid_argument", "ref"},
		"unknown verb":        {func(n *carillonv1.NewJob) { n.Ref = "m.x" }, "not_found", ""},
		"negative delay":      {func(n *carillonv1.NewJob) { n.Delay = durationpb.New(-time.Second) }, "invalid_argument", "delay"},
		"no delay":            {func(n *carillonv1.NewJob) { n.Delay = &durationpb.Duration{Seconds: 1, Nanos: -1} }, "invalid_argument", "delay"},
		"endless delay":       {func(n *carillonv1.NewJob) { n.Delay = durationpb.New(11 * 365 * 24 * time.Hour) }, "invalid_argument", "delay"},
		"overflowing delay":   {func(n *carillonv1.NewJob) { n.Delay = &durationpb.Duration{Seconds: 315_576_000_000} }, "invalid_argument", "delay"},
		"delay and due":       {func(n *carillonv1.NewJob) { n.Delay, n.DueAt = durationpb.New(0), timestamppb.Now() }, "invalid_argument", "due_at"},
		"due in 9999":         {func(n *carillonv1.NewJob) { n.DueAt = &timestamppb.Timestamp{Seconds: 253402300799} }, "invalid_argument", "due_at"},
		"no due time":         {func(n *carillonv1.NewJob) { n.DueAt = &timestamppb.Timestamp{Nanos: -1} }, "invalid_argument", "due_at"},
		"no expiry":           {func(n *carillonv1.NewJob) { n.ExpiresAt = &timestamppb.Timestamp{Seconds: 1 << 60} }, "invalid_argument", "expires_at"},
		"expires twice":       {func(n *carillonv1.NewJob) { n.ExpiresAt, n.ExpiresIn = timestamppb.Now(), durationpb.New(1e9) }, "invalid_argument", "expires_in"},
		"expires before":      {func(n *carillonv1.NewJob) { n.ExpiresIn = durationpb.New(-time.Second) }, "invalid_argument", "expires_in"},
		"expires at once":     {func(n *carillonv1.NewJob) { n.ExpiresIn = durationpb.New(0) }, "invalid_argument", "expires_in"},
		"expires in an age":   {func(n *carillonv1.NewJob) { n.ExpiresIn = durationpb.New(11 * 365 * 24 * time.Hour) }, "invalid_argument", "expires_in"},
		"low priority":        {func(n *carillonv1.NewJob) { n.Priority = proto.Int32(-1) }, "invalid_argument", "priority"},
		"absurd priority":     {func(n *carillonv1.NewJob) { n.Priority = proto.Int32(1 << 30) }, "invalid_argument", "priority"},
		"negative attempts":   {func(n *carillonv1.NewJob) { n.MaxAttempts = -1 }, "invalid_argument", "max_attempts"},
		"endless retry":       {func(n *carillonv1.NewJob) { n.MaxAttempts = 1 << 30 }, "invalid_argument", "max_attempts"},
		"negative backoff":    {func(n *carillonv1.NewJob) { n.Backoff = durationpb.New(-1) }, "invalid_argument", "backoff"},
		"ceiling below":       {func(n *carillonv1.NewJob) { n.Backoff, n.BackoffCeiling = durationpb.New(9e9), durationpb.New(1e9) }, "invalid_argument", "backoff_ceiling"},
		"negative timeout":    {func(n *carillonv1.NewJob) { n.Timeout = durationpb.New(-time.Hour) }, "invalid_argument", "timeout"},
		"endless timeout":     {func(n *carillonv1.NewJob) { n.Timeout = durationpb.New(1e6 * time.Hour) }, "invalid_argument", "timeout"},
		"window without key":  {func(n *carillonv1.NewJob) { n.UniqueWindow = durationpb.New(time.Hour) }, "invalid_argument", "unique_window"},
		"long unique key":     {func(n *carillonv1.NewJob) { n.UniqueKey = strings.Repeat("k", 257) }, "invalid_argument", "unique_key"},
		"long idempotency":    {func(n *carillonv1.NewJob) { n.IdempotencyKey = strings.Repeat("k", 257) }, "invalid_argument", "idempotency_key"},
		"long tenant":         {func(n *carillonv1.NewJob) { n.Tenant = strings.Repeat("t", 257) }, "invalid_argument", "tenant"},
		"empty tag":           {func(n *carillonv1.NewJob) { n.Tags = []string{"a", ""} }, "invalid_argument", "tags[1]"},
		"many tags":           {func(n *carillonv1.NewJob) { n.Tags = make([]string, 17) }, "invalid_argument", "tags"},
		"no json":             {func(n *carillonv1.NewJob) { n.Payload = []byte("{") }, "invalid_argument", "payload"},
		"no UTF-8":            {func(n *carillonv1.NewJob) { n.Payload = []byte("\"\xff\"") }, "invalid_argument", "payload"},
		"large payload":       {func(n *carillonv1.NewJob) { n.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`) }, "invalid_argument", "payload"},
		"another shape":       {func(n *carillonv1.NewJob) { n.Payload = []byte(`{"to":1}`) }, "invalid_argument", "payload.to"},
		"no parent":           {func(n *carillonv1.NewJob) { n.ParentId, n.ParentRunId = "j1", run }, "invalid_argument", "parent_id"},
		"parent without run":  {func(n *carillonv1.NewJob) { n.ParentId = aJobID }, "invalid_argument", "parent_run_id"},
		"run without parent":  {func(n *carillonv1.NewJob) { n.ParentRunId = run }, "invalid_argument", "parent_run_id"},
		"no run":              {func(n *carillonv1.NewJob) { n.ParentId, n.ParentRunId = aJobID, "x" }, "invalid_argument", "parent_run_id"},
		"what nobody foresaw": {func(n *carillonv1.NewJob) { n.Payload = []byte(`"boom"`) }, "internal", ""},
	}
	before := contents(db)
	for protocol, w := range wires(h2c) {
		req := &carillonv1.EnqueueJobsRequest{}
		var names []string
		for name, c := range cases {
			n := &carillonv1.NewJob{Ref: "m.v0", Payload: []byte(`{}`)}
			c.change(n)
			if _, err := protojson.Marshal(n); err != nil && protocol == "connect json" {
				continue // JSON cannot say such a thing
			}
			req.Jobs, names = append(req.Jobs, n), append(names, name)
		}
		res, err := w.clients(base).jobs.EnqueueJobs(t.Context(), req)
		if err != nil || len(res.GetJobs()) != len(names) {
			t.Fatalf("%s: %v", protocol, err)
		}
		for i, name := range names {
			got, want := res.GetJobs()[i].GetError(), cases[name]
			if got.GetCode() != want.code || got.GetField() != want.field || got.GetMessage() == "" || res.GetJobs()[i].GetId() != "" {
				t.Errorf("%s by %s: %v; want %s of %q", name, protocol, res.GetJobs()[i], want.code, want.field)
			}
			if strings.Contains(got.GetMessage(), "secret") || strings.HasPrefix(got.GetMessage(), want.field+":") {
				t.Errorf("%s says %q", name, got.GetMessage())
			}
		}
	}
	if after := contents(db); after != before {
		t.Errorf("something was written:\n%swas\n%s", after, before)
	}
}

// What concerns a whole request is refused with a code, by every protocol.
func TestBadRequestsAboutJobs(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Tokyo")
	dead := fail(t, db, "m.v0")
	face, _ := handler(t, db.Store, Tokens{})
	base, h2c := serve(t, face)
	ctx := t.Context()
	type bad struct {
		call  func(clients) error
		code  connect.Code
		field string
	}
	list := func(req *carillonv1.ListJobsRequest) func(clients) error {
		return func(c clients) error { _, err := c.jobs.ListJobs(ctx, req); return err }
	}
	watch := func(id string) func(clients) error {
		return func(c clients) error {
			stream, err := c.jobs.WatchJob(ctx, &carillonv1.WatchJobRequest{Id: id})
			if err != nil {
				return err
			}
			defer stream.Close()
			for stream.Receive() {
			}
			return stream.Err()
		}
	}
	cases := map[string]bad{
		"no jobs": {func(c clients) error { _, err := c.jobs.EnqueueJobs(ctx, &carillonv1.EnqueueJobsRequest{}); return err }, connect.CodeInvalidArgument, "jobs"},
		"1001 jobs": {func(c clients) error {
			req := &carillonv1.EnqueueJobsRequest{}
			for range 1001 {
				req.Jobs = append(req.Jobs, &carillonv1.NewJob{Ref: "m.v0"})
			}
			_, err := c.jobs.EnqueueJobs(ctx, req)
			return err
		}, connect.CodeInvalidArgument, "jobs"},
		"5 MiB": {func(c clients) error {
			req := &carillonv1.EnqueueJobsRequest{}
			for range 5 {
				req.Jobs = append(req.Jobs, &carillonv1.NewJob{Ref: "m.v0", Payload: make([]byte, 1<<20)})
			}
			_, err := c.jobs.EnqueueJobs(ctx, req)
			return err
		}, connect.CodeResourceExhausted, ""},
		"get no id":   {func(c clients) error { _, err := c.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: "7"}); return err }, connect.CodeInvalidArgument, "id"},
		"get unknown": {func(c clients) error { _, err := c.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: aJobID}); return err }, connect.CodeNotFound, ""},
		"guessed salt": {func(c clients) error {
			_, err := c.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: job.ID{N: dead.N, Salt: dead.Salt + 1}.String()})
			return err
		}, connect.CodeNotFound, ""},
		"watch no id":   {watch("jjj"), connect.CodeInvalidArgument, "id"},
		"watch unknown": {watch(aJobID), connect.CodeNotFound, ""},
		"cancel no id": {func(c clients) error {
			_, err := c.jobs.CancelJob(ctx, &carillonv1.CancelJobRequest{Id: "J1"})
			return err
		}, connect.CodeInvalidArgument, "id"},
		"cancel ended": {func(c clients) error {
			_, err := c.jobs.CancelJob(ctx, &carillonv1.CancelJobRequest{Id: dead.String()})
			return err
		}, connect.CodeFailedPrecondition, ""},
		"retry no id": {func(c clients) error {
			_, err := c.jobs.RetryJob(ctx, &carillonv1.RetryJobRequest{Id: "x"})
			return err
		}, connect.CodeInvalidArgument, "id"},
		"retry unknown": {func(c clients) error {
			_, err := c.jobs.RetryJob(ctx, &carillonv1.RetryJobRequest{Id: aJobID})
			return err
		}, connect.CodeNotFound, ""},
		"pause no verb": {func(c clients) error {
			_, err := c.jobs.PauseJobs(ctx, &carillonv1.PauseJobsRequest{Ref: "mail"})
			return err
		}, connect.CodeInvalidArgument, "ref"},
		"resume no verb": {func(c clients) error {
			_, err := c.jobs.ResumeJobs(ctx, &carillonv1.ResumeJobsRequest{Ref: "mail"})
			return err
		}, connect.CodeInvalidArgument, "ref"},
		"redrive no verb": {func(c clients) error {
			_, err := c.jobs.RedriveJobs(ctx, &carillonv1.RedriveJobsRequest{Ref: "mail"})
			return err
		}, connect.CodeInvalidArgument, "ref"},
		"redrive less": {func(c clients) error {
			_, err := c.jobs.RedriveJobs(ctx, &carillonv1.RedriveJobsRequest{Limit: -1})
			return err
		}, connect.CodeInvalidArgument, "limit"},
		"state -1":              {list(&carillonv1.ListJobsRequest{States: []carillonv1.JobState{-1}}), connect.CodeInvalidArgument, "states"},
		"state 0":               {list(&carillonv1.ListJobsRequest{States: []carillonv1.JobState{0}}), connect.CodeInvalidArgument, "states"},
		"state 7":               {list(&carillonv1.ListJobsRequest{States: []carillonv1.JobState{7}}), connect.CodeInvalidArgument, "states"},
		"negative page":         {list(&carillonv1.ListJobsRequest{PageSize: -1}), connect.CodeInvalidArgument, "page_size"},
		"no time":               {list(&carillonv1.ListJobsRequest{From: &timestamppb.Timestamp{Nanos: -1}}), connect.CodeInvalidArgument, "from"},
		"token of runs":         {list(&carillonv1.ListJobsRequest{PageToken: nextToken(bind("runs", &carillonv1.ListRunsRequest{}), runsCursor{})}), connect.CodeInvalidArgument, "page_token"},
		"token of others":       {list(&carillonv1.ListJobsRequest{PageToken: nextToken(bind("jobs", &carillonv1.ListJobsRequest{Tenant: "t"}), jobsCursor{})}), connect.CodeInvalidArgument, "page_token"},
		"parent that is no job": {list(&carillonv1.ListJobsRequest{ParentId: "x"}), connect.CodeInvalidArgument, "parent_id"},
		"garbage token":         {list(&carillonv1.ListJobsRequest{PageToken: "!"}), connect.CodeInvalidArgument, "page_token"},
	}
	before := contents(db)
	for protocol, w := range wires(h2c) {
		for name, c := range cases {
			if name == "no time" && protocol == "connect json" {
				continue // JSON cannot say such a thing
			}
			err := c.call(w.clients(base))
			d := detailsOf(err)
			if connect.CodeOf(err) != c.code || c.field != "" && (len(d.fields) == 0 || d.fields[0] != c.field) {
				t.Errorf("%s by %s: %v with %+v; want %s of %q", name, protocol, err, d, c.code, c.field)
			}
		}
	}
	if after := contents(db); after != before {
		t.Errorf("something was written:\n%swas\n%s", after, before)
	}
}

func TestEveryJobHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Tokyo")
	face, _ := handler(t, db.Store, Tokens{})
	base, h2c := serve(t, face)
	c := wires(h2c)["grpc"].clients(base)
	due := db.Now().Add(time.Hour).Truncate(time.Microsecond)
	req := &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{
		{Ref: "m.v1", Payload: []byte(`{"to":"a"}`), Tags: []string{"x"}, Tenant: "acme", Priority: proto.Int32(0), Timeout: durationpb.New(time.Minute), MaxAttempts: 7},
		{Ref: "m.x"},
		{Ref: "m.v1", UniqueKey: "k"},
		{Ref: "m.v1", UniqueKey: "k"},
		{Ref: "m.v1", IdempotencyKey: "i"},
		{Ref: "m.v2", IdempotencyKey: "i"},
		{Ref: "m.v1", DueAt: timestamppb.New(due)},
		{Ref: "m.v1", DueAt: timestamppb.New(due.Add(-2 * time.Hour))},
		{Ref: "m.v1", DueAt: timestamppb.New(due), IdempotencyKey: "at"},
		{Ref: "m.v1", DueAt: timestamppb.New(due.Add(time.Second)), IdempotencyKey: "at"},
		{Ref: "m.v1", DueAt: timestamppb.New(due), IdempotencyKey: "at"},
		{Ref: "m.v2", ExpiresIn: durationpb.New(time.Hour), IdempotencyKey: "in"},
	}}
	res, err := c.jobs.EnqueueJobs(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	jobs := res.GetJobs()
	for i, want := range []string{"", "not_found", "", "", "", "already_exists", "", "", "", "already_exists", "", ""} {
		if got := jobs[i].GetError().GetCode(); got != want || (jobs[i].GetId() == "") != (want != "") {
			t.Errorf("job %d: %v, want %q", i, jobs[i], want)
		}
	}
	if jobs[2].GetId() != jobs[3].GetId() || jobs[2].GetExisting() || !jobs[3].GetExisting() {
		t.Errorf("a unique key gave %v and %v", jobs[2], jobs[3])
	}
	get := func(i int) *carillonv1.Job {
		res, err := c.jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Id: jobs[i].GetId()})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetJob()
	}
	j := get(0)
	if string(j.GetPayload()) != `{"to":"a"}` || j.GetTenant() != "acme" || j.GetPriority() != 0 || j.GetMaxAttempts() != 7 || j.GetTimeout().AsDuration() != time.Minute ||
		j.GetState() != carillonv1.JobState_JOB_STATE_READY || fmt.Sprint(j.GetTags()) != "[x]" || j.GetId() != jobs[0].GetId() || j.GetEndedAt() != nil {
		t.Errorf("%v", j)
	}
	if j := get(2); j.GetPriority() != job.DefaultPriority || j.GetTenant() != job.DefaultTenant {
		t.Errorf("defaults: %v", j)
	}
	if late := get(6).GetDueAt().AsTime().Sub(due); late < 0 || late > 10*time.Second {
		t.Errorf("due %s after what was asked", late)
	}
	if j := get(7); j.GetDueAt().AsTime().After(j.GetCreatedAt().AsTime()) {
		t.Errorf("a past due time became %v", j)
	}
	if jobs[8].GetId() != jobs[10].GetId() || !jobs[10].GetExisting() {
		t.Errorf("the same instant under one key: %v and %v", jobs[8], jobs[10])
	}
	// A length of time is the same wish whenever it is said.
	again, err := c.jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: req.GetJobs()[11:]})
	if err != nil || again.GetJobs()[0].GetId() != jobs[11].GetId() {
		t.Errorf("again: %v, %v", again, err)
	}
	if j := get(11); j.GetExpiresAt().AsTime().Sub(j.GetCreatedAt().AsTime()).Round(time.Minute) != time.Hour || j.GetWaitingFor() != "a runner of v2" {
		t.Errorf("%v", j)
	}
	if j := get(2); j.GetWaitingFor() != "" {
		t.Errorf("waits for %s", j.GetWaitingFor())
	}
	cancelled, err := c.jobs.CancelJob(t.Context(), &carillonv1.CancelJobRequest{Id: jobs[0].GetId(), Reason: "not needed"})
	if err != nil || cancelled.GetState() != carillonv1.JobState_JOB_STATE_CANCELLED {
		t.Errorf("%v, %v", cancelled, err)
	}
	if j := get(0); j.GetState() != carillonv1.JobState_JOB_STATE_CANCELLED || j.GetEndedAt() == nil || j.GetErrors()[0].GetText() != "not needed" {
		t.Errorf("%v", j)
	}
}

func TestPausesStandAtTheirQueues(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	face, _ := handler(t, db.Store, Tokens{})
	base, h2c := serve(t, face)
	c := wires(h2c)["connect json"].clients(base)
	for _, n := range []*carillonv1.NewJob{{Ref: "m.v1"}, {Ref: "m.v2", Tenant: "acme"}} {
		if _, err := c.jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{n}}); err != nil {
			t.Fatal(err)
		}
	}
	if res, err := c.jobs.PauseJobs(t.Context(), &carillonv1.PauseJobsRequest{Tenant: "acme", Reason: "unpaid"}); err != nil || res.GetQueues() != 1 {
		t.Errorf("%v, %v", res, err)
	}
	res, err := c.jobs.ListQueues(t.Context(), &carillonv1.ListQueuesRequest{})
	if err != nil || len(res.GetQueues()) != 2 || len(res.GetPauses()) != 1 || res.GetPauses()[0].GetReason() != "unpaid" {
		t.Fatalf("%v, %v", res, err)
	}
	for _, q := range res.GetQueues() {
		if acme := q.GetTenant() == "acme"; (q.GetPausedAt() != nil) != acme || (q.GetWaitingFor() != "") != acme {
			t.Errorf("%v", q)
		}
	}
	if res, err := c.jobs.ResumeJobs(t.Context(), &carillonv1.ResumeJobsRequest{Tenant: "acme"}); err != nil || res.GetQueues() != 1 || !res.GetWasPaused() || res.GetHeld() != 0 {
		t.Errorf("%v, %v", res, err)
	}
}
