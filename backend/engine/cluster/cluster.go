// Package cluster keeps one controller in the cluster: it heartbeats, turns the live members into a ring, estimates the
// database's clock from the same heartbeats, and says when the controller must give up its calls because the others may
// soon declare its runs lost.
//
// It must never know cron jobs, shards' contents or SQL. When the database does not answer, everything stays as it was
// last known: a failed heartbeat never changes the ring. After Fence of silence the other members are asked whether they
// are cut off as well; only if all of them are does the controller keep its calls.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"carillon/backend/core/ring"
)

// ErrSuperseded ends Run when another process has registered with this controller's endpoint: two of them cannot be
// reached there, and the later one is meant.
var ErrSuperseded = errors.New("another controller has registered with this endpoint")

// Store is what the cluster asks of the database, in the name of this controller. Every method must end when its
// context does.
type Store interface {
	// Register writes the controller's row, live, and supersedes others of the same endpoint.
	Register(ctx context.Context, c ring.Controller) error
	// Beat renews the heartbeat and reads the members. Without a row it writes nothing, and the state is ring.Absent.
	Beat(ctx context.Context) (ring.Beat, error)
	SetState(ctx context.Context, s ring.State) error
	// Deregister deletes the row; it is no error if there is none.
	Deregister(ctx context.Context) error
}

// Peers asks other controllers.
type Peers interface {
	// Interrupted is what Cluster.Interrupted says at the controller of this endpoint.
	Interrupted(ctx context.Context, endpoint string) (bool, error)
}

// Cluster is safe for concurrent use. Run must be called once.
type Cluster struct {
	cfg   Config
	store Store
	peers Peers

	ring     atomic.Pointer[ring.Ring]
	clock    atomic.Pointer[reading]
	lastGood atomic.Pointer[time.Time]
	joined   chan struct{} // closed with the first ring
	poke     chan struct{} // asks for a beat at once

	draining atomic.Bool
	// leaving guards that a row, once deleted by Deregister, is not registered again by a beat under way.
	leaving sync.Mutex
	left    bool

	counting sync.Mutex
	stats    Stats
}

// New checks the Config. Nothing happens before Run.
func New(cfg Config, store Store, peers Peers) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Cluster{cfg: cfg, store: store, peers: peers, joined: make(chan struct{}), poke: make(chan struct{}, 1)}, nil
}

// Run registers the controller and heartbeats until ctx ends or Deregister was called, then returns nil. It returns
// ErrSuperseded when another process took the endpoint; the database being away is no reason to return.
func (c *Cluster) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	members := make(chan []ring.Member, 1)
	var followers sync.WaitGroup
	followers.Go(func() { c.follow(ctx, members) })
	err := c.watch(ctx, members)
	cancel()
	followers.Wait()
	return err
}

// Joined is closed when there is a first ring.
func (c *Cluster) Joined() <-chan struct{} { return c.joined }

// Ring is the present ring, nil before the first.
func (c *Cluster) Ring() *ring.Ring { return c.ring.Load() }

// Clock estimates the database's clock, now and later.
func (c *Cluster) Clock() Clock { return Clock{best: &c.clock, local: c.now} }

// LastGood is the local time at which the last good beat was sent; zero before the first.
func (c *Cluster) LastGood() time.Time {
	if t := c.lastGood.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// Silent is how long ago the last good beat was sent; zero before the first.
func (c *Cluster) Silent() time.Duration {
	if t := c.lastGood.Load(); t != nil {
		return c.now().Sub(*t)
	}
	return 0
}

// Interrupted says that this controller has been without a good beat for Silence, or has had none at all. It then
// cannot sweep: its heartbeat in the database is old, and once it beats again it may judge nobody for a whole lease.
// That is why another controller may keep its calls when all others say so.
func (c *Cluster) Interrupted() bool {
	return c.lastGood.Load() == nil || c.Silent() >= c.cfg.Silence
}

// Drain leaves the ring, here and for the others, while heartbeats go on. On an error it is tried again with each
// heartbeat.
func (c *Cluster) Drain(ctx context.Context) error {
	c.draining.Store(true)
	err := c.store.SetState(ctx, ring.Draining)
	select {
	case c.poke <- struct{}{}:
	default: // one is asked for already
	}
	if err != nil {
		return fmt.Errorf("leave the ring: %w", err)
	}
	return nil
}

// Deregister deletes the controller's row and ends Run. It is for a controller that holds no runs any more: those of a
// controller without a row are lost at once.
func (c *Cluster) Deregister(ctx context.Context) error {
	c.leaving.Lock()
	defer c.leaving.Unlock()
	c.left = true
	if err := c.store.Deregister(ctx); err != nil {
		return fmt.Errorf("deregister controller: %w", err)
	}
	return nil
}

// Stats are counts since the start, and the present state.
type Stats struct {
	Beats, FailedBeats int64
	RingChanges        int64
	Fences             int64 // calls given up
	Spared             int64 // silences in which they were not, since everybody was cut off
	Members            int
	Offset             time.Duration // database clock minus local clock
	Error              time.Duration // of Offset
	Silent             time.Duration // since sending the last good beat
	Interrupted        bool
}

// Stats is a snapshot for metrics.
func (c *Cluster) Stats() Stats {
	c.counting.Lock()
	s := c.stats
	c.counting.Unlock()
	s.Members = len(c.Ring().Members())
	clock := c.Clock()
	if clock.Known() {
		s.Offset, s.Error = clock.Now().Sub(c.now().Round(0)), clock.Error()
	}
	s.Silent, s.Interrupted = c.Silent(), c.Interrupted()
	return s
}

func (c *Cluster) count(add func(*Stats)) {
	c.counting.Lock()
	defer c.counting.Unlock()
	add(&c.stats)
}

// now is the one place that reads the local clock.
func (c *Cluster) now() time.Time { return time.Now().Add(c.cfg.Skew) }
