package ring

import "time"

// Status is one controller as the database knows it, for people.
type Status struct {
	Controller
	State       State
	Fresh       bool // its last beat is younger than the silence
	StartedAt   time.Time
	HeartbeatAt time.Time
	AliveSince  time.Time
	Executing   int // runs in its name
}
