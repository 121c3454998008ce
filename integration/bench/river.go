package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River with its workers in this process, as its users run it. Zero settings are its defaults.
type riverQueue struct {
	workers        int
	cooldown, poll time.Duration

	pool    *pgxpool.Pool
	inserts *river.Client[pgx.Tx] // works nothing
	works   *river.Client[pgx.Tx] // nil while nothing is worked
	notes   notes
}

// riverArgs is the job's payload, the same as Carillon's.
type riverArgs struct{ task }

func (riverArgs) Kind() string { return verb }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	notes *notes
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[riverArgs]) error {
	w.notes.ran(j.Args.task)
	return nil
}

func (r *riverQueue) open(ctx context.Context, _ *bench, url string) error {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("read the URL: %w", err)
	}
	cfg.MaxConns = riverConns
	if r.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return fmt.Errorf("make River's migrator: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate River: %w", err)
	}
	r.inserts, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{Logger: quiet})
	return err
}

// riverConns lets each of 32 producers have a connection.
const riverConns = 40

func (r *riverQueue) work(ctx context.Context) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{notes: &r.notes})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Logger: quiet, Workers: workers, FetchCooldown: r.cooldown, FetchPollInterval: r.poll,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.workers}},
	})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the client: %w", err)
	}
	r.works = client
	return nil
}

func (r *riverQueue) hold(ctx context.Context) error {
	if r.works == nil {
		return nil
	}
	client := r.works
	r.works = nil
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return client.Stop(ctx)
}

func (r *riverQueue) client() *river.Client[pgx.Tx] {
	if r.works != nil {
		return r.works
	}
	return r.inserts
}

func (r *riverQueue) bulk(ctx context.Context, n int) error {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = riverArgs{newTask()}
	}
	_, err := r.client().InsertManyFast(ctx, params)
	return err
}

func (r *riverQueue) enqueue(ctx context.Context, _ int) error {
	_, err := r.client().Insert(ctx, riverArgs{newTask()}, nil)
	return err
}

func (r *riverQueue) begun(context.Context) (int, error) { return r.notes.count(), nil }

func (r *riverQueue) late(_ context.Context, first int) ([]time.Duration, error) {
	return r.notes.since(first), nil
}

func (r *riverQueue) live(ctx context.Context, db *pgx.Conn) (live bool, err error) {
	err = db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', 'pending'))`).Scan(&live)
	return live, err
}

func (r *riverQueue) verify(ctx context.Context, db *pgx.Conn, jobs int) error {
	var all, once int
	err := db.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE state = 'completed' AND attempt = 1) FROM river_job`).Scan(&all, &once)
	if err == nil && (all != jobs || once != jobs || r.notes.count() != jobs) {
		err = fmt.Errorf("%d jobs were enqueued, %d are there, %d completed at their first attempt, %d runs", jobs, all, once, r.notes.count())
	}
	return err
}

func (r *riverQueue) hot() string { return "river_job" }

func (r *riverQueue) close(ctx context.Context) {
	if err := r.hold(ctx); err != nil {
		say("River does not stop: %v", err)
	}
	if r.pool != nil {
		r.pool.Close()
	}
}

func (r *riverQueue) cpu() time.Duration { return thisCPU() }
