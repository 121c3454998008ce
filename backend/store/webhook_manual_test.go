package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/trigger"
	"carillon/backend/store/storetest"
)

func withOptions(options string) func(*trigger.Trigger) {
	return func(t *trigger.Trigger) { t.Options = []byte(options) }
}

// mustWaitAs demands a job's priority, in its row as in what is said of it, and that its queue is of the lane of that priority.
func mustWaitAs(t *testing.T, db storetest.DB, what string, w job.Waiting, priority int) {
	t.Helper()
	var stored, lane int
	var queue int32
	var ref string
	db.Scan("SELECT j.priority, q.id, q.lane, q.ref FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id WHERE j.id = $1", []any{w.ID}, &stored, &queue, &lane, &ref)
	if stored != priority || w.Priority != priority || queue != w.Queue || lane != job.Lane(priority) || ref != "m.v" {
		t.Errorf("%s: priority %d (said: %d), queue %d (%d) of %s, lane %d; want %d in lane %d", what, stored, w.Priority, queue, w.Queue, ref, lane, priority, job.Lane(priority))
	}
}

var manualCases = []struct {
	name   string
	manual bool
	change func(*trigger.Trigger)
	want   int
}{
	{"manual", true, func(*trigger.Trigger) {}, 1000},
	{"manual, other options", true, withOptions(`{"max_exec_count": 2}`), 1000},
	{"manual, the default priority given", true, withOptions(`{"priority": 50}`), 500},
	{"by a machine", false, func(*trigger.Trigger) {}, 500},
	{"by a machine, other options", false, withOptions(`{"max_exec_count": 2}`), 500},
}

// What somebody waits for goes before everything else, unless the trigger's maker gave a priority.
func TestManualDeliveryComesFirst(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		for _, tc := range manualCases {
			tr := makeTrigger(t, db, trigger.Webhook, "", tc.change)
			for range 2 { // its queue is not there, and is
				d := deliver(t, db, tr, `{}`, tc.manual, "same")
				if !d.Existing {
					mustWaitAs(t, db, tc.name, d.Ready[0], tc.want)
				}
				d = deliver(t, db, tr, `{}`, tc.manual, "")
				mustWaitAs(t, db, tc.name, d.Ready[0], tc.want)
			}
		}
		if n := countJobs(db); n != 3*len(manualCases) {
			t.Errorf("%d jobs of %d deliveries", n, 3*len(manualCases))
		}
	})
}

// So does the job of a window in which any delivery was manual, whoever ends it; windows that end together do not mix.
func TestManualWindowComesFirst(t *testing.T) {
	inZones(t, func(t *testing.T, db storetest.DB) {
		want := map[int64]int{}
		what := map[int64]string{}
		var all []trigger.Trigger
		for _, tc := range manualCases {
			tr := makeTrigger(t, db, trigger.Webhook, "", tc.change, debounced(time.Minute))
			all, want[tr.ID], what[tr.ID] = append(all, tr), tc.want, tc.name
			deliver(t, db, tr, `1`, tc.manual, "")
			deliver(t, db, tr, `2`, false, "")
		}
		check := func(jobs []job.Waiting, n int) {
			t.Helper()
			if len(jobs) != n {
				t.Errorf("%d jobs of %d windows", len(jobs), n)
			}
			for _, w := range jobs {
				var of int64
				db.Scan("SELECT trigger_id FROM carillon.jobs WHERE id = $1", []any{w.ID}, &of)
				mustWaitAs(t, db, what[of], w, want[of])
			}
		}
		endWindows(db)
		check(closeWindows(t, db, 100).Jobs, len(all))
		for i, tr := range all {
			deliver(t, db, tr, `3`, manualCases[i].manual, "")
		}
		endWindows(db)
		for i, tr := range all {
			check(deliver(t, db, tr, fmt.Sprint(i), false, "").Ready, 1) // ends the window that is over
		}
	})
}

// A queue that a delivery brings is paused by what covers it.
func TestQueueOfAManualDeliveryIsCovered(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	tr := makeTrigger(t, db, trigger.Webhook, "")
	if _, err := db.PauseQueues(t.Context(), "t", "m.v", "now"); err != nil {
		t.Fatal(err)
	}
	d := deliver(t, db, tr, `{}`, true, "")
	queues, err := db.ListQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if !q.Paused {
			t.Errorf("queue %d, lane %d, is not paused", q.ID, q.Lane)
		}
	}
	if len(queues) != 2 || len(claimAll(t, db, d.Job)) != 0 {
		t.Errorf("%d queues, or the job began", len(queues))
	}
}

// Many that come at once, when the queue is not there yet, find one, and none gets lost on the way.
func TestFirstManualDeliveriesShareOneQueue(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	var hooks []trigger.Trigger
	for n := range 4 {
		hooks = append(hooks, makeTrigger(t, db, trigger.Webhook, "", func(t *trigger.Trigger) { t.Domain = fmt.Sprint(n) }))
	}
	var mu sync.Mutex
	var ready []job.Waiting
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			d, err := db.DeliverWebhook(context.Background(), hooks[n%len(hooks)].Key, []byte(`{}`), true, "")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			ready = append(ready, d.Ready...)
		})
	}
	wg.Wait()
	for _, w := range ready {
		mustWaitAs(t, db, "at once", w, 1000)
	}
	var queues int
	if db.Scan("SELECT count(*) FROM carillon.queues WHERE lane = 4", nil, &queues); queues != 1 || len(ready) != 40 || countJobs(db) != 40 {
		t.Errorf("%d queues, %d jobs answered, %d made", queues, len(ready), countJobs(db))
	}
}
