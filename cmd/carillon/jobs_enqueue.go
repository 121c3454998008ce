package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	carillonv1 "carillon/proto/carillon/v1"
)

// jobsEnqueueCmd enqueues one job, or many from a file.
type jobsEnqueueCmd struct {
	listing
	Ref     string `arg:"" optional:"" help:"The verb, as module.verb."`
	Payload string `arg:"" optional:"" name:"json" help:"Its request: JSON, - for the standard input, or @FILE. Nothing for a verb that takes none."`

	Delay          time.Duration `placeholder:"DURATION" help:"Not before this length of time has passed."`
	At             string        `placeholder:"RFC3339" help:"Not before this instant."`
	Priority       *int32        `placeholder:"N" help:"0 to 1000, higher first (default 500)."`
	Unique         string        `placeholder:"KEY" help:"One live job with this key at a time: the one that is there is returned."`
	UniqueWindow   time.Duration `placeholder:"DURATION" help:"The unique key is held for this long instead."`
	Idempotency    string        `placeholder:"KEY" help:"The same command again with the same key gives the same job, for 24 h. In a file: of each line, with the line's number."`
	Tag            []string      `sep:"none" placeholder:"TAG" help:"A tag to find the job by; may be repeated."`
	Tenant         string        `placeholder:"NAME" help:"On whose behalf (default: the tenant default)."`
	AttemptTimeout time.Duration `placeholder:"DURATION" help:"How long one attempt may take (default: the verb's)."`
	Attempts       int32         `placeholder:"N" help:"Attempts in all (default: the verb's)."`
	Backoff        time.Duration `placeholder:"DURATION" help:"Wait before the second attempt; it doubles (default: the verb's)."`
	BackoffCeiling time.Duration `placeholder:"DURATION" help:"What the wait never exceeds (default: the verb's)."`
	Expires        string        `placeholder:"WHEN" help:"No attempt begins after this: RFC 3339, or a length of time from now such as 1h."`

	Wait bool   `help:"Wait until the job has ended, and print what it returned."`
	Bulk string `placeholder:"FILE" help:"Enqueue each line of this file; - for the standard input."`
}

func (c *jobsEnqueueCmd) Help() string {
	return `With --wait the exit code is 0 when the job succeeded, 1 when it failed or was cancelled, and 130 after Ctrl-C, which
leaves the job as it is. What the verb returned goes to the standard output.

Of a file (--bulk) each line is the request of one job when a REF is given; the other flags then hold for all of them.
Without a REF each line is a job: {"ref": "m.v", "payload": {..}, "delay": "5s", "at": "2026-01-31T09:00:00Z",
"priority": 500, "unique": "k", "unique_window": "1h", "idempotency": "k", "tags": ["a"], "tenant": "t", "timeout": "1m",
"attempts": 5, "backoff": "1s", "backoff_ceiling": "1m", "expires": "2026-02-01T00:00:00Z"}, where only ref is needed.
With an idempotency key the same file can be sent again after a failure: no line becomes two jobs.

Examples:

  carillon jobs enqueue mailroom.sendMail '{"to": "ann@example.org"}' --delay 10m
  carillon jobs enqueue mailroom.sendMail @mail.json --unique ann --attempts 3 --wait
  carillon jobs enqueue mailroom.sendMail --bulk mails.jsonl --idempotency import-7`
}

func (c *jobsEnqueueCmd) Run(ctx context.Context, a *app, r *remote) error {
	if err := c.check(); err != nil {
		return err
	}
	template, err := c.job()
	if err != nil {
		return err
	}
	if template.Payload, err = readPayload(a.stdin, "payload", c.Payload); err != nil {
		return fmt.Errorf("enqueue %s: %w", c.Ref, err)
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	if c.Bulk != "" {
		return c.bulk(ctx, a, cl, template)
	}
	resp, err := cl.jobs.EnqueueJobs(ctx, &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{template}})
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", c.Ref, err)
	}
	if len(resp.GetJobs()) != 1 {
		return fmt.Errorf("enqueue %s: the controller answered %d jobs instead of one", c.Ref, len(resp.GetJobs()))
	}
	got := resp.GetJobs()[0]
	if got.GetError() != nil {
		return mend(fmt.Errorf("enqueue %s: %s", c.Ref, refusalText(got.GetError())), "%s", refusalHint(got.GetError()))
	}
	if c.Wait {
		return c.wait(ctx, a, r, cl, got)
	}
	return c.print(a, enqueuedRow(got), func() {
		if got.GetExisting() {
			fmt.Fprintf(a.stdout, "%s (was there already)\n", got.GetId())
			return
		}
		fmt.Fprintln(a.stdout, got.GetId())
	})
}

// check refuses what needs no cluster to be wrong.
func (c *jobsEnqueueCmd) check() error {
	wrong := func(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }
	switch {
	case c.Bulk == "" && c.Ref == "":
		return usage{mend(errors.New("which verb?"), "name it as module.verb, or give a file of jobs with --bulk")}
	case c.Ref != "" && !isRef(c.Ref):
		return usage{mend(fmt.Errorf("%q is no verb", clean(c.Ref, 80)), "write it as module.verb")}
	case c.Bulk != "" && c.Payload != "":
		return wrong("a request and --bulk exclude each other: the requests stand in the file")
	case c.Bulk != "" && c.Wait:
		return wrong("--wait is for one job, --bulk for many")
	case c.Bulk != "" && c.Unique != "":
		return wrong("--unique would make one job of the whole file; give each line its key")
	case c.Bulk != "" && c.Ref == "" && c.ofOne():
		return usage{mend(errors.New("the lines of the file say what is to be known of each job"), "name the verb, then the flags hold for all lines; only --idempotency goes without")}
	case c.Delay > 0 && c.At != "":
		return wrong("--delay and --at exclude each other")
	case c.UniqueWindow > 0 && c.Unique == "":
		return wrong("--unique-window needs --unique")
	case c.Priority != nil && (*c.Priority < 0 || *c.Priority > 1000):
		return wrong("--priority %d: 0 to 1000, higher first", *c.Priority)
	}
	return nil
}

// ofOne says that a flag is set that describes a job.
func (c *jobsEnqueueCmd) ofOne() bool {
	return c.Delay != 0 || c.At != "" || c.Priority != nil || len(c.Tag) > 0 || c.Tenant != "" || c.AttemptTimeout != 0 || c.Attempts != 0 || c.Backoff != 0 ||
		c.BackoffCeiling != 0 || c.Expires != ""
}

func isRef(s string) bool {
	_, _, ok := cron.ParseRef(s)
	return ok
}

// job is what the flags say, without a payload.
func (c *jobsEnqueueCmd) job() (*carillonv1.NewJob, error) {
	n := &carillonv1.NewJob{
		Ref: c.Ref, Tenant: c.Tenant, Priority: c.Priority, Delay: optional(c.Delay), Timeout: optional(c.AttemptTimeout), MaxAttempts: c.Attempts,
		Backoff: optional(c.Backoff), BackoffCeiling: optional(c.BackoffCeiling), Tags: c.Tag, UniqueKey: c.Unique, UniqueWindow: optional(c.UniqueWindow),
		IdempotencyKey: c.Idempotency,
	}
	if c.At != "" {
		t, err := time.Parse(time.RFC3339Nano, c.At)
		if err != nil {
			return nil, usage{mend(fmt.Errorf("--at %q is no instant", c.At), "write it like 2026-01-31T09:00:00Z; a length of time goes with --delay")}
		}
		n.DueAt = timestamppb.New(t)
	}
	switch d, err := time.ParseDuration(c.Expires); {
	case c.Expires == "":
	case err == nil && d > 0:
		n.ExpiresIn = durationpb.New(d)
	default:
		t, err := time.Parse(time.RFC3339Nano, c.Expires)
		if err != nil {
			return nil, usage{mend(fmt.Errorf("--expires %q is no instant", c.Expires), "write it like 2026-01-31T09:00:00Z, or as a length of time from now: 90s, 15m, 24h")}
		}
		n.ExpiresAt = timestamppb.New(t)
	}
	return n, nil
}

func optional(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// maxPayload is what a controller takes; reading stops there.
const maxPayload = job.MaxPayload

// readPayload reads JSON (what: its name in errors) as it stands on the command line, on the standard input or in a file.
func readPayload(stdin io.Reader, what, arg string) ([]byte, error) {
	var b []byte
	switch {
	case arg == "":
		return nil, nil
	case arg == "-":
		var err error
		if b, err = io.ReadAll(io.LimitReader(stdin, maxPayload+1)); err != nil {
			return nil, fmt.Errorf("read the %s from the standard input: %w", what, err)
		}
	case strings.HasPrefix(arg, "@"):
		f, err := os.Open(arg[1:])
		if err != nil {
			return nil, fmt.Errorf("read the %s: %w", what, err)
		}
		defer f.Close()
		if b, err = io.ReadAll(io.LimitReader(f, maxPayload+1)); err != nil {
			return nil, fmt.Errorf("read the %s: %w", what, err)
		}
	default:
		b = []byte(arg)
	}
	if len(b) > maxPayload {
		return nil, mend(fmt.Errorf("%s: has more than %d bytes, and at most that many are accepted", what, maxPayload),
			"keep what is large elsewhere, and enqueue where it is found")
	}
	return b, validRequest(what, b)
}

// validRequest refuses what is no JSON, and says where.
func validRequest(what string, b []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(b, &v)
	if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
		from := max(0, min(int(bad.Offset)-1, len(b))-20)
		return mend(fmt.Errorf("%s: is no JSON: %w, near %q", what, err, clean(string(b[from:min(int(bad.Offset)+20, len(b))]), 60)),
			"in a shell, put it in single quotes: '{\"to\": \"ann\"}'; or use @FILE")
	}
	return err
}

type enqueuedJSON struct {
	ID       string         `json:"id"`
	Existing bool           `json:"existing"`
	Line     int            `json:"line,omitempty"` // of the file
	Error    *enqueueReason `json:"error,omitempty"`
}

type enqueueReason struct {
	Code    string `json:"code"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

func enqueuedRow(e *carillonv1.EnqueuedJob) enqueuedJSON {
	row := enqueuedJSON{ID: e.GetId(), Existing: e.GetExisting()}
	if f := e.GetError(); f != nil {
		row.Error = &enqueueReason{f.GetCode(), f.GetField(), f.GetMessage()}
	}
	return row
}

// refusalText says why a job was not taken in.
func refusalText(e *carillonv1.EnqueueError) string {
	text := clean(e.GetMessage(), 0)
	if e.GetField() != "" {
		text = clean(e.GetField(), 0) + ": " + text
	}
	return text
}

func refusalHint(e *carillonv1.EnqueueError) string {
	switch {
	case e.GetCode() == "not_found" && strings.Contains(e.GetMessage(), " has no verb "):
		return "`carillon schema DIR` lists the verbs of a source; one that is not live yet comes with `carillon deploy DIR`"
	case e.GetCode() == "not_found":
		return "is the module deployed? `carillon ps` lists what is"
	case e.GetCode() == "already_exists":
		return "the idempotency key belongs to another request: use a new key"
	case e.GetCode() == "unavailable":
		return "try again; with --idempotency KEY no job is made twice"
	case e.GetField() == "payload" && strings.Contains(e.GetMessage(), "bytes"):
		return "keep what is large elsewhere, and enqueue where it is found"
	case strings.HasPrefix(e.GetField(), "payload"):
		return "the request does not fit the verb; `carillon schema DIR` shows its type"
	}
	return ""
}
