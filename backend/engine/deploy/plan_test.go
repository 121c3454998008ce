package deploy

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
	"carillon/backend/core/schema"
)

var noon = time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC) // half a minute past

func at(offset time.Duration) time.Time { return noon.Truncate(time.Minute).Add(offset) }

const minutely, hourly = "* * * * *", "0 * * * *"

// row is m.beat, each minute, its first undecided slot the coming minute, changed by the test.
func row(change func(*cron.Job)) cron.Job {
	j := cron.Job{
		ID: 7, Ref: "m.beat", Shard: ring.Shard("m.beat"), Version: 3, Enabled: true, State: cron.Idle, Next: at(time.Minute), Schedule: minutely,
		Timeout: schema.DefaultTimeout, Catchup: cron.CatchupLast, Overlap: cron.OverlapSkip, Deployment: "m-1",
	}
	if change != nil {
		change(&j)
	}
	return j
}

func standing(replicas int, jobs ...cron.Job) deployment.Module {
	return deployment.Module{Name: "m", Now: noon, Jobs: jobs, Live: &deployment.Deployment{ID: 1, Key: "m-1", Module: "m", Digest: "1", MinReplicas: replicas, Active: true}}
}

func beats(schedule string) schema.Module {
	return schema.Module{Name: "m", Language: schema.Go, Verbs: []schema.Verb{
		{Name: "beat", Request: schema.Unit, Response: schema.Unit, Cron: &schema.Cron{Schedule: schedule}},
		{Name: "plain", Request: "A", Response: "B"},
	}, Data: []schema.Data{{Name: "A", Fields: []schema.Field{{Name: "to", Type: "String"}}}, {Name: "B"}}}
}

func TestPlanOfOneCronJob(t *testing.T) {
	due := func(j *cron.Job) { j.Next = at(-5 * time.Minute) }
	paused := func(j *cron.Job) { j.Enabled, j.PausedAt = false, at(-time.Hour) }
	executing := func(j *cron.Job) {
		j.State, j.Current = cron.Executing, cron.Run{ID: cron.RunID{1}, Slot: at(0), Controller: "c", Deployment: "m-1"}
	}
	off := func(j *cron.Job) { j.Enabled, j.Next = false, at(-3*time.Minute) }
	all := func(changes ...func(*cron.Job)) func(*cron.Job) {
		return func(j *cron.Job) {
			for _, c := range changes {
				c(j)
			}
		}
	}
	for name, c := range map[string]struct {
		before   deployment.Module
		schema   schema.Module
		kind     Kind
		enabled  bool
		next     time.Time
		skipped  cron.Range
		reason   string
		replicas int
	}{
		"added to nothing":            {deployment.Module{Name: "m", Now: noon}, beats(minutely), Added, true, at(time.Minute), cron.Range{}, "", 1},
		"added beside another":        {standing(3), beats(minutely), Added, true, at(time.Minute), cron.Range{}, "", 3},
		"unchanged":                   {standing(1, row(nil)), beats(minutely), Unchanged, true, at(time.Minute), cron.Range{}, "", 1},
		"a future slot is recomputed": {standing(1, row(nil)), beats(hourly), Changed, true, at(time.Hour), cron.Range{}, "", 1},
		"a due slot stays":            {standing(1, row(due)), beats(hourly), Changed, true, at(-5 * time.Minute), cron.Range{}, "", 1},
		"a run in flight goes on":     {standing(1, row(executing)), beats(hourly), Changed, true, at(time.Hour), cron.Range{}, "", 1},
		"exhausted, it fires again":   {standing(1, row(func(j *cron.Job) { j.Next = time.Time{} })), beats(minutely), Unchanged, true, at(time.Minute), cron.Range{}, "", 1},
		"paused stays paused":         {standing(1, row(paused)), beats(hourly), Changed, false, at(time.Hour), cron.Range{}, "", 1},
		"paused keeps its backlog":    {standing(1, row(all(due, paused))), beats(minutely), Unchanged, false, at(-5 * time.Minute), cron.Range{}, "", 1},
		"set aside is cleared": {standing(1, row(all(off, func(j *cron.Job) { j.SetAsideAt, j.Schedule = at(-3*time.Minute), "nonsense" }))), beats(minutely),
			Changed, true, at(time.Minute), cron.Range{From: at(-3 * time.Minute), To: at(0), Count: 4}, "set aside", 1},
		"scaled to 0, it starts anew": {standing(0, row(off)), beats(minutely),
			Unchanged, true, at(time.Minute), cron.Range{From: at(-3 * time.Minute), To: at(0), Count: 4}, "scaled to 0", 1},
		"scaled to 0 and paused":  {standing(0, row(all(off, paused))), beats(minutely), Unchanged, false, at(-3 * time.Minute), cron.Range{}, "", 1},
		"revived":                 {standing(1, row(func(j *cron.Job) { j.Enabled, j.Next, j.RemovedAt = false, time.Time{}, at(-time.Hour) })), beats(minutely), Revived, true, at(time.Minute), cron.Range{}, "", 1},
		"removed":                 {standing(1, row(nil)), beats(""), Removed, false, time.Time{}, cron.Range{}, "verb removed", 1},
		"removal decides the due": {standing(1, row(due)), beats(""), Removed, false, time.Time{}, cron.Range{From: at(-5 * time.Minute), To: at(0), Count: 6}, "verb removed", 1},
		"removal of the unparsable": {standing(1, row(all(due, func(j *cron.Job) { j.Schedule = "nonsense" }))), beats(""),
			Removed, false, time.Time{}, cron.Range{From: at(-5 * time.Minute), To: at(-5 * time.Minute), Count: 1}, "verb removed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if c.kind == Removed {
				c.schema.Verbs = c.schema.Verbs[1:]
			}
			u, changes, err := plan(c.before, c.schema)
			if err != nil || len(u.Jobs) != 1 || len(changes) != 1 {
				t.Fatalf("%+v, %+v, %v", u, changes, err)
			}
			if !u.Activate || *u.MinReplicas != c.replicas {
				t.Errorf("activate %t, %d replicas, want %d", u.Activate, *u.MinReplicas, c.replicas)
			}
			if changes[0].Kind != c.kind || changes[0].Ref != "m.beat" {
				t.Errorf("change %+v, want kind %d", changes[0], c.kind)
			}
			if c.kind != Removed && len(changes[0].Next) != shownSlots {
				t.Errorf("shows the slots %v", changes[0].Next)
			}
			got := u.Jobs[0]
			if got.Job.Enabled != c.enabled || !got.Job.Next.Equal(c.next) {
				t.Errorf("enabled %t, next %s; want %t, %s", got.Job.Enabled, got.Job.Next, c.enabled, c.next)
			}
			if d := cmp.Diff(c.skipped, got.Skipped); d != "" || got.Reason != c.reason {
				t.Errorf("skipped (-want +got) %s, for %q, want %q", d, got.Reason, c.reason)
			}
			checkRow(t, c.before, got, c.kind)
		})
	}
}

// checkRow checks what holds for every planned row: identity survives, and an enabled row has no reason to be off.
func checkRow(t *testing.T, before deployment.Module, got deployment.JobUpdate, kind Kind) {
	t.Helper()
	if len(before.Jobs) > 0 {
		old := before.Jobs[0]
		if got.Job.ID != old.ID || got.Job.State != old.State || got.Job.Current != old.Current || !got.Job.PausedAt.Equal(old.PausedAt) {
			t.Errorf("row %+v took over %+v", got.Job, old)
		}
	}
	if got.Job.Shard != ring.Shard("m.beat") || !got.Job.SetAsideAt.IsZero() || got.Job.RemovedAt.IsZero() == (kind == Removed) {
		t.Errorf("row %+v", got.Job)
	}
}

func TestPlanNoticesEveryDifference(t *testing.T) {
	for name, change := range map[string]func(*schema.Cron){
		"schedule": func(c *schema.Cron) { c.Schedule = hourly },
		"zone":     func(c *schema.Cron) { c.TimeZone = "Europe/Paris" },
		"timeout":  func(c *schema.Cron) { c.Timeout = time.Second },
		"catchup":  func(c *schema.Cron) { c.Catchup = schema.CatchupAll },
	} {
		s := beats(minutely)
		change(s.Verbs[0].Cron)
		u, changes, err := plan(standing(1, row(nil)), s)
		if err != nil || changes[0].Kind != Changed || changes[0].OldSchedule != minutely {
			t.Errorf("%s: %+v, %v", name, changes, err)
		}
		if j := u.Jobs[0].Job; j.Zone != s.Verbs[0].Cron.TimeZone || j.Timeout != s.Verbs[0].Cron.SoftTimeout() || string(j.Catchup) != s.Verbs[0].Cron.Catchup.String() {
			t.Errorf("%s: row %+v", name, j)
		}
	}
}

// With a retry, or an overlap that only jobs can follow, the row fires, and what it lacks of a retry is filled in.
func TestPlanOfVerbsThatFire(t *testing.T) {
	defaults := cron.Retry{Attempts: job.DefaultAttempts, Backoff: job.DefaultBackoff, Ceiling: job.DefaultCeiling}
	once := defaults
	once.Attempts = 1
	for name, c := range map[string]struct {
		overlap     schema.Overlap
		catchup     schema.Catchup
		retry       *schema.Retry
		concurrency int
		fires       bool
		want        cron.Retry
		limit       int
	}{
		"plain":                       {},
		"plain and bounded":           {concurrency: 3, limit: 3},
		"retry":                       {retry: &schema.Retry{}, fires: true, want: defaults},
		"retry of its own":            {retry: &schema.Retry{Attempts: 2, Backoff: time.Hour}, fires: true, want: cron.Retry{Attempts: 2, Backoff: time.Hour, Ceiling: time.Hour}},
		"retry, all that was missed":  {retry: &schema.Retry{}, catchup: schema.CatchupAll, fires: true, want: defaults, limit: 1},
		"queue":                       {overlap: schema.OverlapQueue, fires: true, want: once, limit: 1},
		"queue is stricter than that": {overlap: schema.OverlapQueue, concurrency: 9, fires: true, want: once, limit: 1},
		"allow":                       {overlap: schema.OverlapAllow, fires: true, want: once},
		"allow some":                  {overlap: schema.OverlapAllow, concurrency: 9, retry: &schema.Retry{}, fires: true, want: defaults, limit: 9},
		"cancel":                      {overlap: schema.OverlapCancel, fires: true, want: once},
	} {
		t.Run(name, func(t *testing.T) {
			s := beats(minutely)
			v := &s.Verbs[0]
			v.Cron.Overlap, v.Cron.Catchup, v.Retry, v.Concurrency = c.overlap, c.catchup, c.retry, c.concurrency
			u, changes, err := plan(standing(1, row(nil)), s)
			if err != nil {
				t.Fatal(err)
			}
			if j := u.Jobs[0].Job; j.Fires != c.fires || j.Retry != c.want || string(j.Overlap) != c.overlap.String() {
				t.Errorf("row fires %t, %+v, %s", j.Fires, j.Retry, j.Overlap)
			}
			want := map[string]int{}
			if c.limit > 0 {
				want["m.beat"] = c.limit
			}
			if d := cmp.Diff(want, u.Limits); d != "" {
				t.Errorf("limits (-want +got) %s", d)
			}
			if c.fires != (changes[0].Kind == Changed) {
				t.Errorf("change %+v", changes[0])
			}
			again, changes, err := plan(standing(1, u.Jobs[0].Job), s)
			if err != nil || changes[0].Kind != Unchanged || again.Jobs[0].Job.Retry != c.want {
				t.Errorf("the same again: %+v, %v", changes, err)
			}
			if _, changes, _ := plan(standing(1, u.Jobs[0].Job), beats(minutely)); c.fires != (changes[0].Kind == Changed) {
				t.Errorf("and back: %+v", changes)
			}
		})
	}
}

// A module whose verbs no clock starts deploys like any other; the limits of its verbs are all that it writes.
func TestPlanOfAModuleWithoutACron(t *testing.T) {
	s := beats(minutely)
	s.Verbs = s.Verbs[1:]
	s.Verbs[0].Concurrency = 4
	u, changes, err := plan(deployment.Module{Name: "m", Now: noon}, s)
	if err != nil || len(u.Jobs) != 0 || len(changes) != 0 || !u.Activate || u.Limits["m.plain"] != 4 {
		t.Errorf("%+v, %+v, %v", u, changes, err)
	}
}

func TestScale(t *testing.T) {
	off := func(j *cron.Job) { j.Enabled, j.Next = false, at(-time.Minute) }
	pausedOff := func(j *cron.Job) { off(j); j.ID, j.Ref, j.PausedAt = 8, "m.paused", at(-time.Hour) }
	badOff := func(j *cron.Job) { off(j); j.ID, j.Ref, j.Schedule = 9, "m.bad", "nonsense" }
	removed := func(j *cron.Job) { j.ID, j.Ref, j.Enabled, j.RemovedAt = 10, "m.gone", false, at(-time.Hour) }
	aside := func(j *cron.Job) { j.ID, j.Ref, j.Enabled, j.SetAsideAt = 11, "m.aside", false, at(-time.Hour) }

	u, err := scale(standing(2, row(nil), row(pausedOff), row(removed), row(aside)), 0)
	if err != nil || *u.MinReplicas != 0 || len(u.Jobs) != 1 || u.Activate {
		t.Fatalf("to 0: %+v, %v", u, err)
	}
	if j := u.Jobs[0]; j.Job.Enabled || !j.Job.Next.Equal(at(time.Minute)) || !j.Skipped.IsZero() {
		t.Errorf("to 0: %+v", j)
	}

	u, err = scale(standing(0, row(off), row(pausedOff), row(badOff), row(removed), row(aside)), 5)
	if err != nil || *u.MinReplicas != 5 || len(u.Jobs) != 2 {
		t.Fatalf("from 0: %+v, %v", u, err)
	}
	want := cron.Range{From: at(-time.Minute), To: at(0), Count: 2}
	if j := u.Jobs[0]; !j.Job.Enabled || !j.Job.Next.Equal(at(time.Minute)) || j.Skipped != want || j.Reason != "scaled to 0" {
		t.Errorf("from 0: %+v", j)
	}
	// What cannot be read is left to the first controller that looks: its neighbours go on.
	if j := u.Jobs[1]; j.Job.Ref != "m.bad" || !j.Job.Enabled || !j.Job.Next.Equal(at(-time.Minute)) || !j.Skipped.IsZero() {
		t.Errorf("the bad row: %+v", j)
	}

	if u, err = scale(standing(2, row(nil)), 4); err != nil || len(u.Jobs) != 0 {
		t.Errorf("from 2 to 4 writes %+v, %v", u.Jobs, err)
	}
	if _, err = scale(deployment.Module{Name: "m", Now: noon}, 1); !errors.Is(err, cron.ErrNotFound) {
		t.Errorf("nothing is deployed: %v", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	u, err := pause(standing(1, row(nil)), "m.beat", "why")
	if err != nil || len(u.Jobs) != 1 {
		t.Fatalf("%+v, %v", u, err)
	}
	paused := u.Jobs[0]
	if paused.Job.Enabled || !paused.Job.PausedAt.Equal(noon) || !paused.Job.Next.Equal(at(time.Minute)) || *paused.PausedNote != "why" {
		t.Errorf("paused %+v", paused)
	}

	later := standing(1, paused.Job)
	later.Now = noon.Add(3 * time.Minute)
	if u, err = pause(later, "m.beat", "another"); err != nil || !u.Jobs[0].Job.PausedAt.Equal(noon) || *u.Jobs[0].PausedNote != "another" {
		t.Errorf("paused again %+v, %v", u, err)
	}
	if u, err = resume(later, "m.beat", "why"); err != nil || len(u.Jobs) != 1 {
		t.Fatalf("%+v, %v", u, err)
	}
	want := cron.Range{From: at(time.Minute), To: at(3 * time.Minute), Count: 3}
	if r := u.Jobs[0]; !r.Job.Enabled || !r.Job.PausedAt.IsZero() || !r.Job.Next.Equal(at(4*time.Minute)) || r.Skipped != want || r.Reason != "paused: why" || *r.PausedNote != "" {
		t.Errorf("resumed %+v", r)
	}

	stopped := later
	stopped.Live = &deployment.Deployment{ID: 1, Key: "m-1", MinReplicas: 0}
	if u, err = resume(stopped, "m.beat", "why"); err != nil || u.Jobs[0].Job.Enabled || !u.Jobs[0].Job.PausedAt.IsZero() || !u.Jobs[0].Skipped.IsZero() {
		t.Errorf("resumed in a stopped module %+v, %v", u, err)
	}
	if u, err = resume(standing(1, row(nil)), "m.beat", ""); err != nil || len(u.Jobs) != 0 {
		t.Errorf("resumed what ran %+v, %v", u, err)
	}
	bad := later
	bad.Jobs[0].Schedule = "nonsense"
	if _, err = resume(bad, "m.beat", ""); !errors.Is(err, cron.ErrPrecond) {
		t.Errorf("resumed an unparsable schedule: %v", err)
	}
	gone := standing(1, row(func(j *cron.Job) { j.RemovedAt = noon }))
	for what, err := range map[string]error{"pause": second(pause(gone, "m.beat", "")), "resume": second(resume(gone, "m.beat", "")), "unknown": second(pause(gone, "m.x", ""))} {
		if !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("%s of what is not there: %v", what, err)
		}
	}
}

func second(_ deployment.Update, err error) error { return err }
