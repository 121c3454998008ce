package scheduler

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
)

// trigger makes a row that of a trigger.
func trigger(j *cron.Job) {
	j.Trigger, j.Fires, j.Overlap, j.Deployment = j.ID, true, cron.OverlapAllow, ""
}

func limited(j *cron.Job) { j.Limited = true }

func TestTriggersFireTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now().UTC()
		past := start.Add(-240 * time.Hour)
		every := d.add("@every", "@every 2s from "+start.Add(-time.Second).Format(time.RFC3339), trigger, limited)
		cronjob := d.add("@cron", "@cron */5 * * * * *", trigger)
		once := d.add("@once", "@at "+start.Add(2500*time.Millisecond).Format(time.RFC3339Nano), trigger)
		late := d.add("@late", "@at "+past.Format(time.RFC3339Nano), trigger, func(j *cron.Job) { j.Next = past })
		verb := d.add("m.v", "*/5 * * * * *")
		var heard told
		a, b := d.controller(t, "a", succeed, heard.hear), d.controller(t, "b", succeed)
		a.OnRing(allShards, nil)
		b.OnRing(nil, allShards)
		wait(20*time.Second + 100*time.Millisecond)
		for _, j := range []*cron.Job{every, cronjob, verb} {
			d.everySlotOnce(t, j, start.Add(time.Nanosecond))
		}
		if got := d.story(once, start); got != "fired 2.5s" {
			t.Errorf("once: %s", got)
		}
		if got := d.story(late, start); got != "fired -240h0m0s" {
			t.Errorf("late: %s", got)
		}
		if len(d.made) != 10+4+1+1 {
			t.Errorf("%d jobs", len(d.made))
		}
		if st := a.Stats(); st.Rows != 3 || st.SetAside != 0 { // those that fired once are gone
			t.Errorf("stats %+v", st)
		}
		if d.count("repair") != 0 {
			t.Error("a row was repaired")
		}
		wait(2 * time.Minute) // over a reset
		if st := b.Stats(); st.Rows != 3 {
			t.Errorf("stats of the other %+v", st)
		}
	})
}

func TestAMalformedTriggerIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		var bad []*cron.Job
		for _, text := range []string{"@every 0s from 2026-01-01T00:00:00Z", "@at tomorrow", "@cron 61 * * * *", "@hourly", ""} {
			bad = append(bad, d.add("@bad", text, trigger, func(j *cron.Job) { j.Next = start.Add(time.Second).UTC() }))
		}
		good := d.add("@good", "@every 1s from "+start.UTC().Format(time.RFC3339), trigger)
		a := d.controller(t, "a", succeed)
		a.OnRing(allShards, nil)
		wait(3500 * time.Millisecond)
		for _, j := range bad {
			if d.aside[j.ID] == "" {
				t.Errorf("%q was not set aside", j.Schedule)
			}
		}
		if got := d.story(good, start); got != "fired 1s, fired 2s, fired 3s" {
			t.Errorf("its neighbour: %s", got)
		}
	})
}

func TestNewTriggersAreLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, start := newDatabase(), time.Now()
		a, b := d.controller(t, "a", succeed), d.controller(t, "b", succeed)
		a.OnRing(allShards, nil)
		b.OnRing(nil, nil)
		wait(time.Second)
		text := "@every 1s from " + start.UTC().Format(time.RFC3339)
		owned, adopted := d.add("@owned", text, trigger), d.add("@adopted", text, trigger)
		if err := a.Learn(t.Context(), []int64{owned.ID}); err != nil {
			t.Fatal(err)
		}
		if err := b.Learn(t.Context(), []int64{adopted.ID}); err != nil || b.Stats().Rows != 0 {
			t.Errorf("learned what it does not own: %+v, %v", b.Stats(), err)
		}
		names, err := b.AdoptRows(t.Context(), []int64{adopted.ID})
		if err != nil || len(names) != 1 || names[0] != "@adopted" || b.Stats().Rows != 1 {
			t.Errorf("adopted %v, %v", names, err)
		}
		wait(2100 * time.Millisecond)
		for _, j := range []*cron.Job{owned, adopted} {
			if got := d.story(j, start); got != "fired 2s, fired 3s" {
				t.Errorf("%s: %s", j.Ref, got)
			}
		}
		b.Release(names)
		if b.Stats().Rows != 0 {
			t.Errorf("released: %+v", b.Stats())
		}
		d.mu.Lock()
		owned.Enabled, owned.RemovedAt, owned.Next = false, d.now(), time.Time{}
		owned.Version++
		d.mu.Unlock()
		if err := a.Learn(t.Context(), []int64{owned.ID, adopted.ID, 4711}); err != nil || a.Stats().Rows != 1 {
			t.Errorf("after its removal: %+v, %v", a.Stats(), err)
		}
		if _, err := b.AdoptRows(t.Context(), []int64{adopted.ID}); err != nil {
			t.Fatal(err)
		}
		wait(3 * time.Minute) // nobody releases it: the resets do
		if b.Stats().Rows != 0 {
			t.Errorf("adopted for good: %+v", b.Stats())
		}
	})
}

func TestAHerdOfTriggersFiresInItsSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const herd = 5000
		d, start := newDatabase(), time.Now().UTC()
		for i := range herd {
			text := "@at " + start.Add(time.Minute).Format(time.RFC3339Nano)
			if i%2 == 0 {
				text = "@every 1m from " + start.Format(time.RFC3339)
			}
			d.add(fmt.Sprintf("@%d", i), text, trigger)
		}
		a, b := d.controller(t, "a", succeed), d.controller(t, "b", succeed)
		a.OnRing(allShards[:2], allShards[2:])
		b.OnRing(allShards[2:], allShards[:2])
		wait(time.Minute + 900*time.Millisecond)
		if len(d.made) != herd || d.count("fire") > 2*herd/250+50 {
			t.Errorf("%d jobs by %d statements", len(d.made), d.count("fire"))
		}
		if n := a.Stats().Rows + b.Stats().Rows; n > 2*herd { // those that fired here are gone, the other owner's view goes with its reset
			t.Errorf("%d rows are held", n)
		}
	})
}

// What 100,000 triggers with a text of their own cost: the cache of schedules does not grow with them.
func TestManyTriggersAreHeld(t *testing.T) {
	const n = 100_000
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newPlan(250 * time.Millisecond)
	for id := range int32(1021) {
		p.own(id, firstOwner, 0, start)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const chunk = 500
	for i := 0; i < n; i += chunk {
		jobs := make([]cron.Job, chunk)
		for k := range jobs {
			id := int64(i + k + 1)
			jobs[k] = cron.Job{
				ID: id, Ref: fmt.Sprintf("@%032d", id), Shard: int32(id % 1021), Version: 1, Enabled: true, State: cron.Idle, Fires: true, Trigger: id,
				Schedule: "@every 1h0m0s from " + start.Add(time.Duration(id)*time.Second).Format(time.RFC3339), Next: start.Add(time.Duration(id)*time.Second + time.Hour),
				Timeout: time.Minute, Catchup: cron.CatchupLast, Overlap: cron.OverlapAllow,
			}
		}
		if bad := p.load(jobs, 0, 1, toMicros(start)); len(bad) > 0 {
			t.Fatal(bad)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perRow := float64(after.HeapAlloc-before.HeapAlloc) / n
	if len(p.rows) != n || len(p.parsed) != 0 || perRow > 1000 {
		t.Errorf("%d rows, %d texts, %.0f bytes a row", len(p.rows), len(p.parsed), perRow)
	}
	t.Logf("%.0f bytes a row", perRow)
	runtime.KeepAlive(p)
}
