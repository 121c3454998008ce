package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong is said once: what was tried, on what, why, and what to do.
func TestErrorsOfJobsAreOneSentence(t *testing.T) {
	f := startFake(t, &fakeController{})
	large := filepath.Join(t.TempDir(), "large.json")
	write(t, large, `"`+strings.Repeat("x", maxPayload)+`"`)
	for _, tc := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"show", "xxx"}, "carillon: show job: \"xxx\" is no job id\nhint: an id looks like j10jva1x4; `carillon jobs ls` lists them\n"},
		{[]string{"cancel", "xxx"}, "carillon: cancel job: \"xxx\" is no job id\nhint: an id looks like j10jva1x4; `carillon jobs ls` lists them\n"},
		{[]string{"show", "long"}, "carillon: show job: \"long\" is no job id\nhint: an id looks like j10jva1x4; `carillon jobs ls` lists them\n"},
		{[]string{"retry", "gone"}, "carillon: retry job gone: there is none\nhint: `carillon jobs ls` lists the jobs that are kept\n"},
		{[]string{"redrive", "ended"}, "carillon: re-drive job ended: ended has ended: succeeded\n"},
		{[]string{"enqueue", "m.v", "@" + large}, "carillon: enqueue m.v: payload: has more than 1048576 bytes, and at most that many are accepted\nhint: keep what is large elsewhere, and enqueue where it is found\n"},
		{[]string{"enqueue", "m.v", "@/nowhere"}, "carillon: enqueue m.v: read the payload: open /nowhere: no such file or directory\n"},
	} {
		code, stdout, stderr := carillon(t, append([]string{"jobs", "--controller", f.url}, tc.args...)...)
		if code != exitError || stdout != "" || stderr != tc.stderr {
			t.Errorf("%v: code %d, stdout %q, stderr %q, want %q", tc.args, code, stdout, stderr, tc.stderr)
		}
	}
	stdin(t, "{}\n"+strings.Repeat("x", bulkLine+1))
	if code, _, stderr := carillon(t, "jobs", "--controller", f.url, "enqueue", "m.v", "--bulk", "-"); code != exitError || !strings.Contains(stderr, "line 2 has more than ") || !strings.Contains(stderr, "payload of a job at most 1048576") {
		t.Errorf("code %d, %q", code, stderr)
	}
}

// Postgres that is away is told in one line, with what to look at.
func TestADatabaseThatIsAwayIsOneLine(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://ann@127.0.0.1:1/bells": "carillon: migrate the database: unavailable: connect to database \"bells\" as \"ann\": 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused\nhint: is Postgres running, and is the database URL right?\n",
		"nope":                             "carillon: migrate the database: read the database URL: cannot parse `nope`: failed to parse as keyword/value (invalid keyword/value)\n",
	} {
		if code, _, stderr := carillon(t, "migrate", "up", "--database-url", url); code != exitError || stderr != want {
			t.Errorf("%s: code %d, %q, want %q", url, code, stderr, want)
		}
	}
}
