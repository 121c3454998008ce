// Package deploy turns what people and runners ask for into rows: a schema into cron jobs, a scale, a pause, a resume.
// The deciding is in plan.go and pure; what is here waits and writes. It must never know SQL, and holds no state: any
// controller may do any of it, and the module's row lock orders them. When a write fails, nothing has changed.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	Now     func() time.Time // estimate of the database's clock
	Wait    time.Duration    // for the first runner of a new deployment; 30 s unless set
	Logger  *slog.Logger
}

// Engine is safe for concurrent use.
type Engine struct{ c Config }

// New fills the defaults.
func New(c Config) *Engine {
	if c.Wait == 0 {
		c.Wait = 30 * time.Second
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
	if err := e.validate(s); err != nil {
		return Result{}, err
	}
	m, err := e.c.Store.GetModule(ctx, s.Name)
	if errors.Is(err, cron.ErrNotFound) {
		m, err = deployment.Module{Name: s.Name, Now: e.c.Now()}, nil
	}
	if err != nil {
		return Result{}, err
	}
	_, changes, err := plan(m, s)
	r := Result{Deployment: deployment.Key(s.Name, digest), Changes: changes}
	if m.Live != nil {
		r.Replaced = m.Live.Key
		r.Unchanged = m.Live.Digest == digest && m.Live.MinReplicas > 0
	}
	return r, err
}

// Deploy makes a schema the live one of its module. Where the old deployment has live runners it waits for the new
// one's first, unless now is set: ErrTimedOut, and nothing has changed. What is live already is a no-op.
func (e *Engine) Deploy(ctx context.Context, s schema.Module, digest string, now bool) (Result, error) {
	d, m, err := e.put(ctx, s, digest)
	if err != nil {
		return Result{}, err
	}
	r := Result{Deployment: d.Key}
	if d.Active && m.Live != nil && m.Live.MinReplicas > 0 {
		r.Replaced, r.Unchanged = d.Key, true
		return r, nil
	}
	if err := e.awaitRunner(ctx, d, m, now); err != nil {
		return r, err
	}
	return e.activate(ctx, d, s, func(deployment.Module) bool { return true })
}

// Register makes the deployment of a runner that starts known, and with deploy makes it live if it never was: a
// superseded deployment stays superseded, only Deploy brings it back.
func (e *Engine) Register(ctx context.Context, s schema.Module, digest string, deploy bool) (deployment.Deployment, error) {
	d, _, err := e.put(ctx, s, digest)
	if err != nil || d.Active || !deploy || !d.ActivatedAt.IsZero() {
		return d, err
	}
	// Judged again under the module's lock: two runners of two versions may start at once.
	_, err = e.activate(ctx, d, s, func(m deployment.Module) bool { return m.Live == nil || m.Live.ID < d.ID })
	if err != nil {
		return d, err
	}
	m, err := e.c.Store.GetModule(ctx, s.Name)
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

func (e *Engine) validate(s schema.Module) error {
	if faults := schema.Validate(s, e.c.Now()); len(faults) > 0 {
		return fmt.Errorf("%w: %w", cron.ErrInvalid, faults)
	}
	return nil
}

func (e *Engine) put(ctx context.Context, s schema.Module, digest string) (deployment.Deployment, deployment.Module, error) {
	if err := e.validate(s); err != nil {
		return deployment.Deployment{}, deployment.Module{}, err
	}
	d, err := e.c.Store.PutDeployment(ctx, deployment.Deployment{
		Key: deployment.Key(s.Name, digest), Module: s.Name, Language: s.Language, Digest: digest, Schema: s.Text(),
	})
	if err != nil {
		return d, deployment.Module{}, err
	}
	m, err := e.c.Store.GetModule(ctx, s.Name)
	return d, m, err
}

func (e *Engine) activate(ctx context.Context, d deployment.Deployment, s schema.Module, allowed func(deployment.Module) bool) (Result, error) {
	r := Result{Deployment: d.Key}
	_, err := e.c.Store.UpdateModule(ctx, d.Module, d.ID, func(m deployment.Module) (deployment.Update, error) {
		r.Replaced = ""
		if m.Live != nil {
			r.Replaced = m.Live.Key
		}
		if !allowed(m) {
			return deployment.Update{}, nil
		}
		u, changes, err := plan(m, s)
		r.Changes = changes
		return u, err
	})
	if err != nil {
		return r, err
	}
	e.c.Logger.InfoContext(ctx, "deployment activated", "deployment", d.Key, "replaced", r.Replaced, "cron_jobs", len(r.Changes))
	e.c.Changed(ctx, d.Module)
	return r, nil
}

// awaitRunner waits until the switch can go without a gap: the old deployment's runners serve until the new one's
// first is there. A language that we cannot build needs its runner first in any case.
func (e *Engine) awaitRunner(ctx context.Context, d deployment.Deployment, m deployment.Module, now bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.c.Wait, cron.ErrTimedOut)
	defer cancel()
	for {
		runners, err := e.c.Store.ListRunners(ctx)
		if err != nil {
			return err
		}
		fresh, old := 0, 0
		for _, r := range runners {
			switch {
			case r.Deployment == d.Key:
				fresh++
			case m.Live != nil && r.Deployment == m.Live.Key:
				old++
			}
		}
		switch {
		case fresh > 0:
			return nil
		case d.Language != schema.Go:
			return fmt.Errorf("%w: no runner of %s is registered; start one, then deploy the %s module", cron.ErrPrecond, d.Key, d.Language)
		case now || old == 0:
			return nil
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), cron.ErrTimedOut) {
				return fmt.Errorf("%w: no runner of %s came within %s, %s stays live; start one (carillon run), or deploy with --now", cron.ErrTimedOut, d.Key, e.c.Wait, m.Live.Key)
			}
			return ctx.Err()
		}
	}
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
	module, verb, ok := strings.Cut(ref, ".")
	if !ok || module == "" || verb == "" {
		return "", fmt.Errorf("%w: %q is no ref; write module.verb", cron.ErrInvalid, ref)
	}
	return module, nil
}
