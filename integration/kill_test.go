package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/integration/checker"
	"carillon/integration/cluster"
)

// TestKillingAnOwnerLosesNoSlot: kill -9 of a controller under 1,000 cron jobs that run each second.
func TestKillingAnOwnerLosesNoSlot(t *testing.T) {
	c := settled(t)
	c.Age(t)
	rng := chance(t)
	// Most return at once; some are in flight at the kill for certain.
	m, _ := c.Up(t, slices.Concat(cluster.Verbs(960, "v"), cluster.Verbs(40, "nap600"))...)
	type death struct {
		key string
		at  time.Time
	}
	var deaths []death
	for began := time.Now(); len(deaths) == 0 || time.Since(began) < seconds(t, 5); {
		cluster.Let(t, 2*time.Second)
		live := c.Live()
		victim := live[rng.IntN(len(live))]
		c.InFlight(t, m, "nap", victim.Key)
		cluster.Let(t, time.Duration(rng.IntN(300))*time.Millisecond)
		deaths = append(deaths, death{victim.Key, c.Kill9(t, victim, 0)})
		cluster.Let(t, 9*time.Second)
		if isLong() {
			c.Settle(t, members)
			c.Age(t)
		}
	}
	h := c.Judge(t, m)[0]

	for _, d := range deaths {
		lost, freed := 0, time.Duration(0)
		inFlight := map[string]bool{}
		for _, r := range h.Rows {
			if r.Verdict == "lost" && r.Controller == d.key {
				lost++
				freed = max(freed, r.EndedAt.Sub(d.at))
				inFlight[r.Ref] = true
				if r.StartedAt.After(d.at.Add(onItsWay)) {
					t.Errorf("run %s was lost, but started %v after the kill", r.RunID, r.StartedAt.Sub(d.at))
				}
			}
		}
		next := nextStarts(h, d.at, inFlight)
		if worst := slices.Max(next); worst > time.Second && !c.Strained(d.at, d.at.Add(3*time.Second)) {
			t.Errorf("a job that was not in flight started %v after its first slot after the kill, want at most 1 s", worst)
		}
		if lost == 0 || lost > 500 {
			t.Errorf("%d runs were lost with the controller, want some of those in flight", lost)
		}
		if freed > 8*time.Second && !c.Strained(d.at, d.at.Add(8*time.Second)) {
			t.Errorf("the last lost run was freed %v after the kill, want at most 8 s", freed)
		}
		slices.Sort(next)
		t.Logf("kill -9 of %s: %d runs in flight lost, the last freed after %v; next start of the others, after their first slot after it, p50 %v p99 %v max %v",
			d.key, lost, freed.Round(time.Millisecond), next[len(next)/2], next[len(next)*99/100], next[len(next)-1])
	}
}

// onItsWay is how long after its sender's death Postgres may still do a claim that was sent before.
const onItsWay = 500 * time.Millisecond

// nextStarts says, for each job that was not in flight, how long after its first slot after the kill it started again.
func nextStarts(h checker.History, kill time.Time, inFlight map[string]bool) []time.Duration {
	slot := kill.Truncate(time.Second).Add(time.Second) // every job has one each second
	first := map[string]time.Time{}
	for _, r := range h.Rows {
		if r.RunID == "" || r.StartedAt.Before(slot) || inFlight[r.Ref] {
			continue
		}
		if have, ok := first[r.Ref]; !ok || r.StartedAt.Before(have) {
			first[r.Ref] = r.StartedAt
		}
	}
	var late []time.Duration
	for _, at := range first {
		late = append(late, at.Sub(slot).Round(100*time.Microsecond))
	}
	return late
}

// TestADrainedControllerFinishesItsRuns: SIGTERM exits 0, and the verbs that were running are recorded.
func TestADrainedControllerFinishesItsRuns(t *testing.T) {
	c := settled(t)
	verbs := slices.Concat(cluster.Verbs(60, "nap800"), cluster.Verbs(60, "v"))
	m, _ := c.Up(t, verbs...)
	cluster.Let(t, 2*time.Second)
	leaving := c.Live()[1]
	c.InFlight(t, m, "nap", leaving.Key)
	asked := time.Now()
	c.Term(t, leaving)
	gone := time.Now()
	cluster.Let(t, 2*time.Second)
	h := c.Judge(t, m)[0]

	finished := 0
	for _, r := range h.Rows {
		if r.Controller != leaving.Key || r.RunID == "" {
			continue
		}
		if r.StartedAt.After(asked.Add(500*time.Millisecond)) && r.Slot.After(asked.Add(200*time.Millisecond)) {
			t.Errorf("%s slot %v was claimed by a controller that drains", r.Ref, r.Slot)
		}
		if r.StartedAt.Before(asked) && r.EndedAt.After(asked) {
			finished++
			if r.Verdict != "succeeded" {
				t.Errorf("%s slot %v ended as %s (%s), want its success recorded", r.Ref, r.Slot, r.Verdict, r.Error)
			}
		}
	}
	if finished == 0 {
		t.Error("nothing was in flight at the SIGTERM")
	}
	if n := cluster.Verdicts(h)["lost"] + cluster.Verdicts(h)["cancelled"]; n > 0 {
		t.Errorf("%d runs were lost or cancelled by a drain", n)
	}
	t.Logf("SIGTERM: exit 0 after %v, %d runs in flight finished and recorded", gone.Sub(asked).Round(time.Millisecond), finished)
	if !strings.Contains(leaving.Log(), "controller stopped") {
		t.Error("the controller did not say that it stopped")
	}
}
