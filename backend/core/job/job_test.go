package job_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

var update = flag.Bool("update", false, "write states.md anew")

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func claimed(attempt int) job.Claimed {
	return job.Claimed{Attempt: attempt, Retry: job.Retry{Attempts: 5, Backoff: time.Second, Ceiling: 10 * time.Second}}
}

func TestDecideFollowsTheTable(t *testing.T) {
	cancelled := claimed(1)
	cancelled.CancelAsked = true
	expiring := claimed(1)
	expiring.Expires = noon.Add(time.Second)
	for name, tc := range map[string]struct {
		job  job.Claimed
		out  job.Outcome
		want job.Step
	}{
		"success":                      {claimed(1), job.Outcome{Verdict: cron.Succeeded}, job.Step{State: job.Succeeded, Counted: true}},
		"first failure":                {claimed(1), job.Outcome{Verdict: cron.Failed}, job.Step{State: job.Ready, Delay: time.Second, Counted: true}},
		"third failure":                {claimed(3), job.Outcome{Verdict: cron.Failed}, job.Step{State: job.Ready, Delay: 4 * time.Second, Counted: true}},
		"timed out":                    {claimed(2), job.Outcome{Verdict: cron.TimedOut}, job.Step{State: job.Ready, Delay: 2 * time.Second, Counted: true}},
		"lost":                         {claimed(2), job.Outcome{Verdict: cron.Lost}, job.Step{State: job.Ready, Delay: 2 * time.Second, Counted: true}},
		"no attempt left":              {claimed(5), job.Outcome{Verdict: cron.Lost}, job.Step{State: job.Failed, Counted: true}},
		"no verdict is a failure":      {claimed(5), job.Outcome{}, job.Step{State: job.Failed, Counted: true}},
		"retry after":                  {claimed(1), job.Outcome{Verdict: cron.Failed, After: time.Hour}, job.Step{State: job.Ready, Delay: time.Hour, Counted: true}},
		"retry after, for ever":        {claimed(1), job.Outcome{Verdict: cron.Failed, After: math.MaxInt64}, job.Step{State: job.Ready, Delay: job.MaxDelay, Counted: true}},
		"retry after, not said":        {claimed(1), job.Outcome{Verdict: cron.Failed, After: -1}, job.Step{State: job.Ready, Delay: time.Second, Counted: true}},
		"retry after, no attempt left": {claimed(5), job.Outcome{Verdict: cron.Failed, After: time.Hour}, job.Step{State: job.Failed, Counted: true}},
		"for good":                     {claimed(1), job.Outcome{Verdict: cron.Failed, Final: true}, job.Step{State: job.Failed, Counted: true}},
		"snooze":                       {claimed(5), job.Outcome{Verdict: cron.Succeeded, Snooze: true, After: time.Minute}, job.Step{State: job.Ready, Delay: time.Minute}},
		"awaits its children":          {claimed(5), job.Outcome{Verdict: cron.Succeeded, Await: true}, job.Step{State: job.Blocked, Delay: job.MinRest}},
		"awaits, but never began":      {claimed(5), job.Outcome{Await: true, Requeue: true}, job.Step{State: job.Ready}},
		"awaits, and is cancelled":     {cancelled, job.Outcome{Verdict: cron.Succeeded, Await: true}, job.Step{State: job.Cancelled, Counted: true}},
		"never began":                  {claimed(5), job.Outcome{Verdict: cron.Cancelled, Requeue: true}, job.Step{State: job.Ready}},
		"cancelled by the verb":        {claimed(1), job.Outcome{Verdict: cron.Cancelled}, job.Step{State: job.Cancelled, Counted: true}},
		"cancelled, then failed":       {cancelled, job.Outcome{Verdict: cron.Failed}, job.Step{State: job.Cancelled, Counted: true}},
		"cancelled, then lost":         {cancelled, job.Outcome{Verdict: cron.Lost}, job.Step{State: job.Cancelled, Counted: true}},
		"cancelled, never began":       {cancelled, job.Outcome{Requeue: true}, job.Step{State: job.Cancelled, Counted: true}},
		"cancelled too late":           {cancelled, job.Outcome{Verdict: cron.Succeeded}, job.Step{State: job.Succeeded, Counted: true}},
		"just before it expires":       {expiring, job.Outcome{Verdict: cron.Failed}, job.Step{State: job.Ready, Delay: time.Second, Counted: true}},
		"it would expire":              {expiring, job.Outcome{Verdict: cron.Failed, After: time.Second + 1}, job.Step{State: job.Failed, Counted: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := job.Decide(tc.job, tc.out, noon, 0.5); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// Whatever a run comes to: the table allows the step, attempts are bounded, and a job whose runs count ends.
func TestEveryStepIsInTheTable(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	seen := map[job.State]bool{}
	for range 100_000 {
		c := claimed(1 + rnd.IntN(8))
		c.CancelAsked = rnd.IntN(4) == 0
		if rnd.IntN(4) == 0 {
			c.Expires = noon.Add(time.Duration(rnd.Int64N(int64(time.Minute))) - 10*time.Second)
		}
		o := job.Outcome{Verdict: append(cron.Verdicts, "")[rnd.IntN(len(cron.Verdicts)+1)], After: time.Duration(rnd.Uint64()),
			Final: rnd.IntN(4) == 0, Await: rnd.IntN(4) == 0, Snooze: rnd.IntN(4) == 0, Requeue: rnd.IntN(4) == 0}
		step := job.Decide(c, o, noon, rnd.Float64())
		seen[step.State] = true
		switch {
		case !job.Allowed(job.Running, step.State):
			t.Fatalf("%+v, %+v: %+v is not in the table", c, o, step)
		case step.Delay < 0 || step.Delay > job.MaxDelay || step.State != job.Ready && step.State != job.Blocked && step.Delay != 0:
			t.Fatalf("%+v, %+v: delay %s", c, o, step.Delay)
		case (o.Snooze || o.Await) && !o.Requeue && !step.Counted && step.Delay < job.MinRest:
			t.Fatalf("%+v, %+v: comes again after %s, for ever perhaps", c, o, step.Delay)
		case step.State == job.Blocked && step.Delay != job.MinRest:
			t.Fatalf("%+v, %+v: where no child lives it comes again after %s, not %s", c, o, step.Delay, job.MinRest)
		case step.State == job.Ready && step.Counted && c.Attempt >= c.Retry.Attempts:
			t.Fatalf("%+v, %+v: an attempt beyond the last", c, o)
		case step.State == job.Ready && c.CancelAsked:
			t.Fatalf("%+v, %+v: a cancelled job comes again", c, o)
		case step.State == job.Ready && !c.Expires.IsZero() && noon.Add(step.Delay).After(c.Expires):
			t.Fatalf("%+v, %+v: comes again after it expired", c, o)
		case !step.Counted && !o.Requeue && !o.Snooze && !o.Await:
			t.Fatalf("%+v, %+v: a run that does not count", c, o)
		}
	}
	if len(seen) != 5 {
		t.Errorf("steps seen: %v", seen)
	}
}

func TestBackoffDoublesUpToItsCeiling(t *testing.T) {
	r := job.Retry{Attempts: 1000, Backoff: 100 * time.Millisecond, Ceiling: time.Minute}
	for attempt, want := 1, 100*time.Millisecond; attempt <= 1000; attempt++ {
		low, mid, high := job.Backoff(r, attempt, 0), job.Backoff(r, attempt, 0.5), job.Backoff(r, attempt, math.Nextafter(1, 0))
		if mid != want || low != want*9/10 || high > r.Ceiling || want*11/10 < r.Ceiling && (high < want || high > want*11/10) {
			t.Fatalf("attempt %d: %s %s %s, want about %s", attempt, low, mid, high, want)
		}
		want = min(2*want, r.Ceiling)
	}
	if d := job.Backoff(job.Retry{Backoff: job.MaxTimeout, Ceiling: job.MaxTimeout}, 1000, 0.99); d <= 0 || d > job.MaxTimeout {
		t.Errorf("the longest backoff: %s", d)
	}
	if d := job.Backoff(job.Retry{}, 0, 0.5); d <= 0 {
		t.Errorf("no policy: %s", d)
	}
}

func valid() job.New {
	return job.Complete(job.New{Ref: "mail.send", Priority: job.DefaultPriority, Payload: []byte(`{"to":"a@b"}`), Tags: []string{"x"}})
}

func TestValidateNamesTheField(t *testing.T) {
	if err := job.Validate(valid()); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		field string
		spoil func(n *job.New)
		says  string
	}{
		{"tenant", func(n *job.New) { n.Tenant = "a\x00b" }, "control character"},
		{"tenant", func(n *job.New) { n.Tenant = "a\xff" }, "UTF-8"},
		{"ref", func(n *job.New) { n.Ref = "" }, "empty"},
		{"ref", func(n *job.New) { n.Ref = "send" }, "no module.verb"},
		{"ref", func(n *job.New) { n.Ref = "m." + strings.Repeat("v", 256) }, "258 bytes"},
		{"ref", func(n *job.New) { n.Ref = "m." + strings.Repeat("v", 129) }, "no module.verb"},
		{"ref", func(n *job.New) { n.Ref = "m.send_mail" }, "no module.verb"},
		{"priority", func(n *job.New) { n.Priority = -1 }, "got -1"},
		{"priority", func(n *job.New) { n.Priority = 1 << 40 }, "0 to 1000"},
		{"delay", func(n *job.New) { n.Delay = -time.Second }, "negative, got -1s"},
		{"delay", func(n *job.New) { n.Delay = math.MaxInt64 }, "ten years"},
		{"timeout", func(n *job.New) { n.Timeout = -1 }, "1ms to"},
		{"timeout", func(n *job.New) { n.Timeout = 365 * 24 * time.Hour }, "1ms to"},
		{"expires", func(n *job.New) { n.Expires = time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC) }, "years"},
		{"slot", func(n *job.New) { n.Slot = time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC) }, "years"},
		{"retry.attempts", func(n *job.New) { n.Retry.Attempts = math.MaxInt }, "has to end"},
		{"retry.attempts", func(n *job.New) { n.Retry.Attempts = -1 }, "got -1"},
		{"retry.backoff", func(n *job.New) { n.Retry.Backoff = -1 }, "1ms"},
		{"retry.ceiling", func(n *job.New) { n.Retry.Ceiling = n.Retry.Backoff - 1 }, "at least the backoff"},
		{"payload", func(n *job.New) { n.Payload = make([]byte, job.MaxPayload+1) }, "1048577 bytes"},
		{"payload", func(n *job.New) { n.Payload = []byte(`{"to":`) }, "valid JSON: unexpected end"},
		{"payload", func(n *job.New) { n.Payload = []byte("\"\xff\"") }, "UTF-8"},
		{"envelope", func(n *job.New) { n.Envelope = []byte(`{"a"`) }, "valid JSON"},
		{"envelope", func(n *job.New) { n.Envelope = make([]byte, job.MaxPayload+1) }, "1048577 bytes"},
		{"trigger", func(n *job.New) { n.TriggerID = -1 }, "none"},
		{"tags", func(n *job.New) { n.Tags = make([]string, job.MaxTags+1) }, "at most 16"},
		{"tags[1]", func(n *job.New) { n.Tags = []string{"a", "b\x1fc"} }, "control character"},
		{"tags[1]", func(n *job.New) { n.Tags = []string{"a", ""} }, "empty"},
		{"tags[1]", func(n *job.New) { n.Tags = []string{"a", "a"} }, "twice"},
		{"unique", func(n *job.New) { n.Unique = strings.Repeat("k", 257) }, "257 bytes"},
		{"idempotency", func(n *job.New) { n.Idempotency = "\x00" }, "control character"},
		{"window", func(n *job.New) { n.Unique, n.Window = "k", -1 }, "got -1ns"},
		{"window", func(n *job.New) { n.Window = time.Hour }, "needs a unique key"},
		{"parent", func(n *job.New) { n.Parent.N = -1 }, "no job"},
		{"parent", func(n *job.New) { n.ParentRun = cron.RunID{1} }, "is missing"},
		{"parent_run", func(n *job.New) { n.Parent.N = 1 }, "is missing"},
	} {
		n := valid()
		tc.spoil(&n)
		err := job.Validate(n)
		fe := (*job.FieldError)(nil)
		if !errors.As(err, &fe) || fe.Field != tc.field || !strings.Contains(err.Error(), tc.says) || !errors.Is(err, cron.ErrInvalid) {
			t.Errorf("%s: %v, want one that says %q", tc.field, err, tc.says)
		}
	}
}

func TestRequestHashTellsRequestsApart(t *testing.T) {
	base := valid()
	seen := map[string]string{string(job.RequestHash(base)): "base"}
	for name, change := range map[string]func(n *job.New){
		"tenant": func(n *job.New) { n.Tenant = "t" }, "ref": func(n *job.New) { n.Ref = "mail.sen" }, "payload": func(n *job.New) { n.Payload = []byte("{}") },
		"priority": func(n *job.New) { n.Priority++ }, "delay": func(n *job.New) { n.Delay++ }, "attempts": func(n *job.New) { n.Retry.Attempts++ },
		"no tags": func(n *job.New) { n.Tags = nil }, "two tags": func(n *job.New) { n.Tags = []string{"x", "y"} }, "joined tags": func(n *job.New) { n.Tags = []string{"xy"} },
		"due": func(n *job.New) { n.Due = noon }, "due later": func(n *job.New) { n.Due = noon.Add(time.Millisecond) },
		"expires": func(n *job.New) { n.Expires = noon }, "expires later": func(n *job.New) { n.Expires = noon.Add(time.Millisecond) },
		"expires within": func(n *job.New) { n.Within = time.Hour }, "due and expires": func(n *job.New) { n.Due, n.Expires = noon, noon },
		"envelope": func(n *job.New) { n.Envelope = []byte("{}") }, "another envelope": func(n *job.New) { n.Envelope = []byte(`{"a":1}`) },
		"unique": func(n *job.New) { n.Unique = "u" }, "window": func(n *job.New) { n.Window = 1 }, "timeout": func(n *job.New) { n.Timeout++ }, "trigger": func(n *job.New) { n.TriggerID = 1 },
	} {
		n := valid()
		change(&n)
		h := string(job.RequestHash(n))
		if other, ok := seen[h]; ok {
			t.Errorf("%s hashes as %s", name, other)
		}
		seen[h] = name
	}
	same := valid()
	same.Idempotency, same.Slot, same.ParentRun = "key", noon, cron.RunID{1}
	if !bytes.Equal(job.RequestHash(same), job.RequestHash(base)) {
		t.Error("the key, the slot or the parent's run is part of the hash")
	}
	// What is computed anew with each try, from an instant or a length that the caller gave, is no part of it.
	first, again := valid(), valid()
	first.Due, first.Delay, first.Within, first.Expires = noon, time.Hour, time.Minute, noon
	again.Due, again.Delay, again.Within, again.Expires = noon, time.Minute, time.Minute, noon.Add(time.Second)
	if !bytes.Equal(job.RequestHash(first), job.RequestHash(again)) {
		t.Error("a repeated request hashes otherwise later")
	}
}

func TestIDsComeBack(t *testing.T) {
	for _, id := range []job.ID{{1, 0}, {1, 1}, {1, -1}, {1, math.MinInt32}, {math.MaxInt64, math.MaxInt32}, {35, 36}} {
		got, err := job.ParseID(id.String())
		if err != nil || got != id {
			t.Errorf("%+v: %q gives %+v, %v", id, id, got, err)
		}
	}
	if s := (job.ID{}).String(); s != "" {
		t.Errorf("no job is %q", s)
	}
	for _, bad := range []string{"", "j", "j1", "j0000000", "j00000000", "J10000000", "j1000000Z", "j10000000x1z141z5", "j+10000000", "j-10000000",
		"j1zzzzzzz", "j010000000", "j1 000000", "j1\x00000000", strings.Repeat("j", 1000), "jzzzzzzzzzzzzzzzzzzzz", "17", "j1_000000"} {
		if id, err := job.ParseID(bad); err == nil || !errors.Is(err, cron.ErrInvalid) {
			t.Errorf("%q gives %+v, %v", bad, id, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("j10000001")
	f.Add("jzzzz1z141z3")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := job.ParseID(s); err == nil && (id.String() != s || id.N <= 0) {
			t.Errorf("%q gives %+v, which is %q", s, id, id)
		}
	})
}

func TestLanes(t *testing.T) {
	for priority, want := range map[int]int{-5: 0, 0: 0, 199: 0, 200: 1, 500: 2, 799: 3, 800: 4, 1000: 4, 5000: 4} {
		if got := job.Lane(priority); got != want {
			t.Errorf("priority %d: lane %d, want %d", priority, got, want)
		}
	}
}

// The picture of the states is drawn from the table, so that it cannot lie.
func TestPictureOfTheStates(t *testing.T) {
	page := "# The states of a job\n\nDrawn from `Transitions` in states.go by `go test ./backend/core/job -run Picture -update`.\n\n```mermaid\n" + job.Picture() + "```\n"
	if *update {
		if err := os.WriteFile("states.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("states.md"); err != nil || string(got) != page {
		t.Errorf("states.md differs from the table (%v); run this test with -update", err)
	}
	for _, tr := range job.Transitions {
		if tr.From.Ended() && tr.From != job.Failed {
			t.Errorf("%s is an end, but goes to %s", tr.From, tr.To)
		}
	}
}

func ExampleID() {
	id := job.ID{N: 4711, Salt: 123456789}
	fmt.Println(id)
	// Output: j3mv021i3v9
}

// A refusal is certain, and so is a job that was there; of an outage nobody knows.
func TestWhatMadeNothing(t *testing.T) {
	for _, c := range []struct {
		answer job.Enqueued
		want   bool
	}{
		{job.Enqueued{}, false},
		{job.Enqueued{Existing: true}, true},
		{job.Enqueued{Err: &job.FieldError{Field: "payload"}}, true},
		{job.Enqueued{Err: job.NoParent("it is gone")}, true},
		{job.Enqueued{Err: fmt.Errorf("a: %w", cron.ErrNotFound)}, true},
		{job.Enqueued{Conflict: true, Err: fmt.Errorf("a: %w", cron.ErrExists)}, true},
		{job.Enqueued{Err: fmt.Errorf("a: %w", cron.ErrUnavailable)}, false},
		{job.Enqueued{Existing: true, Err: errors.New("nobody knows")}, false},
	} {
		if got := c.answer.MadeNothing(); got != c.want {
			t.Errorf("%+v: %t, want %t", c.answer, got, c.want)
		}
	}
}
