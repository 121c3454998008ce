package cron

import "errors"

// The closed list of refusals that every floor shares: the store maps Postgres errors onto it, and one table in the
// face maps it to Connect codes. Wrap them with what was tried.
var (
	ErrNotFound    = errors.New("not found")
	ErrInvalid     = errors.New("invalid")             // the input can never be accepted
	ErrPrecond     = errors.New("failed precondition") // not in this state; later perhaps
	ErrExists      = errors.New("already exists")
	ErrTimedOut    = errors.New("timed out")
	ErrUnavailable = errors.New("unavailable") // the database is away; try again
)
