package main

import (
	"context"
	"errors"
	"fmt"

	"carillon/backend/controller"
	carillonv1 "carillon/proto/carillon/v1"
)

// doctorCmd checks the cluster's health.
type doctorCmd struct {
	listing
	database
}

func (c *doctorCmd) Help() string {
	return `A controller is asked for the database's version, the clock offset, the migrations and whatever else it checks. With
DATABASE_URL the migrations are looked at from here, too, which also works while no controller runs. The exit code is 1
when something is wrong.

Examples:

  carillon doctor
  DATABASE_URL=postgres://localhost/carillon carillon doctor -o json`
}

type checkJSON struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

func (c *doctorCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	checks := askController(ctx, cl, r)
	if c.DatabaseURL != "" {
		checks = append(checks, checkMigrations(ctx, c.DatabaseURL))
	}
	err = c.print(a, checks, func() {
		a.table([]string{"check", "", "finding"}, list(checks, func(k checkJSON) []string {
			mark, detail := a.paint(green, "ok"), clean(k.Detail, 0)
			if !k.OK {
				mark = a.paint(red, "wrong")
			}
			return []string{k.Name, mark, detail}
		}))
		for _, k := range checks {
			if !k.OK && k.Hint != "" {
				fmt.Fprintf(a.stdout, "hint: %s: %s\n", k.Name, clean(k.Hint, 0))
			}
		}
	})
	if err != nil {
		return err
	}
	for _, k := range checks {
		if !k.OK {
			return silent
		}
	}
	return nil
}

// askController returns the findings of the controller, or that none can be had.
func askController(ctx context.Context, cl *client, r *remote) []checkJSON {
	resp, err := cl.cluster.GetHealth(ctx, &carillonv1.GetHealthRequest{})
	if err != nil {
		k := checkJSON{Name: "controller"}
		err = explainRPC(err, r)
		k.Detail = err.Error()
		var p *problem
		if errors.As(err, &p) {
			k.Hint = p.hint
		}
		return []checkJSON{k}
	}
	checks := []checkJSON{{Name: "controller", OK: true, Detail: fmt.Sprintf("%s at %s, version %s", resp.GetController(), cl.url, resp.GetVersion())}}
	if resp.GetVersion() != version {
		checks[0].Detail += ", while this command is version " + version
	}
	for _, k := range resp.GetChecks() {
		checks = append(checks, checkJSON{k.GetName(), k.GetOk(), k.GetDetail(), k.GetHint()})
	}
	return checks
}

// checkMigrations looks at the database from here.
func checkMigrations(ctx context.Context, url string) checkJSON {
	k := checkJSON{Name: "migrations, from here"}
	migrations, err := controller.MigrationStatus(ctx, url)
	switch n := pending(migrations); {
	case err != nil:
		k.Detail, k.Hint = err.Error(), "is Postgres running, and is DATABASE_URL right?"
	case n > 0:
		k.Detail, k.Hint = fmt.Sprintf("%s of %d pending", plural(n, "migration"), len(migrations)), "run `carillon migrate up`"
	default:
		k.OK, k.Detail = true, fmt.Sprintf("all %d applied", len(migrations))
	}
	return k
}
