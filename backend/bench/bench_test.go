package bench

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/devdb/devtest"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(200-i)*time.Millisecond)
	}
	got := spreadOf(all)
	want := Spread{Count: 200, P50: 100 * time.Millisecond, P99: 198 * time.Millisecond, Max: 200 * time.Millisecond}
	if got != want {
		t.Errorf("spread %+v, want %+v", got, want)
	}
	if got := spreadOf([]time.Duration{7}); got.P50 != 7 || got.P99 != 7 || got.Max != 7 {
		t.Errorf("spread of one value: %+v", got)
	}
	if got := spreadOf(nil); got != (Spread{}) {
		t.Errorf("spread of nothing: %+v", got)
	}
	text, err := json.Marshal(want)
	if err != nil || string(text) != `{"count":200,"p50_ms":100,"p99_ms":198,"max_ms":200}` {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}

func TestMedianOfAnEvenNumberIsInTheMiddle(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}} {
		if got := median(tc.values); got != tc.want {
			t.Errorf("median of %v: %v, want %v", tc.values, got, tc.want)
		}
	}
}

func TestRangesCountTheirSlotsInTheMeasuredTime(t *testing.T) {
	k := &cluster{c: latenessCase{Period: 5}}
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.Add(20 * time.Second) // slots at 0, 5, 10, 15
	at := func(s int) time.Time { return from.Add(time.Duration(s) * time.Second) }
	for _, tc := range []struct{ first, last, want int }{{0, 0, 1}, {5, 15, 3}, {-10, 0, 1}, {10, 60, 2}, {-5, 100, 4}} {
		if got := k.slotsWithin(at(tc.first), at(tc.last), from, to); got != tc.want {
			t.Errorf("from %d to %d: %d slots, want %d", tc.first, tc.last, got, tc.want)
		}
	}
}

func TestBeginsSurviveTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "begins")
	if err := os.WriteFile(file, []byte("1767225600000000 1500000\n1767225601000000 -20\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readBegins(file)
	want := []Begin{{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 1500 * time.Microsecond}, {time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC), -20}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read %v, %v; want %v", got, err, want)
	}
	if err := os.WriteFile(file, []byte("1767225600000000 150"+"x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readBegins(file); err == nil {
		t.Error("a broken file was read")
	}
}

// on is a bench on the tests' Postgres, with the least of everything.
func on(t *testing.T, c Config) *bench {
	t.Helper()
	url := devtest.Database(t)
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(context.Background()) })
	c.Progress = io.Discard
	return &bench{Config: c, server: url, admin: admin}
}

// Every kind claims and ends what it says: the ledger has one run for each execution of the store, and none of the
// ceiling's, and every row has moved on by one slot for each execution of any kind.
func TestEachKindDoesWhatItCounts(t *testing.T) {
	f := filled(t, on(t, Config{Rows: 4 * batchSize}))
	for i, wantRuns := range []int{0, batchSize, 2 * batchSize, 2 * batchSize} {
		e, err := kinds[i].open(t.Context(), f.url)
		if err != nil {
			t.Fatal(err)
		}
		own := f.batches[i]
		before := own.slot(7)
		if err := e.execute(t.Context(), 0, own); err != nil {
			t.Fatalf("%s: %v", kinds[i].name, err)
		}
		if got := own.slot(7); !got.Equal(before.Add(time.Second)) {
			t.Errorf("%s: the slot after %s is %s", kinds[i].name, before, got)
		}
		var runs, idle, moved int
		if err := f.db.QueryRow(t.Context(), "SELECT count(*) FROM carillon.runs WHERE verdict = 'succeeded'").Scan(&runs); err != nil {
			t.Fatal(err)
		}
		err = f.db.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE state = 'idle'), count(*) FILTER (WHERE next_execution = $1 AND id = ANY ($2)) FROM carillon.cron_jobs",
			own.slot(7), own.ids).Scan(&idle, &moved)
		if err != nil {
			t.Fatal(err)
		}
		if runs != wantRuns || idle != f.b.Rows || moved != batchSize {
			t.Errorf("%s: %d runs in the ledger, want %d; %d rows idle, want %d; %d moved on, want %d", kinds[i].name, runs, wantRuns, idle, f.b.Rows, moved, batchSize)
		}
		own.next[3]-- // what the kind believes is wrong: it must not count the batch
		if err := e.execute(t.Context(), 0, own); err == nil {
			t.Errorf("%s: a batch that was not wholly won was counted", kinds[i].name)
		}
		e.close()
		if _, err := f.db.Exec(t.Context(), "UPDATE carillon.cron_jobs SET state = 'idle'"); err != nil {
			t.Fatal(err)
		}
	}
}

// filled is a field of so many rows.
func filled(t *testing.T, b *bench) *field {
	t.Helper()
	url, drop, err := b.database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(drop)
	db, ids, err := fill(t.Context(), url, b.Rows)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close(context.Background()) })
	batches, err := batchesOf(t.Context(), db, ids)
	if err != nil {
		t.Fatal(err)
	}
	return &field{b: b, url: url, db: db, batches: batches}
}

func TestRoundsMeasureEveryKind(t *testing.T) {
	f := filled(t, on(t, Config{Rows: 20 * batchSize, Rounds: 2, Leg: 20 * time.Millisecond}))
	o, err := f.rounds(t.Context(), scattered)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range o.Kinds {
		if len(k.Rounds) != 2 || k.Median <= 0 || k.HOT <= 0 || k.HOT > 1 {
			t.Errorf("%s: %+v", k.Kind, k)
		}
	}
	if o.RatioMin <= 0 || o.Ratio < o.RatioMin || o.Ratio > o.RatioMax {
		t.Errorf("ratio %v is not within %v and %v", o.Ratio, o.RatioMin, o.RatioMax)
	}
	if s, err := f.b.scan(t.Context(), f.url); err != nil || s.Count == 0 {
		t.Errorf("scan %+v, %v", s, err)
	}
}

func TestPlansTellALoopInOrderFromAHash(t *testing.T) {
	f := filled(t, on(t, Config{Rows: 20 * batchSize}))
	const text = `-- a comment
WITH won AS (
	UPDATE carillon.cron_jobs j SET run_id = a.run_id
	FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::uuid[]) AS run_id ORDER BY 1) a WHERE j.id = a.id RETURNING j.id
) SELECT id FROM won WHERE now() > $3::timestamptz`
	p, err := explain(t.Context(), f.db, text, "generic", f.batches[0])
	if err != nil || !p.Ordered || p.Cost <= 0 {
		t.Errorf("generic: %+v, %v", p, err)
	}
	if _, err := f.db.Exec(t.Context(), "SET enable_nestloop = off"); err != nil {
		t.Fatal(err)
	}
	p, err = explain(t.Context(), f.db, text, "custom", f.batches[0])
	if err != nil || p.Ordered || len(p.Nodes) == 0 {
		t.Errorf("without nested loops: %+v, %v", p, err)
	}
}

func TestLatenessInProcess(t *testing.T) {
	b := on(t, Config{Seconds: 1, Controllers: 1})
	r, err := b.measureLateness(t.Context(), latenessCase{Jobs: 20, Period: 1, inProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	others := 0
	for _, n := range r.Others { // on a machine with much else to do some slots may be skipped, but none is forgotten
		others += n
	}
	if r.Slots != 20 || r.Ran == 0 || r.Ran+others+r.Undecided != 20 || r.Verb.Count < r.Ran || r.Ledger.Count < r.Ran {
		t.Errorf("%+v", r)
	}
	if r.Verb.P50 < 0 || r.Ledger.P50 < 0 || r.Verb.P50 < r.Ledger.P50 {
		t.Errorf("a verb begins after its claim and that after the slot: %+v", r)
	}
}

func TestUnreasonableConfigsAreRefused(t *testing.T) {
	good := Config{Jobs: []int{1}, Seconds: 1, Controllers: 1, Rounds: 1, Rows: 1000, Leg: 1}
	if err := good.check(); err != nil {
		t.Errorf("a good one is refused: %v", err)
	}
	for _, spoil := range []func(*Config){
		func(c *Config) { c.Jobs = []int{5, 0} }, func(c *Config) { c.Seconds = 0 }, func(c *Config) { c.Rows = 3 },
		func(c *Config) { c.Controllers = 0 }, func(c *Config) { c.Rounds = -1 },
	} {
		c := good
		spoil(&c)
		if c.check() == nil {
			t.Errorf("%+v is not refused", c)
		}
	}
}
