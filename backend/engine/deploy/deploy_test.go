package deploy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/schema"
)

// books is one module's rows in memory.
type books struct {
	deployments []deployment.Deployment
	live        int // index + 1
	jobs        []cron.Job
	mu          sync.Mutex // of runners, that come and go by timers
	runners     []deployment.Runner
	writes      int
	before      func() // called as UpdateModule has the lock
	slow        bool   // ListRunners answers only when its context ends
}

func (b *books) PutDeployment(_ context.Context, d deployment.Deployment) (deployment.Deployment, error) {
	for i, old := range b.deployments {
		if old.Digest == d.Digest {
			old.Active = b.live == i+1
			return old, nil
		}
	}
	b.writes++
	d.ID, d.MinReplicas = int64(len(b.deployments)+1), 1
	b.deployments = append(b.deployments, d)
	return d, nil
}

func (b *books) GetModule(_ context.Context, module string) (deployment.Module, error) {
	if len(b.deployments) == 0 {
		return deployment.Module{}, cron.ErrNotFound
	}
	m := deployment.Module{Name: module, Now: time.Now().UTC(), Jobs: b.jobs}
	if b.live > 0 {
		d := b.deployments[b.live-1]
		m.Live = &d
	}
	return m, nil
}

func (b *books) UpdateModule(ctx context.Context, module string, id int64, decide func(deployment.Module) (deployment.Update, error)) (deployment.Module, error) {
	if b.before != nil {
		f := b.before
		b.before = nil
		f()
	}
	m, err := b.GetModule(ctx, module)
	if err != nil {
		return m, err
	}
	u, err := decide(m)
	if err != nil {
		return m, err
	}
	if u.Activate {
		b.writes++
		b.live = int(id)
		b.deployments[id-1].ActivatedAt = time.Now()
	}
	if u.MinReplicas != nil {
		b.writes++
		b.deployments[b.live-1].MinReplicas = *u.MinReplicas
	}
	for _, j := range u.Jobs {
		b.writes++
		if j.Job.ID == 0 {
			j.Job.ID = int64(len(b.jobs) + 1)
			b.jobs = append(b.jobs, j.Job)
			continue
		}
		b.jobs[j.Job.ID-1] = j.Job
	}
	return b.GetModule(ctx, module)
}

func (b *books) ListRunners(ctx context.Context) ([]deployment.Runner, error) {
	if b.slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.runners), nil
}

func (b *books) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runners = nil
}

func (b *books) runner(digest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runners = append(b.runners, deployment.Runner{Key: "r" + digest, Deployment: deployment.Key("m", digest)})
}

const one, two = "1111111111111111", "2222222222222222"

func engine(b *books) (*Engine, *[]string) {
	var changed []string
	return New(Config{
		Store: b, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Changed: func(_ context.Context, module string) { changed = append(changed, module) },
	}), &changed
}

// deployed is an engine whose module m runs digest one, every minute, with a runner.
func deployed(t *testing.T) (*Engine, *books, *[]string) {
	t.Helper()
	b := &books{}
	e, changed := engine(b)
	if r, err := e.Deploy(t.Context(), beats(minutely), one, false); err != nil || r.Unchanged || r.Replaced != "" || len(r.Changes) != 1 {
		t.Fatalf("first deploy: %+v, %v", r, err)
	}
	b.runner(one)
	b.writes, *changed = 0, nil
	return e, b, changed
}

func TestDeployWaitsForTheFirstRunner(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*books)
		now     bool
		took    time.Duration
		err     error
	}{
		"it never comes":        {func(*books) {}, false, 30 * time.Second, cron.ErrTimedOut},
		"the database is slow":  {func(b *books) { b.slow = true }, false, 30 * time.Second, cron.ErrTimedOut},
		"told not to wait":      {func(*books) {}, true, 0, nil},
		"it is there":           {func(b *books) { b.runner(two) }, false, 0, nil},
		"it comes":              {func(b *books) { time.AfterFunc(4900*time.Millisecond, func() { b.runner(two) }) }, false, 5 * time.Second, nil},
		"nobody runs the old":   {func(b *books) { b.leave() }, false, 0, nil},
		"the old one goes away": {func(b *books) { time.AfterFunc(900*time.Millisecond, b.leave) }, false, time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, b, changed := deployed(t)
				c.prepare(b)
				start := time.Now()
				r, err := e.Deploy(t.Context(), beats(hourly), two, c.now)
				if took := time.Since(start); !errors.Is(err, c.err) || took != c.took {
					t.Fatalf("after %s: %v; want %s, %v", took, err, c.took, c.err)
				}
				if c.err != nil {
					if b.writes != 0 || len(*changed) != 0 || b.live != 1 || !strings.Contains(err.Error(), "--now") {
						t.Errorf("%d writes, changed %v, live %d, %v", b.writes, *changed, b.live, err)
					}
					return
				}
				if r.Replaced != "m-111111111111" || b.live != 2 || len(*changed) != 1 || b.jobs[0].ID != 1 || b.jobs[0].Schedule != hourly {
					t.Errorf("%+v, live %d, changed %v, %+v", r, b.live, *changed, b.jobs)
				}
			})
		})
	}
}

func TestDeployEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, b, _ := deployed(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := e.Deploy(ctx, beats(hourly), two, false); !errors.Is(err, context.DeadlineExceeded) || b.writes != 0 {
			t.Errorf("%v, %d writes", err, b.writes)
		}
	})
}

func TestSameDigestChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, b, changed := deployed(t)
		if p, err := e.Plan(t.Context(), beats(minutely), one); err != nil || !p.Unchanged || p.Replaced != p.Deployment {
			t.Errorf("plan %+v, %v", p, err)
		}
		r, err := e.Deploy(t.Context(), beats(minutely), one, false)
		if err != nil || !r.Unchanged || b.writes != 0 || len(*changed) != 0 {
			t.Errorf("%+v, %v, %d writes, changed %v", r, err, b.writes, *changed)
		}
		// Killed, the same digest is deployed anew.
		if d, err := e.Scale(t.Context(), "m", 0); err != nil || d.MinReplicas != 0 || b.jobs[0].Enabled {
			t.Fatalf("killed %+v, %v, %+v", d, err, b.jobs)
		}
		<-time.After(10 * time.Minute)
		r, err = e.Deploy(t.Context(), beats(minutely), one, false)
		if err != nil || r.Unchanged || !b.jobs[0].Enabled || b.deployments[0].MinReplicas != 1 || !b.jobs[0].Next.After(time.Now()) {
			t.Errorf("after the kill: %+v, %v, %+v", r, err, b.jobs)
		}
	})
}

func TestDeployOfTheSameByTwoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, b, changed := deployed(t)
		b.before = func() { // another controller is faster to the lock
			if _, err := e.Deploy(t.Context(), beats(hourly), two, true); err != nil {
				t.Error(err)
			}
			b.writes = 0
		}
		r, err := e.Deploy(t.Context(), beats(hourly), two, true)
		if err != nil || !r.Unchanged || b.writes != 0 || len(*changed) != 1 {
			t.Errorf("%+v, %v, %d writes, changed %v", r, err, b.writes, *changed)
		}
	})
}

func TestKotlinNeedsItsRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{}
		e, _ := engine(b)
		s := beats(minutely)
		s.Language = schema.Kotlin
		if _, err := e.Deploy(t.Context(), s, one, true); !errors.Is(err, cron.ErrPrecond) || b.writes != 0 {
			t.Fatalf("%v, %d writes", err, b.writes)
		}
		if d, err := e.Register(t.Context(), s, one, false); err != nil || d.Active || d.Language != schema.Kotlin {
			t.Fatalf("registered %+v, %v", d, err)
		}
		b.runner(one)
		if r, err := e.Deploy(t.Context(), s, one, false); err != nil || b.live != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestSelfDeployNeverBringsASupersededBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, b, changed := deployed(t)
		if d, err := e.Register(t.Context(), beats(hourly), two, false); err != nil || d.Active || b.live != 1 || len(*changed) != 0 {
			t.Fatalf("without deploy: %+v, %v, live %d", d, err, b.live)
		}
		if d, err := e.Register(t.Context(), beats(hourly), two, true); err != nil || !d.Active || b.live != 2 || len(*changed) != 1 {
			t.Fatalf("the new one: %+v, %v, live %d", d, err, b.live)
		}
		if d, err := e.Register(t.Context(), beats(minutely), one, true); err != nil || d.Active || b.live != 2 {
			t.Errorf("the superseded one: %+v, %v, live %d", d, err, b.live)
		}
		if _, err := e.Deploy(t.Context(), beats(minutely), one, true); err != nil || b.live != 1 {
			t.Errorf("deploy brings it back: %v, live %d", err, b.live)
		}
		if d, err := e.Register(t.Context(), beats(hourly), two, true); err != nil || d.Active || b.live != 1 {
			t.Errorf("the one that was rolled back: %+v, %v, live %d", d, err, b.live)
		}
		// Killed by a person, a runner's restart does not wake it.
		if _, err := e.Scale(t.Context(), "m", 0); err != nil {
			t.Fatal(err)
		}
		if d, err := e.Register(t.Context(), beats(minutely), one, true); err != nil || !d.Active || b.deployments[0].MinReplicas != 0 || b.jobs[0].Enabled {
			t.Errorf("the killed one: %+v, %v, %+v", d, err, b.jobs)
		}
	})
}

func TestTwoVersionsStartAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &books{}
		e, changed := engine(b)
		older, err := e.Register(t.Context(), beats(minutely), one, false)
		if err != nil || older.Active {
			t.Fatalf("%+v, %v", older, err)
		}
		b.before = func() { // the newer one's runner is faster to the lock
			if d, err := e.Register(t.Context(), beats(hourly), two, true); err != nil || !d.Active {
				t.Errorf("the newer: %+v, %v", d, err)
			}
		}
		if d, err := e.Register(t.Context(), beats(minutely), one, true); err != nil || d.Active || b.live != 2 || len(*changed) != 1 {
			t.Errorf("the older: %+v, %v, live %d, changed %v", d, err, b.live, *changed)
		}
	})
}

func TestBadSchemaWritesNothing(t *testing.T) {
	b := &books{}
	e, _ := engine(b)
	s := beats("0 0 31 2 *")
	s.Verbs = append(s.Verbs, schema.Verb{Name: "late", Cron: &schema.Cron{Schedule: minutely, TimeZone: "Mars/Olympus", Timeout: time.Millisecond}},
		schema.Verb{Name: "more", Timeout: time.Millisecond, Retry: &schema.Retry{Attempts: 5000}, Concurrency: -1, Unique: &schema.Unique{Window: -time.Second}})
	s.Data[0].Fields[0].Type = "Strong"
	for what, err := range map[string]error{
		"plan":     func() error { _, err := e.Plan(t.Context(), s, one); return err }(),
		"deploy":   func() error { _, err := e.Deploy(t.Context(), s, one, true); return err }(),
		"register": func() error { _, err := e.Register(t.Context(), s, one, true); return err }(),
	} {
		faults := schema.Errors(nil)
		if !errors.Is(err, cron.ErrInvalid) || !errors.As(err, &faults) || len(faults) != 8 {
			t.Fatalf("%s: %v", what, err)
		}
		var at []string
		for _, f := range faults {
			at = append(at, f.Position.String())
		}
		if got, want := strings.Join(at, " "), "schema.data[0].fields[0].type schema.verbs[0].cron.schedule schema.verbs[2].cron.time_zone schema.verbs[2].cron.timeout "+
			"schema.verbs[3].concurrency schema.verbs[3].retry schema.verbs[3].timeout schema.verbs[3].unique"; got != want {
			t.Errorf("%s: fields %s, want %s", what, got, want)
		}
	}
	if b.writes != 0 {
		t.Errorf("%d writes", b.writes)
	}
	for _, ref := range []string{"", "m", ".x", "m."} {
		if err := e.Pause(t.Context(), ref, ""); !errors.Is(err, cron.ErrInvalid) {
			t.Errorf("pause %q: %v", ref, err)
		}
	}
}
