package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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
	checks, asked := askController(ctx, cl, r)
	if asked != "" {
		checks = append(checks, askOthers(ctx, cl, r, asked)...)
	}
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

// askController returns the findings of the controller and its key, or that none can be had.
func askController(ctx context.Context, cl *client, r *remote) (checks []checkJSON, key string) {
	resp, err := cl.cluster.GetHealth(ctx, &carillonv1.GetHealthRequest{})
	if err != nil {
		k := checkJSON{Name: "controller"}
		err = explainRPC(err, r)
		k.Detail = err.Error()
		var p *problem
		if errors.As(err, &p) {
			k.Hint = p.hint
		}
		return []checkJSON{k}, ""
	}
	checks = []checkJSON{{Name: "controller", OK: true, Detail: fmt.Sprintf("%s at %s, version %s", resp.GetController(), cl.url, resp.GetVersion())}}
	if resp.GetVersion() != version {
		checks[0].Detail += ", while this command is version " + version
	}
	for _, k := range resp.GetChecks() {
		checks = append(checks, checkJSON{k.GetName(), k.GetOk(), k.GetDetail(), k.GetHint()})
	}
	return checks, resp.GetController()
}

// ownChecks are what each controller finds of itself; the rest is of the database, and the same everywhere.
var ownChecks = map[string]bool{"upkeep": true, "clock offset": true, "ring": true, "migrations": true}

// otherBound is how long the doctor waits for each of the other controllers.
const otherBound = 5 * time.Second

// askOthers returns what the other live controllers find wrong with themselves, and a line for all that are well.
func askOthers(ctx context.Context, first *client, r *remote, asked string) (checks []checkJSON) {
	resp, err := first.cluster.ListControllers(ctx, &carillonv1.ListControllersRequest{})
	if err != nil {
		return []checkJSON{{Name: "controllers", Detail: explainRPC(err, r).Error()}}
	}
	var well, unasked []string
	for _, m := range resp.GetControllers() {
		switch {
		case m.GetKey() == asked:
		case m.GetState() != "live":
			unasked = append(unasked, m.GetKey()+" is "+m.GetState())
		default:
			wrong, err := askOther(ctx, m, r)
			switch {
			case err != nil:
				unasked = append(unasked, m.GetKey()+" cannot be asked from here")
			case len(wrong) == 0:
				well = append(well, m.GetKey())
			}
			checks = append(checks, wrong...)
		}
	}
	if len(well)+len(unasked) > 0 {
		checks = append(checks, checkJSON{Name: "others", OK: true, Detail: strings.Join(append(list(well, func(key string) string { return key + " is well" }), unasked...), ", ")})
	}
	return checks
}

func askOther(ctx context.Context, m *carillonv1.Controller, r *remote) (wrong []checkJSON, err error) {
	token, err := readToken(r.Token, r.TokenFile)
	if err != nil {
		return nil, err
	}
	cl, err := newClient(m.GetEndpoint(), token, otherBound)
	if err != nil {
		return nil, err
	}
	resp, err := cl.cluster.GetHealth(ctx, &carillonv1.GetHealthRequest{})
	if err != nil {
		return nil, err
	}
	for _, k := range resp.GetChecks() {
		if !k.GetOk() && ownChecks[k.GetName()] {
			wrong = append(wrong, checkJSON{k.GetName() + " of " + m.GetKey(), false, k.GetDetail(), k.GetHint()})
		}
	}
	return wrong, nil
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
