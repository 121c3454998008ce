package schedule

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// The oracles of this file know nothing of the package: expressions are generated together with what they mean, and
// firings are found by walking over real time, or over local dates, through the public API of package time.

// madeField is a generated field and its meaning.
type madeField struct {
	text        string
	in          [60]bool
	star, every bool
}

// makeField writes a random field. few asks for few values, so that the schedule is sparse.
func makeField(r *rand.Rand, lo, hi int, few bool) madeField {
	f := madeField{}
	kind := r.IntN(10)
	if few && kind < 4 {
		kind = 9
	}
	set := func(from, to, step int) {
		for x := from; x <= to; x += step {
			f.in[x] = true
		}
	}
	step := 1 + r.IntN(hi-lo)
	switch {
	case kind < 3:
		f.text, f.star, f.every = "*", true, true
		set(lo, hi, 1)
	case kind < 4:
		f.text, f.every = fmt.Sprintf("*/%d", step), true
		set(lo, hi, step)
	default:
		var items []string
		for range 1 + r.IntN(2) {
			a := lo + r.IntN(hi-lo+1)
			b := a + r.IntN(hi-a+1)
			switch {
			case kind < 5:
				items = append(items, fmt.Sprintf("%d/%d", a, step))
				set(a, hi, step)
			case kind < 6:
				items = append(items, fmt.Sprintf("%d-%d/%d", a, b, step))
				set(a, b, step)
			case kind < 7:
				items = append(items, fmt.Sprintf("%d-%d", a, b))
				set(a, b, 1)
			default:
				items = append(items, fmt.Sprint(a))
				set(a, a, 1)
			}
		}
		f.text = strings.Join(items, ",")
	}
	return f
}

type madeExpr struct {
	second, minute, hour, day, month, week madeField
}

func makeExpr(r *rand.Rand, withSeconds bool) madeExpr {
	m := madeExpr{
		minute: makeField(r, 0, 59, false), hour: makeField(r, 0, 23, false), day: makeField(r, 1, 31, false),
		month: makeField(r, 1, 12, false), week: makeField(r, 0, 6, false),
		second: madeField{text: "0", in: [60]bool{true}},
	}
	if withSeconds {
		m.second = makeField(r, 0, 59, true)
	}
	if r.IntN(3) > 0 { // most schedules restrict at most one of the day fields
		m.week = madeField{text: "*", star: true, every: true, in: [60]bool{true, true, true, true, true, true, true}}
	}
	return m
}

func (m *madeExpr) String() string {
	return strings.Join([]string{m.second.text, m.minute.text, m.hour.text, m.day.text, m.month.text, m.week.text}, " ")
}

func (m *madeExpr) onDay(month time.Month, day int, week time.Weekday) bool {
	if !m.month.in[month] {
		return false
	}
	switch {
	case m.day.star && m.week.star:
		return true
	case m.day.star:
		return m.week.in[week]
	case m.week.star:
		return m.day.in[day]
	}
	return m.day.in[day] || m.week.in[week]
}

// matches looks at the wall clock of t.
func (m *madeExpr) matches(t time.Time) bool {
	hour, minute, second := t.Clock()
	if !m.second.in[second] || !m.minute.in[minute] || !m.hour.in[hour] {
		return false
	}
	_, month, day := t.Date()
	return m.onDay(month, day, t.Weekday())
}

// wall is t's wall clock as an instant of UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// window is a stretch of real time around a change of offset, seen by a wall clock.
type window struct {
	step  time.Duration
	times []time.Time // in the zone
	walls []time.Time
}

func newWindow(loc *time.Location, around time.Time, reach, step time.Duration) window {
	w := window{step: step}
	for t := around.Add(-reach); !t.After(around.Add(reach)); t = t.Add(step) {
		t := t.In(loc)
		w.times, w.walls = append(w.times, t), append(w.walls, wall(t))
	}
	return w
}

// firingsByClock walks over real time and watches the wall clock: what matches fires, unless the hour is fixed and
// the clock has shown this before; what a forward jump leaves out fires at the jump.
func (m *madeExpr) firingsByClock(w window) (slots []time.Time) {
	shown := map[time.Time]bool{}
	for i, t := range w.times {
		fires := m.matches(w.walls[i])
		if !m.hour.every {
			fires = fires && !shown[w.walls[i]]
			if i > 0 {
				for l := w.walls[i-1].Add(w.step); l.Before(w.walls[i]); l = l.Add(w.step) {
					fires = fires || m.matches(l)
				}
			}
			shown[w.walls[i]] = true
		}
		if fires {
			slots = append(slots, t.UTC())
		}
	}
	return slots
}

// firingsByDate walks over local time and asks of each match which instants show it: the first of them fires, or the
// first instant after it if none does. For fixed hours only.
func (m *madeExpr) firingsByDate(w window) (slots []time.Time) {
	first, last := w.times[0], w.times[len(w.times)-1]
	var offsets []time.Duration
	for i, t := range w.times {
		if o := w.walls[i].Sub(t); len(offsets) == 0 || offsets[len(offsets)-1] != o {
			offsets = append(offsets, o)
		}
	}
	for l := w.walls[0].Add(-30 * time.Hour); l.Before(w.walls[len(w.walls)-1].Add(30 * time.Hour)); l = l.Add(w.step) {
		if !m.matches(l) {
			continue
		}
		var slot time.Time
		for _, o := range offsets {
			t := l.Add(-o)
			if wall(t.In(first.Location())).Equal(l) && (slot.IsZero() || t.Before(slot)) {
				slot = t
			}
		}
		if slot.IsZero() {
			for i, shown := range w.walls {
				if shown.After(l) {
					slot = w.times[i].UTC()
					break
				}
			}
		}
		known := len(slots) > 0 && slots[len(slots)-1].Equal(slot)
		if slot.IsZero() || known || slot.Before(first) || slot.After(last) {
			continue
		}
		slots = append(slots, slot)
	}
	return slots
}

// changes returns the instants at which the offset of loc changes, from..to.
func changes(loc *time.Location, from, to time.Time) (found []time.Time) {
	offset := func(t time.Time) int { _, o := t.In(loc).Zone(); return o }
	for day := from; day.Before(to); day = day.AddDate(0, 0, 1) {
		lo, hi := day, day.AddDate(0, 0, 1)
		if offset(lo) == offset(hi) {
			continue
		}
		for hi.Sub(lo) > time.Second {
			if mid := lo.Add(hi.Sub(lo) / 2).Truncate(time.Second); offset(mid) == offset(lo) {
				lo = mid
			} else {
				hi = mid
			}
		}
		found = append(found, hi)
	}
	return found
}

// compare holds the package against the slots that an oracle found in a window, in both directions and from each
// instant anew. The outermost day of the window is left out: the oracle does not know what came before it.
func compare(t *testing.T, m *madeExpr, w window, want []time.Time, oracle string) {
	t.Helper()
	loc := w.times[0].Location()
	margin := min(30*time.Hour, w.times[len(w.times)-1].Sub(w.times[0])/4)
	from, to := w.times[0].Add(margin), w.times[len(w.times)-1].Add(-margin)
	for len(want) > 0 && want[0].Before(from) {
		want = want[1:]
	}
	for len(want) > 0 && want[len(want)-1].After(to) {
		want = want[:len(want)-1]
	}
	s, err := Parse(m.String(), Verb, loc)
	if err != nil {
		t.Fatalf("%q: %v", m, err)
	}
	var got []time.Time
	for slot := range s.Between(from, to) {
		got = append(got, slot)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !got[i].Equal(want[i]) {
			t.Fatalf("%q in %s, slots %v..%v: number %d differs from the oracle %s:\n got %v\nwant %v",
				m, loc, from.UTC(), to.UTC(), i, oracle, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
		}
	}
	for i, slot := range want {
		if at, ok := s.PrevOrAt(slot); !ok || !at.Equal(slot) {
			t.Fatalf("%q in %s: PrevOrAt(%v) = %v %v", m, loc, slot, at, ok)
		}
		if i == 0 {
			continue
		}
		if before, ok := s.Prev(slot); !ok || !before.Equal(want[i-1]) {
			t.Fatalf("%q in %s: Prev(%v) = %v %v, want %v", m, loc, slot, before, ok, want[i-1])
		}
		between := want[i-1].Add(slot.Sub(want[i-1]) / 2)
		if before, ok := s.PrevOrAt(between); !ok || !before.Equal(want[i-1]) {
			t.Fatalf("%q in %s: PrevOrAt(%v) = %v %v, want %v", m, loc, between, before, ok, want[i-1])
		}
		if next, ok := s.Next(between); !ok || !next.Equal(slot) {
			t.Fatalf("%q in %s: Next(%v) = %v %v, want %v", m, loc, between, next, ok, slot)
		}
	}
}

func zoneNames(tb testing.TB) []string {
	data, err := os.ReadFile("testdata/zones.txt")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(string(data))
}

// TestOffsetChangesAgreeWithTwoOracles samples the changes of all zones.
func TestOffsetChangesAgreeWithTwoOracles(t *testing.T) {
	r := rand.New(rand.NewPCG(20260308, 1))
	type sample struct {
		zone string
		seed uint64
	}
	var samples []sample
	for _, zone := range zoneNames(t) {
		samples = append(samples, sample{zone, r.Uint64()})
	}
	const workers = 4
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			seen := 0
			for i := worker; i < len(samples); i += workers {
				r := rand.New(rand.NewPCG(samples[i].seed, 2))
				loc := location(t, samples[i].zone)
				year := 1971 + r.IntN(130)
				if i%2 == 0 {
					year = 2020 + r.IntN(10)
				}
				from := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
				all := changes(loc, from, from.AddDate(1, 0, 0))
				for _, at := range all[:min(2, len(all))] {
					seen++
					checkAround(t, r, newWindow(loc, at.Truncate(time.Minute), 48*time.Hour, time.Minute), false)
				}
			}
			if seen < 20 {
				t.Errorf("only %d changes seen", seen)
			}
		})
	}
}

// checkAround tries random expressions in one window. Those that do not restrict the days are the ones that meet
// the change for certain.
func checkAround(t *testing.T, r *rand.Rand, w window, withSeconds bool) {
	t.Helper()
	if wallSeconds := w.walls[0].Second(); w.step == time.Minute && wallSeconds != 0 {
		return // an offset with seconds, of before 1973
	}
	for i := range 3 {
		m := makeExpr(r, withSeconds)
		if i > 0 {
			any := makeExpr(r, false)
			for !any.day.star || !any.month.star || !any.week.star {
				any = makeExpr(r, false)
			}
			m.day, m.month, m.week = any.day, any.month, any.week
		}
		compare(t, &m, w, m.firingsByClock(w), "by clock")
		if !m.hour.every {
			compare(t, &m, w, m.firingsByDate(w), "by date")
		}
	}
}

// TestNotedChangesAgreeBySecond looks at changes that are known for trouble.
func TestNotedChangesAgreeBySecond(t *testing.T) {
	for _, c := range []struct {
		zone, at string
		reach    time.Duration
	}{
		{"America/New_York", "2026-03-08T07:00:00Z", 5 * time.Hour},
		{"America/New_York", "2026-11-01T06:00:00Z", 5 * time.Hour},
		{"Europe/London", "2026-03-29T01:00:00Z", 5 * time.Hour},
		{"Australia/Lord_Howe", "2025-04-05T15:00:00Z", 5 * time.Hour},
		{"Australia/Lord_Howe", "2025-10-04T15:30:00Z", 5 * time.Hour},
		{"Asia/Beirut", "2025-03-29T22:00:00Z", 5 * time.Hour},
		{"Africa/Cairo", "2025-04-24T22:00:00Z", 5 * time.Hour},
		{"Africa/Monrovia", "1972-01-07T00:44:30Z", 5 * time.Hour}, // an offset of -0:44:30
		{"Antarctica/Troll", "2026-03-29T01:00:00Z", 5 * time.Hour},
		{"Pacific/Apia", "2011-12-30T10:00:00Z", 30 * time.Hour}, // no 30 December
	} {
		t.Run(c.zone+" "+c.at, func(t *testing.T) {
			t.Parallel()
			at, err := time.Parse(time.RFC3339, c.at)
			if err != nil {
				t.Fatal(err)
			}
			loc := location(t, c.zone)
			if all := changes(loc, at.Add(-time.Hour), at.Add(time.Hour)); len(all) != 1 || !all[0].Equal(at) {
				t.Fatalf("the zone data has %v, want %v", all, at)
			}
			r := rand.New(rand.NewPCG(uint64(at.Unix()), 3))
			checkAround(t, r, newWindow(loc, at, c.reach, time.Second), true)
		})
	}
}
