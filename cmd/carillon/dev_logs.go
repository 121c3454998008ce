package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// logged is a child whose output is kept in a file.
type logged struct {
	*child
	file *os.File
}

func (l logged) Wait() error {
	defer l.file.Close()
	return l.child.Wait()
}

// start starts a child whose output goes to a log of its own, and to the terminal when that is wanted.
func (d *dev) start(log string, env []string, binary string, args ...string) (process, error) {
	file, err := os.OpenFile(d.logFile(log), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, file, file, time.Second
	if d.verbose != nil {
		both := io.MultiWriter(file, &prefixed{prefix: log + ": ", to: d.verbose})
		cmd.Stdout, cmd.Stderr = both, both // the same writer, so that one goroutine writes
	}
	c, err := startChild(cmd)
	if err != nil {
		file.Close()
		return nil, err
	}
	return logged{c, file}, nil
}

func (d *dev) logFile(log string) string { return filepath.Join(d.data, "logs", log+".log") }

// setAside keeps the logs of the start before under another name, and removes the binaries of one that was killed. The
// caller holds the data directory.
func (d *dev) setAside() {
	binaries, _ := filepath.Glob(filepath.Join(d.data, "runners", "*"))
	for _, binary := range binaries {
		_ = os.Remove(binary)
	}
	logs, _ := filepath.Glob(d.logFile("*"))
	for _, log := range logs {
		_ = os.Rename(log, log+".1")
	}
}

// report shows what happened to a process, with the end of its log when it died by its own fault.
func (d *dev) report(c change, log string) {
	switch {
	case c.running && c.again:
		d.screen.event(green, "%s", c)
	case c.running:
		d.screen.event(blue, "%s", c)
	default:
		d.screen.event(red, "%s", c)
		if c.stuck || c.err != nil && strings.Contains(c.err.Error(), "signal: killed") {
			return
		}
		for _, line := range logTail(d.logFile(log), 3) {
			d.screen.text("    " + line)
		}
		d.screen.text("    see " + d.logFile(log))
	}
}

// logTail returns the last lines of a log.
func logTail(file string, most int) []string {
	const window = 8 << 10
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, max(0, fi.Size()-window), window))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-most):]
	for i := range lines {
		lines[i] = clean(lines[i], 300)
	}
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines
}

// prefixed writes whole lines, each behind a prefix. One goroutine uses it.
type prefixed struct {
	prefix string
	to     io.Writer
	rest   []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	const longest = 64 << 10
	p.rest = append(p.rest, b...)
	for {
		line, rest, found := bytes.Cut(p.rest, []byte("\n"))
		if !found && len(p.rest) < longest {
			return len(b), nil
		}
		fmt.Fprintf(p.to, "%s%s\n", p.prefix, line)
		p.rest = append(p.rest[:0], rest...)
	}
}

// eventWriter shows each line that a logger of ours writes as an event.
type eventWriter struct{ s *screen }

func (w eventWriter) Write(b []byte) (int, error) {
	w.s.event(yellow, "%s", clean(string(b), 0))
	return len(b), nil
}
