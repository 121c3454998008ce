package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// A dead parent that is re-driven counts its live children again; a dead child that is, is nobody's.
func TestRedriveInATree(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		p := runningJob(t, db, q)
		won := claimAll(t, db, children(t, db, q, p, 3)...)
		final := job.Outcome{Verdict: cron.Failed, Final: true}
		finish(t, db, endOf(p, final))
		finish(t, db, endOf(won[0], final))
		w, err := db.RetryJob(ctx, p.ID)
		if err != nil || w.ID != p.N || w.Queue != q.ID {
			t.Fatalf("%+v, %v", w, err)
		}
		if j := getJob(t, db, p.ID); j.Children != 2 || j.State != job.Ready {
			t.Fatalf("parent %+v", j)
		}
		if _, err := db.RetryJob(ctx, won[0].ID); err != nil {
			t.Fatal(err)
		}
		if j := getJob(t, db, won[0].ID); !j.Parent.IsZero() || j.State != job.Ready {
			t.Errorf("child %+v", j)
		}
		right(t, db)
		p = claimAll(t, db, p.ID)[0]
		retry(t, db, endOf(p, awaits))
		if done := finish(t, db, endOf(won[1], succeeded)); done[0].Woken.ID != 0 {
			t.Errorf("woken by the first: %+v", done)
		}
		if done := finish(t, db, endOf(won[2], succeeded)); done[0].Woken.ID != p.N {
			t.Errorf("not woken by the last: %+v", done)
		}
		if done := finish(t, db, endOf(claimAll(t, db, won[0].ID)[0], succeeded)); !done[0].Accepted || done[0].Woken.ID != 0 {
			t.Errorf("re-driven child: %+v", done)
		}
		right(t, db)
	})
}

// A child's end in the middle of its parent's re-drive is counted off, whoever of them comes first.
func TestRedriveAgainstAChildsEnd(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	for n := range 60 {
		p := runningJob(t, db, q)
		c := claimAll(t, db, children(t, db, q, p, 1)...)[0]
		finish(t, db, endOf(p, job.Outcome{Verdict: cron.Failed, Final: true}))
		var hold lockHold
		if n < 6 {
			hold = holdJob(t, db, c.ID) // both want it: the end to delete it, the re-drive to count it
		}
		var wg sync.WaitGroup
		begin := make(chan struct{})
		wg.Go(func() {
			<-begin
			if done, err := db.FinishJobs(context.Background(), []job.End{endOf(c, succeeded)}); err != nil || !done[0].Accepted {
				t.Error(done, err)
			}
		})
		wg.Go(func() {
			<-begin
			if _, err := db.RetryJob(context.Background(), p.ID); err != nil {
				t.Error(err)
			}
		})
		close(begin)
		hold.release(t, db, 2)
		wg.Wait()
		if j := getJob(t, db, p.ID); j.Children != 0 || j.State != job.Ready {
			t.Fatalf("round %d: parent %+v", n, j)
		}
	}
}

func TestRetryJobAndRedriveJobs(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		e := aJob(q)
		e.Delay = time.Hour
		later := enqueue(t, db, e)[0].ID
		w, err := db.RetryJob(ctx, later)
		if err != nil || w.ID != later.N || w.Due.After(db.Now()) || len(claimAll(t, db, later)) != 1 {
			t.Fatalf("%+v, %v", w, err)
		}
		due := ready(t, db, q, 1)[0]
		db.Exec("UPDATE carillon.jobs SET due_at = now() - interval '1 hour' WHERE id = $1", due.N)
		if w, err := db.RetryJob(ctx, due); err != nil || db.Now().Sub(w.Due) < 59*time.Minute {
			t.Errorf("one that is due loses its turn: %+v, %v", w, err)
		}
		for id, want := range map[job.ID]error{later: cron.ErrPrecond, {N: due.N, Salt: due.Salt + 1}: cron.ErrNotFound} {
			if _, err := db.RetryJob(ctx, id); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		blocked := runningJob(t, db, q)
		children(t, db, q, blocked, 1)
		retry(t, db, endOf(blocked, awaits))
		if _, err := db.RetryJob(ctx, blocked.ID); !errors.Is(err, cron.ErrPrecond) || !strings.Contains(err.Error(), "blocked") {
			t.Errorf("blocked: %v", err)
		}

		other := putQueue(t, db, "t", "m.w", 2)
		var ends []job.End
		for _, q := range []job.Queue{q, other} {
			for _, c := range claimAll(t, db, ready(t, db, q, 7)...) {
				ends = append(ends, endOf(c, job.Outcome{Verdict: cron.Failed, Final: true}))
			}
		}
		finish(t, db, ends...)
		for _, want := range []struct {
			n    int
			more bool
		}{{5, true}, {2, false}, {0, false}} {
			r, err := db.RedriveJobs(ctx, job.Filter{Ref: "m.w"}, 5)
			if err != nil || len(r.Jobs) != want.n || r.More != want.more || r.Held != 0 {
				t.Errorf("driven %+v, %v; want %+v", r, err, want)
			}
			for _, d := range r.Jobs {
				if d.Queue != other.ID {
					t.Errorf("driven %+v", d)
				}
			}
		}
		if r, err := db.RedriveJobs(ctx, job.Filter{Tenant: "t"}, 7); err != nil || len(r.Jobs) != 7 || r.More {
			t.Errorf("driven %+v, %v", r, err)
		}
	})
}

// Progress is written while the run is on, without a new index entry, and ends with it.
func TestProgress(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		c := runningJob(t, db, q)
		put := func(run cron.RunID, text string) {
			t.Helper()
			if err := db.PutProgress(t.Context(), []job.Progress{{ID: c.N, Run: run, Text: text}}); err != nil {
				t.Fatal(err)
			}
		}
		want := func(p string) {
			t.Helper()
			if got := getJob(t, db, c.ID).Progress; got != p {
				t.Errorf("progress %q, want %q", got, p)
			}
		}
		put(c.Run, "half \x00 done")
		want("half \uFFFD done")
		put(newRun(), "by another run")
		want("half \uFFFD done")
		put(c.Run, strings.Repeat("ü", job.MaxProgress))
		want(strings.Repeat("ü", job.MaxProgress/2))
		end := endOf(c, failed)
		end.Progress = "nearly"
		retry(t, db, end)
		put(c.Run, "after the end")
		want("nearly")
		db.Exec("UPDATE carillon.jobs SET due_at = now() - interval '1 second'")
		c = claimAll(t, db, c.ID)[0]
		want("nearly")
		end = endOf(c, succeeded)
		end.Progress = "done"
		finish(t, db, end)
		want("done")
	})
}

func TestProgressIsHot(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	var few []job.ID // no two on one page
	for i, id := range ready(t, db, q, 400) {
		if i%40 == 0 {
			few = append(few, id)
		}
	}
	won := claimAll(t, db, few...)
	var texts []job.Progress
	for _, c := range won {
		texts = append(texts, job.Progress{ID: c.N, Run: c.Run, Text: "half"})
	}
	if err := db.PutProgress(t.Context(), texts); err != nil {
		t.Fatal(err)
	}
	db.Store.Close() // the statistics come with the end of the sessions
	waitFor(t, func() bool {
		var updates, hot int
		db.Scan("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'carillon.jobs'::regclass", nil, &updates, &hot)
		if updates == 20 && hot != updates {
			t.Fatalf("%d of %d updates are HOT", hot, updates)
		}
		return updates == 20
	})
}
