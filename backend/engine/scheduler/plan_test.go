package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"carillon/backend/core/cron"
)

var begin = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func job(id int64, next time.Time) cron.Job {
	return cron.Job{ID: id, Ref: fmt.Sprintf("m.v%d", id), Shard: int32(id % 7), Version: 1, Enabled: true, State: cron.Idle,
		Next: next, Schedule: "* * * * * *", Catchup: cron.CatchupLast}
}

func counted() func() cron.RunID {
	n := 0
	return func() cron.RunID { n++; return cron.RunID{byte(n), byte(n >> 8), byte(n >> 16)} }
}

func TestAListNeverBringsBackWhatIsOver(t *testing.T) {
	p, mint, now := newPlan(0), counted(), begin.UnixMicro()
	p.own(1, firstOwner, now, begin)
	stale, asked := job(1, begin), p.stamp
	p.load([]cron.Job{stale}, asked, 0, now)
	asked = p.stamp // a list is under way from here on
	claims := p.take(now, 10, mint)
	p.load([]cron.Job{stale}, asked, 0, now)
	if p.nextAt() != 0 {
		t.Fatal("a claim in flight: the row was armed by a list")
	}
	u, _ := p.won(claims[0], begin)
	p.load([]cron.Job{stale}, asked, 0, now)
	if p.nextAt() != 0 || p.runs[u.id] == nil {
		t.Fatal("a run in flight: the row was armed by a list")
	}
	if _, ok := p.finish(u.id, Outcome{Verdict: cron.Succeeded}, now); !ok {
		t.Fatal("the run is unknown")
	}
	p.ended(cron.Ended{JobID: 1, RunID: u.id, Accepted: true, Next: begin.Add(time.Second), Version: 1, Enabled: true}, now)
	p.load([]cron.Job{stale}, asked, 0, now)
	p.missing(1, asked, 99)
	if got, want := p.nextAt(), begin.Add(time.Second).UnixMicro(); got != want {
		t.Fatalf("an old list moved the row from %d to %d", want, got)
	}
	// But a list that was asked for afterwards is the truth, even if it goes back: the database was restored.
	p.load([]cron.Job{stale}, p.stamp, 0, now)
	if p.nextAt() != now {
		t.Error("a fresh list was not believed")
	}
	changed := stale
	changed.Version, changed.Next = 2, begin.Add(time.Minute)
	p.load([]cron.Job{changed}, asked, 0, now)
	if p.nextAt() != changed.Next.UnixMicro() {
		t.Error("a later version in an older list was not believed")
	}
}

func TestOwnersTakeTurns(t *testing.T) {
	p, slot := newPlan(250*time.Millisecond), begin.UnixMicro()
	p.own(1, firstOwner, slot, begin)
	p.own(2, secondOwner, slot, begin)
	p.load([]cron.Job{job(1, begin), job(2, begin), job(3, begin)}, 0, 0, slot-1)
	if len(p.rows) != 2 {
		t.Errorf("%d rows, one of them nobody's", len(p.rows))
	}
	if got := p.rows[2].index; p.heap[got].at != slot+250_000 {
		t.Errorf("the second owner tries at %d", p.heap[got].at-slot)
	}
	p.own(2, firstOwner, slot, begin)
	if got := p.rows[2].index; p.heap[got].at != slot {
		t.Errorf("promoted, it tries at %d", p.heap[got].at-slot)
	}
	executing := job(1, begin)
	executing.State = cron.Executing
	p.load([]cron.Job{executing}, p.stamp, 0, slot+5_300_000)
	if got := p.rows[1].index; p.heap[got].at != slot+6_000_000 {
		t.Errorf("a row that executes is probed at %d", p.heap[got].at-slot)
	}
}

// Whatever happens to rows, the heap is in order and holds exactly the rows that somebody wants and may try, and
// nothing leaks.
func TestThePlanStaysSound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	p, mint, now := newPlan(250*time.Millisecond), counted(), begin.UnixMicro()
	var claims []cron.Claim
	var ends []cron.End
	for step := range 60_000 {
		now += rnd.Int64N(20_000)
		at := fromMicros(now)
		switch rnd.IntN(12) {
		case 0:
			p.own(int32(rnd.IntN(7)), role(rnd.IntN(3)), now, at)
		case 1:
			if s := p.shards[int32(rnd.IntN(7))]; s != nil && !s.lost.IsZero() {
				p.drop(s.id, now)
			}
		case 2, 3, 4:
			j := job(rnd.Int64N(60), at.Truncate(time.Second).Add(time.Duration(rnd.IntN(5)-2)*time.Second))
			j.Version, j.Enabled = rnd.Int64N(3), rnd.IntN(8) > 0
			if rnd.IntN(5) == 0 {
				j.State = cron.Executing
			}
			if rnd.IntN(30) == 0 {
				j.Schedule = "bad"
			}
			if rnd.IntN(30) == 0 {
				j.RemovedAt = at
			}
			if rnd.IntN(10) == 0 {
				p.visit([]cron.Job{j}, now)
			} else {
				p.load([]cron.Job{j}, p.stamp-rnd.Int64N(50), 0, now)
			}
		case 5, 6:
			claims = append(claims, p.take(now, rnd.IntN(8), mint)...)
		case 7:
			for _, c := range claims {
				switch rnd.IntN(4) {
				case 0:
					if !c.Slot.IsZero() {
						p.won(c, at)
						break
					}
					fallthrough
				case 1:
					p.failed([]cron.Claim{c}, now, time.Second)
				case 2:
					p.lost([]cron.Claim{c}, nil, 0, now)
				case 3:
					p.lost([]cron.Claim{c}, []cron.Job{job(c.JobID, c.Expected)}, now, now)
				}
			}
			claims = nil
		case 8:
			for id := range p.runs {
				if end, ok := p.finish(id, Outcome{Verdict: cron.Succeeded}, now); ok {
					ends = append(ends, end)
				}
			}
		case 9:
			for _, e := range ends {
				p.ended(cron.Ended{JobID: e.JobID, RunID: e.RunID, Accepted: rnd.IntN(4) > 0, Next: at.Truncate(time.Second).Add(time.Second), Version: rnd.Int64N(3), Enabled: true}, now)
			}
			ends = nil
		case 10:
			p.adopt("m", at)
		case 11:
			p.release("m", now)
		}
		sound(t, p, len(claims), step)
	}
}

func sound(t *testing.T, p *plan, claims, step int) {
	t.Helper()
	for i, d := range p.heap {
		if int(d.row.index) != i || i > 0 && d.before(p.heap[(i-1)/4]) {
			t.Fatalf("step %d: the heap is out of order at %d", step, i)
		}
		if p.rows[d.id] != d.row || d.row.busy() {
			t.Fatalf("step %d: row %d is armed and gone or busy", step, d.id)
		}
	}
	inFlight := 0
	for id, r := range p.rows {
		if !r.claim.IsZero() {
			inFlight++
		}
		if r.shard.rows[r.pos] != r {
			t.Fatalf("step %d: row %d stands in the wrong place", step, id)
		}
		if may := r.wanted() && !r.busy() && r.enabled && r.next != 0; may != (r.index >= 0) {
			t.Fatalf("step %d: row %d armed is %v, want %v", step, id, !may, may)
		}
		if !r.wanted() {
			t.Fatalf("step %d: nobody wants row %d", step, id)
		}
	}
	calls := 0
	for _, u := range p.runs {
		if !u.ended {
			calls++
		}
	}
	if inFlight != p.claims || inFlight != claims || calls != p.calls {
		t.Fatalf("step %d: %d claims in flight, counted %d, sent %d; %d calls, counted %d", step, inFlight, p.claims, claims, calls, p.calls)
	}
}

// A batch of 250 out of a million rows, decided and given run ids; what is taken comes back a minute later.
func BenchmarkTake(b *testing.B) {
	const rows, batch = 1_000_000, 250
	p, now := newPlan(0), begin.UnixMicro()
	for i := range int32(7) {
		p.own(i, firstOwner, now, begin)
	}
	for i := range int64(rows) {
		j := job(i, begin.Add(time.Duration(i%60)*time.Second))
		j.Schedule = fmt.Sprintf("%d * * * * *", i%60)
		p.load([]cron.Job{j}, p.stamp, 0, now)
	}
	b.ResetTimer()
	taken := 0
	for b.Loop() {
		claims := p.take(now, batch, mintRunID)
		if len(claims) == 0 {
			now = p.nextAt()
			continue
		}
		taken += len(claims)
		for _, c := range claims {
			r := p.settle(c)
			r.next = toMicros(c.Next)
			p.arm(r, now)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(taken), "ns/claim")
}
