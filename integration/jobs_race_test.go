package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"carillon/integration/cluster"
	carillonv1 "carillon/proto/carillon/v1"
)

// TestManyCreatorsMakeOneJob: 50 clients create one job at the same instant by all controllers, with one unique key, then
// with one idempotency key.
func TestManyCreatorsMakeOneJob(t *testing.T) {
	t.Parallel()
	c := settled(t)
	d, _ := c.JobsUp(t, 1, cluster.JobVerb{Name: "work"})
	const clients, rounds = 50, 20
	for round := range rounds {
		for _, unique := range []bool{true, false} {
			mark := fmt.Sprintf("r%d-%v", round, unique)
			w := cluster.Wish{Task: cluster.Task{Mark: mark, Ms: 1500}, Verb: "work", Anonymous: unique}
			if unique {
				w.Unique = d.Name + mark
			}
			var all sync.WaitGroup
			gate := make(chan struct{})
			for range clients {
				all.Go(func() {
					<-gate
					if err := d.Enqueue(t.Context(), w); err != nil {
						t.Error(err)
					}
				})
			}
			close(gate)
			all.Wait()
			if ids := d.IDs(mark); len(ids) != 1 {
				t.Errorf("%d clients created %d jobs %v with one key (unique: %v)", clients, len(ids), ids, unique)
			}
		}
	}
	d.Await(t, 20*time.Second)
	d.Judge(t, true)
	t.Logf("%d rounds of %d clients: one job each", 2*rounds, clients)
}

// TestAnIdempotencyKeyOfAnotherRequestIsRefused: the same key with another body.
func TestAnIdempotencyKeyOfAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	c := settled(t)
	d, _ := c.JobsUp(t, 1, cluster.JobVerb{Name: "work"})
	w := cluster.Wish{Task: cluster.Task{Mark: "one"}, Verb: "work"}
	if err := d.Enqueue(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	other := d.New(cluster.Wish{Task: cluster.Task{Mark: "one", Ms: 5}, Verb: "work"})
	resp, err := c.Live()[1].Jobs.EnqueueJobs(t.Context(), &carillonv1.EnqueueJobsRequest{Jobs: []*carillonv1.NewJob{other}})
	if err != nil {
		t.Fatal(err)
	}
	if e := resp.GetJobs()[0].GetError(); e.GetCode() != connect.CodeAlreadyExists.String() {
		t.Errorf("the same key with another body was answered %v, want already_exists", resp.GetJobs()[0])
	}
	d.Await(t, 10*time.Second)
	d.Judge(t, true)
}

// TestACancelOrAClaimWins: many rounds of a job that is cancelled by one controller in the instant that another claims it.
// It ends once, and what the cancel was answered holds.
func TestACancelOrAClaimWins(t *testing.T) {
	t.Parallel()
	c := settled(t)
	rng := chance(t)
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"})
	rounds, at := 400, 8
	if isLong() {
		rounds = 4000
	}
	waits := make([]time.Duration, rounds)
	for i := range waits {
		waits[i] = time.Duration(rng.IntN(8000)) * time.Microsecond
	}
	var mu sync.Mutex
	answers := map[string]int{}
	turn := make(chan int)
	var all sync.WaitGroup
	for range at {
		all.Go(func() {
			for i := range turn {
				mark := fmt.Sprintf("n%d", i)
				w := cluster.Wish{Task: cluster.Task{Mark: mark, Ms: i % 3}, Verb: "work", Delay: time.Duration(i%2) * 5 * time.Millisecond}
				if err := d.Enqueue(t.Context(), w); err != nil {
					t.Error(err)
					continue
				}
				cluster.Let(t, waits[i])
				state, err := d.Cancel(t.Context(), c.Live()[i%members], d.ID(mark))
				answer := state.String()
				if err != nil {
					answer = connect.CodeOf(err).String()
				}
				mu.Lock()
				answers[answer]++
				mu.Unlock()
			}
		})
	}
	for i := range rounds {
		turn <- i
	}
	close(turn)
	all.Wait()
	d.Await(t, 20*time.Second)
	w := d.Judge(t, true)
	states := map[string]int{}
	for _, e := range w.Ended {
		states[e.State]++
	}
	if states["succeeded"] == 0 || states["cancelled"] == 0 || states["succeeded"]+states["cancelled"] != rounds {
		t.Errorf("%d rounds ended as %v, want some of both and nothing else", rounds, states)
	}
	t.Logf("%d rounds: cancels were answered %v, jobs ended as %v", rounds, answers, states)
}

// TestARunningJobIsCancelledByAnyController: the verb's context ends, wherever the job runs.
func TestARunningJobIsCancelledByAnyController(t *testing.T) {
	t.Parallel()
	c := settled(t)
	d, _ := c.JobsUp(t, 1, cluster.JobVerb{Name: "work"})
	const n = 12
	var wishes []cluster.Wish
	for i := range n {
		wishes = append(wishes, cluster.Wish{Task: cluster.Task{Mark: fmt.Sprintf("n%d", i), Ms: 50_000}, Verb: "work"})
	}
	if err := d.Enqueue(t.Context(), wishes...); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, 10*time.Second, "a run of all jobs", func() error {
		var running int
		err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
			WHERE j.state = 'running' AND starts_with(q.ref, $1)`, d.Name+".").Scan(&running)
		if err == nil && running < n {
			err = errorf("%d of %d jobs run", running, n)
		}
		return err
	})
	asked := time.Now()
	for i := range n {
		if state, err := d.Cancel(t.Context(), c.Live()[i%members], d.ID(fmt.Sprintf("n%d", i))); err != nil || state == carillonv1.JobState_JOB_STATE_UNSPECIFIED {
			t.Errorf("cancel of a running job: %v, %v", state, err)
		}
	}
	d.Await(t, 10*time.Second)
	took := time.Since(asked)
	w := d.Judge(t, true)
	for _, e := range w.Ended {
		if e.State != "cancelled" {
			t.Errorf("job %s ended as %s, want cancelled", e.Mark, e.State)
		}
	}
	t.Logf("%d running jobs cancelled and over within %v", n, took.Round(time.Millisecond))
}

// TestTheLastChildrenWakeTheirParentOnce: parents whose children end in the same instant, at different controllers.
func TestTheLastChildrenWakeTheirParentOnce(t *testing.T) {
	t.Parallel()
	c := settled(t)
	rng := chance(t)
	d, _ := c.JobsUp(t, 2, cluster.JobVerb{Name: "work"})
	parents := 150
	if isLong() {
		parents = 3000
	}
	var wishes []cluster.Wish
	for i := range parents {
		mark := fmt.Sprintf("p%d", i)
		w := cluster.Wish{Task: cluster.Task{Mark: mark}, Verb: "work"}
		ms := 100 + rng.IntN(50)
		for k := range 2 + rng.IntN(2) {
			w.Children = append(w.Children, cluster.Task{Mark: fmt.Sprintf("%s/%d", mark, k), Ms: ms})
		}
		if i%5 == 0 { // one that fails for good is an end, too
			w.Children[0].Final = true
		}
		wishes = append(wishes, w)
	}
	began := time.Now()
	if err := d.Enqueue(t.Context(), wishes...); err != nil {
		t.Fatal(err)
	}
	d.Await(t, 60*time.Second)
	took := time.Since(began)
	w := d.Judge(t, true)
	woken := map[int64]int{}
	for _, x := range w.Doings {
		if x.Begin {
			woken[x.Job]++
		}
	}
	families := 0
	for _, e := range w.Ended {
		if e.Parent != 0 {
			continue
		}
		families++
		if e.State != "succeeded" || woken[e.ID] != 2 || e.Attempt != 1 {
			t.Errorf("parent %s ended as %s after %d runs and %d attempts, want a success after two runs that count as one", e.Mark, e.State, woken[e.ID], e.Attempt)
		}
	}
	if families != parents {
		t.Errorf("%d parents ended, want %d", families, parents)
	}
	t.Logf("%d parents with two or three children each: done in %v", parents, took.Round(time.Millisecond))
}
