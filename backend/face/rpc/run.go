package rpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"carillon/backend/core/cron"
	carillonv1 "carillon/proto/carillon/v1"
)

// runsCursor is where a page of runs ended: among those in flight (by start), or in the ledger (by end).
type runsCursor struct {
	Executing bool
	At        time.Time
	JobID     int64
	Slot      time.Time
}

// ListRuns lists the runs in flight, then the ledger. Each row of the ledger that was there when the listing began
// comes exactly once. A run that was listed in flight on an earlier page and ended since comes again, with its verdict.
func (s *server) ListRuns(ctx context.Context, req *carillonv1.ListRunsRequest) (*carillonv1.ListRunsResponse, error) {
	bound := proto.CloneOf(req)
	bound.PageSize, bound.PageToken = 0, ""
	of := bind("runs", bound)
	after, err := readToken[runsCursor](of, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	f, executing, ended, err := runFilter(req)
	if err != nil {
		return nil, err
	}
	page := pageSize(req.GetPageSize())
	res := &carillonv1.ListRunsResponse{}
	var runs []cron.Run
	if executing && (req.GetPageToken() == "" || after.Executing) {
		if runs, err = s.Reader.ListExecuting(ctx, f, after.At, after.JobID, page); err != nil {
			return nil, err
		}
		if len(runs) == page {
			last := runs[page-1]
			res.Runs, res.NextPageToken = toRuns(runs), nextToken(of, runsCursor{Executing: true, At: last.StartedAt, JobID: last.JobID})
			return res, nil
		}
		after = runsCursor{}
	}
	if ended {
		room := page - len(runs)
		rows, err := s.Reader.ListRuns(ctx, f, cron.RunCursor{EndedAt: after.At, JobID: after.JobID, Slot: after.Slot}, room)
		if err != nil {
			return nil, err
		}
		if len(rows) == room {
			last := rows[room-1]
			res.NextPageToken = nextToken(of, runsCursor{At: last.EndedAt, JobID: last.JobID, Slot: last.Slot})
		}
		runs = slices.DeleteFunc(runs, func(r cron.Run) bool { // ended between the two reads
			return slices.ContainsFunc(rows, func(e cron.Run) bool { return e.ID == r.ID })
		})
		runs = append(runs, rows...)
	}
	res.Runs = toRuns(runs)
	return res, nil
}

// runFilter reads what is asked for, and whether runs in flight and ended ones belong to it.
func runFilter(req *carillonv1.ListRunsRequest) (f cron.RunFilter, executing, ended bool, err error) {
	f = cron.RunFilter{Ref: req.GetRef(), Module: req.GetModule(), Controller: req.GetController()}
	if f.From, err = fromStamp("from", req.GetFrom()); err != nil {
		return f, false, false, err
	}
	if f.To, err = fromStamp("to", req.GetTo()); err != nil {
		return f, false, false, err
	}
	if len(req.GetVerdicts()) == 0 {
		return f, true, true, nil
	}
	for _, v := range req.GetVerdicts() {
		switch {
		case v == carillonv1.Verdict_VERDICT_UNSPECIFIED:
			executing = true
		case v < 0 || int(v) > len(cron.Verdicts):
			return f, false, false, invalid("verdicts", "there is no verdict %d", v)
		default:
			f.Verdicts, ended = append(f.Verdicts, cron.Verdicts[v-1]), true
		}
	}
	return f, executing, ended, nil
}
