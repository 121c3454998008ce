package queue

import (
	"fmt"
	"strings"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
)

// What tests say to the database of the fake, and ask of it.

// pause sets the pause of all queues of a ref.
func (d *database) pause(ref string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.queues {
		if d.queues[i].Ref == ref {
			d.queues[i].Paused = on
		}
	}
}

func (d *database) limit(ref string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limits[ref] = n
	for i := range d.queues {
		if d.queues[i].Ref == ref {
			d.queues[i].Limit = n
		}
	}
}

// cancel is CancelJob: of a running job it says which run to cancel.
func (d *database) cancel(id int64) cron.RunID {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.jobs[id]
	if r.state != job.Running {
		delete(d.jobs, id)
		d.history = append(d.history, ended{Claimed: r.Claimed, state: job.Cancelled, at: d.now()})
		return cron.RunID{}
	}
	r.cancelled = true
	return r.Run
}

func (d *database) count(statement string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.statements[statement]
}

func (d *database) total() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.statements {
		n += c
	}
	return n
}

func (d *database) ended() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.history)
}

func (d *database) live() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.jobs)
}

func (d *database) firstEnd() ended {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.history[0]
}

func (d *database) runOf(id int64) cron.RunID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.jobs[id].Run
}

// unended is how many runs the controller knows.
func (c *controller) unended() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.runs)
}

// story is what became of a job: "failed x3", or its live state.
func (d *database) story(id int64) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ends []string
	for _, h := range d.history {
		if h.N == id {
			ends = append(ends, fmt.Sprintf("%s x%d", h.state, h.Attempt))
		}
	}
	if r := d.jobs[id]; r != nil {
		ends = append(ends, fmt.Sprintf("%s x%d", r.state, r.Attempt))
	}
	return strings.Join(ends, ", ")
}
