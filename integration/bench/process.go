package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child; what it says on stderr is in a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}

	mu  sync.Mutex // one question at a time
	in  io.WriteCloser
	out *bufio.Reader
}

// spawn starts one. It must be called by the first goroutine (see init).
func spawn(dir, name string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr, p.cmd.SysProcAttr = log, tied()
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, 1<<20)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// ask sends a line and reads the number that answers it, and so many more where the question is about many.
func (p *process) ask(question string, many bool) (n int, all []time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintln(p.in, question); err != nil {
		return 0, nil, p.failed(err)
	}
	if n, err = p.number(); err != nil || !many {
		return n, nil, err
	}
	for range n {
		ns, err := p.number()
		if err != nil {
			return n, nil, err
		}
		all = append(all, time.Duration(ns))
	}
	return n, all, nil
}

func (p *process) number() (int, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return 0, p.failed(err)
	}
	return strconv.Atoi(strings.TrimSpace(line))
}

func (p *process) failed(err error) error { return fmt.Errorf("ask %s: %w%s", p.name, err, p.said()) }

// said is the end of its log.
func (p *process) said() string {
	text, _ := os.ReadFile(p.log)
	if len(text) > 2000 {
		text = text[len(text)-2000:]
	}
	if len(text) == 0 {
		return ""
	}
	return fmt.Sprintf("\n%s: %s", p.name, strings.TrimSpace(string(text)))
}

// alive is an error when it has ended.
func (p *process) alive() error {
	select {
	case <-p.done:
		return errors.New(p.name + " ended" + p.said())
	default:
		return nil
	}
}

// end asks it to end and waits; one that does not is killed.
func (p *process) end(patience time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// eventually asks until the answer is nil.
func eventually(ctx context.Context, what string, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}
