package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"carillon/backend/core/cron"
	carillonv1 "carillon/proto/carillon/v1"
)

func (s *server) ListRuns(ctx context.Context, req *carillonv1.ListRunsRequest) (*carillonv1.ListRunsResponse, error) {
	bound := proto.CloneOf(req)
	bound.PageSize, bound.PageToken = 0, ""
	of := bind("runs", bound)
	after, err := readToken[cron.RunCursor](of, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	f := cron.RunFilter{Ref: req.GetRef(), Module: req.GetModule(), Controller: req.GetController(), From: fromStamp(req.GetFrom()), To: fromStamp(req.GetTo())}
	executing, ended := len(req.GetVerdicts()) == 0, len(req.GetVerdicts()) == 0
	for _, v := range req.GetVerdicts() {
		if v == carillonv1.Verdict_VERDICT_UNSPECIFIED {
			executing = true
		} else if int(v) <= len(cron.Verdicts) {
			f.Verdicts, ended = append(f.Verdicts, cron.Verdicts[v-1]), true
		}
	}
	page := pageSize(req.GetPageSize())
	var runs []cron.Run
	if executing && req.GetPageToken() == "" {
		if runs, err = s.executing(ctx, f, page); err != nil {
			return nil, err
		}
	}
	res := &carillonv1.ListRunsResponse{}
	if room := page - len(runs); ended && room > 0 {
		rows, err := s.Reader.ListRuns(ctx, f, after, room)
		if err != nil {
			return nil, err
		}
		runs = append(runs, rows...)
		if len(rows) == room {
			last := rows[room-1]
			res.NextPageToken = nextToken(of, cron.RunCursor{EndedAt: last.EndedAt, JobID: last.JobID, Slot: last.Slot})
		}
	} else if ended { // a page full of executing runs: the ledger follows, from its latest row
		res.NextPageToken = nextToken(of, cron.RunCursor{})
	}
	res.Runs = toRuns(runs)
	return res, nil
}

func (s *server) executing(ctx context.Context, f cron.RunFilter, page int) ([]cron.Run, error) {
	rows, err := s.Reader.ListExecuting(ctx, f, page)
	if err != nil {
		return nil, err
	}
	kept := rows[:0]
	for _, r := range rows {
		if (f.From.IsZero() || !r.Slot.Before(f.From)) && (f.To.IsZero() || r.Slot.Before(f.To)) {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

const (
	watchEvery   = 250 * time.Millisecond
	watchIdle    = 15 * time.Second // an empty message after so long without rows
	watchOverlap = 3 * time.Second  // statements that began earlier may commit later
	watchPage    = 1000
)

// WatchRuns follows the ledger by its end times. Its windows overlap, and what was sent already is left out.
func (s *server) WatchRuns(ctx context.Context, req *carillonv1.WatchRunsRequest, stream *connect.ServerStream[carillonv1.WatchRunsResponse]) error {
	now, err := s.Reader.Ping(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&carillonv1.WatchRunsResponse{}); err != nil { // the watcher knows that it is connected
		return err
	}
	w := watch{since: now, seen: map[watchKey]time.Time{}}
	sent := time.Now()
	for {
		rows, err := s.Reader.ListRunsSince(ctx, req.GetRef(), req.GetModule(), w.from(), watchPage)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if fresh := w.take(rows); len(fresh) > 0 || time.Since(sent) > watchIdle {
			if err := stream.Send(&carillonv1.WatchRunsResponse{Runs: toRuns(fresh)}); err != nil {
				return err
			}
			sent = time.Now()
		}
		if len(rows) == watchPage && w.moved {
			continue // more is waiting
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

type watchKey struct {
	job  int64
	slot time.Time
}

// watch remembers what one watcher has seen. A full page moves the window to its last row, so that a burst larger than
// a page is read on rather than again.
type watch struct {
	since time.Time // end of the latest row seen, or the start
	seen  map[watchKey]time.Time
	page  time.Time // where a full page ended
	moved bool
}

func (w *watch) from() time.Time {
	if !w.page.IsZero() {
		return w.page
	}
	return w.since.Add(-watchOverlap)
}

func (w *watch) take(rows []cron.Run) []cron.Run {
	start := w.from()
	var fresh []cron.Run
	for _, r := range rows {
		k := watchKey{r.JobID, r.Slot}
		if _, known := w.seen[k]; known || r.EndedAt.Before(w.since.Add(-watchOverlap)) {
			continue
		}
		w.seen[k] = r.EndedAt
		fresh = append(fresh, r)
	}
	w.page, w.moved = time.Time{}, false
	if len(rows) == watchPage {
		w.page = rows[len(rows)-1].EndedAt
		w.moved = w.page.After(start)
	}
	if n := len(rows); n > 0 && rows[n-1].EndedAt.After(w.since) {
		w.since = rows[n-1].EndedAt
	}
	for k, at := range w.seen {
		if at.Before(w.since.Add(-2 * watchOverlap)) {
			delete(w.seen, k)
		}
	}
	return fresh
}
