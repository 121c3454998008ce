package carillon

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLevels(t *testing.T) {
	for name, c := range map[string]struct {
		capacity int
		streams  []demand
		want     []int
	}{
		"nobody":                      {100, nil, nil},
		"one":                         {100, []demand{{}}, []int{100}},
		"two arrive":                  {100, []demand{{}, {}}, []int{50, 50}},
		"three share the rest":        {100, []demand{{}, {}, {}}, []int{34, 33, 33}},
		"more streams than room":      {2, []demand{{}, {}, {}}, []int{1, 1, 1}},
		"draining":                    {0, []demand{{level: 50, inFlight: 3}, {level: 50}}, []int{0, 0}},
		"an idle one lends":           {100, []demand{{level: 50, inFlight: 50, peak: 50}, {level: 50}}, []int{75, 25}},
		"a busy one gives back":       {100, []demand{{level: 75, inFlight: 75, peak: 75}, {level: 25, inFlight: 25, peak: 25}}, []int{50, 25}},
		"a newcomer waits for room":   {100, []demand{{level: 100, inFlight: 100, peak: 100}, {}}, []int{50, 1}},
		"room comes as the calls end": {100, []demand{{level: 50, inFlight: 60, peak: 100}, {level: 1, inFlight: 1, peak: 1}}, []int{50, 40}},
	} {
		if got := levels(c.capacity, c.streams); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestLevelsNeverExceedTheCapacity(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n := 1 + r.IntN(8)
		capacity := n + r.IntN(200)
		streams := make([]demand, n)
		left := capacity
		for i := range streams { // a state that earlier levels allow
			level := r.IntN(left + 1)
			left -= level
			in := r.IntN(level + 1)
			streams[i] = demand{level: level, inFlight: in, peak: in + r.IntN(level-in+1)}
		}
		for round := range 3 {
			got := levels(capacity, streams)
			sum, zero := 0, 0
			for i, level := range got {
				sum += max(level, streams[i].inFlight)
				if level < 1 {
					t.Fatalf("a stream starves: %v of %v", got, streams)
				}
				if streams[i].level == 0 || level == 1 {
					zero++
				}
				streams[i].level = level
			}
			if sum > capacity+zero { // each stream may hold its one credit
				t.Fatalf("round %d: %v of %v promise %d of %d", round, got, streams, sum, capacity)
			}
		}
	}
}
