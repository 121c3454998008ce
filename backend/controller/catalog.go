package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/core/schema"
	"carillon/backend/engine/dispatch"
)

// catalog is what this controller knows of the live deployments: which one serves a ref, and what its schema says of a
// job. It is read anew each second, and at once after a hint; until then a new verb is unknown here.
type catalog struct {
	rooms interface{ Room(deployment string) int }

	reading sync.Mutex // one at a time, so that an older answer never replaces a newer one
	mu      sync.RWMutex
	modules map[string]*edition
	asked   time.Time // the last read began
	read    time.Time // the last one that is over began
}

const readOften = 100 * time.Millisecond // the catalog is not read more often for requests that name unknown verbs

// old says that the catalog may be read again for such a request.
func (c *catalog) old() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return time.Since(c.asked) > readOften
}

// readSince says that the catalog was read from an instant on, or could not be: what is deployed before it is known here
// then. A read that goes on is none.
func (c *catalog) readSince(t time.Time) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.read.After(t)
}

// edition is the live deployment of one module. It does not change.
type edition struct {
	deployment.Deployment
	schema schema.Module
	shapes *schema.Shapes
	verbs  map[string]schema.Verb
	broken error // the schema cannot be used
}

func newCatalog(d *dispatch.Dispatcher) *catalog {
	return &catalog{rooms: d, modules: map[string]*edition{}}
}

// live reads the live deployments; schemas of the known ones may be left out.
type live interface {
	ListLive(ctx context.Context, known []int64) ([]deployment.Deployment, error)
}

// refresh reads what is live, and says whether anything changed.
func (c *catalog) refresh(ctx context.Context, from live) (changed bool, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	began := time.Now()
	c.mu.Lock()
	old := c.modules
	c.asked = began
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.read = began
		c.mu.Unlock()
	}()
	known := make([]int64, 0, len(old))
	for _, e := range old {
		known = append(known, e.ID)
	}
	all, err := from.ListLive(ctx, known)
	if err != nil {
		return false, err
	}
	next := make(map[string]*edition, len(all))
	for _, d := range all {
		e := old[d.Module]
		switch {
		case e == nil || e.ID != d.ID:
			e = newEdition(d)
		case e.MinReplicas != d.MinReplicas:
			again := *e
			again.MinReplicas = d.MinReplicas
			e = &again
		}
		changed = changed || old[d.Module] != e
		next[d.Module] = e
	}
	changed = changed || len(next) != len(old)
	c.mu.Lock()
	c.modules = next
	c.mu.Unlock()
	return changed, nil
}

func newEdition(d deployment.Deployment) *edition {
	e := &edition{Deployment: d, verbs: map[string]schema.Verb{}}
	e.schema, _, e.broken = schema.Parse("", d.Schema)
	if e.broken == nil {
		e.shapes, e.broken = schema.Compile(e.schema)
	}
	for _, v := range e.schema.Verbs {
		e.verbs[v.Name] = v
	}
	e.Schema = ""
	return e
}

func (c *catalog) find(ref string) (*edition, schema.Verb, bool) {
	module, verb, _ := strings.Cut(ref, ".")
	c.mu.RLock()
	e := c.modules[module]
	c.mu.RUnlock()
	if e == nil {
		return nil, schema.Verb{}, false
	}
	v, ok := e.verbs[verb]
	return e, v, ok
}

// Deployment is which live deployment serves a ref; one that is scaled to 0 serves none.
func (c *catalog) Deployment(ref string) (id int64, key string, ok bool) {
	e, _, ok := c.find(ref)
	if !ok || e.MinReplicas == 0 {
		return 0, "", false
	}
	return e.ID, e.Key, true
}

// Room is how many more calls its runners would take.
func (c *catalog) Room(ref string) int {
	if _, key, ok := c.Deployment(ref); ok {
		return c.rooms.Room(key)
	}
	return 0
}

// prepare gives a job what its verb declares where it says nothing, and refuses one that no verb would take.
func (c *catalog) prepare(n job.New) (job.New, error) {
	e, v, ok := c.find(n.Ref)
	switch {
	case !ok && e == nil:
		module, _, _ := strings.Cut(n.Ref, ".")
		return n, fmt.Errorf("%w: no module %s is deployed", cron.ErrNotFound, cron.SafeText(module))
	case !ok:
		return n, fmt.Errorf("%w: module %s has no verb %s", cron.ErrNotFound, e.Module, cron.SafeText(strings.TrimPrefix(n.Ref, e.Module+".")))
	case e.broken != nil:
		return n, fmt.Errorf("the schema of deployment %s cannot be read: %w", e.Key, e.broken)
	}
	if len(n.Payload) <= job.MaxPayload { // a larger one is refused by its size
		if err := e.shapes.Check(v, n.Payload); err != nil {
			return n, err
		}
	}
	if n.Idempotency != "" { // what the verb declares may change before the request is repeated
		n.Asked = job.RequestHash(job.Complete(n))
	}
	return declared(n, v), nil
}

// declared completes a job from its verb's declaration.
func declared(n job.New, v schema.Verb) job.New {
	if n.Timeout == 0 {
		if n.Timeout = v.Timeout; v.Cron != nil {
			n.Timeout = v.Cron.SoftTimeout()
		}
	}
	if r := v.Retry; r != nil {
		if n.Retry.Attempts == 0 {
			n.Retry.Attempts = r.Attempts
		}
		if n.Retry.Backoff == 0 && n.Retry.Ceiling == 0 {
			n.Retry.Backoff, n.Retry.Ceiling = r.Backoff, r.Ceiling
		}
	}
	if u := v.Unique; u != nil && n.Unique == "" {
		sum := sha256.Sum256(canonical(n.Payload))
		n.Unique, n.Window = "verb:"+n.Ref+":"+hex.EncodeToString(sum[:16]), u.Window
	}
	return n
}

// canonical is JSON without blanks and with its names in order, so that equal requests are equal bytes.
func canonical(payload []byte) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return payload
	}
	text, err := json.Marshal(v)
	if err != nil {
		return payload
	}
	return text
}
