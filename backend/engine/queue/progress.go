package queue

import (
	"context"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/engine/loop"
)

// The writer of progress keeps the last text of each run, and writes it now and then while the run executes. The end
// carries the last one, so that nothing is written after it.

const (
	progressGap   = 500 * time.Millisecond // between two texts of one run
	progressBatch = 1000
)

// Progress notes what a run says of itself; false: the run is not this controller's, or it has ended. It does not block.
func (q *Queue) Progress(id cron.RunID, text string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.runs[id]
	if r == nil || !r.began || r.ended {
		return false
	}
	if text = job.SafeProgress(text); text == "" || text == r.progress {
		return true
	}
	r.progress = text
	if _, waits := q.told[r]; !waits {
		q.told[r] = struct{}{}
		q.toldBell.Ring()
	}
	return true
}

func (q *Queue) writeProgress(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		batch, wait := q.takeProgress(time.Now())
		if len(batch) == 0 {
			loop.Rest(ctx, wait, q.toldBell)
			continue
		}
		stmt, cancel := loop.Statement(ctx)
		err := q.cfg.Store.PutProgress(stmt, batch)
		cancel()
		if err == nil {
			failures = 0
			continue
		}
		failures++ // what is lost here comes with the next text, or with the end
		q.log.WarnContext(ctx, "progress not written", "runs", len(batch), "error", err)
		loop.Rest(ctx, loop.Backoff(failures), nil)
	}
}

// takeProgress returns the texts that are to be written now; if there are none, how long to wait.
func (q *Queue) takeProgress(now time.Time) (batch []job.Progress, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = time.Minute
	for r := range q.told {
		if left := progressGap - now.Sub(r.toldAt); left > 0 {
			wait = min(wait, left)
			continue
		}
		if len(batch) == progressBatch {
			break
		}
		r.toldAt = now
		delete(q.told, r)
		batch = append(batch, job.Progress{ID: r.claimed.N, Run: r.id, Text: r.progress})
	}
	return batch, wait
}
