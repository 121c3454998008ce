package rpc

import (
	"context"
	"slices"
	"strings"
	"testing"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	carillonv1 "carillon/proto/carillon/v1"
)

// A request that came before counts nothing and is answered however full the hour is; one that comes twice at once counts
// once.
func TestARepeatOverConnectCountsOnce(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	secret, _ := g.token("acme", "app", "io.cozy.jobs:POST:sendmail:worker")
	enqueue := func(keys ...string) (ids, codes []string) {
		t.Helper()
		req := &carillonv1.EnqueueJobsRequest{}
		for _, key := range keys {
			req.Jobs = append(req.Jobs, &carillonv1.NewJob{Ref: "m.sendmail", IdempotencyKey: key})
		}
		res, err := g.as(secret).jobs.EnqueueJobs(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range res.GetJobs() {
			ids, codes = append(ids, j.GetId()), append(codes, j.GetError().GetCode())
		}
		return ids, codes
	}
	uses := func() (n int) {
		g.db.Scan("SELECT count FROM carillon.rate_limits WHERE kind = 'sendmail'", nil, &n)
		return n
	}
	made, _ := enqueue("a", "b")
	if _, codes := enqueue("a", "b", "a"); strings.Join(codes, "") != "" || uses() != 2 {
		t.Errorf("repeats are answered %q, %d uses", codes, uses())
	}
	if twins, codes := enqueue("c", "c"); strings.Join(codes, "") != "" || twins[0] != twins[1] || uses() != 3 {
		t.Errorf("twins of one batch are answered %q, %d uses", codes, uses())
	}
	g.db.Exec("UPDATE carillon.rate_limits SET count = 200")
	ids, codes := enqueue("", "d", "a", "", "b")
	if over := "resource_exhausted"; !slices.Equal(codes, []string{over, over, "", over, ""}) || ids[2] != made[0] || ids[4] != made[1] {
		t.Errorf("a full hour answers %q", codes)
	}
}

// What is called whole or everything names no worker, whoever's it is.
func TestAWholeTypeRunsNothingOverConnect(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for _, tc := range []struct{ tenant, kind, scope, want string }{
		{"acme", "app", "*", deny}, {"acme", "konnector", "*", deny}, {"acme", "cli", "*", ""}, {"other", "cli", "*", deny}, {"acme", "cli", "io.cozy.jobs io.cozy.triggers", deny},
		{"acme", "app", "io.cozy.jobs:POST:* io.cozy.triggers:POST:*", deny}, {"acme", "app", "io.cozy.jobs:ALL:*:worker io.cozy.triggers:ALL:*:worker", deny},
		{"acme", "app", "io.cozy.jobs:ALL:v1:worker io.cozy.triggers:ALL:v1:worker", ""}, {"acme", "app", "io.cozy.jobs:ALL:m.v1:worker io.cozy.triggers:ALL:m.v1:worker", ""},
		{"other", "app", "io.cozy.jobs:ALL:v1:worker io.cozy.triggers:ALL:v1:worker", deny},
	} {
		secret, _ := g.token(tc.tenant, tc.kind, tc.scope)
		c := g.as(secret)
		res, err := c.jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{{Tenant: "acme", Ref: "m.v1"}}})
		if err != nil || res.GetJobs()[0].GetError().GetCode() != tc.want {
			t.Errorf("%+v: enqueued %v, %v", tc, res, err)
		}
		for _, worker := range []string{"v1", "m.v1"} {
			_, err := c.triggers.CreateTrigger(t.Context(), &carillonv1.CreateTriggerRequest{Tenant: "acme", Kind: "@in", Arguments: "1h", Worker: worker})
			if told(err) != tc.want {
				t.Errorf("%+v: a trigger of %s: %v", tc, worker, err)
			}
		}
		_, err = c.triggers.CreateTrigger(t.Context(), &carillonv1.CreateTriggerRequest{Tenant: "acme", Kind: "@client"})
		if (err == nil) != (tc.kind == "cli" && tc.scope == "*" && tc.tenant == "acme") {
			t.Errorf("%+v: a trigger of its client: %v", tc, err)
		}
	}
}

// Triggers are read and listed by a rule on any name of their worker, whichever they were made for.
func TestTriggersByAnyNameOfTheirWorker(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	short, long := g.trigger("acme", "v1"), g.trigger("acme", "m.v1")
	g.trigger("acme", "v2")
	for _, rule := range []string{"v1", "m.v1"} {
		secret, _ := g.token("acme", "app", "io.cozy.triggers:GET,POST:"+rule+":worker")
		c := g.as(secret).triggers
		for _, id := range []string{short, long} {
			if _, err := c.GetTrigger(t.Context(), &carillonv1.GetTriggerRequest{Id: id}); err != nil {
				t.Errorf("%s by a rule on %s: %v", id, rule, err)
			}
		}
		for _, worker := range []string{"v1", "m.v1"} {
			res, err := c.ListTriggers(t.Context(), &carillonv1.ListTriggersRequest{Workers: []string{worker}})
			if err != nil || len(res.GetTriggers()) != 2 {
				t.Errorf("listed %s by a rule on %s: %v, %v", worker, rule, res, err)
			}
		}
		if _, err := c.ListTriggers(t.Context(), &carillonv1.ListTriggersRequest{Workers: []string{"v2"}}); told(err) != deny {
			t.Errorf("listed v2 by a rule on %s: %v", rule, err)
		}
	}
}

// A job that is refused uses nothing of its verb's hour; one of which nobody knows what became of it does.
func TestRefusedJobsCountNothing(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	secret, _ := g.token("acme", "app", "io.cozy.jobs:POST:sendmail:worker")
	req := &carillonv1.EnqueueJobsRequest{}
	for _, payload := range []string{`{not json`, `1`, `"boom"`, `{not json`} {
		req.Jobs = append(req.Jobs, &carillonv1.NewJob{Ref: "m.sendmail", Payload: []byte(payload)})
	}
	res, err := g.as(secret).jobs.EnqueueJobs(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, j := range res.GetJobs() {
		codes = append(codes, j.GetError().GetCode())
	}
	var uses int
	g.db.Scan("SELECT count FROM carillon.rate_limits WHERE kind = 'sendmail'", nil, &uses)
	if bad := "invalid_argument"; !slices.Equal(codes, []string{bad, "", "internal", bad}) || uses != 2 {
		t.Errorf("answered %q, %d uses, want 2", codes, uses)
	}
}

// cashier counts what is given back.
type cashier struct {
	Workers
	back int
}

func (c *cashier) GiveBack(context.Context, string, job.New) { c.back++ }

// Where all jobs got one error, it says what they count as.
func TestARefusedBatchCountsNothing(t *testing.T) {
	jobs := make([]job.New, 3)
	for _, c := range []struct {
		answers []job.Enqueued
		err     error
		want    int
	}{
		{nil, cron.ErrInvalid, 2},
		{nil, cron.ErrUnavailable, 0},
		{[]job.Enqueued{{Existing: true}, {}, {Err: cron.ErrUnavailable}}, cron.ErrUnavailable, 1},
		{[]job.Enqueued{{Err: cron.ErrNotFound}, {Existing: true}, {Existing: true}}, nil, 2},
	} {
		w := &cashier{}
		a := &admission{face: &jobFace{Config: Config{Workers: w}}, uses: []bool{true, false, true}}
		if a.settle(t.Context(), jobs, c.answers, c.err); w.back != c.want {
			t.Errorf("%+v, %v: %d given back, want %d", c.answers, c.err, w.back, c.want)
		}
	}
}
