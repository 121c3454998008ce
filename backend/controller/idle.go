package controller

import (
	"context"
	"log/slog"
	"time"

	"carillon/backend/core/deployment"
	"carillon/backend/engine/deploy"
	"carillon/backend/store"
)

// Idle scales every live module to 0 that nobody will serve: it is not among the served, and no runner of it lives. It is
// for a database whose controllers have not started yet, so that they start nothing that must fail. It returns how many
// runners each of these modules wanted, also beside an error.
func Idle(ctx context.Context, url string, served func(module string) bool) (map[string]int, error) {
	idled := map[string]int{}
	db, err := store.Open(ctx, store.Config{URL: url, Application: "idle"})
	if err != nil {
		return idled, err
	}
	defer db.Close()
	named := named{Store: db, key: "idle", t: DefaultConfig().Timing}
	live, err := db.ListDeployments(ctx, "", false)
	if err != nil {
		return idled, err
	}
	runners, err := named.ListRunners(ctx)
	if err != nil {
		return idled, err
	}
	runs := map[string]bool{}
	for _, r := range runners {
		runs[r.Deployment] = true
	}
	e := deploy.New(deploy.Config{Store: named, Changed: func(context.Context, string) {}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	idle := func(d deployment.Deployment) bool {
		return d.Active && d.MinReplicas > 0 && !runs[d.Key] && !served(d.Module)
	}
	for _, d := range live {
		if !idle(d) {
			continue
		}
		if _, err := e.Scale(ctx, d.Module, 0); err != nil {
			return idled, err
		}
		idled[d.Module] = d.MinReplicas
	}
	return idled, nil
}
