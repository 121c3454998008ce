package carillon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
)

var (
	quiet  = slog.New(slog.DiscardHandler)
	module = Module{Name: "m", Language: "go", Digest: "0123456789abcdef", Schema: `{"module":"m","language":"go","verbs":[{"name":"beat"}]}`}
	token  = "a-token"
)

// cluster is controllers in memory: what a request to a host that is up meets.
type cluster struct {
	mu       sync.Mutex
	up       map[string]bool
	known    bool // the runner is in the database
	refusal  error
	live     []string
	requests []string
}

func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.up[r.URL.Host] {
		return nil, errors.New("connection refused")
	}
	if r.Header.Get("Authorization") != "Bearer "+token {
		return nil, errors.New("no token came along")
	}
	c.requests = append(c.requests, r.URL.Host+" "+filepath.Base(r.URL.Path))
	_, h := carillonv1connect.NewRunnerServiceHandler(c)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

func (c *cluster) Register(_ context.Context, req *carillonv1.RegisterRequest) (*carillonv1.RegisterResponse, error) {
	if c.refusal != nil {
		return nil, c.refusal
	}
	if req.GetSchema().GetModule() != "m" || req.GetDigest() != module.Digest || !req.GetStream() || req.GetCapacity() != 100 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%v", req))
	}
	c.known = true
	return &carillonv1.RegisterResponse{Deployment: "d1", Heartbeat: durationpb.New(2 * time.Second), Controllers: c.live}, nil
}

func (c *cluster) Heartbeat(context.Context, *carillonv1.HeartbeatRequest) (*carillonv1.HeartbeatResponse, error) {
	if !c.known {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such runner"))
	}
	return &carillonv1.HeartbeatResponse{Controllers: c.live}, nil
}

func (c *cluster) Deregister(context.Context, *carillonv1.DeregisterRequest) (*carillonv1.DeregisterResponse, error) {
	c.known = false
	return &carillonv1.DeregisterResponse{}, nil
}

func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) since() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests
	c.requests = nil
	return r
}

// deaf is a listener that nobody reaches.
type deaf struct{ shut chan struct{} }

func (d deaf) Accept() (net.Conn, error) { <-d.shut; return nil, net.ErrClosed }
func (d deaf) Close() error              { close(d.shut); return nil }
func (d deaf) Addr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7} }

func TestRunnerStaysRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{up: map[string]bool{"c2": true}, live: []string{"http://c2", "http://c3"}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, Config{
				Module: module, Verbs: Verbs{}, Listener: deaf{make(chan struct{})}, Log: quiet, Token: token,
				Controllers: []string{"http://c1", "http://c2"}, Client: c,
			})
		}()
		steps := []struct {
			what   string
			change func()
			after  time.Duration
			want   []string
		}{
			{"the first that answers", func() {}, 0, []string{"c2 Register"}},
			{"heartbeats", func() {}, 5 * time.Second, []string{"c2 Heartbeat", "c2 Heartbeat"}},
			{"a learned controller takes over", func() { c.up = map[string]bool{"c3": true} }, 2 * time.Second, []string{"c3 Heartbeat"}},
			{"forgotten, it registers again", func() { c.known = false }, 2 * time.Second, []string{"c3 Heartbeat", "c3 Register"}},
			{"nobody there", func() { c.up = nil }, 10 * time.Second, nil},
			{"a configured one is back", func() { c.up = map[string]bool{"c1": true} }, 3 * time.Second, []string{"c1 Heartbeat"}},
		}
		for _, s := range steps {
			c.change(s.change)
			<-time.After(s.after)
			synctest.Wait()
			got := c.since()
			if s.what == "a configured one is back" && len(got) > 1 {
				got = got[:1]
			}
			if !slices.Equal(got, s.want) {
				t.Errorf("%s: got %q, want %q", s.what, got, s.want)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if got := c.since(); len(got) == 0 || got[len(got)-1] != "c1 Deregister" {
			t.Errorf("leaving: %q", got)
		}
	})
}

// journal is what was logged, read while others write.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// A runner that starts before its controllers is no trouble at first; later, and once it was known, it is one, told once.
func TestWaitingForControllersIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log journal
		count := func(what string) int { return strings.Count(log.String(), what) }
		c := &cluster{up: map[string]bool{}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, Config{
				Module: module, Listener: deaf{make(chan struct{})}, Log: slog.New(slog.NewTextHandler(&log, nil)), Token: token,
				Controllers: []string{"http://c1", "http://c2"}, Client: c,
			})
		}()
		expect := func(when string, info, warn, again int) {
			t.Helper()
			synctest.Wait()
			if i, w, a := count(`level=INFO msg="runner is not known`), count(`level=WARN msg="runner is not known`), count("known again"); i != info || w != warn || a != again {
				t.Errorf("%s: %d, %d and %d lines, want %d, %d and %d:\n%s", when, i, w, a, info, warn, again, &log)
			}
		}
		<-time.After(9 * time.Second)
		expect("first seconds", 1, 0, 0)
		<-time.After(time.Minute)
		expect("a minute", 1, 1, 0)
		c.change(func() { c.up["c1"] = true })
		<-time.After(5 * time.Second)
		expect("registered", 1, 1, 0)
		c.change(func() { c.up["c1"] = false })
		<-time.After(time.Minute)
		expect("away again", 1, 2, 0)
		c.change(func() { c.up["c1"] = true })
		<-time.After(5 * time.Second)
		expect("back", 1, 2, 1)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestHopelessRegistrationEndsTheRunner(t *testing.T) {
	for code, hopeless := range map[connect.Code]bool{
		connect.CodeInvalidArgument: true, connect.CodeUnauthenticated: true, connect.CodeFailedPrecondition: false,
		connect.CodeNotFound: false, connect.CodeUnavailable: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{up: map[string]bool{"c1": true}, refusal: connect.NewError(code, errors.New("no"))}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			begun := time.Now()
			err := Serve(ctx, Config{
				Module: module, Listener: deaf{make(chan struct{})}, Log: quiet, Token: token, Controllers: []string{"http://c1"}, Client: c,
			})
			if ended := time.Since(begun) < time.Minute; ended != hopeless || (err != nil) != hopeless {
				t.Errorf("%s: %v after %s", code, err, time.Since(begun))
			}
			if n := len(c.since()); n > 60 {
				t.Errorf("%s: asked %d times in a minute", code, n)
			}
		})
	}
}

func TestServeRefusesToStandOpen(t *testing.T) {
	for name, cfg := range map[string]Config{
		"--advertise":    {Listen: "0.0.0.0:0", Token: token},
		"no URL":         {Advertise: "10.0.0.1:80"},
		"no URL such":    {Controllers: []string{"ftp://c1"}},
		"no header may":  {Token: "a\nb"},
		"not within":     {Capacity: -1},
		"read the sch":   {Module: Module{Name: "m", Schema: "{"}},
		"without a clus": {Listen: "0.0.0.0:0", Advertise: "http://10.0.0.1:1"},
	} {
		if cfg.Module.Name == "" {
			cfg.Module = module
		}
		cfg.Log = quiet
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		err := Serve(ctx, cfg)
		stop()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokenIsAskedBeforeTheBody(t *testing.T) {
	d := newDesk(Config{Module: module, Capacity: 1, Log: quiet}, func() string { return "d1" })
	h := newServer(Config{Token: token, Log: quiet}, d).Handler
	for path, want := range map[string]int{
		"/healthz": 200, "/carillon.v1.VerbService/Call": 401, "/carillon.v1.VerbService/Attach": 401,
		"/carillon.v1.VerbService/Other": 401, "/other": 404,
	} {
		method, body := http.MethodPost, unread{t}
		if path == "/healthz" {
			method = http.MethodGet
		}
		for _, auth := range []string{"", "Bearer ", "Bearer wrong", "Basic " + token} {
			r := httptest.NewRequest(method, path, body)
			r.Header.Set("Authorization", auth)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s with %q: %d, want %d", path, auth, w.Code, want)
			}
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/carillon.v1.VerbService/Call", strings.NewReader(`{"ref":"m.beat"}`))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 || !strings.Contains(w.Body.String(), "malformed call") {
		t.Errorf("with the token: %d %s", w.Code, w.Body)
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

func TestCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"CARILLON_CONTROLLER": "http://a", "CARILLON_CAPACITY": "7", "CARILLON_CLUSTER_TOKEN_FILE": file, "CARILLON_DEPLOY": "true"}
	get := func(k string) string { return env[k] }
	s, err := parse([]string{"--controller", "http://b, http://c", "--drain=3s"}, get, io.Discard)
	if err != nil || !slices.Equal(s.Controllers, []string{"http://b", "http://c"}) || s.Capacity != 7 || s.Token != "from-file" || !s.Deploy || s.Drain != 3*time.Second || s.Listen != "127.0.0.1:0" {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err = parse([]string{"schema"}, get, io.Discard); err != nil || !s.printSchema {
		t.Errorf("schema: %+v, %v", s, err)
	}
	for _, args := range [][]string{{"--nonsense"}, {"extra"}, {"--drain", "x"}, {"--token-file", "/nonexistent"}} {
		if _, err := parse(args, func(string) string { return "" }, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	var help bytes.Buffer
	if _, err := parse([]string{"--help"}, func(string) string { return "" }, &help); !isHelp(err) || !strings.Contains(help.String(), "CARILLON_CONTROLLER") {
		t.Errorf("help: %v %s", err, &help)
	}
}

func TestRunFromOutsideARun(t *testing.T) {
	if run, ok := RunFrom(t.Context()); ok {
		t.Errorf("got %+v", run)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := newMemory(100, 10_000)
	for i := range 1000 {
		m.keep(&carillonv1.CallResponse{RunId: fmt.Sprint(i), Error: strings.Repeat("x", i%500)})
		if m.bytes > m.most || len(m.byID) > 100 {
			t.Fatalf("after %d: %d bytes in %d outcomes", i, m.bytes, len(m.byID))
		}
		if m.find(fmt.Sprint(i)) == nil {
			t.Fatalf("%d is forgotten at once", i)
		}
	}
	if m.find("0") != nil {
		t.Error("nothing is ever forgotten")
	}
}

func FuzzClean(f *testing.F) {
	f.Add("no luck\x00")
	f.Add(strings.Repeat("é", 5000))
	f.Add("x" + strings.Repeat("é", 5000))
	f.Add(strings.Repeat("\xff", 10_000))
	f.Fuzz(func(t *testing.T, s string) {
		if got := clean(s); len(got) > maxError || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%q became %q", s, got)
		}
	})
}
