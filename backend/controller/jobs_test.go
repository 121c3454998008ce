package controller

import (
	"context"
	"testing"
	"time"

	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/core/schema"
	"carillon/backend/engine/dispatch"
)

// What jobs wait for that cannot run, however long nobody looks: it is said in these words.
func TestWhatJobsWaitFor(t *testing.T) {
	d := dispatch.New(dispatch.Config{Log: discard})
	h := &house{catalog: newCatalog(d), dispatch: d}
	live := func(key string, replicas int) *edition {
		return &edition{Deployment: deployment.Deployment{Key: key, Module: key, MinReplicas: replicas}, verbs: map[string]schema.Verb{"send": {Name: "send"}}}
	}
	h.catalog.modules = map[string]*edition{"mail": live("mail", 1), "idle": live("idle", 1), "down": live("down", 0)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	defer func() { stop(); within(t, 10*time.Second, done) }()
	d.SetRunners([]dispatch.Runner{{Key: "r", Endpoint: "http://127.0.0.1:1", Deployment: "mail", Capacity: 1}})
	eventually(t, "the runner is known", func() bool { return h.WaitingFor("mail.send") == "" })
	for ref, want := range map[string]string{
		"mail.send": "", "mail.post": "a verb post in module mail", "idle.send": "a runner of deployment idle", "down.send": "module down, which is scaled to 0",
		"gone.send": "a deployment of module gone", job.ClientRef: "",
	} {
		if got := h.WaitingFor(ref); got != want {
			t.Errorf("%s waits for %q, want %q", ref, got, want)
		}
	}
}
