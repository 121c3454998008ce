package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"carillon"
)

// task is what a job asks of a verb: who it is, how long it takes and what becomes of it. So the drill knows beforehand
// what must happen, and the runner needs no memory.
type task struct {
	Mark     string `json:"mark"`
	Ms       int    `json:"ms,omitempty"`       // it takes so long
	Deaf     bool   `json:"deaf,omitempty"`     // whatever becomes of its context
	Fails    int    `json:"fails,omitempty"`    // so many attempts
	After    int    `json:"after,omitempty"`    // and then asks to come again after so many ms, instead of the backoff
	Final    bool   `json:"final,omitempty"`    // fails for good
	Snooze   int    `json:"snooze,omitempty"`   // ms, until the time of Until
	Until    int64  `json:"until,omitempty"`    // Unix milliseconds: snoozes before it
	Children []task `json:"children,omitempty"` // made in the first run, then waited for
	Progress bool   `json:"progress,omitempty"`
}

// jobs are the verbs that take a task; they write a file of their own.
type jobs struct {
	file   *os.File
	runner string
}

// newJobs opens the file beside the record of the cron verbs.
func newJobs(record, runner string) (jobs, error) {
	file, err := os.OpenFile(record+".jobs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return jobs{}, fmt.Errorf("open the record of jobs: %w", err)
	}
	return jobs{file: file, runner: runner}, nil
}

// handler serves every verb with a request.
func (j jobs) handler() carillon.Handler { return carillon.Func(j.do) }

func (j jobs) do(ctx context.Context, t task) (struct{ Mark string }, error) {
	out := struct{ Mark string }{t.Mark}
	run, ok := carillon.RunFrom(ctx)
	if !ok || run.Job == "" {
		return out, errors.New("a job without a run")
	}
	j.line("begin", run, "", 0)
	said, wait, err := perform(ctx, run, t)
	j.line("end", run, said, wait)
	return out, err
}

// perform does what is asked, and names it.
func perform(ctx context.Context, run carillon.Run, t task) (said string, wait time.Duration, err error) {
	if t.Progress {
		carillon.Progress(ctx, fmt.Sprintf("attempt %d", run.Attempt))
	}
	if t.Ms > 0 {
		patience := ctx
		if t.Deaf {
			patience = context.Background()
		}
		if err := nap(patience, time.Duration(t.Ms)*time.Millisecond); err != nil {
			return "cut", 0, err
		}
	}
	asked := errors.New("the drill asked for it")
	after := time.Duration(t.After) * time.Millisecond
	snooze := time.Duration(t.Snooze) * time.Millisecond
	switch {
	case t.Until > 0 && time.Now().UnixMilli() < t.Until:
		return "snooze", snooze, carillon.Snooze(snooze)
	case run.Attempt <= t.Fails && t.After > 0:
		return "after", after, carillon.RetryAfter(after, asked)
	case run.Attempt <= t.Fails:
		return "fail", 0, asked
	case t.Final:
		return "final", 0, carillon.Fail(asked)
	case len(t.Children) > 0:
		return family(ctx, run, t)
	}
	return "ok", 0, nil
}

// family makes the children, waits for them, and when it comes again looks whether they have ended.
func family(ctx context.Context, run carillon.Run, t task) (said string, wait time.Duration, err error) {
	have, err := carillon.Children(ctx)
	if err != nil {
		return "fail", 0, err
	}
	live := 0
	for _, k := range have {
		if !k.State.Ended() {
			live++
		}
	}
	if len(have) >= len(t.Children) {
		if live > 0 {
			return "final", 0, carillon.Fail(fmt.Errorf("woken while %d children are live", live))
		}
		return "ok", 0, nil
	}
	for _, k := range t.Children {
		if _, err := carillon.Enqueue(ctx, nil, run.Ref, k, carillon.Child(), carillon.Idempotency(k.Mark)); err != nil {
			return "fail", 0, err
		}
	}
	return "await", 0, carillon.AwaitChildren()
}

func (j jobs) line(what string, run carillon.Run, said string, wait time.Duration) {
	line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%d\n", what, j.runner, run.ID, run.Ref, run.Job, run.Attempt,
		time.Now().UnixNano(), cmp.Or(said, "-"), wait.Milliseconds())
	if _, err := j.file.WriteString(line); err != nil {
		log.Fatalf("write the record of jobs: %v", err)
	}
}

// takesTask says whether a verb of a schema is one of jobs.
func takesTask(request string) bool { return request != "" && !strings.EqualFold(request, "Unit") }
