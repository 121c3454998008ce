package devdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one running postmaster. Its goroutine is the only writer of err, before it closes done.
type process struct {
	pid      int
	cmd      *exec.Cmd
	done     chan struct{}
	err      error
	expected atomic.Bool // its end is no news: it is not ready yet, or is being stopped
}

// stopStep is a signal and how long to wait for its effect.
type stopStep struct {
	signal syscall.Signal
	wait   time.Duration
}

// Postgres's own meanings: SIGINT cuts off clients and writes a checkpoint, SIGQUIT ends as a crash would.
var (
	fast      = []stopStep{{syscall.SIGINT, fastBound}, {syscall.SIGQUIT, quitBound}, {syscall.SIGKILL, quitBound}}
	immediate = []stopStep{{syscall.SIGQUIT, fastBound}, {syscall.SIGKILL, quitBound}}
)

// start launches the server and waits until it accepts connections. The first start chooses a port when none is asked
// for, and another one if somebody was quicker to take it; later starts keep it.
func (c *cluster) start(ctx context.Context, dog *watchdog, log *slog.Logger) (*process, error) {
	chosen := c.port != 0
	for attempt := 1; ; attempt++ {
		if !chosen {
			c.port = freePort()
		}
		from := c.logSize()
		p, err := c.launch(dog, log)
		if err != nil {
			return nil, err
		}
		if err = c.waitReady(ctx, p); err == nil {
			return p, nil
		}
		err = errors.Join(err, p.stop(immediate))
		tail := c.logTail(from)
		// A postmaster that was killed leaves its children for a moment.
		again := strings.Contains(tail, "shared memory block") && strings.Contains(tail, "still in use") ||
			!chosen && strings.Contains(tail, "could not bind")
		if !again || attempt == 20 || ctx.Err() != nil {
			return nil, fmt.Errorf("%w%s", err, tail)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *cluster) launch(dog *watchdog, log *slog.Logger) (*process, error) {
	out, err := os.OpenFile(c.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	defer out.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("launch postgres: %w", err)
	}
	defer gate.Close()
	defer open.Close()

	args := append([]string{"-c", gateScript, c.bin.path("postgres"), "-D", c.dir}, c.settings()...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = gate, out, out
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.dir, environment(), c.account.attr()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("launch postgres: %w", err)
	}
	p := &process{pid: cmd.Process.Pid, cmd: cmd, done: make(chan struct{})}
	p.expected.Store(true)
	if err := dog.guard(p.pid); err != nil {
		open.Close() // the gate ends without having become a server
		return nil, errors.Join(err, cmd.Wait())
	}
	_, err = open.WriteString("go\n")
	go p.watch(dog, log, c.logPath())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("launch postgres: %w", err), p.stop(immediate))
	}
	return p, nil
}

func (p *process) watch(dog *watchdog, log *slog.Logger, logPath string) {
	p.err = p.cmd.Wait()
	dog.release() // from here on the pid may become somebody else's
	if !p.expected.Load() {
		log.Error("postgres ended", "pid", p.pid, "error", p.err, "log", logPath)
	}
	close(p.done)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// waitReady polls postmaster.pid, as pg_ctl does. Connecting instead could reach a stranger that took the port first.
func (c *cluster) waitReady(ctx context.Context, p *process) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if pid, status := c.postmaster(); pid == p.pid && status == "ready" {
			p.expected.Store(false)
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("postgres ended before it was ready: %w", errors.Join(p.err, ctx.Err()))
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres to accept connections: %w", ctx.Err())
		}
	}
}

// stop goes through the steps until the process has ended, which is success however it ended.
func (p *process) stop(how []stopStep) error {
	p.expected.Store(true)
	for _, step := range how {
		if err := p.cmd.Process.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop postgres (pid %d) with %s: %w", p.pid, step.signal, err)
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(step.wait):
		}
	}
	return fmt.Errorf("stop postgres (pid %d): it did not end", p.pid)
}

// environment gives the server what it needs and nothing of ours: no PG variables, no secrets, no locale.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// freePort prefers ports below the range that systems give to outgoing connections: such a port cannot be taken by a
// client while the server is down between a stop and a restart.
func freePort() int {
	for range 50 {
		port := 20000 + rand.IntN(10000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 5432 // Postgres will say why it cannot have it
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (c *cluster) logSize() int64 {
	fi, err := os.Stat(c.logPath())
	if err != nil {
		return 0
	}
	return fi.Size()
}

// logTail returns the end of what the server wrote since an offset, for an error message.
func (c *cluster) logTail(from int64) string {
	const most = 4 << 10
	f, err := os.Open(c.logPath())
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.NewSectionReader(f, max(from, c.logSize()-most), most))
	said := strings.TrimSpace(string(text))
	if said == "" {
		return "; its log is empty"
	}
	return "; the end of its log:\n" + said
}
