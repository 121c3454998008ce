package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// runCmd builds a module and serves its verbs.
type runCmd struct {
	Dir              string        `arg:"" help:"Directory of the module's source."`
	Listen           string        `env:"CARILLON_LISTEN" default:"127.0.0.1:0" placeholder:"ADDR" help:"Address to serve the verbs on (default ${default})."`
	Advertise        string        `env:"CARILLON_ADVERTISE" placeholder:"URL" help:"URL under which controllers reach this runner."`
	Capacity         int           `env:"CARILLON_CAPACITY" default:"100" placeholder:"N" help:"Calls in flight (default ${default})."`
	Deploy           bool          `env:"CARILLON_DEPLOY" default:"true" negatable:"" help:"Deploy the schema at the start if this build was never deployed (default; --no-deploy does not)."`
	Drain            time.Duration `env:"CARILLON_DRAIN" default:"25s" placeholder:"DURATION" help:"How long calls in flight may go on after a stop (default ${default})."`
	ClusterToken     string        `env:"CARILLON_CLUSTER_TOKEN" placeholder:"TOKEN" help:"Cluster token. Prefer the environment: flags can be read by others."`
	ClusterTokenFile string        `env:"CARILLON_CLUSTER_TOKEN_FILE" placeholder:"FILE" help:"File that holds the cluster token."`
}

func (c *runCmd) Help() string {
	return `--controller may name several controllers, separated by commas.

Examples:

  carillon run ./examples/heartbeat
  carillon run ./billing --controller http://ctl-1:7800,http://ctl-2:7800 --listen 10.0.0.5:7900`
}

// Run ends with the runner. The first signal is passed on to it, so that it drains; a second one ends both at once.
func (c *runCmd) Run(ctx context.Context, a *app, r *remote) error {
	token, err := readToken(c.ClusterToken, c.ClusterTokenFile)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "carillon-run-")
	if err != nil {
		return fmt.Errorf("make a directory for the runner: %w", err)
	}
	defer os.RemoveAll(temp)
	binary := filepath.Join(temp, "runner")
	if _, err := buildModule(ctx, a.stderr, c.Dir, binary); err != nil {
		return err
	}
	cmd := exec.Command(binary, c.args(r.URL)...)
	cmd.Env = withEnv(os.Environ(), "CARILLON_CLUSTER_TOKEN="+token, "CARILLON_CLUSTER_TOKEN_FILE=")
	cmd.Stdout, cmd.Stderr = a.stdout, a.stderr
	cmd.WaitDelay = time.Second

	p, err := startChild(cmd)
	if err != nil {
		return fmt.Errorf("start the runner: %w", err)
	}
	// The second signal needs no code: it ends us, and the runner is tied to us.
	defer context.AfterFunc(ctx, p.Terminate)()
	if err := p.Wait(); err != nil {
		return fmt.Errorf("the runner ended: %w", err)
	}
	return nil
}

// args is the command line of the SDK's runner.
func (c *runCmd) args(controllers string) []string {
	args := []string{"--controller", controllers, "--listen", c.Listen, "--capacity", fmt.Sprint(c.Capacity),
		"--drain", c.Drain.String(), fmt.Sprintf("--deploy=%t", c.Deploy)}
	if c.Advertise != "" {
		args = append(args, "--advertise", c.Advertise)
	}
	return args
}
