package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// subject is something that takes jobs in and works them, on one database, from open to close. Only enqueue and bulk
// are called concurrently.
type subject interface {
	open(ctx context.Context, b *bench, url string) error
	// bulk enqueues n jobs at once; n is at most batch.
	bulk(ctx context.Context, n int) error
	// enqueue enqueues one job, as one of so many producers. It returns when the job is safe.
	enqueue(ctx context.Context, producer int) error
	// work lets the jobs be worked, and hold stops it. Before the first work nothing is.
	work(ctx context.Context) error
	hold(ctx context.Context) error
	// begun is how many runs the workers have begun since open; late are the notes of those after the first.
	begun(ctx context.Context) (int, error)
	late(ctx context.Context, first int) ([]time.Duration, error)
	// live reports whether any job has not ended yet; by the database.
	live(ctx context.Context, db *pgx.Conn) (bool, error)
	// verify fails unless exactly so many jobs ended well, each once.
	verify(ctx context.Context, db *pgx.Conn, jobs int) error
	// cpu is the processor time so far of the processes that enqueue, claim and work, without Postgres.
	cpu() time.Duration
	// hot is the table of live jobs.
	hot() string
	close(ctx context.Context)
}

// candidate is one row of the tables.
type candidate struct {
	name     string
	where    string // what runs where, for the reader
	jobs     int    // queued before they are worked
	measures []string
	make     func() subject

	processes bool // the product's binary is needed
}

func (c candidate) does(leg string) bool { return slices.Contains(c.measures, leg) }

const (
	batch         = 1000 // jobs of one bulk call
	bulkProducers = 2
	warmUp        = 2000 // jobs, before anything is measured
	patience      = 2 * time.Minute
)

var producers = []int{1, 8, 32}
var rates = []int{100, 1000}

// all are the candidates that were asked for.
func (b *bench) all() []candidate {
	every := []candidate{
		{"Carillon", "controller and runner are processes; jobs by RPC", b.jobs, []string{workLeg, enqueueLeg, latencyLeg}, func() subject { return &product{controllers: 1} }, true},
		{"Carillon, enqueue in process", "the queue's engine and the store in the process that enqueues; nothing is worked", b.jobs, []string{enqueueLeg}, func() subject { return &inProcess{} }, false},
		{"River, tuned", "client and workers in this process: MaxWorkers 1000, FetchCooldown 2 ms, FetchPollInterval 20 ms", b.jobs,
			[]string{workLeg, enqueueLeg, latencyLeg}, func() subject {
				return &riverQueue{workers: 1000, cooldown: 2 * time.Millisecond, poll: 20 * time.Millisecond}
			}, false},
		{"River, defaults", "client and workers in this process: MaxWorkers 100, FetchCooldown 100 ms, FetchPollInterval 1 s", b.slowJobs, []string{workLeg, latencyLeg},
			func() subject { return &riverQueue{workers: 100} }, false},
		{"hand-written pgx", "in this process, on Carillon's own tables, no worker is called", b.jobs, []string{workLeg, enqueueLeg}, func() subject { return &ceiling{} }, false},
		{"hand-written pgx, plain inserts", "a connection for each producer", b.jobs, []string{enqueueLeg}, func() subject { return &ceiling{plain: true} }, false},
	}
	return slices.DeleteFunc(every, func(c candidate) bool {
		named := len(b.candidates) == 0 || slices.ContainsFunc(b.candidates, func(part string) bool {
			return strings.Contains(strings.ToLower(c.name), strings.ToLower(part))
		})
		return !named || !slices.ContainsFunc(c.measures, b.measures)
	})
}

// stand is one candidate on its database, during one turn.
type stand struct {
	subject
	b    *bench
	c    candidate
	db   *pgx.Conn
	jobs int // that it was given
}

// turn has one candidate do all that it is measured at.
func (b *bench) turn(ctx context.Context, c candidate, round int) error {
	began := time.Now()
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	s := &stand{subject: c.make(), b: b, c: c}
	defer s.close(context.WithoutCancel(ctx))
	if err := s.open(ctx, b, url); err != nil {
		return fmt.Errorf("bring it up: %w", err)
	}
	if s.db, err = pgx.Connect(ctx, url); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer s.db.Close(context.WithoutCancel(ctx))
	if err := s.measure(ctx); err != nil {
		return err
	}
	if err := s.verify(ctx, s.db, s.jobs); err != nil {
		return fmt.Errorf("count its jobs: %w", err)
	}
	say("round %d: %s: %s", round+1, c.name, time.Since(began).Round(100*time.Millisecond))
	return nil
}

func (s *stand) measure(ctx context.Context) error {
	works := s.c.does(workLeg) || s.c.does(latencyLeg)
	if err := s.fill(ctx, warmUp); err != nil {
		return err
	}
	if works {
		if _, err := s.workOff(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	if s.b.measures(workLeg) && s.c.does(workLeg) || s.b.measures(enqueueLeg) && s.c.does(enqueueLeg) {
		if err := s.backlog(ctx); err != nil {
			return err
		}
	}
	if s.b.measures(enqueueLeg) && s.c.does(enqueueLeg) {
		for _, n := range producers {
			if err := s.singles(ctx, n); err != nil {
				return fmt.Errorf("%d producers: %w", n, err)
			}
		}
		if works {
			if _, err := s.workOff(ctx); err != nil {
				return err
			}
		}
	}
	if s.b.measures(latencyLeg) && s.c.does(latencyLeg) {
		if err := s.work(ctx); err != nil {
			return err
		}
		for _, rate := range rates {
			if err := s.lateness(ctx, rate); err != nil {
				return fmt.Errorf("%d jobs a second: %w", rate, err)
			}
		}
		return s.hold(ctx)
	}
	return nil
}

// fill enqueues n jobs in bulk.
func (s *stand) fill(ctx context.Context, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	err := together(bulkProducers, func(int) error {
		for {
			size := min(left.Add(-batch)+batch, batch)
			if size <= 0 {
				return nil
			}
			if err := s.bulk(ctx, int(size)); err != nil {
				return err
			}
		}
	})
	s.jobs += n
	if err != nil {
		return fmt.Errorf("enqueue %d jobs: %w", n, err)
	}
	return nil
}

// backlog measures the bulk, and then the jobs worked to completion.
func (s *stand) backlog(ctx context.Context) error {
	if err := settle(ctx, s.db, s.hot()); err != nil {
		return err
	}
	began := time.Now()
	if err := s.fill(ctx, s.c.jobs); err != nil {
		return err
	}
	if s.c.does(enqueueLeg) && s.b.measures(enqueueLeg) {
		s.b.figures.add(enqueueLeg, s.c.name, "bulk, jobs/s", float64(s.c.jobs)/time.Since(began).Seconds())
	}
	if !s.c.does(workLeg) || !s.b.measures(workLeg) {
		return nil
	}
	if err := settle(ctx, s.db, s.hot()); err != nil {
		return err
	}
	cpu, own := treeCPU(s.b.server.PID()), s.cpu()
	took, err := s.workOff(ctx)
	if err != nil {
		return err
	}
	cpu, own = treeCPU(s.b.server.PID())-cpu, s.cpu()-own
	s.b.figures.add(workLeg, s.c.name, "jobs/s", float64(s.c.jobs)/took.Seconds())
	s.b.figures.add(workLeg, s.c.name, "database CPU, us/job", perJob(cpu, s.c.jobs))
	s.b.figures.add(workLeg, s.c.name, "other CPU, us/job", perJob(own, s.c.jobs))
	return nil
}

func perJob(d time.Duration, jobs int) float64 {
	return float64(d.Microseconds()) / float64(max(jobs, 1))
}

// workOff lets everything be worked that waits, and returns how long it took until the database said that all had
// ended. The workers are counted first, so that the database is asked only at the end.
func (s *stand) workOff(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := s.work(ctx); err != nil {
		return 0, err
	}
	if err := s.awaitEnds(ctx); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, s.hold(ctx)
}

func (s *stand) awaitEnds(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n, err := s.begun(ctx)
		if err != nil {
			return err
		}
		if n >= s.jobs {
			if live, err := s.live(ctx, s.db); err != nil || !live {
				return err
			}
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("wait for %d jobs, %d have begun: %w", s.jobs, n, err)
		}
	}
}

// singles measures so many producers that enqueue one job a call.
func (s *stand) singles(ctx context.Context, producers int) error {
	if err := settle(ctx, s.db, s.hot()); err != nil {
		return err
	}
	var done atomic.Int64
	began := time.Now()
	err := together(producers, func(i int) error {
		for time.Since(began) < s.b.leg {
			if err := s.enqueue(ctx, i); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	s.jobs += int(done.Load())
	s.b.figures.add(enqueueLeg, s.c.name, fmt.Sprintf("single x%d, jobs/s", producers), float64(done.Load())/time.Since(began).Seconds())
	return err
}

// lateness measures enqueue to start at a steady rate. Each job is enqueued by a goroutine of its own at its time, so
// that a slow call delays no other.
func (s *stand) lateness(ctx context.Context, rate int) error {
	if err := s.steady(ctx, rate, time.Second); err != nil { // warm
		return err
	}
	if err := settle(ctx, s.db, s.hot()); err != nil {
		return err
	}
	first := s.jobs
	if err := s.steady(ctx, rate, s.b.latency); err != nil {
		return err
	}
	late, err := s.late(ctx, first)
	if err != nil {
		return err
	}
	if len(late) != s.jobs-first {
		return fmt.Errorf("%d runs of %d jobs", len(late), s.jobs-first)
	}
	slices.Sort(late)
	ms := func(q float64) float64 { return float64(quantile(late, q).Microseconds()) / 1000 }
	for what, q := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
		s.b.figures.add(latencyLeg, s.c.name, fmt.Sprintf("%d/s %s, ms", rate, what), ms(q))
	}
	return nil
}

// steady enqueues at a rate, and returns when all has ended.
func (s *stand) steady(ctx context.Context, rate int, d time.Duration) error {
	n := int(d.Seconds() * float64(rate))
	var wg sync.WaitGroup
	failed := make(chan error, n)
	began := time.Now()
	for i := range n {
		if err := pause(ctx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(rate)))); err != nil {
			return err
		}
		wg.Go(func() {
			if err := s.enqueue(ctx, i); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	s.jobs += n
	return s.awaitEnds(ctx)
}

// together runs n of do and joins their errors.
func together(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pause waits; the error is the context's.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
