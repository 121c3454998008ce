package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
)

// decode runs a command with -o json and decodes what it prints.
func decode[T any](t *testing.T, f *fakeController, args ...string) T {
	t.Helper()
	code, stdout, stderr := carillon(t, append(args, "-o", "json", "--controller", f.url)...)
	var v T
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != 0 {
		t.Fatalf("%v: code %d, %v; stdout %q, stderr %q", args, code, err, stdout, stderr)
	}
	return v
}

type object = map[string]any

func TestCronLsListsAllPages(t *testing.T) {
	f := startFake(t, &fakeController{jobs: []*carillonv1.CronJob{
		{Ref: "heartbeat.beat", Schedule: "*/2 * * * * *", NextExecution: at(2), State: "executing", Enabled: true, Owners: []string{"ctl-1", "ctl-2"},
			Deployment: "heartbeat-1", Version: 7, Current: aRun("r1", 0)},
		{Ref: "billing.bill", Schedule: "0 9 * * *", TimeZone: "Europe/Paris", State: "idle", Paused: true, Reason: "month end\x1b[2J"},
	}})
	rows := decode[[]object](t, f, "cron", "ls")
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2", len(rows))
	}
	want := object{"ref": "heartbeat.beat", "schedule": "*/2 * * * * *", "time_zone": "UTC", "next_execution": "2026-01-31T12:00:02.000000Z",
		"state": "executing", "paused": false, "enabled": true, "deployment": "heartbeat-1", "version": 7.0, "reason": ""}
	for k, v := range want {
		if rows[0][k] != v {
			t.Errorf("%s is %v, want %v", k, rows[0][k], v)
		}
	}
	if owners := rows[0]["owners"].([]any); len(owners) != 2 || owners[1] != "ctl-2" {
		t.Errorf("owners %v", owners)
	}
	if rows[1]["next_execution"] != nil || rows[1]["paused"] != true || len(rows[1]["owners"].([]any)) != 0 {
		t.Errorf("second row %v", rows[1])
	}
	_, stdout, _ := carillon(t, "cron", "ls", "--controller", f.url)
	if lines := strings.Split(strings.TrimSpace(stdout), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "REF ") || strings.Contains(stdout, "\x1b") {
		t.Errorf("table %q", stdout)
	}
	if code, stdout, _ := carillon(t, "cron", "show", "heartbeat.beat", "--controller", f.url); code != 0 || !strings.Contains(stdout, "run in flight   r1") {
		t.Errorf("show: code %d, %q", code, stdout)
	}
}

func TestEmptyListsAreArrays(t *testing.T) {
	f := startFake(t, &fakeController{})
	for _, args := range [][]string{{"cron", "ls"}, {"runs", "ls"}} {
		if _, stdout, _ := carillon(t, append(args, "-o", "json", "--controller", f.url)...); stdout != "[]\n" {
			t.Errorf("%v prints %q", args, stdout)
		}
	}
}

func TestRunsLsFiltersAndPages(t *testing.T) {
	executing := &carillonv1.Run{RunId: "r9", Ref: "heartbeat.beat", Slot: at(6), StartedAt: at(6), Controller: "ctl-1", Attempt: 1}
	skipped := &carillonv1.Run{Ref: "heartbeat.beat", Slot: at(2), SlotTo: at(4), Verdict: carillonv1.Verdict_VERDICT_SKIPPED_MISSED, Count: 2}
	f := startFake(t, &fakeController{runs: []*carillonv1.Run{executing, skipped, aRun("r1", 0)}})
	rows := decode[[]object](t, f, "runs", "ls", "--ref", "heartbeat.beat", "--verdict", "lost,skipped_missed,executing", "--by", "ctl-1",
		"--from", "2026-01-31T11:00:00Z", "--limit", "0")
	if len(rows) != 3 {
		t.Fatalf("%d rows, want 3", len(rows))
	}
	if rows[0]["verdict"] != "" || rows[0]["ended_at"] != nil {
		t.Errorf("executing run %v", rows[0])
	}
	if rows[1]["verdict"] != "skipped_missed" || rows[1]["count"] != 2.0 || rows[1]["run_id"] != "" || rows[1]["slot_to"] != "2026-01-31T12:00:04.000000Z" {
		t.Errorf("skipped range %v", rows[1])
	}
	want := object{"run_id": "r1", "ref": "heartbeat.beat", "slot": "2026-01-31T12:00:00.000000Z", "started_at": "2026-01-31T12:00:00.001500Z",
		"ended_at": "2026-01-31T12:00:00.012000Z", "verdict": "succeeded", "controller": "ctl-1", "attempt": 1.0, "lateness_ms": 1.5, "error": "",
		"count": 1.0, "kind": "slot", "deployment": "heartbeat-1"}
	for k, v := range want {
		if rows[2][k] != v {
			t.Errorf("%s is %v, want %v", k, rows[2][k], v)
		}
	}
	req := f.asked[0]
	if req.GetRef() != "heartbeat.beat" || req.GetController() != "ctl-1" || req.GetFrom().AsTime().Hour() != 11 || len(req.GetVerdicts()) != 3 ||
		req.GetVerdicts()[0] != carillonv1.Verdict_VERDICT_LOST || req.GetVerdicts()[2] != carillonv1.Verdict_VERDICT_UNSPECIFIED {
		t.Errorf("asked %v", req)
	}
	if rows := decode[[]object](t, f, "runs", "ls", "--limit", "1"); len(rows) != 1 {
		t.Errorf("limit 1 gives %d rows", len(rows))
	}
}

func TestRingSaysWhoOwnsWhat(t *testing.T) {
	f := startFake(t, &fakeController{})
	ring := decode[ringJSON](t, f, "ring")
	if ring.Shards != 3 || len(ring.Members) != 2 || ring.Members[0].Key != "ctl-1" || len(ring.Members[0].First) != 2 || ring.Members[1].Second == nil {
		t.Errorf("ring %+v", ring)
	}
}

func TestDeployShowsThePlanFirst(t *testing.T) {
	f := startFake(t, &fakeController{})
	code, stdout, stderr := carillon(t, "deploy", "../../examples/heartbeat", "--dry-run", "--controller", f.url)
	if code != 0 || len(f.deployed) != 0 {
		t.Fatalf("dry run: code %d, deployed %v, %s", code, f.deployed, stderr)
	}
	for _, want := range []string{"added", "*/2 * * * * *", "12:00:04", "removed", "was 0 0 * * *", "nothing was changed"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("plan %q lacks %q", stdout, want)
		}
	}
	got := decode[planJSON](t, f, "deploy", "../../examples/heartbeat", "--now")
	if got.Deployment != "heartbeat-2" || got.Replaces != "heartbeat-1" || got.DryRun {
		t.Errorf("deploy says %+v", got)
	}
	req := f.deployed[0]
	if !req.GetNow() || req.GetSchema().GetModule() != "heartbeat" || strings.Contains(req.GetDigest(), ":") || len(req.GetDigest()) != 64 {
		t.Errorf("sent %v", req)
	}

	f.refuse = connect.NewError(connect.CodeFailedPrecondition, errString("no runner came within 30s"))
	empty := t.TempDir()
	write(t, filepath.Join(empty, "go.mod"), "module empty\n\ngo 1.26\n")
	write(t, filepath.Join(empty, "empty.go"), "package empty\n")
	sent := len(f.deployed)
	if code, stdout, stderr := carillon(t, "deploy", empty, "--controller", f.url); code != 1 || stdout != "" || !strings.HasPrefix(stderr, "carillon: deploy empty: it has no verbs\nhint: put //carillon:cron") || len(f.deployed) != sent {
		t.Errorf("code %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr := carillon(t, "deploy", "../../examples/heartbeat", "--controller", f.url); code != 1 || !strings.Contains(stderr, "deploy heartbeat: no runner came") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestSteering(t *testing.T) {
	f := startFake(t, &fakeController{})
	if j := decode[object](t, f, "cron", "pause", "a.b", "--reason", "month end"); j["paused"] != true || j["reason"] != "month end" {
		t.Errorf("pause says %v", j)
	}
	if d := decode[object](t, f, "scale", "heartbeat", "2"); d["replicas"] != 2.0 || f.scaled[0].GetReplicas() != 2 {
		t.Errorf("scale says %v", d)
	}
	if d := decode[[]object](t, f, "ps"); len(d) != 1 || d[0]["deployment"] != "heartbeat-1" {
		t.Errorf("ps says %v", d)
	}
	if c := decode[[]object](t, f, "controllers"); len(c) != 1 || c[0]["pid"] != 42.0 {
		t.Errorf("controllers says %v", c)
	}
	if code, _, stderr := carillon(t, "cron", "show", "no.where", "--controller", f.url); code != 1 || !strings.Contains(stderr, "show cron job no.where: there is none") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestTheTokenIsSent(t *testing.T) {
	f := startFake(t, &fakeController{token: "s3cret", watch: nil})
	code, _, stderr := carillon(t, "ring", "--controller", f.url)
	if code != 1 || !strings.Contains(stderr, "CARILLON_ADMIN_TOKEN") || strings.Contains(stderr, "s3cret") {
		t.Errorf("without a token: code %d, stderr %q", code, stderr)
	}
	if code, _, stderr := carillon(t, "ring", "--controller", f.url, "--token", "s3cret"); code != 0 {
		t.Errorf("with a flag: code %d, %s", code, stderr)
	}
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "s3cret\n")
	setenv(t, "CARILLON_ADMIN_TOKEN_FILE", file)
	if code, _, stderr := carillon(t, "ring", "--controller", f.url); code != 0 {
		t.Errorf("with a file: code %d, %s", code, stderr)
	}
	write(t, file, "\n")
	if code, _, stderr := carillon(t, "ring", "--controller", f.url); code != 1 || !strings.Contains(stderr, "is empty") {
		t.Errorf("with an empty file: code %d, %s", code, stderr)
	}
}

func TestStrangersAreNotMistakenForControllers(t *testing.T) {
	moved := false
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		moved = moved || r.URL.Path == "/elsewhere"
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer stranger.Close()
	code, _, stderr := carillon(t, "ps", "--controller", stranger.URL, "--token", "s3cret")
	if code != 1 || !strings.Contains(stderr, "hint: ") || moved {
		t.Errorf("code %d, stderr %q, followed elsewhere: %t", code, stderr, moved)
	}
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	if code, _, stderr := carillon(t, "ps", "--controller", page.URL); code != 1 || !strings.Contains(stderr, "a controller, and of this version?") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	flood := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/proto")
		_, _ = w.Write(make([]byte, maxAnswer+1))
	}))
	defer flood.Close()
	if code, _, stderr := carillon(t, "ps", "--controller", flood.URL); code != 1 || !strings.Contains(stderr, "larger than configured max") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestDoctorSaysWhatToDo(t *testing.T) {
	f := startFake(t, &fakeController{health: &carillonv1.GetHealthResponse{Controller: "ctl-1", Version: version, Checks: []*carillonv1.Check{
		{Name: "database", Ok: true, Detail: "PostgreSQL 17"}, {Name: "clock offset", Detail: "11 s", Hint: "look at ntp"},
	}}})
	code, stdout, _ := carillon(t, "doctor", "--controller", f.url)
	if code != 1 || !strings.Contains(stdout, "PostgreSQL 17") || !strings.Contains(stdout, "hint: clock offset: look at ntp") {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	f.health.Checks = f.health.Checks[:1]
	if code, _, _ := carillon(t, "doctor", "--controller", f.url); code != 0 {
		t.Errorf("all is well, but the code is %d", code)
	}
	// What another controller finds wrong with itself is told, too; what it says of the database is known.
	other := startFake(t, &fakeController{health: &carillonv1.GetHealthResponse{Controller: "ctl-2", Version: version, Checks: []*carillonv1.Check{
		{Name: "overdue", Detail: "2 cron jobs", Hint: "look"}, {Name: "upkeep", Detail: "find lost jobs: fails for 40s: permission denied", Hint: "read its log"},
	}}})
	f.others = []*carillonv1.Controller{{Key: "ctl-2", Endpoint: other.url, State: "live"}, {Key: "ctl-3", Endpoint: "http://127.0.0.1:1", State: "live"}, {Key: "ctl-4", State: "silent"}}
	code, stdout, _ = carillon(t, "doctor", "--controller", f.url)
	if code != 1 || !strings.Contains(stdout, "upkeep of ctl-2  wrong  find lost jobs: fails for 40s: permission denied") || strings.Contains(stdout, "overdue") ||
		!strings.Contains(stdout, "hint: upkeep of ctl-2: read its log") || !strings.Contains(stdout, "ctl-3 cannot be asked from here, ctl-4 is silent") {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	other.health.Checks = nil
	if code, stdout, _ := carillon(t, "doctor", "--controller", f.url); code != 0 || !strings.Contains(stdout, "ctl-2 is well") {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	if code, stdout, _ := carillon(t, "doctor", "--controller", "http://127.0.0.1:1"); code != 1 || !strings.Contains(stdout, "carillon dev") {
		t.Errorf("nobody there: code %d, stdout %q", code, stdout)
	}
}

func TestInstantsMayBeLengthsOfTime(t *testing.T) {
	now := at(30).AsTime()
	if got, err := parseInstant("--from", "20s", now); err != nil || !got.AsTime().Equal(at(10).AsTime()) {
		t.Errorf("20s is %v, %v", got, err)
	}
	if got, err := parseInstant("--from", "2026-01-31T13:00:05+01:00", now); err != nil || !got.AsTime().Equal(at(5).AsTime()) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseInstant("--from", "", now); err != nil || got != (*timestamppb.Timestamp)(nil) {
		t.Errorf("got %v, %v", got, err)
	}
}
