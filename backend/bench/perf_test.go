package bench

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"carillon/backend/core/cron"
)

func TestLegs(t *testing.T) {
	if os.Getenv("PERF") == "" {
		return
	}
	ctx := context.Background()
	n := 1000000
	c := Config{Rows: n, Rounds: 1, Leg: 2 * time.Second, SharedMB: 1024, Progress: os.Stderr}
	s, err := c.startPostgres(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db, ids, err := fill(ctx, s.URL(), n)
	if err != nil {
		t.Fatal(err)
	}
	if extra := os.Getenv("EXTRA"); extra != "" {
		if _, err := db.Exec(ctx, extra); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("ORDER") == "" {
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	}
	f := &field{b: &bench{Config: c}, url: s.URL(), db: db, batches: must(batchesOf(ctx, db, ids))}
	var rates [2][]float64
	var ratio []float64
	for round := range 10 {
		var one [2]float64
		for i := range 2 {
			i = (i + round) % 2
			before := cpuBy(s.PID())
			wctx, wstop := context.WithCancel(ctx)
			waits := map[string]int{}
			wdone := make(chan int)
			var wal0, wal1 float64
			go func() {
				defer close(wdone)
				w, _ := pgx.Connect(ctx, s.URL())
				defer w.Close(ctx)
				w.QueryRow(ctx, "select pg_current_wal_lsn()-'0/0'::pg_lsn").Scan(&wal0)
				for wctx.Err() == nil {
					r, _ := w.Query(ctx, "select state||' '||coalesce(wait_event_type||':'||wait_event,'cpu') from pg_stat_activity where pid<>pg_backend_pid() and (application_name like 'carillon claim%' or application_name like 'carillon end%' or application_name='') and backend_type='client backend' and state='active'")
					l, _ := pgx.CollectRows(r, pgx.RowTo[string])
					for _, x := range l {
						waits[x]++
					}
					waits["samples"]++
					time.Sleep(10 * time.Millisecond)
				}
				w.QueryRow(ctx, "select pg_current_wal_lsn()-'0/0'::pg_lsn").Scan(&wal1)
			}()
			one[i], _, err = f.leg(ctx, kinds[i])
			wstop()
			<-wdone
			if round > 8 {
				fmt.Println("LEGWAIT", i, waits, "WAL/exec", (wal1-wal0)/one[i]/2)
			}
			after := cpuBy(s.PID())
			if round > 8 {
				fmt.Printf("LEGCPU %d %.0f/s", i, one[i])
				for _, k := range slices.Sorted(maps.Keys(after)) {
					if d := after[k] - before[k]; d > 0.005 {
						fmt.Printf(" %s %.2f", k, d)
					}
				}
				fmt.Println()
			}
			if err != nil {
				t.Fatal(err)
			}
			if round > 1 {
				rates[i] = append(rates[i], one[i])
			}
		}
		if round > 1 {
			ratio = append(ratio, one[1]/one[0])
		}
	}
	for i := range 2 {
		var l0, l1 string
		db.QueryRow(ctx, "select pg_current_wal_lsn()").Scan(&l0)
		r, _, _ := f.leg(ctx, kinds[i])
		db.QueryRow(ctx, "select pg_current_wal_lsn()").Scan(&l1)
		var dir string
		db.QueryRow(ctx, "show data_directory").Scan(&dir)
		out, err := exec.Command("/usr/lib/postgresql/15/bin/pg_waldump", "--stats=record", "-p", dir+"/pg_wal", "-s", l0, "-e", l1).CombinedOutput()
		fmt.Println("WALDUMP", i, r*c.Leg.Seconds(), err)
		for _, l := range strings.Split(string(out), "\n") {
			if f := strings.Fields(l); len(f) > 5 && f[1] != "0" {
				fmt.Println("WALDUMP", l)
			}
		}
	}
	fmt.Printf("LEGS ceiling %.0f product %.0f ratio %.2f (%.2f-%.2f)\n", median(rates[0]), median(rates[1]), median(ratio), slices.Min(ratio), slices.Max(ratio))
}

func TestPerf(t *testing.T) {
	if os.Getenv("PERF") == "" {
		return
	}
	ctx := context.Background()
	n := 1000000
	c := Config{Rows: n, Rounds: 1, Leg: 5 * time.Second, SharedMB: 1024, Progress: os.Stderr}
	s, err := c.startPostgres(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db, ids, err := fill(ctx, s.URL(), n)
	if err != nil {
		t.Fatal(err)
	}
	if extra := os.Getenv("EXTRA"); extra != "" {
		if _, err := db.Exec(ctx, extra); err != nil {
			t.Fatal(err)
		}
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	f := &field{b: &bench{Config: c}, url: s.URL(), db: db, batches: must(batchesOf(ctx, db, ids))}
	ce, _ := openCeiling(ctx, s.URL())
	pe, _ := openProduct(ctx, s.URL())
	cc, pp := ce.(*ceiling), pe.(product)
	var ct, et, pt, qt []time.Duration
	for i := range 6000 {
		b := f.take(i % 2)
		ids, runs := b.ids, make([]pgtype.UUID, len(b.ids))
		exp, aft := make([]time.Time, len(b.ids)), make([]time.Time, len(b.ids))
		claims := claimsOf(b)
		for i, c := range claims {
			runs[i] = pgtype.UUID{Bytes: c.RunID, Valid: true}
			exp[i], aft[i] = c.Expected, c.Next
		}
		t0 := time.Now()
		if i%4 < 2 {
			if _, err := cc.conns[0].Exec(ctx, ceilingClaim, ids, runs, exp, aft); err != nil {
				t.Fatal(err)
			}
			t1 := time.Now()
			if _, err := cc.conns[0].Exec(ctx, ceilingEnd, ids, runs); err != nil {
				t.Fatal(err)
			}
			ct, et = append(ct, t1.Sub(t0)), append(et, time.Since(t1))
		} else {
			if n, err := pp.claim(ctx, claims); err != nil || n != len(b.ids) {
				t.Fatal(n, err)
			}
			t1 := time.Now()
			ends := make([]cron.End, len(b.ids))
			for i, c := range claims {
				ends[i] = cron.End{JobID: c.JobID, RunID: c.RunID, Slot: c.Slot, Verdict: cron.Succeeded, Version: c.Version}
			}
			if _, err := pp.EndCronJobs(ctx, ends); err != nil {
				t.Fatal(err)
			}
			pt, qt = append(pt, t1.Sub(t0)), append(qt, time.Since(t1))
		}
		b.advance()
	}
	p := func(d []time.Duration) time.Duration {
		slices.Sort(d[300:])
		return d[300+(len(d)-300)/2].Round(time.Microsecond)
	}
	fmt.Println("ceiling claim", p(ct), "end", p(et), "product claim", p(pt), "end", p(qt), "| ratio", float64(p(ct)+p(et))/float64(p(pt)+p(qt)))
	ce.close()
	pe.close()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
