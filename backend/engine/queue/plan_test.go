package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

// fakeRoom is one deployment per module, with so many places each.
type fakeRoom map[string]int

func (f fakeRoom) Room(ref string) int { return f[moduleOf(ref)] }
func (f fakeRoom) Deployment(ref string) (int64, string, bool) {
	_, ok := f[moduleOf(ref)]
	return 1, moduleOf(ref), ok
}

func (p *plan) window(tenant, ref string, lane int) *window {
	w, _ := p.learn(job.Queue{ID: int32(len(p.windows) + 1), Tenant: tenant, Ref: ref, Lane: lane})
	w.complete = true
	return w
}

func (p *plan) deployAll(r roomer) {
	for _, v := range p.verbs {
		id, key, ok := r.Deployment(v.ref)
		p.deploy(v, id, key, ok)
	}
}

func mint() (id cron.RunID) {
	for i := range id {
		id[i] = byte(rand.Int())
	}
	return id
}

// take picks n jobs one by one and gives their places back at once.
func (p *plan) picks(now micros, n int, r roomer) (out []pick) {
	for range n {
		for _, b := range p.take(now, 1, 500, r, mint) {
			for _, k := range b.picks {
				p.giveBack(k, false)
				out = append(out, k)
			}
		}
	}
	return out
}

func TestATenantWithManyJobsDoesNotStopOneWithTen(t *testing.T) {
	p, room := newPlan(), fakeRoom{"m": 1000}
	big, small := p.window("big", "m.v", 2), p.window("small", "m.v", 2)
	other := p.window("big", "m.w", 2)
	id := int64(0)
	for i := range 10_000 {
		id++
		p.put(big, id, micros(1+i/10), 0, false)
	}
	for range 10 {
		id++
		p.put(small, id, 5000, 0, false)
		id++
		p.put(other, id, 5000, 0, false)
	}
	p.deployAll(room)
	got := map[*window]int{}
	for _, k := range p.picks(6000, 60, room) {
		got[k.window]++
	}
	if got[small] != 10 || got[other] != 10 {
		t.Errorf("of 60 picks the small tenant had %d, the other verb of the big one %d, want 10 and 10", got[small], got[other])
	}
}

func TestHigherLanesComeFirstAndLowOnesDoNotStarve(t *testing.T) {
	p, room := newPlan(), fakeRoom{"m": 1000}
	low, high := p.window("t", "m.low", 0), p.window("t", "m.high", 4)
	for i := range int64(400) {
		p.put(low, i, 10, 0, false)
		p.put(high, 1000+i, 20, 0, false)
	}
	p.deployAll(room)
	n := 0
	for _, k := range p.picks(100, 80, room) {
		if k.window == low {
			n++
		}
	}
	if n != 10 {
		t.Errorf("the low lane had %d of 80 picks, want each eighth", n)
	}
}

func TestAPausedOrFullVerbStopsNoOther(t *testing.T) {
	p, room := newPlan(), fakeRoom{"m": 100, "full": 0}
	v, full, paused, gone := p.window("t", "m.v", 0), p.window("t", "full.v", 4), p.window("t", "m.paused", 4), p.window("t", "gone.v", 4)
	limited := p.window("t", "m.limited", 4)
	p.bound(limited.verb, 2)
	for i := range int64(10) {
		for j, w := range []*window{v, full, paused, gone, limited} {
			p.put(w, int64(j)*100+i, 10, 0, false)
		}
	}
	p.learn(job.Queue{ID: paused.id, Tenant: "t", Ref: "m.paused", Lane: 4, Paused: true})
	p.deployAll(room)
	got := map[string]int{}
	for _, b := range p.take(20, 100, 500, room, mint) {
		for _, k := range b.picks {
			got[b.ref+"/"+k.verb.ref]++
		}
	}
	if want := map[string]int{"/m.v": 10, "m.limited/m.limited": 2}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("picked %v, want %v", got, want)
	}
}

// Whatever comes and goes: only what is due and has room is picked, in the order of its queue, and each job once.
func TestEachJobIsPickedOnceWhateverHappens(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		p, room := newPlan(), fakeRoom{"a": 5, "b": 3, "c": 0}
		var windows []*window
		for i := range 1 + rnd.IntN(30) {
			w := p.window(fmt.Sprint("t", rnd.IntN(4)), fmt.Sprintf("%c.v%d", "abc"[rnd.IntN(3)], rnd.IntN(3)), rnd.IntN(lanes))
			windows = append(windows, w)
			if i%5 == 0 {
				p.bound(w.verb, 1+rnd.IntN(3))
			}
		}
		p.deployAll(room)
		next, now := int64(0), micros(1000)
		waiting, running := map[int64]micros{}, map[int64]pick{}
		picked := map[int64]bool{}
		step := func() {
			switch rnd.IntN(7) {
			case 0, 1, 2:
				next++
				due := now + rnd.Int64N(50) - 20
				w := windows[rnd.IntN(len(windows))]
				if p.put(w, next, due, 0, false) {
					waiting[next] = due
				}
			case 3:
				now += rnd.Int64N(10)
			case 4:
				for id, k := range running {
					delete(running, id)
					p.giveBack(k, rnd.IntN(3) == 0)
					if p.entries[id] != nil {
						waiting[id] = k.due
						delete(picked, id)
					}
					break
				}
			case 5:
				room["abc"[rnd.IntN(3):][:1]] = rnd.IntN(6)
			default:
				for _, b := range p.take(now, 1+rnd.IntN(8), 1+rnd.IntN(4), room, mint) {
					for _, k := range b.picks {
						if picked[k.id] || waiting[k.id] > now || (b.ref != "") != (k.verb.limit > 0) || b.ref != "" && b.ref != k.verb.ref {
							t.Fatalf("seed %d: bad pick %+v in a batch of %q at %d", seed, k.key, b.ref, now)
						}
						picked[k.id], running[k.id] = true, k
						delete(waiting, k.id)
					}
				}
				inPool := map[*pool]int{}
				inVerb := map[*verb]int{}
				for _, k := range running {
					inPool[k.pool]++
					inVerb[k.verb]++
				}
				for po, n := range inPool {
					if po.reserved != n {
						t.Fatalf("seed %d: %d reserved, %d running", seed, po.reserved, n)
					}
				}
				for v, n := range inVerb {
					if v.running != n || v.limit > 0 && n > v.limit {
						t.Fatalf("seed %d: %s runs %d (counted %d), limit %d", seed, v.ref, n, v.running, v.limit)
					}
				}
			}
		}
		for range 2000 {
			step()
		}
		if len(p.entries) != len(waiting) {
			t.Fatalf("seed %d: %d entries, want %d", seed, len(p.entries), len(waiting))
		}
		// With room for all, everything ends up picked.
		for m := range room {
			room[m] = 1_000_000
		}
		p.deployAll(room)
		for range 20_000 {
			for id, k := range running {
				delete(running, id)
				p.giveBack(k, false)
			}
			batches := p.take(now+1000, 100, 50, room, mint)
			if len(batches) == 0 {
				break
			}
			for _, b := range batches {
				for _, k := range b.picks {
					running[k.id] = k
					delete(waiting, k.id)
				}
			}
		}
		if len(waiting) > 0 || len(p.entries) > 0 {
			t.Fatalf("seed %d: %d jobs were never picked", seed, len(waiting))
		}
		for _, po := range p.order {
			for _, g := range po.groups {
				if len(g.awake)+len(g.asleep) > 0 {
					t.Fatalf("seed %d: empty windows are armed", seed)
				}
				for _, l := range g.lanes {
					if l.head != nil || len(l.tenants) > 0 {
						t.Fatalf("seed %d: an empty lane has a turn", seed)
					}
				}
			}
		}
	}
}

func TestAWindowNeverLosesWhatAFetchDidNotSee(t *testing.T) {
	p := newPlan()
	w := p.window("t", "m.v", 2)
	row := func(id int64) job.Waiting { return job.Waiting{ID: id, Due: fromMicros(id)} }
	// An insert of this controller while a fetch is under way that began before it.
	began := p.lastStamp
	p.begins(w)
	p.enter(w, 7, 7, 0, 100)
	p.fetched(w, key{}, began, 10, []job.Waiting{row(1)})
	if p.entries[7] == nil || p.entries[1] == nil {
		t.Error("the answer to an older fetch took a new job out")
	}
	// What the next fetch does not see is gone; what was picked meanwhile does not come back.
	p.begins(w)
	began = p.lastStamp
	p.drop(p.entries[1])
	p.fetched(w, key{}, began, 10, []job.Waiting{row(1)})
	if len(p.entries) != 0 || !w.complete {
		t.Errorf("%d entries are left", len(p.entries))
	}
	// A job that stays out of an incomplete window while a fetch is under way is asked for again.
	w.complete, w.upto = false, key{}
	p.begins(w)
	p.enter(w, 9, 9, 0, 100)
	p.fetched(w, key{}, p.lastStamp, 10, nil)
	if _, ok := p.wants[w]; w.complete || !ok {
		t.Error("the window counts as complete without a job that came meanwhile")
	}
}

// One pick of a merge of 100 windows, and the place given back.
func BenchmarkTake(b *testing.B) {
	p, room := newPlan(), fakeRoom{"m": 1_000_000}
	for i := range 100 {
		w := p.window(fmt.Sprint("t", i%20), fmt.Sprint("m.v", i%7), i%lanes)
		for j := range int64(1000) {
			p.put(w, int64(i)*1000+j, j, 0, false)
		}
	}
	p.deployAll(room)
	n := 0
	for b.Loop() {
		if n--; n < 0 {
			n = 499
			for _, batch := range p.take(2000, 500, 500, room, mint) {
				for _, k := range batch.picks {
					p.giveBack(k, true)
				}
			}
		}
	}
}
