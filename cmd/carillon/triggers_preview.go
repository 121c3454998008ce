package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"carillon/backend/core/schedule"
	"carillon/backend/core/trigger"
)

// triggersPreviewCmd prints the next slots of a trigger text.
type triggersPreviewCmd struct {
	listing
	triggerText
	ID   string    `name:"id" placeholder:"ID" help:"Of a trigger: @hourly, @daily, @weekly and @monthly choose their slot by it."`
	From time.Time `placeholder:"RFC3339" help:"When the trigger is made (default: now)."`
	N    int       `short:"n" name:"count" default:"5" placeholder:"N" help:"How many slots (default ${default})."`
}

func (c *triggersPreviewCmd) Help() string {
	return `Shows what a trigger would do that is made now; nothing is stored, and no cluster is asked.

Examples:

  carillon triggers preview "@daily between 8am and 6pm"
  carillon triggers preview "@cron 0 0 9 * * MON-FRI" --tz Europe/Paris -n 10
  carillon triggers preview "@every 90m" --from 2026-01-01T00:00:00Z -o json`
}

func (c *triggersPreviewCmd) Run(a *app) error {
	if c.N < 1 || c.N > trigger.MaxPreview {
		return usage{fmt.Errorf("-n %d: ask for 1 to %d slots", c.N, trigger.MaxPreview)}
	}
	kind, arguments, err := c.split()
	if err != nil {
		return err
	}
	made := c.From
	if made.IsZero() {
		made = time.Now()
	}
	slots, err := trigger.Preview(kind, arguments, c.TZ, c.ID, made, made, c.N)
	if err != nil {
		return badTrigger(err)
	}
	return c.print(a, list(slots, func(t time.Time) string { return t.UTC().Format(previewLayout(t)) }), func() { c.table(a.stdout, a, kind, arguments, made, slots) })
}

// previewLayout shows parts of a second only where there are some: an @in may have them.
func previewLayout(t time.Time) string {
	if t.Nanosecond() == 0 {
		return layoutSeconds
	}
	return layoutMicros
}

const kindsHint = "`carillon triggers create --help` shows what each kind takes"

// badTrigger says what is wrong with a trigger text, and how to mend it.
func badTrigger(err error) error {
	fault, ok := errors.AsType[*trigger.Fault](err)
	if !ok {
		return err
	}
	hint := kindsHint
	if fault.Pointer == trigger.PointerZone {
		hint = "use a name such as Europe/Paris or UTC"
	}
	return mend(fmt.Errorf("bad trigger: %s", clean(fault.Detail, 0)), "%s", hint)
}

func (c *triggersPreviewCmd) table(w io.Writer, a *app, kind trigger.Kind, arguments string, made time.Time, slots []time.Time) {
	if !kind.Timed() {
		fmt.Fprintf(w, "no slots: the text is good, but the clock does not fire triggers of kind %s\n", kind)
		return
	}
	header := []string{"slot (UTC)", "in"}
	loc, err := schedule.LoadLocation(c.TZ)
	zoned := err == nil && loc != time.UTC
	if zoned {
		header = slices.Insert(header, 1, loc.String())
	}
	a.table(header, list(slots, func(t time.Time) []string {
		row := []string{t.UTC().Format(previewLayout(t)), distance(t.Sub(made))}
		if zoned {
			row = slices.Insert(row, 1, t.In(loc).Format("Mon 2006-01-02 15:04:05 MST"))
		}
		return row
	}))
	switch {
	case kind.Once():
		fmt.Fprintln(w, "no more: it fires once")
	case len(slots) < c.N:
		fmt.Fprintln(w, "no more: the schedule ends here")
	}
	if text, err := trigger.Timetable(kind, arguments, c.TZ, c.ID, made); err == nil {
		if s, err := schedule.ParseText(text, loc); err == nil {
			fmt.Fprintln(w, s.Describe())
		}
	}
	if chosen(kind) && c.ID == "" {
		fmt.Fprintln(w, "each trigger has a slot of its own in the window, and keeps it; this is one of them (--id shows that of a trigger)")
	}
}

// distance is how far a slot is, to the hour where it is days away.
func distance(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = d.Round(time.Second); {
	case d < 0:
		return "overdue: at once"
	case d < 2*day:
		return took(d)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// chosen says that a kind's slot depends on the trigger's id.
func chosen(kind trigger.Kind) bool {
	return slices.Contains([]trigger.Kind{trigger.Hourly, trigger.Daily, trigger.Weekly, trigger.Monthly}, kind)
}
