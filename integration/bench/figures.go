package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// figures are all rounds of everything that was measured.
type figures struct {
	of map[figure][]float64
}

type figure struct{ leg, candidate, what string }

func newFigures() *figures { return &figures{of: map[figure][]float64{}} }

func (f *figures) add(leg, candidate, what string, value float64) {
	k := figure{leg, candidate, what}
	f.of[k] = append(f.of[k], value)
}

// columns of each leg, in order.
var columns = map[string][]string{
	workLeg:    {"jobs/s", "database CPU, us/job", "other CPU, us/job"},
	enqueueLeg: {"bulk, jobs/s", "single x1, jobs/s", "single x8, jobs/s", "single x32, jobs/s"},
	latencyLeg: {"100/s p50, ms", "100/s p99, ms", "100/s max, ms", "1000/s p50, ms", "1000/s p99, ms", "1000/s max, ms"},
	costLeg: {"backlog, jobs/s", "backlog, statements/job", "backlog, database CPU us/job", "backlog, controllers' CPU us/job",
		"1000/s, statements/job", "1000/s, database CPU us/job", "1000/s, controllers' CPU us/job",
		"idle, statements/s", "idle, database CPU ms/s"},
	clockLeg: {"made/s", "fired/s", "ledger p50, ms", "ledger p99, ms", "ledger max, ms", "worst second's p99, ms", "verb p50, ms", "verb p99, ms", "verb max, ms"},
	clockCostLeg: {"statements/s", "database CPU, ms/s", "controllers' CPU, ms/s", "statements/firing", "database CPU, us/firing", "controllers' CPU, us/firing",
		"largest controller, MB", "start until ready, s"},
	eventLeg: {"made/s", "first event, ms", "published/s", "matched, events/s", "jobs ended, events/s", "database CPU, us/event", "controllers' CPU, us/event",
		"statements/event", "largest controller, MB", "100/s p50, ms", "100/s p99, ms"},
}

var titles = map[string]string{
	workLeg:    "No-op jobs worked to completion",
	enqueueLeg: "Enqueue",
	latencyLeg: "Enqueue to start",
	costLeg:    "Cost of a job by number of controllers",

	clockLeg:     "Triggers of the clock",
	clockCostLeg: "What they cost",
	eventLeg:     "Events",
}

// report is everything as Markdown.
func (b *bench) report(took time.Duration) string {
	var out strings.Builder
	fmt.Fprintf(&out, "`go run . %s`, %s; %s; load before %s.\n\n", strings.Join(os.Args[1:], " "), took.Round(time.Second), b.machine, b.load)
	fmt.Fprintf(&out, "Postgres: %s.\n\n", strings.Join(b.settings, ", "))
	all := b.all()
	if len(all) > 0 || b.measures(costLeg) {
		fmt.Fprintf(&out, "Median of %d rounds, and all of them. ", b.rounds)
	}
	fmt.Fprint(&out, "What runs where:\n\n")
	if b.measures(clockLeg) || b.measures(eventLeg) {
		fmt.Fprintln(&out, "- Triggers, measured once: three controllers and a runner are processes; triggers and events come by RPC")
	}
	for _, c := range all {
		fmt.Fprintf(&out, "- %s: %s\n", c.name, c.where)
	}
	for _, leg := range b.only {
		names := []string{}
		for _, c := range all {
			names = append(names, c.name)
		}
		if leg == costLeg {
			names = costNames()
		}
		switch leg {
		case clockLeg:
			names = names[:0]
			for _, rate := range b.firings {
				names = append(names, clockRow(rate))
			}
		case eventLeg:
			names = names[:0]
			for _, n := range b.eventTriggers {
				names = append(names, eventRow(n))
			}
		}
		b.table(&out, leg, names)
		if leg == clockLeg {
			b.table(&out, clockCostLeg, names)
		}
	}
	return out.String()
}

func (b *bench) table(out *strings.Builder, leg string, names []string) {
	fmt.Fprintf(out, "\n### %s\n\n%s\n\n| |", titles[leg], b.about(leg))
	for _, c := range columns[leg] {
		fmt.Fprintf(out, " %s |", c)
	}
	fmt.Fprintf(out, "\n|---|%s\n", strings.Repeat("---|", len(columns[leg])))
	for _, name := range names {
		row, any := "| "+name+" |", false
		for _, c := range columns[leg] {
			rounds := b.figures.of[figure{leg, name, c}]
			any = any || len(rounds) > 0
			row += " " + cell(rounds) + " |"
		}
		if any {
			fmt.Fprintln(out, row)
		}
	}
}

// about says what a table's figures are.
func (b *bench) about(leg string) string {
	switch leg {
	case workLeg:
		return fmt.Sprintf("%d jobs queued beforehand (River at its defaults: %d), then worked until the database says that all have ended. Other CPU is that of the processes that claim and work.", b.jobs, b.slowJobs)
	case enqueueLeg:
		return fmt.Sprintf("Bulk: %d jobs, %d a call, %d producers (River: InsertManyFast; hand-written: COPY). Single: one job a call, so many producers, %s each; nothing is worked meanwhile.",
			b.jobs, batch, bulkProducers, b.leg)
	case latencyLeg:
		return fmt.Sprintf("From just before the call that enqueues to the worker's first instruction, by the machine's wall clock; %s at each rate in each round.", b.latency)
	case costLeg:
		return fmt.Sprintf("Carillon; jobs go to the controllers in turn. Backlog: %d jobs queued beforehand. 1000/s: single enqueues by RPC for %s, their inserts included. Statements are calls by "+
			"pg_stat_statements (BEGIN and COMMIT are statements), those of heartbeats and other upkeep in the same time included: idle is that alone.", b.costJobs, steadyTime)
	}
	return b.aboutTriggers(leg)
}

func (b *bench) aboutTriggers(leg string) string {
	switch leg {
	case clockLeg:
		return fmt.Sprintf("%s triggers, made by RPC over %d connections; intervals of %s to %s, slots in whole seconds. Ledger: from the slot to its firing, by the database's clock. Verb: "+
			"from the slot to the verb's begin in the runner. Slots of %s; each since the first trigger was made was fired once, and its job ran once.",
			grouped(b.triggers), hands, b.shortest, 10*b.shortest, b.window)
	case clockCostLeg:
		return "In the same time: upkeep, firings, and their jobs until they ended. Statements are calls by pg_stat_statements (BEGIN and COMMIT are statements)."
	case eventLeg:
		return fmt.Sprintf("%s events, %d a call, %d publishers; every second one is for one trigger, any of all, and no other. Matched: from the first call until no event is left, so that all jobs "+
			"exist; the runner works them meanwhile. First event: after all triggers were made, until its job has ended. 100/s: from just before a call with one event to the verb's begin, for %s.",
			grouped(b.happen), eventBatch, eventPublishers, b.latency)
	}
	return ""
}

// cell is a median, and the rounds that it is of.
func cell(rounds []float64) string {
	if len(rounds) == 0 {
		return "-"
	}
	var each []string
	for _, r := range rounds {
		each = append(each, number(r))
	}
	if len(rounds) == 1 {
		return number(rounds[0])
	}
	return fmt.Sprintf("**%s** (%s)", number(median(rounds)), strings.Join(each, ", "))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[n/2]
}

// number writes large values without a fraction and groups their digits; small ones get two places.
func number(v float64) string {
	switch {
	case v >= 1000:
		text := fmt.Sprintf("%.0f", v)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
