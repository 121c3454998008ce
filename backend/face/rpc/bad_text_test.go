package rpc

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	carillonv1 "carillon/proto/carillon/v1"
)

// examples holds one request of each RPC that is fine but for its texts.
var examples = map[string]proto.Message{
	"DeployService/Plan":             &carillonv1.PlanRequest{Schema: goodSchema(), Digest: digest},
	"DeployService/Deploy":           &carillonv1.DeployRequest{Schema: goodSchema(), Digest: digest},
	"DeployService/Scale":            &carillonv1.ScaleRequest{Module: "m", Replicas: 1},
	"DeployService/Kill":             &carillonv1.KillRequest{Module: "m"},
	"CronService/ListCronJobs":       &carillonv1.ListCronJobsRequest{Module: "m"},
	"CronService/GetCronJob":         &carillonv1.GetCronJobRequest{Ref: "m.v0"},
	"CronService/PauseCronJob":       &carillonv1.PauseCronJobRequest{Ref: "m.v0", Reason: "why"},
	"CronService/ResumeCronJob":      &carillonv1.ResumeCronJobRequest{Ref: "m.v0"},
	"CronService/RunCronJob":         &carillonv1.RunCronJobRequest{Ref: "m.v0"},
	"CronService/GetHistory":         &carillonv1.GetHistoryRequest{Ref: "m.v0"},
	"RunService/ListRuns":            &carillonv1.ListRunsRequest{Ref: "m.v0", Module: "m", Controller: "c1"},
	"RunService/WatchRuns":           &carillonv1.WatchRunsRequest{Ref: "m.v0", Module: "m"},
	"PeerService/Hint":               &carillonv1.HintRequest{Modules: []string{"m"}},
	"PeerService/CancelRuns":         &carillonv1.CancelRunsRequest{RunIds: []string{"018f0000-0000-7000-8000-000000000000"}, Reason: "why"},
	"JobService/EnqueueJobs":         &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Ref: "m.v0"}}},
	"JobService/GetJob":              &carillonv1.GetJobRequest{Id: aJobID},
	"JobService/ListJobs":            &carillonv1.ListJobsRequest{Ref: "m.v0"},
	"JobService/WatchJob":            &carillonv1.WatchJobRequest{Id: aJobID},
	"JobService/CancelJob":           &carillonv1.CancelJobRequest{Id: aJobID, Reason: "why"},
	"JobService/RetryJob":            &carillonv1.RetryJobRequest{Id: aJobID},
	"JobService/RedriveJobs":         &carillonv1.RedriveJobsRequest{Ref: "m.v0"},
	"JobService/PauseJobs":           &carillonv1.PauseJobsRequest{Ref: "m.v0", Reason: "why"},
	"JobService/ResumeJobs":          &carillonv1.ResumeJobsRequest{Ref: "m.v0"},
	"RunnerService/Register":         &carillonv1.RegisterRequest{Runner: "runner-1", Endpoint: "http://127.0.0.1:1", Capacity: 1, Schema: goodSchema(), Digest: digest},
	"RunnerService/Heartbeat":        &carillonv1.HeartbeatRequest{Runner: "runner-1"},
	"RunnerService/Deregister":       &carillonv1.DeregisterRequest{Runner: "runner-1"},
	"TriggerService/CreateTrigger":   &carillonv1.CreateTriggerRequest{Kind: "@daily", Worker: "v1"},
	"TriggerService/GetTrigger":      &carillonv1.GetTriggerRequest{Id: aKey},
	"TriggerService/ListTriggers":    &carillonv1.ListTriggersRequest{},
	"TriggerService/LaunchTrigger":   &carillonv1.LaunchTriggerRequest{Id: aKey},
	"TriggerService/PauseTrigger":    &carillonv1.PauseTriggerRequest{Id: aKey, Reason: "why"},
	"TriggerService/DeleteTrigger":   &carillonv1.DeleteTriggerRequest{Id: aKey},
	"TriggerService/PreviewTrigger":  &carillonv1.PreviewTriggerRequest{Kind: "@daily"},
	"EventService/PublishEvents":     &carillonv1.PublishEventsRequest{Events: []*carillonv1.Event{{Type: "a.b.c", Verb: "CREATED"}}},
	"TokenService/CreateToken":       &carillonv1.CreateTokenRequest{Name: "shop"},
	"TokenService/ListTokens":        &carillonv1.ListTokensRequest{},
	"TokenService/RevokeToken":       &carillonv1.RevokeTokenRequest{Id: 1 << 60},
	"ClusterService/ListControllers": nil, "ClusterService/GetRing": nil, "ClusterService/GetHealth": nil, "PeerService/Interrupted": nil,
	"DeployService/ListDeployments": nil, "PeerService/HintJobs": nil, "JobService/ListQueues": nil,
}

// withText returns copies of a message, each with one of its texts replaced, by path.
func withText(m proto.Message, text string) map[string]proto.Message {
	all := map[string]proto.Message{}
	var walk func(at string, d protoreflect.MessageDescriptor, set func(protoreflect.Message, func(protoreflect.Message)))
	walk = func(at string, d protoreflect.MessageDescriptor, descend func(protoreflect.Message, func(protoreflect.Message))) {
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			switch {
			case f.Kind() == protoreflect.StringKind:
				c := proto.Clone(m)
				descend(c.ProtoReflect(), func(m protoreflect.Message) {
					if f.IsList() {
						m.Mutable(f).List().Append(protoreflect.ValueOfString(text))
						return
					}
					m.Set(f, protoreflect.ValueOfString(text))
				})
				all[at+string(f.Name())] = c
			case f.Kind() == protoreflect.MessageKind && strings.HasPrefix(string(f.Message().FullName()), "carillon."):
				walk(at+string(f.Name())+".", f.Message(), func(m protoreflect.Message, do func(protoreflect.Message)) {
					descend(m, func(m protoreflect.Message) {
						if f.IsList() {
							if l := m.Mutable(f).List(); l.Len() == 0 {
								l.AppendMutable()
							}
							do(m.Mutable(f).List().Get(0).Message())
							return
						}
						do(m.Mutable(f).Message())
					})
				})
			}
		}
	}
	walk("", m.ProtoReflect().Descriptor(), func(m protoreflect.Message, do func(protoreflect.Message)) { do(m) })
	return all
}

// Every text of every request, with a NUL, with bytes that are no UTF-8, and 64 KiB long: refused, and nothing written.
func TestBadTextsInEveryField(t *testing.T) {
	t.Parallel()
	db, face, _ := furnished(t)
	before := contents(db)
	const place = "m.v0-text-that-becomes-bytes"
	texts := 0
	for _, m := range methods(t) {
		procedure := procedureOf(m)
		short := strings.TrimPrefix(procedure, "/carillon.v1.")
		example, known := examples[short]
		if strings.HasPrefix(short, "VerbService/") || known && example == nil {
			continue
		}
		if !known {
			t.Errorf("no example of %s", short)
			continue
		}
		try := func(what, field string, body []byte, want string) {
			t.Helper()
			texts++
			contentType := "application/proto"
			if m.IsStreamingServer() {
				contentType = "application/connect+proto"
				body = append([]byte{0, 0, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
			}
			r := httptest.NewRequest(http.MethodPost, procedure, bytes.NewReader(body))
			r.Header.Set("Content-Type", contentType)
			r = r.WithContext(t.Context())
			w := httptest.NewRecorder()
			face.ServeHTTP(w, r)
			if code, text := codeOf(t, w.Result()); code != want || strings.Contains(text, "SQLSTATE") {
				t.Errorf("%s in %s of %s: %q, want %q; %.200s", what, field, short, code, want, text)
			}
		}
		for field, bad := range withText(example, "m.v0\x00drop") {
			raw, _ := proto.Marshal(bad)
			try("NUL", field, raw, "invalid_argument")
		}
		for field, bad := range withText(example, place) {
			raw, _ := proto.Marshal(bad)
			try("no UTF-8", field, bytes.Replace(raw, []byte(place), bytes.Repeat([]byte{0xff}, len(place)), 1), "invalid_argument")
		}
		for field, bad := range withText(example, strings.Repeat("x", 64<<10)) {
			raw, _ := proto.Marshal(bad)
			want := "invalid_argument"
			switch short {
			case "PeerService/Hint": // a hint of a module that is not there is nothing to do
				want = ""
			case "JobService/EnqueueJobs": // each job has an answer of its own, looked at in TestBadJobsAreRefusedOneByOne
				want = ""
			}
			try("64 KiB", field, raw, want)
		}
	}
	if texts < 100 {
		t.Errorf("only %d texts were tried", texts)
	}
	if after := contents(db); after != before {
		t.Errorf("something was written:\n%swas\n%s", after, before)
	}
}
