package main

import (
	"context"
	"fmt"

	carillonv1 "carillon/proto/carillon/v1"
)

// controllersCmd lists the controllers of the cluster.
type controllersCmd struct {
	listing
	All bool `help:"Also those that left."`
}

type controllerJSON struct {
	Key         string  `json:"key"`
	Endpoint    string  `json:"endpoint"`
	State       string  `json:"state"`
	Host        string  `json:"host"`
	PID         int32   `json:"pid"`
	Version     string  `json:"version"`
	Executing   int32   `json:"executing"`
	StartedAt   *string `json:"started_at"`
	HeartbeatAt *string `json:"heartbeat_at"`
	AliveSince  *string `json:"alive_since"`
}

func (c *controllersCmd) Help() string {
	return `Examples:

  carillon controllers
  carillon controllers --all -o json`
}

func (c *controllersCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.cluster.ListControllers(ctx, &carillonv1.ListControllersRequest{All: c.All})
	if err != nil {
		return fmt.Errorf("list controllers: %w", err)
	}
	rows := list(resp.GetControllers(), func(m *carillonv1.Controller) controllerJSON {
		return controllerJSON{m.GetKey(), m.GetEndpoint(), m.GetState(), m.GetHost(), m.GetPid(), m.GetVersion(), m.GetExecuting(),
			stamp(m.GetStartedAt()), stamp(m.GetHeartbeatAt()), stamp(m.GetAliveSince())}
	})
	return c.print(a, rows, func() {
		a.table([]string{"key", "endpoint", "state", "host", "pid", "version", "executing", "started (UTC)", "heartbeat (UTC)"},
			list(resp.GetControllers(), func(m *carillonv1.Controller) []string {
				colour := yellow
				if m.GetState() == "live" {
					colour = green
				}
				return []string{m.GetKey(), m.GetEndpoint(), a.paint(colour, m.GetState()), clean(m.GetHost(), 40), fmt.Sprint(m.GetPid()),
					m.GetVersion(), fmt.Sprint(m.GetExecuting()), when(m.GetStartedAt()), when(m.GetHeartbeatAt())}
			}))
	})
}
