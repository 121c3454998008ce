package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is what /proc counts processor time in: USER_HZ, 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// DatabaseCPU is the processor time that all of Postgres has taken since its start, the processes that have ended
// included. It needs /proc; elsewhere it is 0.
func (c *Cluster) DatabaseCPU() time.Duration {
	postmaster := c.DB.PID()
	for {
		total, _, _ := processCPU(postmaster)
		before := total
		files, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, f := range files {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if cpu, parent, ok := processCPU(pid); ok && parent == postmaster {
				total += cpu
			}
		}
		if after, _, ok := processCPU(postmaster); !ok || after == before { // otherwise one ended in between, and is counted twice or not
			return total
		}
	}
}

// processCPU reads the time of a process and of the children that it has buried, and its parent.
func processCPU(pid int) (cpu time.Duration, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the name stands in parentheses and may hold anything
	if len(fields) < 15 {
		return 0, 0, false
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	for _, f := range fields[11:15] { // in user mode and in the kernel: its own, and its buried children's
		n, _ := strconv.ParseInt(string(f), 10, 64)
		cpu += time.Duration(n) * tick
	}
	return cpu, parent, true
}
