package trigger

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestConformanceOfState(t *testing.T) {
	type c struct {
		Input struct {
			Jobs []struct{ ID, State, Error string } `json:"jobs newest last"`
		}
		Expected map[string]string
	}
	found := cases[c](t, "trigger-state")
	if len(found) != 5 {
		t.Errorf("got %d cases, want 5", len(found))
	}
	for id, c := range found {
		t.Run(id, func(t *testing.T) {
			var jobs []Ran
			for i, j := range c.Input.Jobs {
				ran := Ran{ID: j.ID, Status: Status(j.State), Error: j.Error}
				if ran.Status != Queued {
					ran.Started = anInstant.Add(time.Duration(i) * time.Minute)
				}
				jobs = append(jobs, ran)
			}
			data, err := json.Marshal(StateOf("", jobs))
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			for name, want := range c.Expected {
				switch value, there := got[name]; {
				case name == "others":
					if len(got) != 1 {
						t.Errorf("got %s", data)
					}
				case want == "absent" && there, want != "absent" && value != want:
					t.Errorf("%s is %q, want %q", name, value, want)
				}
			}
		})
	}
}

func TestStateKeepsTheLastOfEach(t *testing.T) {
	at := func(minute int) time.Time { return anInstant.Add(time.Duration(minute) * time.Minute) }
	got := StateOf("t", []Ran{
		{ID: "a", Status: Errored, Started: at(0), Error: "first"},
		{ID: "b", Status: Errored, Started: at(1), Error: "second", Manual: true},
		{ID: "c", Status: Done, Started: at(2).In(time.FixedZone("", 3600))},
		{ID: "d", Status: Running, Started: at(3)},
	})
	want := State{
		TriggerID: "t", Status: Running, LastExecution: at(3), LastExecutedJobID: "d", LastSuccess: at(2), LastSuccessfulJobID: "c",
		LastFailure: at(1), LastFailedJobID: "b", LastError: "second", LastManualExecution: at(1), LastManualJobID: "b",
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	data, err := json.Marshal(StateOf("t", nil))
	if err != nil || string(data) != `{"trigger_id":"t","status":"done"}` {
		t.Errorf("got %s, %v", data, err)
	}
}

func TestConformanceOfDuplicates(t *testing.T) {
	type c struct {
		Input struct {
			Left    struct{ Type Kind }
			Right   string
			Differs string `json:"differs in"`
		}
		Expected struct{ Reported string }
	}
	found := cases[c](t, "duplicate-check")
	if len(found) != 2 {
		t.Errorf("got %d cases, want 2", len(found))
	}
	for id, c := range found {
		left := Trigger{Kind: c.Input.Left.Type, Message: []byte(`{"a":1}`)}
		right := left
		if c.Input.Differs == "message bytes" {
			right.Message = []byte(`{"a": 1}`)
		}
		if got := Duplicates(left, right); got != strings.HasPrefix(c.Expected.Reported, "yes") {
			t.Errorf("%s: %v", id, got)
		}
	}
	one := Trigger{Key: "1", Kind: Cron, Arguments: "0 0 * * *", Worker: "w", Debounce: "1m", Message: []byte("1")}
	other := one
	other.Key = "2"
	if !Duplicates(one, other) {
		t.Error("the same trigger twice")
	}
	for _, differ := range []func(*Trigger){
		func(t *Trigger) { t.Kind = Event }, func(t *Trigger) { t.Arguments = "1 0 * * *" }, func(t *Trigger) { t.Worker = "v" },
		func(t *Trigger) { t.Debounce = "60s" }, func(t *Trigger) { t.Message = nil }, func(t *Trigger) { t.Tenant = "b" },
		func(t *Trigger) { t.Domain = "b" }, func(t *Trigger) { t.TimeZone = "Europe/Paris" },
	} {
		changed := other
		if differ(&changed); Duplicates(one, changed) {
			t.Errorf("%+v", changed)
		}
	}
}
