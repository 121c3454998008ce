package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/face/rpc"
)

// upkeep notes how the statements fare that every controller makes again and again by itself: its sweeps, its
// housekeeping, and what it reads to know what is due. A part that fails in one of them goes on with the next turn and
// says so once in its log; the doctor says it for as long as it lasts. All methods may be called concurrently.
type upkeep struct {
	mu    sync.Mutex
	works map[string]*work
}

// work is one such statement.
type work struct {
	answered time.Time // for the last time
	since    time.Time // it has failed since then; zero: it does not
	err      error
}

const (
	failingFor = 5 * time.Second  // shorter is a blip
	silentFor  = 30 * time.Second // of what is done each few seconds at most: it hangs
)

// note takes in how a statement went. One that was cut off by the end of its part says nothing.
func (u *upkeep) note(what string, often bool, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.works == nil {
		u.works = map[string]*work{}
	}
	w := u.works[what]
	if w == nil {
		w = &work{}
		u.works[what] = w
	}
	if often {
		w.answered = now
	}
	switch w.err = err; {
	case err == nil:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
	}
}

// check is the doctor's finding at an instant.
func (u *upkeep) check(now time.Time) rpc.Check {
	u.mu.Lock()
	defer u.mu.Unlock()
	var bad []string
	for what, w := range u.works {
		switch {
		case !w.since.IsZero() && now.Sub(w.since) >= failingFor:
			bad = append(bad, fmt.Sprintf("%s: fails for %s: %s", what, now.Sub(w.since).Round(time.Second), cron.SafeText(w.err.Error())))
		case !w.answered.IsZero() && now.Sub(w.answered) >= silentFor:
			bad = append(bad, fmt.Sprintf("%s: not done for %s", what, now.Sub(w.answered).Round(time.Second)))
		}
	}
	if len(bad) == 0 {
		return rpc.Check{Name: "upkeep", OK: true, Detail: "nothing fails"}
	}
	slices.Sort(bad)
	return rpc.Check{Name: "upkeep", Detail: strings.Join(bad, "; "),
		Hint: "what this controller does not sweep and read the others do, more slowly; the reason is above, or in its log"}
}

// noted and notedJobs are the store as the engines want it, with notes.
type (
	noted struct {
		named
		up *upkeep
	}
	notedJobs struct {
		jobs
		up *upkeep
	}
)

func (n noted) Unswept(ctx context.Context) (int, error) {
	unswept, err := n.named.Unswept(ctx)
	n.up.note("count silent controllers", true, err)
	return unswept, err
}

func (n noted) Scan(ctx context.Context) (overdue []int64, mine, stuck []cron.Run, err error) {
	overdue, mine, stuck, err = n.named.Scan(ctx)
	n.up.note("scan cron jobs", true, err)
	return overdue, mine, stuck, err
}

func (n noted) Sweep(ctx context.Context, stuck []cron.Run) ([]cron.Run, error) {
	freed, err := n.named.Sweep(ctx, stuck)
	n.up.note("sweep lost runs", false, err)
	return freed, err
}

func (n noted) Partitions(ctx context.Context, ahead, keep int) error {
	err := n.named.Partitions(ctx, ahead, keep)
	n.up.note("keep partitions", false, err)
	return err
}

func (n noted) Forget(ctx context.Context) error {
	err := n.named.Forget(ctx)
	n.up.note("forget what is old", false, err)
	return err
}

func (n notedJobs) FindLostJobs(ctx context.Context) ([]job.Lost, error) {
	lost, err := n.jobs.FindLostJobs(ctx)
	n.up.note("find lost jobs", true, err)
	return lost, err
}

func (n notedJobs) ListQueues(ctx context.Context) ([]job.Queue, error) {
	queues, err := n.jobs.ListQueues(ctx)
	n.up.note("list queues", true, err)
	return queues, err
}

func (n notedJobs) FetchWindow(ctx context.Context, cuts []job.Cut, shards []int32, ahead time.Duration, page int) ([]job.Waiting, time.Time, error) {
	rows, now, err := n.jobs.FetchWindow(ctx, cuts, shards, ahead, page)
	n.up.note("read waiting jobs", false, err)
	return rows, now, err
}

func (n noted) FetchEvents(ctx context.Context, shards []int32, older time.Duration, after int64, page int) ([]trigger.Published, bool, error) {
	found, more, err := n.named.FetchEvents(ctx, shards, older, after, page)
	n.up.note("read events", false, err)
	return found, more, err
}

func (n noted) CloseDebounces(ctx context.Context, page int) (trigger.Made, error) {
	made, err := n.named.CloseDebounces(ctx, page)
	n.up.note("close debounced windows", false, err)
	return made, err
}

func (n noted) ListShards(ctx context.Context, shards []int32, yield func([]cron.Job) error) (time.Time, error) {
	now, err := n.named.ListShards(ctx, shards, yield)
	n.up.note("list cron jobs", false, err)
	return now, err
}

func (n noted) ListRunners(ctx context.Context) ([]deployment.Runner, error) {
	runners, err := n.named.ListRunners(ctx)
	n.up.note("list runners", true, err)
	return runners, err
}
