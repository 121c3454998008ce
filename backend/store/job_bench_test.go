package store_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// BenchmarkJobs measures the path that every job takes, alone and in batches, over one connection of each kind.
func BenchmarkJobs(b *testing.B) {
	for _, size := range []int{1, 500} {
		b.Run(fmt.Sprintf("batches of %d", size), func(b *testing.B) { benchmarkJobs(b, size) })
	}
}

func benchmarkJobs(b *testing.B, size int) {
	db := storetest.Open(b, "")
	queues, err := db.PutQueues(b.Context(), []job.Queue{{Tenant: "t", Ref: "m.v", Lane: 2}})
	if err != nil {
		b.Fatal(err)
	}
	batch := make([]job.Enqueue, size)
	for i := range batch {
		batch[i] = aJob(queues[0])
	}
	var enqueued, claimed, finished time.Duration
	jobs := 0
	for b.Loop() {
		began := time.Now()
		out, err := db.EnqueueJobs(b.Context(), "c1", time.Minute, batch)
		if err != nil {
			b.Fatal(err)
		}
		ids := make([]job.ID, size)
		for i := range out {
			ids[i] = out[i].ID
		}
		enqueued += time.Since(began)
		began = time.Now()
		won, _, err := db.ClaimJobs(b.Context(), "c1", time.Minute, claimOf(ids...), "")
		if err != nil || len(won) != size {
			b.Fatal(len(won), err)
		}
		claimed += time.Since(began)
		began = time.Now()
		ends := make([]job.End, size)
		for i, c := range won {
			ends[i] = endOf(c, succeeded)
		}
		done, err := db.FinishJobs(b.Context(), ends)
		if err != nil || len(done) != size {
			b.Fatal(len(done), err)
		}
		finished += time.Since(began)
		jobs += size
	}
	for _, kind := range []string{"enqueue", "job claim", "job end"} { // steadier than the clock on a machine that has other work
		if used := databaseCPU(db, kind); used > 0 {
			b.ReportMetric(float64(used.Nanoseconds())/float64(jobs), "cpu-ns/"+strings.TrimPrefix(kind, "job "))
		}
	}
	for _, m := range []struct {
		took time.Duration
		unit string
	}{{enqueued, "enqueues/s"}, {claimed, "claims/s"}, {finished, "ends/s"}, {claimed + finished, "claims+ends/s"}} {
		b.ReportMetric(float64(jobs)/m.took.Seconds(), m.unit)
	}
}

// databaseCPU is what the database's processes of one kind have used; 0 where that cannot be seen.
func databaseCPU(db storetest.DB, kind string) (used time.Duration) {
	rows, err := db.Pool.Query(context.Background(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'carillon ' || $1 || ' %'", kind)
	if err != nil {
		return 0
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return 0
	}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			return 0
		}
		ns, _, _ := strings.Cut(string(stat), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		used += time.Duration(n)
	}
	return used
}
