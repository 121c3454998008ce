package main

import (
	"context"
	"fmt"
	"time"

	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

// deployBound is how long a deploy may take: the controller waits up to 30 s for the first runner.
const deployBound = 60 * time.Second

// deployCmd makes a module's schema the live one.
type deployCmd struct {
	listing
	Dir    string `arg:"" help:"Directory of the module's source."`
	DryRun bool   `help:"Only show what would change."`
	Now    bool   `help:"Do not wait for a runner of the new deployment."`
}

func (c *deployCmd) Help() string {
	return `The plan is shown, then sent: cron jobs that are added, changed or removed, with their next three slots. When the live
deployment has runners, the switch waits for the new one's first runner (30 s); --now does not.

Examples:

  carillon deploy ./examples/heartbeat --dry-run
  carillon deploy ./examples/heartbeat`
}

// planJSON is a plan, and what became of it, for programs.
type planJSON struct {
	Deployment string       `json:"deployment"`
	Replaces   string       `json:"replaces"`
	Digest     string       `json:"digest"`
	DryRun     bool         `json:"dry_run"`
	Unchanged  bool         `json:"unchanged"`
	Changes    []changeJSON `json:"changes"`
}

type changeJSON struct {
	Kind        string   `json:"kind"`
	Ref         string   `json:"ref"`
	Schedule    string   `json:"schedule"`
	OldSchedule string   `json:"old_schedule"`
	TimeZone    string   `json:"time_zone"`
	NextSlots   []string `json:"next_slots"`
}

func changeRow(c *carillonv1.Change) changeJSON {
	return changeJSON{
		Kind: word(c.GetKind().String(), "KIND_"), Ref: c.GetRef(), Schedule: c.GetSchedule(), OldSchedule: c.GetOldSchedule(),
		TimeZone: zoneName(c.GetTimeZone()), NextSlots: stamps(c.GetNextSlots()),
	}
}

func (c *deployCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	src, err := readModule(ctx, a.stderr, c.Dir)
	if err != nil {
		return err
	}
	declared, digest, name := schemaProto(src.Module), digestHex(src.Digest), src.Module.Name
	plan, err := cl.deploy.Plan(ctx, &carillonv1.PlanRequest{Schema: declared, Digest: digest})
	if err != nil {
		return fmt.Errorf("plan the deploy of %s: %w", name, err)
	}
	if len(src.Module.Verbs) == 0 && plan.GetReplaces() == "" {
		return mend(fmt.Errorf("deploy %s: it has no verbs", name), "put //carillon:cron or //carillon:verb above a function; README.md lists the directives")
	}
	if c.Output == "table" {
		showPlan(a, src.Module, plan)
	}
	done := planJSON{Deployment: plan.GetDeployment(), Replaces: plan.GetReplaces(), Digest: digest, DryRun: c.DryRun,
		Changes: list(plan.GetChanges(), changeRow)}
	if c.DryRun {
		return c.print(a, done, func() { fmt.Fprintln(a.stdout, "dry run: nothing was changed") })
	}
	bound, cancel := context.WithTimeout(ctx, max(deployBound, r.Timeout))
	defer cancel()
	resp, err := cl.deploy.Deploy(bound, &carillonv1.DeployRequest{Schema: declared, Digest: digest, Now: c.Now})
	if err != nil {
		return fmt.Errorf("deploy %s: %w", name, err)
	}
	done.Deployment, done.Replaces, done.Unchanged = resp.GetDeployment(), resp.GetReplaced(), resp.GetUnchanged()
	done.Changes = list(resp.GetChanges(), changeRow)
	return c.print(a, done, func() {
		switch {
		case resp.GetUnchanged():
			fmt.Fprintf(a.stdout, "%s is live already: nothing changed\n", resp.GetDeployment())
		case resp.GetReplaced() != "":
			fmt.Fprintf(a.stdout, "deployed %s, which replaces %s\n", resp.GetDeployment(), resp.GetReplaced())
		default:
			fmt.Fprintf(a.stdout, "deployed %s\n", resp.GetDeployment())
		}
	})
}

// showPlan prints what a deploy changes.
func showPlan(a *app, m schema.Module, plan *carillonv1.PlanResponse) {
	if len(plan.GetChanges()) == 0 {
		fmt.Fprintf(a.stdout, "module %s has %s, no cron jobs\n", m.Name, plural(len(m.Verbs), "verb"))
		return
	}
	a.table([]string{"change", "ref", "schedule", "zone", "next slots (UTC)"}, list(plan.GetChanges(), func(c *carillonv1.Change) []string {
		schedule := c.GetSchedule()
		if old := c.GetOldSchedule(); old != "" && old != schedule {
			schedule = dash(schedule) + "  (was " + old + ")"
		}
		return []string{a.paint(changeColours[c.GetKind()], word(c.GetKind().String(), "KIND_")), c.GetRef(), dash(schedule),
			zoneName(c.GetTimeZone()), spread(c.GetNextSlots())}
	}))
}

var changeColours = map[carillonv1.Change_Kind]string{
	carillonv1.Change_KIND_ADDED:   green,
	carillonv1.Change_KIND_REVIVED: green,
	carillonv1.Change_KIND_CHANGED: yellow,
	carillonv1.Change_KIND_REMOVED: red,
}

// summary says in a few words what a deploy changed, e.g. "1 added, 2 unchanged", or what it brought without cron jobs.
func summary(m schema.Module, changes []*carillonv1.Change) string {
	text := ""
	for kind := range int32(len(carillonv1.Change_Kind_name)) {
		n := 0
		for _, c := range changes {
			if int32(c.GetKind()) == kind {
				n++
			}
		}
		if n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", n, word(carillonv1.Change_Kind(kind).String(), "KIND_"))
		}
	}
	if text == "" {
		return plural(len(m.Verbs), "verb") + ", no cron jobs"
	}
	return text
}
