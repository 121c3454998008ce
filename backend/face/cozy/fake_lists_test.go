package cozy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
)

func (f *fake) ListTriggers(_ context.Context, tenant string, kinds []trigger.Kind, workers []string, after int64, page int) (list []trigger.Trigger, err error) {
	err = f.enter()
	defer f.mu.Unlock()
	for _, t := range f.triggers {
		if t.Tenant == tenant && t.ID > after && (len(kinds) == 0 || slices.Contains(kinds, t.Kind)) && (len(workers) == 0 || slices.Contains(workers, t.Worker) || slices.Contains(workers, t.Ref)) && len(list) < page {
			list = append(list, *t)
		}
	}
	return list, err
}

func (f *fake) FindTriggerByMessage(_ context.Context, tenant string, workers []string, is func([]byte) bool) (trigger.Trigger, error) {
	err := f.enter()
	defer f.mu.Unlock()
	for _, t := range f.triggers {
		if err == nil && t.Tenant == tenant && (slices.Contains(workers, t.Worker) || slices.Contains(workers, t.Ref)) && is(t.Message) {
			return *t, nil
		}
	}
	return trigger.Trigger{}, errors.Join(err, fmt.Errorf("%w: no message is the one", cron.ErrNotFound))
}

func (f *fake) ListTriggerJobs(_ context.Context, id int64, page int) (list []job.Job, err error) {
	err = f.enter()
	defer f.mu.Unlock()
	for _, j := range slices.Backward(f.jobs) {
		if j.TriggerID == id && len(list) < page {
			list = append(list, *j)
		}
	}
	return list, err
}

func (f *fake) TriggerStates(_ context.Context, ids []int64) (map[int64]trigger.State, error) {
	err := f.enter()
	defer f.mu.Unlock()
	f.summed++
	states := map[int64]trigger.State{}
	for _, j := range f.jobs {
		if slices.Contains(ids, j.TriggerID) {
			s := states[j.TriggerID]
			ran := trigger.Ran{ID: j.ID.String(), Status: stateOf(*j), Started: j.Started, Manual: envelopeOf(*j).Manual}
			if n := len(j.Errors); n > 0 {
				ran.Error = j.Errors[n-1].Text
			}
			s.Add(ran)
			states[j.TriggerID] = s
		}
	}
	return states, err
}

func (f *fake) Purge(_ context.Context, tenant string, workers []string, older time.Duration) (n int, err error) {
	err = f.enter()
	defer f.mu.Unlock()
	f.purged = append(f.purged, fmt.Sprint(tenant, workers, older))
	return 42, err
}
