//go:build !linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// guardScript waits for a line that says the child has ended by itself. When the pipe closes without one, we are dead, and
// the child shall be.
const guardScript = `trap '' HUP INT QUIT TERM
read -r line || kill -KILL "$1" 2>/dev/null`

// tie starts the command beside a shell that kills it when we die: the shell reads a pipe of which only we hold the other
// end.
func tie(cmd *exec.Cmd) (untie func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, abandon(cmd, err)
	}
	defer r.Close()
	guard := exec.Command("/bin/sh", "-c", guardScript, "carillon-guard", strconv.Itoa(cmd.Process.Pid))
	guard.Stdin, guard.SysProcAttr = r, &syscall.SysProcAttr{Setsid: true}
	if err := guard.Start(); err != nil {
		w.Close()
		return nil, abandon(cmd, err)
	}
	return func() {
		_, _ = w.WriteString("ended\n")
		w.Close()
		_ = guard.Wait()
	}, nil
}

func abandon(cmd *exec.Cmd, err error) error {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return fmt.Errorf("guard the process: %w", err)
}
