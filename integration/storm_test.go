package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carillon/integration/cluster"
)

// TestRandomFaultsBreakNoPromise does whatever its seed says, one thing after the other, to a cluster under load.
func TestRandomFaultsBreakNoPromise(t *testing.T) {
	c := settled(t)
	rng := chance(t)
	verbs := slices.Concat(cluster.Verbs(200, "v"), cluster.Verbs(60, "nap400"), cluster.Verbs(20, "nap1700"))
	for i := range int64(10) {
		verbs = append(verbs, cluster.Verb{Name: fmt.Sprintf("rarex%d", i), Every: 10, Phase: i})
	}
	m, _ := c.Up(t, verbs...)
	cluster.Let(t, 1500*time.Millisecond)
	for began := time.Now(); time.Since(began) < seconds(t, 5); {
		cluster.PartOfSecond(t, time.Duration(rng.IntN(1000))*time.Millisecond)
		evil := evils[rng.IntN(len(evils))]
		t.Logf("%6.1f s: %s", time.Since(began).Seconds(), evil.name)
		evil.do(t, c, m, rng)
		if isLong() {
			c.Settle(t, members)
		}
		for len(c.Live()) < members-1 { // somebody starts what died; a cluster of nobody would be no storm but silence
			c.StartController(t)
		}
	}
	cluster.Let(t, 9*time.Second) // what is lost is freed by then
	c.Judge(t, m)
}

// evils are what can be done to a cluster.
var evils = []struct {
	name string
	do   func(*testing.T, *cluster.Cluster, *cluster.Module, *rand.Rand)
}{
	{"kill -9 of a controller", func(t *testing.T, c *cluster.Cluster, _ *cluster.Module, rng *rand.Rand) {
		c.Kill9(t, victim(c, rng), 5*time.Second) // other evils may have the second owner
	}},
	{"SIGTERM to a controller", func(t *testing.T, c *cluster.Cluster, _ *cluster.Module, rng *rand.Rand) {
		c.Term(t, victim(c, rng))
	}},
	{"a controller stands still for a while", func(t *testing.T, c *cluster.Cluster, _ *cluster.Module, rng *rand.Rand) {
		k := victim(c, rng)
		c.Stop(t, k)
		cluster.Let(t, time.Duration(500+rng.IntN(9000))*time.Millisecond)
		c.Cont(t, k)
	}},
	{"crash of Postgres", func(t *testing.T, c *cluster.Cluster, _ *cluster.Module, rng *rand.Rand) {
		stopPostgres(t, c, time.Duration(rng.IntN(3000))*time.Millisecond)
	}},
	{"connections cut", func(t *testing.T, c *cluster.Cluster, _ *cluster.Module, rng *rand.Rand) {
		storm(t, c, rng, 2*time.Second)
	}},
	{"a redeploy", func(t *testing.T, c *cluster.Cluster, m *cluster.Module, _ *rand.Rand) {
		c.Change(t, m, m.Verbs...)
		c.StartRunner(t, m)
		c.Deploy(t, c.Any(t), m)
	}},
	{"scale to 0 and back", func(t *testing.T, c *cluster.Cluster, m *cluster.Module, rng *rand.Rand) {
		c.Scale(t, c.Any(t), m, 0)
		cluster.Let(t, time.Duration(rng.IntN(3000))*time.Millisecond)
		c.Scale(t, c.Any(t), m, 1)
	}},
}

func victim(c *cluster.Cluster, rng *rand.Rand) *cluster.Controller {
	live := c.Live()
	return live[rng.IntN(len(live))]
}
