package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/schema"
	"carillon/backend/module"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

func TestModulesOfAnEarlierStartAreScaledToNothing(t *testing.T) {
	deployed := func(name string, replicas int32, runners ...*carillonv1.Runner) *carillonv1.Deployment {
		return &carillonv1.Deployment{Key: name + "-1", Module: name, Active: true, Replicas: replicas, Runners: runners}
	}
	old, elsewhere, killed := deployed("old", 1), deployed("elsewhere", 2), deployed("killed", 0)
	f := startFake(t, &fakeController{live: []*carillonv1.Deployment{deployed("shop", 1), deployed("broken", 1), old, elsewhere, killed,
		deployed("run", 1, &carillonv1.Runner{}), {Key: "old-0", Module: "old", Replicas: 1}}})
	d, screen := devOf(t, f)
	i := d.idler([]*devModule{{dir: "/src/billing", src: module.Source{Module: schema.Module{Name: "shop"}}}, {dir: "/src/broken"}})
	look := func(want ...string) {
		t.Helper()
		f.scaled = nil
		if err := i.look(t.Context(), f.url); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range f.scaled {
			got = append(got, s.GetModule()+"="+string(rune('0'+s.GetReplicas())))
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("scaled %v, want %v", got, want)
		}
	}
	look("old=0", "elsewhere=0")
	if text := screen.String(); !strings.Contains(text, "module old is of an earlier start, and nobody serves it: scaled to 0 until somebody does") || strings.Contains(text, "shop") {
		t.Errorf("screen %q", text)
	}
	elsewhere.Runners, killed.Runners = []*carillonv1.Runner{{}}, []*carillonv1.Runner{{}}
	look("elsewhere=2")
	if text := screen.String(); !strings.Contains(text, "module elsewhere has a runner elsewhere: scaled to 2 again") {
		t.Errorf("screen %q", text)
	}
	old.Replicas = 1 // by somebody who knows better
	f.live = append(f.live, deployed("new", 1))
	look()
}

// ours is a database that no other dev looks after.
type ours struct{}

func (ours) Private() bool { return true }
func (ours) PID() int      { return 0 }

func TestNothingOfAnEarlierStartFailsAtTheNext(t *testing.T) {
	db := storetest.Open(t, "UTC")
	db.Deploy(20, db.Now().Add(-time.Minute))
	d, screen := devOf(t)
	var err error
	if d.self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	if d.addrs, err = planPorts("127.0.0.1:0", 1); err != nil {
		t.Fatal(err)
	}
	d.url, d.began = db.URL, time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- d.serve(ctx, ours{}, nil) }()
	cl, err := d.client(d.urls()[0])
	if err != nil {
		t.Fatal(err)
	}
	// Alone the controller has all shards, and looks at them before it is ready for long: what it could start, it has.
	ready := 0
	for ; ready < 40 && ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
		if resp, err := cl.cluster.GetHealth(ctx, &carillonv1.GetHealthRequest{}); err == nil && len(resp.GetChecks()) > 0 {
			ready++
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var runs, enabled int
	db.Scan("SELECT (SELECT count(*) FROM carillon.runs), (SELECT count(*) FROM carillon.cron_jobs WHERE enabled)", nil, &runs, &enabled)
	if ready < 40 || runs > 0 || enabled > 0 || strings.Count(screen.String(), "module m is of an earlier start") != 1 {
		t.Errorf("ready %d times, %d runs, %d enabled; screen %q", ready, runs, enabled, screen)
	}
}
