package scheduler

import (
	"sync/atomic"
	"time"
)

type counters struct {
	claims, won, fired, lost, failed, ended, lateEnds, resets, setAside, repaired, overdue atomic.Int64
}

// Stats is a snapshot for metrics; the upper part counts from the start of the process.
type Stats struct {
	Claims   int64 // tried, skips included
	Won      int64 // runs started by their slot
	Fired    int64 // slots made jobs
	Lost     int64 // claims that were not won
	Failed   int64 // claims whose statement failed, known not to be done
	Ended    int64 // ends accepted
	LateEnds int64 // ends refused: the run was not current any more
	Resets   int64
	SetAside int64 // rows
	Repaired int64 // next slots
	Overdue  int64 // rows that the sweep handed over

	Rows       int // in the plan
	Armed      int // waiting for their slot
	InFlight   int // calls
	Claiming   int // claims without an answer
	UnsentEnds int
	OldestDue  time.Duration // how long the row that has waited longest is past its try; 0: none is
	Loaded     bool          // the rows of the first ring were read
}

// Stats may be called at any time; it is cheap.
func (s *Scheduler) Stats() Stats {
	c := &s.counters
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Claims: c.claims.Load(), Won: c.won.Load(), Fired: c.fired.Load(), Lost: c.lost.Load(), Failed: c.failed.Load(), Ended: c.ended.Load(),
		LateEnds: c.lateEnds.Load(), Resets: c.resets.Load(), SetAside: c.setAside.Load(), Repaired: c.repaired.Load(),
		Overdue: c.overdue.Load(),
		Rows:    len(s.plan.rows), Armed: len(s.plan.heap), InFlight: s.plan.calls, Claiming: s.plan.claims,
		UnsentEnds: len(s.plan.runs) - s.plan.calls, Loaded: s.loaded,
	}
	if at := s.plan.nextAt(); at != 0 {
		st.OldestDue = max(0, time.Duration(s.now()-at)*time.Microsecond)
	}
	return st
}
