package dispatch

import (
	"fmt"

	"carillon/backend/core/cron"
	carillonv1 "carillon/proto/carillon/v1"
)

// judge makes an outcome of what a runner answered. A call that was told to end and did has the verdict that it was
// ended for; one that had succeeded or failed by itself keeps that, since it is what happened.
func judge(c *call, resp *carillonv1.CallResponse) Outcome {
	out := Outcome{
		Error: resp.GetError(), Took: resp.GetTook().AsDuration(),
		After: max(resp.GetAfter().AsDuration(), 0), Final: resp.GetFinal(), Snooze: resp.GetSnooze(), Await: resp.GetAwait(),
	}
	switch o := resp.GetOutcome(); o {
	case carillonv1.Outcome_OUTCOME_SUCCEEDED:
		out.Verdict, out.Error, out.Payload = cron.Succeeded, "", resp.GetPayload()
		if n := len(out.Payload); n > maxResult {
			out.Verdict, out.Payload = cron.Failed, nil
			out.Error = fmt.Sprintf("the response of %d bytes is larger than %d", n, maxResult)
		}
	case carillonv1.Outcome_OUTCOME_FAILED:
		out.Verdict = cron.Failed
	case carillonv1.Outcome_OUTCOME_TIMED_OUT:
		out.Verdict = cron.TimedOut
	case carillonv1.Outcome_OUTCOME_CANCELLED, carillonv1.Outcome_OUTCOME_REFUSED:
		out.Verdict = cron.Cancelled
		if c.state == ending {
			out.Verdict, out.Error = c.verdict, c.reason
		}
	default:
		out.Verdict, out.Error = cron.Failed, fmt.Sprintf("the runner answered the unknown outcome %d", o)
	}
	if out.Verdict != cron.Succeeded && out.Error == "" {
		out.Error = "the runner gave no reason"
	}
	return out
}

// settle ends the call c as its runner says; one that the runner did not begin goes back to those that wait.
func (d *Dispatcher) settle(c *call, resp *carillonv1.CallResponse) {
	r := c.runner
	if resp.GetOutcome() != carillonv1.Outcome_OUTCOME_REFUSED {
		r.pause, r.trouble = 0, ""
		d.finish(c, judge(c, resp))
		return
	}
	d.stats.Refused++
	d.rest(r, cron.SafeText("refused: "+resp.GetError()))
	if c.state == ending {
		d.finish(c, judge(c, resp))
		return
	}
	d.retract(c)
	d.pump(r.Deployment)
}
