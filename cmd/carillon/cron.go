package main

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	carillonv1 "carillon/proto/carillon/v1"
)

// cronCmd groups what is about cron jobs and schedules. Next and Explain work without a cluster.
type cronCmd struct {
	Ls      cronLsCmd      `cmd:"" help:"List cron jobs."`
	Show    cronShowCmd    `cmd:"" help:"Show one cron job."`
	Pause   cronPauseCmd   `cmd:"" help:"Stop the starts of a cron job; a run in flight goes on."`
	Resume  cronResumeCmd  `cmd:"" help:"Let a paused cron job start again, from its first slot after now."`
	Run     cronRunCmd     `cmd:"" help:"Start a run now, also while paused."`
	History cronHistoryCmd `cmd:"" help:"List the ended runs and skipped ranges of a cron job, newest first."`
	Next    cronNextCmd    `cmd:"" help:"Print the next slots of a schedule."`
	Explain cronExplainCmd `cmd:"" help:"Say a schedule in words."`
}

// cronJobJSON is a cron job for programs.
type cronJobJSON struct {
	Ref           string   `json:"ref"`
	Schedule      string   `json:"schedule"`
	TimeZone      string   `json:"time_zone"`
	NextExecution *string  `json:"next_execution"`
	State         string   `json:"state"`
	Paused        bool     `json:"paused"`
	Owners        []string `json:"owners"`
	Enabled       bool     `json:"enabled"`
	Reason        string   `json:"reason"`
	Deployment    string   `json:"deployment"`
	Version       int64    `json:"version"`
	Shard         int32    `json:"shard"`
	Description   string   `json:"description"`
	Timeout       string   `json:"timeout"`
	Catchup       string   `json:"catchup"`
	Overlap       string   `json:"overlap"`
	RemovedAt     *string  `json:"removed_at"`
	NextSlots     []string `json:"next_slots"`
	Current       *runJSON `json:"current"`
}

func cronJobRow(j *carillonv1.CronJob) cronJobJSON {
	row := cronJobJSON{
		Ref: j.GetRef(), Schedule: j.GetSchedule(), TimeZone: zoneName(j.GetTimeZone()), NextExecution: stamp(j.GetNextExecution()),
		State: j.GetState(), Paused: j.GetPaused(), Owners: append([]string{}, j.GetOwners()...), Enabled: j.GetEnabled(),
		Reason: j.GetReason(), Deployment: j.GetDeployment(), Version: j.GetVersion(), Shard: j.GetShard(),
		Description: j.GetDescription(), Catchup: word(j.GetCatchup().String(), "CATCHUP_"),
		Overlap: word(j.GetOverlap().String(), "OVERLAP_"), RemovedAt: stamp(j.GetRemovedAt()), NextSlots: stamps(j.GetNextSlots()),
	}
	if j.GetTimeout() != nil {
		row.Timeout = j.GetTimeout().AsDuration().String()
	}
	if j.GetCurrent() != nil {
		current := runRow(j.GetCurrent())
		row.Current = &current
	}
	return row
}

// word is the name of an enum's value as people write it; empty for the unspecified one.
func word(name, prefix string) string {
	name = strings.TrimPrefix(name, prefix)
	if name == "UNSPECIFIED" {
		return ""
	}
	return strings.ToLower(name)
}

func zoneName(zone string) string {
	if zone == "" {
		return "UTC"
	}
	return zone
}

// standing says in one or two words whether a cron job starts by itself.
func standing(j *carillonv1.CronJob) string {
	switch {
	case j.GetRemovedAt() != nil:
		return "removed"
	case j.GetPaused():
		return "paused"
	case !j.GetEnabled():
		return "stopped"
	}
	return "on"
}

// oneCronJob is the argument of the commands about one cron job.
type oneCronJob struct {
	Ref string `arg:"" help:"The cron job, as module.verb."`
}

// explain says which cron job is not there, in the same words whatever was tried.
func (c oneCronJob) explain(tried string, err error) error {
	if connect.CodeOf(err) == connect.CodeNotFound {
		return mend(fmt.Errorf("%s %s: there is none", tried, c.Ref), "`carillon cron ls` lists them, --removed also those whose verb is gone")
	}
	return fmt.Errorf("%s %s: %w", tried, c.Ref, err)
}

// cronShowCmd shows one cron job.
type cronShowCmd struct {
	oneCronJob
	listing
}

func (c *cronShowCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.cron.GetCronJob(ctx, &carillonv1.GetCronJobRequest{Ref: c.Ref})
	if err != nil {
		return c.explain("show cron job", err)
	}
	j := resp.GetCronJob()
	return c.print(a, cronJobRow(j), func() { showCronJob(a, j) })
}

func showCronJob(a *app, j *carillonv1.CronJob) {
	row := cronJobRow(j)
	lines := [][2]string{
		{"ref", row.Ref}, {"schedule", row.Schedule + "  (" + clean(row.Description, 200) + ")"}, {"time zone", row.TimeZone},
		{"next slots", spread(j.GetNextSlots())}, {"next execution", nextCell(j)},
		{"starts", standing(j)}, {"reason", clean(row.Reason, 400)}, {"state", row.State},
		{"timeout", row.Timeout}, {"catch-up", row.Catchup}, {"overlap", row.Overlap},
		{"owners", strings.Join(row.Owners, ", ")}, {"shard", fmt.Sprint(row.Shard)},
		{"deployment", row.Deployment}, {"version", fmt.Sprint(row.Version)},
	}
	if c := j.GetCurrent(); c != nil {
		lines = append(lines, [2]string{"run in flight", fmt.Sprintf("%s, slot %s, started %s on %s",
			c.GetRunId(), when(c.GetSlot()), when(c.GetStartedAt()), c.GetController())})
	}
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(a.stdout, "%s  %s\n", a.paint(faint, fmt.Sprintf("%-14s", l[0])), l[1])
		}
	}
}
