package carillon_test

import (
	"context"
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
	_ = carillon.Verbs{"report": report}
	report(context.Background())
	// Output: report of 1970-01-01
}
