package checker

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const cleanSeeds = 1200

func TestCleanHistoriesRaiseNoAlarm(t *testing.T) {
	verdicts := map[string]int{}
	for seed := range uint64(cleanSeeds) {
		h := generate(seed)
		for _, r := range h.Rows {
			verdicts[r.Verdict]++
		}
		if found := Check(h); len(found) > 0 {
			t.Fatalf("seed %d: %d false alarms, the first: %v", seed, len(found), found[0])
		}
	}
	for _, v := range []string{"succeeded", "failed", "timed_out", "lost", "skipped_overlap", "skipped_missed", "skipped_paused"} {
		if verdicts[v] < 200 {
			t.Errorf("only %d verdicts %s in %d histories: they prove little", verdicts[v], v, cleanSeeds)
		}
	}
}

func TestEveryMutantIsCaught(t *testing.T) {
	const seeds = 60
	made := map[string]int{}
	for seed := range uint64(seeds) {
		for _, m := range mutations {
			h := generate(seed)
			rng := rand.New(rand.NewPCG(seed, 11))
			if !m.mutate(rng, &h) {
				continue
			}
			made[m.name]++
			found := Check(h)
			if !slices.ContainsFunc(found, func(v Violation) bool { return slices.Contains(m.want, v.Kind) }) {
				t.Errorf("seed %d, %s: got %v, want one of %v", seed, m.name, found, m.want)
			}
		}
	}
	total := 0
	for _, m := range mutations {
		total += made[m.name]
		if made[m.name] < 10 {
			t.Errorf("%s: only %d mutants", m.name, made[m.name])
		}
	}
	if total < 1000 {
		t.Errorf("only %d mutants", total)
	}
	t.Logf("%d mutants of %d kinds", total, len(mutations))
}
