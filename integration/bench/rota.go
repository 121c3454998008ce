package main

import (
	"fmt"
	"time"
)

// tower is one trigger of the clock, and the oracle of its slots. All slots are whole seconds.
type tower struct {
	kind, arguments string
	step            int64 // seconds between slots
	offset          int64 // of @cron: slots are where Unix time modulo step is this; of @every: set by its creation
	sleeps          bool  // nothing is due for months
}

// slots are those after its creation and before until, as Unix seconds.
func (t tower) slots(created time.Time, until int64) (all []int64) {
	if t.sleeps {
		return nil
	}
	first := created.Unix() + t.step // an @every counts from the second of its creation
	if t.kind == "@cron" {
		first = created.Unix() - mod(created.Unix()-t.offset, t.step) + t.step
	}
	for at := first; at < until; at += t.step {
		all = append(all, at)
	}
	return all
}

func mod(a, n int64) int64 { return (a%n + n) % n }

// rota is n triggers that fire so often together, with intervals between shortest and ten times that: at most half of
// them are @every with 1 to 1.5 times the shortest interval, the others are @cron with the shortest or the longest one.
// For a rate of 0 half are @every 24h and the others are due in half a year.
func rota(n int, rate float64, shortest time.Duration, now time.Time) ([]tower, error) {
	all := make([]tower, n)
	step := int64(shortest / time.Second)
	if rate == 0 {
		for i := range all {
			all[i] = tower{kind: "@every", arguments: "24h", sleeps: true}
			if i >= n/2 {
				all[i] = tower{kind: "@cron", arguments: fmt.Sprintf("%d %d 0 15 %d *", i%60, i/60%60, (int(now.Month())+5)%12+1), sleeps: true}
			}
		}
		return all, nil
	}
	var every float64 // mean rate of an @every
	for i := range everySteps {
		every += 1 / float64(everyStep(step, i)) / everySteps
	}
	fast, slow, each := 1/float64(step), 1/float64(10*step), rate/float64(n)
	if each < slow || each > (every+fast)/2 {
		return nil, fmt.Errorf("%d triggers with a shortest interval of %s make %.0f to %.0f firings a second", n, shortest, slow*float64(n), (every+fast)/2*float64(n))
	}
	share := min((each-slow)/(every-slow), 0.5)                        // of @every
	often := max(((each-share*every)/(1-share)-slow)/(fast-slow), 0.0) // of the @cron
	everies := int(share * float64(n))
	frequent := everies + int(often*float64(n-everies)+0.5)
	for i := range all {
		switch k := int64(i); {
		case i < everies:
			all[i] = tower{kind: "@every", step: everyStep(step, i)}
			all[i].arguments = fmt.Sprintf("%ds", all[i].step)
		case i < frequent:
			all[i] = atCron(step, k)
		default:
			all[i] = atCron(10*step, k)
		}
	}
	return all, nil
}

const everySteps = 7

// everyStep is 1 to 1.5 times the shortest interval.
func everyStep(shortest int64, i int) int64 {
	return shortest + shortest*int64(i%everySteps)/(2*(everySteps-1))
}

// atCron is an @cron with an interval that divides a minute or an hour, and the n-th of its offsets.
func atCron(step, n int64) tower {
	t := tower{kind: "@cron", step: step, offset: n % step}
	each := func(offset, step, of int64) string { // of a field
		if step == of {
			return fmt.Sprint(offset)
		}
		return fmt.Sprintf("%d-%d/%d", offset, of-1, step)
	}
	switch {
	case step <= 60:
		t.arguments = each(t.offset, step, 60) + " * * * * *"
	default:
		t.arguments = fmt.Sprintf("%d %s * * * *", t.offset%60, each(t.offset/60, step/60, 60))
	}
	return t
}

// cronSteps says whether the shortest interval and ten times that can be written as @cron.
func cronSteps(shortest time.Duration) bool {
	for _, step := range []time.Duration{shortest, 10 * shortest} {
		minute := step > 0 && step%time.Second == 0 && time.Minute%step == 0
		hour := step > 0 && step%time.Minute == 0 && time.Hour%step == 0
		if !minute && !hour {
			return false
		}
	}
	return shortest <= time.Minute
}
