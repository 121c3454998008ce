package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"carillon/integration/cluster"
)

// TestAPurgeDisturbsNobody: very many old jobs are purged while triggers fire each second: the count is right, the newest
// fifty of each outcome and what is young are left, and the slots that fell into the purge are no later than those before.
func TestAPurgeDisturbsNobody(t *testing.T) {
	b := newBelfry(t)
	old, spared, quiet := 150_000, 40, 5*time.Second
	if isLong() {
		old = 1_000_000
	}
	in := b.home()
	for i := range 100 {
		b.must(in, fmt.Sprint("busy", i), "@every", "1s", nil)
	}
	queue := b.history(in.Tenant, old, spared)

	start := b.now()
	cluster.Let(t, quiet)
	cluster.PartOfSecond(t, 900*time.Millisecond) // slots are whole seconds: even a short purge has one
	asked := b.now()
	deleted := b.purge(in.All)
	answered := b.now()
	cluster.Let(t, 2*time.Second)

	if want := old - 100; deleted != want {
		t.Errorf("%d jobs were purged, want %d", deleted, want)
	}
	var young, good, bad, newest int
	err := b.SQL.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE created_at > now() - interval '14 d'),
			count(*) FILTER (WHERE state = 'succeeded'), count(*) FILTER (WHERE state <> 'succeeded'), count(*) FILTER (WHERE tags[1] = 'newest')
		FROM carillon.job_history WHERE queue_id = $1`, queue).Scan(&young, &good, &bad, &newest)
	if err != nil {
		t.Fatal(err)
	}
	if young != 0 || good != 50 || bad != 50 || newest != 100 {
		t.Errorf("%d young ones, %d that went well and %d others are left, %d of them the newest: want 0, 50, 50 and 100", young, good, bad, newest)
	}
	var others int
	if err := b.SQL.QueryRow(t.Context(), "SELECT count(*) FROM carillon.job_history WHERE queue_id = $1", b.elsewhere(in.Tenant)).Scan(&others); err != nil || others != spared {
		t.Errorf("%d jobs of another tenant are left, want %d: %v", others, spared, err)
	}

	fired, ran := b.Lateness(t, in.Tenant, start, asked)
	fired2, ran2 := b.Lateness(t, in.Tenant, asked, answered)
	t.Logf("%d of %d old jobs purged in %v while 100 triggers fired each second; fired p50 %v p99 %v max %v late before, p50 %v p99 %v max %v during; begun p50 %v p99 %v before, p50 %v p99 %v during",
		deleted, old, answered.Sub(asked).Round(time.Millisecond), part(fired, 0.5), part(fired, 0.99), part(fired, 1), part(fired2, 0.5), part(fired2, 0.99), part(fired2, 1),
		part(ran, 0.5), part(ran, 0.99), part(ran2, 0.5), part(ran2, 0.99))
	if b.Strained(start, answered) {
		t.Log("the machine stood still: what was late is not judged")
		return
	}
	slots := int(answered.Unix() - asked.Unix())
	if len(fired2) != 100*slots || len(ran2) != 100*slots {
		t.Errorf("%d slots fired and %d jobs of them are done, of 100 in each of %d seconds of a purge", len(fired2), len(ran2), slots)
	}
	if slots == 0 {
		t.Errorf("the purge took %v only: no slot fell into it", answered.Sub(asked))
	}
	for what, late := range map[string][2][]time.Duration{"firings": {fired, fired2}, "begins": {ran, ran2}} {
		if before, during := part(late[0], 0.5), part(late[1], 0.5); during > before+150*time.Millisecond {
			t.Errorf("%s: p50 %v late during the purge, %v before", what, during, before)
		}
		if before, during := part(late[0], 0.99), part(late[1], 0.99); during > 2*before+500*time.Millisecond {
			t.Errorf("%s: p99 %v late during the purge, %v before", what, during, before)
		}
	}
}

// history puts old jobs of a worker of its own into the ledger of the queue, a third of which failed, and some of another
// tenant. It returns their queue. The newest fifty of each outcome bear a tag.
func (b *belfry) history(tenant string, n, spared int) (queue int32) {
	b.t.Helper()
	for _, part := range []struct {
		tenant string
		n      int
		into   *int32
	}{{tenant, n, &queue}, {tenant + "-other", spared, new(int32)}} {
		if err := b.SQL.QueryRow(b.t.Context(), "INSERT INTO carillon.queues (lane, tenant, ref) VALUES (2, $1, 'attic.attic') RETURNING id", part.tenant).Scan(part.into); err != nil {
			b.t.Fatal(err)
		}
		if _, err := b.SQL.Exec(b.t.Context(), `INSERT INTO carillon.job_history (id, ended_at, created_at, due_at, started_at, queue_id, salt, attempt, max_attempts, backoff_ms, backoff_max_ms,
				timeout_ms, priority, state, payload, envelope, tags)
			SELECT nextval('carillon.job_ids'), now() - i % 70000 * interval '1 s', made, made, made, $1, i, 1, 3, 1000, 60000, 60000, 500, state::carillon.job_status, '{"message":"of old"}',
				'{"worker": "attic"}', CASE WHEN row_number() OVER (PARTITION BY state = 'succeeded' ORDER BY made DESC) <= 50 THEN ARRAY['newest'] END
			FROM (SELECT i, now() - interval '15 d' - i * 20 * interval '1 s' AS made, (ARRAY['succeeded', 'succeeded', 'succeeded', 'succeeded', 'failed', 'cancelled'])[1 + i % 6] AS state
				FROM generate_series(1, $2::int) i) g`, *part.into, part.n); err != nil {
			b.t.Fatal(err)
		}
	}
	if _, err := b.SQL.Exec(b.t.Context(), "ANALYZE carillon.job_history"); err != nil {
		b.t.Fatal(err)
	}
	return queue
}

// elsewhere is the queue of the other tenant.
func (b *belfry) elsewhere(tenant string) (queue int32) {
	b.t.Helper()
	if err := b.SQL.QueryRow(b.t.Context(), "SELECT id FROM carillon.queues WHERE tenant = $1", tenant+"-other").Scan(&queue); err != nil {
		b.t.Fatal(err)
	}
	return queue
}

// purge asks with the usual duration, two weeks.
func (b *belfry) purge(token string) (deleted int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, b.Any(b.t).URL+"/jobs/purge", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var said struct{ Deleted *int }
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(text, &said) != nil || said.Deleted == nil {
		b.t.Fatalf("purge: %d %s, %v", resp.StatusCode, text, err)
	}
	return *said.Deleted
}
