package main

import (
	"context"
	"errors"
	"fmt"

	carillonv1 "carillon/proto/carillon/v1"
)

// covered is what a pause covers.
type covered struct {
	Ref    string `arg:"" optional:"" help:"The verb, as module.verb."`
	Tenant string `placeholder:"NAME" help:"Only this tenant; without a REF all its jobs."`
	All    bool   `help:"Everything: all verbs of all tenants."`
}

func (c *covered) check() error {
	switch named := c.Ref != "" || c.Tenant != ""; {
	case !named && !c.All:
		return usage{mend(errors.New("which jobs?"), "name a verb (module.verb), a tenant with --tenant, or --all for everything")}
	case named && c.All:
		return usage{errors.New("--all is everything; it goes without a verb and a tenant")}
	case c.Ref != "" && !isRef(c.Ref):
		return usage{mend(fmt.Errorf("%q is no verb", clean(c.Ref, 80)), "write it as module.verb")}
	}
	return nil
}

// String names what is covered, for a person.
func (c *covered) String() string { return coverage(c.Ref, c.Tenant) }

func coverage(ref, tenant string) string {
	ref, tenant = clean(ref, 60), clean(tenant, 60)
	switch {
	case ref == "" && tenant == "":
		return "all jobs"
	case tenant == "":
		return "the jobs of " + ref
	case ref == "":
		return "the jobs of tenant " + tenant
	}
	return "the jobs of " + ref + " of tenant " + tenant
}

// args are the words that name the same again.
func (c *covered) args() (text string) {
	if c.Ref != "" {
		text += " " + c.Ref
	}
	if c.Tenant != "" {
		text += " --tenant " + c.Tenant
	}
	if c.All {
		text += " --all"
	}
	return text
}

type coveredJSON struct {
	Ref    string `json:"ref"`
	Tenant string `json:"tenant"`
	Queues int32  `json:"queues"`
}

// jobsPauseCmd holds jobs back.
type jobsPauseCmd struct {
	listing
	covered
	Reason string `placeholder:"TEXT" help:"Why; shown with the pause."`
}

func (c *jobsPauseCmd) Help() string {
	return `What runs goes on; jobs are still taken in, and wait. The pause holds for verbs and tenants that come later, too.

Examples:

  carillon jobs pause mailroom.sendMail --reason "the relay is down"
  carillon jobs pause --tenant acme
  carillon jobs pause --all`
}

func (c *jobsPauseCmd) Run(ctx context.Context, a *app, r *remote) error {
	if err := c.check(); err != nil {
		return err
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.jobs.PauseJobs(ctx, &carillonv1.PauseJobsRequest{Ref: c.Ref, Tenant: c.Tenant, Reason: c.Reason})
	if err != nil {
		return fmt.Errorf("pause %s: %w", &c.covered, err)
	}
	return c.print(a, coveredJSON{c.Ref, c.Tenant, resp.GetQueues()}, func() {
		fmt.Fprintf(a.stdout, "%s are paused (%s); `carillon jobs resume%s` lets them start again\n", &c.covered, plural(int(resp.GetQueues()), "queue"), c.args())
	})
}

// jobsResumeCmd takes a pause back.
type jobsResumeCmd struct {
	listing
	covered
}

func (c *jobsResumeCmd) Help() string {
	return `Takes back the pause of exactly this verb and tenant. What another pause covers stays paused; 'jobs queues' lists them.

Examples:

  carillon jobs resume mailroom.sendMail
  carillon jobs resume --tenant acme`
}

func (c *jobsResumeCmd) Run(ctx context.Context, a *app, r *remote) error {
	if err := c.check(); err != nil {
		return err
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.jobs.ResumeJobs(ctx, &carillonv1.ResumeJobsRequest{Ref: c.Ref, Tenant: c.Tenant})
	if err != nil {
		return fmt.Errorf("resume %s: %w", &c.covered, err)
	}
	row := resumedJSON{coveredJSON{c.Ref, c.Tenant, resp.GetQueues()}, resp.GetWasPaused(), resp.GetHeld()}
	return c.print(a, row, func() { fmt.Fprintln(a.stdout, row.text(&c.covered)) })
}

type resumedJSON struct {
	coveredJSON
	WasPaused bool  `json:"was_paused"`
	Held      int32 `json:"held"` // by another pause
}

// text says what became of a pause, and what still holds the jobs back.
func (r resumedJSON) text(c *covered) string {
	held := ""
	if r.Held > 0 {
		held = fmt.Sprintf("; another pause holds %s, see `carillon jobs queues`", plural(int(r.Held), "queue"))
	}
	switch {
	case !r.WasPaused:
		return fmt.Sprintf("there is no pause of %s: nothing was changed%s", c, held)
	case r.Queues == 0 && held != "":
		return fmt.Sprintf("the pause of %s is taken back, and none of them starts yet%s", c, held)
	case r.Queues == 0:
		return fmt.Sprintf("the pause of %s is taken back; there was no such job yet", c)
	}
	return fmt.Sprintf("%s start again (%s)%s", c, plural(int(r.Queues), "queue"), held)
}
