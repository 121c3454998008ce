package store_test

import (
	"context"
	"testing"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/store/storetest"
)

// TestAnEnqueueThatFailsAcknowledgesNothing: an answer beside an error would count.
func TestAnEnqueueThatFailsAcknowledgesNothing(t *testing.T) {
	db := storetest.Open(t, "")
	queues, err := db.PutQueues(t.Context(), []job.Queue{{Tenant: "t", Ref: "m.work", Lane: 2}})
	if err != nil {
		t.Fatal(err)
	}
	batch := []job.Enqueue{{New: job.Complete(job.New{Tenant: "t", Ref: "m.work", Priority: 500}), Queue: queues[0].ID}}
	for name, spoil := range map[string]func() (context.Context, func()){
		"cancelled": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, func() {}
		},
		"locked out": func() (context.Context, func()) {
			tx, err := db.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "LOCK TABLE carillon.jobs"); err != nil {
				t.Fatal(err)
			}
			return t.Context(), func() { tx.Rollback(context.Background()) }
		},
	} {
		ctx, mend := spoil()
		if got, err := db.EnqueueJobs(ctx, "c1", time.Minute, batch); err == nil || len(got) != 0 {
			t.Errorf("%s: answers %+v, error %v", name, got, err)
		}
		mend()
	}
}
