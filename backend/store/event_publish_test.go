package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"carillon/backend/core/cron"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

func TestEventsAreRefused(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	big := `{"a":"` + strings.Repeat("x", trigger.MaxDocument) + `"}`
	for _, tc := range []struct {
		change  trigger.Change
		pointer string
	}{
		{trigger.Change{Type: "A b", Verb: trigger.Created}, "/type"},
		{trigger.Change{Type: "a.b", Verb: "created"}, "/verb"},
		{created("a.b", `[1]`), "/doc"},
		{created("a.b", `{"a": "\u0000"}`), "/doc"},
		{created("a.b", `{"a": 1e131071}`), "/doc"},
		{created("a.b", strings.Repeat(`{"a":`, 600)+"1"+strings.Repeat("}", 600)), "/doc"},
		{created("a.b", big), "/doc"},
		{trigger.Change{Type: "a.b", Verb: trigger.Updated, Old: json.RawMessage(`{"a": "\ud800"}`)}, "/old"},
	} {
		_, err := db.PublishEvents(t.Context(), "t", "", []trigger.Change{created("a.b", `{}`), tc.change})
		if fault := (*trigger.Fault)(nil); !errors.As(err, &fault) || fault.Pointer != "/events/1"+tc.pointer {
			t.Errorf("%.60s: %#v", tc.change.Doc, err)
		}
	}
	if n := countEvents(db); n != 0 {
		t.Errorf("%d events of refused calls are stored", n)
	}
}

// A call with more than one insert is one transaction.
func TestManyEventsAreAllOrNone(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	var many []trigger.Change
	for range 2500 {
		many = append(many, created("a.b", `{"a": 1}`))
	}
	if ids := publish(t, db, many...); len(ids) != 2500 || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 2500 {
		t.Errorf("%d ids", len(ids))
	}
	db.Exec("DELETE FROM carillon.events")
	db.Exec("ALTER TABLE carillon.events ADD CHECK (doc_id <> 'bad')")
	many[2400].ID = "bad"
	if _, err := db.PublishEvents(t.Context(), "t", "", many); err == nil || countEvents(db) != 0 {
		t.Errorf("%v, %d stored", err, countEvents(db))
	}
}

// The same events under the same key are published once, by however many clients at once, and through whichever door.
func TestPublicationsAreMadeOnce(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	changes := []trigger.Change{created("a.b", `{"a": 1}`), {Type: "a.b", Verb: trigger.Notified}, created("a.b", `{"a": 2}`)}
	var wg sync.WaitGroup
	var first, repeated atomic.Int32
	for range 20 {
		wg.Go(func() {
			switch ids, err := db.PublishEvents(context.Background(), "t", "k", changes); {
			case err != nil:
				t.Error(err)
			case len(ids) == 2:
				first.Add(1)
			case len(ids) == 0:
				repeated.Add(1)
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 || repeated.Load() != 19 || countEvents(db) != 2 {
		t.Errorf("%d first, %d repeated, %d events", first.Load(), repeated.Load(), countEvents(db))
	}
	fetched := fetchEvents(t, db)
	makeOf(t, db, []int64{fetched[0].ID, fetched[1].ID})
	if ids, err := db.PublishEvents(t.Context(), "t", "k", changes); err != nil || len(ids) != 0 || countEvents(db) != 0 {
		t.Errorf("after they were dealt with: %v, %v", ids, err)
	}
	for name, other := range map[string][]trigger.Change{"fewer": changes[:1], "others": {changes[0], changes[1], created("a.b", `{"a": 3}`)}, "in another order": {changes[2], changes[1], changes[0]}} {
		if _, err := db.PublishEvents(t.Context(), "t", "k", other); !errors.Is(err, cron.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ids, err := db.PublishEvents(t.Context(), "other", "k", changes); err != nil || len(ids) != 2 {
		t.Errorf("another tenant: %v, %v", ids, err)
	}
	if _, err := db.PublishEvents(t.Context(), "t", "k\x00", changes); !errors.Is(err, cron.ErrInvalid) {
		t.Errorf("a key that is no text: %v", err)
	}
	db.Exec("UPDATE carillon.job_keys SET expires_at = now() - interval '1 second'")
	if ids, err := db.PublishEvents(t.Context(), "t", "k", changes[:1]); err != nil || len(ids) != 1 {
		t.Errorf("a day later: %v, %v", ids, err)
	}
}
