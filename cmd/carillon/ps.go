package main

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	carillonv1 "carillon/proto/carillon/v1"
)

// psCmd lists deployments and their runners.
type psCmd struct {
	listing
	All bool `help:"Also superseded deployments."`
}

type deploymentJSON struct {
	Deployment  string       `json:"deployment"`
	Module      string       `json:"module"`
	Language    string       `json:"language"`
	Digest      string       `json:"digest"`
	Replicas    int32        `json:"replicas"`
	Active      bool         `json:"active"`
	CronJobs    int32        `json:"cron_jobs"`
	CreatedAt   *string      `json:"created_at"`
	ActivatedAt *string      `json:"activated_at"`
	Runners     []runnerJSON `json:"runners"`
}

type runnerJSON struct {
	Key          string  `json:"key"`
	Endpoint     string  `json:"endpoint"`
	Capacity     uint32  `json:"capacity"`
	Stream       bool    `json:"stream"`
	RegisteredAt *string `json:"registered_at"`
	HeartbeatAt  *string `json:"heartbeat_at"`
}

func deploymentRow(d *carillonv1.Deployment) deploymentJSON {
	return deploymentJSON{
		Deployment: d.GetKey(), Module: d.GetModule(), Language: d.GetLanguage(), Digest: d.GetDigest(), Replicas: d.GetReplicas(),
		Active: d.GetActive(), CronJobs: d.GetCronJobs(), CreatedAt: stamp(d.GetCreatedAt()), ActivatedAt: stamp(d.GetActivatedAt()),
		Runners: list(d.GetRunners(), func(r *carillonv1.Runner) runnerJSON {
			return runnerJSON{r.GetKey(), r.GetEndpoint(), r.GetCapacity(), r.GetStream(), stamp(r.GetRegisteredAt()), stamp(r.GetHeartbeatAt())}
		}),
	}
}

func (c *psCmd) Help() string {
	return `Examples:

  carillon ps
  carillon ps --all -o json | jq -r .[].deployment`
}

func (c *psCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.deploy.ListDeployments(ctx, &carillonv1.ListDeploymentsRequest{All: c.All})
	if err != nil {
		return fmt.Errorf("list deployments: %w", err)
	}
	return c.print(a, list(resp.GetDeployments(), deploymentRow), func() {
		if len(resp.GetDeployments()) == 0 {
			fmt.Fprintln(a.stderr, "nothing is deployed; deploy a module with `carillon deploy DIR`")
			return
		}
		a.table([]string{"module", "deployment", "language", "active", "cron jobs", "replicas", "runners", "activated (UTC)"},
			list(resp.GetDeployments(), func(d *carillonv1.Deployment) []string {
				runners := fmt.Sprint(len(d.GetRunners()))
				if d.GetActive() && d.GetReplicas() > 0 && len(d.GetRunners()) == 0 {
					runners = a.paint(red, "none")
				}
				return []string{d.GetModule(), d.GetKey(), d.GetLanguage(), fmt.Sprint(d.GetActive()), fmt.Sprint(d.GetCronJobs()),
					fmt.Sprint(d.GetReplicas()), runners, when(d.GetActivatedAt())}
			}))
	})
}

// scaleCmd sets the number of runners wanted.
type scaleCmd struct {
	listing
	Module   string `arg:"" help:"The module."`
	Replicas int32  `arg:"" name:"n" help:"Runners wanted; 0 stops all starts at once."`
}

func (c *scaleCmd) Help() string {
	return `Examples:

  carillon scale heartbeat 2
  carillon scale heartbeat 0`
}

func (c *scaleCmd) Run(ctx context.Context, a *app, r *remote) error {
	if c.Replicas < 0 {
		return usage{fmt.Errorf("%d runners cannot be had", c.Replicas)}
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.deploy.Scale(ctx, &carillonv1.ScaleRequest{Module: c.Module, Replicas: c.Replicas})
	if err != nil {
		return noModule(fmt.Sprintf("scale %s to %d", c.Module, c.Replicas), err)
	}
	d := resp.GetDeployment()
	return c.print(a, deploymentRow(d), func() {
		if d.GetReplicas() == 0 {
			showStopped(a, c.Module, d)
			return
		}
		fmt.Fprintf(a.stdout, "%s (%s) wants %s\n", c.Module, d.GetKey(), plural(int(d.GetReplicas()), "runner"))
	})
}

// killCmd stops all starts of a module.
type killCmd struct {
	listing
	Module string `arg:"" help:"The module."`
}

func (c *killCmd) Help() string {
	return `What runs goes on to its end. Until the module is scaled up again its slots are skipped, and its jobs wait.

Examples:

  carillon kill heartbeat
  carillon scale heartbeat 1`
}

func (c *killCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.deploy.Kill(ctx, &carillonv1.KillRequest{Module: c.Module})
	if err != nil {
		return noModule("kill "+c.Module, err)
	}
	d := resp.GetDeployment()
	return c.print(a, deploymentRow(d), func() { showStopped(a, c.Module, d) })
}

func showStopped(a *app, module string, d *carillonv1.Deployment) {
	fmt.Fprintf(a.stdout, "%s (%s) starts nothing any more; `carillon scale %s 1` lets it start again\n", module, d.GetKey(), module)
}

// noModule adds to an error what to do about a module that is not there.
func noModule(tried string, err error) error {
	if ce, ok := errors.AsType[*connect.Error](err); ok && ce.Code() == connect.CodeNotFound {
		return mend(fmt.Errorf("%s: %s", tried, clean(ce.Message(), 0)), "`carillon ps` lists the modules")
	}
	return fmt.Errorf("%s: %w", tried, err)
}
