package cron

import "time"

// RunFilter narrows what a list of runs shows; zero values narrow nothing.
type RunFilter struct {
	Ref, Module, Controller string
	Verdicts                []Verdict
	From, To                time.Time // slots in [From, To)
}

// RunCursor is the last row of the page before; the zero cursor starts with the latest.
type RunCursor struct {
	EndedAt time.Time
	JobID   int64
	Slot    time.Time
}

// JobView is a cron job with what people want to know beside it.
type JobView struct {
	Job
	PausedNote, SetAsideNote string
	MinReplicas              int
}

// DoubleVerdict is a pair of ledger rows that decide the same slot: there must be none.
type DoubleVerdict struct {
	JobID        int64
	Slot, SlotTo time.Time
	PrevTo       time.Time // up to which an earlier row decides
}

// Wedged counts what must not exist: rows overdue or executing without an owner for longer than the bound; and rows
// that are set aside.
type Wedged struct{ Overdue, Stuck, SetAside int }
