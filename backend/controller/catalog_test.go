package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/deployment"
)

// slowly answers after a while.
type slowly time.Duration

func (s slowly) ListLive(ctx context.Context, _ []int64) ([]deployment.Deployment, error) {
	select {
	case <-time.After(time.Duration(s)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return []deployment.Deployment{{ID: 1, Key: "bell-1", Module: "bell"}}, nil
}

// Of several requests that name a verb of a moment ago one reads the catalog; the others must wait for what it finds.
func TestAReadOfTheCatalogCountsOnceItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalog(nil)
		asked := time.Now()
		time.Sleep(time.Millisecond)
		done := make(chan error)
		go func() {
			_, err := c.refresh(t.Context(), slowly(time.Second))
			done <- err
		}()
		synctest.Wait()
		if c.readSince(asked) || c.old() {
			t.Errorf("while it is read: read since %v, to be asked for again %v; want neither", c.readSince(asked), c.old())
		}
		if err := <-done; err != nil || !c.readSince(asked) {
			t.Errorf("after the answer: %v, read since %v", err, c.readSince(asked))
		}
		if c.readSince(asked.Add(time.Second)) {
			t.Error("what was asked for before a request says nothing about it")
		}
	})
}
