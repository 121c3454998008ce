package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// others reaches controllers in the same process.
type others struct {
	list []*controller
	deaf *atomic.Bool
}

func (o others) Owner(shard int32) string { return fmt.Sprint(int(shard) % len(o.list)) }
func (o others) Hint(_ context.Context, owner string, queues []int32) error {
	if o.deaf.Load() {
		return errAway
	}
	time.Sleep(trip / 2)
	for i, c := range o.list {
		if owner == fmt.Sprint(i) {
			c.Hinted(queues)
		}
	}
	return nil
}

// three are controllers that share the shards, and know the queue of m.v.
func (d *database) three(t *testing.T, room int, v served) (list []*controller, deaf *atomic.Bool) {
	deaf = new(atomic.Bool)
	list = make([]*controller, 3)
	for i := range list {
		list[i] = d.controller(t, fmt.Sprint(i), room, v, func(c *Config) { c.Hints = others{list, deaf} })
		list[i].OnRing(shards(int32(i), 3), nil)
	}
	list[0].know(t, "m.v")
	return list, deaf
}

func TestTheOwnerHearsOfAJobAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		list, deaf := d.three(t, 10, succeed)
		list[0].runners.setRoom(0)
		for i := range 30 { // a third of them is the sender's own
			if i == 15 {
				wait(time.Second) // and now without a fetch under way
			}
			list[0].enqueue(t, "m.v")
		}
		wait(20 * time.Millisecond)
		if n := d.ended(); n != 20 {
			t.Errorf("%d of 20 ran after a hint", n)
		}
		deaf.Store(true)
		for range 30 {
			list[0].enqueue(t, "m.v")
		}
		wait(1200 * time.Millisecond)
		if n := d.ended(); n != 40 {
			t.Errorf("%d of 40 ran without one, after a second", n)
		}
		// And those that their owner cannot run are anybody's a little later.
		wait(12 * time.Second)
		if n := d.ended(); n != 60 {
			t.Errorf("%d of 60 ran after five seconds", n)
		}
	})
}

func TestAClusterWideLimitHoldsExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		list, _ := d.three(t, 50, lasting(20*time.Millisecond))
		d.limit("m.v", 4)
		for _, c := range list {
			c.Wake()
		}
		wait(time.Second)
		for i := range 300 {
			list[i%3].enqueue(t, "m.v")
		}
		before, begun := d.count("claim"), time.Now()
		for d.ended() < 300 && time.Since(begun) < time.Minute {
			wait(100 * time.Millisecond)
		}
		took := time.Since(begun)
		d.mu.Lock()
		if d.most["m.v"] != 4 || d.taken["m.v"] != 0 {
			t.Errorf("%d at a time, %d places are still taken", d.most["m.v"], d.taken["m.v"])
		}
		d.mu.Unlock()
		if d.ended() != 300 || took > 5*time.Second { // 1.5 s at best
			t.Errorf("%d ran in %v", d.ended(), took)
		}
		if n := d.count("claim") - before; n > 1500 {
			t.Errorf("%d claims for 300 jobs", n)
		}
	})
}

func TestAShardThatMovesTakesItsJobsAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a := d.sole(t, 0, succeed, "m.v")
		b := d.controller(t, "b", 10, succeed)
		b.OnRing(nil, shards(0, 1))
		for range 50 {
			a.enqueue(t, "m.v")
		}
		wait(time.Second)
		a.OnRing(nil, shards(0, 1))
		b.OnRing(shards(0, 1), nil)
		wait(100 * time.Millisecond)
		if a.Stats().Waiting[2] != 0 || b.Stats().Succeeded != 50 {
			t.Errorf("%d wait at the old owner, %d ran at the new one", a.Stats().Waiting[2], b.Stats().Succeeded)
		}
	})
}
