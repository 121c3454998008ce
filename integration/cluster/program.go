package cluster

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// StartProgram starts a runner that is no binary of ours, with the cluster's controllers and token in its environment, and
// waits until it has said a text. It ends with us.
func (c *Cluster) StartProgram(t testing.TB, says, program string, args ...string) *Runner {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("program-%d", c.name())
	r := &Runner{process: new(process), Key: key}
	c.mu.Lock()
	c.runners = append(c.runners, r)
	c.mu.Unlock()
	if err := c.launch(r.process, key, path, []string{"CARILLON_CONTROLLER=" + c.URLs(), "CARILLON_CLUSTER_TOKEN=" + c.token}, args...); err != nil {
		t.Fatal(err)
	}
	if _, err := r.logged(says, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	return r
}
