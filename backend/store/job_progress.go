package store

import (
	"context"

	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// PutProgress writes what runs say about themselves, in one statement. Of a run that is over, nothing is written; of two
// texts of one run, either.
func (s *Store) PutProgress(ctx context.Context, progress []job.Progress) error {
	if len(progress) == 0 {
		return nil
	}
	var p sqlc.PutProgressParams
	for _, g := range sortedByID(progress, func(g job.Progress) int64 { return g.ID }) {
		p.Ids = append(p.Ids, g.ID)
		p.RunIds = append(p.RunIds, uid(g.Run))
		p.Texts = append(p.Texts, job.SafeProgress(g.Text))
	}
	_, err := again(ctx, func() (struct{}, error) { return struct{}{}, s.q(s.jobs.end).PutProgress(ctx, p) })
	return wrap("write progress", err)
}
