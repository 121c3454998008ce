package integration

import (
	"fmt"
	"time"

	"carillon/integration/cluster"
	"carillon/integration/cozycases"
)

// judgeBells holds the jobs of the clock's triggers against the oracle: one for each slot up to an instant, none twice
// and none between. Slots that the ledger says were missed are errors, but where the machine stood still. It returns how
// many slots there were.
func (b *belfry) judgeBells(bells []bell, jobs []cluster.TriggerJob, until time.Time) (slots int) {
	b.t.Helper()
	times := map[string]map[int64]int{} // jobs by trigger and slot
	for _, j := range jobs {
		if times[j.Trigger] == nil {
			times[j.Trigger] = map[int64]int{}
		}
		times[j.Trigger][j.Slot.UnixMicro()]++
		if j.Made.Before(j.Slot) {
			b.t.Errorf("job %d was made %v before its slot", j.ID, j.Slot.Sub(j.Made))
		}
	}
	passed := b.passed(bells)
	for _, x := range bells {
		got := times[x.key]
		if x.kind == "@in" {
			b.judgeIn(x, got)
			slots++
			continue
		}
		want := map[int64]bool{}
		for _, at := range x.slots(until) {
			slots++
			want[at.UnixMicro()] = true
			switch n := got[at.UnixMicro()]; {
			case n > 1:
				b.t.Errorf("%s %s: slot %v became %d jobs", x.kind, x.key, at.UTC(), n)
			case n == 1:
			case passed[x.key][at.Unix()] && b.Strained(at, at.Add(2*time.Second)):
			default:
				b.t.Errorf("%s %s: slot %v is no job (the ledger says it was missed: %v)", x.kind, x.key, at.UTC(), passed[x.key][at.Unix()])
			}
		}
		for _, at := range x.slots(until.Add(time.Hour)) {
			want[at.UnixMicro()] = true
		}
		for micro, n := range got {
			if !want[micro] || n > 1 {
				b.t.Errorf("%s %s: %d jobs at %v, want none there or one", x.kind, x.key, n, time.UnixMicro(micro).UTC())
			}
		}
	}
	return slots
}

// judgeIn: one job, for the instant that lies so long behind the request.
func (b *belfry) judgeIn(x bell, got map[int64]int) {
	b.t.Helper()
	if len(got) != 1 {
		b.t.Errorf("@in %s fired for %d slots", x.key, len(got))
	}
	for micro, n := range got {
		at := time.UnixMicro(micro)
		// A stored instant may be rounded down to its second or not; the request may be the second one of its key.
		if n != 1 || at.Before(x.asked.Add(x.in-time.Second)) || at.After(x.answered.Add(x.in)) || at.Sub(x.made.Add(x.in)).Abs() > time.Second {
			b.t.Errorf("@in %s, asked at %v and answered at %v for %v: %d jobs at %v", x.key, x.asked, x.answered, x.in, n, at)
		}
	}
}

// passed are the seconds that the ledger says were skipped.
func (b *belfry) passed(bells []bell) map[string]map[int64]bool {
	b.t.Helper()
	out := map[string]map[int64]bool{}
	rows, err := b.SQL.Query(b.t.Context(), `SELECT t.key, r.slot, r.slot_to FROM carillon.runs r JOIN carillon.cron_jobs c ON c.id = r.cron_job_id
		JOIN carillon.triggers t ON t.id = c.trigger_id WHERE t.tenant = ANY ($1) AND r.verdict <> 'fired'`, b.tenants())
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var from, to time.Time
		if err := rows.Scan(&key, &from, &to); err != nil {
			b.t.Fatal(err)
		}
		if out[key] == nil {
			out[key] = map[int64]bool{}
		}
		for s := from.Unix(); s <= to.Unix(); s++ {
			out[key][s] = true
		}
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// judgeOnce: what fires once is gone, and a request that was sent twice made one trigger; the ledger and the jobs say the
// same.
func (b *belfry) judgeOnce(in cozycases.Home, bells []bell) {
	b.t.Helper()
	in.URL = b.Any(b.t).URL // the first ones are gone
	for _, x := range bells {
		if x.kind != "@at" && x.kind != "@in" {
			continue
		}
		if a := in.Do(b.t, "GET", "/jobs/triggers/"+x.key, in.All, nil); a.Status != 404 {
			b.t.Errorf("%s %s has fired and is answered %d", x.kind, x.key, a.Status)
		}
	}
	var twice, alone int
	if err := b.SQL.QueryRow(b.t.Context(), `SELECT (SELECT count(*) - count(DISTINCT message) FROM carillon.triggers WHERE tenant = $1), (
		SELECT count(*) FROM carillon.runs r JOIN carillon.cron_jobs c ON c.id = r.cron_job_id JOIN carillon.triggers t ON t.id = c.trigger_id
		WHERE t.tenant = $1 AND r.verdict = 'fired' AND NOT EXISTS (SELECT FROM carillon.job_history h WHERE h.id = r.job_id AND h.slot = r.slot AND h.trigger_id = t.id))`,
		in.Tenant).Scan(&twice, &alone); err != nil {
		b.t.Fatal(err)
	}
	if twice != 0 || alone != 0 {
		b.t.Errorf("%d requests made a second trigger, %d slots of the ledger name a job that is not there", twice, alone)
	}
}

// judgeEvents: an acknowledged event made one job for each trigger that it matches, one without an answer one for each
// or none at all, and there are no others.
func (b *belfry) judgeEvents(y *tally, jobs []cluster.TriggerJob) {
	b.t.Helper()
	var faults []string
	say := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	defer func() { b.complain(faults) }()
	made := map[string]int{} // by event and trigger
	for _, j := range jobs {
		if j.Slot.Unix() == 0 {
			made[j.Mark+" "+j.Trigger]++
		}
	}
	for mark, matches := range y.events {
		for _, key := range matches {
			if n := made[mark+" "+key]; n != 1 {
				say("event %s made %d jobs of trigger %s, want 1", mark, n, key)
			}
			delete(made, mark+" "+key)
		}
	}
	for mark, matches := range y.unsure {
		some := 0
		for _, key := range matches {
			some += made[mark+" "+key]
			if made[mark+" "+key] > 1 {
				say("event %s, whose answer got lost, made %d jobs of trigger %s", mark, made[mark+" "+key], key)
			}
			delete(made, mark+" "+key)
		}
		if some != 0 && some != len(matches) {
			say("event %s, whose answer got lost, made %d jobs, want %d or none", mark, some, len(matches))
		}
	}
	for mark, hook := range y.hooks {
		delete(made, mark+" "+hook)
	}
	for what, n := range made {
		say("%d jobs nobody asked for: %s", n, what)
	}
}

// judgeHooks: an acknowledged delivery is one job.
func (b *belfry) judgeHooks(y *tally, jobs []cluster.TriggerJob) {
	b.t.Helper()
	var faults []string
	say := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	defer func() { b.complain(faults) }()
	made := map[string]int{}
	for _, j := range jobs {
		made[j.Mark+" "+j.Trigger]++
	}
	for mark, hook := range y.hooks {
		if n := made[mark+" "+hook]; n != 1 {
			say("delivery %s made %d jobs, want 1", mark, n)
		}
	}
}
