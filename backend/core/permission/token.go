package permission

import "time"

// The types of documents that the API guards.
const (
	Jobs     = "io.cozy.jobs"
	Triggers = "io.cozy.triggers"
	Support  = "io.cozy.support"
)

// The workers that rules speak of.
const (
	sendmail  = "sendmail"
	konnector = "konnector"
)

// Kind says who holds a token.
type Kind string

const (
	App       Kind = "app"       // a web application
	Konnector Kind = "konnector" // one konnector: it knows its own triggers
	CLI       Kind = "cli"       // an operator: reserved workers and logs are open to it
)

// Kinds lists every kind.
var Kinds = []Kind{App, Konnector, CLI}

// Token is who asks. The zero Token may do nothing.
type Token struct {
	ID      string
	Tenant  string // whose documents it sees, and no others
	Domain  string // of its tenant, as people see it
	Kind    Kind
	Slug    string // of the application or the konnector
	Trigger string // id of the one trigger that a konnector runs for; empty: each trigger of its slug
	Scope   Set
	Expires time.Time // zero: never
}

// Expired says that the token is of no use at now, which is the database's time.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// CreatedBy is who made what the token makes, as cozyMetadata.createdByApp shows it.
func (t Token) CreatedBy() string {
	if t.Kind == CLI {
		return "CLI"
	}
	return t.Slug
}

// TriggerDoc is what decides about one trigger.
type TriggerDoc struct {
	ID        string
	Worker    string
	Konnector string // of its message, where it is one of worker konnector
}

// MayPushJob: a rule on jobs that is restricted to this worker; a rule on the whole type is not enough. A reserved
// worker is open to operators alone.
func (t Token) MayPushJob(worker string, reserved bool) bool {
	return (!reserved || t.Kind == CLI) && t.mayRun(Jobs, worker)
}

// mayRun: what makes a worker run names it. Only of an operator Everything says that it may run any.
func (t Token) mayRun(doctype, worker string) bool {
	return t.Scope.AllowsWorker(doctype, Post, worker) || t.Kind == CLI && t.Scope.Everything() && worker != ""
}

// MayForwardLogs: operators alone.
func (t Token) MayForwardLogs() bool { return t.Kind == CLI }

// MayListJobs is GET /jobs/queue, of all workers.
func (t Token) MayListJobs() bool { return t.Scope.AllowsType(Jobs, Get) }

// MayListJobsOf is GET /jobs/queue/:worker.
func (t Token) MayListJobsOf(worker string) bool {
	return t.Scope.Allows(Jobs, Get, Document{Worker: worker})
}

// MayReadJob is GET /jobs/:id.
func (t Token) MayReadJob(id, worker string) bool {
	return t.Scope.Allows(Jobs, Get, Document{ID: id, Worker: worker})
}

// MayPatchJob is PATCH /jobs/:id. That only jobs of clients can be patched is asked elsewhere.
func (t Token) MayPatchJob(id, worker string) bool {
	return t.Scope.Allows(Jobs, Patch, Document{ID: id, Worker: worker})
}

// MayPurge is DELETE /jobs/purge: a rule on all jobs.
func (t Token) MayPurge() bool { return t.Scope.AllowsType(Jobs, Delete) }

// MayMailSupport: its own type, or the right to make mails, that on all jobs included.
func (t Token) MayMailSupport() bool {
	return t.Scope.AllowsType(Support, Post) || t.Scope.Allows(Jobs, Post, Document{Worker: sendmail})
}

// MayMailCampaign: the right to push mails.
func (t Token) MayMailCampaign() bool { return t.mayRun(Jobs, sendmail) }

// MayCreateTrigger: a rule on triggers that is restricted to this worker (of a @client trigger it is "client"). A
// reserved worker is open to operators alone.
func (t Token) MayCreateTrigger(worker string, reserved bool) bool {
	return (!reserved || t.Kind == CLI) && t.mayRun(Triggers, worker)
}

// MayListTriggers: a rule on all triggers, or the list is of exactly one worker and a rule matches it.
func (t Token) MayListTriggers(workers []string) bool {
	if t.Scope.AllowsType(Triggers, Get) {
		return true
	}
	return len(workers) == 1 && t.Scope.Allows(Triggers, Get, Document{Worker: workers[0]})
}

// MayReadTrigger is GET of a trigger and of its state.
func (t Token) MayReadTrigger(d TriggerDoc) bool { return t.mayTrigger(Get, d) || t.owns(d) }

// MayListJobsOfTrigger is GET of a trigger's jobs. That the trigger is a konnector's own is not enough.
func (t Token) MayListJobsOfTrigger(d TriggerDoc) bool { return t.mayTrigger(Get, d) }

// MayPatchTrigger is PATCH of a trigger.
func (t Token) MayPatchTrigger(d TriggerDoc) bool { return t.mayTrigger(Patch, d) || t.owns(d) }

// MayDeleteTrigger is DELETE of a trigger.
func (t Token) MayDeleteTrigger(d TriggerDoc) bool { return t.mayTrigger(Delete, d) || t.owns(d) }

// MayLaunchTrigger is POST to a trigger's launch. That the trigger is a konnector's own is not enough.
func (t Token) MayLaunchTrigger(d TriggerDoc) bool { return t.mayTrigger(Post, d) }

func (t Token) mayTrigger(verb string, d TriggerDoc) bool {
	return t.Scope.Allows(Triggers, verb, Document{ID: d.ID, Worker: d.Worker})
}

// owns says that a konnector asks for its own trigger.
func (t Token) owns(d TriggerDoc) bool {
	if t.Kind != Konnector || d.ID == "" {
		return false
	}
	if t.Trigger != "" {
		return t.Trigger == d.ID
	}
	return t.Slug != "" && d.Worker == konnector && d.Konnector == t.Slug
}
