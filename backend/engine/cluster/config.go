package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"carillon/backend/core/ring"
)

// Config of one controller. Durations that are zero get their default.
type Config struct {
	Key      string // unique to this process
	Endpoint string // where the other controllers reach it
	Version  string
	Host     string
	PID      int

	Beat    time.Duration // from one heartbeat to the next; 1 s
	Silence time.Duration // after it a controller is no member any more; 3 s
	Fence   time.Duration // after it, counted from sending the last good beat, the controller gives up its calls; 4 s
	Lease   time.Duration // after it the others may declare its runs lost; 6 s
	Grace   time.Duration // how long the rows of a lost shard are kept by who holds them; 5 s

	// Skew is added wherever the local clock is read, so that a test can give one process of many a wrong clock. Leave
	// it zero.
	Skew time.Duration

	// OnRing hears of each new ring, in order, from a goroutine of its own; old is nil at first. It may take its time:
	// a ring that is overtaken meanwhile is left out.
	OnRing func(old, next *ring.Ring)
	// OnFence hears, once per silence, that the others may soon declare this controller's runs lost: cancel the calls in
	// flight and claim nothing until OnHeal. It is called between heartbeats, so it must not wait.
	OnFence func()
	// OnHeal hears that heartbeats succeed again after more than Silence, fenced or not: what is known of the rows is
	// old. It must not wait either.
	OnHeal func()

	Logger *slog.Logger // slog.Default() when nil
}

// Validate says what is wrong with a Config whose defaults are filled in. An order of durations that does not hold
// would let the others free runs that this controller still executes.
func (c Config) Validate() error {
	switch {
	case c.Key == "":
		return errors.New("cluster: the controller has no key")
	case c.Endpoint == "":
		return errors.New("cluster: the controller has no endpoint")
	case c.Beat <= 0 || c.Grace <= 0:
		return fmt.Errorf("cluster: beat %s and grace %s must be positive", c.Beat, c.Grace)
	case 3*c.Beat > c.Silence || c.Silence >= c.Fence || c.Fence >= c.Lease:
		return fmt.Errorf("cluster: beat %s, silence %s, fence %s, lease %s: needs 3 beats <= silence < fence < lease",
			c.Beat, c.Silence, c.Fence, c.Lease)
	}
	return nil
}

func (c Config) withDefaults() Config {
	for d, standard := range map[*time.Duration]time.Duration{
		&c.Beat: time.Second, &c.Silence: 3 * time.Second, &c.Fence: 4 * time.Second,
		&c.Lease: 6 * time.Second, &c.Grace: 5 * time.Second,
	} {
		if *d == 0 {
			*d = standard
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.OnRing == nil {
		c.OnRing = func(_, _ *ring.Ring) {}
	}
	if c.OnFence == nil {
		c.OnFence = func() {}
	}
	if c.OnHeal == nil {
		c.OnHeal = func() {}
	}
	return c
}

// deadline of one heartbeat: three of them must fit into the silence.
func (c Config) deadline() time.Duration { return c.Silence / 3 }

// patience with the answers of the other members. It comes out of the time between fence and lease, of which most must
// be left to cancel calls.
func (c Config) patience() time.Duration { return min(500*time.Millisecond, (c.Lease-c.Fence)/4) }
