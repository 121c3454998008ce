package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"carillon/backend/core/trigger"
)

// BenchmarkMatch is one lane's work on a page of events, but for the statements: the epoch, the real index, and the cut into parts:
//
//	go test ./backend/engine/trigger -run NONE -bench Match
//
// Of // n triggers, a tenth wait for any change of one of a thousand types, and the others for one document, one directory, a
// field's value or a field's change; each event is of one of these types and matches a few of them.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFake()
			f.triggers = make([]trigger.EventTrigger, n)
			for i := range n {
				doctype := fmt.Sprintf("io.cozy.type%d", i%1000)
				arguments := [...]string{
					doctype, doctype + ":UPDATED:!=:state", fmt.Sprintf("%s:CREATED,UPDATED:id%d", doctype, i), fmt.Sprintf("%s:CREATED:value%d:kind", doctype, i),
					fmt.Sprintf("io.cozy.files:CREATED:/dir%d", i),
				}[min(i/max(n/10, 1), 4)]
				f.triggers[i] = trigger.EventTrigger{ID: int64(i + 1), Tenant: "t", Arguments: arguments, Epoch: int64(i + 1)}
			}
			f.epoch = int64(n)
			r := newRules(f, slog.Default())
			if _, err := r.refresh(context.Background()); err != nil || r.count() != n {
				b.Fatal(r.count(), err)
			}
			events := make([]trigger.Published, 200)
			for i := range events {
				e := &events[i]
				e.ID, e.Tenant, e.Verb = int64(i+1), "t", trigger.Created
				e.Type, e.Change.ID = fmt.Sprintf("io.cozy.type%d", i*5%min(n, 1000)), fmt.Sprint("id", i)
				if i%4 == 0 {
					e.Type, e.Path = trigger.Files, fmt.Sprintf("/dir%d/sub/file", i*400)
				}
				e.Doc = json.RawMessage(fmt.Sprintf(`{"_id": "id%d", "kind": "value%d", "state": "done", "name": "a document of some size, with %d fields", "size": 1234567}`, i, i, 5))
			}
			pairs := 0
			b.ResetTimer()
			for b.Loop() {
				index, err := r.refresh(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				p := part{maxPairs: 1000, maxBytes: 16 << 20}
				for _, e := range events {
					found, _ := index.Match(e.Change, e.Upto, p.room(e))
					if !p.fits(e, len(found)) {
						p.take()
					}
					p.add(e, trigger.Matched{Event: e.ID, Triggers: found})
					pairs += len(found)
				}
			}
			b.ReportMetric(float64(b.N*len(events))/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(pairs)/float64(b.N*len(events)), "matches/event")
		})
	}
}

// BenchmarkLoad reads all triggers, as a controller does at its start.
func BenchmarkLoad(b *testing.B) {
	f := newFake()
	f.epoch = 1
	for i := range 100_000 {
		f.triggers = append(f.triggers, trigger.EventTrigger{ID: int64(i + 1), Tenant: "t", Arguments: fmt.Sprintf("io.cozy.files:CREATED:/dir%d io.cozy.type%d", i, i%1000), Epoch: 1})
	}
	for b.Loop() {
		r := newRules(f, slog.Default())
		if _, err := r.refresh(context.Background()); err != nil || r.count() != 100_000 {
			b.Fatal(r.count(), err)
		}
	}
}
