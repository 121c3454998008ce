package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/engine/loop"
)

// The sweeper looks for runs that were lost: past their hard timeout, under a controller that fell silent, or in this
// controller's own name without its knowing of them. What becomes of their jobs is decided as for any other end, and
// written by their run id, so that nobody is declared dead by what was read a moment ago.

const (
	ownScan  = time.Minute      // own runs are looked at so often without any doubt
	doubtFor = 30 * time.Second // and in each pass so long after an outcome was unknown
	ownPage  = 1000
	ownText  = "unknown here"
)

func (q *Queue) sweep(ctx context.Context) {
	nextOwn := time.Now().Add(loop.Jittered(ownScan))
	var last time.Time
	var took time.Duration // a pass reads the whole table, with all that a held snapshot keeps there
	for ctx.Err() == nil {
		loop.Rest(ctx, loop.Jittered(min(time.Second, q.cfg.Sweep)), nil)
		q.mu.Lock()
		doubt := !q.doubtAt.IsZero() && time.Since(q.doubtAt) < doubtFor
		q.mu.Unlock()
		if ctx.Err() != nil || time.Since(last) < max(q.cfg.Sweep, care(took)) && q.cfg.Unswept() == 0 {
			continue
		}
		last = time.Now()
		err := q.sweepLost(ctx)
		if err == nil && (doubt || !time.Now().Before(nextOwn)) {
			err = q.sweepOwn(ctx)
			nextOwn = time.Now().Add(loop.Jittered(ownScan))
		}
		took = time.Since(last)
		if err != nil {
			q.log.WarnContext(ctx, "lost jobs not found", "error", err)
		}
	}
}

func (q *Queue) sweepLost(ctx context.Context) error {
	stmt, cancel := loop.Statement(ctx)
	lost, err := q.cfg.Lists.FindLostJobs(stmt)
	cancel()
	if err != nil {
		return fmt.Errorf("find lost jobs: %w", err)
	}
	for i := range lost {
		l := &lost[i]
		o := job.Outcome{Verdict: cron.Lost, Text: "controller " + l.Controller + " fell silent"}
		if l.TimedOut {
			o = job.Outcome{Verdict: cron.TimedOut, Text: "hard timeout"}
		}
		q.mu.Lock()
		r := q.runs[l.Run]
		stuck := r != nil && l.TimedOut && r.began && !r.ended
		if r == nil {
			q.free(l, o)
		}
		q.mu.Unlock()
		if stuck { // its call will not end by itself, it seems
			q.done(l.Run, o)
			q.cfg.Caller.Cancel(l.Run, o.Text)
		}
	}
	if len(lost) > 0 { // one line: a controller that died may have had thousands
		q.log.WarnContext(ctx, "lost jobs found", "jobs", len(lost), "first", lost[0].ID, "ref", lost[0].Ref, "controller", lost[0].Controller)
	}
	loop.RingAll(q.endBells)
	return nil
}

// sweepOwn frees runs in this controller's name that it does not know: a claim or an insert was done and its answer
// lost. They were never called, so the attempt does not count.
func (q *Queue) sweepOwn(ctx context.Context) error {
	for after := int64(0); ctx.Err() == nil; {
		stmt, cancel := loop.Statement(ctx)
		own, err := q.cfg.Lists.FindOwnJobs(stmt, after, ownPage)
		cancel()
		if err != nil {
			return fmt.Errorf("find own jobs: %w", err)
		}
		q.mu.Lock()
		for _, c := range own {
			if q.runs[c.Run] == nil {
				q.free(&job.Lost{Claimed: c}, job.Outcome{Verdict: cron.Lost, Text: ownText, Requeue: true})
			}
		}
		q.mu.Unlock()
		loop.RingAll(q.endBells)
		if len(own) < ownPage {
			break
		}
		after = own[len(own)-1].N
	}
	return nil
}

// free decides what becomes of a lost job; q.mu is held.
func (q *Queue) free(l *job.Lost, o job.Outcome) {
	if _, ok := q.sweeping[l.Run]; ok {
		return
	}
	q.sweeping[l.Run] = struct{}{}
	step := job.Decide(l.Claimed, o, fromMicros(q.now()), rand.Float64())
	q.log.Debug("job swept", "ref", l.Ref, "job", l.N, "run", l.Run, "controller", l.Controller, "reason", o.Text, "becomes", step.State)
	q.end(waitingEnd{End: job.End{ID: l.N, Run: l.Run, Outcome: o, Step: step, Parent: l.Parent}, lost: l})
}
