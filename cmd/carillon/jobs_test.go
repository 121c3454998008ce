package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "carillon/proto/carillon/v1"
)

func aJob(id string, s carillonv1.JobState) *carillonv1.Job {
	j := &carillonv1.Job{Id: id, Ref: "m.send", Tenant: "default", State: s, Priority: 500, CreatedAt: at(0), DueAt: at(1), Attempt: 1, MaxAttempts: 5,
		Backoff: durationpb.New(time.Second), BackoffCeiling: durationpb.New(time.Minute), Timeout: durationpb.New(time.Minute)}
	if jobEnded(s) {
		j.StartedAt, j.EndedAt = at(1), at(3)
	}
	return j
}

const (
	ready     = carillonv1.JobState_JOB_STATE_READY
	running   = carillonv1.JobState_JOB_STATE_RUNNING
	succeeded = carillonv1.JobState_JOB_STATE_SUCCEEDED
	failed    = carillonv1.JobState_JOB_STATE_FAILED
)

// stdin gives the commands of this test a standard input.
func stdin(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stdin")
	write(t, file, text)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdin
	os.Stdin = f
	t.Cleanup(func() {
		os.Stdin = was
		f.Close()
	})
}

func TestCommandLinesOfJobs(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"enqueue"}, "which verb?"},
		{[]string{"enqueue", "m"}, `"m" is no verb`},
		{[]string{"enqueue", "m.v", "{}", "--bulk", "f"}, "exclude each other"},
		{[]string{"enqueue", "m.v", "--wait", "--bulk", "f"}, "--wait is for one job"},
		{[]string{"enqueue", "m.v", "--unique", "k", "--bulk", "f"}, "one job of the whole file"},
		{[]string{"enqueue", "--bulk", "f", "--tenant", "t"}, "the lines of the file say"},
		{[]string{"enqueue", "m.v", "--delay", "1s", "--at", "2026-01-31T09:00:00Z"}, "exclude each other"},
		{[]string{"enqueue", "m.v", "--delay", "-5s"}, "--delay -5s: it cannot be negative"},
		{[]string{"enqueue", "m.v", "--attempt-timeout=-5s"}, "--attempt-timeout -5s: it cannot be negative"},
		{[]string{"enqueue", "m.v", "--priority", "1001"}, "0 to 1000"},
		{[]string{"enqueue", "m.v", "--unique-window", "1h"}, "needs --unique"},
		{[]string{"enqueue", "m.v", "--at", "noon"}, "with --delay"},
		{[]string{"enqueue", "m.v", "--expires", "noon"}, "from now"},
		{[]string{"ls", "--state", "fine"}, "one of ready, running, blocked, succeeded, failed, cancelled"},
		{[]string{"ls", "--from", "yesterday"}, "15m"},
		{[]string{"dead", "--limit=-1"}, "--limit -1: it cannot be negative"},
		{[]string{"pause"}, "--all for everything"},
		{[]string{"pause", "m.v", "--all"}, "--all is everything"},
		{[]string{"resume", "mail"}, `"mail" is no verb`},
		{[]string{"ls", "--ref", "mail"}, `--ref: "mail" is no verb`},
		{[]string{"dead", "--ref", "m.send_out"}, `"m.send_out" is no verb`},
		{[]string{"redrive"}, "which jobs?"},
		{[]string{"redrive", "j1", "--ref", "m.v"}, "exclude each other"},
		{[]string{"cancel"}, "expected \"<id>"},
	} {
		code, stdout, stderr := carillon(t, append([]string{"jobs"}, tc.args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tc.stderr) {
			t.Errorf("%v: code %d, stdout %q, stderr %q lacks %q", tc.args, code, stdout, stderr, tc.stderr)
		}
	}
	for _, args := range [][]string{{"enqueue", "m.v", "{"}, {"enqueue", "m.v", "@/nowhere"}, {"enqueue", "--bulk", "/nowhere"}} {
		if code, _, stderr := carillon(t, append([]string{"jobs", "--controller", "http://127.0.0.1:1"}, args...)...); code != exitError || !strings.HasPrefix(stderr, "carillon: ") {
			t.Errorf("%v: code %d, stderr %q", args, code, stderr)
		}
	}
}

func TestEveryJobsCommandShowsExamples(t *testing.T) {
	for _, name := range strings.Fields("enqueue ls show watch cancel retry pause resume dead redrive queues") {
		if code, stdout, _ := carillon(t, "jobs", name, "--help"); code != 0 || !strings.Contains(stdout, "Examples:") || !strings.Contains(stdout, "carillon jobs "+name) {
			t.Errorf("jobs %s --help: code %d, %q", name, code, stdout)
		}
	}
}

func TestEnqueueSendsWhatTheFlagsSay(t *testing.T) {
	f := startFake(t, &fakeController{})
	code, stdout, stderr := carillon(t, "jobs", "enqueue", "m.send", `{"to": "ann"}`, "--at", "2026-01-31T13:00:05+01:00", "--priority", "0", "--unique", "k",
		"--unique-window", "1h", "--idempotency", "i", "--tag", "a,b", "--tag", "c", "--tenant", "acme", "--attempt-timeout", "1m", "--attempts", "3", "--backoff", "2s",
		"--backoff-ceiling", "9s", "--expires", "2026-02-01T00:00:00Z", "--controller", f.url)
	if code != 0 || stdout != "j1.0\n" {
		t.Fatalf("code %d, %q, %q", code, stdout, stderr)
	}
	n := f.requests[0].GetJobs()[0]
	if n.GetRef() != "m.send" || string(n.GetPayload()) != `{"to": "ann"}` || !n.GetDueAt().AsTime().Equal(at(5).AsTime()) || n.Priority == nil || n.GetPriority() != 0 ||
		n.GetUniqueKey() != "k" || n.GetUniqueWindow().AsDuration() != time.Hour || n.GetIdempotencyKey() != "i" || !slices.Equal(n.GetTags(), []string{"a,b", "c"}) ||
		n.GetTenant() != "acme" || n.GetTimeout().AsDuration() != time.Minute || n.GetMaxAttempts() != 3 || n.GetBackoff().AsDuration() != 2*time.Second ||
		n.GetBackoffCeiling().AsDuration() != 9*time.Second || n.GetExpiresAt().AsTime().Day() != 1 || n.Delay != nil {
		t.Errorf("sent %v", n)
	}
	if got := decode[object](t, f, "jobs", "enqueue", "m.send", "--delay", "5s", "--expires", "15m", "--unique", "held"); got["id"] != "j2.0" || got["existing"] != true {
		t.Errorf("says %v", got)
	}
	if n := f.requests[1].GetJobs()[0]; n.GetDelay().AsDuration() != 5*time.Second || n.GetExpiresIn().AsDuration() != 15*time.Minute || n.ExpiresAt != nil || n.Priority != nil || len(n.GetPayload()) > 0 || n.GetTimeout() != nil {
		t.Errorf("sent %v", n)
	}
	stdin(t, "[1,\n2]\n")
	if code, _, stderr := carillon(t, "jobs", "enqueue", "m.send", "-", "--controller", f.url); code != 0 || string(f.requests[2].GetJobs()[0].GetPayload()) != "[1,\n2]\n" {
		t.Errorf("code %d, %s, sent %v", code, stderr, f.requests[2])
	}
	file := filepath.Join(t.TempDir(), "mail.json")
	write(t, file, `"x"`)
	if code, _, _ := carillon(t, "jobs", "enqueue", "m.send", "@"+file, "--controller", f.url); code != 0 || string(f.requests[3].GetJobs()[0].GetPayload()) != `"x"` {
		t.Errorf("code %d, sent %v", code, f.requests[3])
	}
}

func TestARefusedJobNamesItsField(t *testing.T) {
	f := startFake(t, &fakeController{})
	code, stdout, stderr := carillon(t, "jobs", "enqueue", "m.send", `{"to":1}`, "--controller", f.url)
	if code != 1 || stdout != "" || !strings.Contains(stderr, "enqueue m.send: payload.to: expected string, got number\nhint: ") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	code, _, stderr = carillon(t, "jobs", "enqueue", "m.unknown", "--controller", f.url)
	if code != 1 || !strings.Contains(stderr, "is the module deployed?") || strings.Contains(stderr, "\x1b") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestBulkSendsBatchesAndTellsOfRefusedLines(t *testing.T) {
	f := startFake(t, &fakeController{})
	file := filepath.Join(t.TempDir(), "mails.jsonl")
	var lines strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&lines, "{\"to\":\"%d\"}\n", i)
	}
	write(t, file, lines.String()+"\n{\"to\":1}\n{broken\n")
	code, stdout, stderr := carillon(t, "jobs", "enqueue", "m.send", "--bulk", file, "--idempotency", "import-7", "--tag", "x", "--controller", f.url)
	if code != 1 || stdout != "2500 jobs enqueued, 2 lines refused\n" || !strings.Contains(stderr, "line 2502: payload.to: expected string") || !strings.Contains(stderr, "line 2503: is no JSON") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if len(f.requests) != 3 || len(f.requests[0].GetJobs()) != 1000 {
		t.Fatalf("%d requests", len(f.requests))
	}
	keys := map[string]bool{}
	for _, r := range f.requests {
		for _, n := range r.GetJobs() {
			keys[n.GetIdempotencyKey()] = true
			if n.GetRef() != "m.send" || len(n.GetTags()) != 1 {
				t.Fatalf("sent %v", n)
			}
		}
	}
	if len(keys) != 2501 || !keys["import-7:1"] || !keys["import-7:2502"] {
		t.Errorf("%d idempotency keys", len(keys))
	}
}

func TestBulkOfWholeJobs(t *testing.T) {
	f := startFake(t, &fakeController{})
	stdin(t, `{"ref": "m.send", "payload": {"to": "ann"}, "delay": "5s", "priority": 0, "tags": ["a"], "tenant": "t", "timeout": "1m", "attempts": 7}
{"ref": "m.send", "at": "2026-01-31T12:00:05Z", "unique": "held", "unique_window": "1h"}
{"ref": "m.send", "delay": "soon"}
{"ref": "m.send", "priorty": 5}
{"ref": "m.unknown"}
`)
	code, stdout, stderr := carillon(t, "jobs", "enqueue", "--bulk", "-", "-o", "json", "--controller", f.url)
	var rows []enqueuedJSON
	for dec := json.NewDecoder(strings.NewReader(stdout)); dec.More(); {
		var row enqueuedJSON
		if err := dec.Decode(&row); err != nil {
			t.Fatal(err, stdout)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b enqueuedJSON) int { return a.Line - b.Line })
	if code != 1 || len(rows) != 5 || rows[0].ID == "" || !rows[1].Existing || rows[2].Error == nil || rows[3].Error == nil || rows[4].Error.Code != "not_found" {
		t.Fatalf("code %d, %+v, %s", code, rows, stderr)
	}
	if !strings.Contains(rows[2].Error.Message, "delay") || !strings.Contains(rows[3].Error.Message, "priorty") {
		t.Errorf("%+v, %+v", rows[2].Error, rows[3].Error)
	}
	n := f.requests[0].GetJobs()[0]
	if string(n.GetPayload()) != `{"to": "ann"}` || n.GetDelay().AsDuration() != 5*time.Second || n.Priority == nil || n.GetMaxAttempts() != 7 || n.GetTenant() != "t" {
		t.Errorf("sent %v", n)
	}
}

func TestBulkSaysHowToGoOn(t *testing.T) {
	f := startFake(t, &fakeController{fakeJobs: fakeJobs{failAt: 2}})
	file := filepath.Join(t.TempDir(), "mails.jsonl")
	write(t, file, strings.Repeat("{}\n", 1500))
	code, stdout, stderr := carillon(t, "jobs", "enqueue", "m.send", "--bulk", file, "--controller", f.url)
	if code != 1 || stdout != "1000 jobs enqueued\n" || !strings.Contains(stderr, "enqueue lines 1001 to 1500") || !strings.Contains(stderr, "--idempotency") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestWaitEndsAsTheJobDoes(t *testing.T) {
	won, lost, gone := aJob("j1.0", succeeded), aJob("j1.0", failed), aJob("j1.0", carillonv1.JobState_JOB_STATE_CANCELLED)
	won.Output = []byte(`{"message_id":"<1@x>"}`)
	lost.Errors = []*carillonv1.JobError{{Text: "first"}, {Text: "no such host\x1b[2J"}}
	for name, tc := range map[string]struct {
		end            *carillonv1.Job
		breaks, code   int
		stdout, stderr string
	}{
		"succeeded":          {won, 0, 0, "{\"message_id\":\"<1@x>\"}\n", "j1.0 succeeded in 2s"},
		"failed":             {lost, 0, 1, "", "j1.0 ended as failed after 1 attempt: no such host"},
		"cancelled":          {gone, 0, 1, "", "ended as cancelled"},
		"the stream breaks":  {won, 1, 0, "{\"message_id\":\"<1@x>\"}\n", "going on: unavailable: draining"},
		"and breaks anew":    {won, 2, 0, "{\"message_id\":\"<1@x>\"}\n", "succeeded"},
		"nothing comes back": {aJob("j1.0", succeeded), 0, 0, "", "succeeded"},
	} {
		f := startFake(t, &fakeController{fakeJobs: fakeJobs{steps: []*carillonv1.Job{aJob("j1.0", ready), aJob("j1.0", running), tc.end}, breaks: tc.breaks}})
		code, stdout, stderr := carillon(t, "jobs", "enqueue", "m.send", "--wait", "--controller", f.url)
		if code != tc.code || stdout != tc.stdout || !strings.Contains(stderr, tc.stderr) || strings.Contains(stderr, "\x1b") {
			t.Errorf("%s: code %d, stdout %q, stderr %q", name, code, stdout, stderr)
		}
	}
	f := startFake(t, &fakeController{fakeJobs: fakeJobs{steps: []*carillonv1.Job{won}}})
	if got := decode[jobJSON](t, f, "jobs", "enqueue", "m.send", "--wait"); got.State != "succeeded" || string(got.Output) == "null" {
		t.Errorf("%+v", got)
	}
}

func TestCtrlCLeavesTheJob(t *testing.T) {
	for _, args := range [][]string{{"jobs", "enqueue", "m.send", "--wait"}, {"jobs", "watch", "j1.0"}} {
		f := startFake(t, &fakeController{fakeJobs: fakeJobs{steps: []*carillonv1.Job{aJob("j1.0", running), aJob("j1.0", succeeded)}, hold: make(chan struct{})}})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		code, _, stderr := carillonUntil(t, ctx, append(args, "--controller", f.url)...)
		if code != exitSignal || !strings.Contains(stderr, "carillon jobs watch j1.0") {
			t.Errorf("%v: code %d, stderr %q", args, code, stderr)
		}
	}
}

func TestWatchShowsEachChange(t *testing.T) {
	half := aJob("j7", running)
	half.Progress = "half\x1b[2J"
	f := startFake(t, &fakeController{fakeJobs: fakeJobs{steps: []*carillonv1.Job{aJob("j7", ready), half, aJob("j7", succeeded)}}})
	code, stdout, stderr := carillon(t, "jobs", "watch", "j7", "--controller", f.url)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || len(lines) != 3 || !strings.Contains(lines[0], "ready") || !strings.Contains(lines[1], "half") || !strings.Contains(lines[2], "took 2s") || strings.Contains(stdout, "\x1b") {
		t.Errorf("code %d, %q, %s", code, stdout, stderr)
	}
	if code, stdout, stderr := carillon(t, "jobs", "watch", "gone", "--controller", f.url); code != 1 || stdout != "" || !strings.Contains(stderr, "watch job gone: there is none\nhint: ") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, _, stderr := carillon(t, "jobs", "watch", "j7", "--controller", "http://127.0.0.1:1"); code != 1 || !strings.Contains(stderr, "is a controller running") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestJobsLsFiltersAndPages(t *testing.T) {
	child := aJob("j4", failed)
	child.Errors = []*carillonv1.JobError{{At: at(3), Attempt: 1, Verdict: "failed", Text: "why\x1b[2J"}}
	f := startFake(t, &fakeController{fakeJobs: fakeJobs{jobs: []*carillonv1.Job{aJob("j1", ready), aJob("j2", running), aJob("j3", succeeded), child}}})
	rows := decode[[]object](t, f, "jobs", "ls", "--state", "ready,failed", "--ref", "m.send", "--module", "m", "--tenant", "t", "--tag", "x", "--from", "2026-01-31T11:00:00Z",
		"--to", "2026-01-31T12:00:00Z", "--parent", "j9", "--limit", "0")
	if len(rows) != 4 || rows[0]["state"] != "ready" || rows[0]["ended_at"] != nil || rows[0]["payload"] != nil || rows[3]["errors"].([]any)[0].(object)["verdict"] != "failed" ||
		rows[3]["timeout"] != "1m0s" || rows[3]["id"] != "j4" {
		t.Errorf("rows %v", rows)
	}
	req := f.listed[0]
	if req.GetRef() != "m.send" || req.GetModule() != "m" || req.GetTenant() != "t" || req.GetTag() != "x" || req.GetFrom().AsTime().Hour() != 11 || req.GetTo().AsTime().Hour() != 12 ||
		req.GetParentId() != "j9" || fmt.Sprint(req.GetStates()) != "[JOB_STATE_READY JOB_STATE_FAILED]" || req.GetDead() {
		t.Errorf("asked %v", req)
	}
	if rows := decode[[]object](t, f, "jobs", "ls", "--limit", "3"); len(rows) != 3 {
		t.Errorf("limit 3 gives %d", len(rows))
	}
	code, stdout, _ := carillon(t, "jobs", "dead", "--controller", f.url)
	if code != 0 || !f.listed[len(f.listed)-1].GetDead() || !strings.Contains(stdout, "DIED (UTC)") || strings.Contains(stdout, "\x1b") {
		t.Errorf("code %d, %q", code, stdout)
	}
	f.fakeJobs.jobs = nil
	for _, name := range []string{"ls", "dead"} {
		if _, stdout, _ := carillon(t, "jobs", name, "-o", "json", "--controller", f.url); stdout != "[]\n" {
			t.Errorf("%s prints %q", name, stdout)
		}
	}
}

func TestShowTellsAll(t *testing.T) {
	j := aJob("j7", failed)
	j.Payload, j.Output, j.ParentId, j.Tags, j.RunId, j.Controller = []byte(`{"to":{"name":"ann"}}`), []byte(`[1]`), "j1", []string{"a", "b"}, "run-1", "ctl-1"
	j.Errors = []*carillonv1.JobError{{At: at(2), Attempt: 1, Verdict: "timed_out", Text: "too slow"}}
	f := startFake(t, &fakeController{fakeJobs: fakeJobs{job: j}})
	code, stdout, stderr := carillon(t, "jobs", "show", "j7", "--controller", f.url)
	for _, want := range []string{"failed (dead)", "2026-01-31 12:00:03 UTC  (", "ago)", "1 of 5, backoff 1s up to 1m0s", "timed_out: too slow", "a, b", "run-1", "ctl-1",
		"\npayload\n  {\n    \"to\": {\n      \"name\": \"ann\"\n", "\noutput\n  [\n    1\n  ]\n"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("code %d, %q lacks %q; %s", code, stdout, want, stderr)
		}
	}
	if got := decode[object](t, f, "jobs", "show", "j7"); got["payload"].(object)["to"].(object)["name"] != "ann" || got["parent_id"] != "j1" {
		t.Errorf("%v", got)
	}
	if code, _, stderr := carillon(t, "jobs", "show", "gone", "--controller", f.url); code != 1 || !strings.Contains(stderr, "show job gone: there is none\nhint: ") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestSteeringJobsGoesOnBehindRefusals(t *testing.T) {
	f := startFake(t, &fakeController{})
	code, stdout, stderr := carillon(t, "jobs", "cancel", "j1", "gone", "ended", "running", "--reason", "why", "--controller", f.url)
	if code != 1 || !strings.Contains(stdout, "j1 is cancelled\nrunning runs; its verb is asked to end") || !strings.Contains(stderr, "cancel job gone: there is none\n") || !strings.Contains(stderr, "cancel job ended: ended has ended: succeeded\n") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, stdout, _ := carillon(t, "jobs", "retry", "j1", "j2", "--controller", f.url); code != 0 || stdout != "j1 is due now (ready)\nj2 is due now (ready)\n" {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	code, stdout, _ = carillon(t, "jobs", "retry", "gone", "j2", "-o", "json", "--controller", f.url)
	var rows []steeredJSON
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || code != 1 || len(rows) != 2 || rows[0].Error == "" || rows[1].State != "ready" {
		t.Errorf("code %d, %q, %v", code, stdout, err)
	}
}

func TestPausesNameWhatTheyCover(t *testing.T) {
	f := startFake(t, &fakeController{})
	code, stdout, _ := carillon(t, "jobs", "pause", "m.send", "--tenant", "acme", "--reason", "unpaid", "--controller", f.url)
	if code != 0 || !strings.Contains(stdout, "the jobs of m.send of tenant acme are paused (2 queues); `carillon jobs resume m.send --tenant acme`") {
		t.Errorf("code %d, %q", code, stdout)
	}
	if got := decode[object](t, f, "jobs", "pause", "--all"); got["queues"] != 2.0 || f.paused[1].GetRef() != "" || f.paused[0].GetReason() != "unpaid" {
		t.Errorf("%v", got)
	}
	for what, want := range map[string]string{
		"--tenant=acme":  "the jobs of tenant acme start again (1 queue)\n",
		"--tenant=early": "the pause of the jobs of tenant early is taken back; there was no such job yet\n",
		"--tenant=twice": "the pause of the jobs of tenant twice is taken back, and none of them starts yet; another pause holds 2 queues, see `carillon jobs queues`\n",
		"--all":          "there is no pause of all jobs: nothing was changed; another pause holds 1 queue, see `carillon jobs queues`\n",
	} {
		if code, stdout, _ := carillon(t, "jobs", "resume", what, "--controller", f.url); code != 0 || stdout != want {
			t.Errorf("resume %s: code %d, %q", what, code, stdout)
		}
	}
	_, stdout, _ = carillon(t, "jobs", "queues", "--controller", f.url)
	for _, want := range []string{"400-599", "3 of 10", "800-1000", "paused", "waits for a deployment of module old", "the jobs of tenant acme are paused since 2026-01-31 12:00:00 UTC", "unpaid"} {
		if !strings.Contains(stdout, want) || strings.Contains(stdout, "\x1b") {
			t.Errorf("%q lacks %q", stdout, want)
		}
	}
	if got := decode[queuesJSON](t, f, "jobs", "queues"); len(got.Queues) != 3 || len(got.Pauses) != 1 || got.Queues[1].WaitingFor == "" || got.Queues[2].PausedAt == nil {
		t.Errorf("%+v", got)
	}
}

func TestRedriveIsBoundedByWhatIsDeadNow(t *testing.T) {
	f := startFake(t, &fakeController{fakeJobs: fakeJobs{dead: 2500, jobs: []*carillonv1.Job{aJob("j1", failed)}}})
	stdin(t, "")
	if code, _, stderr := carillon(t, "jobs", "redrive", "--ref", "m.send", "--controller", f.url); code != exitUsage || !strings.Contains(stderr, "--yes") || len(f.redrives) > 0 {
		t.Errorf("without an answer: code %d, stderr %q", code, stderr)
	}
	got := decode[redrivenJSON](t, f, "jobs", "redrive", "--ref", "m.send", "--limit", "1200", "--yes")
	if got.Redriven != 1200 || !got.More || len(f.redrives) != 2 || f.redrives[1].GetLimit() != 200 {
		t.Errorf("%+v by %v", got, f.redrives)
	}
	if to := f.redrives[0].GetTo().AsTime(); !to.After(at(3).AsTime()) || to.After(at(4).AsTime()) || f.redrives[0].GetRef() != "m.send" {
		t.Errorf("asked %v", f.redrives[0])
	}
	if code, stdout, _ := carillon(t, "jobs", "redrive", "--all", "-y", "--controller", f.url); code != 0 || stdout != "1300 jobs live again\n" {
		t.Errorf("code %d, %q", code, stdout)
	}
	f.dead, f.held = 2, 3
	if code, stdout, _ := carillon(t, "jobs", "redrive", "--all", "-y", "--controller", f.url); code != 0 || !strings.HasPrefix(stdout, "2 jobs live again; 3 jobs not, as live jobs have their unique keys") {
		t.Errorf("code %d, %q", code, stdout)
	}
	if code, stdout, _ := carillon(t, "jobs", "redrive", "j1", "j2", "--controller", f.url); code != 0 || strings.Count(stdout, "is due now") != 2 {
		t.Errorf("code %d, %q", code, stdout)
	}
}

func TestInstantsAreSaidFromNow(t *testing.T) {
	now := at(0).AsTime()
	for seconds, want := range map[int]string{0: "now", 5: "in 5s", -5: "5s ago", -125: "2m5s ago", 3 * 3600: "in 3h0m", -49 * 3600: "2d ago"} {
		if got := ago(at(seconds), now); got != want {
			t.Errorf("%d seconds are %q, want %q", seconds, got, want)
		}
	}
}
