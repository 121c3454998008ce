package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// dead enqueues a job with a unique key and lets it die.
func dead(t *testing.T, db storetest.DB, q job.Queue, unique string) job.ID {
	t.Helper()
	e := aJob(q)
	e.Unique = unique
	a := enqueue(t, db, e)[0]
	if a.Existing {
		t.Fatalf("the key %s is held by %s", unique, a.ID)
	}
	finish(t, db, endOf(claimAll(t, db, a.ID)[0], job.Outcome{Verdict: cron.Failed, Final: true}))
	return a.ID
}

// keyed counts the keys that are held, and the live jobs with one that do not hold it.
func keyed(db storetest.DB) (held, without int) {
	db.Scan(`SELECT (SELECT count(*) FROM carillon.job_keys WHERE kind = 'unique'), (SELECT count(*) FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
		WHERE j.unique_key IS NOT NULL AND NOT EXISTS (SELECT FROM carillon.job_keys k WHERE (k.tenant, k.kind, k.key, k.job_id) = (q.tenant, 'unique', j.unique_key, j.id)))`, nil, &held, &without)
	return held, without
}

func TestARedriveTakesItsKeyBack(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		e := aJob(q)
		e.Unique = "u"
		first := dead(t, db, q, "u")
		second := dead(t, db, q, "u")
		if _, err := db.RetryJob(ctx, first); err != nil {
			t.Fatal(err)
		}
		if got := enqueue(t, db, e)[0]; !got.Existing || got.ID != first {
			t.Errorf("a create beside it: %+v", got)
		}
		_, err := db.RetryJob(ctx, second)
		if !errors.Is(err, cron.ErrPrecond) || !strings.Contains(err.Error(), first.String()) || !strings.Contains(err.Error(), `"u"`) {
			t.Errorf("the other one: %v", err)
		}
		if j := getJob(t, db, second); j.State != job.Failed {
			t.Errorf("it is %s", j.State)
		}
		if held, without := keyed(db); held != 1 || without != 0 {
			t.Errorf("%d keys, %d jobs without theirs", held, without)
		}
		finish(t, db, endOf(claimAll(t, db, first)[0], succeeded)) // frees it
		if _, err := db.RetryJob(ctx, second); err != nil {
			t.Fatal(err)
		}
		finish(t, db, endOf(claimAll(t, db, second)[0], succeeded))
		if held, _ := keyed(db); held != 0 {
			t.Errorf("%d keys are left", held)
		}
		// A key that was held for a window, and is over, is free.
		third := dead(t, db, q, "u")
		w := e
		w.Window = time.Hour
		enqueue(t, db, w)
		if _, err := db.RetryJob(ctx, third); !errors.Is(err, cron.ErrPrecond) {
			t.Errorf("within the window: %v", err)
		}
		db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second'")
		if _, err := db.RetryJob(ctx, third); err != nil {
			t.Errorf("after the window: %v", err)
		}
		// One that expired before it could begin has died, too.
		x := aJob(q)
		x.Unique, x.Expires = "x", db.Now().Add(-time.Second)
		expired := enqueue(t, db, x)[0].ID
		if gone, _, err := db.ExpireJobs(ctx, []int64{expired.N}); err != nil || len(gone) != 1 {
			t.Fatal(gone, err)
		}
		if _, err := db.RetryJob(ctx, expired); err != nil {
			t.Fatal(err)
		}
		x.Expires = time.Time{}
		if got := enqueue(t, db, x)[0]; !got.Existing || got.ID != expired {
			t.Errorf("a create beside the expired one: %+v", got)
		}
	})
}

// Of many with one key the latest lives again; what a live job holds back is counted and stays dead.
func TestARedriveOfManyMindsTheKeys(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	var last job.ID
	for range 3 {
		last = dead(t, db, q, "a")
	}
	dead(t, db, q, "b")
	dead(t, db, q, "")
	taken := dead(t, db, q, "c")
	e := aJob(q)
	e.Unique = "c"
	holder := enqueue(t, db, e)[0].ID
	r, err := db.RedriveJobs(t.Context(), job.Filter{Tenant: "t"}, 100)
	if err != nil || len(r.Jobs) != 3 || r.Held != 3 || r.More {
		t.Fatalf("%+v, %v", r, err)
	}
	if j := getJob(t, db, last); j.State != job.Ready {
		t.Errorf("the latest with the key is %s", j.State)
	}
	if j := getJob(t, db, taken); j.State != job.Failed {
		t.Errorf("one whose key %s holds is %s", holder, j.State)
	}
	if held, without := keyed(db); held != 3 || without != 0 {
		t.Errorf("%d keys, %d jobs without theirs", held, without)
	}
}

// Re-drives of one key and creates with it, all at once: one job lives, and all know which.
func TestRedrivesAgainstCreates(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	for round := range 15 {
		key := fmt.Sprint("u", round)
		first, second := dead(t, db, q, key), dead(t, db, q, key)
		e := aJob(q)
		e.Unique = key
		var mu sync.Mutex
		lives, fresh := map[job.ID]bool{}, 0
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for n := range 9 {
			wg.Go(func() {
				<-begin
				var id job.ID
				var err error
				made := 0
				switch {
				case n%3 == 2 && round%3 != 0: // a third of the rounds has re-drives alone
					out, enqueueErr := db.EnqueueJobs(context.Background(), "c1", time.Minute, []job.Enqueue{e})
					if enqueueErr != nil || out[0].Err != nil {
						t.Error(out, enqueueErr)
						return
					}
					if id = out[0].ID; !out[0].Existing {
						made = 1
					}
				default:
					if id = first; n%2 == 0 {
						id = second
					}
					if _, err = db.RedriveJob(context.Background(), id); err == nil {
						made = 1
					} else if !errors.Is(err, cron.ErrPrecond) {
						t.Error(err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				fresh += made
				if err == nil {
					lives[id] = true
				}
			})
		}
		close(begin)
		wg.Wait()
		var live int
		db.Scan("SELECT count(*) FROM carillon.jobs WHERE unique_key = $1", []any{key}, &live)
		if held, without := keyed(db); live != 1 || len(lives) != 1 || fresh != 1 || held != round+1 || without != 0 {
			t.Fatalf("round %d: %d live, named %v, %d made; %d keys, %d jobs without theirs", round, live, lives, fresh, held, without)
		}
	}
}
