package queue

import (
	"testing"
	"testing/synctest"
	"time"
)

// While somebody holds a snapshot, a window's start lies behind all that ended since: it is read now and then, and what
// comes meanwhile is found as soon as ever.
func TestReadsFromTheStartAreKeptRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		c := d.sole(t, 10, succeed, "m.v")
		other := d.controller(t, "other", 0, succeed)
		other.know(t, "m.v")
		d.mu.Lock()
		c.store.dead = 2 * time.Second
		d.mu.Unlock()
		wait(10 * time.Second)
		before, soon := d.count("fetch whole"), 0
		for range 20 {
			at := time.Now()
			id := other.enqueue(t, "m.v")
			wait(6 * time.Second)
			began := c.runners.starts(id)
			if len(began) != 1 || began[0].Sub(at) > 4*time.Second { // behind a read from the start, and a poll
				t.Errorf("began %v, enqueued %s", began, at)
			} else if began[0].Sub(at) < 1500*time.Millisecond {
				soon++
			}
		}
		if soon < 15 {
			t.Errorf("%d of 20 began within a poll", soon)
		}
		if n := d.count("fetch whole") - before; n < 3 || n > 6 {
			t.Errorf("%d reads from the start in two minutes", n)
		}
	})
}

func TestReach(t *testing.T) {
	const now = micros(100_000_000)
	late := key{due: 95_000_000}
	for name, c := range map[string]struct {
		reach reach
		w     window
		from  key
		read  bool
	}{
		"whole":                      {whole, window{upto: key{7, 7}}, key{}, true},
		"onward":                     {onward, window{upto: key{7, 7}}, key{7, 7}, true},
		"recent, complete":           {recent, window{complete: true, upto: key{7, 7}}, late, true},
		"recent, comes that far":     {recent, window{upto: key{99_000_000, 7}}, late, true},
		"recent, has others first":   {recent, window{upto: key{7, 7}, jobs: heap[*entry]{{}}}, key{7, 7}, false},
		"recent, has nothing at all": {recent, window{}, key{}, true},
	} {
		if from, ok := c.reach.start(&c.w, now); ok != c.read || ok && from != c.from {
			t.Errorf("%s: %v, %v", name, from, ok)
		}
	}
}
