package main

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"carillon/backend/controller"
	carillonv1 "carillon/proto/carillon/v1"
)

// idler scales the modules to 0 that an earlier dev deployed on the same data and this one does not serve: without a
// runner all that they start would fail. A module that is served again is deployed again, which scales it up.
type idler struct {
	dev    *dev
	served map[string]bool
	old    map[string]bool  // the modules that were there at the first look at a controller, and are not served; nil before it
	idled  map[string]int32 // what they wanted before they were scaled to 0 here
}

// idleFor is how long an idler looks: runners that were killed are forgotten by then, and one that somebody runs in
// another terminal has told its new controllers that it is there.
const idleFor = 20 * time.Second

func (d *dev) idler(modules []*devModule) *idler {
	i := &idler{dev: d, served: map[string]bool{}, idled: map[string]int32{}}
	for _, m := range modules {
		i.served[filepath.Base(m.dir)] = true // of a source that cannot be read, for want of better
		i.served[m.src.Module.Name] = true
	}
	return i
}

// before scales down who has no runner while no controller runs that would start something of it.
func (i *idler) before(ctx context.Context) error {
	idled, err := controller.Idle(ctx, i.dev.url, func(module string) bool { return i.served[module] })
	for _, name := range slices.Sorted(maps.Keys(idled)) {
		i.note(name, int32(idled[name]))
	}
	return err
}

// note says that a module was scaled to 0, and keeps what it wanted before.
func (i *idler) note(name string, wanted int32) {
	i.idled[name] = wanted
	i.dev.screen.event(yellow, "module %s is of an earlier start, and nobody serves it: scaled to 0 until somebody does (carillon dev DIR, carillon run DIR)", name)
}

// run looks at the controllers for those whose runners were still known before, and for runners that come.
func (i *idler) run(ctx context.Context) {
	pause := 20 * time.Millisecond
	for end := time.Now().Add(idleFor); ctx.Err() == nil && time.Now().Before(end); sleep(ctx, pause) {
		for _, url := range i.dev.urls() {
			if i.look(ctx, url) == nil {
				pause = time.Second
				break
			}
		}
	}
}

// look scales down who has no runner, and up again who turns out to have one.
func (i *idler) look(ctx context.Context, url string) error {
	cl, err := i.dev.client(url)
	if err != nil {
		return err
	}
	resp, err := cl.deploy.ListDeployments(ctx, &carillonv1.ListDeploymentsRequest{})
	if err != nil {
		return err
	}
	first := i.old == nil
	if first {
		i.old = map[string]bool{}
	}
	for _, d := range resp.GetDeployments() {
		name := d.GetModule()
		if first && d.GetActive() && !i.served[name] {
			i.old[name] = true
		}
		if !i.old[name] || !d.GetActive() {
			continue
		}
		wanted, idled := i.idled[name]
		switch {
		case len(d.GetRunners()) == 0 && d.GetReplicas() > 0 && !idled:
			if _, err := cl.deploy.Scale(ctx, &carillonv1.ScaleRequest{Module: name}); err != nil {
				return err
			}
			i.note(name, d.GetReplicas())
		case len(d.GetRunners()) > 0 && d.GetReplicas() == 0 && idled:
			if _, err := cl.deploy.Scale(ctx, &carillonv1.ScaleRequest{Module: name, Replicas: wanted}); err != nil {
				return err
			}
			delete(i.idled, name)
			i.dev.screen.event(green, "module %s has a runner elsewhere: scaled to %d again", name, wanted)
		}
	}
	return nil
}
