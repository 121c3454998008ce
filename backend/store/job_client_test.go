package store_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

func TestAClientRunsItsJob(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		tr := create(t, db, newTrigger(trigger.Client, "", func(tr *trigger.Trigger) { tr.Worker, tr.Ref = trigger.ClientWorker, job.ClientRef }))
		n := job.New{Tenant: "t", Ref: "mail.other", Priority: 1000, Payload: []byte(`{"a": 1}`), TriggerID: tr.ID, Envelope: []byte(`{"worker": "client", "payload": 1}`), Idempotency: "k"}
		j, _, err := db.CreateClientJob(ctx, n)
		if err != nil || j.State != job.Blocked || j.Ref != job.ClientRef || j.Started.IsZero() || j.Run.IsZero() || j.Attempt != 1 || j.TriggerID != tr.ID || string(j.Payload) != `{"a": 1}` {
			t.Fatalf("job %+v, %v", j, err)
		}
		if again, existing, err := db.CreateClientJob(ctx, n); err != nil || !existing || again.ID != j.ID {
			t.Errorf("the same request again: %+v, %v", again, err)
		}
		other := n
		other.Payload = []byte("2")
		if _, _, err := db.CreateClientJob(ctx, other); !errors.Is(err, cron.ErrExists) {
			t.Errorf("another request: %v", err)
		}
		// It is nobody's to claim, to sweep or to hurry.
		db.Controller("sweeper", time.Minute)
		queues, err := db.ListQueues(ctx)
		if err != nil || len(queues) != 2 { // the trigger's lane, and the job's
			t.Fatalf("queues %+v, %v", queues, err)
		}
		for _, q := range queues {
			if w := window(t, db, job.Cut{Queue: q.ID}, 10); len(w) != 0 {
				t.Errorf("window %+v", w)
			}
		}
		if late, _, err := db.FetchOverdue(ctx, 0, 10); err != nil || len(late) != 0 {
			t.Errorf("overdue %+v, %v", late, err)
		}
		if won, _, err := db.ClaimJobs(ctx, "c1", time.Minute, claimOf(j.ID), ""); err != nil || len(won) != 0 {
			t.Errorf("claimed %+v, %v", won, err)
		}
		if lost, err := db.FindLostJobs(ctx, "sweeper", lease, silence, 10); err != nil || len(lost) != 0 {
			t.Errorf("lost %+v, %v", lost, err)
		}
		if _, err := db.RetryJob(ctx, j.ID); !errors.Is(err, cron.ErrPrecond) {
			t.Errorf("hurried: %v", err)
		}

		var ended, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, err := db.EndClientJob(ctx, j.ID, []job.State{job.Succeeded, job.Failed}[i%2], "it said no")
				switch {
				case err == nil:
					ended.Add(1)
				case errors.Is(err, cron.ErrPrecond):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if ended.Load() != 1 || refused.Load() != 9 {
			t.Errorf("%d ended it, %d were refused", ended.Load(), refused.Load())
		}
		if got := getJob(t, db, j.ID); !got.State.Ended() || got.Ended.IsZero() || got.TriggerID != tr.ID || envelope(t, got.Envelope).Payload != nil {
			t.Errorf("ended %+v", got)
		}
		if again, _, err := db.CreateClientJob(ctx, n); err != nil || again.ID != j.ID || !again.State.Ended() {
			t.Errorf("the same request after the end: %+v, %v", again, err)
		}
	})
}

func TestEndsOfClientsAreRefused(t *testing.T) {
	db := storetest.Open(t, "")
	ctx := t.Context()
	server := ready(t, db, putQueue(t, db, "t", "m.v", 2), 1)[0]
	j, _, err := db.CreateClientJob(ctx, job.New{Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		id    job.ID
		state job.State
		want  error
	}{
		"a server's job":  {server, job.Succeeded, cron.ErrInvalid},
		"another's salt":  {job.ID{N: j.N, Salt: j.Salt + 1}, job.Succeeded, cron.ErrNotFound},
		"no end":          {j.ID, job.Running, cron.ErrInvalid},
		"not for clients": {j.ID, job.Cancelled, cron.ErrInvalid},
	} {
		if _, err := db.EndClientJob(ctx, tc.id, tc.state, ""); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := getJob(t, db, j.ID); got.State != job.Blocked {
		t.Errorf("refused, but %+v", got)
	}
	if failed, err := db.EndClientJob(ctx, j.ID, job.Failed, "it said no\x00"); err != nil || failed.State != job.Failed || len(failed.Errors) != 1 || failed.Errors[0].Text != "it said no�" && failed.Errors[0].Text != "it said no" {
		t.Errorf("failed %+v, %v", failed.Errors, err)
	}
	if _, err := db.RetryJob(ctx, j.ID); !errors.Is(err, cron.ErrPrecond) {
		t.Errorf("re-driven: %v", err)
	}
	cancelled, _, err := db.CreateClientJob(ctx, job.New{Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := db.CancelJob(ctx, cancelled.ID, ""); err != nil || c.State != job.Cancelled {
		t.Errorf("cancelled %+v, %v", c, err)
	}
	if _, err := db.EndClientJob(ctx, cancelled.ID, job.Succeeded, ""); !errors.Is(err, cron.ErrPrecond) {
		t.Errorf("ended after its cancel: %v", err)
	}
}

// A client that is not heard of again has failed when its job's time is over, not before, and only once; its trigger says so.
func TestAClientsJobHasATimeout(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		ctx := t.Context()
		tr := create(t, db, newTrigger(trigger.Client, "", func(tr *trigger.Trigger) { tr.Worker, tr.Ref = trigger.ClientWorker, job.ClientRef }))
		parent := ready(t, db, putQueue(t, db, "t", "m.v", 2), 1)[0]
		db.Exec("UPDATE carillon.jobs SET state = 'blocked', deadline_at = now() - interval '1 hour' WHERE id = $1", parent.N) // waits for its children
		var late, early job.Job
		for _, j := range []*job.Job{&late, &early} {
			var err error
			if *j, _, err = db.CreateClientJob(ctx, job.New{Tenant: "t", TriggerID: tr.ID, Timeout: time.Hour, Envelope: []byte(`{"worker": "client", "payload": 1}`)}); err != nil {
				t.Fatal(err)
			}
		}
		sweep := func(want int) {
			t.Helper()
			if n, err := db.EndLateClientJobs(ctx, 10); err != nil || n != want {
				t.Errorf("%d ended, %v, want %d", n, err, want)
			}
		}
		sweep(0)
		db.Exec("UPDATE carillon.jobs SET deadline_at = deadline_at - interval '61 minutes' WHERE id = $1", late.ID.N)
		sweep(1)
		sweep(0)
		got := getJob(t, db, late.ID)
		if got.State != job.Failed || len(got.Errors) != 1 || got.Errors[0].Text != "context deadline exceeded" || got.Errors[0].Verdict != string(cron.TimedOut) || got.Attempt != 1 || envelope(t, got.Envelope).Payload != nil {
			t.Errorf("late: %+v", got)
		}
		if got := getJob(t, db, early.ID); got.State != job.Blocked {
			t.Errorf("in time: %+v", got)
		}
		if got := getJob(t, db, parent); got.State != job.Blocked {
			t.Errorf("nobody's client: %+v", got)
		}
		if _, err := db.EndClientJob(ctx, late.ID, job.Succeeded, ""); !errors.Is(err, cron.ErrPrecond) {
			t.Errorf("ended after its timeout: %v", err)
		}
		if states, err := db.TriggerStates(ctx, []int64{tr.ID}); err != nil || states[tr.ID].LastError != "context deadline exceeded" {
			t.Errorf("the trigger's state: %+v, %v", states[tr.ID], err)
		}
	})
}
