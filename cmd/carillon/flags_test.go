package main

import (
	"path/filepath"
	"strings"
	"testing"

	carillonv1 "carillon/proto/carillon/v1"
)

func TestNegativeNumbersAreRefusedInPlainWords(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"runs ls --limit -1", "--limit -1: it cannot be negative"},
		{"cron history m.v --limit=-1", "--limit -1: it cannot be negative"},
		{"cron next -n -1 x", "--count -1: it cannot be negative"},
		{"ps --timeout -5s", "--timeout -5s: it cannot be negative"},
		{"jobs enqueue m.v --priority -1", "--priority -1: it cannot be negative"},
		{"jobs enqueue m.v --attempts -3", "--attempts -3: it cannot be negative"},
		{"dev --controllers -1", "--controllers -1: it cannot be negative"},
		{"scale m -1", "-1: no argument can be negative"},
		{"jobs ls --limit -many", "--limit"},
	} {
		code, stdout, stderr := carillon(t, strings.Fields(tc.line)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) || strings.Contains(stderr, "perhaps try --limit=\"-1\"") {
			t.Errorf("%s: code %d, stderr %q, want %q", tc.line, code, stderr, tc.want)
		}
	}
	f := startFake(t, &fakeController{})
	if code, _, stderr := carillon(t, "jobs", "enqueue", "m.send", "--controller", f.url, "--", "-5"); code != 0 || string(f.requests[0].GetJobs()[0].GetPayload()) != "-5" {
		t.Errorf("a request behind the dashes: code %d, %s", code, stderr)
	}
}

func TestWhatStandsOnTheCommandLineCounts(t *testing.T) {
	f := startFake(t, &fakeController{token: "s3cret"})
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "s3cret\n")
	setenv(t, "CARILLON_ADMIN_TOKEN", "another")
	if code, _, stderr := carillon(t, "ring", "--controller", f.url, "--token-file", file); code != 0 {
		t.Errorf("a file beside the environment's token: code %d, %s", code, stderr)
	}
	if code, _, _ := carillon(t, "ring", "--controller", f.url); code != 1 {
		t.Errorf("the environment's token opens: code %d", code)
	}
	setenv(t, "CARILLON_ADMIN_TOKEN_FILE", "/nowhere")
	if code, _, stderr := carillon(t, "ring", "--controller", f.url, "--token", "s3cret"); code != 0 {
		t.Errorf("a token beside the environment's file: code %d, %s", code, stderr)
	}
	if code, _, stderr := carillon(t, "ring", "--controller", f.url, "--token", "s3cret", "--token-file", file); code != exitUsage || !strings.Contains(stderr, "exclude each other") {
		t.Errorf("both: code %d, %s", code, stderr)
	}
}

func TestEveryCommandOfTheClusterShowsExamples(t *testing.T) {
	for _, name := range strings.Fields("ps scale kill ring controllers doctor version") {
		if code, stdout, _ := carillon(t, name, "--help"); code != 0 || !strings.Contains(stdout, "Examples:") {
			t.Errorf("%s --help: code %d, %q", name, code, stdout)
		}
	}
}

func TestWhatAPersonStartedIsNotLate(t *testing.T) {
	byHand := aRun("r1", 0)
	byHand.Kind, byHand.LatenessMs = manual, 3000
	f := startFake(t, &fakeController{runs: []*carillonv1.Run{byHand}})
	_, stdout, _ := carillon(t, "runs", "ls", "--controller", f.url)
	if !strings.Contains(stdout, "(by hand)  -  ") || strings.Contains(stdout, "3s") {
		t.Errorf("%q", stdout)
	}
}

func TestNextIsNothingWhileNothingStarts(t *testing.T) {
	f := startFake(t, &fakeController{jobs: []*carillonv1.CronJob{
		{Ref: "m.a", Enabled: true, NextExecution: at(2)}, {Ref: "m.b", Paused: true, NextExecution: at(4)}, {Ref: "m.c", NextExecution: at(6)},
	}})
	_, stdout, _ := carillon(t, "cron", "ls", "--controller", f.url)
	if !strings.Contains(stdout, "12:00:02") || strings.Contains(stdout, "12:00:04") || !strings.Contains(stdout, "- (paused)") || !strings.Contains(stdout, "- (stopped)") {
		t.Errorf("%q", stdout)
	}
}

func TestNoCronJobIsSaidInTheSameWords(t *testing.T) {
	f := startFake(t, &fakeController{})
	for _, name := range strings.Fields("show pause") {
		code, _, stderr := carillon(t, "cron", name, "no.where", "--controller", f.url)
		if code != 1 || !strings.Contains(stderr, " cron job no.where: there is none\nhint: `carillon cron ls`") {
			t.Errorf("%s: code %d, %q", name, code, stderr)
		}
	}
}
