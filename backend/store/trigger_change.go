package store

import (
	"context"
	"fmt"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/schedule"
	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

// locked is a trigger whose rows nobody else changes.
type locked struct {
	q   *sqlc.Queries
	t   trigger.Trigger
	row cron.Job // of the clock; without an id where it does not fire the trigger
	now time.Time
}

// changeTrigger runs work on a trigger of a tenant (empty: of any), and returns what stands there afterwards.
func (s *Store) changeTrigger(ctx context.Context, tried, tenant, key string, work func(*locked) error) (trigger.Trigger, error) {
	after, err := again(ctx, func() (after trigger.Trigger, err error) {
		err = s.tx(ctx, func(q *sqlc.Queries) error {
			l, err := lockTrigger(ctx, q, tenant, key)
			if err != nil {
				return noTrigger(err, key)
			}
			if err := work(l); err != nil {
				return err
			}
			r, err := q.GetTriggerByID(ctx, l.t.ID)
			after = toTrigger(sqlc.GetTriggerRow(r))
			return err
		})
		return after, err
	})
	return after, wrap(tried, err)
}

// lockTrigger locks the row of the clock first, as a firing does, and then reads the clock: all slots that were fired
// before are past by it.
func lockTrigger(ctx context.Context, q *sqlc.Queries, tenant, key string) (*locked, error) {
	rows, err := q.LockTriggerRow(ctx, sqlc.LockTriggerRowParams{Tenant: tenant, Key: key})
	if err != nil {
		return nil, err
	}
	t, err := q.LockTrigger(ctx, sqlc.LockTriggerParams{Tenant: tenant, Key: key})
	if err != nil {
		return nil, err
	}
	now, err := q.Clock(ctx)
	if err != nil {
		return nil, err
	}
	l := &locked{q: q, now: now.Time.UTC()}
	r := sqlc.GetTriggerRow{CarillonTrigger: t}
	if len(rows) == 1 {
		l.row = toJob(rows[0], "")
		r.CronJobID, r.Schedule = l.row.ID, l.row.Schedule
		r.NextExecution, r.PausedAt = stamp(l.row.Next), stamp(l.row.PausedAt)
	}
	l.t = toTrigger(r)
	return l, nil
}

// epoch is that of a change of the trigger: event triggers alone have one.
func (l *locked) epoch(ctx context.Context) (int64, error) {
	if l.t.Kind != trigger.Event {
		return 0, nil
	}
	return l.q.BumpEpoch(ctx)
}

func (l *locked) writeRow(ctx context.Context) error {
	return l.q.UpdateTriggerRow(ctx, sqlc.UpdateTriggerRowParams{
		ID: l.row.ID, Schedule: l.row.Schedule, Enabled: l.row.Enabled, NextExecution: ptr(l.row.Next), PausedAt: ptr(l.row.PausedAt),
		RemovedAt: ptr(l.row.RemovedAt), SetAsideAt: ptr(l.row.SetAsideAt),
	})
}

// PatchTrigger changes what may be changed of a trigger of a tenant (empty: of any): its message, and where the clock fires
// it its arguments. decide gets what stands there and the database's time, and returns what shall; it is called once,
// holds the locks, and must not wait. New arguments make a new timetable: a slot that is due stays due, otherwise the first
// slot after now is next. A scheduler is to learn the row (CronJob of the answer).
func (s *Store) PatchTrigger(ctx context.Context, tenant, key string, decide func(trigger.Trigger, time.Time) (trigger.Trigger, error)) (trigger.Trigger, error) {
	return s.changeTrigger(ctx, "change a trigger", tenant, key, func(l *locked) error {
		want, err := decide(l.t, l.now)
		if err != nil {
			return err
		}
		lastError := l.t.LastError
		if want.Arguments != l.t.Arguments && l.row.ID != 0 {
			if err := l.reschedule(ctx, want.Arguments); err != nil {
				return err
			}
			lastError = ""
		}
		epoch, err := l.epoch(ctx)
		if err != nil {
			return err
		}
		p := sqlc.UpdateTriggerParams{ID: l.t.ID, Arguments: want.Arguments, Message: notNull(want.Message), Epoch: epoch}
		if lastError != "" {
			p.LastError = &lastError
		}
		return l.q.UpdateTrigger(ctx, p)
	})
}

func (l *locked) reschedule(ctx context.Context, arguments string) error {
	text, err := trigger.Timetable(l.t.Kind, arguments, l.t.TimeZone, l.t.Key, l.now)
	if err != nil {
		return err
	}
	sched, err := timetable(text, l.t.TimeZone)
	if err != nil {
		return err
	}
	if l.row.Next.IsZero() || l.row.Next.After(l.now) {
		l.row.Next = cron.FirstAfter(sched, l.now)
	}
	l.row.Schedule, l.row.SetAsideAt, l.row.Enabled = text, time.Time{}, l.row.PausedAt.IsZero()
	return l.writeRow(ctx)
}

// DeleteTrigger makes a trigger of a tenant (empty: of any) fire no more; its jobs stay. It returns the trigger, whose
// row in cron_jobs (if it has one) a scheduler may learn to forget. cron.ErrNotFound: there is none any more.
func (s *Store) DeleteTrigger(ctx context.Context, tenant, key string) (trigger.Trigger, error) {
	return s.changeTrigger(ctx, "delete a trigger", tenant, key, func(l *locked) error {
		if l.row.ID != 0 {
			l.row.Enabled, l.row.RemovedAt, l.row.Next = false, l.now, time.Time{}
			if err := l.writeRow(ctx); err != nil {
				return err
			}
		}
		epoch, err := l.epoch(ctx)
		if err != nil {
			return err
		}
		return l.q.RemoveTrigger(ctx, sqlc.RemoveTriggerParams{ID: l.t.ID, Epoch: epoch})
	})
}

// PauseTrigger stops the clock for a trigger of a tenant (empty: of any); for one that is paused only the reason changes.
// cron.ErrPrecond: the clock does not fire it.
func (s *Store) PauseTrigger(ctx context.Context, tenant, key, reason string) (trigger.Trigger, error) {
	return s.changeTrigger(ctx, "pause a trigger", tenant, key, func(l *locked) error {
		if err := l.timed(); err != nil {
			return err
		}
		if l.row.PausedAt.IsZero() {
			l.row.PausedAt = l.now
		}
		l.row.Enabled = false
		if err := l.q.PutPausedNote(ctx, sqlc.PutPausedNoteParams{CronJobID: l.row.ID, Paused: cron.SafeText(reason)}); err != nil {
			return err
		}
		return l.writeRow(ctx)
	})
}

// ResumeTrigger lets the clock go on: slots that passed meanwhile are skipped_paused in the ledger, with the reason of the pause
// and the note, and the first one after now is next. What has one slot only is not skipped, but fires, however late. For one that is not paused nothing changes.
func (s *Store) ResumeTrigger(ctx context.Context, tenant, key, note string) (trigger.Trigger, error) {
	return s.changeTrigger(ctx, "resume a trigger", tenant, key, func(l *locked) error {
		if err := l.timed(); err != nil || l.row.PausedAt.IsZero() {
			return err
		}
		l.row.PausedAt = time.Time{}
		why, err := l.q.GetPausedNote(ctx, l.row.ID)
		if err != nil {
			return err
		}
		if why == "" || note == "" {
			note = why + note
		} else {
			note = why + "; " + note
		}
		if l.row.SetAsideAt.IsZero() {
			l.row.Enabled = true
			if err := l.resumeSlots(ctx, note); err != nil {
				return err
			}
		}
		if err := l.q.PutPausedNote(ctx, sqlc.PutPausedNoteParams{CronJobID: l.row.ID}); err != nil {
			return err
		}
		return l.writeRow(ctx)
	})
}

func (l *locked) resumeSlots(ctx context.Context, note string) error {
	if l.t.Kind.Once() {
		return nil
	}
	sched, err := timetable(l.row.Schedule, l.row.Zone)
	if err != nil {
		return nil // who looks at it next sets it aside
	}
	return l.skip(ctx, sched, note)
}

func (l *locked) skip(ctx context.Context, sched schedule.Schedule, note string) error {
	skipped, next := cron.Resume(l.row, sched, l.now)
	l.row.Next = next
	if skipped.IsZero() {
		return nil
	}
	reason := "paused"
	if note != "" {
		reason += ": " + note
	}
	return l.q.InsertSkippedRange(ctx, sqlc.InsertSkippedRangeParams{
		CronJobID: l.row.ID, Slot: stamp(skipped.From), SlotTo: stamp(skipped.To), Count: int32(skipped.Count),
		Verdict: sqlc.CarillonVerdict(cron.SkippedPaused), Error: cron.SafeText(reason),
	})
}

func (l *locked) timed() error {
	if l.row.ID == 0 {
		return fmt.Errorf("%w: the clock does not fire triggers of type %s", cron.ErrPrecond, l.t.Kind)
	}
	return nil
}

const forgetPage = 1000

// ForgetTriggers drops triggers that were deleted longer than keep ago, and returns how many.
func (s *Store) ForgetTriggers(ctx context.Context, keep time.Duration) (int, error) {
	for n := 0; ; {
		dropped, err := s.q(s.api).ForgetTriggers(ctx, sqlc.ForgetTriggersParams{KeepSecs: keep.Seconds(), Page: forgetPage})
		if n += int(dropped); err != nil || dropped < forgetPage {
			return n, wrap("forget deleted triggers", err)
		}
	}
}
