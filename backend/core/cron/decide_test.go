package cron

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"carillon/backend/core/schedule"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func at(offset time.Duration) time.Time { return noon.Add(offset) }

func parse(tb testing.TB, expr string) schedule.Schedule {
	tb.Helper()
	s, err := schedule.Parse(expr, schedule.Verb, time.UTC)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func idle(next time.Time, catchup Catchup) Job {
	return Job{ID: 1, Ref: "m.v", Version: 3, Enabled: true, State: Idle, Next: next, Catchup: catchup}
}

func TestDecideFollowsTheCatchupPolicy(t *testing.T) {
	const minute = time.Minute
	tests := []struct {
		name    string
		expr    string
		next    time.Time
		now     time.Time
		catchup Catchup
		want    Decision
	}{
		{"not due", "* * * * *", at(minute), at(59 * time.Second), CatchupLast, Decision{}},
		{"exhausted", "* * * * *", time.Time{}, at(0), CatchupLast, Decision{}},
		{"due now", "* * * * *", at(0), at(0), CatchupLast, Decision{Slot: at(0), Next: at(minute)}},
		{"last runs the latest", "* * * * *", at(0), at(3*minute + 1), CatchupLast,
			Decision{Slot: at(3 * minute), Skip: Range{at(0), at(2 * minute), 3}, Next: at(4 * minute)}},
		{"none runs what is young", "* * * * *", at(0), at(minute + NoneWindow), CatchupNone,
			Decision{Slot: at(minute), Skip: Range{at(0), at(0), 1}, Next: at(2 * minute)}},
		{"none skips what is old", "* * * * *", at(0), at(minute + NoneWindow + 1), CatchupNone,
			Decision{Skip: Range{at(0), at(minute), 2}, Next: at(2 * minute)}},
		{"all runs the oldest", "* * * * *", at(0), at(3 * minute), CatchupAll, Decision{Slot: at(0), Next: at(minute)}},
		{"all keeps a hundred", "* * * * *", at(0), at(99 * minute), CatchupAll, Decision{Slot: at(0), Next: at(minute)}},
		{"all skips the hundred and first", "* * * * *", at(0), at(101 * minute), CatchupAll,
			Decision{Slot: at(2 * minute), Skip: Range{at(0), at(minute), 2}, Next: at(3 * minute)}},
		{"a slot that the schedule lost still counts", "0 * * * *", at(-30 * minute), at(-29 * minute), CatchupLast,
			Decision{Slot: at(-30 * minute), Next: at(0)}},
		{"and is skipped for a later one", "0 * * * *", at(-30 * minute), at(0), CatchupLast,
			Decision{Slot: at(0), Skip: Range{at(-30 * minute), at(-30 * minute), 1}, Next: at(60 * minute)}},
		{"the last slot of all", "0 0 12 2 3 * 2026", at(0), at(1), CatchupLast, Decision{Slot: at(0)}},
		{"a count stops", "* * * * * *", at(-300_000 * time.Second), at(0), CatchupLast,
			Decision{Slot: at(0), Skip: Range{at(-300_000 * time.Second), at(-time.Second), MaxCount}, Next: at(time.Second)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Decide(idle(tt.next, tt.catchup), parse(t, tt.expr), tt.now); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
	for name, change := range map[string]func(*Job){
		"disabled": func(j *Job) { j.Enabled = false }, "executing": func(j *Job) { j.State = Executing },
	} {
		job := idle(at(0), CatchupLast)
		if change(&job); !Decide(job, parse(t, "* * * * *"), at(minute)).IsZero() {
			t.Errorf("a job that is %s was claimed", name)
		}
	}
}

// Whatever the policy and the instant, repeated decisions give each slot exactly one verdict, in order, never early.
func TestEachSlotIsDecidedOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	exprs := []string{"* * * * * *", "*/7 * * * * *", "* * * * *", "3,17 */2 * * *", "30 2 * * *", "0 0 1 * *", "0 0 12 2 3 * 2026"}
	for i := range 400 {
		sched := parse(t, exprs[rnd.IntN(len(exprs))])
		catchup := []Catchup{CatchupLast, CatchupNone, CatchupAll}[rnd.IntN(3)]
		job := idle(at(time.Duration(rnd.IntN(7200)-3600)*time.Second), catchup) // often no slot of the schedule
		now := job.Next.Add(time.Duration(rnd.Int64N(int64(20 * time.Minute))))
		var slots []time.Time
		for s := job.Next; !s.IsZero() && !s.After(now); s = FirstAfter(sched, s) {
			slots = append(slots, s)
		}
		name := fmt.Sprintf("%d: %v %s next %v now %v", i, sched, catchup, job.Next, now)
		ran, backlog := 0, len(slots)
		for {
			d := Decide(job, sched, now)
			if d.IsZero() {
				break
			}
			n := 0
			if !d.Skip.IsZero() {
				for n < len(slots) && !slots[n].After(d.Skip.To) {
					n++
				}
				if n != d.Skip.Count || d.Skip.From != slots[0] || d.Skip.To != slots[n-1] {
					t.Fatalf("%s: range %+v is not the first %d of %v", name, d.Skip, n, slots)
				}
			}
			if !d.Slot.IsZero() {
				if n >= len(slots) || d.Slot != slots[n] {
					t.Fatalf("%s: runs %v after %d skipped of %v", name, d.Slot, n, slots)
				}
				ran++
				n++
			}
			if want := FirstAfter(sched, slots[n-1]); d.Next != want {
				t.Fatalf("%s: next %v, want %v", name, d.Next, want)
			}
			slots, job.Next = slots[n:], d.Next
		}
		if len(slots) > 0 {
			t.Fatalf("%s: undecided %v", name, slots)
		}
		if catchup == CatchupAll && ran != min(backlog, AllBacklog) || catchup == CatchupLast && ran != min(backlog, 1) || ran > 1 && catchup == CatchupNone {
			t.Fatalf("%s: ran %d of %d", name, ran, backlog)
		}
	}
}

func TestOverlappedSlotsAreThoseThatCameWhileItRan(t *testing.T) {
	sched, next := parse(t, "* * * * *"), at(time.Minute)
	job := idle(next, CatchupLast)
	job.Current.Slot = at(0)
	check := func(name string, job Job, next, now time.Time, want Range, wantNext time.Time) {
		t.Helper()
		if got, gotNext := Overlapped(job, sched, next, now); got != want || gotNext != wantNext {
			t.Errorf("%s: got %+v, %v; want %+v, %v", name, got, gotNext, want, wantNext)
		}
	}
	check("in time", job, next, at(59*time.Second), Range{}, next)
	check("at the slot", job, next, next, Range{next, next, 1}, at(2*time.Minute))
	check("after some", job, next, at(4*time.Minute+1), Range{next, at(4 * time.Minute), 4}, at(5*time.Minute))
	check("no next slot", job, time.Time{}, at(time.Hour), Range{}, time.Time{})
	manual := job
	manual.Current = Run{Slot: at(90 * time.Second), Kind: ManualRun}
	check("due before a manual run", manual, next, at(3*time.Minute), Range{}, next)
	all, paused := job, job
	all.Catchup, paused.Enabled = CatchupAll, false
	check("all: the backlog has them", all, next, at(4*time.Minute), Range{}, next)
	check("paused: resume has them", paused, next, at(4*time.Minute), Range{}, next)
}

func TestResumeWritesOneRangeAndGoesOn(t *testing.T) {
	sched := parse(t, "* * * * *")
	job := idle(at(0), CatchupLast)
	job.Enabled = false
	if r, next := Resume(job, sched, at(150*time.Second)); r != (Range{at(0), at(2 * time.Minute), 3}) || next != at(3*time.Minute) {
		t.Errorf("got %+v, %v", r, next)
	}
	job.Next = at(time.Hour)
	if r, next := Resume(job, sched, at(0)); !r.IsZero() || next != at(time.Minute) {
		t.Errorf("nothing passed: got %+v, %v", r, next)
	}
}

func TestArmedIsTheNextSlotThatCanBeWon(t *testing.T) {
	sched := parse(t, "* * * * *")
	job := idle(at(0), CatchupLast)
	if got := Armed(job, sched, at(10*time.Minute)); got != at(0) {
		t.Errorf("idle and overdue: %v", got)
	}
	job.State = Executing
	if got := Armed(job, sched, at(10*time.Minute)); got != at(11*time.Minute) {
		t.Errorf("executing: %v", got)
	}
	job.Enabled = false
	if got := Armed(job, sched, at(0)); !got.IsZero() {
		t.Errorf("disabled: %v", got)
	}
}

func TestTooFarFindsWhatAJumpOfTheClockLeft(t *testing.T) {
	sched := parse(t, "* * * * *")
	job := idle(at(240*time.Hour), CatchupLast)
	job.Current.Slot = at(239 * time.Hour)
	if next, ok := TooFar(job, sched, at(0)); !ok || next != at(time.Minute) {
		t.Errorf("ten days ahead: %v, %v", next, ok)
	}
	job.Next = time.Time{}
	if next, ok := TooFar(job, sched, at(0)); !ok || next != at(time.Minute) {
		t.Errorf("missing: %v, %v", next, ok)
	}
	job.Next, job.Current.Slot = at(61*time.Minute), at(time.Hour)
	if next, ok := TooFar(job, sched, at(0)); ok {
		t.Errorf("a clock stepped back by an hour would repeat slots from %v", next)
	}
	for _, next := range []time.Time{at(-time.Hour), at(0), at(time.Minute)} {
		job.Next, job.Current.Slot = next, at(-2*time.Hour)
		if to, ok := TooFar(job, sched, at(0)); ok {
			t.Errorf("%v is right, mended to %v", next, to)
		}
	}
	if _, ok := TooFar(idle(time.Time{}, CatchupLast), parse(t, "0 0 12 1 1 * 2020"), at(0)); ok {
		t.Error("an exhausted schedule was mended")
	}
}
