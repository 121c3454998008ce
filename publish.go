package carillon

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"

	carillonv1 "carillon/proto/carillon/v1"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// What became of a document.
const (
	Created = "CREATED"
	Updated = "UPDATED"
	Deleted = "DELETED"
)

// Event is a change of a document, from which the triggers that wait for it make jobs.
type Event struct {
	Type    string // of the document: parts between dots, such as io.cozy.files
	Verb    string // Created, Updated or Deleted
	ID      string // of the document
	Doc     any    // the document now, as JSON can hold it; nil: none
	Old     any    // before
	Path    string // of a file, now
	OldPath string // its path before
	Tenant  string // whose it is; empty: "default", or that of the client's token

	// The directories above both paths, so that triggers can name them by id.
	Dirs []Directory
}

// Directory is a directory that a changed file lies in, or lay in.
type Directory struct {
	ID, Path string
}

// Publish tells the cluster of events, in order, up to 1,000 in a request. What is returned without an error survives
// the crash of any process, and each trigger that was there before makes its job. An event that the cluster does not
// take is a *RefusedError, and none of its request is taken. A request whose answer is lost is repeated, under a key of
// idempotency that Publish makes up; after another error it may have been taken or not. Whoever calls Publish again then,
// and cannot bear one event twice, calls PublishOnce, or publishes by SQL, in the transaction that changes the document.
func (c *Client) Publish(ctx context.Context, events ...Event) error {
	return c.PublishOnce(ctx, randomHex(16), events...)
}

// PublishOnce is Publish under an idempotency key of the caller's, at most 240 bytes: the same events with the same key
// are published once in 24 h, by however many calls. Others are a *RefusedError, already_exists. An empty key is none:
// then a lost answer is an error.
func (c *Client) PublishOnce(ctx context.Context, key string, events ...Event) error {
	c, err := pick(ctx, c)
	if err != nil {
		return err
	}
	if len(key) > 240 || !utf8.ValidString(key) {
		return fmt.Errorf("publish events: %w", &RefusedError{
			Code: connect.CodeInvalidArgument.String(), Field: "idempotency_key", Message: "is not valid UTF-8, or longer than 240 bytes",
		})
	}
	messages := make([]*carillonv1.Event, len(events))
	for i, e := range events {
		if messages[i], err = e.message(); err != nil {
			return fmt.Errorf("publish event %d of %d: %w", i+1, len(events), err)
		}
	}
	for from := 0; from < len(messages); {
		to, bytes := from, 0
		for to < len(messages) && to-from < bulkJobs && events[to].Tenant == events[from].Tenant {
			n := proto.Size(messages[to])
			if to > from && bytes+n > bulkBytes {
				break
			}
			to, bytes = to+1, bytes+n
		}
		what := fmt.Sprintf("publish events %d to %d of %d", from+1, to, len(events))
		req := &carillonv1.PublishEventsRequest{Tenant: events[from].Tenant, Events: messages[from:to], IdempotencyKey: key}
		if key != "" && from > 0 {
			req.IdempotencyKey += fmt.Sprint("/", from)
		}
		if err := c.ask(ctx, what, key != "", func(ctx context.Context, s services) error {
			_, err := s.events.PublishEvents(ctx, req)
			return err
		}); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// maxDocuments bounds both documents of an event together, in bytes of JSON.
const maxDocuments = 512 << 10

func (e Event) message() (*carillonv1.Event, error) {
	refuse := func(field, text string) (*carillonv1.Event, error) {
		return nil, &RefusedError{Code: connect.CodeInvalidArgument.String(), Field: field, Message: text}
	}
	for _, t := range []struct{ field, text string }{ // one would spoil the whole request
		{"type", e.Type}, {"verb", e.Verb}, {"doc_id", e.ID}, {"path", e.Path}, {"old_path", e.OldPath}, {"tenant", e.Tenant},
	} {
		if !utf8.ValidString(t.text) {
			return refuse(t.field, "is not valid UTF-8")
		}
	}
	out := &carillonv1.Event{Type: e.Type, Verb: e.Verb, DocId: e.ID, Path: e.Path, OldPath: e.OldPath}
	for _, d := range e.Dirs {
		if !utf8.ValidString(d.ID) || !utf8.ValidString(d.Path) {
			return refuse("dirs", "is not valid UTF-8")
		}
		out.Dirs = append(out.Dirs, &carillonv1.Directory{Id: d.ID, Path: d.Path})
	}
	for _, d := range []struct {
		field string
		from  any
		into  *[]byte
	}{{"doc", e.Doc, &out.Doc}, {"old", e.Old, &out.Old}} {
		if absent(d.from) {
			continue
		}
		b, err := marshal(d.from)
		if err != nil {
			return refuse(d.field, err.Error())
		}
		*d.into = b
	}
	if n := len(out.GetDoc()) + len(out.GetOld()); n > maxDocuments {
		return refuse("doc", fmt.Sprintf("has %d bytes together with old, at most %d are accepted", n, maxDocuments))
	}
	return out, nil
}

// absent says that there is no document: nil, also one of a type, and empty JSON.
func absent(v any) bool {
	if raw, ok := v.(json.RawMessage); ok {
		return len(raw) == 0
	}
	return v == nil || nullable(reflect.TypeOf(v)) && reflect.ValueOf(v).IsNil()
}
