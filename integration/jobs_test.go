package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/integration/checker"
	"carillon/integration/cluster"
)

// mixed makes wishes of which some twentieths fail at first, one of a hundred fails for good, and others take their
// time, snooze, come later or have children.
func mixed(rng *rand.Rand, from, n int, verbs ...string) []cluster.Wish {
	wishes := make([]cluster.Wish, n)
	for i := range wishes {
		w := cluster.Wish{Task: cluster.Task{Mark: fmt.Sprintf("n%d", from+i)}, Verb: verbs[rng.IntN(len(verbs))]}
		switch p := rng.IntN(1000); {
		case p < 40:
			w.Fails = 1 + rng.IntN(2)
		case p < 50:
			w.Fails, w.After = 1, 200+rng.IntN(800)
		case p < 60:
			w.Final = true
		case p < 140:
			w.Ms = 100 + rng.IntN(900)
		case p < 150:
			w.Snooze, w.Until = 300, time.Now().Add(time.Duration(500+rng.IntN(1500))*time.Millisecond).UnixMilli()
		case p < 170:
			w.Delay = time.Duration(rng.IntN(2500)) * time.Millisecond
		case p < 180:
			w.Progress, w.Ms = true, 20
		}
		w.Priority = []int{0, 0, 0, 100, 900}[rng.IntN(5)]
		w.Tenant = []string{"", "", "acme", "globex"}[rng.IntN(4)]
		wishes[i] = w
	}
	return wishes
}

// load is producers at work.
type load struct {
	t    *testing.T
	work sync.WaitGroup
	stop context.CancelFunc
	done atomic.Int64 // wishes acknowledged
}

// produce has four producers ask for n jobs, spread over so long.
func produce(t *testing.T, d *cluster.Desk, seed uint64, n int, length time.Duration, verbs ...string) *load {
	t.Helper()
	const producers, portion = 4, 100
	ctx, stop := context.WithCancel(t.Context())
	l := &load{t: t, stop: stop}
	t.Cleanup(func() { stop(); l.work.Wait() })
	began := time.Now()
	for p := range producers {
		rng := rand.New(rand.NewPCG(seed, uint64(p)))
		l.work.Go(func() {
			for from := p * portion; from < n; from += producers * portion {
				size := min(portion, n-from)
				if err := d.Enqueue(ctx, mixed(rng, from, size, verbs...)...); err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				l.done.Add(int64(size))
				pace := began.Add(time.Duration(float64(length) * float64(from+size) / float64(n)))
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(pace)):
				}
			}
		})
	}
	return l
}

// TestKillsLoseAndDoubleNoJob: kill -9 of controllers and runners at random under load, some of whose jobs fail.
func TestKillsLoseAndDoubleNoJob(t *testing.T) {
	c := settled(t)
	c.Age(t)
	rng := chance(t)
	n, length := 20_000, 20*time.Second
	if isLong() {
		n, length = 100_000, seconds(t, 60)
	}
	d, runners := c.JobsUp(t, 3, cluster.JobVerb{Name: "work"}, cluster.JobVerb{Name: "more"})
	l := produce(t, d, rng.Uint64(), n, length, "work", "work", "more")
	began, kills, shot := time.Now(), 0, 0
	for time.Since(began) < length {
		cluster.Let(t, time.Duration(1500+rng.IntN(2000))*time.Millisecond)
		if kills == 0 || shot > 0 && rng.IntN(2) == 0 {
			live := c.Live()
			c.Kill9(t, live[rng.IntN(len(live))], 0)
			c.StartController(t)
			kills++
			continue
		}
		i := rng.IntN(len(runners))
		c.KillRunner(t, d.Module, runners[i], 0)
		runners[i] = c.StartRunner(t, d.Module)
		shot++
	}
	l.work.Wait()
	rest := d.Await(t, 60*time.Second)
	w := d.Judge(t, true)
	if int(l.done.Load()) != n {
		t.Errorf("%d jobs of %d were acknowledged", l.done.Load(), n)
	}
	if kills == 0 || shot == 0 {
		t.Errorf("%d controllers and %d runners were killed, want some of both", kills, shot)
	}
	t.Logf("%d jobs in %v under %d kills of controllers and %d of runners: all done %v after the last was acknowledged; %d runs beyond the first of their job",
		n, length, kills, shot, rest.Round(time.Millisecond), repeats(w))
}

// repeats counts runs of jobs that had begun before.
func repeats(w checker.Work) (n int) {
	seen := map[int64]bool{}
	for _, x := range w.Doings {
		if x.Begin && seen[x.Job] {
			n++
		}
		if x.Begin {
			seen[x.Job] = true
		}
	}
	return n
}

// TestACrashOfPostgresLosesNoJob: stop -m immediate and start under load; producers ask again by their keys, and what was
// acknowledged is exactly one job.
func TestACrashOfPostgresLosesNoJob(t *testing.T) {
	c := settled(t)
	rng := chance(t)
	length := seconds(t, 8)
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"})
	n := int(length.Seconds()) * 1000
	l := produce(t, d, rng.Uint64(), n, length, "work")
	crashes := 0
	for began := time.Now(); crashes < 2 || time.Since(began) < length-2*time.Second; crashes++ {
		cluster.Let(t, time.Duration(1000+rng.IntN(1500))*time.Millisecond)
		stopPostgres(t, c, time.Duration(200+rng.IntN(1300))*time.Millisecond)
	}
	l.work.Wait()
	rest := d.Await(t, 60*time.Second)
	w := d.Judge(t, true)
	if int(l.done.Load()) != n || crashes == 0 {
		t.Errorf("%d jobs of %d were acknowledged under %d crashes", l.done.Load(), n, crashes)
	}
	t.Logf("%d crashes of Postgres under %d jobs: all done %v after the last was acknowledged; %d wishes were uttered again, %d runs were not the first of their job",
		crashes, n, rest.Round(time.Millisecond), d.Again(), repeats(w))
}

// TestALimitHoldsWhileAControllerDies: a cluster-wide limit, full all the time, under three controllers of which one is
// killed: exact in every snapshot and by what the runners saw, and used.
func TestALimitHoldsWhileAControllerDies(t *testing.T) {
	c := settled(t)
	c.Age(t)
	const most, ms = 7, 25
	length := seconds(t, 12)
	n := int(length.Seconds()) * most * 1000 / ms * 3 / 5
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "few", Concurrency: most})
	stop := d.WatchLimits(t)
	var wishes []cluster.Wish
	for i := range n {
		wishes = append(wishes, cluster.Wish{Task: cluster.Task{Mark: fmt.Sprintf("n%d", i), Ms: ms}, Verb: "few"})
	}
	began := time.Now()
	if err := d.Enqueue(t.Context(), wishes...); err != nil {
		t.Fatal(err)
	}
	cluster.Let(t, 2*time.Second)
	victim := holder(t, c, d)
	killed := c.Kill9(t, victim, 0)
	d.Await(t, 2*length+30*time.Second)
	took := time.Since(began)
	stop()
	w := d.Judge(t, true)

	looks, full, late := 0, 0, 0
	for _, x := range w.Limits {
		looks++
		if x.Running == most {
			full++
		}
		if x.At.After(killed.Add(9*time.Second)) && x.Rows > 0 {
			late++
		}
	}
	if looks < 50 {
		t.Errorf("only %d looks at the limit", looks)
	}
	if full == 0 {
		t.Error("the limit was never used up")
	}
	lost := 0
	for _, e := range w.Ended {
		lost += len(e.Errors)
	}
	ideal := time.Duration(n) * ms * time.Millisecond / most
	t.Logf("%d jobs of %d ms, %d at a time: %v, at best %v; the limit was full in %d of %d looks, %d runs were lost with controller %s",
		n, ms, most, took.Round(time.Millisecond), ideal, full, looks, lost, victim.Key)
	if took > 3*ideal+15*time.Second {
		t.Errorf("took %v, at best %v: the limit's places lie idle", took, ideal)
	}
}

// holder is a controller that runs jobs of the module at this moment, if one does.
func holder(t *testing.T, c *cluster.Cluster, d *cluster.Desk) *cluster.Controller {
	t.Helper()
	live := c.Live()
	found := live[0]
	cluster.Eventually(t, 5*time.Second, "a controller that runs something", func() error {
		var key string
		if err := c.SQL.QueryRow(t.Context(), `SELECT j.controller FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
			WHERE j.state = 'running' AND starts_with(q.ref, $1) LIMIT 1`, d.Name+".").Scan(&key); err != nil {
			return err
		}
		i := slices.IndexFunc(live, func(k *cluster.Controller) bool { return k.Key == key })
		if i < 0 {
			return errorf("controller %s is not one of ours", key)
		}
		found = live[i]
		return nil
	})
	return found
}

// TestJobsAreTakenInDuringADrain: SIGTERM of a controller under load; nobody needs to ask twice for long, nothing is lost,
// and what ran has its end recorded.
func TestJobsAreTakenInDuringADrain(t *testing.T) {
	c := settled(t)
	rng := chance(t)
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"}, cluster.JobVerb{Name: "nap"})
	const n = 4000
	var naps []cluster.Wish
	for i := range 60 {
		naps = append(naps, cluster.Wish{Task: cluster.Task{Mark: fmt.Sprintf("nap%d", i), Ms: 1500}, Verb: "nap"})
	}
	l := produce(t, d, rng.Uint64(), n, 5*time.Second, "work")
	cluster.Let(t, time.Second)
	if err := d.Enqueue(t.Context(), naps...); err != nil {
		t.Fatal(err)
	}
	leaving := holder(t, c, d)
	asked := time.Now()
	c.Term(t, leaving)
	gone := time.Now()
	l.work.Wait()
	d.Await(t, 30*time.Second)
	w := d.Judge(t, true)
	for _, e := range w.Ended {
		for _, x := range e.Errors {
			if x.Verdict == "lost" || x.Verdict == "cancelled" {
				t.Errorf("job %s has a run that ended as %s (%s) by a drain", e.Mark, x.Verdict, x.Text)
			}
		}
	}
	t.Logf("SIGTERM under load: exit 0 after %v, %d jobs acknowledged, %d wishes uttered again", gone.Sub(asked).Round(time.Millisecond), len(w.Acks), d.Again())
}
