package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is where the figures come from.
type Machine struct {
	Cores    int    `json:"cores"`
	CPU      string `json:"cpu,omitempty"`
	OS       string `json:"os"`
	Go       string `json:"go"`
	Postgres string `json:"postgres"`
	Load     string `json:"load_before,omitempty"` // of the machine, before the benchmark
}

// shown are the settings of Postgres that a figure depends on.
var shown = []string{
	"shared_buffers", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "max_wal_size", "min_wal_size", "checkpoint_timeout",
	"autovacuum", "max_connections", "jit", "plan_cache_mode",
}

func (b *bench) describe(ctx context.Context) (Machine, map[string]string, error) {
	m := Machine{Cores: runtime.NumCPU(), CPU: cpuModel(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(text), " ")
	}
	if err := b.admin.QueryRow(ctx, "SHOW server_version").Scan(&m.Postgres); err != nil {
		return m, nil, fmt.Errorf("ask the version of postgres: %w", err)
	}
	set := map[string]string{}
	for _, name := range shown {
		var value string
		if err := b.admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return m, nil, fmt.Errorf("ask for the setting %s: %w", name, err)
		}
		set[name] = value
	}
	if set["fsync"] != "on" || set["synchronous_commit"] != "on" {
		return m, nil, fmt.Errorf("the server is not durable (fsync %s, synchronous_commit %s): its figures mean nothing", set["fsync"], set["synchronous_commit"])
	}
	return m, set, nil
}

// cpuModel is what Linux calls the processor; empty where nobody says.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
