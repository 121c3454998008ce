package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/integration/checker"
	"carillon/integration/cluster"
)

// count counts the runs whose verb's name has a prefix, by verdict.
func count(h checker.History, prefix string) map[string]int {
	n := map[string]int{}
	for _, r := range h.Rows {
		_, verb, _ := strings.Cut(r.Ref, ".")
		if strings.HasPrefix(verb, prefix) {
			n[r.Verdict] += r.Count
		}
	}
	return n
}

// demand checks a sentence about every run whose verb's name has a prefix.
func demand(t *testing.T, h checker.History, prefix, verdict, text string) {
	t.Helper()
	seen := 0
	for _, r := range h.Rows {
		_, verb, _ := strings.Cut(r.Ref, ".")
		if r.RunID == "" || !strings.HasPrefix(verb, prefix) {
			continue
		}
		seen++
		if r.Verdict != verdict || !strings.Contains(r.Error, text) {
			t.Errorf("%s slot %v ended as %s (%q), want %s with %q", r.Ref, r.Slot, r.Verdict, r.Error, verdict, text)
		}
	}
	if seen == 0 {
		t.Errorf("no run of %s", prefix)
	}
}

// TestWhatVerbsDoStaysWithThem: verbs that fail, panic and never return, beside neighbours that must not notice.
func TestWhatVerbsDoStaysWithThem(t *testing.T) {
	t.Parallel()
	c := settled(t)
	m, _ := c.Up(t, slices.Concat(cluster.Verbs(40, "v"), []cluster.Verb{
		{Name: "failx"}, {Name: "panicx"},
		{Name: "hangx", Timeout: 1500 * time.Millisecond},
		{Name: "deafx", Timeout: 1500 * time.Millisecond, MayFail: true},
	})...)
	cluster.Let(t, seconds(t, 8))
	h := c.Judge(t, m)[0]
	demand(t, h, "v", "succeeded", "")
	demand(t, h, "fail", "failed", "the drill asked for it")
	demand(t, h, "panic", "failed", "panic: the drill asked for it")
	demand(t, h, "hang", "timed_out", "")
	// A verb that ignores its context is given up at the soft timeout; it holds its place, and later slots say so.
	deaf := count(h, "deaf")
	if deaf["timed_out"] != 1 || deaf["failed"] == 0 || deaf["succeeded"] > 0 {
		t.Errorf("the verb that never returns has verdicts %v, want one timed_out and failures after it", deaf)
	}
	for _, r := range h.Rows {
		if took := r.EndedAt.Sub(r.StartedAt); r.Ref == m.Name+".hangx" && r.RunID != "" && (took < 1500*time.Millisecond || took > 3500*time.Millisecond) {
			t.Errorf("a hanging verb with a soft timeout of 1.5 s ended after %v", took)
		}
	}
}

// TestAKilledRunnerFailsItsCallsOnly: kill -9 of a runner mid-call, with another one of the same deployment beside it,
// then of the last one.
func TestAKilledRunnerFailsItsCallsOnly(t *testing.T) {
	t.Parallel()
	c := settled(t)
	m, first := c.Up(t, slices.Concat(cluster.Verbs(30, "v"), cluster.Verbs(30, "nap600"))...)
	second := c.StartRunner(t, m)
	cluster.Let(t, 3*time.Second) // every controller has found both
	c.InFlight(t, m, "nap", "")
	c.KillRunner(t, m, first, time.Second)
	between := time.Now()
	cluster.Let(t, 3*time.Second)
	c.InFlight(t, m, "nap", "")
	none := time.Now()
	second.Kill()
	cluster.Let(t, 2*time.Second)
	c.StartRunner(t, m)
	c.Fault(checker.Fault{Kind: checker.RunnerDown, From: none, To: time.Now(), Module: m.Name, Recovery: 3 * time.Second})
	back := time.Now()
	cluster.Let(t, 5*time.Second)
	h := c.Judge(t, m)[0]

	var killed, without, after int
	for _, r := range h.Rows {
		failed := r.Verdict == "failed"
		switch {
		case r.RunID == "":
		case failed && r.StartedAt.Before(between):
			killed++
		case failed && r.StartedAt.After(between.Add(500*time.Millisecond)) && r.EndedAt.Before(none):
			t.Errorf("%s slot %v failed (%s) although another runner was there", r.Ref, r.Slot, r.Error)
		case failed && r.StartedAt.After(none):
			without++
		case r.Verdict == "succeeded" && r.StartedAt.After(back.Add(2*time.Second)):
			after++
		}
	}
	if killed == 0 || killed > 60 {
		t.Errorf("%d runs failed with the first runner, want those it had", killed)
	}
	if without == 0 || after == 0 {
		t.Errorf("%d runs failed without a runner and %d succeeded after the new one, want some of both", without, after)
	}
	t.Logf("kill -9 of a runner: %d calls in flight failed; %d slots failed while there was none", killed, without)
}

// TestGarbageFromARunnerHurtsNobody: runners that answer nonsense, over the stream and to single calls.
func TestGarbageFromARunnerHurtsNobody(t *testing.T) {
	t.Parallel()
	c := settled(t)
	good, _ := c.Up(t, cluster.Verbs(40, "v")...)
	var bad []*cluster.Module
	for _, stream := range []bool{true, false} {
		m := c.NewModule(t, cluster.Verbs(10, "v")...)
		for i := range m.Verbs {
			m.Verbs[i].MayFail, m.Verbs[i].Timeout = true, 2*time.Second
		}
		c.Change(t, m, m.Verbs...)
		c.StartGarbage(t, m, stream)
		c.Deploy(t, c.Any(t), m)
		bad = append(bad, m)
	}
	cluster.Let(t, seconds(t, 8))
	h := c.Judge(t, append([]*cluster.Module{good}, bad...)...)
	demand(t, h[0], "v", "succeeded", "")
	for _, h := range h[1:] {
		n := cluster.Verdicts(h)
		if n["succeeded"] > 0 || n["failed"]+n["timed_out"] == 0 {
			t.Errorf("garbage was judged as %v, want failures only", n)
		}
	}
	for _, k := range c.Live() {
		if rss := k.Metric(t, "process_resident_memory_bytes"); rss > 512<<20 {
			t.Errorf("controller %s takes %v MB of memory", k.Key, int(rss)>>20)
		}
	}
}
