package main

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starts is a thread that starts children and never ends: Linux kills a child when the thread that started it is gone, not
// the process, and Go ends threads when it likes.
var starts = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// tie starts the command so that the kernel kills it when we die, however we go.
func tie(cmd *exec.Cmd) (untie func(), err error) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error)
	starts() <- func() { done <- cmd.Start() }
	return func() {}, <-done
}
