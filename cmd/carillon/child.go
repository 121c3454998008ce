package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// A child is a process that we started and that ends with us, even when we are killed with -9 (see tie). It has a process
// group of its own, so that a Ctrl-C in the terminal reaches us alone and we decide the order of the end.
type child struct {
	cmd   *exec.Cmd
	untie func()
}

// startChild starts a prepared command.
func startChild(cmd *exec.Cmd) (*child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	untie, err := tie(cmd)
	if err != nil {
		return nil, err
	}
	return &child{cmd: cmd, untie: untie}, nil
}

func (c *child) PID() int { return c.cmd.Process.Pid }

// Wait returns when the process has ended; it is called once.
func (c *child) Wait() error {
	defer c.untie()
	return c.cmd.Wait()
}

// Terminate asks the process to end.
func (c *child) Terminate() { _ = c.cmd.Process.Signal(syscall.SIGTERM) }

// Kill ends the process at once.
func (c *child) Kill() { _ = c.cmd.Process.Kill() }

// withEnv returns an environment in which the given variables are set, or unset where nothing follows the =.
func withEnv(env []string, set ...string) []string {
	env = slices.Clone(env)
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if value != "" {
			env = append(env, s)
		}
	}
	return env
}

// withoutOurs is an environment without the variables that steer carillon itself, which children get by flags.
func withoutOurs(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		return strings.HasPrefix(e, "CARILLON_") && !strings.HasPrefix(e, "CARILLON_SDK=")
	})
}

// environ is the environment of a child of ours.
func environ(set ...string) []string { return withEnv(withoutOurs(os.Environ()), set...) }
