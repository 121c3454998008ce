// Package cozy is the face towards web applications and konnectors: the Cozy Jobs API as JSON:API over HTTP, below
// /jobs/. The later document's triggers are canonical; the early one's launchers are the same rows in other words. It
// checks who asks (before a byte of a body is decoded) and what they send, translates between documents and nouns, and
// maps refusals to status codes.
//
// It must never know SQL, and decides nothing about when a job runs. Every error ends here: what the house and the
// store refuse by the closed list of refusals reaches the caller with its status; anything else is logged once under an
// id, and the caller reads that id alone. A token sees the documents of its tenant only: what is another's is answered
// as what is not there.
package cozy

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

// MaxBody bounds the body of a request, in bytes.
const MaxBody = 1 << 20

// Worker is what runs the jobs of a worker's name.
type Worker struct {
	Ref    string // module.verb
	Limits trigger.Limits
}

// Launch is how a trigger is made to fire by hand.
type Launch struct {
	Manual      bool
	Payload     json.RawMessage // nil: none
	Idempotency string          // the same launch again gives the same job
}

// House is what the controller does. A refusal for a rate limit is a *trigger.LimitError; all others are of the closed
// list in core/cron.
type House interface {
	// Draining says that this controller takes no work any more.
	Draining() bool
	// Worker finds the verb that a tenant's worker is; trigger.ClientWorker is not asked for.
	Worker(ctx context.Context, tenant, name string) (w Worker, ok bool)
	// Names are all names of the worker that a name is, its ref the last; none: it is no worker that is known now.
	Names(tenant, name string) []string
	// PushJob takes one job in, within the limit of its verb and domain. Its ref is one that Worker named. A request that
	// came before is answered by what it made, and counts nothing. An error that has a field to name is a *job.FieldError, or
	// offers FieldName() string.
	PushJob(ctx context.Context, domain string, n job.New) (job.Enqueued, error)
	// PushClientJob does the same for a job that no controller runs: it is running when this returns.
	PushClientJob(ctx context.Context, domain string, n job.New) (job.Enqueued, error)
	// EndClientJob ends such a job as succeeded or failed; ErrPrecond: it has ended.
	EndClientJob(ctx context.Context, id job.ID, as job.State, text string) error

	// CreateTrigger keeps a trigger that was checked, and gives it its id, key and times.
	CreateTrigger(ctx context.Context, t trigger.Trigger, idempotency string) (trigger.Trigger, error)
	// PatchTrigger changes a trigger as decide says, by the database's time, or not at all.
	PatchTrigger(ctx context.Context, tenant, key string, decide func(t trigger.Trigger, now time.Time) (trigger.Trigger, error)) (trigger.Trigger, error)
	DeleteTrigger(ctx context.Context, tenant, key string) error
	// LaunchTrigger makes a job of a trigger now, within the limit of its worker and domain.
	LaunchTrigger(ctx context.Context, tenant, key string, l Launch) (job.ID, error)
	// DeliverWebhook makes a job, or opens or feeds a debounce window, within the limit of webhooks. The payload is JSON
	// or empty. A delivery with an idempotency key that was seen makes nothing.
	DeliverWebhook(ctx context.Context, key string, payload []byte, manual bool, idempotency string) error
	// Purge removes ended jobs that were queued so long ago, but for the newest, and says how many, with an error, too: then
	// it may be asked again. Workers as of ListQueueJobs; none: all.
	Purge(ctx context.Context, tenant string, workers []string, older time.Duration) (int, error)
}

// Reader is what may be seen of the database. An empty tenant is not given.
type Reader interface {
	GetJob(ctx context.Context, id job.ID) (job.Job, error)
	// ListQueueJobs lists what has not ended, by its due time. A worker is a ref, or a name by which trigger.FindVerb finds
	// one among those of which the tenant had jobs; empty: all of them. More: others follow the last one, whose Due and ID
	// are the next cursor.
	ListQueueJobs(ctx context.Context, tenant, worker string, after job.Cursor, limit int) (jobs []job.Job, more bool, err error)
	GetTrigger(ctx context.Context, tenant, key string) (trigger.Trigger, error)
	// FindWebhook finds a trigger of any kind and tenant by its key alone.
	FindWebhook(ctx context.Context, key string) (trigger.Trigger, error)
	// ListTriggers lists by id; no kinds, no workers (names that were given, or refs): all of them.
	ListTriggers(ctx context.Context, tenant string, kinds []trigger.Kind, workers []string, after int64, page int) ([]trigger.Trigger, error)
	// FindTriggerByMessage finds the first trigger of these workers whose message is the one.
	FindTriggerByMessage(ctx context.Context, tenant string, workers []string, is func(message []byte) bool) (trigger.Trigger, error)
	// ListTriggerJobs lists the jobs of a trigger, live and ended, the newest first.
	ListTriggerJobs(ctx context.Context, triggerID int64, page int) ([]job.Job, error)
	// TriggerStates sums the kept jobs of triggers up; one without jobs may be absent.
	TriggerStates(ctx context.Context, triggers []int64) (map[int64]trigger.State, error)
	// Ping is the database's time.
	Ping(ctx context.Context) (time.Time, error)
}

// Tokens says who asks. An empty bearer is asked for, too: a cluster without tokens opens everything to it. ErrNotFound:
// no such token, or one that is revoked or expired.
type Tokens interface {
	Authenticate(ctx context.Context, bearer string) (permission.Token, error)
}

// Config of the API.
type Config struct {
	House    House
	Reader   Reader
	Tokens   Tokens
	Reserved permission.Reserved // workers that only operators may use
	Logger   *slog.Logger
}

type server struct{ Config }

// Handler serves every route of the API; it is to be mounted at /jobs/.
func Handler(c Config) http.Handler {
	s := &server{c}
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.Handle(r.pattern, s.serve(r))
	}
	return mux
}

// Route is one path of the API with its methods.
type Route struct {
	Pattern string
	Methods []string
	Open    bool // needs no token
}

// Routes lists what Handler serves, for a walk over all of it.
func Routes() []Route {
	var list []Route
	for _, r := range (&server{}).routes() {
		if len(r.methods) > 0 {
			list = append(list, Route{r.pattern, r.allowed(), r.open})
		}
	}
	return list
}

// Open says whether a path is a webhook's own, which needs no token.
func Open(path string) bool {
	key, ok := strings.CutPrefix(path, "/jobs/webhooks/")
	return ok && isKey(key)
}

func (s *server) routes() []route {
	const get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	launchers := methods{get: s.listLaunchers}
	return []route{
		{pattern: "/jobs/{id}", methods: methods{get: s.getJob, patch: s.patchJob}},
		{pattern: "/jobs/queue", methods: methods{get: s.listQueue}},
		{pattern: "/jobs/queue/{worker}", methods: methods{get: s.listWorkerQueue, post: s.pushJob}},
		{pattern: "/jobs/support", methods: methods{post: s.mailSupport}},
		{pattern: "/jobs/campaign-emails", methods: methods{post: s.mailCampaign}},
		{pattern: "/jobs/triggers", methods: methods{get: s.listTriggers, post: s.createTrigger}},
		{pattern: "/jobs/triggers/{id}", methods: methods{get: s.getTrigger, patch: s.patchTrigger, del: s.deleteTrigger}},
		{pattern: "/jobs/triggers/{id}/state", methods: methods{get: s.getTriggerState}},
		{pattern: "/jobs/triggers/{id}/jobs", methods: methods{get: s.listTriggerJobs}},
		{pattern: "/jobs/triggers/{id}/launch", methods: methods{post: s.launchTrigger}},
		{pattern: "/jobs/webhooks/bi", methods: methods{post: s.deliverBI}},
		{pattern: "/jobs/webhooks/{id}", methods: methods{post: s.deliverWebhook}, open: true},
		{pattern: "/jobs/purge", methods: methods{del: s.purge}, patience: purgePatience},
		{pattern: "/jobs/launchers", methods: launchers},
		{pattern: "/jobs/launchers/{$}", methods: launchers},
		{pattern: "/jobs/launchers/{id}", methods: methods{get: s.getLauncher, del: s.deleteTrigger, post: s.createLauncher}},
		{pattern: "/", open: true}, // anything else: not found
	}
}
