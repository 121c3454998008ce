package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/ring"
	"carillon/backend/engine/dispatch"
	"carillon/backend/engine/queue"
	"carillon/backend/face/rpc"
	carillonv1 "carillon/proto/carillon/v1"
)

// jobs is the store as the queue wants it.
type jobs struct{ named }

var (
	_ queue.Store    = jobs{}
	_ queue.Lists    = jobs{}
	_ queue.Capacity = (*catalog)(nil)
	_ queue.Hints    = jobHints{}
	_ rpc.Jobs       = (*house)(nil)
)

const lostPage = 1000 // lost runs of one pass

func (s jobs) EnqueueJobs(ctx context.Context, batch []job.Enqueue) ([]job.Enqueued, error) {
	return s.Store.EnqueueJobs(ctx, s.key, s.t.HardGrace, batch)
}

func (s jobs) ClaimJobs(ctx context.Context, claims []job.Claim, limitRef string) (won []job.Claimed, over []job.Claim, err error) {
	return s.Store.ClaimJobs(ctx, s.key, s.t.HardGrace, claims, limitRef)
}

func (s jobs) FindLostJobs(ctx context.Context) ([]job.Lost, error) {
	return s.Store.FindLostJobs(ctx, s.key, s.t.Lease, s.t.Silence, lostPage)
}

func (s jobs) FindOwnJobs(ctx context.Context, after int64, page int) ([]job.Claimed, error) {
	return s.Store.FindOwnJobs(ctx, s.key, ownAfter, after, page)
}

// jobCaller is the dispatcher as the queue wants it.
type jobCaller struct{ *dispatch.Dispatcher }

func (c jobCaller) Call(in queue.Call, done func(job.Outcome)) {
	c.Dispatch(dispatch.Call{
		Run: in.Run, Ref: in.Ref, Slot: in.Slot, Attempt: in.Attempt, Timeout: in.Timeout, GiveUp: in.GiveUp, Deployment: in.Deployment,
		IdempotencyKey: in.IdempotencyKey, Traceparent: in.Traceparent, Payload: in.Payload, Job: in.Job.String(), Tenant: in.Tenant, Envelope: in.Envelope,
	}, func(o dispatch.Outcome) {
		done(job.Outcome{
			Verdict: o.Verdict, Text: o.Error, Output: o.Payload, After: o.After, Final: o.Final, Snooze: o.Snooze, Await: o.Await,
			Requeue: !o.Sent,
		})
	})
}

// jobHints reaches the owners of other shards.
type jobHints struct{ h *house }

func (p jobHints) Owner(shard int32) string {
	if r := p.h.cluster.Ring(); r != nil {
		first, _ := r.Owners(shard)
		return first
	}
	return ""
}

func (p jobHints) Hint(ctx context.Context, owner string, queues []int32) error {
	m, ok := p.h.member(owner)
	if !ok {
		return nil // it left; who owns its shards now reads them anyway
	}
	_, err := p.h.peers.to(m.Endpoint).HintJobs(ctx, &carillonv1.HintJobsRequest{Queues: queues})
	return err
}

func (h *house) member(key string) (ring.Member, bool) {
	r := h.cluster.Ring()
	if r == nil {
		return ring.Member{}, false
	}
	members := r.Members()
	i := slices.IndexFunc(members, func(m ring.Member) bool { return m.Key == key })
	if i < 0 {
		return ring.Member{}, false
	}
	return members[i], true
}

// Enqueue takes jobs in, each with what its verb declares; a job that no verb would take is refused alone.
func (h *house) Enqueue(ctx context.Context, in []job.New) ([]job.Enqueued, error) {
	results := make([]job.Enqueued, len(in))
	good, places := make([]job.New, 0, len(in)), make([]int, 0, len(in))
	looked := false
	for i, n := range in {
		n, err := h.catalog.prepare(n)
		if errors.Is(err, cron.ErrNotFound) && !looked {
			looked = true
			h.lookAgain(ctx)
			n, err = h.catalog.prepare(in[i])
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		good, places = append(good, n), append(places, i)
	}
	if len(good) == 0 {
		return results, nil
	}
	answers, err := h.queue.Enqueue(ctx, good)
	for i, place := range places {
		if i < len(answers) {
			results[place] = answers[i]
		}
	}
	return results, err
}

// CancelJob ends a job that waits at once, and asks the controller that runs it to end its run; so for the jobs below it.
func (h *house) CancelJob(ctx context.Context, id job.ID, reason string) (job.State, error) {
	c, err := h.store.CancelJob(ctx, id, reason)
	h.queue.Arrived(c.Tree.Woken)
	h.stopRuns(ctx, reason, append(c.Tree.Asked, c))
	return c.State, err
}

// stopRuns ends the runs of cancelled jobs wherever they execute. It is a hint: a run that does not hear it ends by
// itself, and its job is cancelled then. The other controllers are told at the same time, each of all its runs; one that
// does not answer costs the caller no more than hintPatience.
func (h *house) stopRuns(ctx context.Context, reason string, runs []job.Cancelling) {
	elsewhere := map[string][]string{} // by endpoint
	for _, c := range runs {
		if c.State != job.Running || h.queue.Cancel(c.Run, reason) || c.Controller == h.key {
			continue
		}
		if m, ok := h.member(c.Controller); ok {
			elsewhere[m.Endpoint] = append(elsewhere[m.Endpoint], c.Run.String())
		}
	}
	if err := h.peers.cancelRuns(ctx, elsewhere, reason); err != nil {
		h.log.WarnContext(ctx, "cancels not heard", "error", err)
	}
}

// onAsked ends runs below a job that cancelled itself.
func (h *house) onAsked(asked []job.Cancelling) {
	go h.stopRuns(context.Background(), "parent cancelled", asked)
}

// onFired has the jobs that slots became claimed at once, and the runs that a firing cancelled ended.
func (h *house) onFired(fired []cron.Firing) {
	var made []job.Waiting
	var cancelled []job.Cancelling
	for _, f := range fired {
		if f.Made != (cron.Made{}) {
			made = append(made, job.Waiting{ID: f.Made.N, Queue: f.Queue, Priority: job.DefaultPriority, Due: later(f.At, f.Due)})
		}
		for _, c := range f.Cancelled {
			cancelled = append(cancelled, job.Cancelling{ID: job.ID(c.Made), State: job.Running, Run: c.Run, Controller: c.Controller})
		}
	}
	h.queue.Arrived(made)
	if len(cancelled) > 0 {
		go h.stopRuns(context.Background(), "a later slot came", cancelled)
	}
}

func (h *house) RetryJob(ctx context.Context, id job.ID) error {
	w, err := h.store.RetryJob(ctx, id)
	if err == nil {
		h.queue.Arrived([]job.Waiting{w})
	}
	return err
}

func (h *house) RedriveJobs(ctx context.Context, f job.Filter, limit int) (job.Redriven, error) {
	r, err := h.store.RedriveJobs(ctx, f, limit)
	h.queue.Arrived(r.Jobs)
	return r, err
}

// PauseJobs and ResumeJobs change queues, and have all controllers see it now.
func (h *house) PauseJobs(ctx context.Context, tenant, ref, reason string) (int, error) {
	queues, err := h.store.PauseQueues(ctx, tenant, ref, reason)
	if err == nil {
		h.queuesChanged(ctx)
	}
	return len(queues), err
}

func (h *house) ResumeJobs(ctx context.Context, tenant, ref string) (job.Resumed, error) {
	done, err := h.store.ResumeQueues(ctx, tenant, ref)
	if err == nil {
		h.queuesChanged(ctx)
	}
	return done, err
}

func (h *house) queuesChanged(ctx context.Context) {
	h.queue.Wake()
	h.hintJobs(ctx, &carillonv1.HintJobsRequest{Changed: true})
}

// hintJobs tells all other members; who does not hear it looks within a second.
func (h *house) hintJobs(ctx context.Context, req *carillonv1.HintJobsRequest) {
	h.peers.all(ctx, h.live(ctx), h.key, func(ctx context.Context, m ring.Member) error {
		_, err := h.peers.to(m.Endpoint).HintJobs(ctx, req)
		return err
	})
}

// HintJobs and CancelRuns are what other controllers say.
func (h *house) HintJobs(queues []int32, changed, events bool) {
	if events {
		h.triggers.Heard()
	}
	if changed {
		h.lookForRunners()
		h.queue.Wake()
	}
	if len(queues) > 0 {
		h.queue.Hinted(queues)
	}
}

func (h *house) CancelRuns(runs []cron.RunID, reason string) (known int) {
	for _, run := range runs {
		if h.queue.Cancel(run, reason) {
			known++
		}
	}
	return known
}

// WaitingFor is what jobs of a verb wait for before any of them can run, as far as this controller knows; empty: nothing
// of that kind.
func (h *house) WaitingFor(ref string) string {
	e, _, ok := h.catalog.find(ref)
	module, verb, _ := strings.Cut(ref, ".")
	switch {
	case ref == job.ClientRef:
		return "" // its client runs it
	case e == nil:
		return "a deployment of module " + module
	case !ok:
		return "a verb " + verb + " in module " + module
	case e.MinReplicas == 0:
		return "module " + module + ", which is scaled to 0"
	case !h.dispatch.Served(e.Key):
		return "a runner of deployment " + e.Key
	}
	return ""
}

const tidyEvery = time.Minute

// tidyJobs mends, now and then, what the statements about jobs leave when somebody dies between two of them. One controller
// at a time is enough.
func (h *house) tidyJobs(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tidyEvery):
		}
		if first := (jobHints{h}).Owner(0); first != h.key {
			continue
		}
		h.mendLimits(ctx)
		h.fellOrphans(ctx)
	}
}

// mendLimits counts the running jobs of limited verbs anew: their counts are exact by themselves, but for runs that began
// as the limit came.
func (h *house) mendLimits(ctx context.Context) {
	switch n, err := h.store.MendLimits(ctx, ""); {
	case err != nil && ctx.Err() == nil:
		h.log.WarnContext(ctx, "limits not counted", "error", err)
	case n > 0:
		h.log.InfoContext(ctx, "limits counted anew", "wrong", n)
	}
}

// fellOrphans cancels the children of cancelled jobs that whoever cancelled those did not come to.
func (h *house) fellOrphans(ctx context.Context) {
	tree, err := h.store.FellOrphans(ctx)
	h.queue.Arrived(tree.Woken)
	h.stopRuns(ctx, "parent cancelled", tree.Asked)
	switch n := tree.Ended + len(tree.Asked); {
	case err != nil && ctx.Err() == nil:
		h.log.WarnContext(ctx, "children of cancelled jobs not cancelled", "error", err)
	case n > 0:
		h.log.InfoContext(ctx, "children of cancelled jobs cancelled", "jobs", n)
	}
}

// lookAgain returns when the catalog has been read since the call: what it does not know may have been deployed a moment
// ago, by another controller. It takes a tenth of a second at most, however many ask.
func (h *house) lookAgain(ctx context.Context) {
	for began := time.Now(); !h.catalog.readSince(began) && ctx.Err() == nil; {
		if h.catalog.old() {
			h.refresh(ctx)
			continue
		}
		select {
		case <-time.After(readOften / 10):
		case <-ctx.Done():
		}
	}
}

// refresh reads the catalog; false: it could not be read, or nothing changed.
func (h *house) refresh(ctx context.Context) bool {
	changed, err := h.catalog.refresh(ctx, h.store)
	if err != nil {
		return false
	}
	if changed {
		h.queue.Wake()
	}
	return changed
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
