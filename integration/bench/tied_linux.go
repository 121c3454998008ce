package main

import "syscall"

// tied ends a child with this process, however that goes.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
