package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
)

// jobsShowCmd shows one job.
type jobsShowCmd struct {
	listing
	ID string `arg:"" name:"id" help:"The job's id."`
}

func (c *jobsShowCmd) Help() string {
	return `Examples:

  carillon jobs show j1k0000abc
  carillon jobs show j1k0000abc -o json | jq .output`
}

func (c *jobsShowCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Id: c.ID})
	if err != nil {
		return explainJob("show job", c.ID, err)
	}
	j := resp.GetJob()
	return c.print(a, jobRow(j), func() { showJob(a, j, time.Now()) })
}

func showJob(a *app, j *carillonv1.Job, now time.Time) {
	at := func(t *timestamppb.Timestamp) string {
		if t == nil {
			return ""
		}
		return when(t) + " UTC  (" + ago(t, now) + ")"
	}
	retries := fmt.Sprintf("%d of %d", j.GetAttempt(), j.GetMaxAttempts())
	if j.GetMaxAttempts() > 1 {
		retries += fmt.Sprintf(", backoff %s up to %s", lengthText(j.GetBackoff()), lengthText(j.GetBackoffCeiling()))
	}
	live := ""
	if j.GetChildren() > 0 {
		live = children(j) + " not ended"
	}
	for _, l := range [][2]string{
		{"job", j.GetId()}, {"ref", clean(j.GetRef(), 0)}, {"tenant", clean(j.GetTenant(), 0)},
		{"state", a.paint(stateColour(j.GetState()), stateCell(j))}, {"waits for", clean(j.GetWaitingFor(), 0)}, {"progress", clean(j.GetProgress(), 0)},
		{"priority", fmt.Sprint(j.GetPriority())}, {"tags", clean(strings.Join(j.GetTags(), ", "), 0)},
		{"created", at(j.GetCreatedAt())}, {"due", at(j.GetDueAt())}, {"slot", at(j.GetSlot())}, {"started", at(j.GetStartedAt())},
		{"ended", at(j.GetEndedAt())}, {"took", strings.Trim(jobTook(j), "-")}, {"expires", at(j.GetExpiresAt())},
		{"attempt", retries}, {"timeout", lengthText(j.GetTimeout())}, {"run", j.GetRunId()}, {"controller", j.GetController()},
		{"parent", j.GetParentId()}, {"children", live},
	} {
		if l[1] != "" {
			fmt.Fprintf(a.stdout, "%s  %s\n", a.paint(faint, fmt.Sprintf("%-14s", l[0])), l[1])
		}
	}
	for _, e := range j.GetErrors() {
		fmt.Fprintf(a.stdout, "%s  %s  attempt %d  %s: %s\n", a.paint(red, fmt.Sprintf("%-14s", "error")), when(e.GetAt()), e.GetAttempt(), e.GetVerdict(), clean(e.GetText(), 0))
	}
	showValue(a, "payload", j.GetPayload())
	showValue(a, "output", j.GetOutput())
}

// showValue prints JSON with a line for each member below its name, or nothing for none.
func showValue(a *app, name string, b []byte) {
	if len(b) == 0 {
		return
	}
	fmt.Fprintln(a.stdout, a.paint(faint, name))
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, b, "", "  "); err != nil {
		pretty.Reset()
		pretty.Write(b)
	}
	for line := range strings.Lines(pretty.String()) {
		text := strings.TrimLeft(line, " ")
		fmt.Fprintln(a.stdout, "  "+line[:len(line)-len(text)]+clean(text, 0))
	}
}
