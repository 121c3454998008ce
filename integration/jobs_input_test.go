package integration

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"carillon/integration/cluster"
	carillonv1 "carillon/proto/carillon/v1"
)

// TestBadJobsAreRefusedByName: over the API each bad job of a batch is refused with the field that is wrong, beside a good
// one that is taken; over the command line with an exit code and a sentence. Nothing of the bad ones is stored.
func TestBadJobsAreRefusedByName(t *testing.T) {
	t.Parallel()
	c := settled(t)
	d, _ := c.JobsUp(t, 1, cluster.JobVerb{Name: "work"})
	good := cluster.Wish{Task: cluster.Task{Mark: "good"}, Verb: "work"}
	payload := func(p string) func(*carillonv1.NewJob) { return func(n *carillonv1.NewJob) { n.Payload = []byte(p) } }
	priority := func(p int32) func(*carillonv1.NewJob) { return func(n *carillonv1.NewJob) { n.Priority = &p } }
	bad := []struct {
		name, field, code string
		spoil             func(*carillonv1.NewJob)
	}{
		{"a payload too large", "payload", "", func(n *carillonv1.NewJob) {
			n.Payload = fmt.Appendf(nil, `{"mark":"%s"}`, bytes.Repeat([]byte("x"), 1<<20))
		}},
		{"no JSON", "payload", "", payload(`{"mark":`)},
		{"two JSONs", "payload", "", payload(`{"mark":"a"} {"mark":"b"}`)},
		{"no UTF-8", "payload", "", payload("{\"mark\":\"\xff\"}")},
		{"no payload", "payload", "", payload("")},
		{"null for a payload", "payload", "", payload("null")},
		{"a list for a record", "payload", "", payload("[]")},
		{"a field of another type", "payload.mark", "", payload(`{"mark": 7}`)},
		{"a field that is not there", "payload.mrk", "", payload(`{"mark":"a","mrk":"b"}`)},
		{"a field left out", "payload.mark", "", payload(`{"ms":1}`)},
		{"a number that is too large", "payload.ms", "", payload(`{"mark":"a","ms":1e300}`)},
		{"a nested field", "payload.children[1].mark", "", payload(`{"mark":"a","children":[{"mark":"b"},{"mark":false}]}`)},
		{"very deep", "payload", "", payload(strings.Repeat(`{"mark":"a","children":[`, 5000) + strings.Repeat(`]}`, 5000))},
		{"an unknown verb", "", "not_found", func(n *carillonv1.NewJob) { n.Ref = d.Name + ".wrok" }},
		{"an unknown module", "", "not_found", func(n *carillonv1.NewJob) { n.Ref = "nobody.work" }},
		{"no verb", "", "not_found", func(n *carillonv1.NewJob) { n.Ref = d.Name }},
		{"a negative delay", "delay", "", func(n *carillonv1.NewJob) { n.Delay = durationpb.New(-time.Second) }},
		{"an endless delay", "delay", "", func(n *carillonv1.NewJob) { n.Delay = durationpb.New(200 * 365 * 24 * time.Hour) }},
		{"a delay that is none", "delay", "", func(n *carillonv1.NewJob) { n.Delay = &durationpb.Duration{Seconds: 1, Nanos: -1} }},
		{"a due time in the year 12026", "due_at", "", func(n *carillonv1.NewJob) { n.DueAt = timestamppb.New(time.Now().AddDate(10000, 0, 0)) }},
		{"due and delayed", "due_at", "", func(n *carillonv1.NewJob) { n.Delay, n.DueAt = durationpb.New(time.Second), timestamppb.Now() }},
		{"a priority below all", "priority", "", priority(-1)},
		{"a priority above all", "priority", "", priority(1 << 30)},
		{"a negative timeout", "timeout", "", func(n *carillonv1.NewJob) { n.Timeout = durationpb.New(-time.Second) }},
		{"a timeout of a year", "timeout", "", func(n *carillonv1.NewJob) { n.Timeout = durationpb.New(365 * 24 * time.Hour) }},
		{"retries without end", "max_attempts", "", func(n *carillonv1.NewJob) { n.MaxAttempts = 1 << 30 }},
		{"retries below none", "max_attempts", "", func(n *carillonv1.NewJob) { n.MaxAttempts = -1 }},
		{"a backoff of a year", "backoff", "", func(n *carillonv1.NewJob) { n.Backoff, n.BackoffCeiling = durationpb.New(365*24*time.Hour), nil }},
		{"a ceiling below the backoff", "backoff_ceiling", "", func(n *carillonv1.NewJob) {
			n.Backoff, n.BackoffCeiling = durationpb.New(time.Minute), durationpb.New(time.Second)
		}},
		{"too many tags", "tags", "", func(n *carillonv1.NewJob) { n.Tags = strings.Split(strings.Repeat("t,", 40), ",") }},
		{"a tag with a line end", "tags[0]", "", func(n *carillonv1.NewJob) { n.Tags = []string{"a\nb"} }},
		{"a window without a key", "unique_window", "", func(n *carillonv1.NewJob) { n.UniqueWindow = durationpb.New(time.Hour) }},
		{"a key too long", "unique_key", "", func(n *carillonv1.NewJob) { n.UniqueKey = strings.Repeat("k", 300) }},
		{"a tenant with a line end", "tenant", "", func(n *carillonv1.NewJob) { n.Tenant = "a\nb" }},
		{"a parent that is no job", "parent_id", "", func(n *carillonv1.NewJob) { n.ParentId, n.ParentRunId = "me", "you" }},
	}
	req := &carillonv1.EnqueueJobsRequest{}
	for _, b := range bad {
		n := d.New(cluster.Wish{Task: cluster.Task{Mark: "bad"}, Verb: "work", Anonymous: true})
		b.spoil(n)
		req.Jobs = append(req.Jobs, n)
	}
	began := time.Now()
	d.Noted(good, began)
	req.Jobs = append(req.Jobs, d.New(good))
	resp, err := c.Any(t).Jobs.EnqueueJobs(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range bad {
		r := resp.GetJobs()[i]
		code := b.code
		if code == "" {
			code = connect.CodeInvalidArgument.String()
		}
		e := r.GetError()
		if r.GetId() != "" || e.GetCode() != code || !strings.HasPrefix(e.GetField(), b.field) || b.field == "" && e.GetField() != "" && e.GetField() != "ref" {
			t.Errorf("%s: answered %v, want %s of the field %q", b.name, r, code, b.field)
		}
		if b.name == "a payload too large" && !strings.Contains(e.GetMessage(), "at most 1048576") {
			t.Errorf("%s: %q does not say the bound", b.name, e.GetMessage())
		}
		if n := len(e.GetMessage()); n < 8 || n > 2000 || strings.Contains(strings.ToLower(e.GetMessage()), "sqlstate") {
			t.Errorf("%s: the message %.200q helps nobody", b.name, e.GetMessage())
		}
	}
	last := resp.GetJobs()[len(bad)]
	if last.GetId() == "" {
		t.Fatalf("the good one was refused: %v", last)
	}
	d.Acked("good", last.GetId(), last.GetExisting())

	badIDs(t, c)
	badCommands(t, c, d)
	d.Await(t, 10*time.Second)
	w := d.Judge(t, true)
	if n := len(w.Ended) + len(w.Live); n != 1 {
		t.Errorf("%d jobs were stored, want the good one only", n)
	}
	t.Logf("%d bad jobs refused beside a good one", len(bad))
}

// badIDs asks for jobs that are none.
func badIDs(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	k := c.Any(t)
	for id, want := range map[string]connect.Code{
		"": connect.CodeInvalidArgument, "1": connect.CodeInvalidArgument, "j": connect.CodeInvalidArgument, "j10000000\x00": connect.CodeInvalidArgument,
		strings.Repeat("j", 1000): connect.CodeInvalidArgument, "jzzzz0000001": connect.CodeNotFound,
	} {
		if _, err := k.Jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Id: id}); connect.CodeOf(err) != want {
			t.Errorf("GetJob of %.30q: %v, want %v", id, err, want)
		}
		if _, err := k.Jobs.CancelJob(t.Context(), &carillonv1.CancelJobRequest{Id: id}); connect.CodeOf(err) != want {
			t.Errorf("CancelJob of %.30q: %v, want %v", id, err, want)
		}
		if _, err := k.Jobs.RetryJob(t.Context(), &carillonv1.RetryJobRequest{Id: id}); connect.CodeOf(err) != want {
			t.Errorf("RetryJob of %.30q: %v, want %v", id, err, want)
		}
	}
	nul := &carillonv1.NewJob{Ref: "a.b", Tenant: "a\x00b"}
	if _, err := k.Jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{nul}}); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "tenant") {
		t.Errorf("a tenant with a NUL: %v, want invalid_argument that names it", err)
	}
	if _, err := k.Jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no jobs at all: %v, want invalid_argument", err)
	}
	if _, err := k.Jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: make([]*carillonv1.NewJob, 1001)}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("1,001 jobs: %v, want invalid_argument", err)
	}
}

// badCommands does the same as a person would.
func badCommands(t *testing.T, c *cluster.Cluster, d *cluster.Desk) {
	t.Helper()
	ref, k, ok := d.Name+".work", c.Any(t), `{"mark":"bad"}`
	for _, b := range []struct {
		says string
		args []string
		in   string
	}{
		{"payload.mark", []string{ref, `{"mark": 7}`}, ""},
		{"JSON", []string{ref, `{"mark":`}, ""},
		{"payload: has more than 1048576 bytes", []string{ref, "-"}, fmt.Sprintf(`{"mark":"%s"}`, strings.Repeat("x", 1<<20))},
		{"wrok", []string{d.Name + ".wrok", ok}, ""},
		{"module.verb", []string{"work", ok}, ""},
		{"delay", []string{ref, ok, "--delay=-5s"}, ""},
		{"priority", []string{ref, ok, "--priority=-1"}, ""},
		{"priority", []string{ref, ok, "--priority=99999"}, ""},
		{"attempts", []string{ref, ok, "--attempts=1000000"}, ""},
		{"backoff", []string{ref, ok, "--backoff=10000h"}, ""},
		{"at", []string{ref, ok, "--at=tomorrow"}, ""},
	} {
		out, code := c.CLI(t, k, b.in, append([]string{"jobs", "enqueue"}, b.args...)...)
		if code == 0 || !strings.Contains(out, b.says) || len(out) > 4000 || strings.Contains(out, "goroutine ") {
			t.Errorf("carillon jobs enqueue %.80q: exit %d, %.600q; want an error that names %q", b.args, code, out, b.says)
		}
	}
	out, code := c.CLI(t, k, "", "jobs", "show", "nonsense")
	if code == 0 || !strings.Contains(out, "job id") {
		t.Errorf("carillon jobs show nonsense: exit %d, %.300q", code, out)
	}
}
