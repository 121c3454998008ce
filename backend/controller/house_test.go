package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"carillon"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

const adminToken, clusterToken = "the-admin-token", "the-cluster-token"

var discard = slog.New(slog.DiscardHandler)

// tenant is a controller of the test's own process.
type tenant struct {
	url  string
	stop context.CancelFunc
	done chan error
}

// move starts a controller on a port of its own. Its beats are those of production but ten times as fast.
func move(t *testing.T, db storetest.DB, change func(*Config)) *tenant {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.DatabaseURL, c.Listen, c.AdminToken, c.ClusterToken, c.Logger = db.URL, l.Addr().String(), adminToken, clusterToken, discard
	c.Timing = Timing{
		Beat: 100 * time.Millisecond, Silence: time.Second, Fence: 1300 * time.Millisecond, Lease: 2 * time.Second, Grace: time.Second,
		StealDelay: 100 * time.Millisecond, Reset: 2 * time.Second, HardGrace: 2 * time.Second, Drain: 10 * time.Second, RunnerBeat: 200 * time.Millisecond,
	}
	if change != nil {
		change(&c)
	}
	l.Close()
	ctx, stop := context.WithCancel(context.Background())
	n := &tenant{"http://" + c.Listen, stop, make(chan error, 1)}
	go func() { n.done <- Run(ctx, c) }()
	t.Cleanup(stop)
	return n
}

// out asks a controller to stop and waits until it has.
func (n *tenant) out(t *testing.T) {
	t.Helper()
	n.stop()
	if err := within(t, 20*time.Second, n.done); err != nil {
		t.Errorf("the controller stopped with %v", err)
	}
}

func within[T any](t *testing.T, d time.Duration, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(d):
		t.Fatalf("nothing happened in %s", d)
	}
	return v
}

// eventually asks again and again, at most for ten seconds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// get reads a page that operators see; it needs no token.
func (n *tenant) get(path string) (int, string) {
	res, err := http.Get(n.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

func (n *tenant) ready() bool { code, _ := n.get("/readyz"); return code == 200 }

func withToken(token string) connect.ClientOption { return connect.WithInterceptors(bearer(token)) }

func (n *tenant) deploys() carillonv1connect.DeployServiceClient {
	return carillonv1connect.NewDeployServiceClient(http.DefaultClient, n.url, withToken(adminToken))
}

func (n *tenant) crons() carillonv1connect.CronServiceClient {
	return carillonv1connect.NewCronServiceClient(http.DefaultClient, n.url, withToken(adminToken))
}

func (n *tenant) cluster() carillonv1connect.ClusterServiceClient {
	return carillonv1connect.NewClusterServiceClient(http.DefaultClient, n.url, withToken(adminToken))
}

const digest = "0123456789abcdef"

// play runs a module's verbs as a user's process does, until the test's end, registered and deployed.
func play(t *testing.T, at *tenant, verbs carillon.Verbs, schedules map[string]string) {
	t.Helper()
	schema := &carillonv1.Schema{Module: "m", Language: "go"}
	var written []string
	for name := range verbs {
		v, cron := &carillonv1.Verb{Name: name}, ""
		if s := schedules[name]; s != "" {
			v.Cron, cron = &carillonv1.Cron{Schedule: s}, fmt.Sprintf(`,"cron":{"schedule":%q}`, s)
		}
		schema.Verbs = append(schema.Verbs, v)
		written = append(written, fmt.Sprintf(`{"name":%q%s}`, name, cron))
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- carillon.Serve(ctx, carillon.Config{
			Module: carillon.Module{Name: "m", Language: "go", Digest: digest, Schema: `{"module":"m","language":"go","verbs":[` + strings.Join(written, ",") + `]}`},
			Verbs:  verbs, Controllers: []string{at.url}, Token: clusterToken, Log: discard,
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := within(t, 20*time.Second, done); err != nil {
			t.Errorf("the runner stopped with %v", err)
		}
	})
	eventually(t, "a runner is registered", func() bool {
		res, err := at.deploys().ListDeployments(t.Context(), &carillonv1.ListDeploymentsRequest{})
		return err == nil && len(res.GetDeployments()) == 1 && len(res.GetDeployments()[0].GetRunners()) == 1
	})
	if _, err := at.deploys().Deploy(t.Context(), &carillonv1.DeployRequest{Schema: schema, Digest: digest}); err != nil {
		t.Fatal(err)
	}
}

// Two controllers and a runner: each slot runs once, also while one of the controllers drains.
func TestHouse(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	a, b := move(t, db, func(c *Config) { c.Version = "a" }), move(t, db, func(c *Config) { c.Version = "b" })
	eventually(t, "both are ready", func() bool { return a.ready() && b.ready() })
	var mu sync.Mutex
	ran := map[string]int{}
	begun, release := make(chan struct{}), make(chan struct{})
	play(t, a, carillon.Verbs{
		"beat": carillon.Plain(func(ctx context.Context) error {
			run, ok := carillon.RunFrom(ctx)
			mu.Lock()
			defer mu.Unlock()
			if ran[run.Slot.String()]++; !ok || run.Attempt != 1 || time.Now().Before(run.Slot) {
				t.Errorf("run %+v, %t", run, ok)
			}
			return nil
		}),
		"slow": carillon.Plain(func(ctx context.Context) error { close(begun); <-release; return ctx.Err() }),
	}, map[string]string{"beat": "* * * * * *", "slow": "0 0 1 1 *"})
	slots := func() int { mu.Lock(); defer mu.Unlock(); return len(ran) }

	eventually(t, "three slots", func() bool { return slots() >= 3 })
	checkMetrics(t, a, b)
	health, err := b.cluster().GetHealth(t.Context(), &carillonv1.GetHealthRequest{})
	if err != nil || !health.GetOk() || health.GetVersion() != "b" {
		t.Errorf("health %v, %v", health, err)
	}
	ring, err := a.cluster().GetRing(t.Context(), &carillonv1.GetRingRequest{})
	if err != nil || len(ring.GetMembers()) != 2 || len(ring.GetMembers()[0].GetFirst())+len(ring.GetMembers()[1].GetFirst()) != int(ring.GetShards()) {
		t.Errorf("ring %v, %v", ring, err)
	}

	if _, err := a.crons().RunCronJob(t.Context(), &carillonv1.RunCronJobRequest{Ref: "m.slow"}); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, begun)
	a.stop()
	eventually(t, "it drains", func() bool { code, body := a.get("/readyz"); return code == 503 && strings.Contains(body, "draining") })
	if code, _ := a.get("/healthz"); code != 200 {
		t.Errorf("draining, /healthz says %d", code)
	}
	if _, err := a.crons().RunCronJob(t.Context(), &carillonv1.RunCronJobRequest{Ref: "m.beat"}); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("draining, it runs now: %v", err)
	}
	before := slots()
	eventually(t, "the other one goes on", func() bool { return slots() >= before+2 })
	close(release)
	a.out(t)
	var rows, slow int
	db.Scan("SELECT count(*) FROM carillon.controllers WHERE version = 'a'", nil, &rows)
	db.Scan("SELECT count(*) FROM carillon.runs r JOIN carillon.cron_jobs j ON j.id = r.cron_job_id WHERE j.ref = 'm.slow' AND r.verdict = 'succeeded' AND r.kind = 'manual'", nil, &slow)
	if rows != 0 || slow != 1 {
		t.Errorf("%d rows of the drained controller, %d ends of its run", rows, slow)
	}
	before = slots()
	eventually(t, "the other one is alone", func() bool { return slots() >= before+2 })
	checkLedger(t, db, func(slot time.Time) int { mu.Lock(); defer mu.Unlock(); return ran[slot.String()] })
	b.out(t)
	if db.Scan("SELECT count(*) FROM carillon.controllers", nil, &rows); rows != 0 {
		t.Errorf("%d controllers are left", rows)
	}
}

// checkLedger: every slot of m.beat, from the first to the last, succeeded once, in the ledger and in the runner.
func checkLedger(t *testing.T, db storetest.DB, ran func(time.Time) int) {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `SELECT r.slot, r.slot_to, r.started_at, r.verdict::text, COALESCE(r.error, '') FROM carillon.runs r
		JOIN carillon.cron_jobs j ON j.id = r.cron_job_id WHERE j.ref = 'm.beat' ORDER BY r.slot`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var next time.Time
	n := 0
	for ; rows.Next(); n++ {
		var slot, to time.Time
		var started *time.Time
		var verdict, text string
		if err := rows.Scan(&slot, &to, &started, &verdict, &text); err != nil {
			t.Fatal(err)
		}
		if !next.IsZero() && !slot.Equal(next) {
			t.Errorf("after %s comes %s", next.Add(-time.Second), slot)
		}
		next = to.Add(time.Second)
		if verdict != "succeeded" || started == nil || started.Before(slot) || ran(slot.UTC()) != 1 {
			t.Errorf("slot %s: %s %q, started %v, ran %d times", slot, verdict, text, started, ran(slot.UTC()))
		}
	}
	if n < 5 {
		t.Errorf("only %d slots", n)
	}
}

// checkMetrics: what operators were promised is there, and counts.
func checkMetrics(t *testing.T, controllers ...*tenant) {
	t.Helper()
	sum := map[string]float64{}
	for _, c := range controllers {
		code, body := c.get("/metrics")
		if code != 200 {
			t.Fatalf("/metrics: %d", code)
		}
		for _, m := range regexp.MustCompile(`(?m)^(carillon_\w+)(\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(body, -1) {
			var v float64
			fmt.Sscan(m[3], &v)
			sum[m[1]] += v
		}
	}
	for _, name := range []string{
		"claims_tried_total", "claims_won_total", "claims_lost_total", "starts_total", "lateness_seconds_bucket", "lateness_seconds_count", "calls_in_flight",
		"verdicts_total", "lost_total", "late_ends_total", "sweeps_total", "ring_changes_total", "clock_offset_seconds", "overdue",
	} {
		if _, ok := sum["carillon_"+name]; !ok {
			t.Errorf("no metric carillon_%s", name)
		}
	}
	for _, name := range []string{"claims_won_total", "starts_total", "lateness_seconds_count", "verdicts_total", "sweeps_total", "ring_changes_total", "cron_jobs"} {
		if sum["carillon_"+name] == 0 {
			t.Errorf("carillon_%s counts nothing", name)
		}
	}
}

// A second process on the same endpoint supersedes the first, which says so and ends.
func TestSupersededControllerEnds(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	first := move(t, db, func(c *Config) { c.Advertise = "http://one-name:1" })
	eventually(t, "it is ready", first.ready)
	second := move(t, db, func(c *Config) { c.Advertise = "http://one-name:1" })
	eventually(t, "the second is ready", second.ready)
	if err := within(t, 20*time.Second, first.done); err == nil || !strings.Contains(err.Error(), "another controller") {
		t.Errorf("the first ended with %v", err)
	}
	second.out(t)
}

// A web page of elsewhere cannot speak for its reader, also where no token is asked.
func TestForeignPagesAreRefused(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	n := move(t, db, func(c *Config) { c.AdminToken, c.ClusterToken = "", "" })
	eventually(t, "it is ready", n.ready)
	for origin, want := range map[string]int{"": 404, "http://evil.example": 403} {
		r, _ := http.NewRequest(http.MethodPost, n.url+carillonv1connect.CronServicePauseCronJobProcedure, strings.NewReader(`{"ref":"m.x"}`))
		r.Header.Set("Content-Type", "application/json")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("from %q: %d, want %d", origin, res.StatusCode, want)
		}
	}
	n.out(t)
}
