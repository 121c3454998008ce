package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
)

// jobsRedriveCmd makes dead jobs live again.
type jobsRedriveCmd struct {
	listing
	jobFilter
	IDs   []string `arg:"" optional:"" name:"id" help:"The jobs' ids; without any, the flags say which."`
	All   bool     `help:"All dead jobs, without any other flag."`
	Limit int      `placeholder:"N" help:"How many jobs at most, latest end first (default: all that match)."`
	Yes   bool     `short:"y" help:"Do not ask."`
}

func (c *jobsRedriveCmd) Help() string {
	return `Jobs that die while this runs are left alone. Without ids the command asks first; where nobody can be asked, --yes says it.

Examples:

  carillon jobs redrive j1k0000abc
  carillon jobs redrive --ref mailroom.sendMail --from 2h
  carillon jobs redrive --all --yes -o json`
}

type redrivenJSON struct {
	Redriven int  `json:"redriven"`
	More     bool `json:"more"` // match, beyond the limit
	Held     int  `json:"held"` // stay dead: live jobs have their unique keys
}

func (c *jobsRedriveCmd) Run(ctx context.Context, a *app, r *remote) error {
	if err := c.check(); err != nil {
		return err
	}
	if len(c.IDs) > 0 {
		return retryJobs(ctx, a, r, c.listing, c.IDs, "re-drive job")
	}
	list, err := c.request(time.Now())
	if err != nil {
		return err
	}
	list.Dead = true
	dead, err := listJobs(ctx, r, list, pageSize)
	if err != nil {
		return err
	}
	if len(dead) == 0 {
		return c.print(a, redrivenJSON{}, func() { fmt.Fprintln(a.stdout, "no dead jobs match; nothing was changed") })
	}
	if err := c.confirm(a, len(dead)); err != nil {
		return err
	}
	// Those that die again meanwhile would be re-driven for ever: the latest end that is known bounds them all.
	req := &carillonv1.RedriveJobsRequest{Ref: c.Ref, Module: c.Module, Tenant: c.Tenant, Tag: c.Tag, From: list.From,
		To: timestamppb.New(dead[0].GetEndedAt().AsTime().Add(time.Microsecond))}
	return c.redrive(ctx, a, r, req)
}

func (c *jobsRedriveCmd) redrive(ctx context.Context, a *app, r *remote, req *carillonv1.RedriveJobsRequest) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	done := redrivenJSON{More: true}
	for done.More && (c.Limit == 0 || done.Redriven < c.Limit) {
		req.Limit = pageSize
		if c.Limit > 0 {
			req.Limit = int32(min(pageSize, c.Limit-done.Redriven))
		}
		resp, err := cl.jobs.RedriveJobs(ctx, req)
		if err != nil {
			return fmt.Errorf("re-drive jobs, after %d: %w", done.Redriven, err)
		}
		done.Redriven += int(resp.GetRedriven())
		done.More, done.Held = resp.GetMore(), int(resp.GetHeld()) // each call begins anew with the latest
		if resp.GetRedriven() == 0 {
			break
		}
	}
	return c.print(a, done, func() {
		fmt.Fprintf(a.stdout, "%s live again", plural(done.Redriven, "job"))
		if done.More {
			fmt.Fprint(a.stdout, "; more match")
		}
		if done.Held > 0 {
			fmt.Fprintf(a.stdout, "; %s not, as live jobs have their unique keys (`carillon jobs retry ID` names the one)", plural(done.Held, "job"))
		}
		fmt.Fprintln(a.stdout)
	})
}

func (c *jobsRedriveCmd) check() error {
	filtered := c.jobFilter != jobFilter{}
	switch {
	case len(c.IDs) > 0 && (filtered || c.All || c.Limit > 0):
		return usage{errors.New("ids and flags that choose jobs exclude each other")}
	case len(c.IDs) == 0 && !filtered && !c.All:
		return usage{mend(errors.New("which jobs?"), "give ids, or choose by --ref, --module, --tenant, --tag, --from or --to; --all is all of them")}
	}
	return nil
}

// confirm asks on the terminal.
func (c *jobsRedriveCmd) confirm(a *app, found int) error {
	if c.Yes {
		return nil
	}
	if !isTerminal(a.stdin) || !isTerminal(a.stderr) {
		return usage{mend(errors.New("there is nobody to ask whether this is meant"), "say so with --yes")}
	}
	many := plural(found, "dead job")
	if found == pageSize {
		many = fmt.Sprintf("%d dead jobs or more", found)
	}
	if c.Limit > 0 {
		many += fmt.Sprintf(", %d at most", c.Limit)
	}
	fmt.Fprintf(a.stderr, "Make %s live again? [y/N] ", many)
	answer, _ := bufio.NewReader(a.stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		fmt.Fprintln(a.stderr, "nothing was changed")
		return silent
	}
	return nil
}
