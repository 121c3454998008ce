// Package deploy turns what people and runners ask for into rows: a schema into cron jobs, a scale, a pause, a resume.
// The deciding is in plan.go and pure; what is here waits and writes. It must never know SQL, and holds no state: any
// controller may do any of it, and the module's row lock orders them. When a write fails, nothing has changed.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/schema"
)

// Store is what deploying needs of the database.
type Store interface {
	PutDeployment(context.Context, deployment.Deployment) (deployment.Deployment, error)
	GetModule(ctx context.Context, module string) (deployment.Module, error)
	UpdateModule(ctx context.Context, module string, deploymentID int64, decide func(deployment.Module) (deployment.Update, error)) (deployment.Module, error)
	ListRunners(context.Context) ([]deployment.Runner, error)
}

// Config of an Engine.
type Config struct {
	Store Store
	// Changed is told of every module whose rows were written, after the commit. It makes the cluster look.
	Changed func(ctx context.Context, module string)
	// Reachable says that this controller reaches a runner: one that nobody reaches is no reason to switch. Nil: all are.
	Reachable func(runner string) bool
	Now       func() time.Time // estimate of the database's clock
	Wait      time.Duration    // for the first runner of a new deployment; 30 s unless set
	Logger    *slog.Logger
}

// Engine is safe for concurrent use.
type Engine struct{ c Config }

// New fills the defaults.
func New(c Config) *Engine {
	if c.Wait == 0 {
		c.Wait = 30 * time.Second
	}
	if c.Reachable == nil {
		c.Reachable = func(string) bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Engine{c}
}

// Result of a deploy or its plan.
type Result struct {
	Deployment string // key
	Replaced   string // key of the one that was live before
	Changes    []Change
	Unchanged  bool // it was live already
}

// Plan says what Deploy would change, and changes nothing. ErrInvalid carries all faults of the schema.
func (e *Engine) Plan(ctx context.Context, s schema.Module, digest string) (Result, error) {
	m, err := e.look(ctx, s)
	if err != nil {
		return Result{}, err
	}
	_, changes, err := plan(m, s)
	return Result{Deployment: deployment.Key(s.Name, digest), Replaced: liveKey(m), Changes: changes, Unchanged: serves(m, digest)}, err
}

// Deploy makes a schema the live one of its module. Where the old deployment has live runners it waits for the new
// one's first, unless now is set: ErrTimedOut, and nothing has changed. What is live already is a no-op.
func (e *Engine) Deploy(ctx context.Context, s schema.Module, digest string, now bool) (Result, error) {
	m, err := e.look(ctx, s)
	if err != nil {
		return Result{}, err
	}
	key := deployment.Key(s.Name, digest)
	if serves(m, digest) {
		return Result{Deployment: key, Replaced: key, Unchanged: true}, nil
	}
	if err := e.awaitRunner(ctx, key, s, m, now); err != nil {
		return Result{Deployment: key}, err
	}
	d, err := e.put(ctx, s, digest)
	if err != nil {
		return Result{Deployment: key}, err
	}
	// Judged again under the module's lock: another may have deployed the same meanwhile.
	r, _, err := e.activate(ctx, d, s, func(m deployment.Module) bool { return !serves(m, digest) })
	return r, err
}

// Register makes the deployment of a runner that starts known, and with deploy makes it live if it never was: a
// superseded deployment stays superseded, and a module that was killed stays killed: only Deploy brings them back.
func (e *Engine) Register(ctx context.Context, s schema.Module, digest string, deploy bool) (deployment.Deployment, error) {
	if err := e.validate(s); err != nil {
		return deployment.Deployment{}, err
	}
	d, err := e.put(ctx, s, digest)
	if err != nil || d.Active || !deploy || !d.ActivatedAt.IsZero() {
		return d, err
	}
	// Judged again under the module's lock: two runners of two versions may start at once.
	_, m, err := e.activate(ctx, d, s, func(m deployment.Module) bool { return m.Live == nil || m.Live.ID < d.ID && m.Live.MinReplicas > 0 })
	d.Active = err == nil && m.Live != nil && m.Live.ID == d.ID
	return d, err
}

// Scale sets the number of runners wanted. At 0 nothing of the module is started any more once Scale returns.
func (e *Engine) Scale(ctx context.Context, module string, replicas int) (deployment.Deployment, error) {
	m, err := e.update(ctx, module, func(m deployment.Module) (deployment.Update, error) { return scale(m, replicas) })
	if err != nil || m.Live == nil {
		return deployment.Deployment{}, err
	}
	return *m.Live, nil
}

// Pause stops the starts of one cron job; its run in flight goes on.
func (e *Engine) Pause(ctx context.Context, ref, reason string) error {
	module, err := moduleOf(ref)
	if err != nil {
		return err
	}
	_, err = e.update(ctx, module, func(m deployment.Module) (deployment.Update, error) { return pause(m, ref, reason) })
	return err
}

// Resume ends a pause, at the first slot after now; note says in the ledger why it was paused.
func (e *Engine) Resume(ctx context.Context, ref, note string) error {
	module, err := moduleOf(ref)
	if err != nil {
		return err
	}
	_, err = e.update(ctx, module, func(m deployment.Module) (deployment.Update, error) { return resume(m, ref, note) })
	return err
}

// look reads what stands there about the module of a valid schema.
func (e *Engine) look(ctx context.Context, s schema.Module) (deployment.Module, error) {
	if err := e.validate(s); err != nil {
		return deployment.Module{}, err
	}
	m, err := e.c.Store.GetModule(ctx, s.Name)
	if errors.Is(err, cron.ErrNotFound) {
		return deployment.Module{Name: s.Name, Now: e.c.Now()}, nil
	}
	return m, err
}

// serves says that a digest is live and all of it on the clock: killed, or with a cron job set aside, it is deployed
// anew.
func serves(m deployment.Module, digest string) bool {
	aside := func(j cron.Job) bool { return !j.SetAsideAt.IsZero() && j.RemovedAt.IsZero() }
	return m.Live != nil && m.Live.Digest == digest && m.Live.MinReplicas > 0 && !slices.ContainsFunc(m.Jobs, aside)
}

func liveKey(m deployment.Module) string {
	if m.Live == nil {
		return ""
	}
	return m.Live.Key
}

func (e *Engine) put(ctx context.Context, s schema.Module, digest string) (deployment.Deployment, error) {
	return e.c.Store.PutDeployment(ctx, deployment.Deployment{
		Key: deployment.Key(s.Name, digest), Module: s.Name, Language: language(s), Digest: digest, Schema: s.Text(),
	})
}

// activate makes a deployment the live one of its module, unless that is not allowed any more once the module is
// locked; then nothing changes. It returns the module as it then stands.
func (e *Engine) activate(ctx context.Context, d deployment.Deployment, s schema.Module, allowed func(deployment.Module) bool) (Result, deployment.Module, error) {
	r := Result{Deployment: d.Key}
	m, err := e.c.Store.UpdateModule(ctx, d.Module, d.ID, func(m deployment.Module) (deployment.Update, error) {
		r.Replaced, r.Changes = liveKey(m), nil
		if r.Unchanged = !allowed(m); r.Unchanged {
			return deployment.Update{}, nil
		}
		u, changes, err := plan(m, s)
		r.Changes = changes
		return u, err
	})
	if err != nil || r.Unchanged {
		return r, m, err
	}
	e.c.Logger.InfoContext(ctx, "deployment activated", "deployment", d.Key, "replaced", r.Replaced, "cron_jobs", len(r.Changes))
	e.c.Changed(ctx, d.Module)
	return r, m, nil
}

// awaitRunner waits until the switch can go without a gap: the old deployment's runners serve until the new one's
// first is there. A language that we cannot build needs its runner first in any case.
func (e *Engine) awaitRunner(ctx context.Context, key string, s schema.Module, m deployment.Module, now bool) error {
	late := fmt.Errorf("%w: no runner of %s came within %s, %s stays live; start one (carillon run), or deploy with --now", cron.ErrTimedOut, key, e.c.Wait, liveKey(m))
	ctx, cancel := context.WithTimeoutCause(ctx, e.c.Wait, late)
	defer cancel()
	for {
		runners, err := e.c.Store.ListRunners(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		fresh, known, old := 0, 0, 0
		for _, r := range runners {
			switch r.Deployment {
			case key:
				if e.c.Reachable(r.Key) {
					fresh++
				}
				known++
			case liveKey(m):
				old++
			}
		}
		switch {
		case fresh > 0:
			return nil
		case language(s) != schema.Go && known == 0:
			return fmt.Errorf("%w: no runner of %s is registered; start one, then deploy the %s module", cron.ErrPrecond, key, s.Language)
		case now || old == 0 && known == 0:
			return nil
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// language of a schema; one that names none is Go's.
func language(s schema.Module) string {
	if s.Language == "" {
		return schema.Go
	}
	return s.Language
}

func (e *Engine) update(ctx context.Context, module string, decide func(deployment.Module) (deployment.Update, error)) (deployment.Module, error) {
	m, err := e.c.Store.UpdateModule(ctx, module, 0, decide)
	if err != nil {
		return m, err
	}
	e.c.Changed(ctx, module)
	return m, nil
}

func moduleOf(ref string) (string, error) {
	module, _, ok := cron.ParseRef(ref)
	if !ok {
		return "", fmt.Errorf("%w: %.60q is no module.verb", cron.ErrInvalid, ref)
	}
	return module, nil
}
