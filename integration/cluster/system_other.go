//go:build !linux

package cluster

import (
	"os/exec"
	"time"
)

func startTied(cmd *exec.Cmd) error { return cmd.Start() }

func threadCPU() (time.Duration, bool) { return 0, false }
