package cluster

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter is a thread that starts the children and never ends: Linux ends a child with the thread that started it, and
// Go ends threads when it likes.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	done := make(chan error)
	starter() <- func() { done <- cmd.Start() }
	return <-done
}
