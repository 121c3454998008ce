package bench

import (
	"encoding/json"
	"slices"
	"time"
)

// Spread is the distribution of some durations.
type Spread struct {
	Count         int
	P50, P99, Max time.Duration
}

// MarshalJSON writes milliseconds.
func (s Spread) MarshalJSON() ([]byte, error) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return json.Marshal(struct {
		Count int     `json:"count"`
		P50   float64 `json:"p50_ms"`
		P99   float64 `json:"p99_ms"`
		Max   float64 `json:"max_ms"`
	}{s.Count, ms(s.P50), ms(s.P99), ms(s.Max)})
}

// spreadOf sorts its argument.
func spreadOf(all []time.Duration) Spread {
	if len(all) == 0 {
		return Spread{}
	}
	slices.Sort(all)
	return Spread{Count: len(all), P50: quantile(all, 0.5), P99: quantile(all, 0.99), Max: all[len(all)-1]}
}

// quantile is the nearest rank: the smallest value that at least that part of the values is not above.
func quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[max(rank, 1)-1]
}

// median of the values; 0 of none. It sorts its argument.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}
