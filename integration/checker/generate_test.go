package checker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// world makes a history in which every promise was kept, by living it: jobs of many periods, claims some milliseconds
// after the slot, controllers that are killed or stand still, an outage, pauses, redeploys, runs that overstay.
type world struct {
	rng    *rand.Rand
	start  time.Time
	length time.Duration
	h      History
	minted int
}

func (w *world) ms(from, to int) time.Duration {
	return time.Duration(from)*time.Millisecond + time.Duration(w.rng.Int64N(int64(to-from)*int64(time.Millisecond))).Truncate(time.Microsecond)
}

func (w *world) at(share float64) time.Time {
	return w.start.Add(time.Duration(share * float64(w.length))).Truncate(time.Microsecond)
}

// generate is a clean history of its seed.
func generate(seed uint64) History {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), start: time.Unix(1_800_000_000, 0).Add(123456 * time.Microsecond), length: 90 * time.Second}
	w.h.Read = w.start.Add(w.length)
	killed := []string{"c1", "c2", "c3"}[w.rng.IntN(3)]
	switch w.rng.IntN(4) {
	case 0:
		at := w.at(0.3 + 0.3*w.rng.Float64())
		w.h.Faults = append(w.h.Faults, Fault{Kind: Kill, From: at, To: at, Controller: killed, Recovery: time.Second})
	case 1:
		at := w.at(0.3)
		w.h.Faults = append(w.h.Faults, Fault{Kind: Freeze, From: at, To: at.Add(20 * time.Second), Controller: killed, Recovery: time.Second})
	case 2:
		at := w.at(0.4)
		w.h.Faults = append(w.h.Faults, Fault{Kind: Outage, From: at, To: at.Add(w.ms(3000, 20000)), Recovery: 10 * time.Second})
	}
	for i := range 2 + w.rng.IntN(3) {
		w.live(fmt.Sprintf("m.v%d", i))
	}
	slices.SortStableFunc(w.h.Rows, func(a, b Row) int { return a.EndedAt.Compare(b.EndedAt) })
	slices.SortStableFunc(w.h.Records, func(a, b Record) int { return a.At.Compare(b.At) })
	return w.h
}

// truth is what the database knows and the history does not: when changes really happened.
type truth struct {
	job    Job
	change time.Time // of the schedule; zero: none
	paused [2]time.Time
}

func (t truth) slot(s time.Time) bool {
	era := t.job.Eras[0]
	if !t.change.IsZero() && s.After(t.change) {
		era = t.job.Eras[1]
	}
	return !s.Before(t.job.Eras[0].Acked) && era.Match(s)
}

func (t truth) next(s time.Time) time.Time {
	for s = s.Truncate(time.Second).Add(time.Second); !t.slot(s); s = s.Add(time.Second) {
	}
	return s
}

// last is the last slot from next on that is not after at.
func (t truth) last(next, at time.Time) time.Time {
	for s := at.Truncate(time.Second); s.After(next); s = s.Add(-time.Second) {
		if t.slot(s) {
			return s
		}
	}
	return next
}

func (t truth) count(from, to time.Time) (n int) {
	for s := from; !s.After(to); s = s.Add(time.Second) {
		if t.slot(s) {
			n++
		}
	}
	return n
}

func (w *world) cast(ref string) truth {
	periods := []int64{1, 1, 2, 3, 5, 7}
	pick := func() func(time.Time) bool { p := periods[w.rng.IntN(len(periods))]; return Every(p, w.rng.Int64N(p)) }
	t := truth{job: Job{Ref: ref, Timeout: 4 * time.Second, Eras: []Era{{Asked: w.start, Acked: w.start.Add(w.ms(1, 300)), Match: pick()}}}}
	if w.rng.IntN(3) == 0 {
		t.change = w.at(0.5)
		t.job.Eras = append(t.job.Eras, Era{Asked: t.change.Add(-w.ms(1, 400)), Acked: t.change.Add(w.ms(1, 400)), Match: pick()})
	}
	if w.rng.IntN(3) == 0 {
		t.paused = [2]time.Time{w.at(0.15), w.at(0.15 + 0.1*w.rng.Float64())}
		t.job.Pauses = []Pause{{Asked: t.paused[0].Add(-w.ms(1, 200)), Acked: t.paused[0].Add(w.ms(1, 200)),
			ResumeAsked: t.paused[1].Add(-w.ms(1, 200)), ResumeAcked: t.paused[1].Add(w.ms(1, 200))}}
	}
	return t
}

// away says whether Postgres was away at t, and until when.
func (w *world) away(t time.Time) (time.Time, bool) {
	for _, f := range w.h.Faults {
		if f.Kind == Outage && f.covers(t, 0) {
			return f.To.Add(w.ms(1, 3000)), true
		}
	}
	return t, false
}

// controller picks one that lives at t.
func (w *world) controller(t time.Time) string {
	for {
		c := []string{"c1", "c2", "c3"}[w.rng.IntN(3)]
		gone := false
		for _, f := range w.h.Faults {
			gone = gone || f.Controller == c && !t.Before(f.From.Add(-10*time.Millisecond)) && (f.Kind == Kill || t.Before(f.To.Add(time.Second)))
		}
		if !gone {
			return c
		}
	}
}

// live runs one job through the time of the world.
func (w *world) live(ref string) {
	t := w.cast(ref)
	w.h.Jobs = append(w.h.Jobs, t.job)
	next, ready, executing := t.next(t.job.Eras[0].Acked), time.Time{}, (*Final)(nil)
	for executing == nil {
		claim := next.Add(w.ms(1, 40))
		if ready.After(claim) {
			claim = ready
		}
		claim, _ = w.away(claim)
		if p := t.paused; !p[0].IsZero() && !claim.Before(p[0]) && claim.Before(p[1]) {
			if to := t.last(next, p[1]); !next.After(p[1]) {
				w.skip(t, next, to, "skipped_paused", p[1])
				next = t.next(to)
			}
			ready = p[1].Add(time.Millisecond)
			continue
		}
		if !claim.Before(w.h.Read) {
			break
		}
		slot := t.last(next, claim)
		if slot.After(next) {
			w.skip(t, next, t.last(next, slot.Add(-time.Second)), "skipped_missed", claim)
		}
		next = t.next(slot)
		end, verdict := w.run(t, slot, claim)
		if verdict == "" {
			executing = &Final{Ref: ref, Next: next, Enabled: true, Executing: true, Slot: slot, RunID: w.id(), OwnerLive: true}
			break
		}
		byEnd := verdict != "lost" && verdict != "timed_out" && w.rng.IntN(5) > 0
		if to := t.last(next, end); byEnd && !next.After(end) {
			w.skip(t, next, to, "skipped_overlap", end)
			next = t.next(to)
		}
		ready = end.Add(time.Millisecond)
	}
	if executing == nil {
		executing = &Final{Ref: ref, Next: next, Enabled: true}
	}
	w.h.Final = append(w.h.Final, *executing)
}

func (w *world) skip(t truth, from, to time.Time, verdict string, at time.Time) {
	n := t.count(from, to)
	w.h.Rows = append(w.h.Rows, Row{Ref: t.job.Ref, Slot: from, SlotTo: to, Count: n, Verdict: verdict, EndedAt: at})
}

func (w *world) id() string { return fmt.Sprintf("run-%d", w.minted) }

// run starts one at the claim and says how it ended; an empty verdict: it goes on when the ledger is read.
func (w *world) run(t truth, slot, claim time.Time) (end time.Time, verdict string) {
	w.minted++
	row := Row{Ref: t.job.Ref, Slot: slot, SlotTo: slot, Count: 1, RunID: w.id(), Controller: w.controller(claim), StartedAt: claim, Verdict: "succeeded"}
	took := w.ms(1, 300)
	if w.rng.IntN(8) == 0 {
		took = w.ms(300, 3500)
	}
	begin := claim.Add(w.ms(0, 10) + time.Microsecond)
	record := Record{Runner: "r1", Begin: true, Ref: row.Ref, RunID: row.RunID, Slot: slot, At: begin}
	stop := Record{Runner: "r1", Ref: row.Ref, RunID: row.RunID, Slot: slot, At: begin.Add(took)}
	row.EndedAt = stop.At.Add(w.ms(1, 10))
	switch w.rng.IntN(20) {
	case 0:
		row.Verdict, stop.Err = "failed", "no"
	case 1:
		row.Verdict = "timed_out"
		row.EndedAt = claim.Add(t.job.Timeout + w.ms(0, 900))
		stop.At = stop.At.Add(30 * time.Second)
	}
	for _, f := range w.h.Faults {
		if f.Controller == row.Controller && f.Kind != Outage && f.From.After(claim) && !f.From.After(row.EndedAt.Add(deathSlack)) {
			row.Verdict, row.EndedAt = "lost", f.From.Add(w.ms(6000, 9000))
			if stop.At.After(f.From) && f.Kind == Kill && w.rng.IntN(2) == 0 {
				stop.At = f.From.Add(w.ms(0, 50)) // the runner lost its caller
				stop.Err = "cancelled"
			}
		}
	}
	row.EndedAt, _ = w.away(row.EndedAt)
	if !begin.Before(w.h.Read) || !row.EndedAt.Before(w.h.Read) {
		return row.EndedAt, ""
	}
	w.h.Records = append(w.h.Records, record)
	if stop.At.Before(w.h.Read) {
		w.h.Records = append(w.h.Records, stop)
	}
	w.h.Rows = append(w.h.Rows, row)
	return row.EndedAt, row.Verdict
}
