package rpc

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/ring"
	"carillon/backend/engine/deploy"
	"carillon/backend/store"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

const adminToken, clusterToken = "the-admin-token", "the-cluster-token"

// hall is a house with nothing in it but the database.
type hall struct {
	*store.Store
	panics bool
}

func (h *hall) ListRunners(ctx context.Context) ([]deployment.Runner, error) {
	return h.Store.ListRunners(ctx, 8*time.Second)
}

func (h *hall) ListControllers(ctx context.Context) ([]ring.Status, time.Time, error) {
	return h.Store.ListControllers(ctx, 3*time.Second)
}

func (h *hall) Ring() *ring.Ring                                    { return nil }
func (h *hall) Interrupted() (bool, time.Duration)                  { return false, time.Second }
func (h *hall) Hint(context.Context, []string, []int64, bool) error { return nil }
func (h *hall) HintJobs([]int32, bool, bool)                        {}
func (h *hall) CancelRuns([]cron.RunID, string) int                 { return 0 }
func (h *hall) Healthy() bool                                       { return true }
func (h *hall) Health(context.Context) []Check                      { return []Check{{Name: "hall", OK: true}} }

func (h *hall) RunNow(ctx context.Context, ref string) (cron.Job, error) {
	if h.panics {
		panic("a secret of the hall")
	}
	return h.StartManualRun(ctx, "c1", time.Minute, ref, cron.RunID(uuid.Must(uuid.NewV7())))
}

func handler(t *testing.T, s *store.Store, tokens Tokens) (http.Handler, *hall) {
	t.Helper()
	h := &hall{Store: s}
	log := slog.New(slog.DiscardHandler)
	engine := deploy.New(deploy.Config{Store: h, Now: time.Now, Changed: func(context.Context, string) {}, Logger: log})
	face, err := Handler(Config{
		Key: "c1", Version: "test", Reader: h, Runners: h, House: h, Deploy: engine, Jobs: desk{s}, JobReader: s, Tokens: tokens, RunnerBeat: time.Second, Logger: log,
		Triggers: clerk{s}, TriggerReader: s, Events: clerk{s}, TokenStore: s, Workers: clerk{s}, Reserved: []string{"vault"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return face, h
}

// serve serves a handler as a controller does, over HTTP/1.1 and h2c.
func serve(t *testing.T, face http.Handler) (url string, h2c *http.Client) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(face)
	s.Config.Protocols = protocols
	s.Config.MaxHeaderBytes = 64 << 10
	s.Start()
	t.Cleanup(s.Close)
	only2 := new(http.Protocols)
	only2.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: only2}
	t.Cleanup(transport.CloseIdleConnections)
	return s.URL, &http.Client{Transport: transport}
}

// wires are the ways in which a client can speak.
func wires(h2c *http.Client) map[string]wire {
	return map[string]wire{
		"connect proto": {http.DefaultClient, nil},
		"connect json":  {http.DefaultClient, []connect.ClientOption{connect.WithProtoJSON()}},
		"connect get":   {http.DefaultClient, []connect.ClientOption{connect.WithHTTPGet()}},
		"grpc":          {h2c, []connect.ClientOption{connect.WithGRPC()}},
		"grpc-web":      {h2c, []connect.ClientOption{connect.WithGRPCWeb()}},
	}
}

type wire struct {
	client  *http.Client
	options []connect.ClientOption
}

// clients are those of all services that people use, and the runners'.
type clients struct {
	deploy  carillonv1connect.DeployServiceClient
	cron    carillonv1connect.CronServiceClient
	runs    carillonv1connect.RunServiceClient
	runners carillonv1connect.RunnerServiceClient
	jobs    carillonv1connect.JobServiceClient

	triggers carillonv1connect.TriggerServiceClient
	events   carillonv1connect.EventServiceClient
	tokens   carillonv1connect.TokenServiceClient
}

func (w wire) clients(url string) clients {
	return clients{
		carillonv1connect.NewDeployServiceClient(w.client, url, w.options...),
		carillonv1connect.NewCronServiceClient(w.client, url, w.options...),
		carillonv1connect.NewRunServiceClient(w.client, url, w.options...),
		carillonv1connect.NewRunnerServiceClient(w.client, url, w.options...),
		carillonv1connect.NewJobServiceClient(w.client, url, w.options...),
		carillonv1connect.NewTriggerServiceClient(w.client, url, w.options...),
		carillonv1connect.NewEventServiceClient(w.client, url, w.options...),
		carillonv1connect.NewTokenServiceClient(w.client, url, w.options...),
	}
}

const digest = "0123456789abcdef"

func goodSchema() *carillonv1.Schema {
	return &carillonv1.Schema{Module: "m", Language: "go", Verbs: []*carillonv1.Verb{
		{Name: "beat", Request: "Unit", Response: "Unit", Cron: &carillonv1.Cron{Schedule: "* * * * *", TimeZone: "Europe/Paris", Timeout: durationpb.New(time.Minute)}},
	}}
}

// contents is a digest of everything that stands in the database.
func contents(db storetest.DB) string {
	var all strings.Builder
	for _, table := range []string{"modules", "deployments", "runners", "controllers", "cron_jobs", "cron_job_notes", "runs", "queues", "jobs", "job_history", "job_keys", "pauses", "triggers", "events",
		"debounces", "rate_limits", "tokens"} {
		var n int
		var sum string
		db.Scan("SELECT count(*), COALESCE(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM carillon."+table+" t", nil, &n, &sum)
		all.WriteString(table + " " + strconv.Itoa(n) + " " + sum + "\n")
	}
	return all.String()
}

// answer of a raw request: its code, "" for none.
func codeOf(t *testing.T, res *http.Response) (code, body string) {
	t.Helper()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	body = string(raw)
	status := res.Trailer.Get("Grpc-Status") + res.Header.Get("Grpc-Status")
	if n, err := strconv.Atoi(status); err == nil {
		return connect.Code(n).String(), body
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/connect+") {
		var end struct{ Error struct{ Code string } }
		for len(raw) >= 5 { // messages in envelopes, the last of them the end of the stream
			size := int(binary.BigEndian.Uint32(raw[1:5]))
			if raw[0]&2 != 0 {
				json.Unmarshal(raw[5:5+size], &end)
			}
			raw = raw[5+size:]
		}
		return end.Error.Code, body
	}
	var e struct{ Code string }
	json.Unmarshal(raw, &e)
	return e.Code, body
}
