package rpc

import (
	"context"
	"testing"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

// TestANewTriggerHasNoJobsToLookFor: what its jobs are is a search of all days of the history, several times as dear as
// the making itself.
func TestANewTriggerHasNoJobsToLookFor(t *testing.T) {
	t.Parallel()
	db, all := open(t, "UTC")
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "LOCK TABLE carillon.job_history"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c := all["connect proto"].triggers
	req := &carillonv1.CreateTriggerRequest{Tenant: "acme", Kind: "@every", Arguments: "1h", Worker: "v1"}
	made, err := c.CreateTrigger(ctx, req)
	if err != nil || made.GetTrigger().GetStatus() != "done" || made.GetTrigger().GetLastExecution() != nil {
		t.Fatalf("%v, %v", made, err)
	}
	tx.Rollback(t.Context())
	req.IdempotencyKey = "again"
	first, err := c.CreateTrigger(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.LaunchTrigger(t.Context(), &carillonv1.LaunchTriggerRequest{Id: first.GetTrigger().GetId()}); err != nil {
		t.Fatal(err)
	}
	again, err := c.CreateTrigger(t.Context(), req)
	if err != nil || again.GetTrigger().GetId() != first.GetTrigger().GetId() || again.GetTrigger().GetStatus() != "queued" {
		t.Errorf("%v, %v: want the state of the one that was there", again, err)
	}
}
