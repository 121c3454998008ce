package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/internal/sqlc"
)

const (
	eventBatch    = 1000    // in one insert
	eventSize     = 4 << 20 // bytes of documents in one insert, and in one page that is read
	eventDocument = 1 << 20 // bytes of the text that Postgres makes of a document
)

// PublishEvents stores changes of a tenant's documents, all or none, and returns the numbers of the events (their shards
// are job shards: number modulo ring.Shards). Those that match no rule whatever, NOTIFIED, are accepted and have none. The
// error of a change that is refused is a *trigger.Fault.
//
// With an idempotency key (empty: none) the same changes are stored once in 24 h, and a repeat returns none;
// cron.ErrExists: the key belongs to others.
func (s *Store) PublishEvents(ctx context.Context, tenant, idempotency string, changes []trigger.Change) ([]int64, error) {
	if err := trigger.CheckIdempotency(idempotency); err != nil {
		return nil, err
	}
	var parts []sqlc.InsertEventsParams
	size := 0
	for i, c := range changes {
		row, n, err := toEventRow(c)
		if err != nil {
			return nil, at1(i, err)
		}
		if c.Verb == trigger.Notified {
			continue
		}
		if len(parts) == 0 || len(parts[len(parts)-1].Types) == eventBatch || size+n > eventSize {
			parts, size = append(parts, sqlc.InsertEventsParams{Tenant: tenant}), 0
		}
		size += n
		row.addTo(&parts[len(parts)-1], c)
	}
	var ids []int64
	insert := func(q *sqlc.Queries) error {
		ids = nil
		for _, p := range parts {
			made, err := q.InsertEvents(ctx, p)
			if err != nil {
				return err
			}
			ids = append(ids, made...)
		}
		return nil
	}
	var err error
	switch {
	case len(parts) == 0:
		return nil, nil
	case idempotency != "":
		k := key{kind: "event", tenant: tenant, key: idempotency, hash: trigger.HashChanges(tenant, changes)}
		err = s.keyed(ctx, s.jobs.enqueue, k, func(q *sqlc.Queries, name func(job.ID) error) error {
			if err := insert(q); err != nil {
				return err
			}
			return name(job.ID{N: ids[0]})
		}, func(job.ID) { ids = nil })
	case len(parts) == 1:
		err = insert(s.q(s.jobs.enqueue))
	default:
		err = inTx(ctx, s.jobs.enqueue, insert)
	}
	if err != nil {
		return nil, wrap("publish events", err)
	}
	return ids, nil
}

// eventRow is the texts of a change's documents; empty: there is none.
type eventRow struct {
	doc, old, dirs string
	bytes          int
}

func toEventRow(c trigger.Change) (row eventRow, size int, err error) {
	if err := c.Check(); err != nil {
		return row, 0, err
	}
	for name, doc := range map[string]json.RawMessage{"doc": c.Doc, "old": c.Old} {
		if len(doc) == 0 {
			continue
		}
		if err := trigger.FitsDocument(doc, eventDocument); err != nil {
			return row, 0, &trigger.Fault{Pointer: "/" + name, Title: trigger.InvalidAttribute, Detail: name + " " + err.Error()}
		}
	}
	row = eventRow{doc: document(c.Doc), old: document(c.Old)}
	row.bytes = len(row.doc) + len(row.old)
	if len(c.Dirs) > 0 {
		dirs, err := json.Marshal(c.Dirs)
		if err != nil {
			return row, 0, fmt.Errorf("write directories: %w", err)
		}
		row.dirs = string(dirs)
	}
	return row, row.bytes + len(row.dirs), nil
}

// document is the text of a document; null is none.
func document(raw json.RawMessage) string {
	if raw = bytes.TrimSpace(raw); string(raw) == "null" {
		return ""
	}
	return string(raw)
}

func (r eventRow) addTo(p *sqlc.InsertEventsParams, c trigger.Change) {
	p.Types, p.Verbs, p.DocIds = append(p.Types, c.Type), append(p.Verbs, string(c.Verb)), append(p.DocIds, c.ID)
	p.Docs, p.Olds, p.Dirs = append(p.Docs, r.doc), append(p.Olds, r.old), append(p.Dirs, r.dirs)
	p.Paths, p.OldPaths, p.Bytes = append(p.Paths, c.Path), append(p.OldPaths, c.OldPath), append(p.Bytes, int32(r.bytes))
}

// at1 names the change that is refused, where the pointer leads into it.
func at1(i int, err error) error {
	fault := (*trigger.Fault)(nil)
	if errors.As(err, &fault) {
		return &trigger.Fault{Pointer: fmt.Sprintf("/events/%d%s", i, fault.Pointer), Title: fault.Title, Detail: fault.Detail}
	}
	return fmt.Errorf("event %d: %w", i, err)
}
