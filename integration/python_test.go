package integration

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"carillon/integration/cluster"
)

// TestARunnerInAnotherLanguage: a runner in plain Python registers, deploys itself, takes a job of each kind and drains.
func TestARunnerInAnotherLanguage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here: install it to run this test")
	}
	c := settled(t)
	r := c.StartProgram(t, "registered", "python3", "../examples/python-runner/runner.py", "--deploy")
	defer r.Kill()
	k := c.Any(t)
	enqueue := func(payload string) (string, int) {
		return c.CLI(t, k, "", "jobs", "enqueue", "wordcount.count", payload, "--wait", "--attempts", "1")
	}
	var out string
	var code int
	cluster.Eventually(t, 20*time.Second, "the first job is done", func() error {
		if out, code = enqueue(`{"text":"so much depends upon"}`); code != 0 {
			return errString(out)
		}
		return nil
	})
	if !strings.Contains(out, `"words":4`) && !strings.Contains(out, `"words": 4`) {
		t.Errorf("the answer is %s", out)
	}
	if out, code := enqueue(`{"text":"  "}`); code != 1 || !strings.Contains(out, "there is no word in it") {
		t.Errorf("a failure: exit code %d, %s", code, out)
	}
	if out, code := enqueue(`{"text":7}`); code == 0 || !strings.Contains(out, "payload.text: expected string, got number") {
		t.Errorf("a request that does not fit: exit code %d, %s", code, out)
	}
	c.StopRunner(t, r)
}

type errString string

func (e errString) Error() string { return string(e) }
