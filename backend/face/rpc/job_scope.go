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
	full   map[string]trigger.Ruling // workers over their limit: further jobs of them are refused without a look
}

// admit makes a job the tenant's, or refuses it. A verb may be enqueued by a token with a rule on its ref, or on a worker
// that it is; under whichever name, what that worker's limit counts is counted.
func (a *admission) admit(ctx context.Context, n *job.New) (err error) {
	if a.caller.everything {
		return nil
	}
	by := a.caller.token
	if n.Tenant, err = a.caller.tenant(n.Tenant); err != nil {
		return err
	}
	names := a.face.workersOf(ctx, n.Tenant, n.Ref)
	reserved := slices.ContainsFunc(names, a.face.reserved)
	at := slices.IndexFunc(names, func(worker string) bool { return by.MayPushJob(worker, reserved) })
	if at < 0 {
		return denied("ref", outOfScope)
	}
	if !n.Parent.IsZero() {
		return denied("parent_id", "only the runner of a job makes children of it")
	}
	for _, worker := range names {
		if _, limited := trigger.LimitOf(worker); !limited || a.face.Workers == nil {
			continue
		}
		ruling, full := a.full[worker]
		if !full {
			if ruling, err = a.face.Workers.TakeRate(ctx, n.Tenant, by.Domain, worker); err != nil {
				return err
			}
		}
		if !ruling.Allowed {
			a.full[worker] = ruling
			return &overLimit{ruling}
		}
	}
	n.Envelope, err = json.Marshal(trigger.Envelope{Domain: by.Domain, Worker: names[at]})
	return err
}

// mayList narrows a list of jobs to what a token may see: all of its tenant's, or those of the one verb that is asked
// for.
func (s *jobFace) mayList(ctx context.Context, f *job.Filter) (err error) {
	c := callerOf(ctx)
	if f.Tenant, err = c.tenant(f.Tenant); err != nil || c.everything || c.token.MayListJobs() {
		return err
	}
	if f.Ref != "" && slices.ContainsFunc(s.workersOf(ctx, f.Tenant, f.Ref), c.token.MayListJobsOf) {
		return nil
	}
	if f.Ref == "" && c.touches(permission.Jobs, permission.Get) {
		return denied("ref", "this token does not see all jobs; name a verb that it does see")
	}
	return denied("", outOfScope)
}
