package cluster

import (
	"context"
	"time"

	"carillon/backend/core/ring"
)

// verdict of the other members on a question asked at a local time.
type verdict struct {
	asked     time.Time
	everybody bool // all of them are cut off from the database too
}

// ask starts the question to all others whether their beats fail too.
func (w *watcher) ask(ctx context.Context) {
	w.asking = true
	asked, others := w.c.now(), w.others()
	w.work.Go(func() { w.verdicts <- verdict{asked, w.c.allInterrupted(ctx, others)} })
}

func (w *watcher) decide(ctx context.Context, v verdict) {
	w.asking = false
	if ctx.Err() != nil {
		return // the answers were cut short by our own end
	}
	if w.vigil.judge(v.asked, w.c.now(), v.everybody) {
		w.fence(ctx, w.c.Silent())
		return
	}
	if v.everybody && !w.sparing && !w.vigil.spared.IsZero() {
		w.sparing = true
		w.c.count(func(s *Stats) { s.Spared++ })
		w.c.cfg.Logger.WarnContext(ctx, "calls kept: no controller reaches the database", "silent", w.c.Silent(), "members", len(w.others())+1)
	}
}

func (w *watcher) fence(ctx context.Context, silent time.Duration) {
	w.c.count(func(s *Stats) { s.Fences++ })
	w.c.cfg.Logger.WarnContext(ctx, "silent for too long: calls are given up", "silent", silent)
	w.c.cfg.OnFence()
}

// allInterrupted asks all others at once, within patience. One that says no, or nothing, can sweep for all we know.
func (c *Cluster) allInterrupted(ctx context.Context, others []ring.Member) bool {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.patience())
	defer cancel()
	answers := make(chan bool, len(others))
	for _, m := range others {
		go func() { answers <- c.interrupted(ctx, m.Endpoint) }()
	}
	for range others {
		select {
		case yes := <-answers:
			if !yes {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// interrupted asks one, and after a moment once more: in an outage of the database two controllers stop a beat apart
// at most, so that one which said no may be just about to reach its silence.
func (c *Cluster) interrupted(ctx context.Context, endpoint string) bool {
	if yes, err := c.peers.Interrupted(ctx, endpoint); err == nil && yes {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(c.cfg.patience() / 2):
	}
	yes, err := c.peers.Interrupted(ctx, endpoint)
	return err == nil && yes
}
