package trigger

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

func TestConformanceOfRetries(t *testing.T) {
	type c struct {
		Input struct {
			Worker struct {
				Executions int `json:"max_exec_count"`
				Timeout    string
			}
			Options    json.RawMessage
			Error      string
			RetryDelay string          `json:"retry_delay"`
			NoRetry    json.RawMessage `json:"worker sets"`
			Hook       json.RawMessage `json:"error hook returns"`
		}
		Expected struct {
			HTTP       int
			Executions int
			Timeout    string `json:"effective timeout"`
			Delays     []string
		}
	}
	elsewhere := map[string]string{
		"cz-271": "a panic is caught by the runner's SDK", "cz-272": "a deadline is the dispatcher's",
		"cz-281": "the abort sentinel is the worker's", "cz-283": "a message is decoded by the worker", "cz-287": "the flag is the worker's",
	}
	found, skipped := cases[c](t, "retry"), 0
	for id, c := range found {
		if reason := elsewhere[id]; reason != "" {
			t.Logf("%s is not pure: %s", id, reason)
			skipped++
			continue
		}
		t.Run(id, func(t *testing.T) {
			in, want := c.Input, c.Expected
			options, err := ReadOptions(in.Options, nil, PointerOptions)
			if want.HTTP == 422 {
				if f, ok := errors.AsType[*Fault](err); !ok || !strings.HasPrefix(f.Pointer, PointerOptions+"/") || !errors.Is(err, cron.ErrInvalid) {
					t.Errorf("got %#v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			limits := Limits{Executions: in.Worker.Executions}
			limits.Timeout, _ = time.ParseDuration(in.Worker.Timeout)
			limits.RetryDelay, _ = time.ParseDuration(in.RetryDelay)
			terms := options.Terms(limits, false)
			if want.Timeout != "" && terms.Timeout.String() != want.Timeout {
				t.Errorf("time-out %v, want %s", terms.Timeout, want.Timeout)
			}
			switch {
			case in.Error == "message is nil":
				if !Hopeless("jobs: " + in.Error) {
					t.Error("would be repeated")
				}
			case len(in.Hook) > 0:
				if !Hopeless("LOGIN_FAILED") || !Hopeless("USER_ACTION_NEEDED.OAUTH_OUTDATED") {
					t.Error("would be repeated")
				}
			case want.Executions > 0 && terms.Retry.Attempts != want.Executions:
				t.Errorf("%d executions, want %d", terms.Retry.Attempts, want.Executions)
			}
			for i, text := range want.Delays[min(1, len(want.Delays)):] {
				delay, _ := time.ParseDuration(text)
				for _, rnd := range []float64{0, 0.5, 0.999} {
					got := job.Backoff(terms.Retry, i+1, rnd)
					if got < delay*9/10 || got >= delay*11/10 || rnd == 0.5 && (got-delay).Abs() > time.Microsecond {
						t.Errorf("delay %d is %v, want %v", i+1, got, delay)
					}
				}
			}
		})
	}
	if len(found) != 14 || skipped != 5 {
		t.Errorf("got %d cases and left %d out, want 14 and 5", len(found), skipped)
	}
}

func TestConformanceOfPriorities(t *testing.T) {
	type c struct {
		Input    struct{ Priority *int }
		Expected struct{ HTTP int }
	}
	found, ran := cases[c](t, "queue-priority"), 0
	for id, c := range found {
		if c.Input.Priority == nil {
			t.Logf("%s is not pure: the length of a queue is counted by the store", id)
			continue
		}
		ran++
		data, _ := json.Marshal(c.Input)
		_, err := ReadOptions([]byte(strings.ToLower(string(data))), nil, PointerOptions)
		if f, ok := errors.AsType[*Fault](err); !ok || f.Pointer != PointerOptions+"/priority" {
			t.Errorf("%s: got %#v", id, err)
		}
	}
	if len(found) != 3 || ran != 2 {
		t.Errorf("got %d cases and ran %d, want 3 and 2", len(found), ran)
	}
}

func read(t *testing.T, options string) Options {
	t.Helper()
	o, err := ReadOptions([]byte(options), nil, PointerOptions)
	if err != nil {
		t.Fatalf("%s: %v", options, err)
	}
	return o
}

func TestOptionsOnlyLowerTheWorkersLimits(t *testing.T) {
	worker := Limits{Executions: 5, Timeout: 30 * time.Second, RetryDelay: 2 * time.Second}
	const second = time.Second
	for _, c := range []struct {
		options string
		worker  Limits
		manual  bool
		want    Terms
	}{
		{``, Limits{}, false, Terms{500, time.Minute, job.Retry{Attempts: 3, Backoff: 10 * second, Ceiling: time.Hour}}},
		{`null`, Limits{}, true, Terms{1000, time.Minute, job.Retry{Attempts: 3, Backoff: 10 * second, Ceiling: time.Hour}}},
		{`{"priority":null,"timeout":null}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 5, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"priority":1}`, worker, true, Terms{10, 30 * second, job.Retry{Attempts: 5, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"timeout":0,"max_exec_count":0,"retry_delay":0}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 5, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"timeout":60,"max_exec_count":6}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 5, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"timeout":1.5,"max_exec_count":1}`, worker, false, Terms{500, 1500 * time.Millisecond, job.Retry{Attempts: 1, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"timeout":1000000000}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 5, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"retry_max_count":0}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 1, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"retry_max_count":2,"max_exec_count":3}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 3, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"retry_max_count":2,"max_exec_count":0}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 3, Backoff: 2 * second, Ceiling: time.Hour}}},
		{`{"retry_max_count":2147483646,"retry_delay":7200}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 5, Backoff: time.Hour, Ceiling: time.Hour}}},
		{`{"retry_delay":60,"unknown":[1]}`, worker, false, Terms{500, 30 * second, job.Retry{Attempts: 5, Backoff: time.Minute, Ceiling: time.Hour}}},
		{`{}`, Limits{Executions: math.MaxInt, Timeout: math.MaxInt64, RetryDelay: math.MaxInt64}, false,
			Terms{500, job.MaxTimeout, job.Retry{Attempts: job.MaxAttempts, Backoff: time.Hour, Ceiling: time.Hour}}},
	} {
		got := read(t, c.options).Terms(c.worker, c.manual)
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.options, got, c.want)
		}
		n := job.Complete(job.New{Ref: "a.b", Priority: got.Priority, Timeout: got.Timeout, Retry: got.Retry})
		if err := job.Validate(n); err != nil {
			t.Errorf("%s: no job takes them: %v", c.options, err)
		}
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for options, pointer := range map[string]string{
		`[]`: "", `"x"`: "", `{`: "",
		`{"priority":0}`: "/priority", `{"priority":101}`: "/priority", `{"priority":-1}`: "/priority", `{"priority":1.5}`: "/priority",
		`{"priority":"50"}`: "/priority", `{"priority":1e300}`: "/priority", `{"priority":1e999}`: "/priority",
		`{"timeout":-1}`: "/timeout", `{"timeout":"60s"}`: "/timeout", `{"timeout":true}`: "/timeout", `{"timeout":0.0001}`: "/timeout",
		`{"timeout":1e10}`: "/timeout", `{"timeout":[60]}`: "/timeout",
		`{"max_exec_count":-1}`: "/max_exec_count", `{"max_exec_count":2.5}`: "/max_exec_count", `{"max_exec_count":1e10}`: "/max_exec_count",
		`{"retry_max_count":-1}`: "/retry_max_count", `{"retry_delay":-1}`: "/retry_delay",
		`{"max_exec_count":3,"retry_max_count":3}`: "/max_exec_count",
	} {
		_, err := ReadOptions([]byte(options), nil, PointerOptions)
		if f, ok := errors.AsType[*Fault](err); !ok || f.Pointer != PointerOptions+pointer || f.Detail == "" {
			t.Errorf("%s: got %#v", options, err)
		}
	}
}

func TestFlatOptionsAndNestedOnesAgree(t *testing.T) {
	flat := map[string]json.RawMessage{"priority": json.RawMessage("3"), "arguments": json.RawMessage(`"x"`), "timeout": json.RawMessage("null")}
	o, err := ReadOptions([]byte(`{"priority":3.0,"timeout":5}`), flat, "")
	if err != nil || *o.Priority != 3 || *o.Timeout != 5 {
		t.Errorf("got %+v, %v", o, err)
	}
	_, err = ReadOptions([]byte(`{"priority":4}`), flat, "")
	if f, ok := errors.AsType[*Fault](err); !ok || f.Pointer != "/priority" {
		t.Errorf("got %#v", err)
	}
}

func TestOptionsAreShownAsGiven(t *testing.T) {
	for options, want := range map[string][2]string{
		`{}`: {`{}`, `{}`},
		`{"priority":3,"timeout":60,"retry_max_count":3,"retry_delay":10}`: {
			`{"priority":3,"timeout":60,"max_exec_count":4,"retry_delay":10}`, `{"priority":3,"timeout":60,"retry_max_count":3,"retry_delay":10}`},
		`{"timeout":1.5,"max_exec_count":3}`: {`{"timeout":1.5,"max_exec_count":3}`, `{"timeout":1.5,"retry_max_count":2}`},
		`{"max_exec_count":0}`:               {`{"max_exec_count":0}`, `{}`},
	} {
		for i, flat := range []bool{false, true} {
			got, err := json.Marshal(read(t, options).Echo(flat))
			if err != nil || string(got) != want[i] {
				t.Errorf("%s, flat %v: got %s, %v", options, flat, got, err)
			}
		}
	}
}

// FuzzReadOptions: no JSON panics, and what is accepted makes a job.
func FuzzReadOptions(f *testing.F) {
	for _, text := range []string{`{"priority":3,"timeout":60,"retry_max_count":3}`, `{"timeout":1e-3}`, `{"max_exec_count":-0}`, `[]`, `null`, `{"priority":1e2}`} {
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, manual bool) {
		o, err := ReadOptions(data, nil, PointerOptions)
		if err != nil {
			if !errors.Is(err, cron.ErrInvalid) {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		terms := o.Terms(Limits{}, manual)
		n := job.Complete(job.New{Ref: "a.b", Priority: terms.Priority, Timeout: terms.Timeout, Retry: terms.Retry})
		if err := job.Validate(n); err != nil {
			t.Fatalf("%q: %+v: %v", data, terms, err)
		}
	})
}

// The default priority counts when it is given.
func TestPriorityThatIsGiven(t *testing.T) {
	for options, want := range map[string]bool{
		``: false, `null`: false, `{}`: false, `{"priority": null}`: false, `{"retry_max_count": 1}`: false,
		`{"priority": 50}`: true, `{"priority": 50.0, "max_exec_count": 2.0}`: true, `{"priority": 1}`: true,
	} {
		if got := GivesPriority([]byte(options)); got != want {
			t.Errorf("%s: %v", options, got)
		}
	}
}
