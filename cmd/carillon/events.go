package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	carillonv1 "carillon/proto/carillon/v1"
)

// eventsCmd groups what is about events.
type eventsCmd struct {
	Publish eventsPublishCmd `cmd:"" help:"Tell the cluster of a change of a document; the triggers that wait for it make their jobs."`
}

// eventsPublishCmd publishes one event.
type eventsPublishCmd struct {
	listing
	Type    string `arg:"" help:"Of the document, such as io.cozy.files."`
	Verb    string `arg:"" name:"event-verb" help:"CREATED, UPDATED or DELETED."`
	Doc     string `arg:"" optional:"" name:"json" help:"The document now: JSON, - for the standard input, or @FILE."`
	ID      string `name:"id" placeholder:"ID" help:"Of the document (default: its _id)."`
	Old     string `placeholder:"JSON" help:"The document before: JSON, - for the standard input, or @FILE."`
	Path    string `placeholder:"PATH" help:"Of a file, now."`
	OldPath string `placeholder:"PATH" help:"Of a file, before."`
	Tenant  string `placeholder:"NAME" help:"Whose document it is (default: the tenant default, or that of the token)."`

	Idempotency string `placeholder:"KEY" help:"The same command again with the same key is the same event."`
}

func (c *eventsPublishCmd) Help() string {
	return `What is acknowledged is not lost. The same command again is another event, unless both have the same --idempotency key.

Examples:

  carillon events publish io.cozy.bills CREATED '{"_id": "b1", "amount": 12}'
  carillon events publish io.cozy.files UPDATED @now.json --old @before.json --path /photos/a.jpg --old-path /a.jpg
  carillon events publish io.cozy.files DELETED --id f1 --tenant acme -o json`
}

var eventVerbs = []string{"CREATED", "UPDATED", "DELETED"}

func (c *eventsPublishCmd) Run(ctx context.Context, a *app, r *remote) error {
	switch {
	case len(c.Idempotency) > 256:
		return usage{fmt.Errorf("--idempotency: a key has at most 256 bytes, this one %d", len(c.Idempotency))}
	case !slices.Contains(eventVerbs, c.Verb):
		return usage{mend(fmt.Errorf("%q is no verb of an event", clean(c.Verb, 40)), "one of %s", strings.Join(eventVerbs, ", "))}
	case c.Doc == "-" && c.Old == "-":
		return usage{fmt.Errorf("only one document can come from the standard input")}
	}
	e := &carillonv1.Event{Type: c.Type, Verb: c.Verb, DocId: c.ID, Path: c.Path, OldPath: c.OldPath}
	var err error
	if e.Doc, err = readPayload(a.stdin, "document", c.Doc); err != nil {
		return err
	}
	if e.Old, err = readPayload(a.stdin, "--old", c.Old); err != nil {
		return err
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.events.PublishEvents(ctx, &carillonv1.PublishEventsRequest{Tenant: c.Tenant, Events: []*carillonv1.Event{e}, IdempotencyKey: c.Idempotency})
	if err != nil {
		return fmt.Errorf("publish event: %w", err)
	}
	accepted := struct {
		Accepted int32 `json:"accepted"`
	}{resp.GetAccepted()}
	return c.print(a, accepted, func() { fmt.Fprintf(a.stdout, "%s accepted\n", plural(int(resp.GetAccepted()), "event")) })
}
