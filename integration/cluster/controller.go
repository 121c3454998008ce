package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"carillon/integration/checker"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// Controller is one controller process and what one can ask it.
type Controller struct {
	*process
	Key    string
	URL    string
	Deploy carillonv1connect.DeployServiceClient
	Cron   carillonv1connect.CronServiceClient
	Runs   carillonv1connect.RunServiceClient
	Info   carillonv1connect.ClusterServiceClient
	Jobs   carillonv1connect.JobServiceClient
	Peer   carillonv1connect.PeerServiceClient // with the cluster token
	http   *http.Client
	since  time.Time // frozen
}

// bearer adds a token to every request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// StartController starts one more and waits until it is ready. Flags win over the shrunk settings.
func (c *Cluster) StartController(t testing.TB, flags ...string) *Controller {
	t.Helper()
	args := append([]string{
		"controller", "--database-url", c.DB.URL(), "--listen", "127.0.0.1:0", "--migrate", "--log-format", "json",
		"--reserved-workers", Reserved, "--hard-grace", HardGrace.String(), "--drain", Drain.String(), "--reset", "5s",
	}, flags...)
	name := fmt.Sprintf("controller-%d", c.name())
	k := &Controller{process: new(process)}
	err := c.launch(k.process, name, "carillon",
		[]string{"CARILLON_ADMIN_TOKEN=" + c.admin, "CARILLON_CLUSTER_TOKEN=" + c.token}, args...)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock() // once it is launched: others look whether it lives
	c.controllers = append(c.controllers, k)
	c.mu.Unlock()
	line, err := k.logged(`"controller started"`, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Controller, Endpoint string }
	if err := json.Unmarshal([]byte(line), &said); err != nil || said.Endpoint == "" {
		t.Fatalf("read the controller's endpoint from %q: %v", line, err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16, ResponseHeaderTimeout: 40 * time.Second}
	c.mu.Lock()
	defer c.mu.Unlock()
	k.Key, k.URL = said.Controller, said.Endpoint
	k.http = &http.Client{Transport: bearer{c.admin, transport}}
	peer := &http.Client{Transport: bearer{c.token, transport}}
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	k.Deploy = carillonv1connect.NewDeployServiceClient(k.http, k.URL, plain)
	k.Cron = carillonv1connect.NewCronServiceClient(k.http, k.URL, plain)
	k.Runs = carillonv1connect.NewRunServiceClient(k.http, k.URL, plain)
	k.Info = carillonv1connect.NewClusterServiceClient(k.http, k.URL, plain)
	k.Jobs = carillonv1connect.NewJobServiceClient(k.http, k.URL, plain)
	k.Peer = carillonv1connect.NewPeerServiceClient(peer, k.URL, plain)
	Eventually(t, 20*time.Second, "a ready controller", k.ready)
	return k
}

// Any is a controller that can be asked.
func (c *Cluster) Any(t testing.TB) *Controller {
	t.Helper()
	live := c.Live()
	if len(live) == 0 {
		t.Fatal("no controller lives")
	}
	return live[0]
}

// URLs of all live controllers.
func (c *Cluster) URLs() string {
	var urls []string
	for _, k := range c.Live() {
		urls = append(urls, k.URL)
	}
	return strings.Join(urls, ",")
}

// Kill9 ends a controller as a crash would, and returns when. Recovery excuses missed slots for so long: none while the
// second owners of its shards live.
func (c *Cluster) Kill9(t testing.TB, k *Controller, recovery time.Duration) time.Time {
	t.Helper()
	at := time.Now()
	k.kill()
	c.Fault(checker.Fault{Kind: checker.Kill, From: at, To: time.Now(), Controller: k.Key, Recovery: recovery})
	return at
}

// Stop freezes a controller (SIGSTOP).
func (c *Cluster) Stop(t testing.TB, k *Controller) time.Time {
	t.Helper()
	k.since = time.Now()
	if err := k.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	k.frozen = true
	return k.since
}

// Cont lets a frozen controller go on.
func (c *Cluster) Cont(t testing.TB, k *Controller) {
	t.Helper()
	if err := k.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	k.frozen = false
	c.Fault(checker.Fault{Kind: checker.Freeze, From: k.since, To: time.Now(), Controller: k.Key, Recovery: 2 * time.Second})
}

// Term asks a controller to drain, waits for its end and demands the exit code 0.
func (c *Cluster) Term(t testing.TB, k *Controller) {
	t.Helper()
	from := time.Now()
	if err := k.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	code, err := k.exit(Drain + 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c.Fault(checker.Fault{Kind: checker.Drain, From: from, To: time.Now(), Controller: k.Key, Recovery: time.Second})
	if code != 0 {
		t.Errorf("controller %s exits %d after SIGTERM, want 0\n%s", k.Key, code, k.tail())
	}
}

func (k *Controller) get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.URL+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := k.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("controller %s: %s: %s", k.Key, resp.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

func (k *Controller) ready() error {
	_, err := k.get("/readyz")
	return err
}

// metric is the sum of all samples of a name, with any labels.
func (k *Controller) metric(name string) (sum float64, err error) {
	body, err := k.get("/metrics")
	if err != nil {
		return 0, err
	}
	found := false
	for line := range strings.Lines(body) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		fields := strings.Fields(rest)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum += v
		found = true
	}
	if !found {
		return 0, fmt.Errorf("controller %s has no metric %s", k.Key, name)
	}
	return sum, nil
}

// Metric demands one.
func (k *Controller) Metric(t testing.TB, name string) float64 {
	t.Helper()
	v, err := k.metric(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
