package checker

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCleanQueuesRaiseNoAlarm(t *testing.T) {
	states, verdicts, said := map[string]int{}, map[string]int{}, map[string]int{}
	for seed := range uint64(cleanSeeds) {
		w := generateWork(seed)
		for _, e := range w.Ended {
			states[e.State]++
			for _, x := range e.Errors {
				verdicts[x.Verdict]++
			}
		}
		for _, d := range w.Doings {
			said[d.Said]++
		}
		if found := CheckWork(w); len(found) > 0 {
			t.Fatalf("seed %d: %d false alarms, the first: %v", seed, len(found), found[0])
		}
	}
	for name, n := range map[string]int{
		"succeeded": states["succeeded"], "failed": states["failed"], "cancelled": states["cancelled"], "lost": verdicts["lost"],
		"snooze": said["snooze"], "await": said["await"], "final": said["final"],
	} {
		if n < 150 {
			t.Errorf("only %d of %s in %d histories: they prove little", n, name, cleanSeeds)
		}
	}
	t.Logf("states %v, errors %v, said %v", states, verdicts, said)
}

func TestEveryMutantOfAQueueIsCaught(t *testing.T) {
	const seeds = 90
	made := map[string]int{}
	for seed := range uint64(seeds) {
		for _, m := range workMutations {
			w := generateWork(seed)
			if !m.mutate(rand.New(rand.NewPCG(seed, 12)), &w) {
				continue
			}
			made[m.name]++
			found := CheckWork(w)
			if !slices.ContainsFunc(found, func(v Violation) bool { return slices.Contains(m.want, v.Kind) }) {
				t.Errorf("seed %d, %s: got %v, want one of %v", seed, m.name, found, m.want)
			}
		}
	}
	total := 0
	for _, m := range workMutations {
		total += made[m.name]
		if made[m.name] < 10 {
			t.Errorf("%s: only %d mutants", m.name, made[m.name])
		}
	}
	if total < 1000 {
		t.Errorf("only %d mutants", total)
	}
	t.Logf("%d mutants of %d kinds", total, len(workMutations))
}
