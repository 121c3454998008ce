package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

func eventRow(n int) string { return fmt.Sprintf("%s triggers", grouped(n)) }

// grouped is a whole number as the tables write them.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return number(float64(n))
}

// happenings measures events with each number of triggers.
func (b *bench) happenings(ctx context.Context) error {
	for _, n := range b.eventTriggers {
		began := time.Now()
		if err := b.happening(ctx, n); err != nil {
			return fmt.Errorf("events, %s: %w", eventRow(n), err)
		}
		say("events, %s: %s", eventRow(n), time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

const (
	eventTypes      = 1000 // that triggers share; a fourth has a type of its own
	eventBatch      = 500  // events of one call
	eventPublishers = 4
	eventRate       = 100 // a second, published singly
)

// rule is what the i-th of n triggers waits for. Exactly one trigger matches an event that is for it.
func rule(i, n int) string {
	doctype := fmt.Sprintf("io.bench.t%d", i%eventTypes)
	switch i / min(eventTypes, max(n/4, 1)) % 4 {
	case 0:
		return fmt.Sprintf("%s:CREATED,UPDATED:doc%d", doctype, i)
	case 1:
		return fmt.Sprintf("%s:CREATED:value%d:kind", doctype, i)
	case 2:
		return fmt.Sprintf("io.cozy.files:CREATED:/dir%d", i)
	}
	return fmt.Sprintf("io.bench.own%d", i)
}

// happened is an event: for trigger i of n, or like one for it that no trigger matches.
func happened(number int64, i, n int, matches bool) *carillonv1.Event {
	doc, other := document{N: number, For: int64(i)}, ""
	if !matches {
		doc.For, other = -1, "x" // ids, values and types that nobody waits for
	}
	e := &carillonv1.Event{Type: fmt.Sprintf("io.bench.t%d", i%eventTypes), Verb: "CREATED", DocId: fmt.Sprintf("%s%d", other, number)}
	kind := "none"
	switch i / min(eventTypes, max(n/4, 1)) % 4 {
	case 0:
		e.DocId = fmt.Sprintf("doc%s%d", other, i)
	case 1:
		kind = fmt.Sprintf("value%s%d", other, i)
	case 2:
		e.Type, e.Path = "io.cozy.files", fmt.Sprintf("/dir%s%d/below/file%d", other, i, number)
	default:
		e.Type = fmt.Sprintf("io.bench.own%s%d", other, i)
	}
	doc.Sent = time.Now().UnixNano()
	text, _ := json.Marshal(struct {
		document
		ID    string `json:"_id"`
		Kind  string `json:"kind"`
		State string `json:"state"`
		Name  string `json:"name"`
		Size  int    `json:"size"`
	}{doc, e.DocId, kind, "done", "a document of some size", 1234567})
	e.Doc = text
	return e
}

// crowd is what publishes: every event has a number, and every second one is for one trigger, taken by chance.
type crowd struct {
	*belfry
	n    int
	next int64 // number
	each int64 // event so many is for a trigger
}

func (c *crowd) matching(from, to int64) (n int) {
	return int((to+c.each-1)/c.each - (from+c.each-1)/c.each)
}

func (c *crowd) event(number int64) *carillonv1.Event {
	chance := rand.New(rand.NewPCG(uint64(number), uint64(c.n)))
	return happened(number, chance.IntN(c.n), c.n, number%c.each == 0)
}

// publish sends n events in batches, and returns when they are taken in.
func (c *crowd) publish(ctx context.Context, n int) error {
	first, end := c.next, c.next+int64(n)
	c.next = end
	var at atomic.Int64
	at.Store(first)
	return together(eventPublishers, func(i int) error {
		for {
			from := at.Add(eventBatch) - eventBatch
			if from >= end {
				return nil
			}
			req := &carillonv1.PublishEventsRequest{}
			for number := from; number < min(from+eventBatch, end); number++ {
				req.Events = append(req.Events, c.event(number))
			}
			resp, err := c.events[i%len(c.events)].PublishEvents(ctx, req)
			if err != nil {
				return fmt.Errorf("publish: %w", err)
			}
			if int(resp.GetAccepted()) != len(req.Events) {
				return fmt.Errorf("%d of %d events are accepted", resp.GetAccepted(), len(req.Events))
			}
		}
	})
}

// gone waits until a table is empty.
func (c *crowd) gone(ctx context.Context, table string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var some bool
		if err := c.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+table+")").Scan(&some); err != nil || !some {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the end of %s: %w", table, err)
		}
	}
}

func (b *bench) happening(ctx context.Context, n int) error {
	f, err := b.belfry(ctx)
	if err != nil {
		return err
	}
	defer f.close(ctx)
	row := eventRow(n)
	took, err := f.hang(ctx, n, func(i int) *carillonv1.CreateTriggerRequest {
		return &carillonv1.CreateTriggerRequest{Kind: "@event", Arguments: rule(i, n), Worker: ringRef, Message: fmt.Appendf(nil, `{"trigger":%d}`, i)}
	}, func(int, *carillonv1.Trigger) error { return nil })
	if err != nil {
		return err
	}
	if n >= 1000 {
		b.figures.add(eventLeg, row, "made/s", float64(n)/took.Seconds())
	}
	c := &crowd{belfry: f, n: n, each: 2}
	began := time.Now()
	if err := c.burst(ctx, 1); err != nil { // the first one finds out what triggers there are
		return err
	}
	b.figures.add(eventLeg, row, "first event, ms", ms(time.Since(began)))
	if err := c.burst(ctx, warmUp); err != nil {
		return err
	}
	if err := settle(ctx, f.db, "carillon.events"); err != nil {
		return err
	}
	var sent, matched time.Duration
	spent, err := f.over(ctx, func() error {
		began := time.Now()
		if err := c.publish(ctx, b.happen); err != nil {
			return err
		}
		sent = time.Since(began)
		if err := c.gone(ctx, "carillon.events"); err != nil {
			return err
		}
		matched = time.Since(began)
		return c.gone(ctx, "carillon.jobs")
	})
	if err != nil {
		return err
	}
	perSecond := func(d time.Duration) float64 { return float64(b.happen) / d.Seconds() }
	b.figures.add(eventLeg, row, "published/s", perSecond(sent))
	b.figures.add(eventLeg, row, "matched, events/s", perSecond(matched))
	b.figures.add(eventLeg, row, "jobs ended, events/s", perSecond(spent.took))
	f.note(eventLeg, row, spent, "event", float64(b.happen))
	b.figures.add(eventLeg, row, "largest controller, MB", float64(f.rss())/1e6)
	from := c.next
	if err := c.singles(ctx, b.latency); err != nil {
		return err
	}
	late, err := f.marked(from, c.next)
	if err != nil {
		return err
	}
	b.figures.add(eventLeg, row, "100/s p50, ms", ms(quantile(late, 0.5)))
	b.figures.add(eventLeg, row, "100/s p99, ms", ms(quantile(late, 0.99)))
	return c.judge(ctx)
}

// burst publishes, and waits until all jobs have ended.
func (c *crowd) burst(ctx context.Context, n int) error {
	if err := c.publish(ctx, n); err != nil {
		return err
	}
	if err := c.gone(ctx, "carillon.events"); err != nil {
		return err
	}
	return c.gone(ctx, "carillon.jobs")
}

// singles publishes one event a call at a steady rate, and waits until all jobs have ended.
func (c *crowd) singles(ctx context.Context, d time.Duration) error {
	n := int(d.Seconds() * eventRate)
	first := c.next
	c.next += int64(n)
	began := time.Now()
	err := together(n, func(i int) error {
		if err := pause(ctx, time.Until(began.Add(time.Duration(i)*time.Second/eventRate))); err != nil {
			return err
		}
		_, err := c.events[i%len(c.events)].PublishEvents(ctx, &carillonv1.PublishEventsRequest{Events: []*carillonv1.Event{c.event(first + int64(i))}})
		return err
	})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return c.burst(ctx, 0)
}

// judge counts everything: each event that is for a trigger became one job of that trigger, which ran once, and nothing
// else did.
func (c *crowd) judge(ctx context.Context) error {
	want := c.matching(0, c.next)
	late, err := c.marked(0, c.next)
	if err != nil {
		return err
	}
	var ended, well int
	err = c.db.QueryRow(ctx, `SELECT count(*), count(DISTINCT id) FILTER (WHERE state = 'succeeded' AND attempt = 1) FROM carillon.job_history WHERE trigger_id IS NOT NULL`).Scan(&ended, &well)
	if err == nil && (len(late) != want || ended != want || well != want) {
		err = fmt.Errorf("%d of %d events were for a trigger: %d jobs, %d of them succeeded at their first attempt; %d runs", want, c.next, ended, well, len(late))
	}
	if err == nil {
		say("%d events, %d jobs", c.next, want)
	}
	return err
}
