package integration

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/integration/cluster"
)

// enough is how much must be left of what the cluster does, whatever burdens the database.
const enough = 0.8

// pace is what the cluster did in one round.
type pace struct {
	rate float64       // jobs per second
	cost time.Duration // processor time of Postgres for each; 0: it cannot be had here
	wait time.Duration // from the request to the verb's begin, of the quickest tenth of single jobs; 0: not looked at
}

func (p pace) String() string {
	text := fmt.Sprintf("%.0f/s %v", p.rate, p.cost)
	if p.wait > 0 {
		text += fmt.Sprintf(" %v", p.wait)
	}
	return text
}

// series are rounds without and with a burden, by turns: what else the machine does meets both alike.
type series struct{ calm, burdened []pace }

// patience is for how long a bad verdict is doubted: what disturbs a machine comes and goes, what a plan costs stays.
const patience = 75 * time.Second

// alternate measures at least so many pairs of rounds, calm ones at both ends, and says what a burden does to the
// cluster. It goes on while that looks bad.
func alternate(t *testing.T, pairs int, burden string, calm, burdened func() pace) {
	t.Helper()
	began := time.Now()
	s := series{calm: []pace{calm()}}
	for len(s.burdened) < pairs || s.fault() != "" && time.Since(began) < patience {
		s.burdened, s.calm = append(s.burdened, burdened()), append(s.calm, calm())
	}
	t.Logf("without %s %v, with it %v: throughput %.2f and processor time per job %.2f of the calm ones, single jobs wait at best %v and %v", burden, s.calm, s.burdened,
		s.ratio(pace.throughput), s.ratio(pace.processor), quickest(s.burdened), quickest(s.calm))
	if text := s.fault(); text != "" {
		t.Errorf("%s under %s", text, burden)
	}
}

// fault says what is worse than it may be. The clock on the wall decides, but where calm rounds differ by more than what
// is looked for: then the machine does other things, and processor time tells. A round without a single job is no chance.
func (s series) fault() string {
	rates := each(s.calm, pace.throughput)
	restless := slices.Min(rates) < enough*slices.Max(rates) && s.ratio(pace.processor) > 0
	switch {
	case slices.Min(append(each(s.burdened, pace.throughput), rates...)) == 0:
		return "no job ended for a whole round, with or without it,"
	case s.ratio(pace.throughput) < enough && !(restless && s.ratio(pace.processor) <= 1/enough):
		return fmt.Sprintf("%.0f %% of the throughput is left, want %.0f %%,", 100*s.ratio(pace.throughput), 100*enough)
	case quickest(s.burdened).Seconds() > quickest(s.calm).Seconds()/enough+chanceOfWait.Seconds():
		return fmt.Sprintf("single jobs wait %v instead of %v", quickest(s.burdened), quickest(s.calm))
	}
	return ""
}

func (p pace) throughput() float64 { return p.rate }
func (p pace) processor() float64  { return p.cost.Seconds() }

// ratio compares the medians.
func (s series) ratio(of func(pace) float64) float64 {
	median := func(all []pace) float64 {
		sorted := slices.Sorted(slices.Values(each(all, of)))
		return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
	}
	return median(s.burdened) / max(median(s.calm), 1e-9)
}

const chanceOfWait = 500 * time.Microsecond

// quickest is the best round's wait: what disturbs single jobs makes them only wait longer.
func quickest(all []pace) time.Duration {
	return slices.MinFunc(all, func(a, b pace) int { return cmp.Compare(a.wait, b.wait) }).wait
}

func each(all []pace, of func(pace) float64) (values []float64) {
	for _, p := range all {
		values = append(values, of(p))
	}
	return values
}

// observe lets the cluster live for so long, and counts what ended meanwhile of a module's jobs.
func observe(t *testing.T, c *cluster.Cluster, d *cluster.Desk, length time.Duration) pace {
	t.Helper()
	from, spent := time.Now(), c.DatabaseCPU()
	cluster.Let(t, length)
	to := time.Now()
	spent = c.DatabaseCPU() - spent
	var n int
	if err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id
		WHERE starts_with(q.ref, $1) AND ended_at >= $2 AND ended_at < $3`, d.Name+".", from, to).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return pace{rate: float64(n) / to.Sub(from).Seconds(), cost: (spent / time.Duration(max(n, 1))).Round(100 * time.Nanosecond)}
}

// TestAPaceIsJudged: by the clock, but for a restless machine, and never without a bound.
func TestAPaceIsJudged(t *testing.T) {
	t.Parallel()
	of := func(rates ...float64) (all []pace) {
		for _, r := range rates {
			all = append(all, pace{rate: r, cost: 10 * time.Microsecond, wait: 2 * time.Millisecond})
		}
		return all
	}
	with := func(p []pace, change func(*pace)) []pace {
		for i := range p {
			change(&p[i])
		}
		return p
	}
	dear := func(p *pace) { p.cost *= 2 }
	for name, x := range map[string]struct {
		s    series
		good bool
	}{
		"alike":                      {series{of(100, 101, 99), of(98, 99)}, true},
		"slower on a calm machine":   {series{of(100, 101, 99), of(70, 71)}, false},
		"restless, and as cheap":     {series{of(100, 50, 99), of(70, 71)}, true},
		"a round stood still":        {series{of(100, 101, 0), of(99, 100)}, false},
		"restless, and dearer":       {series{of(100, 50, 99), with(of(70, 71), dear)}, false},
		"restless without a measure": {series{with(of(100, 50, 99), func(p *pace) { p.cost = 0 }), with(of(70, 71), func(p *pace) { p.cost = 0 })}, false},
		"single jobs wait":           {series{of(100, 101), with(of(100), func(p *pace) { p.wait *= 2 })}, false},
		"single jobs wait by chance": {series{of(100, 101), append(with(of(100), func(p *pace) { p.wait *= 2 }), of(100)...)}, true},
		"single jobs wait no longer": {series{of(100, 101), with(of(100), func(p *pace) { p.wait += chanceOfWait })}, true},
	} {
		if text := x.s.fault(); (text == "") != x.good {
			t.Errorf("%s: %q", name, text)
		}
	}
}
