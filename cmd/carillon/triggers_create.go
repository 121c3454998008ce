package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/core/trigger"
	carillonv1 "carillon/proto/carillon/v1"
)

// triggersCreateCmd makes a trigger.
type triggersCreateCmd struct {
	listing
	triggerText
	Worker         string        `placeholder:"NAME" help:"What does its jobs: a worker's name such as sendmail, or module.verb."`
	Message        string        `placeholder:"JSON" help:"The request of its jobs: JSON, - for the standard input, or @FILE."`
	Tenant         string        `placeholder:"NAME" help:"On whose behalf (default: the tenant default, or that of the token)."`
	Priority       *int32        `placeholder:"N" help:"Of its jobs: 1 to 100, higher first (default 50)."`
	Attempts       int32         `placeholder:"N" help:"Attempts of each job in all (default: the worker's)."`
	AttemptTimeout time.Duration `placeholder:"DURATION" help:"How long one attempt may take (default: the worker's)."`
	Backoff        time.Duration `placeholder:"DURATION" help:"Wait before the second attempt; it doubles (default: the worker's)."`
	Debounce       time.Duration `placeholder:"DURATION" help:"Of @event and @webhook: what comes within this length of time makes one job, at its end."`
	Idempotency    string        `placeholder:"KEY" help:"The same command again with the same key gives the same trigger."`
	SecretFile     string        `placeholder:"FILE" help:"Of @webhook: deliveries must be signed with what this file holds."`
}

func (c *triggersCreateCmd) Help() string {
	return `Kinds and their arguments:

  @at 2026-01-31T09:00:00Z       once, at that instant
  @in 30m                        once, so long after its creation
  @every 10m                     again and again, counted from its creation
  @cron 0 0 9 * * MON-FRI        by an expression of five fields, or six with the seconds first
  @hourly                        at a minute and second that are chosen for it
  @daily between 8am and 6pm     the same in a window of hours: also before 6pm, after 8am
  @weekly on mon,wed after 8am   and on one of some weekdays: also mon-fri, weekday, weekend
  @monthly on the 1-5            and on one of some days of the month
  @event io.cozy.files:CREATED   by a change of a document: type:VERBS:values:selector, rules one blank apart
  @webhook                       by a request to its own path, which is shown once it is made
  @client                        by a client, which launches it and ends the jobs itself

Examples:

  carillon triggers create "@daily between 8am and 6pm" --worker sendmail --message @report.json --tz Europe/Paris
  carillon triggers create "@event io.cozy.files:CREATED,UPDATED" --worker thumbnail --debounce 1m
  carillon triggers create @webhook --worker mailroom.receive --secret-file hook.key -o json | jq -r .webhook`
}

func (c *triggersCreateCmd) Run(ctx context.Context, a *app, r *remote) error {
	req, err := c.request(a)
	if err != nil {
		return err
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.triggers.CreateTrigger(ctx, req)
	if connect.CodeOf(err) == connect.CodeNotFound {
		return mend(fmt.Errorf("create trigger: %w", explainRPC(err, r)), "is its module deployed? `carillon ps` lists what is")
	}
	if connect.CodeOf(err) == connect.CodeInvalidArgument {
		return mend(fmt.Errorf("create trigger: %w", explainRPC(err, r)), "%s", kindsHint)
	}
	if err != nil {
		return fmt.Errorf("create trigger: %w", err)
	}
	t := resp.GetTrigger()
	return c.print(a, triggerRow(t), func() {
		fmt.Fprintln(a.stdout, t.GetId())
		fmt.Fprintln(a.stderr, waitsFor(t))
	})
}

// waitsFor says what makes a new trigger fire.
func waitsFor(t *carillonv1.Trigger) string {
	kind, next := trigger.Kind(t.GetKind()), t.GetNextExecution()
	switch {
	case kind == trigger.Webhook:
		return "it waits for POST " + clean(t.GetWebhook(), 0)
	case kind == trigger.Event:
		return "it waits for events"
	case kind == trigger.Client:
		return "it waits to be launched; its client ends the jobs"
	case next == nil:
		return "it has no slot"
	case kind.Once() && !next.AsTime().After(t.GetCreatedAt().AsTime()):
		return "its time is past: it fires now, once"
	case kind.Once():
		return "it fires once, at " + when(next) + " UTC"
	}
	return "it fires at " + when(next) + " UTC for the first time"
}

func (c *triggersCreateCmd) request(a *app) (*carillonv1.CreateTriggerRequest, error) {
	kind, arguments, err := c.split()
	if err != nil {
		return nil, err
	}
	wrong := func(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }
	switch {
	case c.Worker == "" && kind != trigger.Client:
		return nil, usage{mend(errors.New("which worker?"), "name it with --worker: a worker such as sendmail, or a verb as module.verb")}
	case c.Priority != nil && (*c.Priority < 1 || *c.Priority > 100):
		return nil, wrong("--priority %d: 1 to 100, higher first", *c.Priority)
	case c.Debounce > 0 && kind != trigger.Event && kind != trigger.Webhook:
		return nil, wrong("--debounce is for @event and @webhook, not for %s", kind)
	case c.SecretFile != "" && kind != trigger.Webhook:
		return nil, wrong("--secret-file is for @webhook, not for %s", kind)
	}
	req := &carillonv1.CreateTriggerRequest{
		Tenant: c.Tenant, Kind: string(kind), Arguments: arguments, TimeZone: c.TZ, Worker: c.Worker, Priority: c.Priority, MaxAttempts: c.Attempts,
		Timeout: optional(c.AttemptTimeout), Backoff: optional(c.Backoff), Debounce: optional(c.Debounce), IdempotencyKey: c.Idempotency,
	}
	if req.Message, err = readPayload(a.stdin, "--message", c.Message); err != nil {
		return nil, err
	}
	if c.SecretFile != "" {
		raw, err := os.ReadFile(c.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("read the secret: %w", err)
		}
		if req.Secret = []byte(strings.TrimSpace(string(raw))); len(req.Secret) == 0 {
			return nil, fmt.Errorf("read the secret: %s is empty", c.SecretFile)
		}
	}
	return req, nil
}
