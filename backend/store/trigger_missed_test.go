package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/schedule"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

// decideAll does what a scheduler does with a trigger's row at an instant, until nothing of it is due.
func decideAll(t *testing.T, db storetest.DB, row int64, now time.Time) {
	t.Helper()
	for range 300 {
		j := get(t, db, row)
		loc, err := schedule.LoadLocation(j.Zone)
		if err != nil {
			t.Fatal(err)
		}
		sched, err := schedule.ParseText(j.Schedule, loc)
		if err != nil {
			t.Fatal(err)
		}
		d := cron.Decide(j, sched, now)
		if d.IsZero() {
			return
		}
		c := d.Claim(j, newRun())
		if d.Slot.IsZero() {
			if err := db.SkipCronJobs(t.Context(), "c1", []cron.Claim{c}); err != nil {
				t.Fatal(err)
			}
		} else if fired := fire(t, db, c); len(fired) != 1 {
			t.Fatalf("fired %+v", fired)
		}
	}
	t.Fatal("there is always something due")
}

// A trigger that nobody fired for a while follows the catch-up policy of its row; each slot has one verdict, and the jobs
// are those of the slots that fired.
func TestMissedSlotsOfATrigger(t *testing.T) {
	for name, tc := range map[string]struct {
		policy  cron.Catchup
		missed  int
		fired   int
		skipped int
	}{
		"last":                     {cron.CatchupLast, 10, 1, 9},
		"last, one slot":           {cron.CatchupLast, 1, 1, 0},
		"none":                     {cron.CatchupNone, 10, 0, 10},
		"all":                      {cron.CatchupAll, 10, 10, 0},
		"all, more than are taken": {cron.CatchupAll, 150, 100, 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "")
			tr := create(t, db, newTrigger(trigger.Every, "1m"))
			if get(t, db, tr.CronJob).Catchup != cron.CatchupLast {
				t.Error("missed slots of a trigger are not collapsed")
			}
			first := tr.Next
			rewind(db, tr, time.Duration(tc.missed)*time.Minute+30*time.Second)
			db.Exec("UPDATE carillon.cron_jobs SET catchup = $2 WHERE id = $1", tr.CronJob, tc.policy)
			now := first.Add(-30*time.Second - time.Millisecond) // rewound: between the last missed slot and the next one
			decideAll(t, db, tr.CronJob, now)
			var fired, skipped int
			decided := map[time.Time]int{}
			for _, r := range history(t, db, tr.CronJob) {
				switch r.Verdict {
				case cron.Fired:
					fired += r.Count
				case cron.SkippedMissed:
					skipped += r.Count
				default:
					t.Errorf("verdict %s", r.Verdict)
				}
				for slot := r.Slot; !slot.After(r.SlotTo); slot = slot.Add(time.Minute) {
					decided[slot]++
				}
			}
			var jobs int
			db.Scan("SELECT count(DISTINCT slot) FROM carillon.jobs WHERE trigger_id = $1", []any{tr.ID}, &jobs)
			if fired != tc.fired || skipped != tc.skipped || jobs != fired || len(decided) != tc.missed {
				t.Errorf("%d fired, %d skipped, %d jobs, %d slots decided; want %d, %d of %d", fired, skipped, jobs, len(decided), tc.fired, tc.skipped, tc.missed)
			}
			for slot, n := range decided {
				if n != 1 {
					t.Errorf("%d verdicts of %s", n, slot)
				}
			}
			if next := get(t, db, tr.CronJob).Next; !next.After(now) || next.After(now.Add(time.Minute)) {
				t.Errorf("goes on at %s, it is %s", next, now)
			}
		})
	}
}

// A trigger fires by the clock of its own zone: once a day, also on the days on which its time is left out or comes twice.
func TestATriggerInItsZone(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		for _, tc := range []struct{ arguments, zone, from, until, want string }{
			{"30 2 * * *", "Europe/Paris", "2025-03-29T00:00:00Z", "2025-03-31T12:00:00Z", "2025-03-29T01:30:00Z 2025-03-30T01:00:00Z 2025-03-31T00:30:00Z"},
			{"30 2 * * *", "Europe/Paris", "2025-10-25T00:00:00Z", "2025-10-27T12:00:00Z", "2025-10-25T00:30:00Z 2025-10-26T00:30:00Z 2025-10-27T01:30:00Z"},
			{"0 9 * * *", "America/New_York", "2025-03-08T00:00:00Z", "2025-03-09T20:00:00Z", "2025-03-08T14:00:00Z 2025-03-09T13:00:00Z"},
			{"0 9 * * *", "", "2025-03-29T00:00:00Z", "2025-03-30T20:00:00Z", "2025-03-29T09:00:00Z 2025-03-30T09:00:00Z"},
		} {
			tr := create(t, db, newTrigger(trigger.Cron, tc.arguments, func(tr *trigger.Trigger) { tr.TimeZone = tc.zone }))
			loc, err := schedule.LoadLocation(tc.zone)
			if err != nil {
				t.Fatal(err)
			}
			sched, err := schedule.ParseText(tr.Timetable, loc)
			if err != nil {
				t.Fatal(err)
			}
			from, _ := time.Parse(time.RFC3339, tc.from)
			until, _ := time.Parse(time.RFC3339, tc.until)
			db.Exec("UPDATE carillon.cron_jobs SET next_execution = $2, catchup = 'all' WHERE id = $1", tr.CronJob, cron.FirstAfter(sched, from))
			decideAll(t, db, tr.CronJob, until)
			var got []string
			for _, r := range history(t, db, tr.CronJob) {
				if r.Verdict == cron.Fired {
					got = append(got, r.Slot.UTC().Format(time.RFC3339))
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s in %q: %v, want %s", tc.arguments, tc.zone, got, tc.want)
			}
		}
	})
}

// What chose its own slot keeps it: whoever reads the row, whatever is patched, and through a pause.
func TestWindowsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	for kind, arguments := range map[trigger.Kind]string{
		trigger.Hourly: "", trigger.Daily: "between 8am and 6pm", trigger.Weekly: "on mon,wed after 4pm", trigger.Monthly: "on the 1-5 before 9am",
	} {
		tr := create(t, db, newTrigger(kind, arguments, func(tr *trigger.Trigger) { tr.TimeZone = "Europe/Paris" }))
		same := func(when string) {
			t.Helper()
			now, err := db.GetTrigger(t.Context(), "t", tr.Key)
			if err != nil || now.Timetable != tr.Timetable || !now.Next.Equal(tr.Next) || get(t, db, tr.CronJob).Schedule != tr.Timetable {
				t.Errorf("%s: %q next at %s after %s, want %q at %s; %v", kind, now.Timetable, now.Next, when, tr.Timetable, tr.Next, err)
			}
		}
		same("its creation")
		if _, err := db.PatchTrigger(t.Context(), "t", tr.Key, func(tr trigger.Trigger, _ time.Time) (trigger.Trigger, error) {
			tr.Message = []byte(`2`)
			return tr, nil
		}); err != nil {
			t.Fatal(err)
		}
		same("a patch")
		if _, err := db.PauseTrigger(t.Context(), "t", tr.Key, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ResumeTrigger(t.Context(), "t", tr.Key, ""); err != nil {
			t.Fatal(err)
		}
		same("a pause")
		for _, d := range []time.Duration{0, 48 * time.Hour, 4000 * time.Hour} { // a controller that starts anew at some time makes the same text
			if text, err := trigger.Timetable(kind, arguments, "Europe/Paris", tr.Key, tr.CreatedAt.Add(d)); err != nil || text != tr.Timetable {
				t.Errorf("%s: %q %s later, want %q", kind, text, d, tr.Timetable)
			}
		}
	}
}

// A trigger whose jobs do not end any more makes no further ones: its slots are skipped, one verdict each, and both the
// ledger and the trigger say why. It goes on when they are fewer.
func TestATriggerWithVeryManyJobs(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := create(t, db, newTrigger(trigger.Every, "1m"))
		idle := create(t, db, newTrigger(trigger.Every, "1m"))
		rewind(db, tr, 10*time.Minute)
		db.Exec("UPDATE carillon.cron_jobs SET catchup = 'all' WHERE id = $1", tr.CronJob) // a slot at a time
		if f := fire(t, db, dueClaim(t, db, tr.CronJob)); len(f) != 1 || f[0].Made.N == 0 {
			t.Fatalf("fired %+v", f)
		}
		db.Exec(`INSERT INTO carillon.jobs (due_at, cron_job_id, queue_id, shard, salt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload)
			SELECT due_at, cron_job_id, queue_id, 0, 0, 1, 1, 1, 1, 500, '' FROM carillon.jobs, generate_series(2, $1)`, cron.MaxLive)
		var skipped []time.Time
		for range 3 {
			c := dueClaim(t, db, tr.CronJob)
			skipped = append(skipped, c.Slot)
			var wg sync.WaitGroup
			for range 4 {
				c := c
				c.RunID = newRun()
				wg.Go(func() {
					if _, err := db.FireCronJobs(t.Context(), "c1", []cron.Claim{c}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		why := fmt.Sprintf("%d jobs of earlier slots have not ended", cron.MaxLive)
		runs := history(t, db, tr.CronJob)
		if len(runs) != 4 {
			t.Fatalf("ledger %+v", runs)
		}
		for i, slot := range skipped {
			found := 0
			for _, r := range runs {
				if r.Slot.Equal(slot) && r.Verdict == cron.SkippedOverlap && r.Count == 1 && r.Error == why {
					found++
				}
			}
			if found != 1 {
				t.Errorf("slot %d: %d verdicts in %+v", i, found, runs)
			}
		}
		said, err := db.GetTrigger(t.Context(), "t", tr.Key)
		if want := "skipped " + skipped[2].UTC().Format(time.RFC3339) + ": " + why; err != nil || said.LastError != want || said.Rev != tr.Rev {
			t.Errorf("the trigger says %q, %v; want %q", said.LastError, err, want)
		}
		if other, err := db.GetTrigger(t.Context(), "t", idle.Key); err != nil || other.LastError != "" {
			t.Errorf("the other one says %q, %v", other.LastError, err)
		}
		db.Exec("DELETE FROM carillon.jobs WHERE id = (SELECT min(id) FROM carillon.jobs)")
		if f := fire(t, db, dueClaim(t, db, tr.CronJob)); len(f) != 1 || f[0].Made.N == 0 {
			t.Errorf("with one job less: %+v", f)
		}
		if wrong, err := db.FindOverlaps(t.Context(), db.Now().Add(-time.Hour)); err != nil || len(wrong) != 0 {
			t.Errorf("overlaps %v, %v", wrong, err)
		}
	})
}

// Firings that the limit put off are in nobody's way: however many they are, the next slot makes its job, too. Those that
// are due count.
func TestPutOffJobsHoldUpNoSlot(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := create(t, db, newTrigger(trigger.Every, "1m", func(tr *trigger.Trigger) { tr.Ref = "m.push" }))
		limit, _ := trigger.LimitOf("push")
		db.Exec("INSERT INTO carillon.rate_limits (tenant, domain, kind, opened_at, count) VALUES ($1, $2, 'push', now(), $3)", tr.Tenant, tr.Domain, limit)
		rewind(db, tr, 10*time.Minute)
		db.Exec("UPDATE carillon.cron_jobs SET catchup = 'all' WHERE id = $1", tr.CronJob) // a slot at a time
		if f := fire(t, db, dueClaim(t, db, tr.CronJob)); len(f) != 1 || f[0].Made.N == 0 || f[0].Due.IsZero() {
			t.Fatalf("fired %+v", f)
		}
		db.Exec(`INSERT INTO carillon.jobs (due_at, cron_job_id, queue_id, shard, salt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload)
			SELECT due_at, cron_job_id, queue_id, 0, 0, 1, 1, 1, 1, 500, '' FROM carillon.jobs, generate_series(2, $1)`, cron.MaxLive)
		for range 2 {
			if f := fire(t, db, dueClaim(t, db, tr.CronJob)); len(f) != 1 || f[0].Made.N == 0 || f[0].Due.IsZero() {
				t.Errorf("fired %+v", f)
			}
		}
		db.Exec("UPDATE carillon.jobs SET due_at = now()")
		if f := fire(t, db, dueClaim(t, db, tr.CronJob)); len(f) != 1 || f[0].Made.N != 0 {
			t.Errorf("with %d that are due: %+v", cron.MaxLive+2, f)
		}
	})
}

// A trigger whose verb is not there says so: its module never was, is stopped, or has the verb no more. Its slots make jobs
// all the same, which wait, and the next slot is kept; when the verb is back, the trigger is content again.
func TestATriggerSaysThatItsWorkerIsNotThere(t *testing.T) {
	const away = "jobs: could not find worker"
	inZones(t, func(t *testing.T, db storetest.DB) {
		tr := create(t, db, newTrigger(trigger.Every, "1m", func(tr *trigger.Trigger) { tr.Ref = "m.mailer" }))
		other := create(t, db, newTrigger(trigger.Every, "1m", func(tr *trigger.Trigger) { tr.Ref = "m.other" }))
		once := create(t, db, newTrigger(trigger.At, "2026-01-02T03:04:05Z", func(tr *trigger.Trigger) { tr.Ref = "gone.mailer" }))
		db.Exec("UPDATE carillon.cron_jobs SET catchup = 'all'") // a slot at a time
		rewind(db, tr, 10*time.Minute)
		rewind(db, other, 10*time.Minute)
		live := func(schema string) {
			db.Deploy(0, db.Now())
			db.Exec("UPDATE carillon.deployments SET min_replicas = 1, schema = $1", schema)
		}
		for i, c := range []struct {
			step   string
			change func()
			want   string
		}{
			{"no module", func() {}, away},
			{"deployed", func() {
				live("module m\nverb other() Unit\nexport verb mailer(Mail) Unit\ndata Mail {\n  to String\n}\n")
			}, ""},
			{"without the verb", func() {
				live("module m\nverb mailers() Unit\n  +cron * * * * *\nverb other() Unit\ndata mailer {\n  verb mailer\n}\n")
			}, away},
			{"back", func() { live("module m\nverb mailer() Unit\nverb other() Unit\n") }, ""},
			{"stopped", func() { db.Exec("UPDATE carillon.deployments SET min_replicas = 0") }, away},
		} {
			c.change()
			row := get(t, db, tr.CronJob)
			f := fire(t, db, dueClaim(t, db, tr.CronJob), dueClaim(t, db, other.CronJob))
			if len(f) != 2 || f[0].Made.N == 0 || f[1].Made.N == 0 || getJob(t, db, job.ID(f[0].Made)).State != job.Ready {
				t.Fatalf("%s: fired %+v", c.step, f)
			}
			said, err := db.GetTrigger(t.Context(), "t", tr.Key)
			if after := get(t, db, tr.CronJob); err != nil || said.LastError != c.want || said.Rev != tr.Rev || !after.Enabled || !after.Next.Equal(row.Next.Add(time.Minute)) {
				t.Errorf("%s: the trigger says %q, %v; want %q; next %v after %v", c.step, said.LastError, err, c.want, after.Next, row.Next)
			}
			if o, err := db.GetTrigger(t.Context(), "t", other.Key); err != nil || (o.LastError != "") != (i == 0 || c.step == "stopped") {
				t.Errorf("%s: the other one says %q, %v", c.step, o.LastError, err)
			}
		}
		db.Exec("UPDATE carillon.triggers SET last_error = 'something else' WHERE id = $1", tr.ID)
		db.Exec("UPDATE carillon.deployments SET min_replicas = 1")
		fire(t, db, dueClaim(t, db, tr.CronJob))
		if said, err := db.GetTrigger(t.Context(), "t", tr.Key); err != nil || said.LastError != "something else" {
			t.Errorf("another error became %q, %v", said.LastError, err)
		}
		// What fires once has done so; its job waits for the verb.
		f := fire(t, db, dueClaim(t, db, once.CronJob))
		var gone bool
		db.Scan("SELECT deleted_at IS NOT NULL FROM carillon.triggers WHERE id = $1", []any{once.ID}, &gone)
		if len(f) != 1 || f[0].Made.N == 0 || getJob(t, db, job.ID(f[0].Made)).State != job.Ready || !gone {
			t.Errorf("fired %+v", f)
		}
	})
}
