package job

import (
	"fmt"
	"strings"
)

// Transition is one way from a state to another; an empty From is a job that is not there yet.
type Transition struct {
	From, To State
	When     string
}

// Transitions lists every change of state that there is. states.md is drawn from it, and tests hold Decide and the
// store against it.
var Transitions = []Transition{
	{"", Ready, "enqueued"},
	{"", Running, "enqueued where a runner is free"},
	{"", Blocked, "launched for a client, which runs it"},
	{Ready, Running, "claimed"},
	{Ready, Cancelled, "cancelled"},
	{Ready, Failed, "expired"},
	{Blocked, Ready, "its last child has ended"},
	{Blocked, Cancelled, "cancelled"},
	{Blocked, Succeeded, "its client says so"},
	{Blocked, Failed, "its client says so"},
	{Running, Succeeded, "succeeded"},
	{Running, Ready, "failed, timed out or lost: after a backoff"},
	{Running, Ready, "snoozed, or never began: not counted"},
	{Running, Ready, "awaits its children, and none lives: not counted"},
	{Running, Blocked, "awaits its children: not counted"},
	{Running, Failed, "no attempt left, failed for good, or it would expire"},
	{Running, Cancelled, "cancelled, and the run has ended"},
	{Failed, Ready, "re-driven"},
}

// Allowed says whether a job may go from one state to another.
func Allowed(from, to State) bool {
	for _, t := range Transitions {
		if t.From == from && t.To == to {
			return true
		}
	}
	return false
}

// Picture draws the transitions as a Mermaid diagram.
func Picture() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	name := func(s State, none string) string {
		if s == "" {
			return none
		}
		return string(s)
	}
	for _, t := range Transitions {
		fmt.Fprintf(&b, "    %s --> %s : %s\n", name(t.From, "[*]"), t.To, strings.ReplaceAll(t.When, ":", " -"))
	}
	for _, s := range States {
		if s.Ended() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	return b.String()
}
