package rpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// furnished is a database with one cron job m.v0, executing, and the face over it.
func furnished(t *testing.T) (storetest.DB, http.Handler, *hall) {
	t.Helper()
	db := storetest.Open(t, "America/New_York")
	db.Deploy(2, db.Now().Add(time.Hour))
	face, h := handler(t, db.Store, Tokens{})
	if _, err := h.RunNow(t.Context(), "m.v0"); err != nil {
		t.Fatal(err)
	}
	return db, face, h
}

type details struct {
	reason, request string
	fields          []string
	retry           time.Duration
}

func detailsOf(err error) (d details) {
	ce := (*connect.Error)(nil)
	if !errors.As(err, &ce) {
		return d
	}
	for _, raw := range ce.Details() {
		m, _ := raw.Value()
		switch m := m.(type) {
		case *errdetails.ErrorInfo:
			d.reason, d.request = m.GetReason(), m.GetMetadata()["request_id"]
		case *errdetails.BadRequest:
			for _, f := range m.GetFieldViolations() {
				d.fields = append(d.fields, f.GetField())
			}
		case *errdetails.RetryInfo:
			d.retry = m.GetRetryDelay().AsDuration()
		}
	}
	return d
}

func withCron(change func(*carillonv1.Cron)) *carillonv1.Schema {
	s := goodSchema()
	change(s.Verbs[0].Cron)
	return s
}

// Each bad request, spoken in every protocol: its code and its field, and nothing written.
func TestBadRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	db, face, _ := furnished(t)
	base, h2c := serve(t, face)
	ctx := t.Context()
	deployOf := func(s *carillonv1.Schema) func(clients) error {
		return func(c clients) error {
			_, err := c.deploy.Deploy(ctx, &carillonv1.DeployRequest{Schema: s, Digest: digest})
			if _, planned := c.deploy.Plan(ctx, &carillonv1.PlanRequest{Schema: s, Digest: digest}); connect.CodeOf(planned) != connect.CodeOf(err) {
				return fmt.Errorf("plan says %w", planned)
			}
			return err
		}
	}
	manyVerbs, twice, long := goodSchema(), goodSchema(), goodSchema()
	for i := range 1001 {
		manyVerbs.Verbs = append(manyVerbs.Verbs, &carillonv1.Verb{Name: fmt.Sprint("v", i)})
	}
	twice.Verbs = append(twice.Verbs, twice.Verbs[0])
	for i := range 999 {
		long.Verbs = append(long.Verbs, &carillonv1.Verb{Name: fmt.Sprint("v", i), Cron: &carillonv1.Cron{Schedule: "* * * * " + strings.Repeat("1,2,", 120) + "3"}})
	}
	type bad struct {
		call  func(clients) error
		code  connect.Code
		field string
	}
	cases := map[string]bad{
		"never fires":     {deployOf(withCron(func(c *carillonv1.Cron) { c.Schedule = "0 0 31 2 *" })), connect.CodeInvalidArgument, "schema.verbs[0].cron.schedule"},
		"past year":       {deployOf(withCron(func(c *carillonv1.Cron) { c.Schedule = "0 0 0 1 1 * 2020" })), connect.CodeInvalidArgument, "schema.verbs[0].cron.schedule"},
		"no schedule":     {deployOf(withCron(func(c *carillonv1.Cron) { c.Schedule = "often" })), connect.CodeInvalidArgument, "schema.verbs[0].cron.schedule"},
		"empty schedule":  {deployOf(withCron(func(c *carillonv1.Cron) { c.Schedule = "" })), connect.CodeInvalidArgument, "schema.verbs[0].cron.schedule"},
		"no zone":         {deployOf(withCron(func(c *carillonv1.Cron) { c.TimeZone = "../../etc/passwd" })), connect.CodeInvalidArgument, "schema.verbs[0].cron.time_zone"},
		"local zone":      {deployOf(withCron(func(c *carillonv1.Cron) { c.TimeZone = "Local" })), connect.CodeInvalidArgument, "schema.verbs[0].cron.time_zone"},
		"short timeout":   {deployOf(withCron(func(c *carillonv1.Cron) { c.Timeout = durationpb.New(-time.Hour) })), connect.CodeInvalidArgument, "schema.verbs[0].cron.timeout"},
		"unknown catchup": {deployOf(withCron(func(c *carillonv1.Cron) { c.Catchup = 77 })), connect.CodeInvalidArgument, "schema.verbs[0].cron.catchup"},
		"request type":    {deployOf(func() *carillonv1.Schema { s := goodSchema(); s.Verbs[0].Request = "Input"; return s }()), connect.CodeInvalidArgument, "schema.verbs[0].request"},
		"twice":           {deployOf(twice), connect.CodeInvalidArgument, "schema.verbs[1].name"},
		"too many verbs":  {deployOf(manyVerbs), connect.CodeInvalidArgument, "schema.verbs"},
		"oversized schema": {func(c clients) error {
			_, err := c.deploy.Deploy(ctx, &carillonv1.DeployRequest{Schema: long, Digest: digest})
			return err
		}, connect.CodeInvalidArgument, "schema.module"},
		"bad name":     {deployOf(func() *carillonv1.Schema { s := goodSchema(); s.Module = "../m"; return s }()), connect.CodeInvalidArgument, "schema.module"},
		"no schema":    {deployOf(nil), connect.CodeInvalidArgument, "schema"},
		"bad language": {deployOf(func() *carillonv1.Schema { s := goodSchema(); s.Language = "cobol"; return s }()), connect.CodeInvalidArgument, "schema.language"},
		"kotlin, no runner": {func(c clients) error {
			s := goodSchema()
			s.Language = "kotlin"
			_, err := c.deploy.Deploy(ctx, &carillonv1.DeployRequest{Schema: s, Digest: digest, Now: true})
			return err
		}, connect.CodeFailedPrecondition, ""},
		"bad digest": {func(c clients) error {
			_, err := c.deploy.Deploy(ctx, &carillonv1.DeployRequest{Schema: goodSchema(), Digest: "DROP"})
			return err
		}, connect.CodeInvalidArgument, "digest"},
		"unknown module": {func(c clients) error {
			_, err := c.deploy.Scale(ctx, &carillonv1.ScaleRequest{Module: "x", Replicas: 1})
			return err
		}, connect.CodeNotFound, ""},
		"kill unknown": {func(c clients) error { _, err := c.deploy.Kill(ctx, &carillonv1.KillRequest{Module: "x"}); return err }, connect.CodeNotFound, ""},
		"negative scale": {func(c clients) error {
			_, err := c.deploy.Scale(ctx, &carillonv1.ScaleRequest{Module: "m", Replicas: -1})
			return err
		}, connect.CodeInvalidArgument, "replicas"},
		"get unknown": {func(c clients) error {
			_, err := c.cron.GetCronJob(ctx, &carillonv1.GetCronJobRequest{Ref: "m.x"})
			return err
		}, connect.CodeNotFound, ""},
		"pause unknown": {func(c clients) error {
			_, err := c.cron.PauseCronJob(ctx, &carillonv1.PauseCronJobRequest{Ref: "m.x"})
			return err
		}, connect.CodeNotFound, ""},
		"pause nowhere": {func(c clients) error {
			_, err := c.cron.PauseCronJob(ctx, &carillonv1.PauseCronJobRequest{Ref: "x.x"})
			return err
		}, connect.CodeNotFound, ""},
		"pause no ref": {func(c clients) error {
			_, err := c.cron.PauseCronJob(ctx, &carillonv1.PauseCronJobRequest{Ref: "beat"})
			return err
		}, connect.CodeInvalidArgument, ""},
		"resume unknown": {func(c clients) error {
			_, err := c.cron.ResumeCronJob(ctx, &carillonv1.ResumeCronJobRequest{Ref: "m.x"})
			return err
		}, connect.CodeNotFound, ""},
		"run unknown": {func(c clients) error {
			_, err := c.cron.RunCronJob(ctx, &carillonv1.RunCronJobRequest{Ref: "m.x"})
			return err
		}, connect.CodeNotFound, ""},
		"run executing": {func(c clients) error {
			_, err := c.cron.RunCronJob(ctx, &carillonv1.RunCronJobRequest{Ref: "m.v0"})
			return err
		}, connect.CodeFailedPrecondition, ""},
		"history": {func(c clients) error {
			_, err := c.cron.GetHistory(ctx, &carillonv1.GetHistoryRequest{Ref: "m.x"})
			return err
		}, connect.CodeNotFound, ""},
		"negative page": {func(c clients) error {
			_, err := c.cron.ListCronJobs(ctx, &carillonv1.ListCronJobsRequest{PageSize: -1})
			return err
		}, connect.CodeInvalidArgument, "page_size"},
		"huge page": {func(c clients) error {
			_, err := c.runs.ListRuns(ctx, &carillonv1.ListRunsRequest{PageSize: 1 << 30})
			return err
		}, connect.CodeInvalidArgument, "page_size"},
		"verdict -1": {func(c clients) error {
			_, err := c.runs.ListRuns(ctx, &carillonv1.ListRunsRequest{Verdicts: []carillonv1.Verdict{-1}})
			return err
		}, connect.CodeInvalidArgument, "verdicts"},
		"verdict 99": {func(c clients) error {
			_, err := c.runs.ListRuns(ctx, &carillonv1.ListRunsRequest{Verdicts: []carillonv1.Verdict{99}})
			return err
		}, connect.CodeInvalidArgument, "verdicts"},
		"many verdicts": {func(c clients) error {
			_, err := c.runs.ListRuns(ctx, &carillonv1.ListRunsRequest{Verdicts: make([]carillonv1.Verdict, 17)})
			return err
		}, connect.CodeInvalidArgument, "verdicts"},
		"stale runner": {func(c clients) error {
			_, err := c.runners.Heartbeat(ctx, &carillonv1.HeartbeatRequest{Runner: "gone-long-ago"})
			return err
		}, connect.CodeNotFound, ""},
		"watch nothing": {func(c clients) error {
			stream, err := c.runs.WatchRuns(ctx, &carillonv1.WatchRunsRequest{Ref: strings.Repeat("x", 300)})
			if err != nil {
				return err
			}
			defer stream.Close()
			stream.Receive()
			return stream.Err()
		}, connect.CodeInvalidArgument, "ref"},
	}
	for name, token := range map[string]string{
		"no base64": "!", "no json": "aGVsbG8", "of nothing": base64.RawURLEncoding.EncodeToString([]byte(`{"Of":"","After":"x"}`)),
		"of another": nextToken(bind("history", &carillonv1.GetHistoryRequest{Ref: "m.v0"}), time.Now()), "array": base64.RawURLEncoding.EncodeToString([]byte(`[]`)),
		"with a NUL": nextToken(bind("cron jobs", &carillonv1.ListCronJobsRequest{}), "m\x00"), "too long": strings.Repeat("a", 2000),
	} {
		cases["page token "+name] = bad{func(c clients) error {
			_, err := c.runs.ListRuns(ctx, &carillonv1.ListRunsRequest{PageToken: token})
			if _, jobs := c.cron.ListCronJobs(ctx, &carillonv1.ListCronJobsRequest{PageToken: token}); connect.CodeOf(jobs) != connect.CodeInvalidArgument {
				t.Errorf("list of cron jobs: %v", jobs)
			}
			return err
		}, connect.CodeInvalidArgument, "page_token"}
	}
	for name, endpoint := range map[string]string{"none": "", "file": "file:///etc/passwd", "no scheme": "127.0.0.1:1", "user": "http://a:b@c:1", "tls": "https://a:1"} {
		cases["endpoint "+name] = bad{func(c clients) error {
			_, err := c.runners.Register(ctx, &carillonv1.RegisterRequest{Runner: "runner-1", Endpoint: endpoint, Capacity: 1, Schema: goodSchema(), Digest: digest})
			return err
		}, connect.CodeInvalidArgument, "endpoint"}
	}
	before := contents(db)
	for protocol, w := range wires(h2c) {
		for name, c := range cases {
			err := c.call(w.clients(base))
			d := detailsOf(err)
			if connect.CodeOf(err) != c.code || c.field != "" && (len(d.fields) == 0 || d.fields[0] != c.field) || d.reason == "" || d.request == "" {
				t.Errorf("%s by %s: %v with %+v; want %s of %q", name, protocol, err, d, c.code, c.field)
			}
			if err != nil && (strings.Contains(err.Error(), "SQLSTATE") || len(err.Error()) > 20<<10) {
				t.Errorf("%s by %s says too much: %.300v", name, protocol, err)
			}
		}
	}
	if after := contents(db); after != before {
		t.Errorf("something was written:\n%swas\n%s", after, before)
	}
}

func TestMalformedAndOversizedBodies(t *testing.T) {
	t.Parallel()
	db, face, _ := furnished(t)
	before := contents(db)
	big := goodSchema()
	big.Verbs[0].Request = strings.Repeat("x", MaxBody+1)
	oversized, _ := proto.Marshal(&carillonv1.DeployRequest{Schema: big, Digest: digest})
	envelope := func(b []byte, flags byte) []byte {
		return append([]byte{flags, byte(len(b) >> 24), byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b))}, b...)
	}
	bomb := func() []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		for range 32 {
			z.Write(make([]byte, 1<<20))
		}
		z.Close()
		return b.Bytes()
	}()
	for name, c := range map[string]struct {
		contentType, encoding string
		body                  []byte
		want                  string
	}{
		"garbage":             {"application/proto", "", []byte{0xff, 0xff, 0xff}, "invalid_argument"},
		"cut off":             {"application/proto", "", oversized[:100], "invalid_argument"},
		"garbage json":        {"application/json", "", []byte(`{"schema":`), "invalid_argument"},
		"unknown json field":  {"application/json", "", []byte(`{"digest":7}`), "invalid_argument"},
		"garbage by grpc":     {"application/grpc", "", envelope([]byte{0xff, 0xff}, 0), "invalid_argument"},
		"oversized":           {"application/proto", "", oversized, "resource_exhausted"},
		"oversized json":      {"application/json", "", []byte(`{"digest":"` + strings.Repeat("x", MaxBody) + `"}`), "resource_exhausted"},
		"oversized by grpc":   {"application/grpc", "", envelope(oversized, 0), "resource_exhausted"},
		"says it is huge":     {"application/grpc", "", []byte{0, 0xff, 0xff, 0xff, 0xff}, "resource_exhausted"},
		"gzip bomb":           {"application/proto", "gzip", bomb, "resource_exhausted"},
		"gzip bomb by grpc":   {"application/grpc", "gzip", envelope(bomb, 1), "resource_exhausted"},
		"no gzip":             {"application/proto", "gzip", []byte("hello"), "invalid_argument"},
		"unknown compression": {"application/proto", "brotli", nil, "unimplemented"},
		"deep":                {"application/json", "", []byte(strings.Repeat(`{"schema":`, 20000)), "invalid_argument"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/carillon.v1.DeployService/Deploy", bytes.NewReader(c.body))
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", c.contentType)
		if header := "Content-Encoding"; c.encoding != "" {
			if strings.HasPrefix(c.contentType, "application/grpc") {
				header = "Grpc-Encoding"
			}
			r.Header.Set(header, c.encoding)
		}
		w := httptest.NewRecorder()
		face.ServeHTTP(w, r)
		if code, text := codeOf(t, w.Result()); code != c.want || len(text) > 4096 {
			t.Errorf("%s: %q, want %q; %.300s", name, code, c.want, text)
		}
		if w.Header().Get(requestIDHeader) == "" {
			t.Errorf("%s: no request id", name)
		}
	}
	if after := contents(db); after != before {
		t.Errorf("something was written:\n%swas\n%s", after, before)
	}
}

func TestGetNeverChangesAnything(t *testing.T) {
	t.Parallel()
	db, face, _ := furnished(t)
	base, _ := serve(t, face)
	before := contents(db)
	for _, m := range methods(t) {
		service := string(m.Parent().FullName())
		if service == "carillon.v1.VerbService" || m.IsStreamingServer() {
			continue
		}
		query := url.Values{"encoding": {"json"}, "message": {`{}`}, "connect": {"v1"}}
		res, err := http.Get(base + procedureOf(m) + "?" + query.Encode())
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		options := sideEffects(m)
		if safe := options == "NO_SIDE_EFFECTS"; safe == (res.StatusCode == http.StatusMethodNotAllowed) {
			t.Errorf("GET %s, which has %s: %d %.200s", m.FullName(), options, res.StatusCode, body)
		}
		query.Set("message", "%ff")
		if res, err := http.Get(base + procedureOf(m) + "?" + query.Encode()); err == nil {
			if res.StatusCode < 400 {
				t.Errorf("garbage by GET %s: %d", m.FullName(), res.StatusCode)
			}
			res.Body.Close()
		}
	}
	if after := contents(db); after != before {
		t.Errorf("something was written:\n%swas\n%s", after, before)
	}
}

func sideEffects(m protoreflect.MethodDescriptor) string {
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(m.FullName())
	options := d.Options().ProtoReflect()
	f := options.Descriptor().Fields().ByName("idempotency_level")
	return string(f.Enum().Values().ByNumber(options.Get(f).Enum()).Name())
}

func TestTimesThatAreNone(t *testing.T) {
	t.Parallel()
	_, face, _ := furnished(t)
	base, h2c := serve(t, face)
	c := wires(h2c)["grpc"].clients(base)
	for _, bad := range []*timestamppb.Timestamp{{Seconds: 1 << 60}, {Seconds: -1 << 60}, {Nanos: -1}} {
		for field, req := range map[string]*carillonv1.ListRunsRequest{"from": {From: bad}, "to": {To: bad}} {
			if _, err := c.runs.ListRuns(t.Context(), req); connect.CodeOf(err) != connect.CodeInvalidArgument || fmt.Sprint(detailsOf(err).fields) != "["+field+"]" {
				t.Errorf("%s %v: %v, %+v", field, bad, err, detailsOf(err))
			}
		}
	}
	s := withCron(func(c *carillonv1.Cron) { c.Timeout = &durationpb.Duration{Seconds: 1, Nanos: -1} })
	if _, err := c.deploy.Plan(t.Context(), &carillonv1.PlanRequest{Schema: s, Digest: digest}); connect.CodeOf(err) != connect.CodeInvalidArgument || fmt.Sprint(detailsOf(err).fields) != "[schema.verbs[0].cron.timeout]" {
		t.Errorf("timeout: %v, %+v", err, detailsOf(err))
	}
	// The far ends of what a time can be are times.
	for _, far := range []*timestamppb.Timestamp{{Seconds: -62135596800}, {Seconds: 253402300799}} {
		if _, err := c.runs.ListRuns(t.Context(), &carillonv1.ListRunsRequest{From: far, To: far}); err != nil {
			t.Errorf("%v: %v", far, err)
		}
	}
}

func TestPanicEndsOneRequest(t *testing.T) {
	t.Parallel()
	_, face, h := furnished(t)
	base, h2c := serve(t, face)
	c := wires(h2c)["connect json"].clients(base)
	h.panics = true
	_, err := c.cron.RunCronJob(t.Context(), &carillonv1.RunCronJobRequest{Ref: "m.v1"})
	if connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "secret") || detailsOf(err).reason != "INTERNAL" {
		t.Errorf("%v", err)
	}
	if _, err := c.cron.GetCronJob(t.Context(), &carillonv1.GetCronJobRequest{Ref: "m.v1"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	_, face, _ := furnished(t)
	for sent, same := range map[string]bool{"abc-DEF_123": true, "": false, "a b": false, "a\"b": false, strings.Repeat("x", 65): false} {
		r := httptest.NewRequest(http.MethodPost, "/carillon.v1.CronService/GetCronJob", strings.NewReader(`{"ref":"m.x"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(requestIDHeader, sent)
		w := httptest.NewRecorder()
		face.ServeHTTP(w, r.WithContext(context.WithoutCancel(t.Context())))
		got := w.Header().Get(requestIDHeader)
		if (got == sent) != same || got == "" {
			t.Errorf("sent %q, got %q", sent, got)
		}
	}
}
