package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
)

// triggersShowCmd shows one trigger.
type triggersShowCmd struct {
	listing
	ID string `arg:"" name:"id" help:"The trigger's id."`
}

func (c *triggersShowCmd) Help() string {
	return `Examples:

  carillon triggers show 0f2c8e1b7a6d4c3e9b8a7f6e5d4c3b2a
  carillon triggers show 0f2c8e1b7a6d4c3e9b8a7f6e5d4c3b2a -o json | jq .next_slots`
}

func (c *triggersShowCmd) Run(ctx context.Context, a *app, r *remote) error {
	if c.ID == "" {
		return errNoID
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.triggers.GetTrigger(ctx, &carillonv1.GetTriggerRequest{Id: c.ID})
	if err != nil {
		return noTrigger("show trigger", c.ID, err)
	}
	row := triggerRow(resp.GetTrigger())
	row.NextSlots = stamps(resp.GetNextSlots())
	return c.print(a, row, func() { showTrigger(a, resp, time.Now()) })
}

func showTrigger(a *app, resp *carillonv1.GetTriggerResponse, now time.Time) {
	t := resp.GetTrigger()
	at := func(t *timestamppb.Timestamp) string {
		if t == nil {
			return ""
		}
		return when(t) + " UTC  (" + ago(t, now) + ")"
	}
	zone, slots, debounce := "", "", ""
	if t.GetTimeZone() != "" {
		zone = clean(t.GetTimeZone(), 0)
	}
	if len(resp.GetNextSlots()) > 0 {
		slots = spread(resp.GetNextSlots())
	}
	if t.GetDebounce().AsDuration() > 0 {
		debounce = lengthText(t.GetDebounce())
	}
	worker := clean(t.GetWorker(), 0)
	if t.GetRef() != "" && t.GetRef() != t.GetWorker() {
		worker += "  (" + clean(t.GetRef(), 0) + ")"
	}
	next := nextOf(t)
	if t.GetPausedReason() != "" {
		next += ": " + clean(t.GetPausedReason(), 0)
	}
	attempts, status := "", statusOf(t)
	if status != "" {
		status = a.paint(statusColour(status), status)
	}
	if t.GetMaxAttempts() > 0 {
		attempts = fmt.Sprintf("%d, backoff %s", t.GetMaxAttempts(), lengthText(t.GetBackoff()))
	}
	for _, l := range [][2]string{
		{"trigger", clean(t.GetId(), 0)}, {"tenant", clean(t.GetTenant(), 0)}, {"domain", clean(t.GetDomain(), 0)}, {"text", textOf(t, 0)}, {"time zone", zone},
		{"worker", worker}, {"next", next}, {"next slots", slots}, {"webhook", clean(t.GetWebhook(), 0)}, {"debounce", debounce},
		{"status", status}, {"last", at(t.GetLastExecution())},
		{"error", clean(t.GetLastError(), 0)}, {"created", at(t.GetCreatedAt())}, {"priority", fmt.Sprint(t.GetPriority())},
		{"attempts", attempts}, {"timeout", lengthText(t.GetTimeout())},
	} {
		if strings.TrimSpace(l[1]) != "" {
			fmt.Fprintf(a.stdout, "%s  %s\n", a.paint(faint, fmt.Sprintf("%-14s", l[0])), l[1])
		}
	}
	showValue(a, "message", t.GetMessage())
}
