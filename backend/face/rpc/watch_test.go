package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
)

// ledger is rows in memory, each visible from an instant on, that may be later than its end.
type ledger struct {
	Reader
	mu    sync.Mutex
	rows  []cron.Run
	seen  map[watchKey]time.Time
	reads int
	fails error
}

func (l *ledger) Ping(context.Context) (time.Time, error) { return time.Now(), nil }

func (l *ledger) ListRunsSince(_ context.Context, _, _ string, after cron.RunCursor, page int) ([]cron.Run, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.fails != nil {
		return nil, l.fails
	}
	var rows []cron.Run
	for _, r := range l.rows {
		if !l.seen[watchKey{r.JobID, r.Slot}].After(time.Now()) && order(r, cron.Run{EndedAt: after.EndedAt, JobID: after.JobID, Slot: after.Slot}) > 0 {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, order)
	return rows[:min(page, len(rows))], nil
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

func order(a, b cron.Run) int {
	return cmp.Or(a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.JobID, b.JobID), a.Slot.Compare(b.Slot))
}

// end writes a row that ends now and commits late.
func (l *ledger) end(job int64, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[watchKey]time.Time{}
	}
	r := cron.Run{JobID: job, Slot: time.Now().Add(-time.Second), EndedAt: time.Now()}
	l.rows = append(l.rows, r)
	l.seen[watchKey{job, r.Slot}] = time.Now().Add(late)
}

// watching follows a ledger in a bubble until the test's end; it returns how often each job was sent.
func watching(t *testing.T, l *ledger) (sent func() map[int64]int, messages func() int) {
	var mu sync.Mutex
	counts, n := map[int64]int{}, 0
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- (&server{Config: Config{Reader: l}}).follow(ctx, "", "", func(runs []cron.Run) error {
			mu.Lock()
			defer mu.Unlock()
			n++
			for _, r := range runs {
				counts[r.JobID]++
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("follow: %v", err)
		}
	})
	return func() map[int64]int { mu.Lock(); defer mu.Unlock(); return maps.Clone(counts) }, func() int { mu.Lock(); defer mu.Unlock(); return n }
}

func wantOnce(t *testing.T, sent map[int64]int, from, to int64) {
	t.Helper()
	bad := 0
	for j := from; j < to; j++ {
		if sent[j] != 1 {
			bad++
		}
	}
	if bad > 0 || len(sent) != int(to-from) {
		t.Errorf("%d of %d rows were not sent once; %d sent", bad, to-from, len(sent))
	}
}

func TestWatchSendsABurstOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		sent, _ := watching(t, l)
		<-time.After(10 * time.Second)
		for j := range int64(3500) { // one statement: one end for all
			l.end(j, 0)
		}
		<-time.After(300 * time.Millisecond)
		wantOnce(t, sent(), 0, 3500)
		reads := l.count()
		<-time.After(20 * time.Second)
		wantOnce(t, sent(), 0, 3500)
		if n := l.count() - reads; n > 20*4*4+20 {
			t.Errorf("%d reads in 20 s", n)
		}
	})
}

func TestWatchFindsLateCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		sent, _ := watching(t, l)
		<-time.After(time.Second)
		job := int64(0)
		for range 40 { // every 100 ms one that is there at once, and one whose statement takes up to 3 s
			l.end(job, 0)
			l.end(job+1, time.Duration(job%31)*100*time.Millisecond)
			job += 2
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(5 * time.Second)
		wantOnce(t, sent(), 0, job)
	})
}

func TestWatchBeginsWithItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		l.end(100, 0)           // before the watch
		l.end(0, 2*time.Second) // ends before, commits during the watch
		<-time.After(time.Second)
		sent, messages := watching(t, l)
		synctest.Wait()
		if n := messages(); n != 1 {
			t.Errorf("%d messages say that it is connected", n)
		}
		<-time.After(5 * time.Second)
		wantOnce(t, sent(), 0, 1)
		<-time.After(time.Minute)
		if n := messages() - 2; n < 3 || n > 4 {
			t.Errorf("%d signs of life in a minute", n)
		}
	})
}

func TestWatchMemoryIsBounded(t *testing.T) {
	w := watch{since: time.Unix(0, 0), seen: map[watchKey]time.Time{}}
	for i := range 100_000 {
		at := time.Unix(0, 0).Add(time.Duration(i) * time.Millisecond)
		w.take([]cron.Run{{JobID: int64(i), Slot: at, EndedAt: at}})
	}
	if most := int((watchOverlap + 2*watchFull) / time.Millisecond); len(w.seen) > most {
		t.Errorf("remembers %d rows, want at most %d", len(w.seen), most)
	}
}

func TestWatchTellsOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		done := make(chan error, 1)
		go func() {
			done <- (&server{Config: Config{Reader: l}}).follow(t.Context(), "", "", func([]cron.Run) error { return nil })
		}()
		<-time.After(time.Second)
		l.mu.Lock()
		l.fails = cron.ErrUnavailable
		l.mu.Unlock()
		if err := <-done; !errors.Is(err, cron.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// On Postgres, over the wire: more rows of one ended_at than three pages hold, and one that committed late.
func TestWatchOnPostgres(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "America/New_York")
	db.Deploy(1, db.Now())
	face, _ := handler(t, db.Store, Tokens{})
	url, h2c := serve(t, face)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := wires(h2c)["grpc"].clients(url).runs.WatchRuns(ctx, &carillonv1.WatchRunsRequest{Module: "m"})
	if err != nil || !stream.Receive() {
		t.Fatal(err, stream.Err())
	}
	const burst = 3500
	write := func(from, n int, age string) {
		db.Exec(fmt.Sprintf(`INSERT INTO carillon.runs (cron_job_id, slot, slot_to, verdict, ended_at)
			SELECT (SELECT min(id) FROM carillon.cron_jobs), s, s, 'skipped_missed', now() - interval '%s'
			FROM (SELECT date_trunc('day', now()) + make_interval(secs => i) AS s FROM generate_series(%d, %d) i) x`, age, from, from+n-1))
	}
	write(0, burst, "0")
	write(burst, 1, "3 seconds")
	got := map[time.Time]int{}
	for len(got) <= burst && stream.Receive() {
		for _, r := range stream.Msg().GetRuns() {
			if r.GetRef() != "m.v0" {
				t.Errorf("%v", r)
			}
			got[r.GetSlot().AsTime()]++
		}
	}
	if len(got) != burst+1 {
		t.Errorf("%d rows, %v", len(got), stream.Err())
	}
	for slot, n := range got {
		if n != 1 {
			t.Errorf("%s was sent %d times", slot, n)
		}
	}
}
