package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/store/internal/sqlc"
)

// Parents and children. Whoever makes, ends or cancels a child locks the parent's row first: of two last children that
// end in the same instant the second one sees that the first is gone, and wakes the parent.

// childrenOf parts ends from those of children.
func childrenOf(ends []job.End) (plain, children []job.End) {
	n := 0
	for _, e := range ends {
		if e.Parent != 0 {
			n++
		}
	}
	switch n {
	case 0:
		return ends, nil
	case len(ends):
		return nil, ends
	}
	plain, children = make([]job.End, 0, len(ends)-n), make([]job.End, 0, n)
	for _, e := range ends {
		if e.Parent != 0 {
			children = append(children, e)
		} else {
			plain = append(plain, e)
		}
	}
	return plain, children
}

// moveChildren ends children in a transaction, and says at the last child of a parent that it woke it.
func (s *Store) moveChildren(ctx context.Context, m *moving) (done []job.Ended, err error) {
	var parents []int64
	for _, e := range m.ends {
		parents = append(parents, e.Parent)
	}
	err = inTx(ctx, s.jobs.end, func(q *sqlc.Queries) error {
		if _, err := q.LockParents(ctx, unique64(parents)); err != nil {
			return err
		}
		if done, err = m.move(ctx, q); err != nil {
			return err
		}
		gone, last := counts{}, map[int64]int{}
		for i, d := range done {
			gone[d.Parent]++
			last[d.Parent] = i
		}
		woken, err := gone.drop(ctx, q)
		for _, w := range woken {
			done[last[w.ID]].Woken = w
		}
		return err
	})
	return done, err
}

// counts are numbers of children by parent; 0 is none.
type counts map[int64]int32

func (c counts) lists() (ids []int64, n []int32) {
	for id, count := range c {
		if id != 0 {
			ids, n = append(ids, id), append(n, count)
		}
	}
	return ids, n
}

// drop counts ended children off, and returns the parents that waited for the last of them.
func (c counts) drop(ctx context.Context, q *sqlc.Queries) (woken []job.Waiting, err error) {
	ids, n := c.lists()
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := q.DropChildren(ctx, sqlc.DropChildrenParams{Ids: ids, Counts: n})
	for _, r := range rows {
		if r.Woken {
			woken = append(woken, job.Waiting{
				ID: r.ID, Queue: r.QueueID, Shard: r.Shard, Priority: int(r.Priority), Due: r.DueAt.Time.UTC(), Expires: at(r.ExpiresAt),
			})
		}
	}
	return woken, err
}

func unique64(ids []int64) []int64 {
	seen := make(map[int64]bool, len(ids))
	var out []int64
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

const (
	treePage = 1000
	maxTree  = 20_000 // jobs below one that is cancelled, in one call
)

// CancelJob cancels a job: a waiting one at once; of a running one it is noted, and the answer names the controller that
// is to be told. The jobs below it are cancelled as well, after it, level by level: from its commit on it makes no
// further children. Where a call broke off in between, or the tree is larger than one call cancels, it may be made again.
//
// cron.ErrNotFound: there is none; cron.ErrPrecond: it has ended, and if it was cancelled, nothing lives below it.
func (s *Store) CancelJob(ctx context.Context, id job.ID, reason string) (job.Cancelling, error) {
	_, err := s.q(s.api).FindJob(ctx, sqlc.FindJobParams{ID: id.N, Salt: id.Salt})
	var root job.Cancelling
	childless := false
	var woken []job.Waiting
	if err == nil {
		var asked []sqlc.AskCancelRow
		if asked, woken, err = s.cancelJobs(ctx, []int64{id.N}, reason); err == nil && len(asked) == 0 {
			err = pgx.ErrNoRows // it has ended in between
		}
		if err == nil {
			root, childless = toCancelling(asked[0]), asked[0].Children == 0
		}
	}
	ended := error(nil)
	if errors.Is(err, pgx.ErrNoRows) {
		if root, ended, err = s.hasEnded(ctx, id); err == nil && root.State != job.Cancelled {
			err = ended
		}
	}
	if err != nil {
		return job.Cancelling{}, wrap("cancel a job", err)
	}
	if !childless {
		root.Tree, err = s.cancelBelow(ctx, id.N, reason)
	}
	root.Tree.Woken = append(root.Tree.Woken, woken...)
	if err == nil && root.Tree.Ended == 0 && len(root.Tree.Asked) == 0 {
		err = ended
	}
	return root, wrap("cancel a job", err)
}

// hasEnded says what became of a job that is not among the live ones, and how to refuse what was asked of it.
func (s *Store) hasEnded(ctx context.Context, id job.ID) (c job.Cancelling, refusal, err error) {
	j, err := s.GetJob(ctx, id)
	if err != nil {
		return c, nil, err
	}
	return job.Cancelling{ID: id, State: j.State, Run: j.Run}, fmt.Errorf("%w: %s has ended: %s", cron.ErrPrecond, id, j.State), nil
}

// cancelBelow cancels what lives below a job that is cancelled. With an error, some of it may be.
func (s *Store) cancelBelow(ctx context.Context, root int64, reason string) (tree job.Tree, err error) {
	if reason == "" {
		reason = "cancelled"
	}
	reason = "parent: " + reason
	n := 0
	for level := []int64{root}; len(level) > 0; {
		var next []int64
		for len(level) > 0 {
			parents := level[:min(len(level), treePage)]
			level = level[len(parents):]
			for after := int64(0); ; {
				var ids []int64
				err := s.jobTx(ctx, func(q *sqlc.Queries) (err error) {
					ids, err = q.ListChildren(ctx, sqlc.ListChildrenParams{Parents: parents, After: after, Page: treePage})
					return err
				})
				if err != nil {
					return tree, err
				}
				if len(ids) == 0 {
					break
				}
				if n += len(ids); n > maxTree {
					tree.More = true
					return tree, nil
				}
				asked, woken, err := s.cancelJobs(ctx, ids, reason)
				if err != nil {
					return tree, err
				}
				tree.Woken = append(tree.Woken, woken...)
				next = append(next, note(&tree, asked)...)
				after = ids[len(ids)-1]
			}
		}
		level = next
	}
	return tree, nil
}

// note adds cancelled jobs to a tree, and returns those that have children.
func note(tree *job.Tree, asked []sqlc.AskCancelRow) (parents []int64) {
	for _, r := range asked {
		if r.State == sqlc.CarillonJobStatusRunning {
			tree.Asked = append(tree.Asked, toCancelling(r))
		} else {
			tree.Ended++
		}
		if r.Children > 0 {
			parents = append(parents, r.ID)
		}
	}
	return parents
}

// cancelJobs cancels live jobs in one transaction: those that wait end, of those that run it is noted. The answers show
// the states before.
func (s *Store) cancelJobs(ctx context.Context, ids []int64, reason string) (asked []sqlc.AskCancelRow, woken []job.Waiting, err error) {
	_, err = again(ctx, func() (struct{}, error) {
		return struct{}{}, s.jobTx(ctx, func(q *sqlc.Queries) error {
			if err := lockParentsOf(ctx, q, ids); err != nil {
				return err
			}
			if asked, err = q.AskCancel(ctx, ids); err != nil {
				return err
			}
			var waiting []int64
			for _, r := range asked {
				if r.State != sqlc.CarillonJobStatusRunning {
					waiting = append(waiting, r.ID)
				}
			}
			woken, err = endWaiting(ctx, q, sqlc.EndWaitingParams{Ids: waiting, Text: cron.SafeText(reason)}, nil)
			return err
		})
	})
	return asked, woken, err
}

func toCancelling(r sqlc.AskCancelRow) job.Cancelling {
	c := job.Cancelling{ID: job.ID{N: r.ID, Salt: r.Salt}, State: job.State(r.State), Run: cron.RunID(r.RunID.Bytes), Controller: r.Controller, Queue: r.QueueID}
	if c.State != job.Running {
		c.State = job.Cancelled
	}
	return c
}

func lockParentsOf(ctx context.Context, q *sqlc.Queries, ids []int64) error {
	parents, err := q.ParentsOf(ctx, ids)
	if err != nil || len(parents) == 0 {
		return err
	}
	_, err = q.LockParents(ctx, parents)
	return err
}

// endWaiting ends waiting jobs whose parents are locked; it notes the ids of those that ended.
func endWaiting(ctx context.Context, q *sqlc.Queries, p sqlc.EndWaitingParams, ended *[]int64) ([]job.Waiting, error) {
	if len(p.Ids) == 0 {
		return nil, nil
	}
	rows, err := q.EndWaiting(ctx, p)
	if err != nil {
		return nil, err
	}
	gone := counts{}
	for _, r := range rows {
		gone[r.ParentID]++
		if ended != nil {
			*ended = append(*ended, r.ID)
		}
	}
	return gone.drop(ctx, q)
}

// fell cancels what lives below a job that ended as cancelled, and returns the runs that are to end. It is done after
// the end: what cannot be cancelled now goes on.
func (s *Store) fell(ctx context.Context, id int64) []job.Cancelling {
	tree, err := s.cancelBelow(ctx, id, "")
	if err != nil {
		s.log.WarnContext(ctx, "children of a cancelled job go on", "job", id, "error", err)
	}
	return tree.Asked
}

const fellPage = 100

// FellOrphans cancels what lives below jobs that were cancelled: each cancel does it after its own commit, and whoever
// does it may die in between. The answer has what is to be told, also with an error.
func (s *Store) FellOrphans(ctx context.Context) (tree job.Tree, err error) {
	roots, err := s.q(s.upkeep).ListUnfelled(ctx, fellPage)
	if err != nil {
		return tree, wrap("look for children of cancelled jobs", err)
	}
	for _, id := range roots {
		t, err := s.cancelBelow(ctx, id, "")
		tree.Ended += t.Ended
		tree.Asked, tree.Woken = append(tree.Asked, t.Asked...), append(tree.Woken, t.Woken...)
		if err != nil {
			return tree, wrap("cancel children of cancelled jobs", err)
		}
	}
	return tree, nil
}

// ExpireJobs ends ready jobs whose expiry has passed, as failed; others are left alone. It returns those that ended, and
// the parents that waited for the last of them.
func (s *Store) ExpireJobs(ctx context.Context, ids []int64) (gone []int64, woken []job.Waiting, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	ids = sortedByID(ids, func(id int64) int64 { return id })
	_, err = again(ctx, func() (struct{}, error) {
		gone, woken = nil, nil
		return struct{}{}, inTx(ctx, s.jobs.end, func(q *sqlc.Queries) (err error) {
			if err := lockParentsOf(ctx, q, ids); err != nil {
				return err
			}
			woken, err = endWaiting(ctx, q, sqlc.EndWaitingParams{Ids: ids, Expired: true, Text: "expired before an attempt could begin"}, &gone)
			return err
		})
	})
	if err != nil {
		return nil, nil, wrap("expire jobs", err)
	}
	return gone, woken, nil
}
