package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	carillonv1 "carillon/proto/carillon/v1"
)

// clockRow names a case of the clock.
func clockRow(rate float64) string {
	if rate == 0 {
		return "nothing due"
	}
	return number(rate) + " firings/s"
}

// clocks measures triggers of the clock at each rate.
func (b *bench) clocks(ctx context.Context) error {
	for _, rate := range b.firings {
		began := time.Now()
		if err := b.clock(ctx, rate); err != nil {
			return fmt.Errorf("%s: %w", clockRow(rate), err)
		}
		say("%d triggers, %s: %s", b.triggers, clockRow(rate), time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// hung is a trigger that was made.
type hung struct {
	tower
	key     string
	created time.Time
}

func (b *bench) clock(ctx context.Context, rate float64) error {
	towers, err := rota(b.triggers, rate, b.shortest, time.Now())
	if err != nil {
		return err
	}
	f, err := b.belfry(ctx)
	if err != nil {
		return err
	}
	defer f.close(ctx)
	row := clockRow(rate)
	all := make([]hung, len(towers))
	took, err := f.hang(ctx, len(towers), func(i int) *carillonv1.CreateTriggerRequest {
		return &carillonv1.CreateTriggerRequest{Kind: towers[i].kind, Arguments: towers[i].arguments, Worker: ringRef, Message: fmt.Appendf(nil, `{"trigger":%d}`, i)}
	}, func(i int, t *carillonv1.Trigger) error {
		all[i] = hung{towers[i], t.GetId(), t.GetCreatedAt().AsTime()}
		return nil
	})
	if err != nil {
		return err
	}
	b.figures.add(clockLeg, row, "made/s", float64(len(towers))/took.Seconds())
	var last time.Time // an @every has its first slot an interval behind its creation
	for _, h := range all {
		if h.kind == "@every" && h.created.After(last) && !h.sleeps {
			last = h.created
		}
	}
	warm := max(time.Until(last.Add(b.shortest*3/2)), 5*time.Second)
	if err := pause(ctx, warm); err != nil {
		return err
	}
	if err := settle(ctx, f.db, "carillon.cron_jobs"); err != nil {
		return err
	}
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	from := time.Now().Truncate(time.Second).Add(time.Second)
	to := from.Add(b.window.Truncate(time.Second))
	if err := pause(ctx, time.Until(from)); err != nil {
		return err
	}
	spent, err := f.over(ctx, func() error { return pause(ctx, time.Until(to)) })
	if err != nil {
		return err
	}
	f.note(clockCostLeg, row, spent, "s", spent.took.Seconds())
	b.figures.add(clockCostLeg, row, "largest controller, MB", float64(f.rss())/1e6)
	if rate == 0 {
		if took, err = f.restart(ctx); err != nil {
			return fmt.Errorf("start a controller anew: %w", err)
		}
		b.figures.add(clockCostLeg, row, "start until ready, s", took.Seconds())
	}
	if err := f.rung(ctx, to); err != nil {
		return err
	}
	return f.judge(ctx, row, all, from, to, spent)
}

// rung waits until every slot before an instant is fired and its job has ended.
func (f *belfry) rung(ctx context.Context, before time.Time) error {
	return eventually(ctx, "the last slots and jobs", func(ctx context.Context) error {
		var due, live int
		err := f.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM carillon.cron_jobs WHERE enabled AND next_execution < $1),
			(SELECT count(*) FROM carillon.jobs WHERE slot < $1)`, before).Scan(&due, &live)
		if err == nil && due+live > 0 {
			err = fmt.Errorf("%d slots are due and %d jobs live", due, live)
		}
		return err
	})
}

// firing is a row of the ledger.
type firing struct {
	slot int64 // Unix seconds
	late time.Duration
	jobs int // that ended well, at their first attempt, for this slot
}

// judge counts everything since the first trigger was made: each slot of the oracle was fired once and became one job
// that ran once, and nothing else happened. Then it adds the figures of the slots of [from, to).
func (f *belfry) judge(ctx context.Context, row string, all []hung, from, to time.Time, spent expense) error {
	fired, err := f.ledger(ctx, to)
	if err != nil {
		return err
	}
	bySlot, slots := map[int64][]time.Duration{}, 0
	var late []time.Duration
	for i, h := range all {
		want, got := h.slots(h.created, to.Unix()), fired[h.key]
		delete(fired, h.key)
		if len(got) != len(want) {
			return fmt.Errorf("trigger %d (%s %s, made at %v): %d slots by the ledger, %d by the oracle", i, h.kind, h.arguments, h.created, len(got), len(want))
		}
		for k, g := range got {
			if g.slot != want[k] || g.jobs != 1 {
				return fmt.Errorf("trigger %d (%s %s): slot %d became %d jobs, want one job of slot %d", i, h.kind, h.arguments, g.slot, g.jobs, want[k])
			}
			if g.late < 0 {
				return fmt.Errorf("trigger %d (%s %s): slot %d was fired %v early", i, h.kind, h.arguments, g.slot, -g.late)
			}
			if g.slot >= from.Unix() {
				late = append(late, g.late)
				bySlot[g.slot] = append(bySlot[g.slot], g.late)
			}
		}
		slots += len(want)
	}
	if len(fired) > 0 {
		return fmt.Errorf("%d triggers fired that nobody made", len(fired))
	}
	ran, err := f.marked(0, to.Unix())
	if err == nil && len(ran) != slots {
		err = fmt.Errorf("%d runs of %d slots", len(ran), slots)
	}
	if err != nil {
		return err
	}
	say("%s: %d slots, each fired once", row, slots)
	if len(late) == 0 {
		return nil
	}
	began, err := f.marked(from.Unix(), to.Unix())
	if err != nil {
		return err
	}
	f.note(clockCostLeg, row, spent, "firing", float64(len(late)))
	f.b.figures.add(clockLeg, row, "fired/s", float64(len(late))/to.Sub(from).Seconds())
	slices.Sort(late)
	for what, list := range map[string][]time.Duration{"ledger": late, "verb": began} {
		for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
			f.b.figures.add(clockLeg, row, what+" "+name+", ms", ms(quantile(list, q)))
		}
	}
	f.b.figures.add(clockLeg, row, "worst second's p99, ms", ms(worst(bySlot)))
	return nil
}

// worst is the largest p99 of all slots.
func worst(bySlot map[int64][]time.Duration) (most time.Duration) {
	for _, late := range bySlot {
		slices.Sort(late)
		most = max(most, quantile(late, 0.99))
	}
	return most
}

// ledger reads what was decided about slots before an instant, by trigger and in order. A verdict other than fired is an
// error.
func (f *belfry) ledger(ctx context.Context, before time.Time) (map[string][]firing, error) {
	rows, err := f.db.Query(ctx, `SELECT t.key, extract(epoch FROM r.slot)::bigint, (extract(epoch FROM r.started_at - r.slot) * 1000000)::bigint, r.verdict::text, count(h.id)
		FROM carillon.runs r JOIN carillon.cron_jobs c ON c.id = r.cron_job_id JOIN carillon.triggers t ON t.id = c.trigger_id
		LEFT JOIN carillon.job_history h ON h.id = r.job_id AND h.slot = r.slot AND h.trigger_id = t.id AND h.state = 'succeeded' AND h.attempt = 1
		WHERE r.slot < $1 GROUP BY t.key, r.cron_job_id, r.slot, r.started_at, r.verdict ORDER BY t.key, r.slot`, before)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	all := map[string][]firing{}
	var key, verdict string
	var slot, jobs int64
	var late *int64
	_, err = pgx.ForEachRow(rows, []any{&key, &slot, &late, &verdict, &jobs}, func() error {
		if verdict != "fired" || late == nil {
			return fmt.Errorf("slot %d of trigger %s is %s", slot, key, verdict)
		}
		all[key] = append(all[key], firing{slot, time.Duration(*late) * time.Microsecond, int(jobs)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	var jobless int
	err = f.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM carillon.job_history WHERE slot < $1) - (SELECT count(*) FROM carillon.runs WHERE slot < $1)`, before).Scan(&jobless)
	if err == nil && jobless != 0 {
		err = fmt.Errorf("%d more jobs than firings", jobless)
	}
	return all, err
}
