package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/ring"
)

// database is the controllers' table, with the semantics of the statements; its clock is the bubble's plus ahead.
type database struct {
	mu    sync.Mutex
	rows  map[string]*row
	cut   map[string]bool // controllers that do not reach it
	trip  time.Duration   // from sending to the statement, and back again
	ahead time.Duration
	said  []string // statements other than beats
}

type row struct {
	ring.Controller
	state            ring.State
	heartbeat, alive time.Time
}

func newDatabase() *database { return &database{rows: map[string]*row{}, cut: map[string]bool{}} }

func (d *database) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// conn is what one controller sees of it.
type conn struct {
	*database
	key string
}

var errCut = errors.New("connection refused")

func (c conn) statement(ctx context.Context, text string, do func(now time.Time)) error {
	c.mu.Lock()
	trip, cut := c.trip, c.cut[c.key]
	c.mu.Unlock()
	if cut {
		<-ctx.Done() // a half-open connection: nothing comes back
		return errCut
	}
	travel(ctx, trip/2)
	c.mu.Lock()
	if text != "" {
		c.said = append(c.said, c.key+" "+text)
	}
	do(time.Now().Add(c.ahead))
	c.mu.Unlock()
	travel(ctx, trip/2)
	return ctx.Err()
}

func travel(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (c conn) Register(ctx context.Context, who ring.Controller) error {
	return c.statement(ctx, "register", func(now time.Time) {
		for _, r := range c.rows {
			if r.Endpoint == who.Endpoint {
				r.state = ring.Superseded
			}
		}
		c.rows[who.Key] = &row{Controller: who, state: ring.Live, heartbeat: now, alive: now}
	})
}

func (c conn) Beat(ctx context.Context) (b ring.Beat, err error) {
	err = c.statement(ctx, "", func(now time.Time) {
		r := c.rows[c.key]
		if r == nil {
			b = ring.Beat{Now: now}
			return
		}
		if now.Sub(r.heartbeat) > 3*time.Second || r.heartbeat.After(now) {
			r.alive = now
		}
		r.heartbeat = now
		b = ring.Beat{State: r.state, Now: now, AliveSince: r.alive}
		for _, o := range c.rows {
			if o.state == ring.Live && now.Sub(o.heartbeat) < 3*time.Second {
				b.Members = append(b.Members, o.Member)
			}
		}
	})
	return b, err
}

func (c conn) SetState(ctx context.Context, s ring.State) error {
	return c.statement(ctx, string(s), func(time.Time) {
		if r := c.rows[c.key]; r != nil {
			r.state = s
		}
	})
}

func (c conn) Deregister(ctx context.Context) error {
	return c.statement(ctx, "deregister", func(time.Time) { delete(c.rows, c.key) })
}

// network reaches the other controllers, unless they are in hidden.
type network struct {
	mu     sync.Mutex
	at     map[string]*Cluster
	hidden map[string]bool
	asked  int
}

func (n *network) Interrupted(ctx context.Context, endpoint string) (bool, error) {
	n.mu.Lock()
	c, hidden := n.at[endpoint], n.hidden[endpoint]
	n.asked++
	n.mu.Unlock()
	if hidden {
		<-ctx.Done()
		return false, ctx.Err()
	}
	if c == nil {
		return false, errCut
	}
	return c.Interrupted(), nil
}

func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// controller is one under test, and what it said.
type controller struct {
	*Cluster
	mu     sync.Mutex
	events []string
	stop   context.CancelFunc
	ended  chan error
}

func (c *controller) say(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, s)
}

// heard returns what was said since the last call.
func (c *controller) heard() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.events
	c.events = nil
	return e
}

// cell is a database, a network and some controllers, named a, b, c, ..
type cell struct {
	*testing.T
	db    *database
	net   *network
	start time.Time
	all   map[string]*controller
	wg    sync.WaitGroup
}

func newCell(t *testing.T, keys ...string) *cell {
	c := &cell{T: t, db: newDatabase(), start: time.Now(), all: map[string]*controller{},
		net: &network{at: map[string]*Cluster{}, hidden: map[string]bool{}}}
	t.Cleanup(func() {
		for _, x := range c.all {
			x.stop()
		}
		c.wg.Wait()
	})
	for _, key := range keys {
		c.run(key, Config{})
	}
	return c
}

func (c *cell) run(key string, cfg Config) *controller {
	c.Helper()
	x := &controller{ended: make(chan error, 1)}
	cfg.Key = key
	if cfg.Endpoint == "" {
		cfg.Endpoint = "http://" + key
	}
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	cfg.OnFence = func() { x.say("fence " + time.Since(c.start).String()) }
	onHeal := cfg.OnHeal
	cfg.OnHeal = func() {
		x.say("heal")
		if onHeal != nil {
			onHeal()
		}
	}
	cfg.OnRing = func(_, next *ring.Ring) { x.say("ring " + names(next)) }
	var err error
	if x.Cluster, err = New(cfg, conn{c.db, key}, c.net); err != nil {
		c.Fatal(err)
	}
	c.net.set(func() { c.net.at[cfg.Endpoint] = x.Cluster })
	ctx, cancel := context.WithCancel(c.Context())
	x.stop = cancel
	c.wg.Go(func() { x.ended <- x.Run(ctx) })
	c.all[key] = x
	synctest.Wait()
	return x
}

func (c *cell) cut(keys ...string) {
	c.db.set(func() {
		for _, k := range keys {
			c.db.cut[k] = true
		}
	})
}

func (c *cell) mend() { c.db.set(func() { clear(c.db.cut) }) }

// at lets the bubble's time pass up to a moment since the start, and the moment's work be done.
func (c *cell) at(d time.Duration) {
	time.Sleep(time.Until(c.start.Add(d)))
	synctest.Wait()
}

func (c *cell) forget() {
	for _, x := range c.all {
		x.heard()
	}
}

func (c *cell) wantHeard(key string, want ...string) {
	c.Helper()
	if got := c.all[key].heard(); !slices.Equal(got, want) {
		c.Errorf("%s at %s: heard %q, want %q", key, time.Since(c.start), got, want)
	}
}

func (c *cell) wantRing(key, want string) {
	c.Helper()
	if got := names(c.all[key].Ring()); got != want {
		c.Errorf("%s at %s: ring %q, want %q", key, time.Since(c.start), got, want)
	}
}

func names(r *ring.Ring) (s string) {
	for _, m := range r.Members() {
		s += m.Key
	}
	return s
}
