package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is what /proc counts processor time in (USER_HZ, 100 on every Linux that Go runs on).
const tick = 10 * time.Millisecond

// treeCPU is the processor time of a process, of its children and of those that it has buried: for the postmaster, all
// of Postgres since its start. It needs Linux; elsewhere it is 0.
func treeCPU(pid int) time.Duration {
	for {
		own, _, ok := procStat(pid)
		total := own + childrenCPU(pid)
		if again, _, _ := procStat(pid); !ok || again == own { // otherwise a child ended in between
			return total
		}
	}
}

func childrenCPU(pid int) (total time.Duration) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			continue
		}
		if t, parent, ok := procStat(child); ok && parent == pid {
			total += t
		}
	}
	return total
}

// procStat reads the time of one process with its buried children, and its parent.
func procStat(pid int) (cpu time.Duration, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	// The name stands in parentheses and may hold anything.
	i := strings.LastIndexByte(string(text), ')')
	if i < 0 {
		return 0, 0, false
	}
	fields := strings.Fields(string(text[i+1:]))
	if len(fields) < 15 {
		return 0, 0, false
	}
	parent, _ = strconv.Atoi(fields[1])
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(f, 10, 64)
		cpu += time.Duration(n) * tick
	}
	return cpu, parent, true
}

// thisCPU is the processor time of this process.
func thisCPU() time.Duration {
	own, _, _ := procStat(os.Getpid())
	return own
}
