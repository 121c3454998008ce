package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// sizes are the numbers of controllers whose cost is compared.
var sizes = []int{1, 2, 4}

func costName(n int) string { return fmt.Sprintf("%d controller(s)", n) }

func costNames() (all []string) {
	for _, n := range sizes {
		all = append(all, costName(n))
	}
	return all
}

// costs measures what a job costs with each number of controllers, the order moving on by one in each round.
func (b *bench) costs(ctx context.Context, round int) error {
	if !b.measures(costLeg) {
		return nil
	}
	for i := range sizes {
		if err := b.cost(ctx, sizes[(i+round)%len(sizes)], round); err != nil {
			return err
		}
	}
	return nil
}

// spent is what was used up to a moment.
type spent struct {
	database, controllers time.Duration
	statements            int64
}

func (b *bench) cost(ctx context.Context, controllers, round int) error {
	began := time.Now()
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer db.Close(context.WithoutCancel(ctx))
	if err := b.countStatements(ctx, db); err != nil {
		return err
	}
	p := &product{controllers: controllers}
	s := &stand{subject: p, b: b, c: candidate{name: costName(controllers)}, db: db}
	defer s.close(context.WithoutCancel(ctx))
	if err := s.open(ctx, b, url); err != nil {
		return fmt.Errorf("bring up %d controllers: %w", controllers, err)
	}
	if err := s.fill(ctx, warmUp); err != nil {
		return err
	}
	if _, err := s.workOff(ctx); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	if err := s.fill(ctx, b.costJobs); err != nil {
		return err
	}
	var took time.Duration
	if err := s.costOf(ctx, p, "backlog", b.costJobs, func() (err error) {
		took, err = s.workOff(ctx)
		return err
	}); err != nil {
		return err
	}
	b.figures.add(costLeg, s.c.name, "backlog, jobs/s", float64(b.costJobs)/took.Seconds())
	if err := s.work(ctx); err != nil {
		return err
	}
	const rate = 1000
	if err := s.costOf(ctx, p, "1000/s", int(steadyTime.Seconds()*rate), func() error { return s.steady(ctx, rate, steadyTime) }); err != nil {
		return err
	}
	if err := s.idle(ctx, p); err != nil {
		return err
	}
	if err := s.verify(ctx, db, s.jobs); err != nil {
		return fmt.Errorf("count the jobs: %w", err)
	}
	say("round %d: cost with %s: %s", round+1, s.c.name, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// countStatements has those counted of the sessions that come to the newest database.
func (b *bench) countStatements(ctx context.Context, db *pgx.Conn) error {
	if !b.counts {
		return nil
	}
	for _, sql := range []string{"CREATE EXTENSION pg_stat_statements", fmt.Sprintf("ALTER DATABASE bench_%d SET pg_stat_statements.track = 'top'", b.made)} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("count statements: %w", err)
		}
	}
	return nil
}

func (s *stand) costOf(ctx context.Context, p *product, what string, jobs int, do func() error) error {
	if err := settle(ctx, s.db, s.hot()); err != nil {
		return err
	}
	before, err := s.spent(ctx, p)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	after, err := s.spent(ctx, p)
	if err != nil {
		return err
	}
	add := func(of string, v float64) { s.b.figures.add(costLeg, s.c.name, what+", "+of, v) }
	add("database CPU us/job", perJob(after.database-before.database, jobs))
	add("controllers' CPU us/job", perJob(after.controllers-before.controllers, jobs))
	if s.b.counts {
		add("statements/job", float64(after.statements-before.statements)/float64(jobs))
	}
	return nil
}

const (
	steadyTime = 5 * time.Second
	idleTime   = 3 * time.Second
)

// idle measures the upkeep, which a job's cost includes: heartbeats, looks at queues and windows.
func (s *stand) idle(ctx context.Context, p *product) error {
	before, err := s.spent(ctx, p)
	if err != nil {
		return err
	}
	if err := pause(ctx, idleTime); err != nil {
		return err
	}
	after, err := s.spent(ctx, p)
	if err != nil {
		return err
	}
	s.b.figures.add(costLeg, s.c.name, "idle, database CPU ms/s", float64((after.database-before.database).Microseconds())/1000/idleTime.Seconds())
	if s.b.counts {
		s.b.figures.add(costLeg, s.c.name, "idle, statements/s", float64(after.statements-before.statements)/idleTime.Seconds())
	}
	return nil
}

func (s *stand) spent(ctx context.Context, p *product) (now spent, err error) {
	if s.b.counts {
		err = s.db.QueryRow(ctx, `SELECT COALESCE(sum(calls), 0)::bigint FROM pg_stat_statements
			WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&now.statements)
		if err != nil {
			return now, fmt.Errorf("count statements: %w", err)
		}
	}
	now.database = treeCPU(s.b.server.PID())
	for _, part := range p.parts[:p.controllers] {
		now.controllers += treeCPU(part.cmd.Process.Pid)
	}
	return now, nil
}
