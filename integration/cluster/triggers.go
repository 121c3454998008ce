package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon"
	"carillon/integration/checker"
)

// Client is the SDK's client of all controllers that live now, with the admin's token.
func (c *Cluster) Client(t testing.TB) *carillon.Client {
	t.Helper()
	client, err := carillon.NewClient(c.URLs(), carillon.WithToken(c.admin))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Strained says whether the machine stood still or was crowded at some time between two instants, or shortly before.
func (c *Cluster) Strained(from, to time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		if f.Kind == checker.Load && f.From.Before(to) && f.To.Add(f.Recovery).After(from) {
			return true
		}
	}
	return false
}

// Insist sends a request to controllers that live, one after the other, until one answers with this status: while they
// die, answers get lost and connections are refused. Another answer below 500 is an error. It returns the document's id,
// if there is a document, and how often it asked.
func (c *Cluster) Insist(ctx context.Context, status int, method, path, token string, attributes any, header ...string) (id string, tries int, err error) {
	var text []byte
	if attributes != nil {
		if text, err = json.Marshal(attributes); err != nil {
			return "", 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	for {
		tries++
		var final bool
		if id, final, err = c.askOnce(ctx, status, method, path, token, text, header); err == nil || final {
			return id, tries, err
		}
		select {
		case <-ctx.Done():
			return "", tries, fmt.Errorf("%s %s: %w", method, path, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Cluster) askOnce(ctx context.Context, status int, method, path, token string, text []byte, header []string) (id string, final bool, err error) {
	live := c.Live()
	if len(live) == 0 {
		return "", false, fmt.Errorf("no controller lives")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, live[rand.IntN(len(live))].URL+path, bytes.NewReader(text))
	if err != nil {
		return "", true, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := asking.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", false, err
	}
	if resp.StatusCode != status {
		return "", resp.StatusCode < 500, fmt.Errorf("answered %d, want %d: %.300s", resp.StatusCode, status, body)
	}
	var doc struct {
		Data struct{ ID string }
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &doc); err != nil {
			return "", true, err
		}
	}
	return doc.Data.ID, true, nil
}

var asking = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// TriggerJob is a job of a trigger, live or ended.
type TriggerJob struct {
	Trigger string // key
	ID      int64
	State   string // running, succeeded ..
	Slot    time.Time
	Made    time.Time // by the transaction's clock
	Due     time.Time
	Began   time.Time // its last run; zero: none began
	Mark    string    // of its event's document, or of its payload, as its runner saw it: for the drill to fill in
	Events  int64     // that a debounced one covers
}

// JobNumber is the number in a job's public id.
func JobNumber(id carillon.JobID) int64 { return number(string(id)) }

// TriggerJobs are all jobs of the triggers of some tenants, as one snapshot shows them; one that stood twice shows twice.
func (c *Cluster) TriggerJobs(ctx context.Context, tenants ...string) ([]TriggerJob, error) {
	rows, err := c.SQL.Query(ctx, `
		SELECT t.key, j.id, j.state::text, COALESCE(j.slot, 'epoch'), j.created_at, j.due_at, COALESCE(j.started_at, 'epoch'),
			COALESCE((j.envelope ->> 'events')::bigint, 0)
		FROM carillon.triggers t JOIN (
			SELECT trigger_id, id, state, slot, created_at, due_at, started_at, envelope FROM carillon.jobs WHERE trigger_id IS NOT NULL UNION ALL
			SELECT trigger_id, id, state, slot, created_at, due_at, started_at, envelope FROM carillon.job_history WHERE trigger_id IS NOT NULL) j ON j.trigger_id = t.id
		WHERE t.tenant = ANY ($1) ORDER BY j.id`, tenants)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (j TriggerJob, err error) {
		err = r.Scan(&j.Trigger, &j.ID, &j.State, &j.Slot, &j.Made, &j.Due, &j.Began, &j.Events)
		if j.Began.Unix() == 0 {
			j.Began = time.Time{}
		}
		return j, err
	})
}

// Lateness of the firings of a tenant's triggers between two slots: from the slot until its claim, and until its job's
// last run began, both sorted.
func (c *Cluster) Lateness(t testing.TB, tenant string, from, to time.Time) (fired, began []time.Duration) {
	t.Helper()
	for i, query := range []string{
		`SELECT extract(epoch FROM r.started_at - r.slot)::float8 FROM carillon.runs r JOIN carillon.cron_jobs c ON c.id = r.cron_job_id JOIN carillon.triggers t ON t.id = c.trigger_id
			WHERE t.tenant = $1 AND r.verdict = 'fired' AND r.slot >= $2 AND r.slot < $3 ORDER BY 1`,
		`SELECT extract(epoch FROM j.started_at - j.slot)::float8 FROM carillon.job_history j JOIN carillon.triggers t ON t.id = j.trigger_id
			WHERE t.tenant = $1 AND j.slot >= $2 AND j.slot < $3 ORDER BY 1`,
	} {
		rows, err := c.SQL.Query(t.Context(), query, tenant, from, to)
		if err != nil {
			t.Fatal(err)
		}
		late, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (time.Duration, error) {
			var s float64
			err := r.Scan(&s)
			return time.Duration(s * float64(time.Second)), err
		})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			fired = late
		} else {
			began = late
		}
	}
	return fired, began
}
