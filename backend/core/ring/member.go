package ring

import (
	"cmp"
	"slices"
	"time"
)

// Member is a live controller.
type Member struct {
	Key      string // unique to the process
	Endpoint string // where the others reach it
}

// Controller is what a process says of itself when it joins.
type Controller struct {
	Member
	Version string
	Host    string
	PID     int
}

// State of a controller's row.
type State string

const (
	Absent     State = ""           // there is no row: never registered, or deleted
	Live       State = "live"       // a member while its heartbeats come
	Draining   State = "draining"   // beats, sweeps and finishes its runs, but owns nothing any more
	Superseded State = "superseded" // another process has its endpoint now
	Gone       State = "gone"       // silent, and holds no run; the next beat makes it live again
)

// Beat is the answer to one heartbeat.
type Beat struct {
	State      State     // of the row that beat
	Now        time.Time // the database's clock, while the statement ran
	AliveSince time.Time // start of the unbroken row of beats
	Members    []Member  // whose state is live and whose beats are fresh, in any order; the one that beat among them
}

// normal is a sorted copy without doubles.
func normal(members []Member) []Member {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return slices.CompactFunc(sorted, func(a, b Member) bool { return a.Key == b.Key })
}
