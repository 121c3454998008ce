package main

import (
	"fmt"
	"strings"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

// pageSize is asked of every list; the server's own limit is the same.
const pageSize = 1000

// runsCmd groups what shows runs.
type runsCmd struct {
	Ls    runsLsCmd    `cmd:"" help:"List runs: those executing first, then the ledger, newest slot first."`
	Watch runsWatchCmd `cmd:"" help:"Print runs as they end."`
}

// runJSON is a run, or a range of skipped slots, for programs.
type runJSON struct {
	RunID      string  `json:"run_id"`
	Ref        string  `json:"ref"`
	Slot       *string `json:"slot"`
	SlotTo     *string `json:"slot_to"`
	StartedAt  *string `json:"started_at"`
	EndedAt    *string `json:"ended_at"`
	Verdict    string  `json:"verdict"` // empty while executing
	Controller string  `json:"controller"`
	Attempt    int32   `json:"attempt"`
	LatenessMS float64 `json:"lateness_ms"`
	Error      string  `json:"error"`
	Count      int64   `json:"count"` // of skipped slots
	Deployment string  `json:"deployment"`
	Kind       string  `json:"kind"`
	JobID      string  `json:"job_id,omitempty"` // that a fired slot became
}

func runRow(r *carillonv1.Run) runJSON {
	return runJSON{
		RunID: r.GetRunId(), Ref: r.GetRef(), Slot: stamp(r.GetSlot()), SlotTo: stamp(r.GetSlotTo()), StartedAt: stamp(r.GetStartedAt()),
		EndedAt: stamp(r.GetEndedAt()), Verdict: verdictName(r.GetVerdict()), Controller: r.GetController(), Attempt: r.GetAttempt(),
		LatenessMS: r.GetLatenessMs(), Error: r.GetError(), Count: r.GetCount(), Deployment: r.GetDeployment(), Kind: r.GetKind(), JobID: r.GetJobId(),
	}
}

func verdictName(v carillonv1.Verdict) string { return word(v.String(), "VERDICT_") }

// executing is how people name the runs that have no verdict yet.
const executing = "executing"

// parseVerdict reads a verdict's name.
func parseVerdict(name string) (carillonv1.Verdict, error) {
	if name == executing {
		return carillonv1.Verdict_VERDICT_UNSPECIFIED, nil
	}
	v, ok := carillonv1.Verdict_value["VERDICT_"+strings.ToUpper(name)]
	if !ok || v == 0 {
		known := []string{executing}
		for n := range int32(len(carillonv1.Verdict_name)) {
			if n > 0 {
				known = append(known, verdictName(carillonv1.Verdict(n)))
			}
		}
		return 0, usage{mend(fmt.Errorf("unknown verdict %q", name), "one of %s", strings.Join(known, ", "))}
	}
	return carillonv1.Verdict(v), nil
}

// manual is the kind of a run that a person started.
const manual = "manual"

// verdictCell is the verdict of a run for a person, with the number of skipped slots.
func verdictCell(r *carillonv1.Run) string {
	name := verdictName(r.GetVerdict())
	if name == "" {
		name = executing
	}
	if n := r.GetCount(); n > 1 {
		name += fmt.Sprintf(" x%d", n)
	}
	return name
}

func verdictColour(v carillonv1.Verdict) string {
	switch v {
	case carillonv1.Verdict_VERDICT_SUCCEEDED, carillonv1.Verdict_VERDICT_FIRED:
		return green
	case carillonv1.Verdict_VERDICT_FAILED, carillonv1.Verdict_VERDICT_TIMED_OUT, carillonv1.Verdict_VERDICT_LOST:
		return red
	case carillonv1.Verdict_VERDICT_UNSPECIFIED:
		return blue
	}
	return yellow
}

// lateCell is how long after its slot a run started.
func lateCell(r *carillonv1.Run) string {
	if r.GetStartedAt() == nil || r.GetKind() == manual { // which is late for nothing
		return "-"
	}
	return took(time.Duration(r.GetLatenessMs() * float64(time.Millisecond)))
}

// tookCell is how long a run took.
func tookCell(r *carillonv1.Run) string {
	if r.GetStartedAt() == nil || r.GetEndedAt() == nil || r.GetVerdict() == carillonv1.Verdict_VERDICT_FIRED {
		return "-"
	}
	return took(r.GetEndedAt().AsTime().Sub(r.GetStartedAt().AsTime()))
}

// slotCell is the slot, the range of slots, or when a person started it.
func slotCell(r *carillonv1.Run) string {
	if r.GetKind() == manual {
		return when(r.GetSlot()) + " (by hand)"
	}
	if r.GetCount() > 1 && r.GetSlotTo() != nil {
		return when(r.GetSlot()) + " .. " + r.GetSlotTo().AsTime().UTC().Format(time.TimeOnly)
	}
	return when(r.GetSlot())
}

// note is what went wrong, or the job that a fired slot became.
func note(r *carillonv1.Run) string {
	if r.GetJobId() != "" {
		return "job " + r.GetJobId()
	}
	return r.GetError()
}

func runTable(a *app, runs []*carillonv1.Run) {
	if len(runs) == 0 {
		fmt.Fprintln(a.stderr, "no runs")
		return
	}
	a.table([]string{"ref", "slot (UTC)", "late", "controller", "verdict", "took", "run", "error"},
		list(runs, func(r *carillonv1.Run) []string {
			return []string{r.GetRef(), slotCell(r), lateCell(r), dash(r.GetController()),
				a.paint(verdictColour(r.GetVerdict()), verdictCell(r)), tookCell(r), dash(r.GetRunId()), clean(note(r), 80)}
		}))
}

// pages collects up to limit items (0 = all) from a call that answers page by page.
func pages[T any](limit int, page func(size int32, token string) (items []T, next string, err error)) ([]T, error) {
	all := []T{}
	for token := ""; ; {
		size := int32(pageSize)
		if limit > 0 {
			size = int32(min(pageSize, limit-len(all)))
		}
		items, next, err := page(size, token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if next == "" || next == token {
			return all, nil
		}
		token = next
	}
}
