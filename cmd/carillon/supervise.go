package main

import (
	"context"
	"fmt"
	"time"
)

// How a process that died is started again, and how one is asked to end.
const (
	firstPause = 250 * time.Millisecond // before the first restart
	lastPause  = 5 * time.Second        // and at most
	steady     = 10 * time.Second       // a process that lived so long begins anew with firstPause
	stopGrace  = 3500 * time.Millisecond
	killGrace  = time.Second // after a kill, until we stop waiting
)

// process is a running child.
type process interface {
	PID() int
	Wait() error // called once
	Terminate()
	Kill()
}

// supervisor keeps one process running: it starts it, and starts it again when it ends, until the context ends. Then the
// process is asked to end, and killed when it does not.
type supervisor struct {
	name  string
	start func() (process, error)
	// told is called with every change, from the goroutine of run; it must not block for long.
	told func(change)
}

// change is what happened to a supervised process.
type change struct {
	name    string
	pid     int           // 0 when it could not be started
	running bool          // it was started
	again   bool          // and that not for the first time
	err     error         // why it ended or was not started; nil for exit code 0
	pause   time.Duration // until the next try
	stuck   bool          // it did not end when asked to, and was killed
}

func (c change) String() string {
	switch {
	case c.running && c.again:
		return fmt.Sprintf("%s is back, pid %d", c.name, c.pid)
	case c.running:
		return fmt.Sprintf("%s started, pid %d", c.name, c.pid)
	case c.stuck:
		return fmt.Sprintf("%s (pid %d) did not end in time and was killed", c.name, c.pid)
	case c.pid == 0:
		return fmt.Sprintf("%s cannot be started: %v; next try in %s", c.name, c.err, c.pause)
	}
	why := "exit status 0"
	if c.err != nil {
		why = c.err.Error()
	}
	return fmt.Sprintf("%s (pid %d) died: %s; restarting in %s", c.name, c.pid, why, c.pause)
}

// run blocks until the context has ended and the process with it.
func (s *supervisor) run(ctx context.Context) {
	pause := firstPause
	for again := false; ctx.Err() == nil; again = true {
		began := time.Now()
		pid, err := 0, error(nil)
		p, err := s.start()
		if err == nil {
			pid = p.PID()
			s.told(change{name: s.name, pid: pid, running: true, again: again})
			var stopped bool
			if stopped, err = s.attend(ctx, p); stopped {
				return
			}
		}
		if time.Since(began) >= steady {
			pause = firstPause
		}
		s.told(change{name: s.name, pid: pid, err: err, pause: pause})
		sleep(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}

// attend waits for the end of the process, and brings it about when the context ends. It reports whether it did.
func (s *supervisor) attend(ctx context.Context, p process) (stopped bool, err error) {
	done := make(chan error, 1)
	go func() { done <- p.Wait() }()
	select {
	case err := <-done:
		return false, err
	case <-ctx.Done():
	}
	p.Terminate()
	if within(done, stopGrace) {
		return true, nil
	}
	p.Kill()
	s.told(change{name: s.name, pid: p.PID(), stuck: true})
	within(done, killGrace)
	return true, nil
}

// within reports whether something came in time.
func within(done <-chan error, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
