package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"carillon/backend/core/cron"
	"carillon/backend/engine/queue"
)

// metrics of one controller. Counts that an engine keeps anyway are read from it at the scrape.
type metrics struct {
	registry *prometheus.Registry
	lateness prometheus.Histogram
	verdicts *prometheus.CounterVec
	waits    prometheus.Histogram
	outcomes *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_lateness_seconds", Help: "Time from the slot to the start of its run, by the database's clock.",
			Buckets: []float64{.001, .002, .004, .008, .016, .032, .064, .128, .25, .5, 1, 2, 5, 15, 60, 300},
		}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_verdicts_total", Help: "Runs that this controller called, by verdict."}, []string{"verdict"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_job_wait_seconds", Help: "Time from a job's due time to the start of its run, by the database's clock.",
			Buckets: []float64{.0005, .001, .002, .004, .008, .016, .032, .064, .128, .25, .5, 1, 2, 5, 15, 60, 300},
		}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_job_runs_total", Help: "Runs of jobs that this controller called, by verdict."}, []string{"verdict"}),
	}
	for _, v := range []cron.Verdict{cron.Succeeded, cron.Failed, cron.TimedOut, cron.Cancelled} {
		m.verdicts.WithLabelValues(string(v))
		m.outcomes.WithLabelValues(string(v))
	}
	m.registry.MustRegister(m.lateness, m.verdicts, m.waits, m.outcomes, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) onStart(lateness time.Duration) { m.lateness.Observe(lateness.Seconds()) }

func (m *metrics) onVerdict(v cron.Verdict) { m.verdicts.WithLabelValues(string(v)).Inc() }

func (m *metrics) onJobStart(_ string, wait time.Duration) { m.waits.Observe(wait.Seconds()) }

func (m *metrics) onJobEnd(_ string, v cron.Verdict) { m.outcomes.WithLabelValues(string(v)).Inc() }

func (m *metrics) counter(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "carillon_" + name, Help: help}, read))
}

func (m *metrics) gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "carillon_" + name, Help: help}, read))
}

// observe registers what is read from the engines.
func (h *house) observe() {
	m := h.metrics
	m.counter("claims_tried_total", "Slots that this controller tried to claim.", func() float64 { return float64(h.scheduler.Stats().Claims) })
	m.counter("claims_won_total", "Slots that this controller claimed.", func() float64 { return float64(h.scheduler.Stats().Won) })
	m.counter("claims_lost_total", "Claims that another controller, or a change of the row, won.", func() float64 { return float64(h.scheduler.Stats().Lost) })
	m.counter("starts_total", "Runs started by this controller.", func() float64 { return float64(h.scheduler.Stats().Won) })
	m.counter("late_ends_total", "Ends that were refused because their run was not current any more.", func() float64 { return float64(h.scheduler.Stats().LateEnds) })
	m.counter("resets_total", "Refetches of all owned rows.", func() float64 { return float64(h.scheduler.Stats().Resets) })
	m.counter("set_aside_total", "Cron jobs set aside because their schedule cannot be used.", func() float64 { return float64(h.scheduler.Stats().SetAside) })
	m.gauge("runs_in_flight", "Runs of this controller without a written end.", func() float64 { return float64(h.scheduler.Stats().InFlight) })
	m.gauge("cron_jobs", "Cron jobs that this controller holds.", func() float64 { return float64(h.scheduler.Stats().Rows) })

	m.gauge("calls_in_flight", "Calls that runners have.", func() float64 { return float64(h.dispatch.Stats().InFlight) })
	m.gauge("calls_waiting", "Calls that wait for a runner.", func() float64 { return float64(h.dispatch.Stats().Waiting) })
	m.gauge("runner_streams", "Open streams to runners.", func() float64 { return float64(h.dispatch.Stats().Streams) })
	m.counter("calls_sent_total", "Calls sent to runners.", func() float64 { return float64(h.dispatch.Stats().Sent) })
	m.counter("calls_refused_total", "Calls that runners did not begin.", func() float64 { return float64(h.dispatch.Stats().Refused) })

	m.counter("sweeps_total", "Passes of the sweep.", func() float64 { return float64(h.sweep.Stats().Passes) })
	m.counter("lost_total", "Runs that this controller found lost.", func() float64 { s := h.sweep.Stats(); return float64(s.Lost + s.Unknown) })
	m.counter("timed_out_total", "Runs that this controller found past their hard timeout.", func() float64 { return float64(h.sweep.Stats().TimedOut) })
	m.gauge("overdue", "Enabled cron jobs more than 5 s overdue at the last scan.", func() float64 { return float64(h.sweep.Stats().Overdue) })

	m.counter("ring_changes_total", "Changes of the ring.", func() float64 { return float64(h.cluster.Stats().RingChanges) })
	m.gauge("ring_members", "Controllers in the ring.", func() float64 { return float64(h.cluster.Stats().Members) })
	m.counter("beats_total", "Heartbeats written.", func() float64 { return float64(h.cluster.Stats().Beats) })
	m.counter("failed_beats_total", "Heartbeats that failed.", func() float64 { return float64(h.cluster.Stats().FailedBeats) })
	m.counter("fences_total", "Times that this controller gave up its calls.", func() float64 { return float64(h.cluster.Stats().Fences) })
	m.gauge("clock_offset_seconds", "Database clock minus local clock.", func() float64 { return h.cluster.Stats().Offset.Seconds() })
	m.gauge("clock_error_seconds", "How far the offset may be wrong.", func() float64 { return h.cluster.Stats().Error.Seconds() })
	h.observeJobs()
}

// observeJobs registers what is read from the queue.
func (h *house) observeJobs() {
	m := h.metrics
	counts := []struct {
		name, help string
		read       func(queue.Stats) int64
	}{
		{"jobs_enqueued_total", "Jobs taken in, existing and refused ones included.", func(s queue.Stats) int64 { return s.Enqueued }},
		{"job_inserts_total", "Statements that took jobs in.", func(s queue.Stats) int64 { return s.Inserts }},
		{"jobs_started_at_once_total", "Jobs that were inserted running.", func(s queue.Stats) int64 { return s.StartedAtOnce }},
		{"job_claims_won_total", "Jobs that this controller claimed.", func(s queue.Stats) int64 { return s.Won }},
		{"job_claims_lost_total", "Claims of jobs that somebody else won.", func(s queue.Stats) int64 { return s.Lost }},
		{"jobs_succeeded_total", "Jobs that ended well here.", func(s queue.Stats) int64 { return s.Succeeded }},
		{"jobs_dead_total", "Jobs that ended without an attempt left.", func(s queue.Stats) int64 { return s.Dead }},
		{"jobs_cancelled_total", "Jobs that were cancelled while running here.", func(s queue.Stats) int64 { return s.Cancelled }},
		{"job_retries_total", "Failed runs that were given another attempt.", func(s queue.Stats) int64 { return s.Retried }},
		{"job_requeues_total", "Runs given back without counting: snoozed, no room, drained, fenced.", func(s queue.Stats) int64 { return s.Requeued }},
		{"job_late_ends_total", "Ends of jobs that were refused because their run was not current any more.", func(s queue.Stats) int64 { return s.Late }},
		{"jobs_swept_total", "Runs of jobs that this controller freed after another lost them.", func(s queue.Stats) int64 { return s.Swept }},
	}
	for _, c := range counts {
		m.counter(c.name, c.help, func() float64 { return float64(c.read(h.queue.Stats())) })
	}
	m.gauge("jobs_in_flight", "Jobs whose run has no written end.", func() float64 { return float64(h.queue.Stats().InFlight) })
	m.gauge("jobs_in_windows", "Jobs that this controller holds and that wait.", func() float64 {
		n := 0
		for _, lane := range h.queue.Stats().Waiting {
			n += lane
		}
		return float64(n)
	})
	m.gauge("job_oldest_due_seconds", "How long the job that has waited longest is due.", func() float64 { return h.queue.Stats().OldestDue.Seconds() })
}
