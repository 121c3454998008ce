package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/module"
	carillonv1 "carillon/proto/carillon/v1"
)

// pollFiles is how often the files of a module are looked at.
const pollFiles = 500 * time.Millisecond

// devModule keeps the newest version of one module that could be built and deployed running. Its first build
// comes before run; then only the goroutine of run touches it.
type devModule struct {
	dev  *dev
	dir  string
	src  module.Source // as read last, also when it had faults
	live *devRunner    // nil until the first deploy

	began  time.Time // of the last build
	binary string    // that it made, until a runner takes it over
}

// devRunner is the supervised runner of one version.
type devRunner struct {
	digest string
	stop   context.CancelFunc
	done   <-chan struct{}
}

// end stops the runner and waits for it.
func (r *devRunner) end() {
	r.stop()
	<-r.done
}

// run deploys what the first build made, and then watches the files until the context ends; no runner is left then.
func (m *devModule) run(ctx context.Context) {
	for ctx.Err() == nil {
		if m.binary != "" {
			m.swap(ctx)
		}
		m.awaitChange(ctx)
		m.build(ctx)
	}
	if m.live != nil {
		m.live.end()
	}
	m.discard()
}

// watched are the files whose change calls for a new build.
func (m *devModule) watched() []string {
	if files := module.Files(m.src); len(files) > 0 {
		return files
	}
	return []string{m.dir}
}

// build makes a binary of the module's present source, unless that runs already. What goes wrong is shown, and the version
// before goes on.
func (m *devModule) build(ctx context.Context) {
	m.discard()
	name, screen := filepath.Base(m.dir), m.dev.screen
	m.began = time.Now()
	m.binary = filepath.Join(m.dev.data, "runners", fmt.Sprintf("%s-%d", name, m.began.UnixNano()))
	var faults bytes.Buffer
	src, err := buildModule(ctx, &faults, m.dir, m.binary)
	m.src = src
	if src.Module.Name != "" {
		name = src.Module.Name
	}
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, silent):
		m.complain("%s has faults:\n%s", name, faults.String())
	case err != nil:
		m.complain("%s cannot be built: %v", name, err)
	case m.live != nil && m.live.digest == src.Digest:
	default:
		screen.event(blue, "module %s built in %s", name, took(time.Since(m.began)))
		return
	}
	m.discard()
}

// discard removes a binary that was built in vain.
func (m *devModule) discard() {
	if m.binary != "" {
		_ = os.Remove(m.binary)
	}
	m.binary = ""
}

// complain shows why there is no new version.
func (m *devModule) complain(format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
	if m.live != nil {
		text += "\n(the version before goes on)"
	}
	m.dev.screen.event(red, "module %s", strings.ReplaceAll(text, "\n", "\n    "))
}

// swap starts a runner of the version just built, deploys it, and ends the version before.
func (m *devModule) swap(ctx context.Context) {
	next := m.startRunner(ctx, m.binary)
	m.binary = "" // it is the runner's now
	resp, err := m.deploy(ctx)
	if err != nil {
		next.end()
		if ctx.Err() == nil {
			m.complain("%s cannot be deployed: %v", m.src.Module.Name, explainRPC(err, &remote{URL: m.dev.urls()[0], Timeout: deployBound}))
		}
		return
	}
	if m.live != nil {
		m.live.end()
	}
	m.live = next
	what := summary(m.src.Module, resp.GetChanges())
	if resp.GetUnchanged() {
		what = "as before"
	}
	m.dev.screen.event(green, "module %s deployed as %s: %s", m.src.Module.Name, resp.GetDeployment(), what)
}

// startRunner supervises a runner of the version just built. Its binary goes with it.
func (m *devModule) startRunner(ctx context.Context, binary string) *devRunner {
	d, name := m.dev, m.src.Module.Name
	log := "runner-" + name
	env := environ("DATABASE_URL="+d.url, d.workDir("HOUSEKEEPING_DIR", "housekeeping"), d.workDir("MAILROOM_DIR", "mailroom"))
	s := supervisor{
		name: "runner " + name,
		start: func() (process, error) {
			return d.start(log, env, binary, "--controller", strings.Join(d.urls(), ","), "--listen", "127.0.0.1:0", "--drain", "2s")
		},
		told: func(c change) { d.report(c, log) },
	}
	own, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(own)
		_ = os.Remove(binary)
	}()
	return &devRunner{digest: m.src.Digest, stop: stop, done: done}
}

// deploy asks the controllers in turn until one does it or says why not.
func (m *devModule) deploy(ctx context.Context) (*carillonv1.DeployResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, deployBound)
	defer cancel()
	req := &carillonv1.DeployRequest{Schema: schemaProto(m.src.Module), Digest: digestHex(m.src.Digest)}
	for {
		var last error
		for _, url := range m.dev.urls() {
			cl, err := m.dev.client(url)
			if err != nil {
				return nil, err
			}
			resp, err := cl.deploy.Deploy(ctx, req)
			if err == nil || connect.CodeOf(err) != connect.CodeUnavailable {
				return resp, err
			}
			last = err
		}
		sleep(ctx, firstPause)
		if ctx.Err() != nil {
			return nil, last
		}
	}
}

// workDir is the setting of an example that works in a directory: below our data, unless the user named another.
func (d *dev) workDir(variable, name string) string {
	return variable + "=" + cmp.Or(os.Getenv(variable), filepath.Join(d.data, name))
}

// awaitChange waits until a file changes, or did since the last build began, and then until all have settled.
func (m *devModule) awaitChange(ctx context.Context) {
	files := m.watched()
	base := fingerprint(files)
	last, changed := base, touched(files, m.began)
	for ctx.Err() == nil {
		sleep(ctx, pollFiles)
		now := fingerprint(files)
		if now == last && (changed || now != base) {
			return
		}
		last = now
	}
}

// touched reports whether a file was written since an instant. A time in the future says nothing: it would do so for ever.
func touched(files []string, since time.Time) bool {
	for _, f := range files {
		if fi, err := os.Stat(f); err == nil && fi.ModTime().After(since) && fi.ModTime().Before(time.Now()) {
			return true
		}
	}
	return false
}

// fingerprint changes when one of the files does, or goes.
func fingerprint(files []string) string {
	var b strings.Builder
	for _, f := range files {
		fi, err := os.Stat(f)
		if err != nil {
			fmt.Fprintf(&b, "%s gone\n", f)
			continue
		}
		fmt.Fprintf(&b, "%s %d %d\n", f, fi.ModTime().UnixNano(), fi.Size())
	}
	return b.String()
}
