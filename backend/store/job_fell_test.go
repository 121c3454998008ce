package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// A cancel reaches the whole tree: what waits ends, what runs is asked.
func TestCancelFellsTheTree(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		above := runningJob(t, db, q) // the root is a child, too
		root := claimAll(t, db, children(t, db, q, above, 1)...)[0]
		retry(t, db, endOf(above, awaits))
		level := claimAll(t, db, children(t, db, q, root, 3)...)
		grand := children(t, db, q, level[0], 2) // below one that waits for them
		retry(t, db, endOf(level[0], awaits))
		below := claimAll(t, db, children(t, db, q, level[1], 1)...)[0] // below one that runs
		waits := children(t, db, q, below, 1)[0]
		finish(t, db, endOf(level[2], succeeded))
		retry(t, db, endOf(root, awaits))
		right(t, db)

		c, err := db.CancelJob(ctx, root.ID, "enough")
		if err != nil || c.ID != root.ID || c.State != job.Cancelled {
			t.Fatalf("%+v, %v", c, err)
		}
		if c.Tree.Ended != 4 || len(c.Tree.Asked) != 2 || c.Tree.Asked[0].ID != level[1].ID || c.Tree.Asked[1].Run != below.Run || c.Tree.Asked[1].Controller != "c1" || c.Tree.More ||
			len(c.Tree.Woken) != 1 || c.Tree.Woken[0].ID != above.N {
			t.Fatalf("tree %+v", c.Tree)
		}
		right(t, db)
		for _, id := range append(grand, waits, level[0].ID) {
			if j := getJob(t, db, id); j.State != job.Cancelled || len(j.Errors) != 1 || !strings.Contains(j.Errors[0].Text, "enough") {
				t.Errorf("below: %+v", j)
			}
		}
		if j := getJob(t, db, level[2].ID); j.State != job.Succeeded {
			t.Errorf("what had ended is %s", j.State)
		}
		if j := getJob(t, db, above.ID); j.State != job.Ready || j.Children != 0 {
			t.Errorf("above: %+v", j)
		}
		// Again: nothing but those that still run, and then nothing.
		if c, err := db.CancelJob(ctx, root.ID, "enough"); err != nil || len(c.Tree.Asked) != 2 || c.Tree.Ended != 0 {
			t.Errorf("again: %+v, %v", c, err)
		}
		finish(t, db, endOf(level[1], succeeded))
		if done := retry(t, db, endOf(below, awaits)); done[0].State != job.Cancelled {
			t.Errorf("a cancelled run awaits: %+v", done)
		}
		if _, err := db.CancelJob(ctx, root.ID, ""); !errors.Is(err, cron.ErrPrecond) {
			t.Errorf("at last: %v", err)
		}
		right(t, db)
	})
}

// Whoever cancels dies before it has come to the children: the sweep goes on.
func TestWhatACancelLeftIsFelled(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		runs, ended, failed, alive := runningJob(t, db, q), runningJob(t, db, q), runningJob(t, db, q), runningJob(t, db, q)
		below := map[job.ID][]job.ID{}
		for _, p := range []job.Claimed{runs, ended, failed, alive} {
			below[p.ID] = children(t, db, q, p, 2)
		}
		child := claimAll(t, db, below[ended.ID][0])[0]
		grand := children(t, db, q, child, 1)
		db.Exec("UPDATE carillon.jobs SET cancelled = true WHERE id = $1", runs.N) // CancelJob came so far, or a firing
		finish(t, db, endOf(ended, job.Outcome{Verdict: cron.Failed, Final: true}), endOf(failed, job.Outcome{Verdict: cron.Failed, Final: true}))
		db.Exec("UPDATE carillon.job_history SET state = 'cancelled' WHERE id = $1", ended.N)

		tree, err := db.FellOrphans(t.Context())
		if err != nil || tree.Ended != 4 || len(tree.Asked) != 1 || tree.Asked[0].Run != child.Run || tree.More {
			t.Fatalf("%+v, %v", tree, err)
		}
		for _, id := range append(grand, below[runs.ID][0], below[runs.ID][1], below[ended.ID][1]) {
			if j := getJob(t, db, id); j.State != job.Cancelled {
				t.Errorf("%s is %s", id, j.State)
			}
		}
		for _, id := range append(below[failed.ID], below[alive.ID]...) {
			if j := getJob(t, db, id); j.State != job.Ready {
				t.Errorf("nobody's affair, but %s", j.State)
			}
		}
		if tree, err := db.FellOrphans(t.Context()); err != nil || tree.Ended+len(tree.Asked) != 0 {
			t.Errorf("again: %+v, %v", tree, err)
		}
		right(t, db)
	})
}

// A run that ends as cancelled by itself takes its children with it; one that succeeds or dies leaves them going.
func TestHowAParentEnds(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	for _, o := range []job.Outcome{succeeded, {Verdict: cron.Failed, Final: true}, {Verdict: cron.Cancelled, Text: "not needed"}} {
		p := runningJob(t, db, q)
		ids := children(t, db, q, p, 2)
		runs := claimAll(t, db, ids[0])[0]
		done := finish(t, db, endOf(p, o))[0]
		j := getJob(t, db, ids[1])
		if o.Verdict != cron.Cancelled {
			if j.State != job.Ready || len(done.Asked) != 0 {
				t.Errorf("%s: child %+v, asked %+v", o.Verdict, j, done.Asked)
			}
			if done := finish(t, db, endOf(runs, succeeded))[0]; !done.Accepted || done.Woken.ID != 0 {
				t.Errorf("%s: orphan %+v", o.Verdict, done)
			}
			continue
		}
		if j.State != job.Cancelled || len(done.Asked) != 1 || done.Asked[0].Run != runs.Run || !getJob(t, db, runs.ID).CancelAsked {
			t.Errorf("%s: child %+v, asked %+v", o.Verdict, j, done.Asked)
		}
	}
	right(t, db)
}

func TestExpiryOfTheLastChildWakes(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	p := runningJob(t, db, q)
	e := childOf(q, p)
	e.Expires = db.Now().Add(-time.Second)
	id := enqueue(t, db, e, e)
	retry(t, db, endOf(p, awaits))
	gone, woken, err := db.ExpireJobs(t.Context(), []int64{id[1].N, id[0].N, p.N})
	if err != nil || len(gone) != 2 || len(woken) != 1 || woken[0].ID != p.N || woken[0].Queue != q.ID {
		t.Fatalf("gone %v, woken %+v, %v", gone, woken, err)
	}
	if j := getJob(t, db, p.ID); j.State != job.Ready || j.Children != 0 {
		t.Errorf("parent %+v", j)
	}
}
