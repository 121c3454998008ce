package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/integration/cluster"
	carillonv1 "carillon/proto/carillon/v1"
)

// TestALargeTenantHoldsNobodyUp: one tenant has a great many jobs waiting, others come with ten each while runners have
// little room. And so within one tenant: a paused verb, and one whose limit is full, hold no other up.
func TestALargeTenantHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	c := settled(t)
	crowd := 20_000
	if isLong() {
		crowd = 100_000
	}
	m := c.NewJobs(t, cluster.JobVerb{Name: "work"}, cluster.JobVerb{Name: "held"}, cluster.JobVerb{Name: "few", Concurrency: 1})
	m.Capacity = 24 // a third of it for each controller
	d := c.Desk(t, m, 1)
	many := func(n int, name, verb, tenant string, ms int) {
		var wishes []cluster.Wish
		for i := range n {
			wishes = append(wishes, cluster.Wish{Task: cluster.Task{Mark: fmt.Sprintf("%s%d", name, i), Ms: ms}, Verb: verb, Tenant: tenant, Anonymous: true})
		}
		if err := d.Enqueue(t.Context(), wishes...); err != nil {
			t.Fatal(err)
		}
	}
	k := c.Any(t)
	held := d.Name + ".held"
	if _, err := k.Jobs.PauseJobs(t.Context(), &carillonv1.PauseJobsRequest{Ref: held, Reason: "the drill asked for it"}); err != nil {
		t.Fatal(err)
	}
	many(2000, "held", "held", "small0", 0)
	many(60, "few", "few", "small0", 100)
	many(crowd, "crowd", "work", "large", 5)
	asked := map[string]time.Time{}
	const smalls, each = 8, 10
	for s := range smalls {
		cluster.Let(t, 200*time.Millisecond)
		for i := range each {
			asked[fmt.Sprintf("s%d-%d", s, i)] = time.Now()
		}
		many(each, fmt.Sprintf("s%d-", s), "work", fmt.Sprintf("small%d", s), 1)
	}
	var left int
	cluster.Eventually(t, 20*time.Second, "an end of all jobs of the small tenants", func() error {
		var n int
		err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE q.tenant LIKE 'small%'), count(*) FILTER (WHERE q.tenant = 'large')
			FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE q.ref = $1`, d.Name+".work").Scan(&n, &left)
		if err == nil && n > 0 {
			err = errorf("%d jobs of small tenants wait while %d of the large one do", n, left)
		}
		return err
	})
	begins := d.Begins(t)
	var waits []time.Duration
	for mark, at := range asked {
		begin, ok := begins[mark]
		if !ok {
			t.Errorf("%s did not begin", mark)
		}
		waits = append(waits, begin.Sub(at))
	}
	slices.Sort(waits)
	p99 := waits[len(waits)*99/100]
	t.Logf("%d jobs of a large tenant, %d of it were live still when the others' were done: theirs waited p50 %v p99 %v",
		crowd, left, waits[len(waits)/2].Round(time.Millisecond), p99.Round(time.Millisecond))
	if left == 0 {
		t.Error("the large tenant was done before the small ones: nothing was shown")
	}
	if p99 > 2*time.Second {
		t.Errorf("small tenants' jobs waited %v beside a large one", p99)
	}
	for mark := range begins {
		if len(mark) > 4 && mark[:4] == "held" {
			t.Errorf("%s began while its verb was paused", mark)
			break
		}
	}
	if _, err := c.Live()[1].Jobs.ResumeJobs(t.Context(), &carillonv1.ResumeJobsRequest{Ref: held}); err != nil {
		t.Fatal(err)
	}
	d.Await(t, 120*time.Second)
	d.Judge(t, true)
}

// TestAPauseOfJobsIsObeyed: no run begins after a pause was acknowledged, by verb and by tenant, whichever controller was
// asked; and after the resume all are done.
func TestAPauseOfJobsIsObeyed(t *testing.T) {
	t.Parallel()
	c := settled(t)
	rng := chance(t)
	d, _ := c.JobsUp(t, 1, cluster.JobVerb{Name: "work"})
	l := produce(t, d, rng.Uint64(), 2000, 6*time.Second, "work")
	rounds := 0
	for began := time.Now(); time.Since(began) < 6*time.Second; rounds++ {
		k := c.Live()[rng.IntN(members)]
		tenant := []string{"", "acme"}[rounds%2]
		cluster.Let(t, time.Duration(200+rng.IntN(400))*time.Millisecond)
		if _, err := k.Jobs.PauseJobs(t.Context(), &carillonv1.PauseJobsRequest{Ref: d.Name + ".work", Tenant: tenant}); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		cluster.Let(t, time.Duration(200+rng.IntN(400))*time.Millisecond)
		to := time.Now()
		if _, err := c.Live()[rng.IntN(members)].Jobs.ResumeJobs(t.Context(), &carillonv1.ResumeJobsRequest{Ref: d.Name + ".work", Tenant: tenant}); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := c.SQL.QueryRow(t.Context(), `SELECT count(*) FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id
			WHERE q.ref = $1 AND ($2 = '' OR q.tenant = $2) AND h.started_at > $3 AND h.started_at < $4`, d.Name+".work", tenant, from, to).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			t.Errorf("%d runs were claimed while their queue was paused", n)
		}
	}
	l.work.Wait()
	d.Await(t, 30*time.Second)
	d.Judge(t, true)
	t.Logf("%d pauses", rounds)
}
