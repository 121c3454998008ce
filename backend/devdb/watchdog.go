package devdb

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// A watchdog is a small shell process that ends the server when this process is gone, however it went. It reads a pipe
// whose other end only we hold: the kernel closes that when we die, by exit, panic or kill -9. It works the same on every
// Unix, and unlike Linux's parent-death signal it does not depend on a thread staying alive.
//
// The last line read is the pid to stop, or "none". Arguments: the server's postmaster.pid, which it removes last of all
// (its pid may stay for long as a zombie where nobody reaps orphans), and a directory to remove at the end, or "".
const watchdogScript = `
trap '' HUP INT QUIT TERM
pid=none
while read -r line; do pid=$line; done
if [ "$pid" != none ] && kill -INT "$pid" 2>/dev/null; then
	n=0
	while [ -e "$1" ] && kill -0 "$pid" 2>/dev/null && [ $n -lt 200 ]; do
		n=$((n + 1))
		[ $n -eq 100 ] && kill -QUIT "$pid" 2>/dev/null
		[ $n -eq 150 ] && kill -KILL "$pid" 2>/dev/null
		sleep 0.1 2>/dev/null || sleep 1
	done
fi
[ -z "$2" ] || rm -rf -- "$2"
`

// gateScript becomes Postgres only after it is told to. Between the fork and the moment when the watchdog knows the pid
// we may be killed; then the gate's pipe closes and no server was started.
const gateScript = `read -r go && exec "$0" "$@" </dev/null`

type watchdog struct {
	cmd     *exec.Cmd
	line    *os.File
	done    chan struct{}
	closing atomic.Bool
}

func newWatchdog(pidPath, remove string, log *slog.Logger) (*watchdog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "carillon-postgres-watchdog", pidPath, remove)
	cmd.Stdin = r
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of a signal to our group
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	d := &watchdog{cmd: cmd, line: w, done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		if !d.closing.Load() {
			log.Error("postgres watchdog ended", "error", err, "consequence", "the server may outlive this process")
		}
		close(d.done)
	}()
	return d, nil
}

// guard names the process to stop when we are gone.
func (d *watchdog) guard(pid int) error {
	if _, err := d.line.WriteString(strconv.Itoa(pid) + "\n"); err != nil {
		return fmt.Errorf("tell the watchdog: %w", err)
	}
	return nil
}

// release says that no server lives. A watchdog that is gone need not be told.
func (d *watchdog) release() { _, _ = d.line.WriteString("none\n") }

// close ends the watchdog. The caller has seen the server end.
func (d *watchdog) close() error {
	d.closing.Store(true)
	d.line.Close()
	select {
	case <-d.done:
		return nil
	case <-time.After(quitBound):
		return errors.Join(errors.New("postgres watchdog does not end"), d.cmd.Process.Kill())
	}
}
