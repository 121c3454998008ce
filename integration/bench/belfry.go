package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// belfry is three controllers and a runner on an empty database, and the triggers that were made through their API.
type belfry struct {
	*product
	db       *pgx.Conn
	triggers []carillonv1connect.TriggerServiceClient // of each controller
	events   []carillonv1connect.EventServiceClient
	drop     func()
}

const (
	belfryControllers = 3
	hands             = 16 // connections that make triggers
)

// readTriggers reads the lists of rates and of numbers of triggers.
func (o *options) readTriggers(firings, eventTriggers string) error {
	if !cronSteps(o.shortest) {
		return fmt.Errorf("no @cron has an interval of %s and one of ten times that", o.shortest)
	}
	for text := range strings.SplitSeq(firings, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate < 0 {
			return fmt.Errorf("%q is no number of firings a second", text)
		}
		if _, err := rota(o.triggers, rate, o.shortest, time.Now()); err != nil {
			return err
		}
		o.firings = append(o.firings, rate)
	}
	for text := range strings.SplitSeq(eventTriggers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of triggers", text)
		}
		o.eventTriggers = append(o.eventTriggers, n)
	}
	return nil
}

// belfries measures triggers, if that was asked for.
func (b *bench) belfries(ctx context.Context) error {
	if b.measures(clockLeg) {
		if err := b.clocks(ctx); err != nil {
			return err
		}
	}
	if b.measures(eventLeg) {
		return b.happenings(ctx)
	}
	return nil
}

func (b *bench) belfry(ctx context.Context) (f *belfry, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	f = &belfry{product: &product{controllers: belfryControllers}, drop: drop}
	defer func() {
		if err != nil {
			f.close(ctx)
		}
	}()
	if f.db, err = pgx.Connect(ctx, url); err != nil {
		return f, fmt.Errorf("connect: %w", err)
	}
	if err := b.countStatements(ctx, f.db); err != nil {
		return f, err
	}
	if err := f.open(ctx, b, url); err != nil {
		return f, fmt.Errorf("bring up %d controllers: %w", belfryControllers, err)
	}
	return f, f.meet(ctx)
}

// meet makes clients of the controllers that are there now.
func (f *belfry) meet(ctx context.Context) error {
	urls, err := f.urls(ctx)
	if err != nil {
		return err
	}
	f.triggers, f.events = nil, nil
	for _, u := range urls {
		plain := connect.WithAcceptCompression("gzip", nil, nil)
		f.triggers = append(f.triggers, carillonv1connect.NewTriggerServiceClient(f.http, u, plain))
		f.events = append(f.events, carillonv1connect.NewEventServiceClient(f.http, u, plain))
	}
	return nil
}

func (f *belfry) close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	f.product.close(ctx)
	if f.db != nil {
		f.db.Close(ctx)
	}
	f.drop()
}

// hang makes n triggers, over some connections to the controllers in turn, and returns how long that took. made is
// called concurrently.
func (f *belfry) hang(ctx context.Context, n int, request func(i int) *carillonv1.CreateTriggerRequest, made func(i int, t *carillonv1.Trigger) error) (time.Duration, error) {
	var next atomic.Int64
	e, err := f.over(ctx, func() error {
		return together(hands, func(hand int) error {
			client := f.triggers[hand%len(f.triggers)]
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				resp, err := client.CreateTrigger(ctx, request(i))
				if err != nil {
					next.Store(int64(n))
					return fmt.Errorf("make trigger %d: %w", i, err)
				}
				if err := made(i, resp.GetTrigger()); err != nil {
					return err
				}
			}
		})
	})
	say("%d triggers made in %s; CPU of the database %s, of controllers %s, %d statements", n, e.took.Round(100*time.Millisecond), e.database, e.controllers, e.statements)
	return e.took, err
}

// restart ends a controller and starts another one in its place, and returns how long it took from its start until it
// was ready: its rows are loaded.
func (f *belfry) restart(ctx context.Context) (time.Duration, error) {
	last := f.controllers - 1
	f.parts[last].end(10 * time.Second)
	began := time.Now()
	c, err := f.startController(last)
	if err != nil {
		return 0, err
	}
	f.parts[last] = c
	runner := f.parts[f.controllers:]
	defer func() { f.parts = append(f.parts, runner...) }()
	f.parts = slices.Clone(f.parts[:f.controllers]) // ready asks controllers alone
	if err := eventually(ctx, c.name, f.ready); err != nil {
		return 0, fmt.Errorf("%w%s", err, c.said())
	}
	return time.Since(began), f.meet(ctx)
}

// expense is what a stretch of time has cost.
type expense struct {
	took, database, controllers time.Duration
	statements                  int64
}

// over measures what is spent while do runs.
func (f *belfry) over(ctx context.Context, do func() error) (e expense, err error) {
	if f.b.counts {
		if _, err := f.db.Exec(ctx, "SELECT pg_stat_statements_reset()"); err != nil {
			return e, fmt.Errorf("count statements: %w", err)
		}
	}
	s := &stand{b: f.b, db: f.db}
	before, err := s.spent(ctx, f.product)
	if err != nil {
		return e, err
	}
	began := time.Now()
	stop := f.watchWaits(ctx)
	err = do()
	waits := stop()
	if err != nil {
		return e, err
	}
	e.took = time.Since(began)
	after, err := s.spent(ctx, f.product)
	if err != nil {
		return e, err
	}
	e.database, e.controllers, e.statements = after.database-before.database, after.controllers-before.controllers, after.statements-before.statements
	return e, f.sayStatements(ctx, e, waits)
}

// note adds the figures of an expense to a table, for each second or for each of so many things.
func (f *belfry) note(table, row string, e expense, each string, n float64) {
	if n == 0 {
		return
	}
	per, unit := float64(time.Microsecond), "us/"+each
	if each == "s" {
		per, unit = float64(time.Millisecond), "ms/s"
	}
	f.b.figures.add(table, row, "database CPU, "+unit, float64(e.database)/per/n)
	f.b.figures.add(table, row, "controllers' CPU, "+unit, float64(e.controllers)/per/n)
	if f.b.counts {
		f.b.figures.add(table, row, "statements/"+each, float64(e.statements)/n)
	}
}

// rss is the memory of the largest controller, in bytes.
func (f *belfry) rss() (most int64) {
	for _, c := range f.parts[:f.controllers] {
		most = max(most, residentBytes(c.cmd.Process.Pid))
	}
	return most
}

// residentBytes is what a process has in memory. It needs Linux; elsewhere it is 0.
func residentBytes(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// marked are the runner's notes about [from, to): how late each was. It is an error if any of them was made twice, or
// belongs to another trigger.
func (f *belfry) marked(from, to int64) ([]time.Duration, error) {
	_, late, err := f.runner.ask(fmt.Sprintf("marked %d %d", from, to), true)
	if err != nil {
		return nil, err
	}
	for _, fault := range []string{"doubled", "strange"} {
		n, _, err := f.runner.ask(fmt.Sprintf("%s %d %d", fault, from, to), false)
		if err = errors.Join(err, faulty(fault, n)); err != nil {
			return nil, err
		}
	}
	slices.Sort(late)
	return late, nil
}

func faulty(what string, n int) error {
	if n > 0 {
		return fmt.Errorf("%d runs are %s", n, what)
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
