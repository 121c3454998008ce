package scheduler

import (
	"fmt"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/schedule"
)

// micros is an instant of the database's clock, in its own resolution: microseconds since 1970. Zero is none.
type micros = int64

func toMicros(t time.Time) micros {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(m micros) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(m).UTC()
}

// role is what a controller is to a shard.
type role uint8

const (
	none        role = iota
	firstOwner       // tries at the slot
	secondOwner      // tries StealDelay later
)

// row is what the plan keeps of a cron job: a controller may hold a million of them, so it is a third of a cron.Job.
type row struct {
	id         int64
	version    int64
	next       micros
	stamp      int64 // of the plan when this was learned
	ref        string
	deployment string
	timeout    time.Duration
	sched      *parsed
	catchup    cron.Catchup
	shard      *shard
	run        *run       // the run that executes here; nil while none does
	claim      cron.RunID // of the claim that is in flight; zero while none is
	pos        int32      // in shard.rows
	index      int32      // in the heap, -1 outside
	seen       int32      // the listing that saw it last
	misses     uint8      // claims lost in a row although the row looked due
	enabled    bool
	executing  bool
	fires      bool // slots become jobs
	cancels    bool // and cancel those before them
	limited    bool // and count for a limit
	visitor    bool // tried once whatever its shard
	adopted    bool
}

// parsed is a schedule with the texts that it was read from; rows of equal texts share it, unless the text is a row's own.
type parsed struct {
	expr, zone string
	schedule.Schedule
}

// shard holds the rows of one shard, so that it can be armed anew or dropped without looking at all rows.
type shard struct {
	id   int32
	role role
	lost time.Time // local: when the ring took it away; zero: it did not
	rows []*row
}

// run is a run that executes here, or whose end is not written yet.
type run struct {
	id      cron.RunID
	row     *row
	sched   *parsed
	job     cron.Job // what Overlapped asks: id, ref, version, enabled, catch-up, run slot
	next    micros   // first undecided slot when it started
	started time.Time
	ended   bool // the call returned; its end is under way
}

// busy rows are not changed by what a list says: somebody here knows better, or will in a moment.
func (r *row) busy() bool { return !r.claim.IsZero() || r.run != nil }

// wanted says whether the row is any business of this controller.
func (r *row) wanted() bool { return r.shard.role != none || r.adopted || r.visitor || r.busy() }

// job is the row in the words of package cron, as far as its pure functions ask.
func (r *row) job() cron.Job {
	j := cron.Job{
		ID: r.id, Ref: r.ref, Shard: r.shard.id, Version: r.version, Enabled: r.enabled, State: cron.Idle, Next: fromMicros(r.next),
		Timeout: r.timeout, Catchup: r.catchup, Overlap: cron.OverlapSkip, Deployment: r.deployment,
		Schedule: r.sched.expr, Zone: r.sched.zone, Fires: r.fires, Limited: r.limited,
	}
	if r.cancels {
		j.Overlap = cron.OverlapCancel
	}
	if r.executing {
		j.State = cron.Executing
	}
	return j
}

// moduleOf is what an adoption names: a module, or a trigger by its whole ref.
func moduleOf(ref string) string {
	module, _, _ := strings.Cut(ref, ".")
	return module
}

// schedules parses each pair of expression and zone once. Intervals and instants are counted from a row's own beginning:
// they are not kept here, or there would be as many as rows.
type schedules map[scheduleKey]*parsed

type scheduleKey struct{ expr, zone string }

const onceWord = "@at " // begins the text of what has one slot: its row is gone when that has fired

func (s schedules) get(expr, zone string) (*parsed, error) {
	key := scheduleKey{expr, zone}
	if p := s[key]; p != nil {
		return p, nil
	}
	loc, err := schedule.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	sched, err := schedule.ParseText(expr, loc)
	if err != nil {
		return nil, fmt.Errorf("invalid cron expression %q: %w", expr, err)
	}
	p := &parsed{expr: expr, zone: zone, Schedule: sched}
	if !strings.HasPrefix(expr, "@every ") && !strings.HasPrefix(expr, onceWord) {
		s[key] = p
	}
	return p, nil
}
