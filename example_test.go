package carillon_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon"
)

// A verb that keeps a report for each slot reads the slot from its context; called by hand there is none.
func ExampleRunFrom() {
	report := func(ctx context.Context) error {
		slot := time.Unix(0, 0).UTC()
		if run, ok := carillon.RunFrom(ctx); ok {
			slot = run.Slot
		}
		fmt.Println("report of", slot.Format(time.DateOnly))
		return nil
	}
	_ = carillon.Verbs{"report": carillon.Plain(report)}
	report(context.Background())
	// Output: report of 1970-01-01
}

type Mail struct {
	To, Subject string
}

type Receipt struct {
	ID string
}

var (
	errBusy      = errors.New("the mail server is busy")
	errNoMailbox = errors.New("no such mailbox")
)

func deliver(_ context.Context, m Mail, key string) (Receipt, error) {
	if m.To == "" {
		return Receipt{}, errNoMailbox
	}
	return Receipt{ID: key}, nil
}

// A verb with a request and a response is an ordinary function. What went wrong decides what becomes of its job: any
// error is a failure that is tried again, and some say more. The idempotency key is the same for every attempt.
func ExampleFunc() {
	send := func(ctx context.Context, m Mail) (Receipt, error) {
		run, _ := carillon.RunFrom(ctx)
		r, err := deliver(ctx, m, run.IdempotencyKey)
		switch {
		case errors.Is(err, errNoMailbox):
			return r, carillon.Fail(err) // for good: no attempt mends it
		case errors.Is(err, errBusy):
			return r, carillon.RetryAfter(time.Minute, err)
		}
		return r, err
	}
	handler := carillon.Func(send) // what a runner serves: JSON in, JSON out
	ctx := carillon.WithRun(context.Background(), carillon.Run{Job: "j1", IdempotencyKey: "j1"})

	out, err := handler(ctx, []byte(`{"To": "ada@example.com", "Subject": "noon"}`))
	fmt.Println(string(out), err)
	_, err = handler(ctx, []byte(`{"To": 7}`))
	fmt.Println(err)
	_, err = handler(ctx, []byte(`{"Subject": "noon"}`))
	var said *carillon.OutcomeError
	fmt.Println(err, errors.As(err, &said) && said.Ask == carillon.AskFail)
	// Output:
	// {"ID":"j1"} <nil>
	// payload.To: cannot take number as string
	// no such mailbox true
}

// An application gives work to the cluster and waits for what becomes of it.
func ExampleEnqueue() {
	order := func(ctx context.Context, c *carillon.Client, m Mail) (Receipt, error) {
		job, err := carillon.Enqueue(ctx, c, "mailroom.send", m, carillon.Unique("to:"+m.To), carillon.Delay(time.Second))
		var refused *carillon.RefusedError
		if errors.As(err, &refused) && refused.Field != "" {
			return Receipt{}, fmt.Errorf("the mail's %s is wrong: %s", refused.Field, refused.Message)
		} else if err != nil {
			return Receipt{}, err
		}
		return carillon.Wait[Receipt](ctx, c, job.ID)
	}
	c, err := carillon.NewClient("http://127.0.0.1:7800,http://127.0.0.1:7801", carillon.WithToken("secret"))
	fmt.Println(c != nil, err)
	_ = order
	// Output: true <nil>
}

// A verb shares its work out to children and comes again when they have ended: its first run enqueues them, a later one
// looks at what became of them. The keys make one child of each part, also if the first run has to be repeated.
func ExampleAwaitChildren() {
	verb := func(ctx context.Context, recipients []string) error {
		run, _ := carillon.RunFrom(ctx)
		children, err := carillon.Children(ctx)
		if err != nil {
			return err
		}
		if len(children) == len(recipients) {
			for _, child := range children {
				if child.State == carillon.JobFailed {
					return fmt.Errorf("%s failed", child.ID)
				}
			}
			return nil
		}
		for i, to := range recipients {
			key := fmt.Sprintf("%s/%d", run.IdempotencyKey, i)
			if _, err := carillon.Enqueue(ctx, nil, "mailroom.send", Mail{To: to}, carillon.Child(), carillon.Idempotency(key)); err != nil {
				return err
			}
			carillon.Progress(ctx, fmt.Sprintf("%d of %d", i+1, len(recipients)))
		}
		return carillon.AwaitChildren()
	}
	_ = carillon.Verbs{"sendAll": carillon.Takes(verb)}
}

// Watch follows a job to its end.
func ExampleClient_Watch() {
	follow := func(ctx context.Context, c *carillon.Client, id carillon.JobID) error {
		for job, err := range c.Watch(ctx, id) {
			if err != nil {
				return err
			}
			fmt.Println(job.State, job.Progress)
		}
		return nil
	}
	_ = follow
}
