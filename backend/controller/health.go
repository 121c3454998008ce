package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/face/rpc"
	"carillon/backend/store"
)

const (
	wedgedAfter  = 15 * time.Second // nothing may be overdue or stuck for longer while a controller lives
	offsetLimit  = time.Second      // a larger clock offset is harmless, and worth a look
	overlapsOver = time.Hour        // the doctor looks back this far for double verdicts
)

// Health is what `carillon doctor` shows: this controller, the database, and the invariants as queries.
func (h *house) Health(ctx context.Context) []rpc.Check {
	checks := []rpc.Check{
		h.checkDatabase(ctx), h.checkSchema(ctx), h.checkRunners(ctx), h.checkWaiting(ctx), h.checkClock(), h.checkRing(), h.upkeep.check(time.Now()),
	}
	if wedged, err := h.store.CountWedged(ctx, wedgedAfter); err != nil {
		checks = append(checks, failed("cron jobs", err))
	} else {
		checks = append(checks,
			count("overdue", wedged.Overdue, "cron jobs are due for more than 15 s", "are runners and controllers up? see `carillon ps` and `carillon controllers`"),
			count("stuck", wedged.Stuck, "runs are executing without a live owner", "the sweep frees them; if it does not, read the controllers' logs"),
			count("set aside", wedged.SetAside, "cron jobs are set aside", "see `carillon cron ls` for the reasons, mend the schedules and deploy again"))
	}
	if double, err := h.store.FindOverlaps(ctx, h.cluster.Clock().Now().Add(-overlapsOver)); err != nil {
		checks = append(checks, failed("double verdicts", err))
	} else {
		checks = append(checks, count("double verdicts", len(double), "slots of the last hour have two verdicts", "this is a defect; please report it with the ledger's rows"))
	}
	return checks
}

func (h *house) checkDatabase(ctx context.Context) rpc.Check {
	version, err := h.store.Version(ctx)
	if err != nil {
		return failed("database", err)
	}
	return rpc.Check{Name: "database", OK: true, Detail: "PostgreSQL " + version}
}

func (h *house) checkSchema(ctx context.Context) rpc.Check {
	if err := store.CheckSchema(ctx, h.cfg.DatabaseURL); err != nil {
		c := failed("migrations", err)
		c.Hint = "run `carillon migrate up` with this binary, or upgrade it"
		return c
	}
	return rpc.Check{Name: "migrations", OK: true, Detail: "up to date"}
}

func (h *house) checkRunners(ctx context.Context) rpc.Check {
	live, err := h.store.ListDeployments(ctx, "", false)
	if err != nil {
		return failed("runners", err)
	}
	serves, err := h.served(ctx)
	if err != nil {
		return failed("runners", err)
	}
	var bare []string
	for _, d := range live {
		if d.Active && d.MinReplicas > 0 && !serves[d.Key] {
			bare = append(bare, d.Module)
		}
	}
	if len(bare) == 0 {
		return rpc.Check{Name: "runners", OK: true, Detail: "every live module has one"}
	}
	return rpc.Check{Name: "runners", Detail: "none of " + strings.Join(bare, ", "), Hint: "start one (`carillon run DIR`), or stop the module with `carillon kill MODULE`"}
}

// served are the keys of the deployments that have a runner.
func (h *house) served(ctx context.Context) (map[string]bool, error) {
	runners, err := h.store.ListRunners(ctx)
	serves := map[string]bool{}
	for _, r := range runners {
		serves[r.Deployment] = true
	}
	return serves, err
}

// checkWaiting finds jobs that wait for somebody who is not there. Those that wait for room are no fault.
func (h *house) checkWaiting(ctx context.Context) rpc.Check {
	refs, err := h.store.ListWaitingRefs(ctx, wedgedAfter)
	if err != nil {
		return failed("waiting jobs", err)
	}
	serves, err := h.served(ctx)
	if err != nil {
		return failed("waiting jobs", err)
	}
	live, err := h.store.ListLive(ctx, nil)
	if err != nil {
		return failed("waiting jobs", err)
	}
	editions := map[string]*edition{}
	for _, d := range live {
		editions[d.Module] = newEdition(d)
	}
	now := h.cluster.Clock().Now()
	var lacks []string
	for _, w := range refs {
		module, verb, _ := cron.ParseRef(w.Ref)
		why, e := "", editions[module]
		switch {
		case e == nil:
			why = "no module " + module + " is deployed"
		case e.verbs[verb].Name == "":
			why = "module " + module + " has no such verb"
		case e.MinReplicas == 0:
			why = "module " + module + " is scaled to 0"
		case !serves[e.Key]:
			why = "module " + module + " has no runner"
		default:
			continue
		}
		lacks = append(lacks, fmt.Sprintf("%s for %s: %s", w.Ref, max(now.Sub(w.Since), wedgedAfter).Round(time.Second), why))
	}
	if len(lacks) == 0 {
		return rpc.Check{Name: "waiting jobs", OK: true, Detail: "none that nobody serves"}
	}
	return rpc.Check{Name: "waiting jobs", Detail: strings.Join(lacks, "; "),
		Hint: "start a runner (`carillon run DIR`), deploy the verb or scale its module up, or end the jobs: `carillon jobs ls --state ready`, `carillon jobs cancel ID`"}
}

func (h *house) checkClock() rpc.Check {
	if !h.cluster.Clock().Known() {
		return rpc.Check{Name: "clock offset", Detail: "no heartbeat has been answered yet", Hint: "is the database reachable from this controller?"}
	}
	s := h.cluster.Stats()
	c := rpc.Check{Name: "clock offset", OK: s.Offset.Abs() < offsetLimit, Detail: fmt.Sprintf("%s ± %s to the database", s.Offset.Round(time.Microsecond), s.Error.Round(time.Microsecond))}
	if !c.OK {
		c.Hint = "slots are still right, since only the database's clock decides; set this machine's clock by NTP all the same"
	}
	return c
}

func (h *house) checkRing() rpc.Check {
	r := h.cluster.Ring()
	for _, m := range r.Members() {
		if m.Key == h.key {
			return rpc.Check{Name: "ring", OK: true, Detail: fmt.Sprintf("%d in it; first owner of %d shards and second of %d", len(r.Members()), len(r.First(h.key)), len(r.Second(h.key)))}
		}
	}
	return rpc.Check{Name: "ring", Detail: "this controller is not a member", Hint: "it is joining, draining, or cannot beat: see its log"}
}

// Healthy is the gRPC health service's answer.
func (h *house) Healthy() bool { return h.ready(context.Background()) == nil }

func failed(name string, err error) rpc.Check {
	return rpc.Check{Name: name, Detail: err.Error(), Hint: "is the database reachable from this controller?"}
}

func count(name string, n int, what, hint string) rpc.Check {
	if n == 0 {
		return rpc.Check{Name: name, OK: true, Detail: "none"}
	}
	return rpc.Check{Name: name, Detail: fmt.Sprintf("%d %s", n, what), Hint: hint}
}
