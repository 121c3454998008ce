package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"carillon/backend/core/trigger"
	carillonv1 "carillon/proto/carillon/v1"
)

// triggersCmd groups what is about triggers.
type triggersCmd struct {
	Ls      triggersLsCmd      `cmd:"" help:"List triggers, in the order in which they were made."`
	Show    triggersShowCmd    `cmd:"" help:"Show all that is known of one trigger, and when it fires."`
	Create  triggersCreateCmd  `cmd:"" help:"Make a trigger: a rule that makes jobs by the clock, an event, a webhook or a client."`
	Launch  triggersLaunchCmd  `cmd:"" help:"Make a trigger's job now, whatever the trigger waits for."`
	Pause   triggersPauseCmd   `cmd:"" help:"Stop the clock for triggers."`
	Resume  triggersResumeCmd  `cmd:"" help:"Let paused triggers go on."`
	Rm      triggersRmCmd      `cmd:"" help:"Remove triggers; the jobs that they made stay."`
	Preview triggersPreviewCmd `cmd:"" help:"Show the next slots of any trigger text. Needs no cluster."`
}

// errNoID: most often a variable of a script that was not set.
var errNoID = usage{mend(errors.New("a trigger's id is empty"), "`carillon triggers ls` lists them")}

// someTriggers is the argument of the commands about triggers by their ids.
type someTriggers struct {
	IDs []string `arg:"" name:"id" help:"The triggers' ids, as 'triggers create' and 'triggers ls' print them."`
}

// Validate is called by the parser.
func (s someTriggers) Validate() error {
	if slices.Contains(s.IDs, "") {
		return errNoID
	}
	return nil
}

// triggerText is the argument of the commands about a trigger that is not there yet. Words that were not quoted are
// joined.
type triggerText struct {
	Text []string `arg:"" name:"text" help:"Kind and arguments, in quotes: \"@daily between 8am and 6pm\", \"@every 10m\", \"@event io.cozy.files:CREATED\"."`
	TZ   string   `name:"tz" placeholder:"ZONE" help:"Zone of the times, e.g. Europe/Paris (default UTC)."`
}

// split is the kind, and the arguments as they stand behind one blank.
func (t triggerText) split() (kind trigger.Kind, arguments string, err error) {
	word, arguments, _ := strings.Cut(strings.Join(t.Text, " "), " ")
	kind, err = trigger.ParseKind(word)
	if err != nil {
		return "", "", usage{mend(fmt.Errorf("%q is no kind of trigger", clean(word, 40)), "the text begins with one of %s", kindList())}
	}
	return kind, arguments, nil
}

func kindList() string { return strings.Join(kindNames(), ", ") }

func kindNames() []string {
	return list(trigger.Kinds, func(k trigger.Kind) string { return string(k) })
}

// triggerJSON is a trigger for programs. The message is what it is in JSON.
type triggerJSON struct {
	ID            string          `json:"id"`
	Tenant        string          `json:"tenant"`
	Domain        string          `json:"domain"`
	Kind          string          `json:"kind"`
	Arguments     string          `json:"arguments"`
	TimeZone      string          `json:"time_zone"`
	Worker        string          `json:"worker"`
	Ref           string          `json:"ref"`
	Priority      int32           `json:"priority"`
	MaxAttempts   int32           `json:"max_attempts"`
	Timeout       string          `json:"timeout"`
	Backoff       string          `json:"backoff"`
	Debounce      string          `json:"debounce"`
	CreatedAt     *string         `json:"created_at"`
	NextExecution *string         `json:"next_execution"`
	Paused        bool            `json:"paused"`
	PausedReason  string          `json:"paused_reason"`
	LastError     string          `json:"last_error"`
	Webhook       string          `json:"webhook"`
	Status        string          `json:"status"`
	LastExecution *string         `json:"last_execution"`
	Message       json.RawMessage `json:"message"`
	NextSlots     []string        `json:"next_slots,omitempty"` // of 'triggers show'
}

func triggerRow(t *carillonv1.Trigger) triggerJSON {
	return triggerJSON{
		ID: t.GetId(), Tenant: t.GetTenant(), Domain: t.GetDomain(), Kind: t.GetKind(), Arguments: t.GetArguments(), TimeZone: zoneName(t.GetTimeZone()),
		Worker: t.GetWorker(), Ref: t.GetRef(), Priority: t.GetPriority(), MaxAttempts: t.GetMaxAttempts(), Timeout: lengthText(t.GetTimeout()),
		Backoff: lengthText(t.GetBackoff()), Debounce: lengthText(t.GetDebounce()), CreatedAt: stamp(t.GetCreatedAt()), NextExecution: stamp(t.GetNextExecution()),
		Paused: t.GetPaused(), PausedReason: t.GetPausedReason(), LastError: t.GetLastError(), Webhook: t.GetWebhook(), Status: t.GetStatus(), LastExecution: stamp(t.GetLastExecution()),
		Message: jsonValue(t.GetMessage()),
	}
}

// textOf is a trigger as its maker wrote it, for a person.
func textOf(t *carillonv1.Trigger, most int) string {
	return clean(strings.TrimSpace(t.GetKind()+" "+t.GetArguments()), most)
}

// zonedText is a trigger as a list shows it, with the zone that its times are in.
func zonedText(t *carillonv1.Trigger) string {
	text := textOf(t, 60)
	if zone := t.GetTimeZone(); zone != "" && zone != "UTC" && trigger.Kind(t.GetKind()).Timed() {
		text += "  " + clean(zone, 40)
	}
	return text
}

// statusOf is how a trigger fares; empty: it has made no job yet.
func statusOf(t *carillonv1.Trigger) string {
	if t.GetStatus() == string(trigger.Done) && t.GetLastExecution() == nil {
		return ""
	}
	return clean(t.GetStatus(), 20)
}

// nextOf says when the clock fires a trigger, or why it does not.
func nextOf(t *carillonv1.Trigger) string {
	switch {
	case t.GetPaused():
		return "paused"
	case t.GetNextExecution() != nil:
		return when(t.GetNextExecution())
	case trigger.Kind(t.GetKind()).Timed():
		return "-"
	}
	return "by " + strings.TrimPrefix(clean(t.GetKind(), 20), "@")
}

func statusColour(status string) string {
	switch trigger.Status(status) {
	case trigger.Done:
		return green
	case trigger.Errored:
		return red
	case trigger.Running:
		return blue
	}
	return yellow
}

// triggersLsCmd lists triggers.
type triggersLsCmd struct {
	listing
	Tenant     string   `placeholder:"NAME" help:"Only this tenant."`
	Kind       []string `placeholder:"KIND" help:"Only these kinds, such as @daily,@event."`
	Worker     []string `placeholder:"NAME" help:"Only these workers, as their makers named them."`
	Duplicates bool     `help:"Only triggers that do the same as another one, in groups, the oldest of each first."`
	Limit      int      `default:"100" placeholder:"N" help:"How many triggers at most, or groups of duplicates; 0 for all (default ${default})."`
}

func (c *triggersLsCmd) Help() string {
	return `Examples:

  carillon triggers ls
  carillon triggers ls --tenant acme --kind @daily,@weekly
  carillon triggers ls --worker sendmail --limit 0 -o json | jq -r .[].id
  carillon triggers ls --duplicates -o json | jq -r '.[][1:][].id' | xargs carillon triggers rm`
}

func (c *triggersLsCmd) Run(ctx context.Context, a *app, r *remote) error {
	req := &carillonv1.ListTriggersRequest{Tenant: c.Tenant, Workers: c.Worker}
	for _, name := range c.Kind {
		kind, err := trigger.ParseKind(name)
		if err != nil {
			return usage{mend(fmt.Errorf("--kind: %q is no kind of trigger", clean(name, 40)), "one of %s", kindList())}
		}
		req.Kinds = append(req.Kinds, string(kind))
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	limit := c.Limit
	if c.Duplicates { // they may be far apart
		limit = 0
	}
	found, err := cl.listTriggers(ctx, req, limit)
	if err != nil {
		return fmt.Errorf("list triggers: %w", err)
	}
	if c.Duplicates {
		return c.printDuplicates(a, duplicates(found))
	}
	return c.print(a, list(found, triggerRow), func() {
		if len(found) == 0 {
			fmt.Fprintln(a.stderr, "no such triggers")
			return
		}
		a.table([]string{"trigger", "tenant", "text", "worker", "next (UTC)", "last (UTC)", "status", "error"}, list(found, func(t *carillonv1.Trigger) []string {
			return []string{t.GetId(), clean(t.GetTenant(), 30), zonedText(t), clean(t.GetWorker(), 40), nextOf(t), when(t.GetLastExecution()),
				a.paint(statusColour(t.GetStatus()), dash(statusOf(t))), clean(t.GetLastError(), 60)}
		}))
	})
}

func (cl *client) listTriggers(ctx context.Context, req *carillonv1.ListTriggersRequest, limit int) ([]*carillonv1.Trigger, error) {
	return pages(limit, func(size int32, token string) ([]*carillonv1.Trigger, string, error) {
		req.PageSize, req.PageToken = size, token
		resp, err := cl.triggers.ListTriggers(ctx, req)
		return resp.GetTriggers(), resp.GetNextPageToken(), err
	})
}

// noTrigger says which trigger is not there, in the same words whatever was tried.
func noTrigger(tried, id string, err error) error {
	if connect.CodeOf(err) == connect.CodeNotFound {
		return mend(fmt.Errorf("%s %s: there is none", tried, clean(id, 64)), "`carillon triggers ls` lists them")
	}
	return fmt.Errorf("%s %s: %w", tried, clean(id, 64), err)
}

// visited is what became of one of the triggers or tokens that a command names.
type visited struct {
	ID    string `json:"id"`
	JobID string `json:"job_id,omitempty"`
	Error string `json:"error"`
}

// visit does something to each trigger, whatever became of those before, and tells of all of them.
func visit(a *app, r *remote, l listing, ids []string, tried string, do func(id string) (row visited, said string, err error)) error {
	rows, failed := []visited{}, false
	for i, id := range ids {
		row, said, err := do(id)
		if row.ID = id; err == nil {
			rows = append(rows, row)
			if l.Output == "table" {
				fmt.Fprintln(a.stdout, said)
			}
			continue
		}
		gone := connect.CodeOf(err) == connect.CodeNotFound
		final := gone || isRefusal(err)
		err = noTrigger(tried, id, err)
		if len(ids) == 1 && l.Output == "table" || !final {
			if left := len(ids) - i - 1; left > 0 {
				return fmt.Errorf("%w (%s behind it not tried)", err, plural(left, "trigger"))
			}
			return err
		}
		failed, err = true, explainRPC(err, r)
		rows = append(rows, visited{ID: id, Error: err.Error()})
		if l.Output == "table" {
			fmt.Fprintf(a.stderr, "carillon: %s\n", err)
		}
	}
	if l.Output == "json" {
		if err := a.json(rows); err != nil {
			return err
		}
	}
	if failed {
		return silent
	}
	return nil
}
