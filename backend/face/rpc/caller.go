package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"connectrpc.com/authn"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

// caller is who calls, as the guard found out. The zero caller may do nothing.
type caller struct {
	everything bool                            // a token of the cluster, or no authentication at all
	token      permission.Token                // otherwise: a tenant's own
	again      func(ctx context.Context) error // says whether the token is still good; nil: it is
}

func callerOf(ctx context.Context) caller {
	c, _ := authn.GetInfo(ctx).(caller)
	return c
}

// denial refuses what a token may not do; field is what of the request is about it, empty for all of it.
type denial struct{ field, text string }

func denied(field, text string) error { return &denial{field, text} }

func (d *denial) Error() string {
	if d.field == "" {
		return d.text
	}
	return d.field + ": " + d.text
}

func (d *denial) Unwrap() error { return errForbidden }

const outOfScope = "the scope of this token does not allow this"

// tenant is whose documents a request is about: the one that it names, or the token's. A token that names another one
// is refused, whether that is there or not. Empty: any, or the default.
func (c caller) tenant(asked string) (string, error) {
	if strings.ContainsFunc(asked, unicode.IsControl) {
		return "", invalid("tenant", "has a control character")
	}
	switch {
	case c.everything:
		return asked, nil
	case c.token.Tenant == "" || asked != "" && asked != c.token.Tenant:
		return "", denied("tenant", "this token is another tenant's")
	}
	return c.token.Tenant, nil
}

// touches says whether a rule of the scope is on this type and verb at all. Where none is, a request is refused as such;
// otherwise what the rules do not cover is answered as what is not there.
func (c caller) touches(doctype, verb string) bool {
	return c.everything || c.token.Scope.Everything() || slices.ContainsFunc(c.token.Scope.Rules(), func(r permission.Rule) bool {
		return r.Covers(doctype) && (len(r.Verbs) == 0 || slices.Contains(r.Verbs, verb))
	})
}

// Workers is what the house knows of workers, the names by which tenants know verbs.
type Workers interface {
	// Resolve finds the verb that a tenant's worker is, and its limits. trigger.ClientWorker is not asked for.
	Resolve(ctx context.Context, tenant, worker string) (ref string, limits trigger.Limits, ok bool)
	// Names are all names of the worker that a name is to a tenant, its ref the last; none: it is no worker now.
	Names(tenant, name string) []string
	// Use counts a job for the limit of its verb and a domain. Nothing is counted where there is no limit, and for a request
	// that came before, which is allowed.
	Use(ctx context.Context, domain string, n job.New) (r trigger.Ruling, counted bool, err error)
	// GiveBack takes a use that was counted off again: the job was there.
	GiveBack(ctx context.Context, domain string, n job.New)
}

// workersOf are the names by which rules may speak of a verb: the workers of this tenant that it is, and its ref.
func (s *Config) workersOf(tenant, ref string) []string {
	if names := s.Workers.Names(tenant, ref); len(names) > 0 {
		return names
	}
	return []string{ref}
}

// mayJob says whether a token may do to a job what may tells of one of its workers.
func (s *Config) mayJob(c caller, j job.Job, may func(id, worker string) bool) bool {
	if c.everything {
		return true
	}
	if j.Tenant != c.token.Tenant {
		return false
	}
	var e trigger.Envelope
	_ = json.Unmarshal(j.Envelope, &e) // without one no worker was named
	names := s.workersOf(j.Tenant, j.Ref)
	if e.Worker != "" {
		names = append(names, e.Worker)
	}
	return slices.ContainsFunc(names, func(worker string) bool { return may(j.ID.String(), worker) })
}

// findJob reads a job for somebody who wants to do to it what verb says. For a token what is absent, what is another
// tenant's and what its scope does not cover are the same.
func (s *Config) findJob(ctx context.Context, id job.ID, verb string) (job.Job, error) {
	c := callerOf(ctx)
	if !c.touches(permission.Jobs, verb) {
		return job.Job{}, denied("", outOfScope)
	}
	j, err := s.JobReader.GetJob(ctx, id)
	if c.everything || err != nil && !errors.Is(err, cron.ErrNotFound) {
		return j, err
	}
	may := c.token.MayReadJob
	if verb == permission.Patch {
		may = c.token.MayPatchJob
	}
	if err != nil || !s.mayJob(c, j, may) {
		return job.Job{}, fmt.Errorf("%w: no job %s", cron.ErrNotFound, id)
	}
	return j, nil
}

// mayPatch lets somebody change a job; of the cluster's own callers nothing is asked.
func (s *Config) mayPatch(ctx context.Context, id job.ID) error {
	if callerOf(ctx).everything {
		return nil
	}
	_, err := s.findJob(ctx, id, permission.Patch)
	return err
}
