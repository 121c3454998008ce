package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/backend/store/storetest"
)

// Pages are bounded by what they hold, and all of it comes in the end.
func TestPagesOfLargeEvents(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	doc := `{"a":"` + strings.Repeat("x", 500_000) + `"}`
	var all []int64
	for range 12 {
		all = append(all, publish(t, db, created("a.b", doc), created("a.b", `{}`))...)
	}
	var got []int64
	pages := 0
	for after, more := int64(0), true; more; pages++ {
		events, further, err := db.FetchEvents(t.Context(), allShards, 0, after, 1000)
		if err != nil || len(events) == 0 {
			t.Fatal(err, len(events))
		}
		for _, e := range events {
			got = append(got, e.ID)
		}
		after, more = got[len(got)-1], further
	}
	if !slices.Equal(got, slices.Sorted(slices.Values(all))) || pages < 2 || pages > 4 {
		t.Errorf("%d events in %d pages", len(got), pages)
	}
}

// Events far behind others in a large outbox are found by the primary key, whatever the shards.
func TestFetchEventsPlan(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	db.Exec("INSERT INTO carillon.events (id, shard, tenant, type, verb, doc) SELECT n, n % 1021, 't', 'a.b', 'CREATED', '{}' FROM generate_series(1, 200000) n")
	shards := allShards[:340]
	began := time.Now()
	for _, after := range []int64{0, 100_000, 199_000} {
		events, _, err := db.FetchEvents(t.Context(), shards, 0, after, 200)
		if err != nil || len(events) == 0 || events[0].ID <= after || events[0].ID > after+1021 {
			t.Fatalf("after %d: %d events, %v", after, len(events), err)
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("three pages of a large outbox took %s", took)
	}
}
