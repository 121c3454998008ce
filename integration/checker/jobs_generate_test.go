package checker

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// shop makes a history of a queue in which every promise was kept, by living it: jobs that succeed, fail for a while or
// for good, snooze, wait for their children, are cancelled, outlive their controller or their runner.
type shop struct {
	rng    *rand.Rand
	start  time.Time
	w      Work
	kill   Fault // of controller c1
	down   Fault // of runner r1
	ids    int64
	runs   int
	places []time.Time // of the limit of m.few: when each is free
}

const fewAtOnce = 3

func (s *shop) ms(from, to int) time.Duration {
	return time.Duration(from)*time.Millisecond + time.Duration(s.rng.Int64N(int64(to-from)*int64(time.Millisecond))).Truncate(time.Microsecond)
}

// generateWork is a clean history of its seed.
func generateWork(seed uint64) Work {
	s := &shop{rng: rand.New(rand.NewPCG(seed, 21)), start: time.Unix(1_800_000_000, 0), places: make([]time.Time, fewAtOnce)}
	s.w.Read = s.start.Add(100 * time.Second)
	if s.rng.IntN(2) == 0 {
		at := s.start.Add(s.ms(3000, 6000))
		s.kill = Fault{Kind: Kill, From: at, To: at.Add(time.Millisecond), Controller: "c1"}
		s.w.Faults = append(s.w.Faults, s.kill)
	}
	if s.rng.IntN(2) == 0 {
		at := s.start.Add(s.ms(3000, 6000))
		s.down = Fault{Kind: RunnerDown, From: at, To: at.Add(time.Millisecond), Runner: "r1"}
		s.w.Faults = append(s.w.Faults, s.down)
	}
	s.w.Settled = s.rng.IntN(2) == 0
	for i := range 30 {
		s.live(fmt.Sprintf("n%d", i), 0, "", s.start.Add(s.ms(0, 9000)))
	}
	if !s.w.Settled {
		s.unfinished()
	}
	slices.SortStableFunc(s.w.Doings, func(a, b Doing) int { return a.At.Compare(b.At) })
	slices.SortStableFunc(s.w.Ended, func(a, b EndedJob) int { return cmp.Compare(a.ID, b.ID) })
	for t := s.start; t.Before(s.w.Read); t = t.Add(500 * time.Millisecond) {
		n := s.held(t)
		s.w.Limits = append(s.w.Limits, Limit{At: t, Ref: "m.few", Max: fewAtOnce, Running: n, Rows: n})
	}
	return s.w
}

// held counts the begun runs of the limited verb at t.
func (s *shop) held(t time.Time) (n int) {
	on := map[string]bool{}
	for _, d := range s.w.Doings {
		if d.Ref == "m.few" && !d.At.After(t) {
			on[d.Run] = d.Begin && (d.Runner != s.down.Runner || t.Before(s.down.To) || d.At.After(s.down.To))
		}
	}
	for _, is := range on {
		if is {
			n++
		}
	}
	return n
}

func (s *shop) run() string { s.runs++; return fmt.Sprintf("run-%d", s.runs) }

// live is the life of one job; it returns the time of its end.
func (s *shop) live(mark string, parent int64, parentMark string, at time.Time) time.Time {
	ref := "m.work"
	if parent == 0 && s.rng.IntN(4) == 0 {
		ref = "m.few"
	}
	ask := Ask{Mark: mark, Ref: ref, At: at, Attempts: 1 + s.rng.IntN(4), Backoff: 200 * time.Millisecond, Ceiling: 600 * time.Millisecond, Timeout: 20 * time.Second, Parent: parentMark}
	if s.rng.IntN(4) == 0 {
		ask.Delay = s.ms(100, 2000)
	}
	s.ids++
	e := EndedJob{ID: s.ids, Mark: mark, Ref: ref, Parent: parent}
	s.w.Asks = append(s.w.Asks, ask)
	for i := range 1 + s.rng.IntN(8)/7 { // now and then the answer is lost, and asked for again
		s.w.Acks = append(s.w.Acks, Ack{Mark: mark, ID: e.ID, Existing: i > 0, At: at.Add(s.ms(1, 20))})
	}
	due := at.Add(ask.Delay).Add(s.ms(1, 10))
	if s.rng.IntN(15) == 0 { // cancelled while it waits
		wish := due.Add(-time.Millisecond)
		s.w.Cancels = append(s.w.Cancels, Cancel{ID: e.ID, Asked: wish, Ended: true})
		e.State, e.Ended = "cancelled", wish.Add(time.Millisecond)
		e.Errors = []JobError{{At: e.Ended, Verdict: "cancelled"}}
		s.w.Ended = append(s.w.Ended, e)
		return e.Ended
	}
	awaited := parent != 0
	for attempt := 1; ; {
		r := s.attempt(&e, ask, attempt, due, &awaited)
		if r.done {
			break
		}
		if due = r.due; r.counted {
			attempt++
		}
	}
	s.w.Ended = append(s.w.Ended, e)
	return e.Ended
}

type result struct {
	done, counted bool
	due           time.Time
}

// attempt is one run of a job.
func (s *shop) attempt(e *EndedJob, ask Ask, attempt int, due time.Time, awaited *bool) result {
	begin, took := due.Add(s.ms(1, 30)), s.ms(1, 400)
	place := -1
	if e.Ref == "m.few" {
		place = 0
		for i, free := range s.places {
			if free.Before(s.places[place]) {
				place = i
			}
		}
		if s.places[place].After(begin) {
			begin = s.places[place].Add(s.ms(1, 5))
		}
	}
	controller, runner := []string{"c1", "c2", "c3"}[s.rng.IntN(3)], []string{"r1", "r2"}[s.rng.IntN(2)]
	near := func(f Fault) bool { return !f.From.IsZero() && begin.After(f.From.Add(-20*time.Millisecond)) }
	if near(s.kill) {
		controller = "c2"
	}
	if near(s.down) {
		runner = "r2"
	}
	run, end := s.run(), begin.Add(took)
	written := end.Add(s.ms(1, 30))
	d := Doing{Runner: runner, Begin: true, Run: run, Ref: e.Ref, Job: e.ID, Attempt: attempt, At: begin}
	s.w.Doings = append(s.w.Doings, d)
	d.Begin, d.At = false, end
	e.Run, e.Controller, e.Attempt = run, controller, attempt
	defer func() {
		if place >= 0 {
			s.places[place] = written
		}
	}()
	fail := func(verdict string, at time.Time, final bool) result {
		e.Errors = append(e.Errors, JobError{At: at, Attempt: attempt, Run: run, Verdict: verdict})
		if final || attempt >= ask.Attempts {
			e.State, e.Ended = "failed", at
			return result{done: true}
		}
		wait := ask.Backoff
		for range attempt - 1 {
			wait = min(2*wait, ask.Ceiling)
		}
		return result{counted: true, due: at.Add(wait)}
	}
	inFlight := func(f Fault) bool {
		return !f.From.IsZero() && f.From.After(begin.Add(time.Millisecond)) && f.From.Before(written.Add(60*time.Millisecond))
	}
	switch {
	case inFlight(s.kill) && controller == "c1": // lost: whether or not the verb had ended
		d.Said = "ok"
		if s.rng.IntN(2) == 0 && end.After(s.kill.From) {
			d.At, d.Said = s.kill.From.Add(s.ms(3900, 4300)), "cut"
		}
		s.w.Doings = append(s.w.Doings, d)
		written = s.kill.From.Add(s.ms(6000, 9000))
		return fail("lost", written, false)
	case inFlight(s.down) && runner == "r1":
		written = s.down.To.Add(s.ms(1, 40))
		if end.Before(s.down.From) {
			d.Said = "ok"
			s.w.Doings = append(s.w.Doings, d)
		}
		return fail("failed", written, false)
	}
	switch s.rng.IntN(12) {
	case 0, 1:
		d.Said = "fail"
		s.w.Doings = append(s.w.Doings, d)
		return fail("failed", written, false)
	case 2:
		d.Said = "final"
		s.w.Doings = append(s.w.Doings, d)
		return fail("failed", written, true)
	case 3:
		d.Said, d.Wait = "snooze", s.ms(100, 900)
		s.w.Doings = append(s.w.Doings, d)
		return result{due: written.Add(d.Wait)}
	case 4:
		if !*awaited {
			*awaited = true
			d.Said = "await"
			s.w.Doings = append(s.w.Doings, d)
			latest := written
			for i := range 1 + s.rng.IntN(3) {
				if over := s.live(fmt.Sprintf("%s/%d", e.Mark, i), e.ID, e.Mark, begin.Add(time.Millisecond)); over.After(latest) {
					latest = over
				}
			}
			return result{due: latest.Add(time.Millisecond)}
		}
	}
	d.Said = "ok"
	s.w.Doings = append(s.w.Doings, d)
	e.State, e.Ended = "succeeded", written
	return result{done: true}
}

// unfinished are jobs that are live for good reasons when the tables are read.
func (s *shop) unfinished() {
	row := func(ref, state string, due time.Time) *LiveJob {
		s.ids++
		mark := fmt.Sprintf("u%d", s.ids)
		at := s.w.Read.Add(-time.Second)
		s.w.Asks = append(s.w.Asks, Ask{Mark: mark, Ref: ref, At: at, Attempts: 3, Backoff: time.Second, Ceiling: time.Second, Timeout: time.Minute})
		s.w.Acks = append(s.w.Acks, Ack{Mark: mark, ID: s.ids, At: at.Add(time.Millisecond)})
		s.w.Live = append(s.w.Live, LiveJob{ID: s.ids, Mark: mark, Ref: ref, State: state, Due: due, Attempt: 1})
		return &s.w.Live[len(s.w.Live)-1]
	}
	s.w.Paused = []string{"m.held"}
	row("m.work", "ready", s.w.Read.Add(time.Minute))
	row("m.held", "ready", s.w.Read.Add(-time.Minute))
	r := row("m.work", "running", s.w.Read.Add(-500*time.Millisecond))
	r.Run, r.OwnerLive = s.run(), true
	s.w.Doings = append(s.w.Doings, Doing{Runner: "r2", Begin: true, Run: r.Run, Ref: r.Ref, Job: r.ID, Attempt: 1, At: s.w.Read.Add(-400 * time.Millisecond)})
	p := row("m.work", "blocked", s.w.Read.Add(-500*time.Millisecond))
	p.Children = 1
	id, mark := p.ID, p.Mark
	kid := row("m.work", "ready", s.w.Read.Add(time.Minute))
	kid.Parent = id
	s.w.Asks[len(s.w.Asks)-1].Parent = mark
}
