package queue

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

// Three controllers over a database whose statements and answers get lost, with verbs that fail, one controller that
// dies and one that is fenced: every job that was acknowledged ends exactly once, none stays behind.
func TestEveryAcknowledgedJobEndsOnceWhateverFails(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			d := newDatabase()
			rnd := rand.New(rand.NewPCG(seed, 7)) // under d.mu
			chance := func(n int) bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				return rnd.IntN(n) == 0
			}
			list, _ := d.three(t, 20, func(ctx context.Context, c Call) job.Outcome {
				lasting(time.Duration(1+c.Job.N%40)*time.Millisecond)(ctx, c)
				if chance(4) {
					return job.Outcome{Verdict: cron.Failed, Text: "chance", After: 50 * time.Millisecond}
				}
				return job.Outcome{Verdict: cron.Succeeded}
			})
			var calm atomic.Bool
			for _, c := range list {
				c.store.breaks(func(s string, done bool) error {
					switch {
					case calm.Load() || !chance(20):
						return nil
					case done || chance(2):
						return lostAnswer{}
					}
					return errAway
				})
			}
			acked := map[int64]bool{}
			for i := range 600 {
				out, err := list[i%2].Enqueue(t.Context(), []job.New{{Ref: "m.v", Priority: i % 1000, Retry: job.Retry{Attempts: 1000, Backoff: time.Millisecond, Ceiling: time.Second}}})
				if err == nil && out[0].Err == nil {
					acked[out[0].N] = true
				}
				switch i {
				case 200:
					list[2].stop()
					list[0].OnRing(shards(0, 2), nil)
					list[1].OnRing(shards(1, 2), nil)
				case 300:
					list[1].Fence()
					list[1].runners.cancelAll("fenced")
				case 350:
					list[1].Unfence()
				case 400:
					d.mu.Lock()
					d.silent["2"] = true
					d.mu.Unlock()
				}
				wait(time.Duration(i%3) * time.Millisecond)
			}
			calm.Store(true)
			wait(3 * time.Minute)
			d.mu.Lock()
			defer d.mu.Unlock()
			ends := map[int64]int{}
			for _, h := range d.history {
				ends[h.N]++
				if h.state != job.Succeeded {
					t.Errorf("seed %d: job %d %s: %s", seed, h.N, h.state, h.text)
				}
			}
			for id := range acked {
				if ends[id] != 1 {
					t.Errorf("seed %d: job %d ended %d times", seed, id, ends[id])
				}
			}
			for id, r := range d.jobs {
				t.Errorf("seed %d: job %d is left %s at %s", seed, id, r.state, r.controller)
			}
			if len(acked) < 400 {
				t.Errorf("seed %d: only %d were acknowledged", seed, len(acked))
			}
			for _, c := range list[:2] {
				c.mu.Lock()
				if len(c.runs)+len(c.plan.held)+len(c.sweeping)+c.calls+c.claims+c.inserts != 0 {
					t.Errorf("seed %d: %d runs, %d held, %d sweeping, %d calls, %d claims are left", seed, len(c.runs), len(c.plan.held), len(c.sweeping), c.calls, c.claims)
				}
				for _, po := range c.plan.pools {
					if po.reserved != 0 {
						t.Errorf("seed %d: %d places are reserved for nobody", seed, po.reserved)
					}
				}
				for _, v := range c.plan.verbs {
					if v.running != 0 {
						t.Errorf("seed %d: %d runs of %s are counted", seed, v.running, v.ref)
					}
				}
				c.mu.Unlock()
			}
		})
	}
}
