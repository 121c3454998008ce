package trigger

import (
	"testing"
	"time"
)

func TestConformanceOfLimits(t *testing.T) {
	type c struct {
		Input struct {
			Worker, POST, Over string
		}
		Expected struct {
			Limit  int `json:"limit per domain per hour"`
			HTTP   int
			Header string
		}
	}
	found := cases[c](t, "rate-limit")
	if len(found) != 7 {
		t.Errorf("got %d cases, want 7", len(found))
	}
	for id, c := range found {
		worker, want := c.Input.Worker, c.Expected.Limit
		switch c.Input.POST {
		case "/jobs/queue/sendmail":
			worker, want = "sendmail", 200
		case "/jobs/webhooks/:id":
			worker, want = WebhookLimit, 30
		}
		limit, ok := LimitOf(worker)
		if !ok || limit != want {
			t.Errorf("%s: the limit of %s is %d, want %d", id, worker, limit, want)
		}
		var m Meter
		var r Ruling
		for range limit {
			if m, r = m.Use(anInstant, limit); !r.Allowed {
				t.Fatalf("%s: refused within the limit: %+v", id, r)
			}
		}
		if _, r = m.Use(anInstant.Add(time.Minute), limit); r.Allowed || r.RetryAfter != 59*time.Minute {
			t.Errorf("%s: over the limit: %+v", id, r)
		}
	}
	if _, ok := LimitOf("print"); ok {
		t.Error("print has a limit")
	}
}

func TestWindowsOfLimitsBeginWithTheirFirstUse(t *testing.T) {
	var m Meter
	end := anInstant.Add(LimitWindow)
	for i, use := range []struct {
		after time.Duration
		want  Ruling
	}{
		{0, Ruling{Allowed: true}},
		{30 * time.Minute, Ruling{Allowed: true}},
		{31 * time.Minute, Ruling{Text: "Rate limit reached", RetryAfter: 29 * time.Minute, Due: end}},
		{32 * time.Minute, Ruling{Text: "Rate limit exceeded", RetryAfter: 28 * time.Minute, Due: end}},
		{time.Hour - time.Millisecond, Ruling{Text: "Rate limit exceeded", RetryAfter: time.Second, Due: end}},
		{time.Hour - 1500*time.Millisecond, Ruling{Text: "Rate limit exceeded", RetryAfter: 2 * time.Second, Due: end}},
		{-time.Minute, Ruling{Text: "Rate limit exceeded", RetryAfter: time.Hour, Due: end}}, // two at once; this one began earlier
		{time.Hour, Ruling{Allowed: true}},
		{time.Hour + 30*time.Minute, Ruling{Allowed: true}},
		{2*time.Hour - time.Second, Ruling{Text: "Rate limit reached", RetryAfter: time.Second, Due: end.Add(time.Hour)}},
		{5 * time.Hour, Ruling{Allowed: true}},
	} {
		var got Ruling
		if m, got = m.Use(anInstant.Add(use.after), 2); got != use.want {
			t.Errorf("use %d: got %+v, want %+v", i, got, use.want)
		}
	}
	if m.Start != anInstant.Add(5*time.Hour) || m.Count != 1 {
		t.Errorf("got %+v", m)
	}
}

func TestALimitOfNoneRefusesEverything(t *testing.T) {
	if _, r := (Meter{}).Use(anInstant, 0); r.Allowed || r.Text != LimitReached || r.RetryAfter != time.Hour {
		t.Errorf("got %+v", r)
	}
}
