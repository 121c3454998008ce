package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon"
	"carillon/integration/cluster"
	"carillon/integration/cozycases"
)

// callers are those who, while controllers die, bring what a debounced webhook gathers, and who run jobs themselves.
type callers struct {
	mu       sync.Mutex
	gathered map[string]string // acknowledged deliveries by mark: their hook, which gathers them
	launched map[string]string // acknowledged jobs of clients by public id: their trigger
	ended    map[string]ends   // how their clients ended them
}

// ends are the states that the clients of a job wished for, and those that were acknowledged.
type ends struct{ wished, acked []string }

const gathers = time.Second // the window of a debounced webhook

// TestKillsKeepWhatCallersWereTold: controllers are killed under deliveries to debounced webhooks and under clients that
// run jobs themselves. Each acknowledged delivery is in exactly one job, windows do not overlap, each launch is one job,
// and what a client was told of its job's end holds.
func TestKillsKeepWhatCallersWereTold(t *testing.T) {
	b := newBelfry(t)
	b.Age(t)
	rng := chance(t)
	length := seconds(t, 10)
	y := &callers{gathered: map[string]string{}, launched: map[string]string{}, ended: map[string]ends{}}
	load, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	t.Cleanup(func() { stop(); work.Wait() })
	for i := range 4 { // deliveries are limited per domain
		home, rng := b.home(), rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		hook := b.must(home, "gathering", "@webhook", "", attrs{"debounce": gathers.String()})
		work.Go(func() { b.gathering(load, rng, hook, y, fmt.Sprint("g", i), length) })
	}
	for i := range 6 {
		home, rng := b.home(), rand.New(rand.NewPCG(rng.Uint64(), uint64(10+i)))
		key := b.must(home, "client", "@client", "", nil)
		work.Go(func() { b.running(load, rng, home, key, y, fmt.Sprint("c", i)) })
	}
	kills := b.killing(rng, length)
	stop()
	work.Wait()
	jobs := b.drained(20 * time.Second)
	windows := b.judgeGathered(y, jobs)
	b.judgeClients(y, jobs)
	t.Logf("%d kills in %v: %d deliveries gathered in %d windows, %d jobs ended by their clients", kills, length, len(y.gathered), windows, len(y.ended))
	if kills < 2 || len(y.gathered) < 40 || len(y.ended) < 40 || windows < 8 || windows == len(y.gathered) {
		t.Errorf("too little was done: %d kills, %d deliveries in %d windows, %d jobs of clients", kills, len(y.gathered), windows, len(y.ended))
	}
}

// killing ends controllers one after the other for so long, and starts others.
func (b *belfry) killing(rng *rand.Rand, length time.Duration) (kills int) {
	b.t.Helper()
	for start := time.Now(); time.Since(start) < length-2*time.Second; kills++ {
		cluster.Let(b.t, time.Duration(1500+rng.IntN(1000))*time.Millisecond)
		live := b.Live()
		b.Kill9(b.t, live[rng.IntN(len(live))], 0)
		b.StartController(b.t)
		cluster.Let(b.t, 3*time.Second) // so that no two owners of a shard are gone at once: then slots may be skipped
	}
	return kills
}

// gathering posts to a debounced webhook until it is stopped, some together and some after the window's end.
func (b *belfry) gathering(ctx context.Context, rng *rand.Rand, hook string, y *callers, name string, length time.Duration) {
	const most = 28 // of 30 in an hour
	for i := 0; i < most && ctx.Err() == nil; i++ {
		mark := fmt.Sprintf("%s-%d", name, i)
		for range 1 + rng.IntN(2) {
			if _, _, err := b.Insist(context.WithoutCancel(ctx), 204, "POST", "/jobs/webhooks/"+hook, "", attrs{"mark": mark}, "Idempotency-Key", mark); err != nil {
				b.t.Errorf("delivery %s: %v", mark, err)
				return
			}
		}
		y.mu.Lock()
		y.gathered[mark] = hook
		y.mu.Unlock()
		pause(ctx, time.Duration(rng.Int64N(int64(2*length/most))))
	}
}

// running launches jobs of a client's trigger and ends them; every third has two clients that say different things.
func (b *belfry) running(ctx context.Context, rng *rand.Rand, in cozycases.Home, key string, y *callers, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		id, _, err := b.Insist(context.WithoutCancel(ctx), 201, "POST", "/jobs/triggers/"+key+"/launch", in.All, nil, "Idempotency-Key", fmt.Sprintf("%s-%d", name, i))
		if err != nil {
			b.t.Errorf("launch for a client: %v", err)
			return
		}
		y.mu.Lock()
		y.launched[id] = key
		y.mu.Unlock()
		pause(ctx, time.Duration(rng.IntN(100))*time.Millisecond)
		wishes := []string{[]string{"done", "errored"}[rng.IntN(2)]}
		if i%3 == 0 {
			wishes = []string{"done", "errored"}
		}
		var clients sync.WaitGroup
		for _, wish := range wishes {
			clients.Go(func() { b.ending(context.WithoutCancel(ctx), in, id, wish, len(wishes) == 1, y) })
		}
		clients.Wait()
		pause(ctx, time.Duration(rng.IntN(200))*time.Millisecond)
	}
}

// ending is one client that says how its job went. Who asks again, or is not alone, may hear that it has ended already.
func (b *belfry) ending(ctx context.Context, in cozycases.Home, id, wish string, alone bool, y *callers) {
	_, tries, err := b.Insist(ctx, 200, "PATCH", "/jobs/"+id, in.All, attrs{"data": attrs{"attributes": attrs{"state": wish}}})
	late := err != nil && strings.Contains(err.Error(), "answered 409") && (tries > 1 || !alone)
	if err != nil && !late {
		b.t.Errorf("end job %s as %s, asked %d times: %v", id, wish, tries, err)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	e := y.ended[id]
	e.wished = append(e.wished, wish)
	if err == nil {
		e.acked = append(e.acked, wish)
	}
	y.ended[id] = e
}

// judgeGathered: each acknowledged delivery is in one job of its hook, and each window began after the one before was
// over.
func (b *belfry) judgeGathered(y *callers, jobs []cluster.TriggerJob) (windows int) {
	b.t.Helper()
	made, last := map[string]int{}, map[string]time.Time{} // the end of the hook's window before
	slices.SortFunc(jobs, func(a, b cluster.TriggerJob) int { return a.Due.Compare(b.Due) })
	hooks := map[string]bool{}
	for _, hook := range y.gathered {
		hooks[hook] = true
	}
	var faults []string
	for _, j := range jobs {
		if !hooks[j.Trigger] {
			continue
		}
		windows++
		if j.State != "succeeded" || j.Mark == "" {
			faults = append(faults, fmt.Sprintf("job %+v of gathered deliveries", j))
		}
		if before, ok := last[j.Trigger]; ok && j.Due.Sub(before) < gathers {
			faults = append(faults, fmt.Sprintf("windows of hook %s end at %v and %v", j.Trigger, before, j.Due))
		}
		last[j.Trigger] = j.Due
		for mark := range strings.FieldsSeq(j.Mark) {
			made[mark+" "+j.Trigger]++
		}
	}
	for mark, hook := range y.gathered {
		if n := made[mark+" "+hook]; n != 1 {
			faults = append(faults, fmt.Sprintf("delivery %s is in %d jobs, want 1", mark, n))
		}
		delete(made, mark+" "+hook)
	}
	for what, n := range made {
		faults = append(faults, fmt.Sprintf("%d jobs hold what nobody brought: %s", n, what))
	}
	b.complain(faults)
	return windows
}

// judgeClients: one job for each launch, ended as its client was told; where no answer came, as one of its clients wished.
func (b *belfry) judgeClients(y *callers, jobs []cluster.TriggerJob) {
	b.t.Helper()
	states := map[string]string{"done": "succeeded", "errored": "failed"}
	keys, seen := map[string]bool{}, map[int64]string{}
	for _, key := range y.launched {
		keys[key] = true
	}
	for _, j := range jobs {
		if keys[j.Trigger] {
			seen[j.ID] = j.State
		}
	}
	var faults []string
	if len(seen) != len(y.launched) {
		faults = append(faults, fmt.Sprintf("%d launches made %d jobs", len(y.launched), len(seen)))
	}
	for id, e := range y.ended {
		state := seen[cluster.JobNumber(carillon.JobID(id))]
		told := e.acked
		if len(told) == 0 {
			told = e.wished
		}
		if len(e.acked) > 1 || !slices.ContainsFunc(told, func(wish string) bool { return states[wish] == state }) {
			faults = append(faults, fmt.Sprintf("job %s is %s; its clients wished %v and were told %v", id, state, e.wished, e.acked))
		}
	}
	b.complain(faults)
}

// pause waits so long, or until it is stopped.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
