package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
	"carillon/backend/engine/queue"
	"carillon/backend/store"
)

// inProcess is the queue's engine on the store in this process, as a controller joins them, owner of all shards; its
// verb is deployed and has no runner, so that nothing starts.
type inProcess struct {
	store   *store.Store
	queue   *queue.Queue
	stop    context.CancelFunc
	running sync.WaitGroup
}

const ownKey = "ctl-7800-0badcafe"

// ownStore is the store in the name of one controller.
type ownStore struct{ *store.Store }

func (s ownStore) EnqueueJobs(ctx context.Context, batch []job.Enqueue) ([]job.Enqueued, error) {
	return s.Store.EnqueueJobs(ctx, ownKey, time.Minute, batch)
}

func (s ownStore) ClaimJobs(ctx context.Context, claims []job.Claim, limitRef string) ([]job.Claimed, []job.Claim, error) {
	return s.Store.ClaimJobs(ctx, ownKey, time.Minute, claims, limitRef)
}

func (s ownStore) FindLostJobs(ctx context.Context) ([]job.Lost, error) {
	return s.Store.FindLostJobs(ctx, ownKey, 6*time.Second, 3*time.Second, 1000)
}

func (s ownStore) FindOwnJobs(ctx context.Context, after int64, page int) ([]job.Claimed, error) {
	return s.Store.FindOwnJobs(ctx, ownKey, 10*time.Second, after, page)
}

// noRunner has room for nothing.
type noRunner struct{}

func (noRunner) Room(string) int                           { return 0 }
func (noRunner) Deployment(string) (int64, string, bool)   { return 1, "bench-0badcafe", true }
func (noRunner) Call(_ queue.Call, done func(job.Outcome)) { go done(job.Outcome{Requeue: true}) }
func (noRunner) Cancel(run cron.RunID, reason string) bool { return false }

// localClock is good enough on the database's own machine.
type localClock struct{}

func (localClock) Now() time.Time       { return time.Now() }
func (localClock) Error() time.Duration { return time.Millisecond }

func (p *inProcess) open(ctx context.Context, _ *bench, url string) (err error) {
	if _, err := store.Migrate(ctx, url); err != nil {
		return err
	}
	if p.store, err = store.Open(ctx, store.Config{URL: url, Application: ownKey, Logger: quiet}); err != nil {
		return err
	}
	s := ownStore{p.store}
	p.queue = queue.New(queue.Config{Store: s, Lists: s, Capacity: noRunner{}, Caller: noRunner{}, Clock: localClock{}, Logger: quiet})
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.running.Go(func() { p.queue.Run(ctx) })
	shards := make([]int32, ring.Shards)
	for i := range shards {
		shards[i] = int32(i)
	}
	p.queue.OnRing(shards, nil)
	return nil
}

func (p *inProcess) send(ctx context.Context, n int) error {
	jobs := make([]job.New, n)
	for i := range jobs {
		jobs[i] = job.New{Tenant: job.DefaultTenant, Ref: ref, Priority: job.DefaultPriority, Payload: payload()}
	}
	results, err := p.queue.Enqueue(ctx, jobs)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	return err
}

func (p *inProcess) bulk(ctx context.Context, n int) error              { return p.send(ctx, n) }
func (p *inProcess) enqueue(ctx context.Context, _ int) error           { return p.send(ctx, 1) }
func (p *inProcess) begun(context.Context) (int, error)                 { return 0, nil }
func (p *inProcess) hot() string                                        { return "carillon.jobs" }
func (p *inProcess) work(context.Context) error                         { return errNoWork }
func (p *inProcess) hold(context.Context) error                         { return errNoWork }
func (p *inProcess) live(context.Context, *pgx.Conn) (bool, error)      { return false, errNoWork }
func (p *inProcess) late(context.Context, int) ([]time.Duration, error) { return nil, errNoWork }

var errNoWork = fmt.Errorf("nothing is worked")

func (p *inProcess) verify(ctx context.Context, db *pgx.Conn, jobs int) error {
	return jobsEnded(ctx, db, jobs, 0)
}

func (p *inProcess) close(context.Context) {
	if p.stop != nil {
		p.stop()
		p.running.Wait()
	}
	if p.store != nil {
		p.store.Close()
	}
}

func (p *inProcess) cpu() time.Duration { return thisCPU() }
