package rpc

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/core/cron"
	carillonv1 "carillon/proto/carillon/v1"
)

const (
	watchEvery   = 250 * time.Millisecond
	watchRecent  = 500 * time.Millisecond // most passes look back so far
	watchFull    = time.Second            // and one each second looks back further,
	watchOverlap = 6 * time.Second        // since a statement may commit for as long as its timeout (5 s) after it began
	watchIdle    = 15 * time.Second       // an empty message after so long without rows
	watchPage    = 1000
	maxWatchers  = 256
)

// WatchRuns follows the ledger: it sends the rows that commit after its first, empty message, each once.
func (s *server) WatchRuns(ctx context.Context, req *carillonv1.WatchRunsRequest, stream *connect.ServerStream[carillonv1.WatchRunsResponse]) error {
	if s.watchers.Add(1) > maxWatchers {
		s.watchers.Add(-1)
		return connect.NewError(connect.CodeResourceExhausted, errors.New("too many watches at this controller; ask another one"))
	}
	defer s.watchers.Add(-1)
	err := s.follow(ctx, req.GetRef(), req.GetModule(), func(runs []cron.Run) error {
		return stream.Send(&carillonv1.WatchRunsResponse{Runs: toRuns(runs)})
	})
	if ctx.Err() != nil {
		return nil // the watcher went away
	}
	return err
}

// follow reads the ledger by its end times, again and again, in windows that overlap; what was there before or was sent
// already is left out.
func (s *server) follow(ctx context.Context, ref, module string, send func([]cron.Run) error) error {
	now, err := s.Reader.Ping(ctx)
	if err != nil {
		return err
	}
	w := watch{since: now, seen: map[watchKey]time.Time{}}
	pass := func(back time.Duration, fresh func([]cron.Run) error) error {
		w.begin(back)
		for {
			rows, err := s.Reader.ListRunsSince(ctx, ref, module, w.at, watchPage)
			if err != nil {
				return err
			}
			if runs := w.take(rows); len(runs) > 0 {
				if err := fresh(runs); err != nil {
					return err
				}
			}
			if len(rows) < watchPage {
				return nil
			}
		}
	}
	if err := pass(watchOverlap, func([]cron.Run) error { return nil }); err != nil {
		return err
	}
	if err := send(nil); err != nil { // the watcher knows that it is connected
		return err
	}
	sent, full := time.Now(), time.Now()
	for {
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
		back := watchRecent
		if time.Since(full) >= watchFull {
			back, full = watchOverlap, time.Now()
		}
		err := pass(back, func(runs []cron.Run) error {
			sent = time.Now()
			return send(runs)
		})
		if err == nil && time.Since(sent) >= watchIdle {
			sent = time.Now()
			err = send(nil)
		}
		if err != nil {
			return err
		}
	}
}

type watchKey struct {
	job  int64
	slot time.Time
}

// watch remembers what one watcher has seen. A pass reads pages from a while before the latest end up to the latest row.
type watch struct {
	since time.Time // the latest end seen, or the start
	at    cron.RunCursor
	seen  map[watchKey]time.Time // ends, not older than the overlap
	swept time.Time              // since, when seen was swept
}

func (w *watch) begin(back time.Duration) { w.at = cron.RunCursor{EndedAt: w.since.Add(-back)} }

// take returns the rows of a page that were not seen before, and moves on behind it.
func (w *watch) take(rows []cron.Run) []cron.Run {
	var fresh []cron.Run
	for _, r := range rows {
		k := watchKey{r.JobID, r.Slot}
		if _, known := w.seen[k]; !known {
			w.seen[k] = r.EndedAt
			fresh = append(fresh, r)
		}
		w.at = cron.RunCursor{EndedAt: r.EndedAt, JobID: r.JobID, Slot: r.Slot}
	}
	if w.at.EndedAt.After(w.since) {
		w.since = w.at.EndedAt
	}
	if w.since.Sub(w.swept) >= watchFull {
		w.swept = w.since
		for k, at := range w.seen {
			if at.Before(w.since.Add(-watchOverlap)) {
				delete(w.seen, k)
			}
		}
	}
	return fresh
}
