package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/core/schema"
	"carillon/backend/module"
)

func TestTakenPortsAreNamedBeforeAnythingStarts(t *testing.T) {
	addrs, err := planPorts("127.0.0.1:0", 3)
	if err != nil || len(addrs) != 3 || addrs[0] == addrs[1] {
		t.Fatalf("three free ports: %v, %v", addrs, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	port := l.Addr().(*net.TCPAddr).Port
	before := net.JoinHostPort("127.0.0.1", strconv.Itoa(port-1))
	for _, listen := range []string{taken, before} {
		_, err := planPorts(listen, 3)
		var p *problem
		// The port before may be somebody else's, then that one is named.
		if !errors.As(err, &p) || !strings.Contains(p.Error(), "is taken by another process") || !strings.Contains(p.hint, "--listen") {
			t.Errorf("listen %s: %v", listen, err)
		}
	}
	for _, bad := range []struct {
		listen string
		n      int
	}{{"127.0.0.1:7800", 0}, {"127.0.0.1:65535", 2}, {"10.0.0.1:7800", 1}, {":7800", 1}, {"127.0.0.1:x", 1}} {
		var u usage
		if _, err := planPorts(bad.listen, bad.n); !errors.As(err, &u) {
			t.Errorf("%s with %d controllers: %v, want a usage error", bad.listen, bad.n, err)
		}
	}
}

// A helper process of the test below: it starts a child, which holds a pipe, and waits for its own end.
const helper = "CARILLON_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(helper) != "" {
		cmd := exec.Command("sleep", "600")
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
		if _, err := startChild(cmd); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("started\n")
		select {}
	}
	if len(os.Args) > 1 && os.Args[1] == "controller" { // as dev starts them
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestChildrenEndWhenWeAreKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), helper+"=1")
	parent.ExtraFiles = []*os.File{w}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if b, err := io.ReadAll(io.LimitReader(out, 8)); err != nil || string(b) != "started\n" {
		t.Fatalf("the parent says %q, %v", b, err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	// The pipe ends when its last holder is gone, which is the child.
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the child lives on: %v", err)
	}
}

// devOf is a dev whose controllers are fakes, with what its screen shows.
func devOf(t *testing.T, fakes ...*fakeController) (*dev, *bytes.Buffer) {
	t.Helper()
	var screen bytes.Buffer
	d := &dev{screen: newScreen(&app{stdout: &screen}, portWidth), data: t.TempDir(), url: "postgres://unused"}
	for _, f := range fakes {
		d.addrs = append(d.addrs, strings.TrimPrefix(f.url, "http://"))
	}
	for _, sub := range []string{"logs", "runners"} {
		if err := os.Mkdir(filepath.Join(d.data, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return d, &screen
}

func TestADeployFindsAControllerThatLives(t *testing.T) {
	dead, live := startFake(t, &fakeController{}), startFake(t, &fakeController{})
	dead.url = "http://127.0.0.1:1"
	d, _ := devOf(t, dead, live)
	m := &devModule{dev: d, src: module.Source{Digest: "sha256:0123456789abcdef", Module: schema.Module{Name: "shop"}}}
	resp, err := m.deploy(t.Context())
	if err != nil || resp.GetDeployment() != "shop-2" || len(live.deployed) != 1 || live.deployed[0].GetDigest() != "0123456789abcdef" {
		t.Errorf("%v, %v, asked %v", resp, err, live.deployed)
	}
	live.refuse = connect.NewError(connect.CodeInvalidArgument, errString("bad schema"))
	if _, err := m.deploy(t.Context()); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a refusal becomes %v", err)
	}
}

func TestAFaultyChangeKeepsTheVersionBefore(t *testing.T) {
	f := startFake(t, &fakeController{})
	d, screen := devOf(t, f)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module shop\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "shop.go"), "package shop\n\nimport \"context\"\n\n//carillon:cron 61 * * * *\nfunc Bill(ctx context.Context) error { return nil }\n")
	ended := make(chan struct{})
	live := &devRunner{digest: "before", stop: func() { t.Error("the version before was stopped") }, done: ended}
	m := &devModule{dev: d, dir: dir, live: live}
	m.build(t.Context())
	if text := screen.String(); m.live != live || m.binary != "" || !strings.Contains(text, "shop.go:5:17") || !strings.Contains(text, "the version before goes on") {
		t.Errorf("screen %q", text)
	}
	// The faulty source is still watched, so that its correction is seen.
	files := m.watched()
	before := fingerprint(files)
	began := time.Now()
	write(t, filepath.Join(dir, "shop.go"), "package shop\n")
	if fingerprint(files) == before {
		t.Errorf("a change of shop.go is not seen in %v", files)
	}
	if touched(files, began.Add(time.Hour)) {
		t.Error("files were written in the future")
	}
}

func TestAChangeDuringTheBuildIsNotOverlooked(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.go")
	write(t, file, "package a\n")
	m := &devModule{dir: dir, began: time.Now().Add(-time.Minute)}
	if err := os.Chtimes(file, time.Now(), time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	m.src.Dir = dir
	done := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		m.awaitChange(ctx)
		close(done)
	}()
	<-done
	if ctx.Err() != nil {
		t.Error("the change was not seen")
	}
}

func TestChildrenGetNothingOfOurOwnEnvironment(t *testing.T) {
	env := withEnv(withoutOurs([]string{"A=1", "CARILLON_ADMIN_TOKEN=s", "CARILLON_SDK=/x", "DATABASE_URL=old", "B=2"}), "DATABASE_URL=new", "B=")
	if got, want := strings.Join(env, " "), "A=1 CARILLON_SDK=/x DATABASE_URL=new"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheEndOfALogIsShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	if got := logTail(file, 3); got != nil {
		t.Errorf("a missing log ends in %q", got)
	}
	write(t, file, strings.Repeat("noise\n", 5000)+"one\ntwo\n\x1b[2Jthree\n")
	if got := strings.Join(logTail(file, 2), "|"); got != "two|[2Jthree" {
		t.Errorf("got %q", got)
	}
}

func TestWholeLinesArePrefixed(t *testing.T) {
	var out strings.Builder
	p := &prefixed{prefix: "x: ", to: &out}
	for _, piece := range []string{"on", "e\ntwo\nth", "ree\n"} {
		if n, err := p.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if got, want := out.String(), "x: one\nx: two\nx: three\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
