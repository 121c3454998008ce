package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bin holds the binaries, built once per test process.
var bin struct {
	once sync.Once
	dir  string
	err  error
}

// build makes the binaries under test.
func build(ctx context.Context) error {
	bin.once.Do(func() {
		if bin.dir, bin.err = os.MkdirTemp("", "carillon-bin-"); bin.err != nil {
			return
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-o", bin.dir+string(filepath.Separator), "carillon/cmd/carillon", "carillon/integration/drillrunner")
		if out, err := cmd.CombinedOutput(); err != nil {
			bin.err = fmt.Errorf("build the binaries: %w\n%s", err, out)
		}
	})
	return bin.err
}

// Clean removes the binaries; for the end of a test process.
func Clean() {
	if bin.dir != "" {
		os.RemoveAll(bin.dir)
	}
}

// process is a child of ours, with its output in a file.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string
	done   chan struct{}
	code   int
	frozen bool
	read   int // of its log, by unblocked
}

// launch starts a binary, ours by its name or another by its path; it ends with us, however we go.
func (c *Cluster) launch(p *process, name, program string, env []string, args ...string) error {
	p.name, p.log, p.done = name, filepath.Join(c.dir, name+".log"), make(chan struct{})
	out, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer out.Close()
	if !filepath.IsAbs(program) {
		program = filepath.Join(bin.dir, program)
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	if err := startTied(p.cmd); err != nil {
		p.cmd = nil
		return fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		close(p.done)
	}()
	return nil
}

func (p *process) ended() bool {
	if p.cmd == nil || p.cmd.Process == nil {
		return true // never begun
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(s syscall.Signal) error {
	if p.ended() {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(s)
}

// kill ends it for good and waits for that.
func (p *process) kill() {
	if p.signal(syscall.SIGKILL) == nil {
		<-p.done
	}
}

// exit waits for its end by itself.
func (p *process) exit(bound time.Duration) (int, error) {
	select {
	case <-p.done:
		return p.code, nil
	case <-time.After(bound):
		return 0, fmt.Errorf("%s goes on after %s", p.name, bound)
	}
}

const shownLog = 6 << 10

// tail is the end of its log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(text) > shownLog {
		text = text[len(text)-shownLog:]
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	return string(text)
}

// Log is all that it said.
func (p *process) Log() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// logged waits for a line with this in it.
func (p *process) logged(text string, bound time.Duration) (string, error) {
	for deadline := time.Now().Add(bound); ; {
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
				return line, nil
			}
		}
		if p.ended() {
			return "", errors.New(p.name + " ended: " + p.tail())
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("%s did not say %q within %s: %s", p.name, text, bound, p.tail())
		}
		select {
		case <-p.done:
		case <-time.After(20 * time.Millisecond):
		}
	}
}
