package cluster

import (
	"context"

	"carillon/backend/core/ring"
)

// follow makes a ring whenever the members change. It has a goroutine of its own, since the table of a large cluster
// takes a good part of a beat, and since who hears of the ring may take time.
func (c *Cluster) follow(ctx context.Context, members <-chan []ring.Member) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-members:
			old := c.ring.Load()
			if old.Made(m) {
				continue
			}
			next := ring.New(m)
			c.ring.Store(next)
			c.count(func(s *Stats) { s.RingChanges++ })
			c.cfg.Logger.InfoContext(ctx, "ring changed", "members", len(next.Members()), "was", len(old.Members()))
			c.cfg.OnRing(old, next)
			if old == nil {
				close(c.joined)
			}
		}
	}
}
