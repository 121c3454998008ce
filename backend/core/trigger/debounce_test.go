package trigger

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/job"
)

func TestConformanceOfDebounceValues(t *testing.T) {
	type c struct {
		Input    struct{ Debounce string }
		Expected struct {
			OK      bool
			Pointer string
			Effect  string
		}
	}
	found := cases[c](t, "trigger-args/debounce")
	if len(found) != 5 {
		t.Errorf("got %d cases, want 5", len(found))
	}
	for id, c := range found {
		d, err := ParseDebounce(c.Input.Debounce)
		f, refused := errors.AsType[*Fault](err)
		switch {
		case c.Expected.OK && (err != nil || d != 0 && c.Expected.Effect == "no debounce"):
			t.Errorf("%s: %q: %v, %v", id, c.Input.Debounce, d, err)
		case !c.Expected.OK && (!refused || f.Pointer != c.Expected.Pointer && c.Expected.Pointer != ""):
			t.Errorf("%s: %q: %v, %#v", id, c.Input.Debounce, d, err)
		}
	}
	for _, bad := range []string{"@3m", "abc", "-1ns", "5d", " 5m", "1h "} {
		if _, err := ParseDebounce(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// shot is a job that a debounced trigger made, after the first arrival.
type shot struct {
	at  time.Duration
	job Envelope
}

// play lets matches arrive at their times, and fires each window at its end, as the owner of the row does.
func play(kind Kind, d time.Duration, times []time.Duration, arrival func(i int) Arrival) (shots []shot) {
	var open *Window
	fire := func(w Window) { shots = append(shots, shot{w.FireAt.Sub(anInstant), w.Job(kind)}) }
	for i, after := range times {
		now := anInstant.Add(after)
		if open == nil {
			w := Open(now, d, arrival(i))
			open = &w
			continue
		}
		next, over := open.Arrive(now, d, arrival(i))
		if over {
			fire(*open)
		}
		open = &next
	}
	if open != nil {
		fire(*open)
	}
	return shots
}

func every(step, span time.Duration) (times []time.Duration) {
	for at := time.Duration(0); at < span; at += step {
		times = append(times, at)
	}
	return times
}

type debounceCase struct {
	Note     string
	Input    json.RawMessage
	Expected map[string]any
}

func TestConformanceOfDebounce(t *testing.T) {
	type c = debounceCase
	found := cases[c](t, "debounce")
	nothing := func(int) Arrival { return Arrival{} }
	run := map[string]func(t *testing.T, c c){
		"cz-257": func(t *testing.T, c c) { // whichever of its types an event has, the window is the trigger's
			if got := play(Event, 2*time.Second, []time.Duration{0, 0, time.Millisecond}, nothing); len(got) != int(c.Expected["additional jobs"].(float64)) {
				t.Errorf("got %v", got)
			}
		},
		"cz-261": func(t *testing.T, c c) {
			if got := play(Event, 10*time.Minute, []time.Duration{0, 9 * time.Minute}, nothing); len(got) != 1 || got[0].at != 10*time.Minute {
				t.Errorf("got %v", got)
			}
		},
		"cz-262": func(t *testing.T, c c) {
			if got := play(Event, 10*time.Minute, every(time.Second, time.Hour), nothing); len(got) != 6 {
				t.Errorf("got %d jobs", len(got))
			}
		},
		"cz-263": func(t *testing.T, c c) {
			got := play(Event, 10*time.Minute, []time.Duration{0, 10*time.Minute + time.Second}, nothing)
			if len(got) != 2 || got[0].at != 10*time.Minute || got[1].at != 20*time.Minute+time.Second {
				t.Errorf("got %v", got)
			}
		},
		"cz-264": func(t *testing.T, c c) {
			got := Open(anInstant, time.Minute, Arrival{}).Job(Event)
			if got.Event != nil || got.Payload != nil || !got.Debounced || got.Manual || got.Events != 1 {
				t.Errorf("got %+v", got)
			}
		},
		"cz-265":  webhookCase,
		"cz-266":  webhookCase,
		"cz-267d": webhookCase,
	}
	for id, c := range found {
		test, ok := run[id]
		if !ok {
			t.Errorf("%s is not run", id)
			continue
		}
		t.Run(id, func(t *testing.T) { test(t, c) })
	}
	if len(found) != len(run) {
		t.Errorf("got %d cases, want %d", len(found), len(run))
	}
}

func webhookCase(t *testing.T, c debounceCase) {
	var in struct {
		Input struct {
			Payloads []string
			Query    string
		}
		Expected struct {
			Payload json.RawMessage `json:"job.payload"`
			Manual  bool            `json:"job.manual"`
		}
	}
	data, _ := json.Marshal(c)
	if err := json.Unmarshal(data, &in); err != nil {
		t.Fatal(err)
	}
	var arrivals []Arrival
	for _, p := range in.Input.Payloads {
		arrivals = append(arrivals, Arrival{Payload: json.RawMessage(p)})
	}
	if in.Input.Query == "Manual=true" { // one of three
		arrivals = []Arrival{{Payload: json.RawMessage("1")}, {Payload: json.RawMessage("2"), Manual: true}, {Payload: json.RawMessage("3")}}
		in.Expected.Payload = json.RawMessage(`{"payloads":[1,2,3]}`)
	}
	got := play(Webhook, time.Minute, make([]time.Duration, len(arrivals)), func(i int) Arrival { return arrivals[i] })
	if len(got) != 1 || !SameJSON(got[0].job.Payload, in.Expected.Payload) || got[0].job.Manual != in.Expected.Manual || !got[0].job.Debounced ||
		got[0].job.Events != int64(len(arrivals)) {
		t.Errorf("got %+v, want %+v", got, in.Expected)
	}
}

func TestWindowsDoNotGrowBeyondAJob(t *testing.T) {
	big := json.RawMessage(`"` + strings.Repeat("a", MaxDelivery-2) + `"`)
	shots := play(Webhook, time.Minute, make([]time.Duration, 9), func(int) Arrival { return Arrival{Payload: big} })
	var events int64
	for _, s := range shots {
		events += s.job.Events
		if len(s.job.Payload) > job.MaxPayload || !json.Valid(s.job.Payload) || s.at != time.Minute {
			t.Errorf("a job with %d bytes at %v", len(s.job.Payload), s.at)
		}
	}
	if events != 9 || len(shots) < 2 {
		t.Errorf("%d of 9 deliveries in %d jobs", events, len(shots))
	}
}

func TestAWindowIsNotChangedByWhatArrivesLater(t *testing.T) {
	one := Open(anInstant, time.Minute, Arrival{Payload: json.RawMessage("1")})
	left, _ := one.Arrive(anInstant, time.Minute, Arrival{Payload: json.RawMessage("2")})
	right, _ := one.Arrive(anInstant, time.Minute, Arrival{Payload: json.RawMessage("3"), Manual: true})
	for want, w := range map[string]Window{`{"payloads":[1]}`: one, `{"payloads":[1,2]}`: left, `{"payloads":[1,3]}`: right} {
		if got := w.Job(Webhook); string(got.Payload) != want || got.Manual != (want == `{"payloads":[1,3]}`) {
			t.Errorf("got %s, want %s", got.Payload, want)
		}
	}
}
