package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// FinishJobs ends jobs for good by their run ids and moves them into the history, in one statement, and answers each
// end. Limits and unique keys are given back in it. The context should outlive a shutdown; after any error the same ends
// may be sent again. A job that was cancelled meanwhile and did not succeed ends cancelled.
func (s *Store) FinishJobs(ctx context.Context, ends []job.End) ([]job.Ended, error) {
	return s.endJobs(ctx, ends, "finish jobs", s.finishJobs)
}

// RetryJobs gives jobs back for another attempt, by their run ids, in one statement, as FinishJobs ends them. A job that
// was cancelled meanwhile ends cancelled instead. Where the step says Blocked, the job waits until its last live child has
// ended; without any it is ready at once. One that is repeated after an unknown outcome is not accepted: the job
// is ready already.
func (s *Store) RetryJobs(ctx context.Context, ends []job.End) ([]job.Ended, error) {
	return s.endJobs(ctx, ends, "retry jobs", s.retryJobs)
}

type endFunc func(context.Context, []job.End) ([]job.Ended, error)

// endJobs isolates a row that the database refuses by halving, and ends it with a safe text: it must not stay running.
func (s *Store) endJobs(ctx context.Context, ends []job.End, tried string, end endFunc) ([]job.Ended, error) {
	if len(ends) == 0 {
		return nil, nil
	}
	ends = oncePerRun(sortedByID(ends, func(e job.End) int64 { return e.ID }))
	done, err := end(ctx, ends)
	if err = wrap(tried, err); !isData(err) {
		return done, err
	}
	if len(ends) > 1 {
		half := len(ends) / 2
		first, err1 := s.endJobs(ctx, ends[:half], tried, end)
		second, err2 := s.endJobs(ctx, ends[half:], tried, end)
		return append(first, second...), errors.Join(err1, err2)
	}
	s.log.ErrorContext(ctx, "end of a job refused by the database", "job", ends[0].ID, "run", ends[0].Run, "error", err)
	bad := ends[0]
	bad.Outcome.Output, bad.Outcome.Text = nil, "what the run said was refused by the database"
	done, err = end(ctx, []job.End{bad})
	return done, wrap(tried, err)
}

// oncePerRun drops ends that stand twice in a sorted batch.
func oncePerRun(ends []job.End) []job.End {
	seen := make(map[cron.RunID]bool, len(ends))
	out := make([]job.End, 0, len(ends))
	for _, e := range ends {
		if !seen[e.Run] {
			seen[e.Run] = true
			out = append(out, e)
		}
	}
	return out
}

func (s *Store) finishJobs(ctx context.Context, ends []job.End) ([]job.Ended, error) {
	done, missing, err := s.moveJobs(ctx, ends, false)
	if err != nil || len(missing) == 0 {
		return done, err
	}
	late, err := s.lateJobs(ctx, missing)
	return append(done, late...), err
}

// moveJobs moves ended jobs into the history; ifCancelled: those alone that somebody cancelled in the run. Children are
// ended apart, so that nobody else waits for the lock of a parent.
func (s *Store) moveJobs(ctx context.Context, ends []job.End, ifCancelled bool) (done []job.Ended, missing []job.End, err error) {
	ends, children := childrenOf(ends)
	var felled []int
	if len(ends) > 0 {
		m := moving{ends: ends, ifCancelled: ifCancelled}
		if done, err = again(ctx, func() ([]job.Ended, error) { return m.move(ctx, s.q(s.jobs.end)) }); err != nil {
			return nil, nil, err
		}
		missing, felled = m.missing, m.felled
	}
	if len(children) > 0 {
		m := moving{ends: children, ifCancelled: ifCancelled, children: true}
		more, err := again(ctx, func() ([]job.Ended, error) { return s.moveChildren(ctx, &m) })
		if err != nil {
			return done, nil, err
		}
		for _, i := range m.felled {
			felled = append(felled, len(done)+i)
		}
		done, missing = append(done, more...), append(missing, m.missing...)
	}
	for _, i := range felled {
		done[i].Asked = s.fell(ctx, done[i].ID)
	}
	return done, missing, nil
}

// moving is one batch on its way into the history.
type moving struct {
	ends                  []job.End
	ifCancelled, children bool
	missing               []job.End // of the last try
	felled                []int     // of the last try: places of the answers of those that ended as cancelled and have children
}

func (m *moving) move(ctx context.Context, q *sqlc.Queries) ([]job.Ended, error) {
	p := sqlc.FinishJobsParams{IfCancelled: m.ifCancelled, Children: m.children}
	states := make(map[cron.RunID]job.State, len(m.ends))
	for _, e := range m.ends {
		if m.ifCancelled {
			e.Step.State = job.Cancelled
		}
		states[e.Run] = e.Step.State
		verdict, text := fault(e)
		p.Ids = append(p.Ids, e.ID)
		p.RunIds = append(p.RunIds, uid(e.Run))
		p.States = append(p.States, string(e.Step.State))
		p.Outputs = append(p.Outputs, notNull(e.Outcome.Output))
		p.Verdicts = append(p.Verdicts, verdict)
		p.Texts = append(p.Texts, text)
	}
	p.Progress = progressOf(m.ends)
	rows, err := q.FinishJobs(ctx, p)
	if err != nil {
		return nil, err
	}
	done := make([]job.Ended, len(rows), len(m.ends))
	accepted := make(map[cron.RunID]bool, len(rows))
	m.felled = nil
	for i, r := range rows {
		run := cron.RunID(r.RunID.Bytes)
		accepted[run] = true
		done[i] = job.Ended{ID: r.ID, Run: run, Accepted: true, State: states[run], Queue: r.QueueID}
		if r.Cancelled && states[run] != job.Succeeded {
			done[i].State = job.Cancelled
		}
		if r.ParentID != nil {
			done[i].Parent = *r.ParentID
		}
		if done[i].State == job.Cancelled && r.Children > 0 {
			m.felled = append(m.felled, i)
		}
	}
	m.missing = without(m.ends, accepted)
	return done, nil
}

func (s *Store) retryJobs(ctx context.Context, ends []job.End) ([]job.Ended, error) {
	var p sqlc.RetryJobsParams
	for _, e := range ends {
		verdict, text := fault(e)
		p.Ids = append(p.Ids, e.ID)
		p.RunIds = append(p.RunIds, uid(e.Run))
		p.DelaysMs = append(p.DelaysMs, inMs(e.Step.Delay))
		p.Counted = append(p.Counted, e.Step.Counted)
		p.Awaits = append(p.Awaits, e.Step.State == job.Blocked)
		p.Verdicts = append(p.Verdicts, verdict)
		p.Texts = append(p.Texts, text)
	}
	p.Progress = progressOf(ends)
	rows, err := again(ctx, func() ([]sqlc.RetryJobsRow, error) { return s.q(s.jobs.end).RetryJobs(ctx, p) })
	if err != nil {
		return nil, err
	}
	done := make([]job.Ended, len(rows), len(ends))
	accepted := make(map[cron.RunID]bool, len(rows))
	for i, r := range rows {
		run := cron.RunID(r.RunID.Bytes)
		accepted[run] = true
		done[i] = job.Ended{ID: r.ID, Run: run, Accepted: true, State: job.State(r.State), Due: r.DueAt.Time.UTC(), Queue: r.QueueID}
	}
	missing := without(ends, accepted)
	if len(missing) == 0 {
		return done, nil
	}
	cancelled, missing, err := s.moveJobs(ctx, missing, true)
	if done = append(done, cancelled...); err != nil || len(missing) == 0 {
		return done, err
	}
	for i := range missing {
		missing[i].Step.State = job.Cancelled // as an earlier try may have ended it
	}
	late, err := s.lateJobs(ctx, missing)
	return append(done, late...), err
}

// progressOf is the last texts of some runs; nil where none said anything, which spares the statement a column.
func progressOf(ends []job.End) (texts []string) {
	if !slices.ContainsFunc(ends, func(e job.End) bool { return e.Progress != "" }) {
		return nil
	}
	for _, e := range ends {
		texts = append(texts, job.SafeProgress(e.Progress))
	}
	return texts
}

// fault is what enters the job's list of errors; an empty verdict: nothing.
func fault(e job.End) (verdict, text string) {
	v, text, ok := e.Fault()
	if !ok {
		return "", ""
	}
	return string(v), cron.SafeText(text)
}

func without(ends []job.End, accepted map[cron.RunID]bool) []job.End {
	if len(accepted) == len(ends) {
		return nil
	}
	var missing []job.End
	for _, e := range ends {
		if !accepted[e.Run] {
			missing = append(missing, e)
		}
	}
	return missing
}

// lateJobs tells ends that were written before (their answer got lost) from ends of runs that are not current.
func (s *Store) lateJobs(ctx context.Context, ends []job.End) ([]job.Ended, error) {
	var p sqlc.GetEndedJobRunsParams
	for _, e := range ends {
		p.Ids = append(p.Ids, e.ID)
		p.RunIds = append(p.RunIds, uid(e.Run))
	}
	rows, err := s.q(s.jobs.end).GetEndedJobRuns(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("look ended jobs up: %w", err)
	}
	states := make(map[cron.RunID]job.State, len(rows))
	for _, r := range rows {
		states[cron.RunID(r.RunID.Bytes)] = job.State(r.State)
	}
	late := make([]job.Ended, len(ends))
	for i, e := range ends {
		state := states[e.Run]
		same := state != "" && (state == e.Step.State || state == job.Cancelled) // another state is the sweep's
		late[i] = job.Ended{ID: e.ID, Run: e.Run, Accepted: same, Repeated: same, State: state}
	}
	return late, nil
}
