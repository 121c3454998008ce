package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/store"
)

// herdPeriod is how often a herd is due: long enough for all of it to have ended before.
const herdPeriod = 5

// latenessCase is one cluster and its cron jobs.
type latenessCase struct {
	Jobs      int
	Period    int // seconds
	inProcess bool
}

func (c latenessCase) schedule() string {
	if c.Period == 1 {
		return "* * * * * *"
	}
	return fmt.Sprintf("*/%d * * * * *", c.Period)
}

func (c latenessCase) modules() int { return (c.Jobs + perModule - 1) / perModule }

// LatenessResult is what one case came to.
type LatenessResult struct {
	Jobs        int    `json:"jobs"`
	Period      int    `json:"period_seconds"`
	Runner      string `json:"runner"` // "own process" or "in process"
	Controllers int    `json:"controllers"`
	Capacity    int    `json:"capacity"` // calls in flight of each runner
	Seconds     int    `json:"seconds"`
	Slots       int    `json:"slots"` // that came in the measured time
	Ran         int    `json:"ran"`   // verdict succeeded
	// Others are the slots with another verdict, by verdict; Undecided have none.
	Others    map[string]int `json:"others,omitempty"`
	Undecided int            `json:"undecided"`
	Ledger    Spread         `json:"ledger"` // started_at - slot, both by the database's clock
	Verb      Spread         `json:"verb"`   // begin of the verb in the runner - slot
	// Instant is Verb of the instant in the middle, by its p99: what other load of the machine disturbs least.
	Instant Spread `json:"verb_median_instant"`
}

// cases are the numbers of cron jobs, each second, and from 10,000 on also all at one instant every few seconds, each with
// runners in processes of their own and in the controller's process.
func (b *bench) cases() []latenessCase {
	var all []latenessCase
	for _, n := range b.Jobs {
		for _, in := range []bool{false, true} {
			if n >= 10_000 {
				all = append(all, latenessCase{Jobs: n, Period: herdPeriod, inProcess: in})
			}
			all = append(all, latenessCase{Jobs: n, Period: 1, inProcess: in})
		}
	}
	return all
}

func (b *bench) lateness(ctx context.Context) ([]LatenessResult, error) {
	var all []LatenessResult
	for _, c := range b.cases() {
		r, err := b.measureLateness(ctx, c)
		if err != nil {
			return all, fmt.Errorf("measure the lateness of %d cron jobs: %w", c.Jobs, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func (b *bench) measureLateness(ctx context.Context, c latenessCase) (r LatenessResult, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return r, err
	}
	defer drop()
	if _, err := store.Migrate(ctx, url); err != nil {
		return r, err
	}
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return r, fmt.Errorf("connect to the new database: %w", err)
	}
	defer db.Close(context.WithoutCancel(ctx))
	dir, err := os.MkdirTemp("", "carillon-bench-")
	if err != nil {
		return r, fmt.Errorf("make a directory for logs: %w", err)
	}
	defer os.RemoveAll(dir)
	k := &cluster{b: b, c: c, url: url, db: db, dir: dir}
	defer k.stop()
	r = LatenessResult{Jobs: c.Jobs, Period: c.Period, Runner: "own process", Controllers: k.controllers(), Seconds: b.Seconds, Capacity: b.Capacity}
	if c.inProcess {
		r.Runner = "in process"
	}
	if r.Capacity == 0 {
		r.Capacity = min(c.Jobs, perModule)
	}
	b.say("lateness: %d cron jobs every %d s, %d controller(s), runners %s", c.Jobs, c.Period, r.Controllers, r.Runner)
	if err := k.start(ctx); err != nil {
		return r, err
	}
	from, to, err := k.window(ctx)
	if err != nil {
		return r, err
	}
	k.stop()
	if err := k.judge(ctx, &r, from, to); err != nil {
		return r, err
	}
	b.say("  %d of %d slots ran; verb begins p50 %s, p99 %s, max %s", r.Ran, r.Slots, round(r.Verb.P50), round(r.Verb.P99), round(r.Verb.Max))
	return r, nil
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// window waits until every cron job has run, lets the cluster warm up, and waits until the measured time is over and its
// runs have ended.
func (k *cluster) window(ctx context.Context) (from, to time.Time, err error) {
	patience, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for ran := 0; ran < k.c.Jobs; {
		if err := errors.Join(k.alive(), pause(patience, 500*time.Millisecond)); err != nil {
			return from, to, fmt.Errorf("%d of %d cron jobs have run: %w%s", ran, k.c.Jobs, err, k.said())
		}
		if err := k.db.QueryRow(patience, "SELECT count(DISTINCT cron_job_id) FROM carillon.runs WHERE verdict = 'succeeded'").Scan(&ran); err != nil {
			return from, to, fmt.Errorf("count the cron jobs that have run: %w", err)
		}
	}
	period := time.Duration(k.c.Period) * time.Second
	from = time.Now().Add(3 * time.Second).Truncate(period).Add(period).UTC()
	seconds := (k.b.Seconds + k.c.Period - 1) / k.c.Period * k.c.Period
	to = from.Add(time.Duration(seconds) * time.Second)
	if err := pause(ctx, time.Until(to)+period/2); err != nil {
		return from, to, err
	}
	return from, to, k.alive()
}

// judge reads the ledger and the runners' own notes of the slots in [from, to).
func (k *cluster) judge(ctx context.Context, r *LatenessResult, from, to time.Time) error {
	r.Seconds = int(to.Sub(from) / time.Second)
	r.Slots = k.c.Jobs * r.Seconds / k.c.Period
	if err := k.readLedger(ctx, r, from, to); err != nil {
		return err
	}
	all := k.own.all
	if !k.c.inProcess {
		for i := range k.c.modules() {
			some, err := readBegins(k.samples(fmt.Sprintf("runner-bench%d", i)))
			if err != nil {
				return fmt.Errorf("%w%s", err, k.said())
			}
			all = append(all, some...)
		}
	}
	var late []time.Duration
	instants := map[time.Time][]time.Duration{}
	for _, s := range all {
		if !s.Slot.Before(from) && s.Slot.Before(to) {
			late = append(late, s.Late)
			instants[s.Slot] = append(instants[s.Slot], s.Late)
		}
	}
	r.Verb, r.Instant = spreadOf(late), middleOf(instants)
	return nil
}

// middleOf is the spread of the instant whose p99 is the median.
func middleOf(instants map[time.Time][]time.Duration) Spread {
	var all []Spread
	for _, late := range instants {
		all = append(all, spreadOf(late))
	}
	if len(all) == 0 {
		return Spread{}
	}
	slices.SortFunc(all, func(a, b Spread) int { return cmp.Compare(a.P99, b.P99) })
	return all[(len(all)-1)/2]
}

// readLedger takes the verdicts. A slot counts once however it was decided; a range with all slots that it covers in
// the measured time.
func (k *cluster) readLedger(ctx context.Context, r *LatenessResult, from, to time.Time) error {
	rows, err := k.db.Query(ctx, `SELECT slot, slot_to, started_at, verdict::text FROM carillon.runs
		WHERE kind = 'slot' AND slot < $2 AND slot_to >= $1`, from, to)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	var late []time.Duration
	decided := 0
	var slot, last time.Time
	var started *time.Time
	var verdict string
	_, err = pgx.ForEachRow(rows, []any{&slot, &last, &started, &verdict}, func() error {
		slots := k.slotsWithin(slot, last, from, to)
		decided += slots
		if started != nil {
			late = append(late, started.Sub(slot))
		}
		if verdict == "succeeded" {
			r.Ran++
			return nil
		}
		if r.Others == nil {
			r.Others = map[string]int{}
		}
		r.Others[strings.Clone(verdict)] += slots
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	r.Ledger, r.Undecided = spreadOf(late), r.Slots-decided
	return nil
}

// slotsWithin counts the slots from first to last that are in [from, to).
func (k *cluster) slotsWithin(first, last, from, to time.Time) int {
	period := time.Duration(k.c.Period) * time.Second
	if first.Before(from) {
		first = from
	}
	if end := to.Add(-period); last.After(end) {
		last = end
	}
	return int(last.Sub(first)/period) + 1
}
