package cluster

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/integration/checker"
)

// stuck are rows that nobody looks after: due for longer than 15 s, or executing past the deadline or under a silent
// controller for longer than lease and sweep need.
const stuck = `
	SELECT j.ref, CASE WHEN j.state = 'idle' THEN 'idle and due since ' || j.next_execution
		ELSE 'executing run ' || j.run_id || ' of ' || j.controller || ' until ' || j.deadline_at END
	FROM carillon.cron_jobs j
	WHERE EXISTS (SELECT FROM carillon.controllers c WHERE c.state = 'live' AND c.heartbeat_at > now() - interval '3 s' AND c.alive_since < now() - interval '15 s')
	  AND (j.enabled AND j.state = 'idle' AND j.next_execution < now() - interval '15 s'
	    OR j.state = 'executing' AND (j.deadline_at < now() - interval '15 s'
	      OR NOT EXISTS (SELECT FROM carillon.controllers c WHERE c.key = j.controller AND c.heartbeat_at > now() - interval '15 s')))
	LIMIT 20`

// watch samples the rows each second; a database that is away has no stuck rows.
func (c *Cluster) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one, cancel := context.WithTimeout(ctx, 3*time.Second)
		rows, err := c.SQL.Query(one, stuck)
		if err == nil {
			var found []checker.Sample
			found, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (s checker.Sample, err error) {
				s.At = time.Now()
				return s, r.Scan(&s.Ref, &s.Text)
			})
			c.mu.Lock()
			c.samples = append(c.samples, found...)
			c.mu.Unlock()
		}
		cancel()
	}
}

const (
	pulse    = 200 * time.Millisecond
	stallMin = 400 * time.Millisecond // a pulse so late, or the simplest commit so slow, is the machine's doing
)

// A table of our own that nobody else locks: what writing it takes is what the disk and the processors take.
const pulseTable = `CREATE SCHEMA drill; CREATE TABLE drill.pulse (at timestamptz NOT NULL); INSERT INTO drill.pulse VALUES (now())`

// feel notes when the machine stood still: when this very process was not run, or the simplest commit took long. Then what
// is late says nothing about the cluster. Row locks and long statements of the product do not touch it.
func (c *Cluster) feel(ctx context.Context) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		one, cancel := context.WithTimeout(ctx, 3*time.Second)
		_, err := c.SQL.Exec(one, "UPDATE drill.pulse SET at = now()")
		cancel()
		now := time.Now()
		slow := asked.Sub(last) > stallMin || err == nil && now.Sub(asked) > stallMin
		if slow && ctx.Err() == nil {
			c.Fault(checker.Fault{Kind: checker.Load, From: last, To: now, Recovery: 2 * time.Second})
		}
		last = now
	}
}

// strained shows for how long the machine stood still or was crowded.
func (c *Cluster) strained(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	n, sum := 0, time.Duration(0)
	for _, f := range c.faults[c.felt:] {
		if f.Kind == checker.Load {
			n++
			sum += f.To.Sub(f.From)
		}
	}
	if c.felt = len(c.faults); n > 0 {
		t.Logf("the machine stood still or was crowded %d times, for %v in all: what was late then is not judged", n, sum.Round(time.Millisecond))
	}
}

const (
	crowdWork = 20 * time.Millisecond // of a processor, each second
	crowdMost = 3                     // it takes so many times as long where others want the processors, too
)

// crowded notes when others took the processors: when a little work took much longer than it takes. It is done while the
// cluster rests, long after a second's starts: what the cluster itself needs is no excuse.
func (c *Cluster) crowded(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		now := time.Now()
		timer := time.NewTimer(now.Truncate(time.Second).Add(time.Second + 700*time.Millisecond).Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		began := time.Now()
		spent, ok := threadCPU()
		if !ok {
			return
		}
		for used := spent; used-spent < crowdWork && time.Since(began) < time.Second; used, _ = threadCPU() {
		}
		if took := time.Since(began); took > crowdMost*crowdWork {
			c.Fault(checker.Fault{Kind: checker.Load, From: began.Truncate(time.Second), To: began.Add(took), Recovery: 2 * time.Second})
		}
	}
}
