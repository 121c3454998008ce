package mailroom

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"carillon"
)

// maxRecipients bounds one newsletter.
const maxRecipients = 10_000

// Issue is one message to many people.
type Issue struct {
	Subject string   `json:"subject"`
	Body    string   `json:"body,omitempty"`
	To      []string `json:"to"`
}

// Delivery says what became of an issue. Those whose mail failed are to be found among the dead jobs.
type Delivery struct {
	Sent   int `json:"sent"`
	Failed int `json:"failed,omitempty"`
}

// Newsletter has a mail sent to each recipient, by a job of its own, and waits for all of them without keeping a runner
// busy meanwhile. It runs at least twice: once to enqueue, and once when the last of its children has ended. An attempt
// that was lost half way enqueues all again; the keys make that the same jobs.
//
//carillon:verb
//carillon:retry 10 1s..5m
//carillon:timeout 5m
func Newsletter(ctx context.Context, issue Issue) (Delivery, error) {
	run, ok := carillon.RunFrom(ctx)
	if !ok || run.Job == "" {
		return Delivery{}, carillon.Fail(errors.New("a newsletter is sent by a job"))
	}
	to := slices.Clone(issue.To)
	slices.Sort(to)
	to = slices.Compact(to)
	if len(to) == 0 || len(to) > maxRecipients {
		return Delivery{}, carillon.Fail(fmt.Errorf("to: %d recipients, 1 to %d are possible", len(to), maxRecipients))
	}
	children, err := carillon.Children(ctx)
	if err != nil {
		return Delivery{}, fmt.Errorf("look for the mails: %w", err)
	}
	if len(children) < len(to) {
		if err := enqueue(ctx, run, issue, to); err != nil {
			return Delivery{}, err
		}
		return Delivery{}, carillon.AwaitChildren()
	}
	d, live := tally(children)
	if live > 0 {
		carillon.Progress(ctx, fmt.Sprintf("%d of %d sent", d.Sent, len(to)))
		return Delivery{}, carillon.AwaitChildren()
	}
	carillon.Progress(ctx, fmt.Sprintf("%d sent, %d failed", d.Sent, d.Failed))
	slog.InfoContext(ctx, "newsletter sent", "sent", d.Sent, "failed", d.Failed)
	return d, nil
}

// enqueue makes a child of each recipient.
func enqueue(ctx context.Context, run carillon.Run, issue Issue, to []string) error {
	module, _, _ := strings.Cut(run.Ref, ".")
	const batch = 500
	for done := 0; done < len(to); done += batch {
		var jobs []carillon.NewJob
		for _, address := range to[done:min(done+batch, len(to))] {
			jobs = append(jobs, carillon.NewJob{
				Ref:     module + ".sendMail",
				Request: Mail{To: address, Subject: issue.Subject, Body: issue.Body},
				Options: []carillon.JobOption{carillon.Child(), carillon.Idempotency(key(run, address)), carillon.Tags("newsletter")},
			})
		}
		answers, err := carillon.EnqueueMany(ctx, nil, jobs)
		for _, a := range answers {
			err = errors.Join(err, a.Err)
		}
		if err != nil {
			return fmt.Errorf("enqueue the mails: %w", err)
		}
		carillon.Progress(ctx, fmt.Sprintf("%d of %d enqueued", done+len(jobs), len(to)))
	}
	return nil
}

// tally counts the children that have ended, and those that have not.
func tally(children []carillon.Job) (d Delivery, live int) {
	for _, c := range children {
		switch {
		case !c.State.Ended():
			live++
		case c.State == carillon.JobSucceeded:
			d.Sent++
		default:
			d.Failed++
		}
	}
	return d, live
}

// key names the mail to one recipient, for every attempt of the newsletter.
func key(run carillon.Run, address string) string {
	sum := sha256.Sum256([]byte(run.IdempotencyKey + "\x00" + address))
	return "newsletter:" + hex.EncodeToString(sum[:16])
}
