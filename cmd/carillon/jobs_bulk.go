package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
)

// Bounds of one request of a bulk. The size is below what a controller takes, which counts base64 and envelopes besides.
const (
	bulkJobs = 1000
	bulkSize = 2 << 20
	bulkLine = maxPayload + 64<<10
	bulkTold = 20 // refused lines that are shown in full
)

// jobLine is one line of a file of jobs.
type jobLine struct {
	Ref            string          `json:"ref"`
	Payload        json.RawMessage `json:"payload"`
	Tenant         string          `json:"tenant"`
	Priority       *int32          `json:"priority"`
	Delay          string          `json:"delay"`
	At             *time.Time      `json:"at"`
	Expires        *time.Time      `json:"expires"`
	Timeout        string          `json:"timeout"`
	Attempts       int32           `json:"attempts"`
	Backoff        string          `json:"backoff"`
	BackoffCeiling string          `json:"backoff_ceiling"`
	Tags           []string        `json:"tags"`
	Unique         string          `json:"unique"`
	UniqueWindow   string          `json:"unique_window"`
	Idempotency    string          `json:"idempotency"`
}

func (l *jobLine) job() (*carillonv1.NewJob, error) {
	if !isRef(l.Ref) {
		return nil, fmt.Errorf("ref %q is no module.verb", clean(l.Ref, 80))
	}
	n := &carillonv1.NewJob{Ref: l.Ref, Payload: l.Payload, Tenant: l.Tenant, Priority: l.Priority, MaxAttempts: l.Attempts, Tags: l.Tags,
		UniqueKey: l.Unique, IdempotencyKey: l.Idempotency}
	for _, d := range []struct {
		name, text string
		into       **durationpb.Duration
	}{
		{"delay", l.Delay, &n.Delay}, {"timeout", l.Timeout, &n.Timeout}, {"backoff", l.Backoff, &n.Backoff},
		{"backoff_ceiling", l.BackoffCeiling, &n.BackoffCeiling}, {"unique_window", l.UniqueWindow, &n.UniqueWindow},
	} {
		if d.text == "" {
			continue
		}
		length, err := time.ParseDuration(d.text)
		if err != nil {
			return nil, fmt.Errorf("%s %q is no length of time such as 90s, 15m, 24h", d.name, clean(d.text, 40))
		}
		*d.into = durationpb.New(length)
	}
	if l.At != nil {
		n.DueAt = timestamppb.New(*l.At)
	}
	if l.Expires != nil {
		n.ExpiresAt = timestamppb.New(*l.Expires)
	}
	return n, nil
}

// bulker sends the lines of a file in batches, and keeps count.
type bulker struct {
	a        *app
	cl       *client
	json     bool
	template *carillonv1.NewJob
	progress bool // on the terminal

	batch []*carillonv1.NewJob
	lines []int
	size  int

	enqueued, existing, refused int
}

// bulk enqueues each line of the file.
func (c *jobsEnqueueCmd) bulk(ctx context.Context, a *app, cl *client, template *carillonv1.NewJob) error {
	var in io.Reader = a.stdin
	if c.Bulk != "-" {
		f, err := os.Open(c.Bulk)
		if err != nil {
			return fmt.Errorf("read the jobs: %w", err)
		}
		defer f.Close()
		in = f
	}
	b := &bulker{a: a, cl: cl, json: c.Output == "json", template: template, progress: isTerminal(a.stderr)}
	err := b.read(ctx, in)
	if err == nil {
		err = b.send(ctx)
	}
	if b.progress {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
	if !b.json {
		fmt.Fprintf(a.stdout, "%s enqueued", plural(b.enqueued, "job"))
		if b.existing > 0 {
			fmt.Fprintf(a.stdout, ", %d were there already", b.existing)
		}
		if b.refused > 0 {
			fmt.Fprintf(a.stdout, ", %s refused", plural(b.refused, "line"))
		}
		fmt.Fprintln(a.stdout)
	}
	if b.refused > bulkTold && !b.json {
		fmt.Fprintf(a.stderr, "and %d more; -o json shows all\n", b.refused-bulkTold)
	}
	switch {
	case err != nil:
		return err
	case b.refused > 0:
		return silent
	}
	return nil
}

// read takes line by line. A line that is too long to be a job ends the reading.
func (b *bulker) read(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), bulkLine)
	n := 1
	for ; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		j, err := b.job(n, bytes.Clone(text))
		if err != nil {
			b.refuse(n, &carillonv1.EnqueueError{Code: "invalid_argument", Message: err.Error()})
			continue
		}
		size := proto.Size(j)
		if len(b.batch) == bulkJobs || b.size+size > bulkSize {
			if err := b.send(ctx); err != nil {
				return err
			}
		}
		b.batch, b.lines, b.size = append(b.batch, j), append(b.lines, n), b.size+size
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("read the jobs: line %d has more than %d bytes, and the payload of a job at most %d", n, bulkLine, maxPayload)
	} else if err != nil {
		return fmt.Errorf("read the jobs: %w", err)
	}
	return nil
}

// job reads the line with a number.
func (b *bulker) job(number int, line []byte) (*carillonv1.NewJob, error) {
	var n *carillonv1.NewJob
	if b.template.GetRef() != "" {
		if err := json.Unmarshal(line, new(json.RawMessage)); err != nil {
			return nil, fmt.Errorf("is no JSON: %w", err)
		}
		n = proto.CloneOf(b.template)
		n.Payload = line
	} else {
		var l jobLine
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil {
			return nil, fmt.Errorf("is no job: %w", err)
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("is no job: there is more behind it")
		}
		var err error
		if n, err = l.job(); err != nil {
			return nil, err
		}
	}
	if key := b.template.GetIdempotencyKey(); key != "" && (n.GetIdempotencyKey() == "" || n.GetIdempotencyKey() == key) {
		n.IdempotencyKey = fmt.Sprintf("%s:%d", key, number)
	}
	return n, nil
}

// send enqueues what was read, and tells of it.
func (b *bulker) send(ctx context.Context) error {
	if len(b.batch) == 0 {
		return nil
	}
	resp, err := b.cl.jobs.EnqueueJobs(ctx, &carillonv1.EnqueueJobsRequest{Jobs: b.batch})
	if err != nil {
		hint := "with --idempotency KEY the same file can be sent again, and no line becomes two jobs"
		if b.template.GetIdempotencyKey() != "" {
			hint = "send the same file again with the same --idempotency: no line becomes two jobs"
		}
		return b.explain(fmt.Errorf("enqueue lines %d to %d: %w", b.lines[0], b.lines[len(b.lines)-1], err), hint)
	}
	if len(resp.GetJobs()) != len(b.batch) {
		return fmt.Errorf("enqueue lines %d to %d: the controller answered %d jobs", b.lines[0], b.lines[len(b.lines)-1], len(resp.GetJobs()))
	}
	for i, e := range resp.GetJobs() {
		switch {
		case e.GetError() != nil:
			b.refuse(b.lines[i], e.GetError())
			continue
		case e.GetExisting():
			b.existing++
		default:
			b.enqueued++
		}
		b.row(b.lines[i], e)
	}
	b.batch, b.lines, b.size = b.batch[:0], b.lines[:0], 0
	if b.progress {
		fmt.Fprintf(b.a.stderr, "\r\x1b[K%s enqueued", plural(b.enqueued+b.existing, "job"))
	}
	return nil
}

// explain shows the hint below what the RPC's error says by itself.
func (b *bulker) explain(err error, hint string) error {
	err = explainRPC(err, &remote{URL: b.cl.url})
	if p := (*problem)(nil); errors.As(err, &p) && p.hint != "" {
		hint = p.hint + "; " + hint
	}
	return mend(err, "%s", hint)
}

func (b *bulker) refuse(line int, e *carillonv1.EnqueueError) {
	b.refused++
	if b.json {
		b.row(line, &carillonv1.EnqueuedJob{Error: e})
		return
	}
	if b.refused <= bulkTold {
		if b.progress {
			fmt.Fprint(b.a.stderr, "\r\x1b[K")
		}
		fmt.Fprintf(b.a.stderr, "line %d: %s\n", line, refusalText(e))
	}
}

// row prints one line of JSON for a program.
func (b *bulker) row(line int, e *carillonv1.EnqueuedJob) {
	if !b.json {
		return
	}
	row := enqueuedRow(e)
	row.Line = line
	json.NewEncoder(b.a.stdout).Encode(row)
}
