package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
	"carillon/backend/store/storetest"
)

// allShards lists every shard there is.
var allShards = func() []int32 {
	s := make([]int32, 1021)
	for i := range s {
		s[i] = int32(i)
	}
	return s
}()

func putQueue(t *testing.T, db storetest.DB, tenant, ref string, lane int) job.Queue {
	t.Helper()
	q, err := db.PutQueues(t.Context(), []job.Queue{{Tenant: tenant, Ref: ref, Lane: lane}})
	if err != nil || len(q) != 1 {
		t.Fatalf("queues %v, %v", q, err)
	}
	return q[0]
}

func aJob(q job.Queue) job.Enqueue {
	return job.Enqueue{Queue: q.ID, New: job.Complete(job.New{Tenant: q.Tenant, Ref: q.Ref, Priority: 200*q.Lane + 100, Payload: []byte(`{"n":1}`)})}
}

func enqueue(t *testing.T, db storetest.DB, batch ...job.Enqueue) []job.Enqueued {
	t.Helper()
	out, err := db.EnqueueJobs(t.Context(), "c1", time.Minute, batch)
	if err != nil || len(out) != len(batch) {
		t.Fatalf("enqueued %d of %d, %v", len(out), len(batch), err)
	}
	return out
}

// ready enqueues n jobs that are due.
func ready(t *testing.T, db storetest.DB, q job.Queue, n int) []job.ID {
	t.Helper()
	ids := make([]job.ID, n)
	for i, e := range enqueue(t, db, slices.Repeat([]job.Enqueue{aJob(q)}, n)...) {
		ids[i] = e.ID
	}
	return ids
}

func claimOf(ids ...job.ID) []job.Claim {
	claims := make([]job.Claim, len(ids))
	for i, id := range ids {
		claims[i] = job.Claim{ID: id.N, Run: newRun(), Deployment: 7}
	}
	return claims
}

func claimAll(t *testing.T, db storetest.DB, ids ...job.ID) []job.Claimed {
	t.Helper()
	won, _, err := db.ClaimJobs(t.Context(), "c1", time.Minute, claimOf(ids...), "")
	if err != nil {
		t.Fatal(err)
	}
	return won
}

func endOf(c job.Claimed, o job.Outcome) job.End {
	return job.End{ID: c.N, Run: c.Run, Outcome: o, Step: job.Decide(c, o, c.Started, 0.5), Parent: c.Parent}
}

func finish(t *testing.T, db storetest.DB, ends ...job.End) []job.Ended {
	t.Helper()
	done, err := db.FinishJobs(t.Context(), ends)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func retry(t *testing.T, db storetest.DB, ends ...job.End) []job.Ended {
	t.Helper()
	done, err := db.RetryJobs(t.Context(), ends)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func getJob(t *testing.T, db storetest.DB, id job.ID) job.Job {
	t.Helper()
	j, err := db.GetJob(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func window(t *testing.T, db storetest.DB, cut job.Cut, page int) []job.Waiting {
	t.Helper()
	w, _, err := db.FetchWindow(t.Context(), []job.Cut{cut}, allShards, time.Minute, page)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var (
	succeeded = job.Outcome{Verdict: cron.Succeeded, Output: []byte(`"done"`)}
	failed    = job.Outcome{Verdict: cron.Failed, Text: "no"}
)

func TestJobLivesAndEnters(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t1", "mail.send", 2)
		e := aJob(q)
		e.Tags, e.Slot, e.Expires = []string{"a", "b, c"}, db.Now().Truncate(time.Hour), db.Now().Add(time.Hour)
		got := enqueue(t, db, e)[0]
		if got.N == 0 || got.Existing || got.Err != nil || !got.Started.IsZero() || db.Now().Sub(got.Due).Abs() > time.Second || !got.Due.Equal(got.Created) {
			t.Fatalf("enqueued %+v", got)
		}
		j := getJob(t, db, got.ID)
		if j.State != job.Ready || j.Tenant != "t1" || j.Ref != "mail.send" || !slices.Equal(j.Tags, e.Tags) || !j.Slot.Equal(e.Slot) || string(j.Payload) != `{"n":1}` ||
			j.Priority != 500 || j.Retry != e.Retry || j.Timeout != e.Timeout || !j.Expires.Equal(e.Expires) || !j.Ended.IsZero() {
			t.Fatalf("job %+v", j)
		}
		if w := window(t, db, job.Cut{Queue: q.ID}, 10); len(w) != 1 || w[0].ID != got.N || !w[0].Due.Equal(got.Due) || int64(w[0].Shard) != got.N%1021 {
			t.Fatalf("window %+v", w)
		}
		won := claimAll(t, db, got.ID)
		if len(won) != 1 || won[0].ID != got.ID || won[0].Attempt != 1 || won[0].Tenant != "t1" || won[0].Ref != "mail.send" || string(won[0].Payload) != `{"n":1}` ||
			won[0].Retry != e.Retry || won[0].Started.Before(won[0].Due) || !won[0].Expires.Equal(e.Expires) {
			t.Fatalf("won %+v", won)
		}
		if j := getJob(t, db, got.ID); j.State != job.Running || j.Run != won[0].Run || j.Controller != "c1" {
			t.Fatalf("job %+v", j)
		}
		if again := claimAll(t, db, got.ID); len(again) != 0 || len(window(t, db, job.Cut{Queue: q.ID}, 10)) != 0 {
			t.Fatalf("claimed twice: %+v", again)
		}
		done := finish(t, db, endOf(won[0], succeeded))
		if len(done) != 1 || !done[0].Accepted || done[0].Repeated || done[0].State != job.Succeeded || done[0].Queue != q.ID {
			t.Fatalf("done %+v", done)
		}
		j = getJob(t, db, got.ID)
		if j.State != job.Succeeded || string(j.Output) != `"done"` || j.Ended.Before(j.Started) || j.Run != won[0].Run || len(j.Errors) != 0 || !slices.Equal(j.Tags, e.Tags) {
			t.Errorf("history %+v", j)
		}
		var live int
		db.Scan("SELECT count(*) FROM carillon.jobs", nil, &live)
		if live != 0 {
			t.Errorf("%d live jobs", live)
		}
		if _, err := db.GetJob(t.Context(), job.ID{N: got.N, Salt: got.Salt + 1}); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("a guessed id: %v", err)
		}
	})
}

func TestRetryMovesDue(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		id := ready(t, db, q, 1)[0]
		won := claimAll(t, db, id)
		done := retry(t, db, endOf(won[0], failed))
		if len(done) != 1 || !done[0].Accepted || done[0].State != job.Ready || done[0].Due.Sub(won[0].Started) < time.Second || done[0].Due.Sub(db.Now()) > time.Second {
			t.Fatalf("done %+v", done)
		}
		j := getJob(t, db, id)
		if j.State != job.Ready || j.Attempt != 1 || !j.Due.Equal(done[0].Due) || !j.Run.IsZero() || len(j.Errors) != 1 {
			t.Fatalf("job %+v", j)
		}
		if e := j.Errors[0]; e.Attempt != 1 || e.Text != "no" || e.Verdict != "failed" || e.Run != won[0].Run.String() || db.Now().Sub(e.At).Abs() > time.Minute {
			t.Errorf("error %+v", e)
		}
		if again := claimAll(t, db, id); len(again) != 0 {
			t.Errorf("claimed before it was due: %+v", again)
		}
		// Never begun: not counted, no error, and it keeps its turn.
		db.Exec("UPDATE carillon.jobs SET due_at = now() - interval '10 seconds'")
		due := getJob(t, db, id).Due
		won = claimAll(t, db, id)
		retry(t, db, endOf(won[0], job.Outcome{Verdict: cron.Cancelled, Requeue: true}))
		if j := getJob(t, db, id); j.Attempt != 1 || !j.Due.Equal(due) || len(j.Errors) != 1 || won[0].Attempt != 2 {
			t.Errorf("handed back: %+v", j)
		}
		won = claimAll(t, db, id)
		retry(t, db, endOf(won[0], job.Outcome{Verdict: cron.Succeeded, Snooze: true, After: time.Hour}))
		if j := getJob(t, db, id); j.Attempt != 1 || j.Due.Sub(db.Now()) < 59*time.Minute {
			t.Errorf("snoozed: %+v", j)
		}
	})
}

// The fence: an end that does not name the current run changes nothing; a repeated one is not late.
func TestOldRunIsRefused(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		id := ready(t, db, q, 1)[0]
		first := claimAll(t, db, id)[0]
		retry(t, db, endOf(first, job.Outcome{Requeue: true})) // as a sweep would
		second := claimAll(t, db, id)[0]
		for name, done := range map[string][]job.Ended{"finish": finish(t, db, endOf(first, succeeded)), "retry": retry(t, db, endOf(first, failed))} {
			if len(done) != 1 || done[0].Accepted {
				t.Errorf("%s by an old run: %+v", name, done)
			}
		}
		if j := getJob(t, db, id); j.State != job.Running || j.Run != second.Run {
			t.Fatalf("job %+v", j)
		}
		// Both in one batch, the current one twice: one end, one row in the history.
		done := finish(t, db, endOf(first, failed), endOf(second, succeeded), endOf(second, succeeded))
		accepted := 0
		for _, d := range done {
			if d.Accepted {
				accepted++
			}
		}
		var rows int
		db.Scan("SELECT count(*) FROM carillon.job_history", nil, &rows)
		if len(done) != 2 || accepted != 1 || rows != 1 {
			t.Fatalf("done %+v, %d rows", done, rows)
		}
		if done := finish(t, db, endOf(second, succeeded)); !done[0].Accepted || !done[0].Repeated {
			t.Errorf("repeated: %+v", done)
		}
		if done := finish(t, db, job.End{ID: id.N, Run: second.Run, Step: job.Step{State: job.Failed}}); done[0].Accepted {
			t.Errorf("an end against another: %+v", done)
		}
		if done := retry(t, db, endOf(second, failed)); done[0].Accepted {
			t.Errorf("a retry after the end: %+v", done)
		}
	})
}

func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Tokyo")
	q := putQueue(t, db, "t", "m.v", 2)
	e := aJob(q)
	e.Retry.Attempts = 30
	id := enqueue(t, db, e)[0].ID
	for n := 1; n <= 30; n++ {
		db.Exec("UPDATE carillon.jobs SET due_at = now() - interval '1 second'")
		won := claimAll(t, db, id)
		end := endOf(won[0], job.Outcome{Verdict: cron.Failed, Text: fmt.Sprintf("error %d \x00 \xff", n)})
		if n < 30 {
			retry(t, db, end)
		} else if end.Step.State != job.Failed || !finish(t, db, end)[0].Accepted {
			t.Fatalf("step %+v", end.Step)
		}
	}
	j := getJob(t, db, id)
	if len(j.Errors) != job.MaxErrors || j.Errors[0].Attempt != 1 || j.Errors[1].Attempt != 12 || j.Errors[19].Attempt != 30 || j.Errors[19].Text != "error 30 \uFFFD \uFFFD" {
		t.Errorf("errors %+v", j.Errors)
	}
}

func TestRedriveOnce(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		id := ready(t, db, q, 1)[0]
		if _, err := db.RedriveJob(ctx, id); !errors.Is(err, cron.ErrPrecond) {
			t.Errorf("a live one: %v", err)
		}
		won := claimAll(t, db, id)
		finish(t, db, endOf(won[0], job.Outcome{Verdict: cron.Failed, Text: "no", Final: true}))
		if dead, err := db.ListEndedJobs(ctx, job.Filter{Dead: true}, job.Cursor{}, 10); err != nil || len(dead) != 1 || dead[0].ID != id {
			t.Fatalf("dead %+v, %v", dead, err)
		}
		results := make(chan error, 8)
		for range 8 {
			go func() {
				_, err := db.RedriveJob(context.Background(), id)
				results <- err
			}()
		}
		driven := 0
		for range 8 {
			if err := <-results; err == nil {
				driven++
			} else if !errors.Is(err, cron.ErrPrecond) {
				t.Error(err)
			}
		}
		if j := getJob(t, db, id); driven != 1 || j.State != job.Ready || j.Attempt != 0 || len(j.Errors) != 1 || string(j.Payload) != `{"n":1}` {
			t.Errorf("re-driven %d times: %+v", driven, j)
		}
		if dead, _ := db.ListEndedJobs(ctx, job.Filter{Dead: true}, job.Cursor{}, 10); len(dead) != 0 {
			t.Errorf("still dead: %+v", dead)
		}
		won = claimAll(t, db, id)
		finish(t, db, endOf(won[0], succeeded))
		if j := getJob(t, db, id); j.State != job.Succeeded {
			t.Errorf("job %+v", j)
		}
		if _, err := db.RedriveJob(ctx, id); !errors.Is(err, cron.ErrPrecond) {
			t.Errorf("a succeeded one: %v", err)
		}
		if _, err := db.RedriveJob(ctx, job.ID{N: 1 << 40}); !errors.Is(err, cron.ErrNotFound) {
			t.Errorf("an absent one: %v", err)
		}
	})
}

func TestExpiredJobsEnd(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		e := aJob(q)
		e.Expires = db.Now().Add(-time.Second)
		e.Unique = "u"
		past, later := enqueue(t, db, e)[0].ID, ready(t, db, q, 1)[0]
		if won := claimAll(t, db, past); len(won) != 0 {
			t.Fatalf("an expired job was claimed: %+v", won)
		}
		if w := window(t, db, job.Cut{Queue: q.ID}, 10); len(w) != 2 || !w[0].Expires.Equal(e.Expires) {
			t.Errorf("window %+v", w)
		}
		all, none := []int32{}, []int32{}
		for shard := range int32(ring.Shards) {
			if all = append(all, shard); shard != int32(past.N%ring.Shards) {
				none = append(none, shard)
			}
		}
		if ids, err := db.FetchExpired(t.Context(), all, 10); err != nil || !slices.Equal(ids, []int64{past.N}) {
			t.Errorf("expired %v, %v", ids, err)
		}
		if ids, err := db.FetchExpired(t.Context(), none, 10); err != nil || len(ids) != 0 {
			t.Errorf("expired in others' shards %v, %v", ids, err)
		}
		gone, _, err := db.ExpireJobs(t.Context(), []int64{later.N, past.N})
		if err != nil || !slices.Equal(gone, []int64{past.N}) {
			t.Fatalf("gone %v, %v", gone, err)
		}
		if j := getJob(t, db, past); j.State != job.Failed || len(j.Errors) != 1 || !strings.Contains(j.Errors[0].Text, "expired") {
			t.Errorf("job %+v", j)
		}
		e.Expires = time.Time{}
		if again := enqueue(t, db, e)[0]; again.Existing {
			t.Error("its unique key is still held")
		}
	})
}

func TestInsertedRunning(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		running, waiting, delayed := aJob(q), aJob(q), aJob(q)
		running.Run, running.Deployment = newRun(), 7
		delayed.Delay = time.Hour
		got := enqueue(t, db, running, waiting, delayed)
		if got[0].Started.IsZero() || !got[1].Started.IsZero() || got[2].Due.Sub(got[2].Created) != time.Hour {
			t.Fatalf("enqueued %+v", got)
		}
		if j := getJob(t, db, got[0].ID); j.State != job.Running || j.Run != running.Run || j.Controller != "c1" || j.Attempt != 1 {
			t.Errorf("job %+v", j)
		}
		if w := window(t, db, job.Cut{Queue: q.ID}, 10); len(w) != 1 || w[0].ID != got[1].N {
			t.Errorf("window %+v", w)
		}
		c := job.Claimed{ID: got[0].ID, Run: running.Run, Attempt: 1}
		if done := finish(t, db, endOf(c, succeeded)); !done[0].Accepted {
			t.Errorf("done %+v", done)
		}
		own, err := db.FindOwnJobs(t.Context(), "c1", 0, 0, 10)
		if err != nil || len(own) != 0 {
			t.Errorf("own %+v, %v", own, err)
		}
	})
}

func TestLostJobsAreFound(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		ids := ready(t, db, q, 4)
		for i, controller := range []string{"alive", "silent", "absent", "alive"} {
			if won, _, err := db.ClaimJobs(ctx, controller, time.Minute, claimOf(ids[i]), ""); err != nil || len(won) != 1 {
				t.Fatal(won, err)
			}
		}
		for _, key := range []string{"sweeper", "alive", "silent"} {
			db.Controller(key, time.Minute)
		}
		db.Exec("UPDATE carillon.controllers SET heartbeat_at = now() - interval '7 seconds' WHERE key = 'silent'")
		db.Exec("UPDATE carillon.jobs SET deadline_at = now() - interval '1 second', cancelled = true WHERE id = $1", ids[3].N)
		lost, err := db.FindLostJobs(ctx, "sweeper", lease, silence, 10)
		if err != nil || len(lost) != 3 {
			t.Fatalf("lost %+v, %v", lost, err)
		}
		for _, l := range lost {
			o := job.Outcome{Verdict: cron.Lost, Text: "controller " + l.Controller + " stopped"}
			if l.TimedOut {
				o.Verdict = cron.TimedOut
			}
			if l.TimedOut != (l.ID == ids[3]) || l.CancelAsked != l.TimedOut || l.Attempt != 1 || l.Retry.Attempts != job.DefaultAttempts {
				t.Errorf("lost %+v", l)
			}
			if end := endOf(l.Claimed, o); end.Step.State == job.Ready {
				retry(t, db, end)
			} else {
				finish(t, db, end)
			}
		}
		for i, want := range []job.State{job.Running, job.Ready, job.Ready, job.Cancelled} {
			if j := getJob(t, db, ids[i]); j.State != want {
				t.Errorf("job %d is %s, want %s", i, j.State, want)
			}
		}
		// After an outage of the database nobody may judge.
		db.Exec("UPDATE carillon.jobs SET deadline_at = now() - interval '1 second'")
		db.Exec("UPDATE carillon.controllers SET alive_since = now() - interval '5 seconds' WHERE key = 'sweeper'")
		if lost, err := db.FindLostJobs(ctx, "sweeper", lease, silence, 10); err != nil || len(lost) != 0 {
			t.Errorf("lost %+v, %v", lost, err)
		}
		if own, err := db.FindOwnJobs(ctx, "alive", 0, 0, 10); err != nil || len(own) != 1 || own[0].ID != ids[0] {
			t.Errorf("own %+v, %v", own, err)
		}
	})
}
