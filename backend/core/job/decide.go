package job

import (
	"time"

	"carillon/backend/core/cron"
)

// Decide says what the outcome of a run makes of its job. now is the database's time, rnd a chance in [0, 1) for the
// jitter of the backoff. Together with Transitions it is the whole life of a job:
//   - success ends it, whatever else was said;
//   - a cancel ends it, whatever else the run came to;
//   - a run that never began, or a snooze, comes again and does not count;
//   - so does one that awaits its children, when the last of them has ended: at once if none lives;
//   - a failure (timed out and lost included) comes again after a backoff, or after the time the verb asked for, until
//     the attempts are used up, the verb says that it is for good, or the next one would begin after the job expires.
func Decide(c Claimed, o Outcome, now time.Time, rnd float64) Step {
	switch {
	case o.Verdict == cron.Succeeded && !o.Requeue && !o.Snooze && !o.Await:
		return Step{State: Succeeded, Counted: true}
	case c.CancelAsked, o.Verdict == cron.Cancelled && !o.Requeue:
		return Step{State: Cancelled, Counted: true}
	case o.Requeue:
		return c.again(now, asked(o), false)
	case o.Snooze:
		return c.again(now, max(asked(o), MinRest), false)
	case o.Await: // also where no child lives: a verb that waits for nothing must not turn in a circle
		step := c.again(now, MinRest, false)
		if step.State == Ready {
			step.State = Blocked
		}
		return step
	case o.Final, c.Attempt >= c.Retry.Attempts:
		return Step{State: Failed, Counted: true}
	}
	delay := asked(o)
	if delay == 0 {
		delay = Backoff(c.Retry, c.Attempt, rnd)
	}
	return c.again(now, delay, true)
}

// again is another attempt, unless it would begin after the job expires.
func (c Claimed) again(now time.Time, delay time.Duration, counted bool) Step {
	if !c.Expires.IsZero() && now.Add(delay).After(c.Expires) {
		return Step{State: Failed, Counted: true}
	}
	return Step{State: Ready, Delay: delay, Counted: counted}
}

// asked is the delay that the verb asked for, within bounds; zero: none.
func asked(o Outcome) time.Duration { return min(max(o.After, 0), MaxDelay) }

// Backoff is the wait after the failure of an attempt (the first is 1): it doubles from r.Backoff, with a jitter of a
// tenth either way by rnd in [0, 1), and never exceeds r.Ceiling.
func Backoff(r Retry, attempt int, rnd float64) time.Duration {
	d := max(r.Backoff, time.Millisecond)
	ceiling := max(r.Ceiling, d)
	for range min(attempt, MaxAttempts) - 1 {
		if d > ceiling/2 {
			d = ceiling
			break
		}
		d *= 2
	}
	d = time.Duration(float64(d) * (0.9 + 0.2*rnd))
	if d > ceiling { // reflected, so that a herd at the ceiling stays spread
		d = ceiling - (d - ceiling)
	}
	return d
}
