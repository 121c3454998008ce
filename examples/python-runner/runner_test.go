package pythonrunner

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

const token = "a-token"

// meeting is a controller at which the runner registers.
type meeting struct {
	carillonv1connect.UnimplementedRunnerServiceHandler
	registered chan *carillonv1.RegisterRequest
	gone       chan string

	mu    sync.Mutex
	known bool
}

func (m *meeting) Register(_ context.Context, req *carillonv1.RegisterRequest) (*carillonv1.RegisterResponse, error) {
	m.mu.Lock()
	m.known = true
	m.mu.Unlock()
	m.registered <- req
	return &carillonv1.RegisterResponse{Deployment: "d1", Active: true, Heartbeat: durationpb.New(20 * time.Millisecond)}, nil
}

func (m *meeting) Heartbeat(context.Context, *carillonv1.HeartbeatRequest) (*carillonv1.HeartbeatResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such runner"))
	}
	return &carillonv1.HeartbeatResponse{}, nil
}

func (m *meeting) Deregister(_ context.Context, req *carillonv1.DeregisterRequest) (*carillonv1.DeregisterResponse, error) {
	m.gone <- req.GetRunner()
	return &carillonv1.DeregisterResponse{}, nil
}

// bearer adds the token to every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// start runs the example until the test's end; said passes on what it logs.
func start(t *testing.T, controllers string) (cmd *exec.Cmd, said <-chan string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("the example needs python3: apt-get install python3")
	}
	cmd = exec.CommandContext(t.Context(), python, "runner.py", "--controller", controllers, "--deploy")
	cmd.Env = append(os.Environ(), "CARILLON_CLUSTER_TOKEN="+token, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, lines
}

func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-c:
		if !ok {
			t.Fatalf("%s: it is over", what)
		}
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not within 20 s", what)
		panic("unreachable")
	}
}

func until(t *testing.T, said <-chan string, text string) {
	t.Helper()
	for !strings.Contains(within(t, text, said), text) {
	}
}

func TestPythonRunner(t *testing.T) {
	m := &meeting{registered: make(chan *carillonv1.RegisterRequest, 10), gone: make(chan string, 1)}
	_, h := carillonv1connect.NewRunnerServiceHandler(m)
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("it sent the token %q", r.Header.Get("Authorization"))
		}
		h.ServeHTTP(w, r)
	}))
	defer controller.Close()
	cmd, said := start(t, "http://127.0.0.1:1,"+controller.URL) // nobody is at the first
	req := within(t, "it registers", m.registered)
	if req.GetStream() || !req.GetDeploy() || req.GetSchema().GetModule() != "wordcount" || len(req.GetDigest()) != 64 || len(req.GetSchema().GetData()) != 2 {
		t.Errorf("it registered %v", req)
	}
	until(t, said, "runner registered")
	client := carillonv1connect.NewVerbServiceClient(&http.Client{Transport: bearer(token)}, req.GetEndpoint(), connect.WithProtoJSON())
	call := func(id, ref, payload string) *carillonv1.CallResponse {
		t.Helper()
		resp, err := client.Call(t.Context(), &carillonv1.CallRequest{
			RunId: id, Ref: ref, Deployment: "d1", Attempt: 1, Timeout: durationpb.New(30 * time.Second), Payload: []byte(payload), JobId: "j1",
		})
		if err != nil {
			t.Fatalf("call %s: %v", id, err)
		}
		return resp
	}
	first := call("r1", "wordcount.count", `{"text":"so much depends upon"}`)
	if got := string(first.GetPayload()); first.GetOutcome() != carillonv1.Outcome_OUTCOME_SUCCEEDED || got != `{"words": 4, "longest": "depends"}` {
		t.Errorf("count: %v", first)
	}
	if again := call("r1", "wordcount.count", `{"text":"x"}`); !proto.Equal(first, again) {
		t.Errorf("the same run answered %v, then %v", first, again)
	}
	for id, c := range map[string]struct {
		ref, payload, want string
		final              bool
	}{
		"r2": {"wordcount.count", `{"text":" "}`, "there is no word in it", true},
		"r3": {"wordcount.count", `{"text":`, "payload: ", true},
		"r4": {"wordcount.count", `{}`, "KeyError: 'text'", false},
		"r5": {"wordcount.other", ``, "unknown verb wordcount.other", false},
		"r6": {"other.count", ``, "unknown verb other.count", false},
	} {
		resp := call(id, c.ref, c.payload)
		if resp.GetOutcome() != carillonv1.Outcome_OUTCOME_FAILED || !strings.HasPrefix(resp.GetError(), c.want) || resp.GetFinal() != c.final {
			t.Errorf("%s of %s: %v", c.ref, c.payload, resp)
		}
	}
	if resp, err := client.Call(t.Context(), &carillonv1.CallRequest{RunId: "r7", Ref: "wordcount.count", Deployment: "d2"}); err != nil || resp.GetOutcome() != carillonv1.Outcome_OUTCOME_REFUSED {
		t.Errorf("another deployment: %v, %v", resp, err)
	}
	stranger := carillonv1connect.NewVerbServiceClient(&http.Client{Transport: bearer("wrong")}, req.GetEndpoint(), connect.WithProtoJSON())
	if _, err := stranger.Call(t.Context(), &carillonv1.CallRequest{RunId: "r8"}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a wrong token: %v", err)
	}
	binary := carillonv1connect.NewVerbServiceClient(&http.Client{Transport: bearer(token)}, req.GetEndpoint())
	if _, err := binary.Call(t.Context(), &carillonv1.CallRequest{RunId: "r9"}); err == nil {
		t.Error("it takes a binary message")
	}

	m.mu.Lock()
	m.known = false
	m.mu.Unlock()
	if again := within(t, "forgotten, it registers again", m.registered); again.GetRunner() != req.GetRunner() {
		t.Errorf("it is %s now, and was %s", again.GetRunner(), req.GetRunner())
	}

	last := make(chan *carillonv1.CallResponse, 1)
	go func() {
		resp, _ := client.Call(t.Context(), &carillonv1.CallRequest{
			RunId: "r10", Ref: "wordcount.count", Deployment: "d1", Timeout: durationpb.New(30 * time.Second), Payload: []byte(`{"text":"a","seconds":1}`),
		})
		last <- resp
	}()
	until(t, said, "run begins run=r10")
	cmd.Process.Signal(syscall.SIGTERM)
	until(t, said, "runner drains")
	if key := within(t, "it deregisters", m.gone); key != req.GetRunner() {
		t.Errorf("it deregistered %s", key)
	}
	if resp, err := client.Call(t.Context(), &carillonv1.CallRequest{RunId: "r11", Ref: "wordcount.count", Deployment: "d1"}); err == nil && resp.GetError() != "draining" {
		t.Errorf("draining: %v", resp)
	}
	if resp := within(t, "the call in flight", last); resp.GetOutcome() != carillonv1.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("the call in flight: %v", resp)
	}
	until(t, said, "runner stopped left=0")
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

func TestWrongTokenEndsTheRunner(t *testing.T) {
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnauthenticated, errors.New("no such token")))
	}))
	defer controller.Close()
	cmd, said := start(t, controller.URL)
	until(t, said, "unauthenticated: no such token")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit: %v", err)
	}
}
