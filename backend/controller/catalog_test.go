package controller

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/core/schema"
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

// The same request is the same request, though its verb came to declare something else meanwhile.
func TestARequestIsKnownAfterARedeploy(t *testing.T) {
	t.Parallel()
	hash := func(attempts int) []byte {
		t.Helper()
		c := newCatalog(nil)
		m := schema.Module{Language: schema.Go, Name: "m", Verbs: []schema.Verb{{Name: "v", Retry: &schema.Retry{Attempts: attempts}, Unique: &schema.Unique{}}}}
		c.modules = map[string]*edition{"m": newEdition(deployment.Deployment{Module: "m", Schema: m.Text()})}
		n, err := c.prepare(job.New{Ref: "m.v", Idempotency: "k"})
		if err != nil || n.Retry.Attempts != attempts || n.Unique == "" {
			t.Fatalf("%+v, %v", n, err)
		}
		return job.RequestHash(job.Complete(n))
	}
	if before, after := hash(2), hash(4); !bytes.Equal(before, after) || !bytes.Equal(before, job.RequestHash(job.Complete(job.New{Ref: "m.v"}))) {
		t.Errorf("%x and then %x", before, after)
	}
}
