package cluster

import (
	"sync/atomic"
	"time"
)

const (
	keptReadings = 16
	// driftPerSecond bounds how far a local clock runs away from the database's: two cheap crystals and a slewing daemon.
	driftPerSecond = 100 * time.Microsecond
)

// reading of the database's clock: it showed db at some moment within half of trip around the local moment at.
// Only the monotonic part of at is used, so a step of the local clock changes nothing.
type reading struct {
	at   time.Time
	db   time.Time
	trip time.Duration // from sending the statement to its answer
}

// doubt is how wrong the reading may be at a local moment.
func (r reading) doubt(local time.Time) time.Duration {
	age := max(local.Sub(r.at), 0)
	return r.trip/2 + time.Duration(float64(driftPerSecond)*age.Seconds())
}

func (r reading) now(local time.Time) time.Time { return r.db.Add(local.Sub(r.at)) }

// readings are the latest ones, oldest first, at most keptReadings. Only the goroutine that beats touches them.
type readings []reading

// add keeps a new reading and returns the best of all at its moment: the one with the least doubt. Readings that
// contradict the new one are forgotten, since then the database's clock has jumped.
func (rs *readings) add(n reading) reading {
	kept := (*rs)[:0]
	for _, r := range *rs {
		if n.db.Sub(r.now(n.at)).Abs() <= r.doubt(n.at)+n.trip/2 {
			kept = append(kept, r)
		}
	}
	if len(kept) == keptReadings {
		kept = append(kept[:0], kept[1:]...)
	}
	*rs = append(kept, n)
	best := n
	for _, r := range *rs {
		if r.doubt(n.at) < best.doubt(n.at) {
			best = r
		}
	}
	return best
}

// Clock estimates the database's clock. It follows the heartbeats, may step by its error in either direction, and is
// safe for concurrent use. Before the first good heartbeat it is the local clock, of unknown error.
type Clock struct {
	best  *atomic.Pointer[reading]
	local func() time.Time
}

// Now is the database's time, give or take Error.
func (c Clock) Now() time.Time {
	local := c.local()
	if r := c.best.Load(); r != nil {
		return r.now(local)
	}
	return local.Round(0)
}

// Error bounds how far Now may be off: half of the best recent round trip, and a little for its age. Zero while Known
// is false.
func (c Clock) Error() time.Duration {
	if r := c.best.Load(); r != nil {
		return r.doubt(c.local())
	}
	return 0
}

// Known says whether the database's clock has been read at all.
func (c Clock) Known() bool { return c.best.Load() != nil }
