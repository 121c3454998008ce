package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon"
	"carillon/integration/cluster"
	"carillon/integration/cozycases"
)

// bell is a trigger of the clock, and what an oracle of its slots needs: nothing that the product computed.
type bell struct {
	key, kind string
	made      time.Time     // by the row
	every     time.Duration // of @every; of @cron: the second's divisor
	at        time.Time     // of @at
	in        time.Duration // of @in
	asked     time.Time     // by our clock, which is the database's: the request went out
	answered  time.Time     // and its answer came
}

// slots are those up to an instant, by plain arithmetic: @every from its creation's second on, @cron in every second that
// the number divides.
func (x bell) slots(until time.Time) (list []time.Time) {
	switch x.kind {
	case "@at":
		list = append(list, x.at)
	case "@every":
		for at := time.Unix(x.made.Unix(), 0).Add(x.every); !at.After(until); at = at.Add(x.every) {
			list = append(list, at)
		}
	case "@cron":
		for s := x.made.Unix() + 1; s <= until.Unix(); s++ {
			if s%60%int64(x.every/time.Second) == 0 {
				list = append(list, time.Unix(s, 0))
			}
		}
	}
	return list
}

// tally is what a drill asked for beside the clock's triggers.
type tally struct {
	mu     sync.Mutex
	events map[string][]string // acknowledged events by mark: which triggers each matches
	unsure map[string][]string // those whose answer got lost
	hooks  map[string]string   // acknowledged deliveries by mark: their trigger
	asks   int                 // posts of deliveries
	onces  []bell              // made while controllers died
}

// TestKillsLoseAndDoubleNoFiring: controllers are killed while triggers of every kind fire. Every slot that an oracle says
// is one job, what fires once is gone then, and each acknowledged event and delivery made its jobs once.
func TestKillsLoseAndDoubleNoFiring(t *testing.T) {
	b := newBelfry(t)
	b.Age(t)
	rng := chance(t)
	length := seconds(t, 15)
	in := b.home()
	begin := b.now()
	var bells []bell
	for i := range 36 {
		mark := fmt.Sprintf("timed%d", i)
		switch i % 6 {
		case 0, 1, 2:
			every := time.Duration(1+i%2) * time.Second
			bells = append(bells, bell{key: b.must(in, mark, "@every", every.String(), nil), kind: "@every", every: every})
		case 3:
			bells = append(bells, bell{key: b.must(in, mark, "@cron", "* * * * * *", nil), kind: "@cron", every: time.Second})
		case 4:
			bells = append(bells, bell{key: b.must(in, mark, "@cron", "*/3 * * * * *", nil), kind: "@cron", every: 3 * time.Second})
		case 5:
			at := begin.Add(2*time.Second + time.Duration(rng.Int64N(int64(length)))).Truncate(time.Millisecond)
			bells = append(bells, bell{key: b.must(in, mark, "@at", at.UTC().Format(time.RFC3339Nano), nil), kind: "@at", at: at})
		}
	}
	y := &tally{events: map[string][]string{}, unsure: map[string][]string{}, hooks: map[string]string{}}
	load, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	t.Cleanup(func() { stop(); work.Wait() })
	listen := b.listeners(in)
	for i := range 3 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		work.Go(func() { b.publishing(load, rng, in, listen, y, fmt.Sprint("p", i), i == 0) })
	}
	for i := range 4 { // deliveries are limited per domain
		home, rng := b.home(), rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		work.Go(func() { b.delivering(load, rng, home, y, fmt.Sprint("d", i), length) })
	}
	onces := rand.New(rand.NewPCG(rng.Uint64(), 9))
	work.Go(func() { b.hanging(load, onces, in, y, length) })

	kills := b.killing(rng, length)
	stop()
	work.Wait()
	bells = append(bells, y.onces...)
	end := b.now()
	for _, x := range bells {
		for _, at := range []time.Time{x.at, x.answered.Add(x.in)} {
			if at.After(end) {
				end = at
			}
		}
	}
	cluster.Let(t, time.Until(end.Add(2*time.Second)))
	b.hush(in)
	jobs := b.drained(40 * time.Second)
	for i := range bells {
		if err := b.SQL.QueryRow(t.Context(), "SELECT created_at FROM carillon.triggers WHERE key = $1", bells[i].key).Scan(&bells[i].made); err != nil {
			t.Fatalf("%s %s: %v", bells[i].kind, bells[i].key, err)
		}
	}
	slots := b.judgeBells(bells, jobs, end)
	b.judgeOnce(in, bells)
	b.judgeEvents(y, jobs)
	b.judgeHooks(y, jobs)
	for _, j := range jobs {
		if j.State != "succeeded" {
			t.Errorf("job %+v", j)
		}
	}
	fired, _ := b.Lateness(t, in.Tenant, begin, end)
	t.Logf("%d kills in %v: %d slots of %d triggers, %d events (%d more without an answer), %d deliveries in %d posts; %d jobs in %d runs; fired p50 %v p99 %v max %v late",
		kills, length, slots, len(bells), len(y.events), len(y.unsure), len(y.hooks), y.asks, len(jobs), b.ran.Load(), part(fired, 0.5), part(fired, 0.99), part(fired, 1))
	if kills < 3 || len(y.events) < 100 || len(y.hooks) < 40 || len(y.onces) < 10 {
		t.Errorf("too little was done: %d kills, %d events, %d deliveries, %d triggers under way", kills, len(y.events), len(y.hooks), len(y.onces))
	}
}

// hush deletes the triggers of a home, once no event waits for them.
func (b *belfry) hush(in cozycases.Home) {
	b.t.Helper()
	b.matched(in)
	for key, tenant := range b.keys {
		if tenant == in.Tenant {
			if _, _, err := b.Insist(b.t.Context(), 204, "DELETE", "/jobs/triggers/"+key, in.All, nil); err != nil && !strings.Contains(err.Error(), "answered 404") {
				b.t.Fatal(err)
			}
		}
	}
}

// listeners are event triggers by their rules. What matches them is decided here, by hand.
func (b *belfry) listeners(in cozycases.Home) map[string]string {
	keys := map[string]string{}
	for name, rule := range map[string]string{
		"created": "io.drill.docs:CREATED", "red": "io.drill.docs:UPDATED:red:color", "any": "io.drill.docs", "other": "io.drill.others:CREATED,DELETED io.drill.docs:DELETED",
	} {
		keys[name] = b.must(in, "listen "+name, "@event", rule, nil)
	}
	for name, rule := range map[string]string{"none": "io.drill.doc", "green": "io.drill.docs:UPDATED:green:color"} {
		b.must(in, "listen "+name, "@event", rule, nil) // nothing that is published matches
	}
	return keys
}

// publishing tells of changes until it is stopped, by the API or by SQL in transactions.
func (b *belfry) publishing(ctx context.Context, rng *rand.Rand, in cozycases.Home, listen map[string]string, y *tally, name string, bySQL bool) {
	client := b.Client(b.t)
	for i := 0; ctx.Err() == nil; i++ {
		mark := fmt.Sprintf("%s-%d", name, i)
		e := carillon.Event{Type: "io.drill.docs", Verb: []string{carillon.Created, carillon.Updated, carillon.Deleted}[rng.IntN(3)], ID: mark, Tenant: in.Tenant}
		color := []string{"red", "blue"}[rng.IntN(2)]
		e.Doc = attrs{"mark": mark, "color": color}
		var matches []string
		if rng.IntN(5) == 0 {
			e.Type = "io.drill.others"
		}
		switch {
		case e.Type == "io.drill.others":
			if e.Verb != carillon.Updated {
				matches = append(matches, listen["other"])
			}
		case e.Verb == carillon.Created:
			matches = append(matches, listen["any"], listen["created"])
		case e.Verb == carillon.Deleted:
			matches = append(matches, listen["any"], listen["other"])
		default:
			if matches = append(matches, listen["any"]); color == "red" {
				matches = append(matches, listen["red"])
			}
		}
		var err error
		if bySQL {
			_, err = b.SQL.Exec(context.WithoutCancel(ctx), "SELECT carillon.publish($1, $2, $3, doc_id => $4, tenant => $5)", e.Type, e.Verb, e.Doc, e.ID, e.Tenant)
			if err != nil {
				b.t.Errorf("publish by SQL: %v", err)
				return
			}
		} else {
			if err = client.Publish(context.WithoutCancel(ctx), e); err != nil {
				client = b.Client(b.t)
			}
		}
		y.mu.Lock()
		if err == nil {
			y.events[mark] = matches
		} else {
			y.unsure[mark] = matches
		}
		y.mu.Unlock()
		pause(ctx, time.Duration(5+rng.IntN(25))*time.Millisecond)
	}
}

// delivering posts to a webhook, each delivery until it is acknowledged, and some of them again.
func (b *belfry) delivering(ctx context.Context, rng *rand.Rand, in cozycases.Home, y *tally, name string, length time.Duration) {
	const most = 28 // of 30 in an hour
	hook, err := b.hang(ctx, in, "hook", "@webhook", "", nil)
	if err != nil {
		b.t.Error(err)
		return
	}
	for i := 0; i < most && ctx.Err() == nil; i++ {
		mark := fmt.Sprintf("%s-%d", name, i)
		for range 1 + rng.IntN(3) {
			_, tries, err := b.Insist(context.WithoutCancel(ctx), 204, "POST", "/jobs/webhooks/"+hook, "", attrs{"mark": mark}, "Idempotency-Key", mark)
			if err != nil {
				b.t.Errorf("delivery %s: %v", mark, err)
				return
			}
			y.mu.Lock()
			y.hooks[mark], y.asks = hook, y.asks+tries
			y.mu.Unlock()
		}
		pause(ctx, time.Duration(rng.Int64N(int64(2*length/most))))
	}
}

// hanging makes triggers that fire once, soon, while controllers die.
func (b *belfry) hanging(ctx context.Context, rng *rand.Rand, in cozycases.Home, y *tally, length time.Duration) {
	for i := 0; ctx.Err() == nil; i++ {
		x := bell{kind: "@in", in: time.Duration(1+rng.IntN(3)) * time.Second, asked: time.Now()}
		arguments := x.in.String()
		if i%2 == 0 {
			x = bell{kind: "@at", at: time.Now().Add(time.Duration(500+rng.IntN(2500)) * time.Millisecond).Truncate(time.Millisecond)}
			arguments = x.at.UTC().Format(time.RFC3339Nano)
		}
		key, err := b.hang(context.WithoutCancel(ctx), in, fmt.Sprintf("once%d", i), x.kind, arguments, nil)
		if err != nil {
			b.t.Error(err)
			return
		}
		x.key, x.answered = key, time.Now()
		y.mu.Lock()
		y.onces = append(y.onces, x)
		y.mu.Unlock()
		pause(ctx, length/40)
	}
}
