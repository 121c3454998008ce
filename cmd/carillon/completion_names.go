package main

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	carillonv1 "carillon/proto/carillon/v1"
)

// nameBound is how long a completion waits for the cluster. Without an answer nothing is offered.
const nameBound = 700 * time.Millisecond

// names offers what a flag or an argument with a name of the cluster's may be: refs, modules, tenants, workers, and the
// ids of triggers and tokens. words is the command line, whose --controller counts. Nothing for other flags.
func names(node *kong.Node, what string, words []string) []string {
	ofTriggers, ofTokens := strings.Contains(node.FullPath(), " triggers"), strings.Contains(node.FullPath(), " token")
	switch {
	case what == "state":
		var states []string
		for n := int32(1); n < int32(len(carillonv1.JobState_name)); n++ {
			states = append(states, stateName(carillonv1.JobState(n)))
		}
		return states
	case ofTriggers && (what == "kind" || what == "text"):
		return kindNames()
	case what == "event-verb":
		return eventVerbs
	case ofTriggers && (what == "id" || what == "worker"), ofTokens && what == "id":
	case what != "ref" && what != "module" && what != "tenant":
		return nil
	}
	r := &remote{URL: cmp.Or(valueOf(words, "--controller"), os.Getenv("CARILLON_CONTROLLER"), "http://127.0.0.1:7800"),
		Token: os.Getenv("CARILLON_ADMIN_TOKEN"), TokenFile: os.Getenv("CARILLON_ADMIN_TOKEN_FILE"), Timeout: nameBound}
	if file := valueOf(words, "--token-file"); file != "" {
		r.Token, r.TokenFile = "", file
	}
	r.Token = cmp.Or(valueOf(words, "--token"), r.Token)
	cl, err := r.dial()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), nameBound)
	defer cancel()
	switch {
	case ofTriggers && what != "tenant":
		return cl.triggerNames(ctx, what)
	case ofTokens && what != "tenant":
		return cl.tokenNames(ctx)
	}
	return cl.names(ctx, what, strings.Contains(node.FullPath(), " jobs") || what == "tenant")
}

// triggerNames are the ids of the first triggers, or the names of their workers.
func (cl *client) triggerNames(ctx context.Context, what string) []string {
	found := map[string]bool{}
	triggers, _ := cl.listTriggers(ctx, &carillonv1.ListTriggersRequest{}, pageSize)
	for _, t := range triggers {
		found[map[string]string{"id": t.GetId(), "worker": t.GetWorker()}[what]] = true
	}
	return shown(found)
}

func (cl *client) tokenNames(ctx context.Context) []string {
	found := map[string]bool{}
	resp, _ := cl.tokens.ListTokens(ctx, &carillonv1.ListTokensRequest{})
	for _, t := range resp.GetTokens() {
		found[strconv.FormatInt(t.GetId(), 10)] = true
	}
	return shown(found)
}

// shown are the names that a shell can be offered.
func shown(found map[string]bool) []string {
	delete(found, "")
	maps.DeleteFunc(found, func(name string, _ bool) bool { return clean(name, 0) != name })
	return slices.Sorted(maps.Keys(found))
}

// names asks the cluster; ofJobs: for a command about jobs.
func (cl *client) names(ctx context.Context, what string, ofJobs bool) []string {
	found := map[string]bool{}
	add := func(ref, tenant string) {
		module, _, _ := strings.Cut(ref, ".")
		found[map[string]string{"ref": ref, "module": module, "tenant": tenant}[what]] = true
	}
	if ofJobs {
		if resp, err := cl.jobs.ListQueues(ctx, &carillonv1.ListQueuesRequest{}); err == nil {
			for _, q := range resp.GetQueues() {
				add(q.GetRef(), q.GetTenant())
			}
		}
	}
	if what == "module" {
		if resp, err := cl.deploy.ListDeployments(ctx, &carillonv1.ListDeploymentsRequest{}); err == nil {
			for _, d := range resp.GetDeployments() {
				found[d.GetModule()] = true
			}
		}
	}
	if what == "ref" && !ofJobs {
		refs, _ := pages(0, func(size int32, token string) (refs []string, next string, err error) {
			resp, err := cl.cron.ListCronJobs(ctx, &carillonv1.ListCronJobsRequest{PageSize: size, PageToken: token})
			for _, j := range resp.GetCronJobs() {
				refs = append(refs, j.GetRef())
			}
			return refs, resp.GetNextPageToken(), err
		})
		for _, ref := range refs {
			add(ref, "")
		}
	}
	return shown(found)
}

// valueOf is what stands behind a flag on the command line; empty when it is not there.
func valueOf(words []string, flag string) string {
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, flag+"="); ok {
			return value
		}
		if word == flag && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}
