// Package controller is the house: it builds the parts of one controller from its Config, joins them, starts them,
// drains them and stops them. It is the only place that names both an engine and the store; the parts know each other
// by the few methods that each declares. Nothing is decided here.
//
// On failure: a part that ends unasked ends the controller, which then drains; an outage of the database ends nothing.
package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"carillon/backend/core/cron"
	"carillon/backend/core/ring"
	"carillon/backend/engine/cluster"
	"carillon/backend/engine/deploy"
	"carillon/backend/engine/dispatch"
	"carillon/backend/engine/queue"
	"carillon/backend/engine/scheduler"
	"carillon/backend/engine/sweep"
	"carillon/backend/engine/trigger"
	"carillon/backend/store"
	carillonv1 "carillon/proto/carillon/v1"
)

// house holds the parts of one controller.
type house struct {
	cfg      Config
	key      string
	endpoint string
	log      *slog.Logger
	metrics  *metrics
	peers    *peers

	store     named
	cluster   *cluster.Cluster
	scheduler *scheduler.Scheduler
	dispatch  *dispatch.Dispatcher
	sweep     *sweep.Sweeper
	deploy    *deploy.Engine
	queue     *queue.Queue
	triggers  *trigger.Triggers
	catalog   *catalog
	upkeep    upkeep

	draining atomic.Bool
	look     chan struct{} // the list of runners is to be read now
}

// Run runs one controller until ctx ends; then it drains, and returns nil when every end is written. It serves on
// Config.Listen from its start, and is ready (see /readyz) when it is in the ring and its rows are loaded.
func Run(ctx context.Context, c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	stopTraces, err := startTraces(ctx, c.Version)
	if err != nil {
		return err
	}
	defer stopTraces()
	listener, endpoint, err := listen(c)
	if err != nil {
		return err
	}
	defer listener.Close()
	key := newKey(listener.Addr())
	log := c.Logger.With("controller", key)
	db, err := openStore(ctx, c, key, log)
	if err != nil {
		return err
	}
	defer db.Close()
	h := &house{
		cfg: c, key: key, endpoint: endpoint, log: log, metrics: newMetrics(), peers: newPeers(c.ClusterToken),
		store: named{db, key, c.Timing}, look: make(chan struct{}, 1),
	}
	if err := h.build(); err != nil {
		return err
	}
	return h.run(ctx, listener)
}

// newKey names a process: its port for people, and chance to make it unique.
func newKey(a net.Addr) string {
	var b [4]byte
	rand.Read(b[:])
	_, port, _ := net.SplitHostPort(a.String())
	return "ctl-" + port + "-" + hex.EncodeToString(b[:])
}

const connectPatience = 30 * time.Second

// openStore connects to a database of exactly this binary's schema and shard count; one that is starting is waited for.
func openStore(ctx context.Context, c Config, key string, log *slog.Logger) (*store.Store, error) {
	deadline := time.Now().Add(connectPatience)
	for {
		db, err := store.Open(ctx, store.Config{URL: c.DatabaseURL, Application: key, Logger: log})
		if err == nil {
			err = store.CheckSchema(ctx, c.DatabaseURL)
			if err == nil {
				err = db.CheckShardCount(ctx, ring.Shards)
			}
			if err == nil {
				return db, nil
			}
			db.Close()
		}
		if !errors.Is(err, cron.ErrUnavailable) || time.Now().After(deadline) || ctx.Err() != nil {
			return nil, err
		}
		log.WarnContext(ctx, "database not reachable yet", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// build joins the parts. Each gets what it declared, from the others or from the store.
func (h *house) build() (err error) {
	t, kept := h.cfg.Timing, noted{h.store, &h.upkeep}
	host, _ := os.Hostname()
	h.cluster, err = cluster.New(cluster.Config{
		Key: h.key, Endpoint: h.endpoint, Version: h.cfg.Version, Host: host, PID: os.Getpid(),
		Beat: t.Beat, Silence: t.Silence, Fence: t.Fence, Lease: t.Lease, Grace: t.Grace, Skew: h.cfg.Skew,
		OnRing: h.onRing, OnFence: h.onFence, OnHeal: h.onHeal, Logger: h.log,
	}, beats{h.store}, h.peers)
	if err != nil {
		return err
	}
	h.dispatch = dispatch.New(dispatch.Config{
		Controller: h.key, Token: h.cfg.ClusterToken, Log: h.log,
		OnRoom: func() { h.queue.Roomier() }, OnProgress: func(run cron.RunID, text string) { h.queue.Progress(run, text) },
	})
	h.catalog = newCatalog(h.dispatch)
	h.scheduler = scheduler.New(scheduler.Config{
		Store: h.store, Lists: kept, Caller: caller{h.dispatch}, Clock: h.cluster.Clock(),
		Cancel:     func(reason string) { h.dispatch.CancelAll(reason) },
		StealDelay: t.StealDelay, Reset: t.Reset, Grace: t.Grace, MaxInFlight: h.cfg.MaxInFlight, Logger: h.log,
		OnStart: h.metrics.onStart, OnVerdict: h.metrics.onVerdict, OnFired: h.onFired, Span: ifTraced(span),
	})
	h.sweep, err = sweep.New(sweep.Config{
		Keep: h.cfg.KeepDays, Known: h.scheduler.Known, Overdue: h.scheduler.Overdue, Freed: h.onFreed, Logger: h.log,
	}, kept, kept)
	if err != nil {
		return err
	}
	h.queue = queue.New(queue.Config{
		Store: jobs{h.store}, Lists: notedJobs{jobs{h.store}, &h.upkeep}, Capacity: h.catalog, Caller: jobCaller{h.dispatch}, Clock: h.cluster.Clock(),
		Hints: jobHints{h}, Unswept: func() int { return h.sweep.Stats().Unswept }, MaxInFlight: h.cfg.MaxInFlight, Logger: h.log,
		OnStart: h.metrics.onJobStart, OnEnd: h.metrics.onJobEnd, OnAsked: h.onAsked, Span: ifTraced(jobSpan),
	})
	h.triggers = trigger.New(trigger.Config{Store: kept, Windows: kept, OnMade: h.queue.Arrived, Logger: h.log})
	h.deploy = deploy.New(deploy.Config{Store: h.store, Reachable: h.dispatch.Reachable, Changed: h.onChanged, Now: h.cluster.Clock().Now, Logger: h.log})
	h.observe()
	return nil
}

// run starts all parts, waits for the end of ctx (or of a part), drains, and stops them.
func (h *house) run(ctx context.Context, l net.Listener) error {
	server, err := h.serverOf()
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, broken := errgroup.WithContext(work)
	part := func(name string, run func(context.Context) error) {
		parts.Go(func() error {
			if err := run(work); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	parts.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	part("cluster", h.cluster.Run)
	part("dispatch", h.dispatch.Run)
	part("scheduler", h.scheduler.Run)
	part("sweep", h.sweep.Run)
	part("queue", h.queue.Run)
	part("triggers", h.triggers.Run)
	part("runners", h.followRunners)
	part("jobs", h.tidyJobs)
	part("listener", func(ctx context.Context) error { return h.store.ListenAll(ctx, h.queue.Heard, h.triggers.Heard) })
	h.log.InfoContext(ctx, "controller started", "endpoint", h.endpoint, "pid", os.Getpid(), "version", h.cfg.Version)
	select {
	case <-ctx.Done():
	case <-broken.Done(): // without heartbeats, say: the others may declare its runs lost before a drain is over
		h.onFence()
	}
	drained := h.drain(ctx, server)
	stop()
	err = parts.Wait()
	h.log.InfoContext(ctx, "controller stopped")
	return errors.Join(err, drained)
}

// drain leaves the ring, finishes what is in flight within the grace, writes the ends, and takes the row out. Its
// writes are not cut off by the signal that asked for it.
func (h *house) drain(ctx context.Context, server *http.Server) error {
	ctx = context.WithoutCancel(ctx)
	h.draining.Store(true)
	h.log.InfoContext(ctx, "controller draining", "in_flight", h.scheduler.Stats().InFlight, "jobs_in_flight", h.queue.Stats().InFlight)
	grace, cancel := context.WithTimeout(ctx, h.cfg.Timing.Drain)
	defer cancel()
	if err := h.cluster.Drain(grace); err != nil {
		h.log.WarnContext(ctx, "not marked as draining", "error", err)
	}
	var drains errgroup.Group
	drains.Go(func() error { return h.scheduler.Drain(grace) })
	drains.Go(func() error { return h.queue.Drain(grace) })
	err := drains.Wait()
	last, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err == nil { // otherwise the sweep frees what is left, by this controller's silence
		err = h.cluster.Deregister(last)
	}
	closing, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if server.Shutdown(closing) != nil { // watches do not end by themselves
		server.Close()
	}
	return err
}

// onRing gives the scheduler its shards, and has them read once more two beats later: a controller that deploys while
// others join does not yet know whom to hint, and they listed their shards before its rows were there.
func (h *house) onRing(_, next *ring.Ring) {
	h.scheduler.OnRing(next.First(h.key), next.Second(h.key))
	h.queue.OnRing(next.First(h.key), next.Second(h.key))
	h.triggers.OnRing(next.First(h.key), next.Second(h.key))
	time.AfterFunc(2*h.cfg.Timing.Beat, h.scheduler.Reset)
}

// onFence gives the calls in flight up: the others may soon declare them lost.
func (h *house) onFence() {
	h.scheduler.Fence()
	h.queue.Fence()
	n := h.dispatch.CancelAll("fenced: heartbeats ended")
	h.log.Warn("controller fenced", "cancelled", n)
}

func (h *house) onHeal() {
	h.scheduler.Unfence()
	h.queue.Unfence()
}

// onFreed tries the rows that were freed here at once: slots that came during a lost run are due.
func (h *house) onFreed(runs []cron.Run) {
	ids := make([]int64, len(runs))
	for i, r := range runs {
		ids[i] = r.JobID
	}
	h.scheduler.Overdue(ids)
}

// onChanged makes the cluster look at a module whose rows were written: this controller at once, the others by a hint.
// Until all of them have answered it looks after the rows itself, whatever their shards.
func (h *house) onChanged(ctx context.Context, module string) {
	ctx = context.WithoutCancel(ctx)
	h.lookForRunners()
	modules := []string{module}
	if err := h.scheduler.Adopt(ctx, modules); err != nil {
		h.log.WarnContext(ctx, "changed module not read", "module", module, "error", err)
	}
	if err := h.peers.hint(ctx, h.live(ctx), h.key, &carillonv1.HintRequest{Modules: modules, Runners: true}); err != nil {
		h.log.WarnContext(ctx, "hint not heard by all", "module", module, "error", err)
		return // adopted until the next reset
	}
	h.scheduler.Release(modules)
}

// live is who is in the cluster by the database, which is ahead of this controller's ring while others join.
func (h *house) live(ctx context.Context) []ring.Member {
	members, err := h.store.LiveControllers(ctx)
	if err != nil {
		return h.cluster.Ring().Members()
	}
	return members
}

// Ring, Interrupted, Hint and RunNow are what the face asks of the house.
func (h *house) Ring() *ring.Ring { return h.cluster.Ring() }

func (h *house) Interrupted() (bool, time.Duration) {
	return h.cluster.Interrupted(), h.cluster.Silent()
}

func (h *house) Hint(ctx context.Context, modules []string, cronJobs []int64, runners bool) error {
	if runners {
		h.lookForRunners()
	}
	if err := h.scheduler.Learn(ctx, cronJobs); err != nil {
		return err
	}
	return h.scheduler.Hint(ctx, modules)
}

func (h *house) RunNow(ctx context.Context, ref string) (cron.Job, error) {
	if h.draining.Load() {
		return cron.Job{}, fmt.Errorf("%w: this controller is draining", cron.ErrUnavailable)
	}
	j, _, err := h.store.GetCronJob(ctx, ref)
	if err == nil && j.Fires {
		j, fired, err := h.store.FireManualRun(ctx, h.key, ref, cron.RunID(uuid.Must(uuid.NewV7())))
		if err == nil {
			h.onFired([]cron.Firing{fired})
		}
		return j, err
	}
	if err != nil {
		return j, err
	}
	j, err = h.store.StartManualRun(ctx, h.key, h.cfg.Timing.HardGrace, ref, cron.RunID(uuid.Must(uuid.NewV7())))
	if err != nil {
		return j, err
	}
	h.scheduler.Started(j)
	return j, nil
}

// caller is the dispatcher as the scheduler wants it.
type caller struct{ *dispatch.Dispatcher }

func (c caller) Call(in scheduler.Call, done func(scheduler.Outcome)) {
	c.Dispatch(dispatch.Call{
		Run: in.Run, Ref: in.Ref, Slot: in.Slot, Kind: in.Kind, Attempt: in.Attempt, Timeout: in.Timeout, GiveUp: in.GiveUp,
		Deployment: in.Deployment, IdempotencyKey: in.IdempotencyKey, Traceparent: in.Traceparent,
	}, func(o dispatch.Outcome) { done(scheduler.Outcome{Verdict: o.Verdict, Error: o.Error}) })
}
