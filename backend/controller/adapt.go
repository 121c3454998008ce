package controller

import (
	"context"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/deployment"
	"carillon/backend/core/ring"
	"carillon/backend/engine/cluster"
	"carillon/backend/engine/deploy"
	"carillon/backend/engine/scheduler"
	"carillon/backend/engine/sweep"
	"carillon/backend/face/rpc"
	"carillon/backend/store"
)

// named is the store in the name of one controller, with its timing: what each engine asks for, and no more.
type named struct {
	*store.Store
	key string
	t   Timing
}

var (
	_ cluster.Store   = beats{}
	_ sweep.Store     = named{}
	_ sweep.Keeper    = named{}
	_ scheduler.Store = named{}
	_ deploy.Store    = named{}
	_ rpc.Reader      = named{}
	_ rpc.Runners     = named{}
)

func (n named) StartCronJobs(ctx context.Context, claims []cron.Claim) ([]cron.Claimed, error) {
	return n.Store.StartCronJobs(ctx, n.key, n.t.HardGrace, claims)
}

func (n named) SkipCronJobs(ctx context.Context, claims []cron.Claim) error {
	return n.Store.SkipCronJobs(ctx, n.key, claims)
}

func (n named) FireCronJobs(ctx context.Context, claims []cron.Claim) ([]cron.Firing, error) {
	return n.Store.FireCronJobs(ctx, n.key, claims)
}

const (
	overdueAfter = 5 * time.Second  // anybody may claim what is later
	ownAfter     = 10 * time.Second // a run in our own name of which we know nothing, is not ours, after this
)

func (n named) Unswept(ctx context.Context) (int, error) {
	return n.Store.CountUnsweptControllers(ctx, n.t.Lease)
}

func (n named) Scan(ctx context.Context) (overdue []int64, mine, stuck []cron.Run, err error) {
	return n.Store.ScanCronJobs(ctx, n.key, overdueAfter, ownAfter, n.t.Lease)
}

func (n named) Sweep(ctx context.Context, stuck []cron.Run) ([]cron.Run, error) {
	return n.Store.SweepCronJobs(ctx, n.key, n.t.Lease, n.t.Silence, stuck)
}

func (n named) Retire(ctx context.Context) error { return n.Store.RetireControllers(ctx, n.t.Lease) }

func (n named) Partitions(ctx context.Context, ahead, keep int) error {
	if _, err := n.Store.CreateRunPartitions(ctx, ahead); err != nil {
		return err
	}
	if _, err := n.Store.DropRunPartitions(ctx, keep); err != nil {
		return err
	}
	if _, err := n.Store.CreateJobPartitions(ctx, ahead); err != nil {
		return err
	}
	_, err := n.Store.DropJobPartitions(ctx, keep)
	return err
}

const (
	keysPage     = 10_000
	keepTriggers = 24 * time.Hour // deleted ones: as long as an idempotency key may name them
)

// Forget drops what nobody asks for any more: runners and deployments, deleted triggers, and the keys of jobs that have
// expired.
func (n named) Forget(ctx context.Context) error {
	if err := n.Store.Forget(ctx); err != nil {
		return err
	}
	if _, err := n.Store.ForgetTriggers(ctx, keepTriggers); err != nil {
		return err
	}
	for {
		if dropped, err := n.Store.ForgetJobKeys(ctx, keysPage); err != nil || dropped < keysPage {
			return err
		}
	}
}

func (n named) ListRunners(ctx context.Context) ([]deployment.Runner, error) {
	return n.Store.ListRunners(ctx, 4*n.t.RunnerBeat)
}

func (n named) LiveControllers(ctx context.Context) ([]ring.Member, error) {
	return n.Store.LiveControllers(ctx, n.t.Silence)
}

func (n named) ListControllers(ctx context.Context) ([]ring.Status, time.Time, error) {
	return n.Store.ListControllers(ctx, n.t.Silence)
}

// beats is the store as the cluster engine wants it.
type beats struct{ named }

func (b beats) Register(ctx context.Context, c ring.Controller) error {
	_, err := b.Store.RegisterController(ctx, c)
	return err
}

func (b beats) Beat(ctx context.Context) (ring.Beat, error) {
	return b.Store.BeatController(ctx, b.key, b.t.Silence)
}

func (b beats) SetState(ctx context.Context, s ring.State) error {
	return b.Store.SetControllerState(ctx, b.key, s)
}

func (b beats) Deregister(ctx context.Context) error { return b.Store.DeregisterController(ctx, b.key) }
