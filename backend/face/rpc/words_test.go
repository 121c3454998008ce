package rpc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// A refusal is said in its own words: without its kind, which the code says, and without what each floor tried.
func TestRefusalsSayTheirOwnWords(t *testing.T) {
	t.Parallel()
	_, face, _ := furnished(t)
	base, h2c := serve(t, face)
	c := wires(h2c)["connect json"].clients(base)
	for want, call := range map[string]func() error{
		"not_found: no job " + aJobID: func() error {
			_, err := c.jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Id: aJobID})
			return err
		},
		"not_found: no job " + aJobID + " ": func() error {
			_, err := c.jobs.CancelJob(t.Context(), &carillonv1.CancelJobRequest{Id: aJobID})
			return err
		},
		"not_found: no job " + aJobID + "  ": func() error {
			_, err := c.jobs.RetryJob(t.Context(), &carillonv1.RetryJobRequest{Id: aJobID})
			return err
		},
		`invalid_argument: id: "xxx" is no job id`: func() error {
			_, err := c.jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Id: "xxx"})
			return err
		},
		"not_found: no module gone is deployed": func() error {
			_, err := c.deploy.Scale(t.Context(), &carillonv1.ScaleRequest{Module: "gone"})
			return err
		},
		"not_found: no cron job m.gone": func() error {
			_, err := c.cron.GetCronJob(t.Context(), &carillonv1.GetCronJobRequest{Ref: "m.gone"})
			return err
		},
		`invalid_argument: "gone" is no module.verb`: func() error {
			_, err := c.cron.PauseCronJob(t.Context(), &carillonv1.PauseCronJobRequest{Ref: "gone"})
			return err
		},
		`invalid_argument: ref: "m.send_mail" is no module.verb`: func() error {
			_, err := c.jobs.PauseJobs(t.Context(), &carillonv1.PauseJobsRequest{Ref: "m.send_mail"})
			return err
		},
	} {
		if err := call(); err == nil || err.Error() != strings.TrimRight(want, " ") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What is too large is named with its bound, whether the payload alone is or the whole request.
func TestATooLargePayloadIsNamed(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	face, _ := handler(t, db.Store, Tokens{})
	base, h2c := serve(t, face)
	for protocol, w := range wires(h2c) {
		res, err := w.clients(base).jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{
			{Ref: "m.v1", Payload: bytes.Repeat([]byte(" "), job.MaxPayload+1)},
		}})
		if e := res.GetJobs()[0].GetError(); err != nil || e.GetField() != "payload" || e.GetMessage() != "has 1048577 bytes, at most 1048576 are accepted" {
			t.Errorf("%s: %v, %v", protocol, res, err)
		}
	}
	for _, size := range []int{MaxBody * 3 / 4, 3 * MaxBody} { // of the payload, before base64
		body, err := json.Marshal(map[string]any{"jobs": []any{map[string]any{"ref": "m.v1", "payload": base64.StdEncoding.EncodeToString(make([]byte, size))}}})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(base+"/carillon.v1.JobService/EnqueueJobs", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if said := string(text); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(said, `"message":"payload: the request has `) ||
			!strings.Contains(said, "at most 4194304 are accepted, and of a job's payload at most 1048576") {
			t.Errorf("%d bytes: %s %s", size, resp.Status, said)
		}
	}
	_, err := wires(h2c)["connect proto"].clients(base).jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{
		{Ref: "m.v1", Payload: make([]byte, MaxBody)},
	}})
	if d := detailsOf(err); connect.CodeOf(err) != connect.CodeResourceExhausted || len(d.fields) != 1 || d.fields[0] != "payload" || d.reason == "" || d.request == "" {
		t.Errorf("%v, %+v", err, d)
	}
}

// The rule for names is the same where a message is checked, where a schema is, and where a ref is read.
func TestNamesHaveOneRule(t *testing.T) {
	t.Parallel()
	_, face, _ := furnished(t)
	base, h2c := serve(t, face)
	c := wires(h2c)["connect proto"].clients(base)
	for _, name := range []string{"shop", "shop2", "aB", "my_shop", "my-shop", "Shop", "2shop", "shop.x", "", "shöp", strings.Repeat("s", cron.MaxNameBytes), strings.Repeat("s", cron.MaxNameBytes+1)} {
		_, _, want := cron.ParseRef(name + ".v")
		for what, spoil := range map[string]func(*carillonv1.Schema){
			"module": func(s *carillonv1.Schema) { s.Module = name },
			"verb":   func(s *carillonv1.Schema) { s.Verbs[0].Name = name },
		} {
			good := goodSchema()
			spoil(good)
			_, err := c.deploy.Plan(t.Context(), &carillonv1.PlanRequest{Schema: good, Digest: digest})
			if got := err == nil; got != want || err != nil && !strings.HasPrefix(err.Error(), "invalid_argument: validation error") {
				t.Errorf("a %s named %.40q: %v, and as a part of a ref %t", what, name, err, want)
			}
		}
	}
}
