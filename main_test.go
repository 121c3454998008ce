package carillon

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// TestMain makes this binary a runner when a test starts it as one.
func TestMain(m *testing.M) {
	if os.Getenv("CARILLON_TEST_RUNNER") == "" {
		os.Exit(m.Run())
	}
	Main(module, Verbs{"beat": Plain(func(ctx context.Context) error {
		os.Stdout.WriteString("beating\n")
		select {
		case <-time.After(300 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})})
}

// meeting is a controller over real HTTP that tells where its runner is.
type meeting struct {
	carillonv1connect.UnimplementedRunnerServiceHandler
	endpoint, gone chan string
	live           chan string // of all controllers, with commas; may be nil
}

func (m meeting) Register(_ context.Context, req *carillonv1.RegisterRequest) (*carillonv1.RegisterResponse, error) {
	m.endpoint <- req.GetEndpoint()
	resp := &carillonv1.RegisterResponse{Deployment: "d1"}
	if m.live != nil {
		resp.Controllers = strings.Split(<-m.live, ",")
	}
	return resp, nil
}

func (m meeting) Heartbeat(context.Context, *carillonv1.HeartbeatRequest) (*carillonv1.HeartbeatResponse, error) {
	return &carillonv1.HeartbeatResponse{}, nil
}

func (m meeting) Deregister(_ context.Context, req *carillonv1.DeregisterRequest) (*carillonv1.DeregisterResponse, error) {
	m.gone <- req.GetRunner()
	return &carillonv1.DeregisterResponse{}, nil
}

func runner(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "CARILLON_TEST_RUNNER=1")
	return cmd
}

func TestTerminatedRunnerFinishesItsCall(t *testing.T) {
	m := meeting{endpoint: make(chan string, 1), gone: make(chan string, 1)}
	_, h := carillonv1connect.NewRunnerServiceHandler(m)
	controller := httptest.NewServer(h)
	defer controller.Close()
	cmd := runner(t, "--controller", controller.URL, "--token", "secret")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	client := carillonv1connect.NewVerbServiceClient(
		&http.Client{Transport: bearer{token: "secret", next: http.DefaultTransport}}, <-m.endpoint)
	answer := make(chan string, 1)
	go func() {
		for {
			resp, err := client.Call(t.Context(), &carillonv1.CallRequest{RunId: "r1", Ref: "m.beat", Deployment: "d1"})
			switch {
			case err != nil:
				answer <- err.Error()
			case resp.GetOutcome() == carillonv1.Outcome_OUTCOME_REFUSED: // it has not heard yet that it is registered
				continue
			default:
				answer <- resp.GetOutcome().String()
			}
			return
		}
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the verb does not begin: %q %v; %s", line, err, <-answer)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if got := <-answer; got != "OUTCOME_SUCCEEDED" {
		t.Errorf("the call in flight: %s", got)
	}
	if key := <-m.gone; !strings.HasPrefix(key, "m-") {
		t.Errorf("deregistered %q", key)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

func TestExitCodes(t *testing.T) {
	for args, want := range map[string]int{"--help": 0, "schema": 0, "--nonsense": 2, "--listen 127.0.0.1:-5": 1} {
		cmd := runner(t, strings.Fields(args)...)
		var out bytes.Buffer
		cmd.Stdout = &out
		cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit %d, want %d", args, got, want)
		}
		if args == "schema" && strings.TrimSpace(out.String()) != module.Schema {
			t.Errorf("schema: %s", &out)
		}
	}
}

// The environment's token must not stand in what a wrong command line prints.
func TestUsageShowsNoToken(t *testing.T) {
	var out strings.Builder
	env := func(name string) string {
		if name == "CARILLON_CLUSTER_TOKEN" {
			return "very-secret"
		}
		return ""
	}
	if _, err := parse([]string{"--no-such-flag"}, env, &out); err == nil || out.Len() == 0 || strings.Contains(out.String(), "very-secret") {
		t.Errorf("error %v, usage %s", err, out.String())
	}
	if s, err := parse(nil, env, &out); err != nil || s.Token != "very-secret" {
		t.Errorf("token %q, %v", s.Token, err)
	}
}
