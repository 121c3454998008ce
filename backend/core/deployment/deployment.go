// Package deployment holds the nouns of what is deployed: the deployment, its runners, a module's present state, and
// the update that a deploy, a scale, a pause or a resume makes of it. Pure values; the deciding functions are in
// engine/deploy, the transaction in store.
package deployment

import (
	"time"

	"carillon/backend/core/cron"
)

// Deployment is one deployed version of a module. It is its digest: the same digest again is the same deployment.
type Deployment struct {
	ID           int64
	Key          string // module, a hyphen, and the first twelve digits of the digest
	Module       string
	Language     string
	Digest       string
	Schema       string // text form
	MinReplicas  int
	CreatedAt    time.Time
	ActivatedAt  time.Time // zero: never live yet
	SupersededAt time.Time
	Active       bool
	CronJobs     int
	Runners      []Runner
}

// Key names the deployment of a module with this digest.
func Key(module, digest string) string { return module + "-" + digest[:min(12, len(digest))] }

// Runner is a process that serves a deployment's verbs.
type Runner struct {
	Key          string
	Deployment   string // key
	Endpoint     string
	Capacity     int
	Stream       bool // serves Attach; otherwise unary Call
	RegisteredAt time.Time
	HeartbeatAt  time.Time
}

// Module is what stands in the database about one module, locked by the transaction that is about to change it.
type Module struct {
	Name string
	Live *Deployment // nil: nothing was ever deployed
	Jobs []cron.Job  // also the removed ones
	Now  time.Time   // the database's time, after the rows were locked
}

// Update is what a transaction writes about one module. The zero Update writes nothing.
type Update struct {
	Activate    bool // make the deployment that the transaction is about the live one
	MinReplicas *int
	Jobs        []JobUpdate
	// Limits of the module's verbs by ref: how many of their jobs run at a time in the whole cluster. Verbs that are
	// missing have none any more. Nil: all stays as it is.
	Limits map[string]int
}

// JobUpdate writes one cron job's row: a new one where Job.ID is 0.
type JobUpdate struct {
	Job cron.Job
	// Skipped enters the ledger as skipped_paused with Reason: the slots while the row was not enabled.
	Skipped cron.Range
	Reason  string
	// PausedNote replaces the text kept beside a paused row, when not nil.
	PausedNote *string
}
