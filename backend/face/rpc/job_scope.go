package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

// What a tenant's token adds to the requests about jobs.

// overLimit refuses a job because of its worker's rate.
type overLimit struct{ ruling trigger.Ruling }

func (e *overLimit) Error() string {
	return fmt.Sprintf("%s; try again in %s", e.ruling.Text, e.ruling.RetryAfter)
}

func (e *overLimit) RetryAfter() time.Duration { return e.ruling.RetryAfter }

// admission judges the jobs of one request that a token enqueues.
type admission struct {
	face   *jobFace
	caller caller
	uses   []bool                    // of the admitted ones: they were counted
	full   map[string]trigger.Ruling // limits that are reached: what cannot have come before is refused without a look
}

// admit makes a job the tenant's, or refuses it. A verb may be enqueued by a token with a rule on its ref, or on a worker
// that it is; under whichever name, it counts for the limit of its verb.
func (a *admission) admit(ctx context.Context, n *job.New) (err error) {
	if a.caller.everything {
		a.uses = append(a.uses, false)
		return nil
	}
	by := a.caller.token
	if n.Tenant, err = a.caller.tenant(n.Tenant); err != nil {
		return err
	}
	names := a.face.workersOf(n.Tenant, n.Ref)
	reserved := a.face.Reserved.Covers(n.Ref, n.Ref)
	at := slices.IndexFunc(names, func(worker string) bool { return by.MayPushJob(worker, reserved) })
	if at < 0 {
		return denied("ref", outOfScope)
	}
	if !n.Parent.IsZero() {
		return denied("parent_id", "only the runner of a job makes children of it")
	}
	ruling, counted := a.full[trigger.LimitName(n.Ref)], false
	if ruling.Text == "" || n.Idempotency != "" {
		if ruling, counted, err = a.face.Workers.Use(ctx, by.Domain, *n); err != nil {
			return err
		}
	}
	if !ruling.Allowed {
		a.full[trigger.LimitName(n.Ref)] = ruling
		return &overLimit{ruling}
	}
	a.uses = append(a.uses, counted)
	n.Envelope, err = json.Marshal(trigger.Envelope{Domain: by.Domain, Worker: names[at]})
	return err
}

// settle takes off what admitted jobs were counted as of which nothing came. Those without an answer have that of all.
func (a *admission) settle(ctx context.Context, jobs []job.New, answers []job.Enqueued, err error) {
	for i, n := range jobs {
		said := job.Enqueued{Err: err}
		if i < len(answers) {
			said = answers[i]
		}
		if a.uses[i] && said.MadeNothing() {
			a.face.Workers.GiveBack(ctx, a.caller.token.Domain, n)
		}
	}
}

// mayList narrows a list of jobs to what a token may see: all of its tenant's, or those of the one verb that is asked
// for.
func (s *jobFace) mayList(ctx context.Context, f *job.Filter) (err error) {
	c := callerOf(ctx)
	if f.Tenant, err = c.tenant(f.Tenant); err != nil || c.everything || c.token.MayListJobs() {
		return err
	}
	if f.Ref != "" && slices.ContainsFunc(s.workersOf(f.Tenant, f.Ref), c.token.MayListJobsOf) {
		return nil
	}
	if f.Ref == "" && c.touches(permission.Jobs, permission.Get) {
		return denied("ref", "this token does not see all jobs; name a verb that it does see")
	}
	return denied("", outOfScope)
}
