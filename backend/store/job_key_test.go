package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// Fifty at once with one key make one job, whatever kind the key is of.
func TestFiftyCreatesOneJob(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		for _, kind := range []string{"unique", "window", "idempotency", "both", "expired"} {
			e := aJob(q)
			switch kind {
			case "unique":
				e.Unique = kind
			case "window":
				e.Unique, e.Window = kind, time.Hour
			case "idempotency":
				e.Idempotency = kind
			case "both":
				e.Unique, e.Idempotency = kind, kind
			case "expired":
				e.Idempotency = kind
				db.Exec("INSERT INTO carillon.job_keys (kind, tenant, key, job_id, salt, hash, expires_at) VALUES ('idempotency', 't', $1, 1, 1, 'x', now() - interval '1 second')", kind)
			}
			var mu sync.Mutex
			ids, fresh := map[job.ID]int{}, 0
			begin := make(chan struct{})
			var wg sync.WaitGroup
			for n := range 50 {
				wg.Go(func() {
					batch := []job.Enqueue{e}
					if n%3 == 0 { // within a batch as well
						batch = []job.Enqueue{e, aJob(q), e}
					}
					<-begin
					out, err := db.EnqueueJobs(context.Background(), "c1", time.Minute, batch)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					for i, o := range out {
						if o.Err != nil {
							t.Error(o.Err)
						}
						if i == 1 {
							continue
						}
						ids[o.ID]++
						if !o.Existing {
							fresh++
						}
					}
				})
			}
			close(begin)
			wg.Wait()
			if len(ids) != 1 || fresh != 1 {
				t.Errorf("%s: %d ids, %d fresh", kind, len(ids), fresh)
			}
		}
		var jobs, plain int
		db.Scan("SELECT count(*), count(*) FILTER (WHERE id NOT IN (SELECT job_id FROM carillon.job_keys)) FROM carillon.jobs", nil, &jobs, &plain)
		if jobs-plain != 5 || plain != 5*17 {
			t.Errorf("%d jobs, %d of them without a key", jobs, plain)
		}
	})
}

func TestIdempotencyOutlivesTheJob(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		q := putQueue(t, db, "t", "m.v", 2)
		e := aJob(q)
		e.Idempotency = "k"
		first := enqueue(t, db, e)[0]
		if got := enqueue(t, db, e)[0]; !got.Existing || got.ID != first.ID || got.Err != nil {
			t.Errorf("the same again: %+v", got)
		}
		other := e
		other.Payload = []byte(`{"n":2}`)
		got := enqueue(t, db, other, aJob(q), e)
		if !got[0].Conflict || !errors.Is(got[0].Err, cron.ErrExists) || got[0].N != 0 || got[1].Err != nil || got[1].Existing || got[2].ID != first.ID {
			t.Errorf("another request: %+v", got)
		}
		elsewhere := e
		elsewhere.Tenant = "t2"
		elsewhere.Queue = putQueue(t, db, "t2", "m.v", 2).ID
		if got := enqueue(t, db, elsewhere)[0]; got.Existing {
			t.Errorf("another tenant: %+v", got)
		}
		finish(t, db, endOf(claimAll(t, db, first.ID)[0], succeeded))
		if got := enqueue(t, db, e)[0]; !got.Existing || got.ID != first.ID || getJob(t, db, got.ID).State != job.Succeeded {
			t.Errorf("after the end: %+v", got)
		}
		var kept time.Duration
		db.Scan("SELECT max(expires_at) - now() FROM carillon.job_keys", nil, &kept)
		if kept < 23*time.Hour || kept > 24*time.Hour {
			t.Errorf("kept for %s", kept)
		}
		db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second' WHERE tenant = 't'")
		if got := enqueue(t, db, e)[0]; got.Existing {
			t.Errorf("after a day: %+v", got)
		}
		db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second'")
		if n, err := db.ForgetJobKeys(t.Context(), 1); err != nil || n != 1 {
			t.Errorf("forgot %d, %v", n, err)
		}
		if n, err := db.ForgetJobKeys(t.Context(), 100); err != nil || n != 1 {
			t.Errorf("forgot %d, %v", n, err)
		}
	})
}

func TestUniqueWhileLive(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		q := putQueue(t, db, "t", "m.v", 2)
		e := aJob(q)
		e.Unique = "u"
		for name, end := range map[string]func(job.ID){
			"succeeded": func(id job.ID) { finish(t, db, endOf(claimAll(t, db, id)[0], succeeded)) },
			"dead": func(id job.ID) {
				finish(t, db, endOf(claimAll(t, db, id)[0], job.Outcome{Verdict: cron.Failed, Final: true}))
			},
			"cancelled": func(id job.ID) { db.CancelJob(ctx, id, "") },
			"cancelled and retried": func(id job.ID) {
				c := claimAll(t, db, id)[0]
				db.CancelJob(ctx, id, "")
				retry(t, db, endOf(c, failed))
			},
		} {
			first := enqueue(t, db, e)[0]
			if first.Existing {
				t.Fatalf("before it %s: held", name)
			}
			if got := enqueue(t, db, e, e); !got[0].Existing || got[1].ID != first.ID {
				t.Errorf("while it lives: %+v", got)
			}
			end(first.ID)
		}
		// A window holds beyond the end, and no longer than itself.
		e.Window = time.Hour
		first := enqueue(t, db, e)[0]
		finish(t, db, endOf(claimAll(t, db, first.ID)[0], succeeded))
		if got := enqueue(t, db, e)[0]; got.ID != first.ID || !got.Existing {
			t.Errorf("within the window: %+v", got)
		}
		db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second'")
		if got := enqueue(t, db, e)[0]; got.Existing {
			t.Errorf("after the window: %+v", got)
		}
	})
}

// Both kinds at once, within one batch: the request is answered with the job that its unique key found, then and later.
func TestKeysOfBothKinds(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	with := func(unique, idempotency string) job.Enqueue {
		e := aJob(q)
		e.Unique, e.Idempotency = unique, idempotency
		return e
	}
	other := with("u1", "i1")
	other.Payload = nil
	got := enqueue(t, db, with("u1", "i1"), with("u1", "i2"), with("u2", "i1"), other, with("u2", "i3"), with("u1", "i2"), with("", "i4"), with("u2", ""))
	want := []struct {
		same               int
		existing, conflict bool
	}{{0, false, false}, {0, true, false}, {-1, false, true}, {-1, false, true}, {4, false, false}, {0, true, false}, {6, false, false}, {4, true, false}}
	for i, w := range want {
		if got[i].Existing != w.existing || got[i].Conflict != w.conflict || (got[i].Err != nil) != w.conflict || w.same >= 0 && got[i].ID != got[w.same].ID {
			t.Errorf("%d: %+v, want %+v", i, got[i], w)
		}
	}
	finish(t, db, endOf(claimAll(t, db, got[0].ID)[0], succeeded)) // frees u1
	again := enqueue(t, db, with("u1", "i2"), with("u1", "i5"))
	if !again[0].Existing || again[0].ID != got[0].ID || again[1].Existing {
		t.Errorf("i2 names %s: %+v", got[0].ID, again)
	}
	var jobs, ids int
	db.Scan("SELECT (SELECT count(*) FROM carillon.jobs) + (SELECT count(*) FROM carillon.job_history), count(DISTINCT job_id) FROM carillon.job_keys", nil, &jobs, &ids)
	if jobs != 4 || ids != 4 {
		t.Errorf("%d jobs, %d named by keys", jobs, ids)
	}
}

// A refused job stands alone; its neighbours are in, and its keys are not taken.
func TestOneBadJobAmongAThousand(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	q := putQueue(t, db, "t", "m.v", 2)
	batch := make([]job.Enqueue, 1000)
	for i := range batch {
		batch[i] = aJob(q)
		batch[i].Idempotency = fmt.Sprint("k", i)
	}
	batch[617].Tags = []string{"a NUL: \x00"}
	batch[618].Queue = 1 << 30
	got := enqueue(t, db, batch...)
	for i, o := range got {
		if bad := i == 617 || i == 618; (o.Err != nil) != bad || bad == (o.N != 0) {
			t.Errorf("%d: %+v", i, o)
		}
	}
	var jobs, keys int
	db.Scan("SELECT (SELECT count(*) FROM carillon.jobs), (SELECT count(*) FROM carillon.job_keys)", nil, &jobs, &keys)
	if jobs != 998 || keys != 998 {
		t.Errorf("%d jobs, %d keys", jobs, keys)
	}
}

// Batches with the same keys in other orders, while the jobs end: no deadlock is left over, no key outlives its job.
func TestKeysUnderLoad(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "Asia/Tokyo")
	q := putQueue(t, db, "t", "m.v", 2)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for round := range 15 {
				var batch []job.Enqueue
				for i := range 20 {
					e := aJob(q)
					e.Unique = fmt.Sprint("u", (i*7+n*3+round)%25)
					if i%2 == 0 {
						e.Idempotency = fmt.Sprint("i", n, round, i)
					}
					batch = append(batch, e)
				}
				out, err := db.EnqueueJobs(context.Background(), "c1", time.Minute, batch)
				if err != nil {
					t.Error(err)
					return
				}
				var ids []job.ID
				for _, o := range out {
					if o.Err != nil {
						t.Error(o.Err)
					} else if !o.Existing {
						ids = append(ids, o.ID)
					}
				}
				won, _, err := db.ClaimJobs(context.Background(), "c1", time.Minute, claimOf(ids...), "")
				if err != nil || len(won) != len(ids) {
					t.Errorf("won %d of %d, %v", len(won), len(ids), err)
				}
				var ends []job.End
				for _, c := range won {
					ends = append(ends, endOf(c, succeeded))
				}
				if _, err := db.FinishJobs(context.Background(), ends); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var live, keys, twice int
	db.Scan(`SELECT (SELECT count(*) FROM carillon.jobs), (SELECT count(*) FROM carillon.job_keys WHERE kind = 'unique'),
		(SELECT count(*) FROM carillon.job_keys k WHERE kind = 'idempotency' AND NOT EXISTS (SELECT FROM carillon.job_history h WHERE h.id = k.job_id))`, nil, &live, &keys, &twice)
	if live != 0 || keys != 0 || twice != 0 {
		t.Errorf("%d live jobs, %d unique keys, %d keys without a job", live, keys, twice)
	}
}
