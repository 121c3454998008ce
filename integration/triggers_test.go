package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon"
	"carillon/integration/cluster"
	"carillon/integration/cozycases"
)

// belfry is a cluster with one worker of a drill's own, and tenants with triggers for it.
type belfry struct {
	*cozyHouse
	t      *testing.T
	worker string
	ran    atomic.Int64 // runs that the worker did
	marks  sync.Map     // int64: string, what a job's runner saw of its event or its deliveries

	mu    sync.Mutex
	homes map[string]cozycases.Home
	keys  map[string]string // home by key of a trigger
}

var belfries atomic.Int64

// newBelfry deploys the worker, and deletes the triggers as the drill ends.
func newBelfry(t *testing.T) *belfry {
	t.Helper()
	b := &belfry{cozyHouse: &cozyHouse{Cluster: settled(t)}, t: t, worker: fmt.Sprintf("bell%d", belfries.Add(1)), homes: map[string]cozycases.Home{}, keys: map[string]string{}}
	b.World = cozycases.World{URL: b.Any(t).URL, Token: b.token}
	b.Serve(t, b.worker, carillon.Verbs{b.worker: carillon.Func(b.ring)})
	t.Cleanup(b.silence)
	return b
}

// ring is the worker: it notes what the job is about. The ledger does not keep that of jobs that went well.
func (b *belfry) ring(ctx context.Context, _ any) (any, error) {
	b.ran.Add(1)
	run, _ := carillon.RunFrom(ctx)
	e, _ := carillon.EnvelopeFrom(ctx)
	text := e.Payload
	if e.Event != nil {
		text = e.Event.Doc
	}
	var about struct {
		Mark     string
		Payloads []struct{ Mark string } // of a debounced webhook
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &about); err != nil {
			return nil, carillon.Fail(err)
		}
		marks := []string{about.Mark}
		for _, p := range about.Payloads {
			marks = append(marks, p.Mark)
		}
		b.marks.Store(cluster.JobNumber(run.Job), strings.TrimSpace(strings.Join(marks, " ")))
	}
	return nil, nil
}

// complain says of many faults of one kind the first ones only.
func (b *belfry) complain(faults []string) {
	b.t.Helper()
	for i, text := range faults {
		if i == 10 {
			b.t.Errorf("and %d more", len(faults)-i)
			return
		}
		b.t.Error(text)
	}
}

// silence removes what is left of the triggers, by SQL: there may be very many.
func (b *belfry) silence() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := b.SQL.Exec(ctx, "DELETE FROM carillon.triggers WHERE tenant = ANY ($1)", b.tenants()); err != nil {
		b.t.Errorf("remove the triggers: %v", err)
	}
}

func (b *belfry) home() cozycases.Home {
	h := b.Home(b.t)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.homes[h.Tenant] = h
	return h
}

func (b *belfry) tenants() (list []string) {
	for name := range b.homes {
		list = append(list, name)
	}
	return list
}

// hang makes a trigger, whoever dies meanwhile: asked for again by the same key.
func (b *belfry) hang(ctx context.Context, in cozycases.Home, mark, kind, arguments string, more attrs) (key string, err error) {
	a := attrs{"type": kind, "arguments": arguments, "worker": b.worker, "message": attrs{"mark": mark}}
	for k, v := range more {
		a[k] = v
	}
	key, _, err = b.Insist(ctx, 201, "POST", "/jobs/triggers", in.All, attrs{"data": attrs{"attributes": a}}, "Idempotency-Key", mark)
	if err != nil {
		return "", fmt.Errorf("make trigger %s: %w", mark, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys[key] = in.Tenant
	return key, nil
}

func (b *belfry) must(in cozycases.Home, mark, kind, arguments string, more attrs) (key string) {
	b.t.Helper()
	key, err := b.hang(b.t.Context(), in, mark, kind, arguments, more)
	if err != nil {
		b.t.Fatal(err)
	}
	return key
}

// jobs are those of all homes.
func (b *belfry) jobs() []cluster.TriggerJob {
	b.t.Helper()
	jobs, err := b.TriggerJobs(b.t.Context(), b.tenants()...)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range jobs {
		if mark, ok := b.marks.Load(jobs[i].ID); ok {
			jobs[i].Mark = mark.(string)
		}
	}
	return jobs
}

// drained waits until no event, no window and no job of the homes is left, and returns the jobs.
func (b *belfry) drained(bound time.Duration) []cluster.TriggerJob {
	b.t.Helper()
	cluster.Eventually(b.t, bound, "the end of all jobs", func() error {
		var events, windows, live int
		err := b.SQL.QueryRow(b.t.Context(), `SELECT (SELECT count(*) FROM carillon.events WHERE tenant = ANY ($1)),
			(SELECT count(*) FROM carillon.debounces d JOIN carillon.triggers t ON t.id = d.trigger_id WHERE t.tenant = ANY ($1)),
			(SELECT count(*) FROM carillon.jobs j JOIN carillon.triggers t ON t.id = j.trigger_id WHERE t.tenant = ANY ($1))`, b.tenants()).Scan(&events, &windows, &live)
		if err == nil && events+windows+live > 0 {
			err = fmt.Errorf("%d events, %d windows and %d jobs are left", events, windows, live)
		}
		return err
	})
	return b.jobs()
}

// matched waits until no event of a home waits for its triggers.
func (b *belfry) matched(in cozycases.Home) {
	b.t.Helper()
	cluster.Eventually(b.t, 30*time.Second, "the matching of all events", func() error {
		var left int
		err := b.SQL.QueryRow(b.t.Context(), "SELECT count(*) FROM carillon.events WHERE tenant = $1", in.Tenant).Scan(&left)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d are left", left)
		}
		return err
	})
}

// now is the database's clock.
func (b *belfry) now() (at time.Time) {
	b.t.Helper()
	if err := b.SQL.QueryRow(b.t.Context(), "SELECT clock_timestamp()").Scan(&at); err != nil {
		b.t.Fatal(err)
	}
	return at
}

func part(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)].Round(100 * time.Microsecond)
}

// TestABurstOfEventsIsOneJob: 10,000 events, by the API and by SQL, for one debounced trigger, and controllers killed
// while its window is open: as many jobs as there were windows, and together they cover each event once.
func TestABurstOfEventsIsOneJob(t *testing.T) {
	b := newBelfry(t)
	const n, window = 10_000, 5 * time.Second
	in := b.home()
	key := b.must(in, "burst", "@event", "io.drill.bursts:CREATED", attrs{"debounce": window.String()})
	publish := b.Client(t)
	began := b.now()
	var events []carillon.Event
	for i := range n / 2 {
		events = append(events, carillon.Event{Type: "io.drill.bursts", Verb: carillon.Created, ID: fmt.Sprint(i), Doc: attrs{"n": i}, Tenant: in.Tenant})
	}
	if err := publish.Publish(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	live := b.Live()
	b.Kill9(t, live[0], 0)
	if _, err := b.SQL.Exec(t.Context(), `SELECT carillon.publish('io.drill.bursts', 'CREATED', jsonb_build_object('n', i), doc_id => i::text, tenant => $1) FROM generate_series($2::int, $3::int) i`,
		in.Tenant, n/2, n-1); err != nil {
		t.Fatal(err)
	}
	b.matched(in)
	matched := b.now()
	b.Kill9(t, live[1], 0) // the window is open still, as a rule
	b.StartController(t)
	jobs := b.drained(40 * time.Second)
	b.StartController(t)

	var covered int64
	for _, j := range jobs {
		if j.Trigger != key || j.State != "succeeded" {
			t.Errorf("job %+v", j)
		}
		if j.Due.Before(began.Add(window)) {
			t.Errorf("job %d is due %v after the first event, before its window's end", j.ID, j.Due.Sub(began))
		}
		covered += j.Events
	}
	most := 1 + int(matched.Sub(began)/window)
	if len(jobs) == 0 || len(jobs) > most || covered != n {
		t.Errorf("%d jobs that cover %d events: want at most %d windows with %d", len(jobs), covered, most, n)
	}
	t.Logf("%d events matched in %v under two kills: %d jobs, %d events covered", n, matched.Sub(began).Round(time.Millisecond), len(jobs), covered)
	if len(jobs) > 0 {
		t.Logf("the last job was made %v after its window's end", jobs[len(jobs)-1].Made.Sub(jobs[len(jobs)-1].Due).Round(time.Millisecond))
	}
}

// multiply makes so many triggers more like one, by SQL: to make them one by one would take most of the drill's time.
func (b *belfry) multiply(key string, n int) {
	b.t.Helper()
	tag, err := b.SQL.Exec(b.t.Context(), `WITH copies AS (
			INSERT INTO carillon.triggers SELECT (jsonb_populate_record(t, jsonb_build_object('id', nextval(pg_get_serial_sequence('carillon.triggers', 'id')), 'key', md5(t.key || i)))).*
			FROM carillon.triggers t, generate_series(1, $2::int) i WHERE t.key = $1 RETURNING id, key)
		INSERT INTO carillon.cron_jobs SELECT (jsonb_populate_record(c, jsonb_build_object('id', nextval(pg_get_serial_sequence('carillon.cron_jobs', 'id')), 'trigger_id', k.id,
			'ref', replace(c.ref, t.key, k.key), 'shard', k.id % 1021))).*
		FROM carillon.triggers t JOIN carillon.cron_jobs c ON c.trigger_id = t.id, copies k WHERE t.key = $1`, key, n)
	if err != nil || tag.RowsAffected() != int64(n) {
		b.t.Fatalf("copy trigger %s: %v, %v", key, tag, err)
	}
}

// TestFiveThousandTriggersOfOneSecond: all fire, each once, and none early.
func TestFiveThousandTriggersOfOneSecond(t *testing.T) {
	b := newBelfry(t)
	const n, reset = 5000, 5 * time.Second // controllers read what is not theirs by a hint so often
	in := b.home()
	slot := b.now().Add(reset + 8*time.Second).Truncate(time.Second)
	b.multiply(b.must(in, "many", "@cron", fmt.Sprintf("%d %d %d * * *", slot.UTC().Second(), slot.UTC().Minute(), slot.UTC().Hour()), nil), n-1)
	if made := b.now(); !made.Before(slot.Add(-reset)) {
		t.Fatalf("the triggers were made at %v only, for slot %v", made, slot)
	}
	cluster.Let(t, time.Until(slot))
	cluster.Eventually(t, 30*time.Second, "all jobs", func() error {
		var made int
		err := b.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.job_history j JOIN carillon.triggers t ON t.id = j.trigger_id WHERE t.tenant = $1`, in.Tenant).Scan(&made)
		if err == nil && made < n {
			err = fmt.Errorf("%d have ended", made)
		}
		return err
	})
	done := b.now().Sub(slot)
	seen := map[string]int{}
	for _, j := range b.drained(10 * time.Second) {
		if seen[j.Trigger]++; !j.Slot.Equal(slot) || j.Made.Before(slot) || j.State != "succeeded" {
			t.Errorf("job %+v, want slot %v", j, slot)
		}
	}
	for key, times := range seen {
		if times != 1 {
			t.Errorf("trigger %s fired %d times", key, times)
		}
	}
	if len(seen) != n || b.ran.Load() != n {
		t.Errorf("%d triggers fired and %d jobs ran, want %d", len(seen), b.ran.Load(), n)
	}
	fired, ran := b.Lateness(t, in.Tenant, slot, slot.Add(time.Second))
	t.Logf("%d triggers of one second: fired p50 %v p99 %v max %v late, their jobs begun p50 %v p99 %v max %v, all ended after %v", n,
		part(fired, 0.5), part(fired, 0.99), part(fired, 1), part(ran, 0.5), part(ran, 0.99), part(ran, 1), done.Round(time.Millisecond))
	if worst := part(fired, 1); worst > 10*time.Second && !b.Strained(slot, slot.Add(10*time.Second)) {
		t.Errorf("one fired %v late", worst)
	}
}

// TestFiftyPostsWithOneKeyAreOneJob: fifty posts of each of ten deliveries at the same time, spread over all controllers:
// each delivery is one job that ran once.
func TestFiftyPostsWithOneKeyAreOneJob(t *testing.T) {
	t.Parallel()
	b := newBelfry(t)
	const deliveries, posts = 10, 50
	in := b.home()
	hook := b.must(in, "hook", "@webhook", "", nil)
	var work sync.WaitGroup
	start := make(chan struct{})
	live := b.Live()
	for i := range deliveries * posts {
		at, mark := in.World, fmt.Sprint(i/posts)
		at.URL = live[i%len(live)].URL
		work.Go(func() {
			<-start
			body, _ := json.Marshal(attrs{"mark": mark})
			if a := at.Do(t, "POST", "/jobs/webhooks/"+hook, "", body, "Idempotency-Key", "delivery "+mark); a.Status != 204 {
				t.Errorf("post: %d %s", a.Status, a.Text)
			}
		})
	}
	close(start)
	work.Wait()
	var marks []string
	for _, j := range b.drained(20 * time.Second) {
		marks = append(marks, j.Mark)
	}
	slices.Sort(marks)
	if got, want := strings.Join(marks, ""), "0123456789"; got != want || b.ran.Load() != deliveries {
		t.Errorf("jobs of deliveries %q and %d runs, want %q and %d", got, b.ran.Load(), want, deliveries)
	}
}
