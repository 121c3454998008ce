package checker

import (
	"math/rand/v2"
	"slices"
	"time"
)

// workMutation breaks one promise in a clean history of a queue; false: this history gives no occasion.
type workMutation struct {
	name   string
	want   []Kind
	mutate func(*rand.Rand, *Work) bool
}

// onEnded mutates a random ended job that fits.
func onEnded(fits func(*Work, *EndedJob) bool, change func(*Work, *EndedJob)) func(*rand.Rand, *Work) bool {
	return func(rng *rand.Rand, w *Work) bool {
		for _, i := range rng.Perm(len(w.Ended)) {
			if e := &w.Ended[i]; fits(w, e) {
				change(w, e)
				return true
			}
		}
		return false
	}
}

func onLive(fits func(LiveJob) bool, change func(*Work, *LiveJob)) func(*rand.Rand, *Work) bool {
	return func(_ *rand.Rand, w *Work) bool {
		i := slices.IndexFunc(w.Live, fits)
		if i >= 0 {
			change(w, &w.Live[i])
		}
		return i >= 0
	}
}

func inState(states ...string) func(*Work, *EndedJob) bool {
	return func(_ *Work, e *EndedJob) bool { return slices.Contains(states, e.State) && e.Run != "" }
}

// still is a job in whose way no fault was.
func still(w *Work, e *EndedJob) bool {
	first := doingsOf(w, e.ID)
	if len(first) == 0 || e.State != "succeeded" {
		return false
	}
	for _, f := range w.Faults {
		if f.From.After(first[0].At.Add(-20*time.Second)) && f.From.Before(e.Ended.Add(10*time.Second)) {
			return false
		}
	}
	return true
}

func doingsOf(w *Work, id int64) (all []*Doing) {
	for i := range w.Doings {
		if w.Doings[i].Job == id {
			all = append(all, &w.Doings[i])
		}
	}
	return all
}

func doingOf(w *Work, run string, begin bool) *Doing {
	for i := range w.Doings {
		if w.Doings[i].Run == run && w.Doings[i].Begin == begin {
			return &w.Doings[i]
		}
	}
	return nil
}

func dropEnded(w *Work, id int64) {
	w.Ended = slices.DeleteFunc(w.Ended, func(e EndedJob) bool { return e.ID == id })
}

func hasError(verdict string) func(*Work, *EndedJob) bool {
	return func(_ *Work, e *EndedJob) bool {
		return slices.ContainsFunc(e.Errors, func(x JobError) bool { return x.Run != "" && x.Verdict == verdict })
	}
}

// another run of a job beside its last one.
func another(w *Work, e *EndedJob, at time.Time) {
	d := Doing{Runner: "r2", Begin: true, Run: "run-ghost", Ref: e.Ref, Job: e.ID, Attempt: e.Attempt, At: at}
	w.Doings = append(w.Doings, d)
	d.Begin, d.Said, d.At = false, "ok", at.Add(100*time.Microsecond)
	w.Doings = append(w.Doings, d)
}

var workMutations = []workMutation{
	{"a job is gone", []Kind{Lost}, onEnded(func(*Work, *EndedJob) bool { return true }, func(w *Work, e *EndedJob) { dropEnded(w, e.ID) })},
	{"a live job is gone", []Kind{Lost}, onLive(func(l LiveJob) bool { return l.State == "ready" }, func(w *Work, l *LiveJob) {
		id := l.ID
		w.Live = slices.DeleteFunc(w.Live, func(o LiveJob) bool { return o.ID == id })
	})},
	{"acknowledged without a name", []Kind{Lost}, func(rng *rand.Rand, w *Work) bool {
		w.Acks[rng.IntN(len(w.Acks))].ID = 0
		return true
	}},
	{"a job ended twice", []Kind{Ambiguous}, onEnded(inState("succeeded", "failed"), func(w *Work, e *EndedJob) { w.Ended = append(w.Ended, *e) })},
	{"ended and live", []Kind{Ambiguous}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		w.Live = append(w.Live, LiveJob{ID: e.ID, Mark: e.Mark, Ref: e.Ref, State: "ready", Due: w.Read.Add(time.Minute)})
	})},
	{"one wish became two jobs", []Kind{Ambiguous}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		twin := *e
		twin.ID, twin.Run = e.ID+10_000, "run-twin"
		w.Ended = append(w.Ended, twin)
		w.Acks = append(w.Acks, Ack{Mark: e.Mark, ID: twin.ID})
	})},
	{"one job for two wishes", []Kind{Ambiguous}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		w.Asks = append(w.Asks, Ask{Mark: "other", Ref: e.Ref})
		w.Acks = append(w.Acks, Ack{Mark: "other", ID: e.ID, Existing: true})
	})},
	{"made twice", []Kind{Ambiguous}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		w.Acks = append(w.Acks, Ack{Mark: e.Mark, ID: e.ID})
	})},
	{"nobody asked", []Kind{Ghost}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		w.Ended = append(w.Ended, EndedJob{ID: e.ID + 10_000, Mark: "nobody", Ref: e.Ref, State: "cancelled", Ended: e.Ended})
	})},
	{"a job of another verb", []Kind{Ghost}, onEnded(inState("succeeded"), func(_ *Work, e *EndedJob) { e.Ref = "m.other" })},
	{"a success that nobody saw", []Kind{Forged}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		w.Doings = slices.DeleteFunc(w.Doings, func(d Doing) bool { return d.Run == e.Run })
	})},
	{"a success without an end", []Kind{Forged}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		w.Doings = slices.DeleteFunc(w.Doings, func(d Doing) bool { return d.Run == e.Run && !d.Begin })
	})},
	{"a success of a failure", []Kind{Forged}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) { doingOf(w, e.Run, false).Said = "fail" })},
	{"a success before the verb's", []Kind{Forged}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		e.Ended = doingOf(w, e.Run, false).At.Add(-time.Microsecond)
	})},
	{"a success called a failure", []Kind{Excuse, Miscounted, Forged}, onEnded(still, func(_ *Work, e *EndedJob) { e.State = "failed" })},
	{"a failure called a success", []Kind{Forged}, onEnded(func(w *Work, e *EndedJob) bool {
		return e.State == "failed" && doingOf(w, e.Run, false) != nil && doingOf(w, e.Run, false).Said != "ok"
	}, func(_ *Work, e *EndedJob) { e.State = "succeeded" })},
	{"given up too soon", []Kind{Excuse}, onEnded(func(w *Work, e *EndedJob) bool {
		d := doingOf(w, e.Run, false)
		return e.State == "failed" && d != nil && d.Said == "fail"
	}, func(w *Work, e *EndedJob) {
		i := slices.IndexFunc(w.Asks, func(a Ask) bool { return a.Mark == e.Mark })
		w.Asks[i].Attempts = e.Attempt + 1
	})},
	{"an attempt too many", []Kind{Miscounted}, onEnded(inState("failed", "succeeded"), func(w *Work, e *EndedJob) { e.Attempt++ })},
	{"an attempt too few", []Kind{Miscounted}, onEnded(inState("failed", "succeeded"), func(w *Work, e *EndedJob) { e.Attempt-- })},
	{"more attempts than asked for", []Kind{Miscounted}, onEnded(func(_ *Work, e *EndedJob) bool { return e.Attempt > 1 }, func(w *Work, e *EndedJob) {
		i := slices.IndexFunc(w.Asks, func(a Ask) bool { return a.Mark == e.Mark })
		w.Asks[i].Attempts = e.Attempt - 1
	})},
	{"an error is gone", []Kind{Lost, Miscounted}, onEnded(hasError("failed"), func(_ *Work, e *EndedJob) {
		e.Errors = slices.DeleteFunc(e.Errors, func(x JobError) bool { return x.Verdict == "failed" })
	})},
	{"an error of the wrong attempt", []Kind{Miscounted}, onEnded(hasError("failed"), func(_ *Work, e *EndedJob) {
		e.Errors[slices.IndexFunc(e.Errors, func(x JobError) bool { return x.Verdict == "failed" })].Attempt += 3
	})},
	{"a snooze counted", []Kind{Miscounted}, func(rng *rand.Rand, w *Work) bool {
		return onEnded(func(w *Work, e *EndedJob) bool {
			return slices.ContainsFunc(doingsOf(w, e.ID), func(d *Doing) bool { return d.Said == "snooze" || d.Said == "await" })
		}, func(w *Work, e *EndedJob) {
			for _, d := range doingsOf(w, e.ID) {
				if d.Said == "snooze" || d.Said == "await" {
					e.Errors = append([]JobError{{At: d.At, Attempt: d.Attempt, Run: d.Run, Verdict: "failed"}}, e.Errors...)
					return
				}
			}
		})(rng, w)
	}},
	{"a job done twice", []Kind{DupEffect}, onEnded(still, func(w *Work, e *EndedJob) {
		another(w, e, doingOf(w, e.Run, true).At.Add(-time.Millisecond))
	})},
	{"a run begun twice", []Kind{DupEffect}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		twin := *doingOf(w, e.Run, true)
		twin.Runner = "r9"
		w.Doings = append(w.Doings, twin)
	})},
	{"a begin after the end", []Kind{Ghost}, onEnded(inState("succeeded", "failed"), func(w *Work, e *EndedJob) { another(w, e, e.Ended.Add(time.Millisecond)) })},
	{"an old run's end was taken", []Kind{Zombie}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		another(w, e, doingOf(w, e.Run, true).At.Add((e.Ended.Sub(doingOf(w, e.Run, true).At))/2))
	})},
	{"a success of a dead controller", []Kind{Zombie}, func(rng *rand.Rand, w *Work) bool {
		i := slices.IndexFunc(w.Faults, func(f Fault) bool { return f.Kind == Kill })
		return i >= 0 && onEnded(func(w *Work, e *EndedJob) bool {
			return e.State == "succeeded" && e.Ended.After(w.Faults[i].From.Add(time.Second))
		}, func(w *Work, e *EndedJob) { e.Controller = w.Faults[i].Controller })(rng, w)
	}},
	{"lost without a death", []Kind{Excuse}, func(rng *rand.Rand, w *Work) bool {
		ok := onEnded(hasError("failed"), func(w *Work, e *EndedJob) {
			e.Errors[slices.IndexFunc(e.Errors, func(x JobError) bool { return x.Verdict == "failed" })].Verdict = "lost"
		})(rng, w)
		w.Faults = nil
		return ok
	}},
	{"lost, and no controller was killed", []Kind{Excuse}, onEnded(hasError("lost"), func(w *Work, _ *EndedJob) {
		w.Faults = slices.DeleteFunc(w.Faults, func(f Fault) bool { return f.Kind == Kill })
	})},
	{"a runner failed without being killed", []Kind{Excuse, DupEffect}, func(rng *rand.Rand, w *Work) bool {
		if !slices.ContainsFunc(w.Faults, func(f Fault) bool { return f.Kind == RunnerDown }) || len(w.Faults) > 1 {
			return false
		}
		return onEnded(func(w *Work, e *EndedJob) bool {
			return slices.ContainsFunc(e.Errors, func(x JobError) bool {
				end := doingOf(w, x.Run, false)
				return x.Verdict == "failed" && (end == nil || end.Said == "ok")
			})
		}, func(w *Work, _ *EndedJob) { w.Faults = nil })(rng, w)
	}},
	{"timed out too soon", []Kind{Excuse}, onEnded(func(w *Work, e *EndedJob) bool {
		return len(e.Errors) > 0 && e.Errors[0].Run != "" && e.Errors[0].Verdict == "failed" && doingOf(w, e.Errors[0].Run, true) != nil
	}, func(_ *Work, e *EndedJob) { e.Errors[0].Verdict = "timed_out" })},
	{"begun before it was due", []Kind{Early}, onEnded(inState("succeeded"), func(w *Work, e *EndedJob) {
		i := slices.IndexFunc(w.Asks, func(a Ask) bool { return a.Mark == e.Mark })
		w.Asks[i].Delay = doingsOf(w, e.ID)[0].At.Sub(w.Asks[i].At) + time.Millisecond
	})},
	{"a backoff cut short", []Kind{Early}, onEnded(func(w *Work, e *EndedJob) bool {
		all := doingsOf(w, e.ID)
		return len(all) > 2 && all[1].Said == "fail"
	}, func(w *Work, e *EndedJob) {
		all := doingsOf(w, e.ID)
		all[2].At = all[1].At.Add(100 * time.Millisecond)
	})},
	{"a snooze cut short", []Kind{Early}, onEnded(func(w *Work, e *EndedJob) bool {
		all := doingsOf(w, e.ID)
		return len(all) > 2 && all[1].Said == "snooze"
	}, func(w *Work, e *EndedJob) {
		all := doingsOf(w, e.ID)
		all[2].At = all[1].At.Add(50 * time.Millisecond)
	})},
	{"two runs at once", []Kind{Overlap}, onEnded(func(w *Work, e *EndedJob) bool {
		all := doingsOf(w, e.ID)
		return len(w.Faults) == 0 && len(all) > 2 && !all[1].Begin
	}, func(w *Work, e *EndedJob) {
		all := doingsOf(w, e.ID)
		all[2].At = all[1].At.Add(-time.Microsecond)
	})},
	{"a parent did not wait", []Kind{Early}, onEnded(func(w *Work, e *EndedJob) bool { return e.Parent != 0 }, func(w *Work, e *EndedJob) { e.Ended = w.Read })},
	{"a child was never made", []Kind{Lost}, onEnded(func(w *Work, e *EndedJob) bool {
		if e.Parent == 0 || slices.ContainsFunc(doingsOf(w, e.ID), func(d *Doing) bool { return d.Said == "await" }) {
			return false
		}
		i := slices.IndexFunc(w.Ended, func(p EndedJob) bool { return p.ID == e.Parent })
		return i >= 0 && w.Ended[i].State == "succeeded"
	}, func(w *Work, e *EndedJob) {
		id := e.ID
		w.Acks = slices.DeleteFunc(w.Acks, func(a Ack) bool { return a.ID == id })
		w.Doings = slices.DeleteFunc(w.Doings, func(d Doing) bool { return d.Job == id })
		dropEnded(w, id)
	})},
	{"a child of nobody", []Kind{Ghost}, onEnded(func(w *Work, e *EndedJob) bool { return e.Parent != 0 }, func(_ *Work, e *EndedJob) { e.Parent = 0 })},
	{"cancelled without a wish", []Kind{Excuse}, onEnded(func(_ *Work, e *EndedJob) bool { return e.State == "cancelled" }, func(w *Work, _ *EndedJob) { w.Cancels = nil })},
	{"a cancel that did not hold", []Kind{Zombie}, onEnded(func(_ *Work, e *EndedJob) bool { return e.State == "cancelled" }, func(_ *Work, e *EndedJob) { e.State = "succeeded" })},
	{"running without an owner", []Kind{Wedged}, onLive(func(l LiveJob) bool { return l.State == "running" }, func(_ *Work, l *LiveJob) { l.OwnerLive = false })},
	{"due and forgotten", []Kind{Wedged}, onLive(func(l LiveJob) bool { return l.State == "ready" && l.Ref != "m.held" }, func(w *Work, l *LiveJob) {
		w.Faults = nil
		l.Due = w.Read.Add(-16 * time.Second)
	})},
	{"resumed and forgotten", []Kind{Wedged}, onLive(func(l LiveJob) bool { return l.Ref == "m.held" }, func(w *Work, _ *LiveJob) { w.Paused = nil })},
	{"blocked for nothing", []Kind{Wedged}, onLive(func(l LiveJob) bool { return l.State == "blocked" }, func(_ *Work, l *LiveJob) { l.Children = 0 })},
	{"blocked, and its child has ended", []Kind{Wedged}, onLive(func(l LiveJob) bool { return l.Parent != 0 }, func(w *Work, l *LiveJob) {
		kid := *l
		w.Live = slices.DeleteFunc(w.Live, func(o LiveJob) bool { return o.ID == kid.ID })
		w.Ended = append(w.Ended, EndedJob{ID: kid.ID, Mark: kid.Mark, Ref: kid.Ref, Parent: kid.Parent, State: "cancelled", Ended: w.Read})
	})},
	{"children miscounted", []Kind{Miscounted}, onLive(func(l LiveJob) bool { return l.State == "blocked" }, func(_ *Work, l *LiveJob) { l.Children++ })},
	{"ready, with a run", []Kind{Zombie}, onLive(func(l LiveJob) bool { return l.State == "ready" }, func(_ *Work, l *LiveJob) { l.Run = "run-x" })},
	{"something is left", []Kind{Wedged}, onLive(func(l LiveJob) bool { return l.State == "running" }, func(w *Work, _ *LiveJob) { w.Settled = true })},
	{"a place that nobody holds", []Kind{Miscounted}, onLimit(func(l *Limit) { l.Running++ })},
	{"a place that nobody counts", []Kind{Miscounted}, onLimit(func(l *Limit) { l.Rows++ })},
	{"more than the limit", []Kind{Overbooked}, onLimit(func(l *Limit) { l.Rows, l.Running = l.Max+1, l.Max+1 })},
	{"more than the limit by the runners", []Kind{Overbooked}, func(_ *rand.Rand, w *Work) bool {
		most := 0
		for _, l := range w.Limits {
			most = max(most, l.Running)
		}
		for i := range w.Limits {
			w.Limits[i].Max = most - 1
			w.Limits[i].Running, w.Limits[i].Rows = 0, 0
		}
		return most > 1
	}},
}

func onLimit(change func(*Limit)) func(*rand.Rand, *Work) bool {
	return func(rng *rand.Rand, w *Work) bool {
		change(&w.Limits[rng.IntN(len(w.Limits))])
		return true
	}
}
