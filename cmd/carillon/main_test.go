package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stdout string // must be in it
		stderr string
	}{
		{"no command", nil, 2, "", "hint: carillon --help"},
		{"help", []string{"--help"}, 0, "completion", ""},
		{"help of a command", []string{"cron", "next", "--help"}, 0, `carillon cron next "*/2 * * * * *"`, ""},
		{"unknown command", []string{"corn"}, 2, "", `did you mean "cron"`},
		{"unknown flag", []string{"cron", "ls", "--nope"}, 2, "", "hint: carillon cron ls --help"},
		{"unknown output", []string{"ring", "-o", "yaml"}, 2, "", "must be one of"},
		{"version", []string{"version"}, 0, "carillon " + version, ""},
		{"next", []string{"cron", "next", "0 9 * * 1-5", "--from", "2026-01-02T09:00:00Z", "-n", "1", "-o", "json"}, 0, `["2026-01-05T09:00:00Z"]`, ""},
		{"next in a zone", []string{"cron", "next", "0 9 * * *", "--tz", "Europe/Paris", "--from", "2026-07-01T00:00:00Z", "-n1"}, 0, "Wed 2026-07-01 09:00:00 CEST", ""},
		{"next with commas", []string{"cron", "next", "0,30 9 * * *", "--from", "2026-07-01T00:00:00Z", "-n2", "-o", "json"}, 0, `"2026-07-01T09:30:00Z"`, ""},
		{"next, unquoted", []string{"cron", "next", "0", "0", "1", "1", "*", "--from", "2026-07-01T00:00:00Z", "-n1", "-o", "json"}, 0, `"2027-01-01T00:00:00Z"`, ""},
		{"next in the cozy dialect", []string{"cron", "next", "0 0 9 ? * MON", "--dialect", "cozy", "--from", "2026-07-01T00:00:00Z", "-n1", "-o", "json"}, 0, "2026-07-06T09:00:00Z", ""},
		{"next until the end", []string{"cron", "next", "0 0 0 1 1 * 2027", "--from", "2026-07-01T00:00:00Z"}, 0, "no more", ""},
		{"bad minute", []string{"cron", "next", "5 61 * * * *"}, 1, "", "allowed minute range"},
		{"caret", []string{"cron", "next", "0 24 * * *"}, 1, "", "    0 24 * * *\n      ^^\n"},
		{"caret below a wide letter", []string{"cron", "next", "é 24 * * *"}, 1, "", "    é 24 * * *\n    ^"},
		{"hint", []string{"cron", "explain", "@hourly"}, 1, "", `hint: use "0 * * * *"`},
		{"leading dash", []string{"cron", "next", "-1 * * * *"}, 1, "", "signs are not supported"},
		{"empty", []string{"cron", "next", ""}, 1, "", "expected 5-7 components"},
		{"never fires", []string{"cron", "next", "0 0 30 2 *"}, 1, "", "could not find next time"},
		{"unknown zone", []string{"cron", "next", "0 0 * * *", "--tz", "Mars/Base"}, 1, "", "unknown time zone"},
		{"no slots asked", []string{"cron", "next", "0 0 * * *", "-n", "0"}, 2, "", "ask for 1 to"},
		{"bad from", []string{"cron", "next", "0 0 * * *", "--from", "noon"}, 2, "", "--from"},
		{"explain", []string{"cron", "explain", "*/5 * * * *"}, 0, "every 5 minutes", ""},
		{"unknown verdict", []string{"runs", "ls", "--verdict", "fine"}, 2, "", "skipped_missed"},
		{"bad instant", []string{"runs", "ls", "--from", "yesterday"}, 2, "", "15m"},
		{"bad url", []string{"ps", "--controller", "localhost"}, 2, "", "http://host:port"},
		{"nobody there", []string{"ps", "--controller", "http://127.0.0.1:1"}, 1, "", "is a controller running at http://127.0.0.1:1? Start a cluster with `carillon dev`"},
		{"no database", []string{"migrate", "status"}, 2, "", "set DATABASE_URL"},
		{"open controller", []string{"controller", "--database-url", "postgres://x/y", "--listen", "0.0.0.0:7800"}, 2, "", "without tokens would let anybody in"},
		{"bad address", []string{"controller", "--database-url", "postgres://x/y", "--listen", "7800"}, 2, "", "127.0.0.1:7800"},
		{"open dev", []string{"dev", "--listen", "0.0.0.0:7800", "."}, 2, "", "it uses no tokens"},
		{"no such module", []string{"dev", "./nowhere"}, 2, "", "./nowhere is no directory"},
		{"no such directory", []string{"schema", "./nowhere"}, 1, "", "carillon: read module ./nowhere: no such file or directory\n"},
		{"build to nowhere", []string{"build", "."}, 2, "", "--out"},
		{"unknown shell", []string{"completion", "tcsh"}, 2, "", "must be one of"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := carillon(t, tc.args...)
			if code != tc.code {
				t.Errorf("code %d, want %d; stderr: %s", code, tc.code, stderr)
			}
			if squeezed := strings.Join(strings.Fields(stdout), ""); !strings.Contains(stdout, tc.stdout) && !strings.Contains(squeezed, tc.stdout) {
				t.Errorf("stdout %q lacks %q", stdout, tc.stdout)
			}
			if !strings.Contains(stderr, tc.stderr) {
				t.Errorf("stderr %q lacks %q", stderr, tc.stderr)
			}
			if tc.code != 0 && stdout != "" {
				t.Errorf("an error printed to stdout: %q", stdout)
			}
		})
	}
}

// The same list that the schedule's own tests pass, through the command line.
func TestCronNextPassesTheConformanceList(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "backend", "core", "schedule", "testdata", "cron.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		ID, Dialect, Expr, TZ, From string
		Next                        []string
		Error, Exhausted            bool
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, tc := range cases {
		code, stdout, stderr := carillon(t, "cron", "next", tc.Expr, "--dialect", tc.Dialect, "--tz", tc.TZ, "--from", tc.From, "-n", "5", "-o", "json")
		if tc.Error {
			if code != exitError || stdout != "" || !strings.HasPrefix(stderr, "carillon: bad schedule: ") {
				t.Errorf("%s %q: code %d, stdout %q, stderr %q; want it refused", tc.ID, tc.Expr, code, stdout, stderr)
			}
			continue
		}
		var got []string
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 {
			t.Errorf("%s %q: code %d, %v, %s", tc.ID, tc.Expr, code, err, stderr)
			continue
		}
		if !tc.Exhausted && len(got) > len(tc.Next) {
			got = got[:len(tc.Next)]
		}
		if !slices.Equal(got, tc.Next) {
			t.Errorf("%s %q:\n got %v\nwant %v", tc.ID, tc.Expr, got, tc.Next)
		}
	}
}

func TestSchemaAndCheckShowEveryFault(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module shop\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "shop.go"), "package shop\n\nimport \"context\"\n\n//carillon:cron 61 * * * *\nfunc Bill(ctx context.Context) error { return nil }\n")
	code, _, stderr := carillon(t, "check", "../../examples/heartbeat", dir)
	if want := "shop.go:5:17"; code != 1 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "^^") {
		t.Errorf("code %d, stderr %q lacks %q and a caret", code, stderr, want)
	}

	write(t, filepath.Join(dir, "shop.go"), "package shop\n\nimport \"context\"\n\n//carillon:cron 0 0 * * *\n//carillon:timeout 10m\nfunc Bill(ctx context.Context) error { return nil }\n")
	if code, stdout, stderr := carillon(t, "schema", dir); code != 0 || stdout != "module shop\nverb bill(Unit) Unit\n  +cron 0 0 * * *\n  +timeout 10m0s\n" {
		t.Errorf("code %d, schema %q, stderr %q", code, stdout, stderr)
	}
	_, stdout, _ := carillon(t, "schema", dir, "-o", "json")
	var got struct {
		Module, Language string
		Verbs            []struct {
			Name, Request string
			Cron          struct{ Schedule, Timeout, Catchup string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Module != "shop" || got.Language != "go" || len(got.Verbs) != 1 || got.Verbs[0].Cron.Timeout != "600s" || got.Verbs[0].Cron.Catchup != "CATCHUP_LAST" {
		t.Errorf("schema %s", stdout)
	}
}

func TestCompletionFollowsTheCommands(t *testing.T) {
	for _, tc := range []struct {
		words []string
		want  string
	}{
		{[]string{"cr"}, "cron"},
		{[]string{"cron", ""}, "ls show pause resume run history next explain"},
		{[]string{"cron", "ls", "-o", ""}, "table json"},
		{[]string{"cron", "ls", "--module", "m", "--r"}, "--removed"},
		{[]string{"completion", ""}, "bash zsh fish"},
		{[]string{"--controller", "x", "ri"}, "ring"},
		{[]string{"deploy", "./"}, ""}, // files
	} {
		code, stdout, _ := carillon(t, append([]string{completeWord}, tc.words...)...)
		if got := strings.Join(strings.Fields(stdout), " "); code != 0 || got != tc.want {
			t.Errorf("after %q: %q, want %q", tc.words, got, tc.want)
		}
	}
	f := startFake(t, &fakeController{jobs: []*carillonv1.CronJob{{Ref: "heartbeat.beat"}, {Ref: "billing.bill"}, {Ref: "evil.\x1b[2J"}}})
	for line, want := range map[string]string{
		"cron show ": "billing.bill heartbeat.beat", "cron pause b": "billing.bill", "runs ls --ref ": "billing.bill heartbeat.beat", "cron ls --module ": "heartbeat",
		"jobs enqueue ": "m.send", "jobs pause --tenant ": "acme default", "jobs ls --state r": "ready running", "jobs enqueue m.send ": "",
	} {
		words := append([]string{completeWord, "--controller", f.url}, strings.Split(line, " ")...)
		if code, stdout, _ := carillon(t, words...); code != 0 || strings.Join(strings.Fields(stdout), " ") != want {
			t.Errorf("after %q: %q, want %q", line, stdout, want)
		}
	}
	for shell := range completionScripts {
		if code, stdout, _ := carillon(t, "completion", shell); code != 0 || !strings.Contains(stdout, completeWord) {
			t.Errorf("%s: code %d, script %q", shell, code, stdout)
		}
	}
}

func TestTextsFromOutsideCannotSteerTheTerminal(t *testing.T) {
	if got, want := clean("a\x1b[2Jb\r\nc\u202ed\xff", 0), "a [2Jb  c d?"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := clean("12345", 4), "123…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDurationsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234 * time.Nanosecond: "1µs", 1234567: "1.2ms", 1234567890: "1.23s", 61*time.Second + 5: "1m1s", -1234567: "-1.2ms",
	} {
		if got := took(d); got != want {
			t.Errorf("took(%d) = %s, want %s", d, got, want)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
