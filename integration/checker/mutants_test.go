package checker

import (
	"math/rand/v2"
	"slices"
	"time"
)

// mutation breaks one promise in a clean history; false: this history gives no occasion.
type mutation struct {
	name   string
	want   []Kind // one of these must be found
	mutate func(*rand.Rand, *History) bool
}

// pick returns the index of a random row that fits, or -1.
func pick(rng *rand.Rand, h *History, fits func(Row) bool) int {
	for _, i := range rng.Perm(len(h.Rows)) {
		if fits(h.Rows[i]) {
			return i
		}
	}
	return -1
}

// onRow mutates one row that fits.
func onRow(fits func(*History, Row) bool, change func(*rand.Rand, *History, *Row) bool) func(*rand.Rand, *History) bool {
	return func(rng *rand.Rand, h *History) bool {
		i := pick(rng, h, func(r Row) bool { return fits(h, r) })
		return i >= 0 && change(rng, h, &h.Rows[i])
	}
}

func is(verdicts ...string) func(*History, Row) bool {
	return func(_ *History, r Row) bool { return slices.Contains(verdicts, r.Verdict) }
}

// calm are runs with no fault, deploy or resume near.
func calm(h *History, r Row) bool {
	near := func(t time.Time) bool { return t.Sub(r.Slot).Abs() < 40*time.Second }
	for _, f := range h.Faults {
		if near(f.From) || near(f.To) {
			return false
		}
	}
	for _, j := range h.Jobs {
		for _, e := range j.Eras {
			if e.Asked.Sub(r.Slot).Abs() < 8*time.Second {
				return false
			}
		}
		for _, p := range j.Pauses {
			if p.Asked.Sub(r.Slot).Abs() < 8*time.Second || p.ResumeAcked.Sub(r.Slot).Abs() < 8*time.Second {
				return false
			}
		}
	}
	return r.RunID != ""
}

// following is the next run of the same job.
func following(h *History, r Row) *Row {
	var next *Row
	for i := range h.Rows {
		o := &h.Rows[i]
		if o.Ref == r.Ref && o.RunID != "" && o.StartedAt.After(r.StartedAt) && (next == nil || o.StartedAt.Before(next.StartedAt)) {
			next = o
		}
	}
	return next
}

func records(h *History, run string) (begin, end *Record) {
	for i := range h.Records {
		if r := &h.Records[i]; r.RunID == run && r.Begin {
			begin = r
		} else if r.RunID == run {
			end = r
		}
	}
	return begin, end
}

func dropRecords(h *History, gone func(Record) bool) bool {
	n := len(h.Records)
	h.Records = slices.DeleteFunc(h.Records, gone)
	return len(h.Records) < n
}

var anyRun = func(_ *History, r Row) bool { return r.RunID != "" }

var mutations = []mutation{
	{"a row is missing", []Kind{Lost}, onRow(func(h *History, r Row) bool { return certain(h, r) }, func(_ *rand.Rand, h *History, r *Row) bool {
		gone := *r
		h.Rows = slices.DeleteFunc(h.Rows, func(o Row) bool { return o == gone })
		return true
	})},
	{"a slot claimed twice", []Kind{Ambiguous}, onRow(anyRun, func(_ *rand.Rand, h *History, r *Row) bool {
		twin := *r
		twin.RunID += "-twin"
		h.Rows = append(h.Rows, twin)
		return true
	})},
	{"an end counted twice", []Kind{Zombie}, onRow(anyRun, func(_ *rand.Rand, h *History, r *Row) bool {
		twin := *r
		h.Rows = append(h.Rows, twin)
		return true
	})},
	{"a claim before the slot", []Kind{Early}, onRow(anyRun, func(rng *rand.Rand, _ *History, r *Row) bool {
		r.StartedAt = r.Slot.Add(-time.Duration(1+rng.IntN(900_000)) * time.Microsecond)
		return true
	})},
	{"a begin before the slot", []Kind{Early}, onRow(anyRun, func(rng *rand.Rand, h *History, r *Row) bool {
		begin, _ := records(h, r.RunID)
		begin.At = r.Slot.Add(-time.Duration(1+rng.IntN(900_000)) * time.Microsecond)
		return true
	})},
	{"a begin before the claim", []Kind{Early}, onRow(anyRun, func(_ *rand.Rand, h *History, r *Row) bool {
		begin, _ := records(h, r.RunID)
		begin.At = r.StartedAt.Add(-time.Microsecond)
		return true
	})},
	{"a late start", []Kind{Late}, onRow(calmAndFree, func(_ *rand.Rand, h *History, r *Row) bool {
		begin, end := records(h, r.RunID)
		for _, t := range []*time.Time{&r.StartedAt, &r.EndedAt, &begin.At, &end.At} {
			*t = t.Add(1100 * time.Millisecond)
		}
		return true
	})},
	{"a late begin", []Kind{Late}, onRow(calmAndFree, func(_ *rand.Rand, h *History, r *Row) bool {
		begin, end := records(h, r.RunID)
		for _, t := range []*time.Time{&r.EndedAt, &begin.At, &end.At} {
			*t = t.Add(1100 * time.Millisecond)
		}
		return true
	})},
	{"runs swapped", []Kind{Ghost}, func(rng *rand.Rand, h *History) bool {
		i := pick(rng, h, func(r Row) bool { return r.RunID != "" })
		k := pick(rng, h, func(r Row) bool { return r.RunID != "" && i >= 0 && r.RunID != h.Rows[i].RunID })
		if i < 0 || k < 0 {
			return false
		}
		h.Rows[i].RunID, h.Rows[k].RunID = h.Rows[k].RunID, h.Rows[i].RunID
		return true
	}},
	{"a verb begun by two runners", []Kind{DupEffect}, onRow(anyRun, func(_ *rand.Rand, h *History, r *Row) bool {
		begin, _ := records(h, r.RunID)
		twin := *begin
		twin.Runner, twin.At = "r2", twin.At.Add(time.Millisecond)
		h.Records = append(h.Records, twin)
		return true
	})},
	{"a verb begun twice by one runner", []Kind{DupEffect}, onRow(anyRun, func(_ *rand.Rand, h *History, r *Row) bool {
		begin, _ := records(h, r.RunID)
		h.Records = append(h.Records, *begin)
		return true
	})},
	{"a slot begun again under a new run", []Kind{DupEffect}, onRow(anyRun, func(_ *rand.Rand, h *History, r *Row) bool {
		begin, _ := records(h, r.RunID)
		twin := *begin
		twin.RunID, twin.At = twin.RunID+"-twin", twin.At.Add(20*time.Second)
		h.Records = append(h.Records, twin)
		return true
	})},
	{"a success that nobody saw", []Kind{Forged}, onRow(is("succeeded"), func(_ *rand.Rand, h *History, r *Row) bool {
		run := r.RunID
		return dropRecords(h, func(o Record) bool { return o.RunID == run })
	})},
	{"a success without an end", []Kind{Forged}, onRow(is("succeeded"), func(_ *rand.Rand, h *History, r *Row) bool {
		run := r.RunID
		return dropRecords(h, func(o Record) bool { return o.RunID == run && !o.Begin })
	})},
	{"a failure called a success", []Kind{Forged}, onRow(is("failed"), func(_ *rand.Rand, _ *History, r *Row) bool {
		r.Verdict = "succeeded"
		return true
	})},
	{"a timeout called a success", []Kind{Forged}, onRow(is("timed_out"), func(_ *rand.Rand, _ *History, r *Row) bool {
		r.Verdict = "succeeded"
		return true
	})},
	{"a lost run called a success", []Kind{Forged, Zombie}, onRow(is("lost"), func(_ *rand.Rand, _ *History, r *Row) bool {
		r.Verdict = "succeeded"
		return true
	})},
	{"a dead controller's end taken", []Kind{Zombie, Forged}, onRow(is("lost"), func(_ *rand.Rand, h *History, r *Row) bool {
		r.Verdict = "failed"
		return true
	})},
	{"a zombie not reset", []Kind{DoubleClaim}, onRow(is("lost", "timed_out"), func(_ *rand.Rand, h *History, r *Row) bool {
		next := following(h, *r)
		if next == nil {
			return false
		}
		r.EndedAt = next.StartedAt.Add(time.Microsecond)
		return true
	})},
	{"an end after the next claim", []Kind{DoubleClaim}, onRow(anyRun, func(rng *rand.Rand, h *History, r *Row) bool {
		next := following(h, *r)
		if next == nil {
			return false
		}
		r.EndedAt = next.StartedAt.Add(time.Duration(1+rng.IntN(5000)) * time.Microsecond)
		return true
	})},
	{"a run goes on while the next begins", []Kind{Overlap, Forged}, onRow(is("succeeded"), func(_ *rand.Rand, h *History, r *Row) bool {
		next := following(h, *r)
		_, end := records(h, r.RunID)
		if next == nil || end == nil {
			return false
		}
		end.At = next.EndedAt
		return true
	})},
	{"the next begins while a run goes on", []Kind{Overlap}, onRow(is("succeeded"), func(_ *rand.Rand, h *History, r *Row) bool {
		next := following(h, *r)
		if next == nil {
			return false
		}
		begin, _ := records(h, next.RunID)
		_, end := records(h, r.RunID)
		begin.At = end.At.Add(-time.Microsecond)
		return true
	})},
	{"a range one slot short", []Kind{Lost, Ghost}, onRow(func(h *History, r Row) bool { return r.RunID == "" && r.Count > 1 && certain(h, r) }, func(_ *rand.Rand, h *History, r *Row) bool {
		r.SlotTo = r.SlotTo.Add(-time.Second)
		return true
	})},
	{"a range one slot long", []Kind{Ambiguous, Ghost}, onRow(func(h *History, r Row) bool { return r.RunID == "" }, func(_ *rand.Rand, h *History, r *Row) bool {
		r.SlotTo = r.SlotTo.Add(time.Second)
		r.EndedAt = r.EndedAt.Add(time.Second)
		return true
	})},
	{"a range counted wrong", []Kind{Ghost}, onRow(func(_ *History, r Row) bool { return r.RunID == "" }, func(_ *rand.Rand, _ *History, r *Row) bool {
		r.Count += 5
		return true
	})},
	{"a range decided before it was over", []Kind{Early}, onRow(func(_ *History, r Row) bool { return r.RunID == "" }, func(_ *rand.Rand, _ *History, r *Row) bool {
		r.EndedAt = r.SlotTo.Add(-time.Microsecond)
		return true
	})},
	{"missed without a reason", []Kind{Excuse}, onRow(calmAndFree, func(_ *rand.Rand, h *History, r *Row) bool { return toSkip(h, r, "skipped_missed") })},
	{"overlapped without another run", []Kind{Excuse}, onRow(calmAndFree, func(_ *rand.Rand, h *History, r *Row) bool { return toSkip(h, r, "skipped_overlap") })},
	{"paused without a pause", []Kind{Excuse}, onRow(calmAndFree, func(_ *rand.Rand, h *History, r *Row) bool { return toSkip(h, r, "skipped_paused") })},
	{"lost without a death", []Kind{Excuse}, onRow(calmRun, func(_ *rand.Rand, _ *History, r *Row) bool { r.Verdict = "lost"; return true })},
	{"cancelled without a drain", []Kind{Excuse}, onRow(calmRun, func(_ *rand.Rand, _ *History, r *Row) bool { r.Verdict = "cancelled"; return true })},
	{"failed without a failure", []Kind{Excuse}, onRow(calmRun, func(_ *rand.Rand, _ *History, r *Row) bool { r.Verdict = "failed"; return true })},
	{"timed out too soon", []Kind{Excuse}, onRow(calmAndFree, func(_ *rand.Rand, _ *History, r *Row) bool { r.Verdict = "timed_out"; return true })},
	{"a slot between the slots", []Kind{Ghost}, onRow(anyRun, func(rng *rand.Rand, _ *History, r *Row) bool {
		r.Slot = r.Slot.Add(-time.Duration(1+rng.IntN(999_999)) * time.Microsecond)
		return true
	})},
	{"a run of nobody's cron job", []Kind{Ghost}, onRow(anyRun, func(_ *rand.Rand, _ *History, r *Row) bool { r.Ref = "m.other"; return true })},
	{"a run in a pause", []Kind{Ghost}, func(rng *rand.Rand, h *History) bool {
		for _, j := range h.Jobs {
			for _, p := range j.Pauses {
				at := p.Acked.Add(time.Second)
				if at.After(p.ResumeAsked) {
					continue
				}
				slot := at.Truncate(time.Second)
				h.Rows = append(h.Rows, Row{Ref: j.Ref, Slot: slot, SlotTo: slot, Count: 1, RunID: "paused", Controller: "c1", StartedAt: at, EndedAt: at, Verdict: "failed"})
				return true
			}
		}
		return false
	}},
	{"an effect of no run", []Kind{Ghost}, func(rng *rand.Rand, h *History) bool {
		h.Records = append(h.Records, Record{Runner: "r1", Begin: true, Ref: h.Jobs[0].Ref, RunID: "ghost", Slot: h.Read, At: h.Read.Add(time.Minute)})
		return true
	}},
	{"an end without a begin", []Kind{Ghost}, onRow(is("succeeded"), func(_ *rand.Rand, h *History, r *Row) bool {
		run := r.RunID
		return dropRecords(h, func(o Record) bool { return o.RunID == run && o.Begin })
	})},
	{"a row left idle and due", []Kind{Wedged}, func(rng *rand.Rand, h *History) bool {
		f := &h.Final[rng.IntN(len(h.Final))]
		f.Executing, f.Next = false, h.Read.Truncate(time.Second).Add(-16*time.Second)
		return len(h.Faults) == 0 || h.Faults[0].Kind != Outage
	}},
	{"a row without a next slot", []Kind{Wedged}, func(rng *rand.Rand, h *History) bool {
		h.Final[rng.IntN(len(h.Final))].Next = time.Time{}
		return true
	}},
	{"a next slot too far", []Kind{Wedged, Lost}, func(rng *rand.Rand, h *History) bool {
		f := &h.Final[rng.IntN(len(h.Final))]
		f.Next = f.Next.Add(210 * time.Second)
		return true
	}},
	{"a next slot that was decided", []Kind{Ambiguous}, func(rng *rand.Rand, h *History) bool {
		i := pick(rng, h, func(r Row) bool { return true })
		for k := range h.Final {
			if f := &h.Final[k]; f.Ref == h.Rows[i].Ref {
				f.Next = h.Rows[i].Slot
			}
		}
		return true
	}},
	{"slots left undecided", []Kind{Lost}, func(rng *rand.Rand, h *History) bool {
		if len(h.Faults) > 0 {
			return false
		}
		f := &h.Final[rng.IntN(len(h.Final))]
		i := pick(rng, h, func(r Row) bool {
			since := h.Read.Sub(r.Slot)
			return r.Ref == f.Ref && r.RunID != "" && since > 7*time.Second && since < 14*time.Second
		})
		if i < 0 {
			return false
		}
		f.Executing, f.RunID, f.Next = false, "", h.Rows[i].Slot
		h.Rows = slices.DeleteFunc(h.Rows, func(r Row) bool { return r.Ref == f.Ref && !r.SlotTo.Before(f.Next) })
		return true
	}},
	{"executing under a dead controller", []Kind{Wedged}, func(rng *rand.Rand, h *History) bool {
		for i := range h.Final {
			if h.Final[i].Executing {
				h.Final[i].OwnerLive = false
				return true
			}
		}
		return false
	}},
	{"ended and current still", []Kind{Zombie}, func(rng *rand.Rand, h *History) bool {
		f := &h.Final[rng.IntN(len(h.Final))]
		i := pick(rng, h, func(r Row) bool { return r.RunID != "" && r.Ref == f.Ref })
		if i < 0 {
			return false
		}
		f.Executing, f.RunID, f.Slot, f.OwnerLive = true, h.Rows[i].RunID, h.Rows[i].Slot, true
		return true
	}},
	{"a watcher saw a wedge", []Kind{Wedged}, func(rng *rand.Rand, h *History) bool {
		h.Samples = append(h.Samples, Sample{At: h.Read, Ref: h.Jobs[0].Ref, Text: "due for 20 s"})
		return len(h.Faults) == 0 || h.Faults[0].Kind != Outage
	}},
	{"a job forgotten", []Kind{Lost, Wedged}, func(rng *rand.Rand, h *History) bool {
		ref := h.Jobs[rng.IntN(len(h.Jobs))].Ref
		h.Rows = slices.DeleteFunc(h.Rows, func(r Row) bool { return r.Ref == ref })
		return true
	}},
}

// certain are rows of which each slot is one under every schedule that may have been in force.
func certain(h *History, r Row) bool {
	for _, j := range h.Jobs {
		if j.Ref == r.Ref {
			o := newOracle(j)
			return o.at(r.Slot) == must && o.at(r.SlotTo) == must
		}
	}
	return false
}

func calmRun(h *History, r Row) bool { return r.Verdict == "succeeded" && calm(h, r) }

// calmAndFree are short runs with a second of nothing on both sides.
func calmAndFree(h *History, r Row) bool {
	if !calmRun(h, r) || r.EndedAt.Sub(r.StartedAt) > time.Second {
		return false
	}
	for _, o := range h.Rows {
		if o.Ref == r.Ref && o != r && o.EndedAt.After(r.Slot.Add(-2*time.Second)) && o.Slot.Before(r.EndedAt.Add(1500*time.Millisecond)) {
			return false
		}
	}
	return true
}

// toSkip makes a run a skip, and its effect disappear.
func toSkip(h *History, r *Row, verdict string) bool {
	run := r.RunID
	*r = Row{Ref: r.Ref, Slot: r.Slot, SlotTo: r.SlotTo, Count: 1, Verdict: verdict, EndedAt: r.EndedAt}
	return dropRecords(h, func(o Record) bool { return o.RunID == run })
}
