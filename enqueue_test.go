package carillon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
)

func TestEnqueueSaysWhatItIsTold(t *testing.T) {
	o, url := newOffice(t)
	c := clientOf(t, url)
	at := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
	job, err := Enqueue(t.Context(), c, "m.send", mail{To: "a<b>"}, Delay(time.Minute), Priority(0), UniqueFor("u", time.Hour), Idempotency("i"),
		Tags("a", "b"), Tags("c"), Tenant("acme"), Timeout(time.Second), Attempts(7), Backoff(time.Second, time.Minute), ExpiresAt(at), At(at))
	if err != nil || job != (Enqueued{ID: "j1"}) {
		t.Fatalf("%+v, %v", job, err)
	}
	got := o.asked[0]
	if got.GetRef() != "m.send" || string(got.GetPayload()) != `{"to":"a<b>","size":{"bytes":0}}` || got.GetDelay().AsDuration() != time.Minute ||
		got.Priority == nil || got.GetPriority() != 0 || got.GetUniqueKey() != "u" || got.GetUniqueWindow().AsDuration() != time.Hour ||
		got.GetIdempotencyKey() != "i" || !slices.Equal(got.GetTags(), []string{"a", "b", "c"}) || got.GetTenant() != "acme" ||
		got.GetTimeout().AsDuration() != time.Second || got.GetMaxAttempts() != 7 || got.GetBackoff().AsDuration() != time.Second ||
		got.GetBackoffCeiling().AsDuration() != time.Minute || !got.GetExpiresAt().AsTime().Equal(at) || !got.GetDueAt().AsTime().Equal(at) {
		t.Errorf("asked for %v", got)
	}
	if job, err = Enqueue(t.Context(), c, "m.send", mail{To: "a<b>"}, Idempotency("i")); err != nil || job != (Enqueued{ID: "j1", Existing: true}) {
		t.Errorf("again: %+v, %v", job, err)
	}
	for range 2 {
		if _, err = Enqueue(t.Context(), c, "m.beat", Unit{}, Unique("k")); err != nil {
			t.Error(err)
		}
	}
	a, b := o.asked[2], o.asked[3]
	if len(a.GetIdempotencyKey()) != 32 || a.GetIdempotencyKey() == b.GetIdempotencyKey() || len(a.GetPayload()) != 0 || a.Priority != nil || a.GetUniqueKey() != "k" {
		t.Errorf("asked for %v and %v", a, b)
	}
}

func TestRefusalsNameTheField(t *testing.T) {
	_, url := newOffice(t)
	c := clientOf(t, url)
	for name, f := range map[string]struct {
		ref  string
		req  any
		opt  JobOption
		want RefusedError
	}{
		"by the cluster": {"m.send", map[string]int{"to": 7}, nil, RefusedError{Code: "invalid_argument", Field: "payload.to", Message: "expected string, got number"}},
		"no such verb":   {"m.none", nil, nil, RefusedError{Code: "not_found", Message: "no such verb"}},
		"too large":      {"m.send", strings.Repeat("x", maxPayload), nil, RefusedError{Code: "invalid_argument", Field: "payload", Message: "has 1048578 bytes, at most 1048576 are accepted"}},
		"no JSON":        {"m.send", func() {}, nil, RefusedError{Code: "invalid_argument", Field: "payload", Message: "json: unsupported type: func()"}},
		"no text":        {"m.send", nil, Tags("a", "\xff"), RefusedError{Code: "invalid_argument", Field: "tags[1]", Message: "is not valid UTF-8"}},
		"absurd":         {"m.send", nil, Priority(1 << 40), RefusedError{Code: "invalid_argument", Field: "priority", Message: "1099511627776 is absurd"}},
		"nobody's child": {"m.send", nil, Child(), RefusedError{Code: "invalid_argument", Field: "parent_id", Message: "only the verb of a job has children: enqueue them with its context"}},
	} {
		var opts []JobOption
		if f.opt != nil {
			opts = append(opts, f.opt)
		}
		_, err := Enqueue(t.Context(), c, f.ref, f.req, opts...)
		var got *RefusedError
		if !errors.As(err, &got) || *got != f.want || !strings.HasPrefix(err.Error(), "enqueue "+f.ref+": "+f.want.Code+": ") {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, ErrNotFound) != (f.want.Code == "not_found") {
			t.Errorf("%s: not found or not: %v", name, err)
		}
	}
	stranger := clientOf(t, url, WithToken("wrong"))
	_, err := Enqueue(t.Context(), stranger, "m.send", Unit{})
	var got *RefusedError
	if !errors.As(err, &got) || got.Code != "unauthenticated" || connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a wrong token: %v", err)
	}
	if _, err := Enqueue(t.Context(), nil, "m.send", Unit{}); err == nil || !strings.Contains(err.Error(), "no client") {
		t.Errorf("no client: %v", err)
	}
}

// A lost answer, a controller that drains and a database that is away for a moment make neither two jobs nor none.
func TestEnqueueIsRepeatedUnderItsKey(t *testing.T) {
	for name, c := range map[string]struct {
		opts   []JobOption
		lose   int
		faults []func() error
		ok     bool
		asked  int
	}{
		"lost answers":            {nil, 2, nil, true, 3},
		"draining":                {nil, 0, []func() error{unavailable, unavailable, nil}, true, 3},
		"of this job alone":       {[]JobOption{Tags("flaky")}, 0, nil, true, 3},
		"without a key, lost":     {[]JobOption{Idempotency("")}, 1, nil, false, 1},
		"without a key, draining": {[]JobOption{Idempotency("")}, 0, []func() error{unavailable}, false, 1},
		"without a key, alone":    {[]JobOption{Idempotency(""), Tags("flaky")}, 0, nil, false, 1},
	} {
		o, url := newOffice(t)
		o.lose, o.faults = c.lose, c.faults
		job, err := Enqueue(t.Context(), clientOf(t, url), "m.send", Unit{}, c.opts...)
		o.settle()
		if (err == nil) != c.ok || c.ok && job.ID != "j1" || o.requests != c.asked || len(o.jobs) > 1 {
			t.Errorf("%s: %+v, %v after %d requests, %d jobs", name, job, err, o.requests, len(o.jobs))
		}
	}
}

func TestManyJobs(t *testing.T) {
	o, url := newOffice(t)
	c := clientOf(t, url)
	var jobs []NewJob
	for i := range 2500 {
		j := NewJob{Ref: "m.send", Request: i}
		switch i {
		case 7:
			j.Ref = "m.none"
		case 1700:
			j.Request = make(chan int)
		}
		jobs = append(jobs, j)
	}
	o.lose = 1
	out, err := EnqueueMany(t.Context(), c, jobs)
	o.settle()
	if err != nil || len(out) != len(jobs) || len(o.jobs) != 2498 {
		t.Fatalf("%d answers, %d jobs, %v", len(out), len(o.jobs), err)
	}
	for i, e := range out {
		if bad := i == 7 || i == 1700; bad != (e.Err != nil) || bad != (e.ID == "") || !bad && string(o.jobs[string(e.ID)].GetPayload()) != fmt.Sprint(i) {
			t.Fatalf("%d: %+v", i, e)
		}
	}
	large := make([]NewJob, 10)
	for i := range large {
		large[i] = NewJob{Ref: "m.send", Request: strings.Repeat("x", maxPayload-2)}
	}
	before := o.requests
	if _, err = EnqueueMany(t.Context(), c, large); err != nil || o.requests-before != 5 {
		t.Errorf("10 MiB took %d requests, %v", o.requests-before, err)
	}
	o.faults = []func() error{nil, func() error { return connect.NewError(connect.CodeInternal, errors.New("oops")) }}
	out, err = EnqueueMany(t.Context(), c, jobs)
	if err == nil || out[0].Err != nil || out[2400].Err == nil || out[1200].Err == nil {
		t.Errorf("broken off: %v, then %v, %v, %v", err, out[0], out[1200], out[2400])
	}
	if out, err = EnqueueMany(t.Context(), c, nil); err != nil || len(out) != 0 {
		t.Errorf("none: %v, %v", out, err)
	}
}

func TestChildrenBelongToTheRun(t *testing.T) {
	o, url := newOffice(t)
	ctx := WithRun(WithClient(t.Context(), clientOf(t, url)), Run{ID: "r1", Ref: "m.all", Job: "j77", Tenant: "acme"})
	for i := range 5 {
		if _, err := Enqueue(ctx, nil, "m.one", i, Child()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Enqueue(ctx, nil, "m.other", Unit{}, Tenant("x"), Child()); err != nil {
		t.Fatal(err)
	}
	if _, err := Enqueue(ctx, nil, "m.free", Unit{}); err != nil {
		t.Fatal(err)
	}
	if first, other, free := o.asked[0], o.asked[5], o.asked[6]; first.GetParentId() != "j77" || first.GetParentRunId() != "r1" ||
		first.GetTenant() != "acme" || other.GetTenant() != "x" || free.GetParentId() != "" || free.GetTenant() != "" {
		t.Errorf("asked for %v, %v, %v", first, other, free)
	}
	children, err := Children(ctx)
	var ids []JobID
	for _, j := range children {
		ids = append(ids, j.ID)
	}
	if err != nil || !slices.Equal(ids, []JobID{"j1", "j2", "j3", "j4", "j5", "j6"}) {
		t.Errorf("children %v, %v", ids, err)
	}
	if _, err := Children(t.Context()); err == nil {
		t.Error("nobody has children")
	}
	if _, err := Children(WithRun(ctx, Run{ID: "r1"})); err == nil {
		t.Error("a cron job's run has children")
	}
}
