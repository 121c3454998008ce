package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// fakeProcess lives for a while, or until it is asked to end.
type fakeProcess struct {
	pid      int
	end      chan error
	stubborn bool // does not end when asked to
	asked    int
	killed   int
}

func (p *fakeProcess) PID() int    { return p.pid }
func (p *fakeProcess) Wait() error { return <-p.end }
func (p *fakeProcess) Terminate() {
	p.asked++
	if !p.stubborn {
		p.end <- nil
	}
}
func (p *fakeProcess) Kill() {
	p.killed++
	p.end <- errors.New("signal: killed")
}

func TestADeadProcessIsStartedAgainEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var starts []time.Duration
		began := time.Now()
		// How long each one lives; the seventh lives so long that the pauses begin anew.
		lives := []time.Duration{0, 0, 0, 0, 0, 0, steady, 0}
		s := supervisor{name: "x", told: func(change) {}}
		s.start = func() (process, error) {
			n := len(starts)
			starts = append(starts, time.Since(began))
			if n == 2 {
				return nil, errors.New("no such file")
			}
			p := &fakeProcess{pid: n, end: make(chan error, 1)}
			if n < len(lives) {
				time.AfterFunc(lives[n], func() { p.end <- errors.New("exit status 1") })
			}
			return p, nil
		}
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		time.Sleep(time.Hour) // of the bubble
		cancel()
		<-done
		var pauses []time.Duration
		for i := 1; i < len(starts); i++ {
			pauses = append(pauses, starts[i]-starts[i-1])
		}
		ms := time.Millisecond
		want := []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 5000 * ms, steady + 250*ms, 500 * ms}
		if !slices.Equal(pauses, want) {
			t.Errorf("starts after %v, want %v", pauses, want)
		}
	})
}

func TestAProcessIsAskedToEndAndThenKilled(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := &fakeProcess{pid: 7, end: make(chan error, 1), stubborn: stubborn}
			var told []string
			s := supervisor{name: "runner x", start: func() (process, error) { return p, nil }, told: func(c change) { told = append(told, c.String()) }}
			done := make(chan struct{})
			go func() { s.run(ctx); close(done) }()
			synctest.Wait()
			asked := time.Now()
			cancel()
			<-done
			took, want, lines := time.Since(asked), time.Duration(0), []string{"runner x started, pid 7"}
			if stubborn {
				want, lines = stopGrace, append(lines, "runner x (pid 7) did not end in time and was killed")
			}
			if took != want || p.asked != 1 || (p.killed == 1) != stubborn || !slices.Equal(told, lines) {
				t.Errorf("stubborn %t: took %s, asked %d, killed %d, told %q", stubborn, took, p.asked, p.killed, told)
			}
		})
	}
}

// The promise of dev is five seconds for everything; the database needs its share.
func TestAllProcessesEndWithinFiveSeconds(t *testing.T) {
	if sum := stopGrace + killGrace; sum >= 5*time.Second {
		t.Errorf("the processes alone may take %s", sum)
	}
}
