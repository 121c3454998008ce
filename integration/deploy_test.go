package integration

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/integration/checker"
	"carillon/integration/cluster"
	carillonv1 "carillon/proto/carillon/v1"
)

// TestARedeployLosesAndDoublesNothing: a new version takes over while the old one runs; then the module is killed.
func TestARedeployLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	c := settled(t)
	old := slices.Concat(cluster.Verbs(40, "v"), cluster.Verbs(20, "nap600"), []cluster.Verb{{Name: "gone"}, {Name: "slower"}})
	m, before := c.Up(t, old...)
	cluster.Let(t, 2500*time.Millisecond)

	next := slices.Concat(cluster.Verbs(40, "v"), cluster.Verbs(20, "nap600"), []cluster.Verb{{Name: "fresh"}, {Name: "slower", Every: 2}})
	was := m.Deployment()
	c.Change(t, m, next...)
	c.StartRunner(t, m)
	c.InFlight(t, m, "nap", "") // of the old version
	switched := time.Now()
	if got := c.Deploy(t, c.Live()[1], m); got.GetReplaced() != was {
		t.Errorf("the deploy replaced %q, want %q", got.GetReplaced(), was)
	}
	cluster.Let(t, 2*time.Second)
	c.StopRunner(t, before)
	cluster.Let(t, seconds(t, 2))

	c.Kill(t, c.Live()[2], m)
	killed := time.Now()
	cluster.Let(t, 3*time.Second)
	h := c.Judge(t, m)[0]
	var early, crossing int
	for _, r := range h.Rows {
		switch {
		case r.RunID == "":
		case r.StartedAt.After(killed):
			t.Errorf("%s slot %v was started after the kill was acknowledged", r.Ref, r.Slot)
		case r.EndedAt.Before(switched):
			early++
		case r.StartedAt.Before(switched):
			crossing++
			if r.Verdict != "succeeded" {
				t.Errorf("%s slot %v was in flight at the redeploy and ended as %s (%s)", r.Ref, r.Slot, r.Verdict, r.Error)
			}
		}
	}
	if early == 0 || crossing == 0 {
		t.Errorf("%d runs stand before the redeploy and %d ran through it, want some of both", early, crossing)
	}
	if n := cluster.Verdicts(h); n["failed"]+n["lost"] > 0 {
		t.Errorf("verdicts %v of a redeploy, want no failure", n)
	}
}

// TestAPauseIsObeyedWhateverTheRace: pauses, resumes and scales to 0 at the very moment of the claims.
func TestAPauseIsObeyedWhateverTheRace(t *testing.T) {
	t.Parallel()
	c := settled(t)
	rng := chance(t)
	m, _ := c.Up(t, cluster.Verbs(60, "v")...)
	cluster.Let(t, 1500*time.Millisecond)
	each := func(steer func(k *cluster.Controller, ref string)) { // many at once, by all controllers
		var work sync.WaitGroup
		for i, v := range m.Verbs {
			if i%2 == 0 {
				k := c.Live()[i/2%members]
				work.Go(func() { steer(k, m.Name+"."+v.Name) })
			}
			if i%20 == 19 {
				work.Wait()
			}
		}
		work.Wait()
	}
	for began := time.Now(); time.Since(began) < seconds(t, 8); {
		race(t, rng)
		each(func(k *cluster.Controller, ref string) { c.Pause(t, k, ref) })
		race(t, rng)
		each(func(k *cluster.Controller, ref string) { c.Resume(t, k, ref) })
		race(t, rng)
		c.Scale(t, c.Live()[rng.IntN(members)], m, 0)
		race(t, rng)
		c.Scale(t, c.Live()[rng.IntN(members)], m, 1)
	}
	cluster.Let(t, 1500*time.Millisecond)
	h := c.Judge(t, m)[0]
	if n := cluster.Verdicts(h); n["skipped_paused"] < 100 || n["succeeded"] < 100 {
		t.Errorf("verdicts %v: the race was not run", n)
	}
}

// race waits until some milliseconds around the turn of a second, where the claims are.
func race(t *testing.T, rng *rand.Rand) {
	cluster.PartOfSecond(t, time.Duration(980+rng.IntN(28))*time.Millisecond)
}

// TestAStaleOwnerLosesOnTheVersion: a controller that stands still while a redeploy changes the schedule under it goes
// on with what it knew; its claims lose.
func TestAStaleOwnerLosesOnTheVersion(t *testing.T) {
	c := settled(t)
	verbs := cluster.Verbs(100, "v")
	m, _ := c.Up(t, verbs...)
	cluster.Let(t, 2*time.Second)
	stale := c.Live()[2]
	lost := stale.Metric(t, "carillon_claims_lost_total")
	next := slices.Clone(verbs)
	for i := range next {
		next[i].Every, next[i].Phase = 5, (time.Now().Unix()+1)%5 // from now on, most of what it knows is wrong
	}
	c.Change(t, m, next...)
	c.StartRunner(t, m)
	cluster.PartOfSecond(t, 200*time.Millisecond)
	c.Stop(t, stale) // shorter than the silence: it stays a member, and an owner
	done := make(chan struct{})
	go func() {
		defer close(done)
		cluster.Let(t, 1500*time.Millisecond)
		c.Cont(t, stale)
	}()
	c.Deploy(t, c.Live()[0], m) // its hint is not heard
	<-done
	cluster.Let(t, seconds(t, 6))
	after := stale.Metric(t, "carillon_claims_lost_total")
	h := c.Judge(t, m)[0]
	if after <= lost {
		t.Errorf("the stale controller lost no claim (%v before, %v after): it was never stale", lost, after)
	}
	t.Logf("a stale controller lost %v claims; verdicts %v", after-lost, cluster.Verdicts(h))
}

// TestAnUnparsableScheduleIsSetAside: a schedule made unparsable by hand in the database. Its neighbours run on time, it
// is reported wherever one would look, and a deploy mends it.
func TestAnUnparsableScheduleIsSetAside(t *testing.T) {
	t.Parallel()
	c := settled(t)
	m, _ := c.Up(t, append(cluster.Verbs(40, "v"), cluster.Verb{Name: "broken"})...)
	ref := m.Name + ".broken"
	cluster.Let(t, 1500*time.Millisecond)
	asked := time.Now()
	if _, err := c.SQL.Exec(t.Context(), `UPDATE carillon.cron_jobs SET schedule = 'every tuesday', version = version + 1 WHERE ref = $1`, ref); err != nil {
		t.Fatal(err)
	}
	var job *carillonv1.CronJob
	cluster.Eventually(t, 12*time.Second, "the set aside", func() error {
		resp, err := c.Any(t).Cron.GetCronJob(t.Context(), &carillonv1.GetCronJobRequest{Ref: ref})
		if err != nil {
			return err
		}
		if job = resp.GetCronJob(); job.GetEnabled() {
			return errorf("%s is enabled still", ref)
		}
		return nil
	})
	c.Note(ref, false, asked, time.Now())
	t.Logf("set aside %v after the change: %s", time.Since(asked).Round(time.Millisecond), job.GetReason())
	if !strings.Contains(job.GetReason(), "set aside") || !strings.Contains(job.GetReason(), "every tuesday") && !strings.Contains(job.GetReason(), "components") {
		t.Errorf("the cron job's reason is %q, want why it was set aside", job.GetReason())
	}
	aside := 0.0
	for _, k := range c.Live() {
		aside += k.Metric(t, "carillon_set_aside_total")
	}
	if aside == 0 {
		t.Error("no controller counts what was set aside")
	}
	health, err := c.Any(t).Info.GetHealth(t.Context(), &carillonv1.GetHealthRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if health.GetOk() || !slices.ContainsFunc(health.GetChecks(), func(k *carillonv1.Check) bool { return !k.GetOk() && k.GetName() == "set aside" }) {
		t.Errorf("the doctor does not report that a cron job is set aside: %v", health)
	}
	cluster.Let(t, 2*time.Second)
	mended := time.Now()
	c.Change(t, m, m.Verbs...)
	c.StartRunner(t, m)
	resumed := time.Now()
	c.Deploy(t, c.Any(t), m)
	c.Note(ref, true, resumed, time.Now())
	cluster.Let(t, 2500*time.Millisecond)
	h := c.Judge(t, m)[0]
	demand(t, h, "v", "succeeded", "")
	if !slices.ContainsFunc(h.Rows, func(r checker.Row) bool { return r.Ref == ref && r.RunID != "" && r.StartedAt.After(mended) }) {
		t.Errorf("%s did not run after it was mended", ref)
	}
}
