//go:build !linux

package main

import "syscall"

// tied needs Linux: elsewhere a child outlives a bench that is killed.
func tied() *syscall.SysProcAttr { return nil }
