package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"carillon/backend/store"
)

// How batches are made of the rows.
const (
	scattered  = "scattered"  // over the whole table
	neighbours = "neighbours" // with ids one after the other
)

const (
	batchSize = 100 // rows in a statement
	lanes     = 2   // each with one statement under way
)

// ClaimsResult is what the claims came to, medians of the rounds.
type ClaimsResult struct {
	Rows   int          `json:"rows"`
	Batch  int          `json:"batch"`
	Lanes  int          `json:"lanes"`
	Orders []OrderOfIDs `json:"orders"`
	Plans  []Plan       `json:"plans"`
	Scan   Spread       `json:"scan"` // ScanCronJobs over all rows
}

// OrderOfIDs is one way in which batches are made of the rows.
type OrderOfIDs struct {
	Order string       `json:"order"`
	Kinds []KindResult `json:"kinds"`
	// Ratio of the store to the hand-written loop: median, smallest and largest of the rounds, each taken within one
	// round, and of the best rounds of both, which other load of the machine disturbs least.
	Ratio     float64 `json:"ratio"`
	RatioMin  float64 `json:"ratio_min"`
	RatioMax  float64 `json:"ratio_max"`
	RatioBest float64 `json:"ratio_best"`
}

// KindResult is one kind's executions (a claim and an end) per second.
type KindResult struct {
	Kind   string    `json:"kind"`
	Median float64   `json:"per_second"`
	Rounds []float64 `json:"rounds"`
	HOT    float64   `json:"hot"` // part of the updates that touched no index
}

// kind is a way of claiming and ending a batch.
type kind struct {
	name string
	open func(ctx context.Context, url string) (executor, error)
}

// executor claims and ends the rows of one batch at a time, from one lane each. All of them must be won.
type executor interface {
	execute(ctx context.Context, lane int, b *batch) error
	close()
}

var kinds = []kind{
	{"hand-written pgx: claim and end, no ledger", openCeiling},
	{"store: everything included", openProduct},
	{"store, and a second owner's probe of each slot", openProbed},
	{"hand-written pgx: state, slot and run id alone", openBare},
}

// Places in kinds.
const (
	theCeiling = 0
	theStore   = 1
)

// batch is what a claimer knows of some cron jobs, in order of id. It holds no pointers, so that the table's size does
// not burden the garbage collector with what a loop over it allocates.
type batch struct {
	ids  []int64
	next []int64 // microseconds
}

func (b *batch) slot(i int) time.Time { return time.UnixMicro(b.next[i]).UTC() }

// advance takes the rows to their next slot.
func (b *batch) advance() {
	for i := range b.next {
		b.next[i] += time.Second.Microseconds()
	}
}

func (b *bench) claims(ctx context.Context) (*ClaimsResult, error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	defer drop()
	b.say("claims: filling %d rows", b.Rows)
	db, ids, err := fill(ctx, url, b.Rows)
	if err != nil {
		return nil, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	r := &ClaimsResult{Rows: b.Rows, Batch: batchSize, Lanes: lanes}
	field := &field{b: b, url: url, db: db}
	for _, o := range []string{scattered, neighbours} {
		if o == scattered {
			rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		} else {
			slices.Sort(ids)
		}
		if field.batches, err = batchesOf(ctx, db, ids); err != nil {
			return nil, err
		}
		result, err := field.rounds(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("measure claims and ends: %w", err)
		}
		r.Orders = append(r.Orders, result)
	}
	if r.Plans, err = field.plans(ctx); err != nil {
		return nil, err
	}
	r.Scan, err = b.scan(ctx, url)
	return r, err
}

// batchesOf cuts the ids into full batches; within one they are in order, as every claimer sorts them. The slots are
// what stands in the table.
func batchesOf(ctx context.Context, db *pgx.Conn, ids []int64) ([]*batch, error) {
	slots, err := readSlots(ctx, db)
	if err != nil {
		return nil, err
	}
	var all []*batch
	for part := range slices.Chunk(ids, batchSize) {
		if len(part) < batchSize {
			break
		}
		b := &batch{ids: slices.Clone(part), next: make([]int64, len(part))}
		slices.Sort(b.ids)
		for i, id := range b.ids {
			b.next[i] = slots[id]
		}
		all = append(all, b)
	}
	return all, nil
}

// field is the table that the kinds compete on, and how far each lane has come.
type field struct {
	b       *bench
	url     string
	db      *pgx.Conn
	batches []*batch
	turns   [lanes]int
}

// rounds lets each kind run once in a round, in an order that moves on by one.
func (f *field) rounds(ctx context.Context, order string) (OrderOfIDs, error) {
	result := OrderOfIDs{Order: order, Kinds: make([]KindResult, len(kinds))}
	hot := make([]hotShare, len(kinds))
	var ratios []float64
	for round := range f.b.Rounds + 1 { // the first one warms up
		for i := range kinds {
			i = (i + round) % len(kinds)
			rate, share, err := f.leg(ctx, kinds[i])
			if err != nil {
				return result, fmt.Errorf("%s: %w", kinds[i].name, err)
			}
			if round == 0 {
				continue
			}
			f.b.say("  %s, round %d: %.0f/s, %.0f %% HOT, %s", order, round, rate, 100*share.part(), kinds[i].name)
			result.Kinds[i].Rounds = append(result.Kinds[i].Rounds, rate)
			hot[i] = hot[i].plus(share)
		}
		if round > 0 {
			n := round - 1
			ratios = append(ratios, result.Kinds[theStore].Rounds[n]/result.Kinds[theCeiling].Rounds[n])
		}
	}
	for i := range kinds {
		result.Kinds[i].Kind, result.Kinds[i].HOT = kinds[i].name, hot[i].part()
		result.Kinds[i].Median = median(slices.Clone(result.Kinds[i].Rounds))
	}
	result.Ratio, result.RatioMin, result.RatioMax = median(ratios), slices.Min(ratios), slices.Max(ratios)
	result.RatioBest = slices.Max(result.Kinds[theStore].Rounds) / slices.Max(result.Kinds[theCeiling].Rounds)
	return result, nil
}

// leg is one kind for a while: executions per second, all lanes together.
func (f *field) leg(ctx context.Context, k kind) (float64, hotShare, error) {
	e, err := k.open(ctx, f.url)
	if err != nil {
		return 0, hotShare{}, err
	}
	closed := false
	defer func() {
		if !closed {
			e.close()
		}
	}()
	before, err := readHOT(ctx, f.db)
	if err != nil {
		return 0, hotShare{}, err
	}
	group, run := errgroup.WithContext(ctx)
	var done [lanes]int
	var took [lanes]time.Duration
	var ready sync.WaitGroup
	ready.Add(lanes)
	for lane := range lanes {
		group.Go(func() error {
			first := f.take(lane) // connects and prepares
			err := e.execute(run, lane, first)
			ready.Done()
			ready.Wait()
			for began := time.Now(); err == nil && took[lane] < f.b.Leg; took[lane] = time.Since(began) {
				b := f.take(lane)
				if err = e.execute(run, lane, b); err == nil {
					done[lane] += len(b.ids)
				}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, hotShare{}, err
	}
	rate := 0.0
	for lane := range lanes {
		rate += float64(done[lane]) / took[lane].Seconds()
	}
	e.close() // a connection that ends tells its counts at once
	closed = true
	if err := pause(ctx, 200*time.Millisecond); err != nil {
		return 0, hotShare{}, err
	}
	after, err := readHOT(ctx, f.db)
	return rate, after.minus(before), err
}

// take is the lane's next batch; each lane has batches of its own.
func (f *field) take(lane int) *batch {
	b := f.batches[(f.turns[lane]*lanes+lane)%(len(f.batches)/lanes*lanes)]
	f.turns[lane]++
	return b
}

// scan times what every controller does every few seconds.
func (b *bench) scan(ctx context.Context, url string) (Spread, error) {
	s, err := store.Open(ctx, store.Config{URL: url, Application: "bench"})
	if err != nil {
		return Spread{}, err
	}
	defer s.Close()
	var took []time.Duration
	for range 10 {
		began := time.Now()
		if _, _, _, err := s.ScanCronJobs(ctx, controllerKey, 2*setBack, 10*time.Second, 6*time.Second); err != nil {
			return Spread{}, err
		}
		took = append(took, time.Since(began))
	}
	return spreadOf(took), nil
}
