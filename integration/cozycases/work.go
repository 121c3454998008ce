package cozycases

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// works are the cases for which a worker has to do something.
var works = map[string]func(h Home){
	"cz-271": func(h Home) {
		once := map[string]any{"max_exec_count": 1}
		var odd, even []string
		for range 2 {
			odd = append(odd, h.pushed("print", map[string]any{"panics": true}, once))
			even = append(even, h.pushed("print", map[string]any{}, once))
		}
		for i := range odd {
			if a := h.ends(odd[i], "errored", 1); !strings.Contains(a.error(), "panic") {
				h.t.Errorf("after a panic: %s", a.Text)
			}
			h.ends(even[i], "done", 1)
		}
	},
	"cz-272": func(h Home) {
		a := h.ends(h.pushed("print", map[string]any{"ms": 60_000}, map[string]any{"max_exec_count": 1, "timeout": 0.001}), "errored", 1)
		h.equal(a, "data.attributes.error", "context deadline exceeded")
	},
	"cz-280": func(h Home) { // of the four executions three are a worker's that declares nothing
		a := h.ends(h.pushed("print", map[string]any{"fails": 9}, map[string]any{"retry_delay": 0.06}), "errored", 3)
		began := make([]time.Time, 3)
		for i := range began {
			text, _ := a.At(fmt.Sprintf("data.attributes.errors.%d", i)).(string)
			nanos, err := strconv.ParseInt(text[strings.LastIndexByte(text, ' ')+1:], 10, 64)
			if err != nil {
				h.t.Fatalf("error %d is %q", i, text)
			}
			began[i] = time.Unix(0, nanos)
		}
		for i, delay := range []time.Duration{60 * time.Millisecond, 120 * time.Millisecond} {
			const grace = 3 * time.Second // for a busy machine
			if waited := began[i+1].Sub(began[i]); waited < delay*9/10 || waited > delay*11/10+grace {
				h.t.Errorf("execution %d began %v after the one before, want %v and 10 percent less or more", i+2, waited, delay)
			}
		}
	},
	"cz-282": func(h Home) {
		a := h.want(h.Do(h.t, "POST", "/jobs/queue/strict", h.All, wrap(map[string]any{"options": map[string]any{"max_exec_count": 3}})), 202)
		h.ends(a.ID(), "errored", 1)
	},
	"cz-283": func(h Home) {
		h.ends(h.pushed("strict", map[string]any{"to": 7}, map[string]any{"max_exec_count": 3}), "errored", 1)
	},
	"cz-287": final,
	"cz-288": final,
}

func final(h Home) {
	a := h.ends(h.pushed("print", map[string]any{"final": true}, map[string]any{"max_exec_count": 3}), "errored", 1)
	h.equal(a, "data.attributes.errors.1", nil)
}

// pushed makes a job with a message and options, and returns its id.
func (h Home) pushed(worker string, message, options any) string {
	h.t.Helper()
	return h.want(h.Do(h.t, "POST", "/jobs/queue/"+worker, h.All, wrap(map[string]any{"arguments": message, "options": options})), 202).ID()
}

// ends waits for a job's end, and demands how it ended and how often it was tried.
func (h Home) ends(id, state string, tries int) Answer {
	h.t.Helper()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-ticks.C {
		a := h.want(h.Do(h.t, "GET", "/jobs/"+id, h.All, nil), 200)
		if now := a.At("data.attributes.state"); now == "done" || now == "errored" || time.Now().After(deadline) {
			h.equal(a, "data.attributes.state", state)
			h.equal(a, "data.attributes.try_count", float64(tries))
			return a
		}
	}
}

func (a Answer) error() string {
	text, _ := a.At("data.attributes.error").(string)
	return text
}

// rate uses a worker's limit up, in a window that begins with its first use.
func (h Home) rate(c Case) {
	h.t.Helper()
	worker, limit := c.Input["worker"].(string), int(c.Expected["limit per domain per hour"].(float64))
	push := func(want int) Answer {
		h.t.Helper()
		return h.want(h.Do(h.t, "POST", "/jobs/queue/"+worker, h.All, wrap(map[string]any{"arguments": 1})), want)
	}
	push(http.StatusAccepted)
	h.Use(h.t, h, worker, limit-1, 50*time.Minute)
	push(http.StatusAccepted)
	for _, text := range []string{"Rate limit reached", "Rate limit exceeded"} {
		a := push(http.StatusTooManyRequests)
		h.limited(a, text)
		if left, _ := strconv.Atoi(a.Header.Get("Retry-After")); left > 600 || left < 540 {
			h.t.Errorf("Retry-After %d in the last ten minutes of the window", left)
		}
	}
	other := h.World.Home(h.t)
	other.want(other.Do(h.t, "POST", "/jobs/queue/"+worker, other.All, wrap(map[string]any{"arguments": 1})), http.StatusAccepted)
	h.Use(h.t, h, worker, limit+2, 61*time.Minute)
	push(http.StatusAccepted)
}
