package devdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// takeLock locks the file as long as it is open. The kernel gives it free when the process ends, however it ends.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, 20))
		err = fmt.Errorf("%w: %s belongs to the running process %s: stop that one, or give this one another data directory",
			ErrInUse, filepath.Dir(path), strings.TrimSpace(string(holder)))
	} else if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	return f, nil
}

// postmaster reads what the server writes about itself into its data directory: the pid and, once there, "starting",
// "ready", "stopping" or "standby". Zero without such a file.
func (c *cluster) postmaster() (pid int, status string) {
	text, err := os.ReadFile(c.pidPath())
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(text), "\n")
	pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	if len(lines) >= 8 {
		status = strings.TrimSpace(lines[7])
	}
	return pid, status
}

func (c *cluster) pidPath() string { return filepath.Join(c.dir, "postmaster.pid") }

// settle deals with the postmaster.pid of an earlier start. We hold the lock, so nobody else runs this cluster: a server
// still living there lost its owner and is about to be stopped by its watchdog.
func (c *cluster) settle(ctx context.Context, log *slog.Logger) error {
	pid, _ := c.postmaster()
	if fi, err := os.Stat(c.pidPath()); err == nil && fi.Size() == 0 {
		// A crash of the machine leaves this. Postgres would ask a person whether another server is just starting.
		return os.Remove(c.pidPath())
	}
	if pid == 0 || !alive(pid) {
		return nil // Postgres replaces the file itself, after a look at the shared memory it names
	}
	if !strings.Contains(commandLine(ctx, pid), c.dir) {
		return c.disown()
	}
	log.InfoContext(ctx, "postgres of an earlier process is stopped", "pid", pid, "dir", c.dir)
	for _, step := range fast[:2] {
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop postgres (pid %d) of an earlier process: %w", pid, err)
		}
		if gone(ctx, pid, step.wait) {
			return nil
		}
	}
	return fmt.Errorf("postgres (pid %d) of an earlier process still runs on %s", pid, c.dir)
}

// disown replaces, in postmaster.pid, a pid that now belongs to some other program, at which Postgres would refuse to
// start. Removing the file would also remove Postgres's own check for orphaned children by the shared memory named in it;
// the pid of its parent, ours, is one that it takes for stale and goes on checking.
func (c *cluster) disown() error {
	text, err := os.ReadFile(c.pidPath())
	if err == nil {
		_, rest, _ := strings.Cut(string(text), "\n")
		err = os.WriteFile(c.pidPath(), []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600)
	}
	if err != nil {
		return fmt.Errorf("mend a stale postmaster.pid: %w", err)
	}
	return nil
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// gone waits until a process that is not our child has ended.
func gone(ctx context.Context, pid int, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for alive(pid) && commandLine(ctx, pid) != "" { // a zombie has no command line
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// commandLine is how a process was started; "" when that cannot be known.
func commandLine(ctx context.Context, pid int) string {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
		return strings.ReplaceAll(string(text), "\x00", " ")
	}
	said, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(said)
}
