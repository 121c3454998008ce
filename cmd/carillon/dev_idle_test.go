package main

import (
	"strings"
	"testing"

	"carillon/backend/core/schema"
	"carillon/backend/module"
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
