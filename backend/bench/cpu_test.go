package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cpuBy is CPU seconds of processes by kind.
func cpuBy(pid int) map[string]float64 {
	out := map[string]float64{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		rest := string(text[strings.LastIndex(string(text), ")")+2:])
		v := strings.Fields(rest)
		ppid, _ := strconv.Atoi(v[1])
		u, _ := strconv.Atoi(v[11])
		s, _ := strconv.Atoi(v[12])
		cu, _ := strconv.Atoi(v[13])
		cs, _ := strconv.Atoi(v[14])
		p := filepath.Base(filepath.Dir(f))
		kind := "others"
		if p == fmt.Sprint(os.Getpid()) {
			kind = "client"
		} else if ppid == pid {
			cmd, _ := os.ReadFile("/proc/" + p + "/cmdline")
			kind = "backend"
			for _, k := range []string{"autovacuum", "walwriter", "checkpointer", "background", "logical"} {
				if strings.Contains(string(cmd), k) {
					kind = k
				}
			}
		} else if p == fmt.Sprint(pid) {
			kind, u, s = "backend", u+cu, s+cs
		}
		out[kind+".u"] += float64(u) / 100
		out[kind+".s"] += float64(s) / 100
	}
	return out
}
