package cluster

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
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

// threadCPU is the processor time of the calling thread.
func threadCPU() (time.Duration, bool) {
	const ofThread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	err := syscall.Getrusage(ofThread, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err == nil
}
