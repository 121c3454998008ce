package cozy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/permission"
	"carillon/backend/core/trigger"
)

// maxPage is how many documents one answer lists at most.
const maxPage = 200

const (
	noJob     = "There is no such job"
	maybeJob  = "There is no such job, or the token lacks the right to it"
	lacksJobs = "The token lacks the right to these jobs"

	mayNotPush = "The token lacks the right to push jobs of this worker"
)

func isLegacy(r *http.Request) bool { return r.URL.Query().Get("legacy") == "1" }

// findJob reads a job for which the token has the right. What is absent and what is another's is the same; so it is for
// a token whose rights depend on the worker, of which nothing is said.
func (s *server) findJob(ctx context.Context, id string, by permission.Token, may func(id, worker string) bool) (job.Job, envelope, error) {
	var j job.Job
	parsed, err := job.ParseID(id)
	if err == nil {
		j, err = s.Reader.GetJob(ctx, parsed)
	} else {
		err = cron.ErrNotFound
	}
	absent := errors.Is(err, cron.ErrNotFound) || err == nil && j.Tenant != by.Tenant
	switch e := envelopeOf(j); {
	case err != nil && !absent:
		return j, e, err
	case absent && may(id, ""):
		return j, e, notFound(noJob)
	case absent || !s.any(by, e.Worker, j.Ref, func(worker string) bool { return may(id, worker) }):
		return j, e, forbidden(maybeJob)
	default:
		return j, e, nil
	}
}

// any asks about a worker by each of its names: the one that was used, and those of its verb (empty: what the name is now).
func (s *server) any(by permission.Token, worker, ref string, may func(worker string) bool) bool {
	return may(worker) || sane(worker) && slices.ContainsFunc(s.House.Names(by.Tenant, cmp.Or(ref, worker)), may)
}

func (s *server) getJob(r *http.Request, by permission.Token) (answer, error) {
	j, _, err := s.findJob(r.Context(), r.PathValue("id"), by, by.MayReadJob)
	if err != nil {
		return answer{}, err
	}
	return one(http.StatusOK, jobResource(j, by, isLegacy(r)))
}

// patchJob ends a job that its client runs.
func (s *server) patchJob(r *http.Request, by permission.Token) (answer, error) {
	ctx := r.Context()
	j, e, err := s.findJob(ctx, r.PathValue("id"), by, by.MayPatchJob)
	if err != nil {
		return answer{}, err
	}
	if e.Worker != trigger.ClientWorker {
		return answer{}, forbidden("Only jobs of the worker " + trigger.ClientWorker + " can be patched")
	}
	b, err := readBody(r, false)
	if err != nil {
		return answer{}, err
	}
	as, text, err := readEnd(b)
	if err != nil {
		return answer{}, err
	}
	if err := s.House.EndClientJob(ctx, j.ID, as, text); err != nil {
		return answer{}, err
	}
	if j, err = s.Reader.GetJob(ctx, j.ID); err != nil {
		return answer{}, err
	}
	return one(http.StatusOK, jobResource(j, by, isLegacy(r)))
}

// readEnd reads how a client ended a job.
func readEnd(b body) (as job.State, text string, err error) {
	said, err := b.text("error")
	if err != nil {
		return "", "", err
	}
	var state string
	_ = json.Unmarshal(b.fields["state"], &state) // anything but a text is no state
	switch trigger.Status(state) {
	case trigger.Done:
		return job.Succeeded, "", nil
	case trigger.Errored:
		return job.Failed, cut(cron.SafeText(said), maxErrorText), nil
	}
	return "", "", invalid(pointerAttributes+"/State", badState)
}

func (s *server) listQueue(r *http.Request, by permission.Token) (answer, error) {
	if !by.MayListJobs() {
		return answer{}, forbidden(lacksJobs)
	}
	return s.queuePage(r, by, "")
}

func (s *server) listWorkerQueue(r *http.Request, by permission.Token) (answer, error) {
	worker := r.PathValue("worker")
	if !s.any(by, worker, "", by.MayListJobsOf) {
		return answer{}, forbidden(lacksJobs)
	}
	if !sane(worker) {
		return many(nil, "")
	}
	return s.queuePage(r, by, s.refOf(by, worker))
}

// queuePage lists what has not ended.
func (s *server) queuePage(r *http.Request, by permission.Token, worker string) (answer, error) {
	after, err := cursorOf(r, readQueueCursor)
	if err != nil {
		return answer{}, err
	}
	limit, err := limitOf(r, maxPage)
	if err != nil {
		return answer{}, err
	}
	jobs, more, err := s.Reader.ListQueueJobs(r.Context(), by.Tenant, worker, after, limit)
	if err != nil {
		return answer{}, err
	}
	next := ""
	if more && len(jobs) > 0 {
		next = nextPage(r, queueCursor(jobs[len(jobs)-1]), limit, maxPage)
	}
	list := make([]resource, len(jobs))
	for i, j := range jobs {
		list[i] = jobResource(j, by, isLegacy(r))
	}
	return many(list, next)
}

// pushJob makes a job of a worker.
func (s *server) pushJob(r *http.Request, by permission.Token) (answer, error) {
	worker := r.PathValue("worker")
	reserved := s.reserved(by, worker)
	if !s.any(by, worker, "", func(name string) bool { return by.MayPushJob(name, reserved) }) {
		return answer{}, forbidden(mayNotPush)
	}
	w, err := s.worker(r.Context(), by, worker)
	if err != nil {
		return answer{}, err
	}
	if s.nowReserved(by, worker, w) {
		return answer{}, forbidden(mayNotPush)
	}
	b, err := readBody(r, true)
	if err != nil {
		return answer{}, err
	}
	p, err := readPush(b, by, worker)
	if err != nil {
		return answer{}, err
	}
	if p.idempotency, err = idempotencyOf(r, by, "queue/"+worker); err != nil {
		return answer{}, err
	}
	j, err := s.push(r.Context(), by, w, p)
	if err != nil {
		return answer{}, err
	}
	return one(http.StatusAccepted, jobResource(j, by, b.flat || isLegacy(r)))
}

// push is a job that somebody asks for.
type push struct {
	envelope
	asked       trigger.Options
	message     json.RawMessage
	idempotency string
}

func readPush(b body, by permission.Token, worker string) (p push, err error) {
	if p.ForwardLogs, err = b.flag("forward_logs"); err != nil {
		return p, err
	}
	if p.ForwardLogs && !by.MayForwardLogs() {
		return p, forbidden("The token lacks the right to forward logs")
	}
	if p.Manual, err = b.flag("manual"); err != nil {
		return p, err
	}
	if p.asked, err = b.options(); err != nil {
		return p, err
	}
	if p.message, err = trigger.JobMessage(b.fields, b.at()); err != nil {
		return p, err
	}
	p.Worker, p.Domain = worker, by.Domain
	return p, nil
}

// push hands a job to the house, and reads it as it stands then.
func (s *server) push(ctx context.Context, by permission.Token, w Worker, p push) (job.Job, error) {
	terms := p.asked.Terms(w.Limits, p.Manual)
	p.Options = given(p.asked)
	n := job.New{
		Tenant: by.Tenant, Ref: w.Ref, Priority: terms.Priority, Timeout: terms.Timeout, Retry: terms.Retry, Payload: trigger.DecodeMessage(p.message),
		Idempotency: p.idempotency, Envelope: p.text(),
	}
	var made job.Enqueued
	var err error
	if p.Worker == trigger.ClientWorker {
		made, err = s.House.PushClientJob(ctx, p.Domain, n)
	} else {
		made, err = s.House.PushJob(ctx, p.Domain, n)
	}
	if err == nil {
		err = made.Err
	}
	if errors.Is(err, cron.ErrNotFound) {
		return job.Job{}, notFound(unknownWorker) // it went away a moment ago
	}
	if err != nil {
		return job.Job{}, err
	}
	return s.Reader.GetJob(ctx, made.ID)
}

// given keeps options as they were asked for; nil: nothing was.
func given(o trigger.Options) json.RawMessage {
	if o == (trigger.Options{}) {
		return nil
	}
	text, _ := json.Marshal(o) // numbers, and finite ones
	return text
}

func (s *server) reserved(by permission.Token, worker string) bool {
	return s.Reserved.Covers(worker, s.refOf(by, worker))
}

// nowReserved says that a worker turns out to be reserved, whose verb was not known a moment ago.
func (s *server) nowReserved(by permission.Token, worker string, w Worker) bool {
	return by.Kind != permission.CLI && worker != trigger.ClientWorker && s.Reserved.Covers(worker, w.Ref)
}

// refOf is the verb that a worker's name is now, or the name itself.
func (s *server) refOf(by permission.Token, worker string) string {
	if names := s.House.Names(by.Tenant, worker); len(names) > 0 {
		return names[len(names)-1]
	}
	return worker
}

// worker finds what runs the jobs of a worker; those of clients are run by nobody here.
func (s *server) worker(ctx context.Context, by permission.Token, name string) (Worker, error) {
	if name == trigger.ClientWorker {
		return Worker{Ref: trigger.ClientWorker, Limits: trigger.ClientLimits}, nil
	}
	if len(name) <= job.MaxName && sane(name) {
		if w, ok := s.House.Worker(ctx, by.Tenant, name); ok {
			return w, nil
		}
	}
	return Worker{}, notFound(unknownWorker)
}

// queueCursor is where a list of jobs goes on: behind this one.
func queueCursor(j job.Job) string {
	return strconv.FormatInt(j.Due.UnixMicro(), 36) + "." + strconv.FormatInt(j.N, 36)
}

func readQueueCursor(text string) (c job.Cursor, err error) {
	due, id, _ := strings.Cut(text, ".")
	micros, err := strconv.ParseInt(due, 36, 64)
	if err != nil || micros < 0 || micros > maxMicros {
		return c, cron.ErrInvalid
	}
	c.Due = time.UnixMicro(micros).UTC()
	c.ID, err = strconv.ParseInt(id, 36, 64)
	if c.ID < 0 {
		err = cron.ErrInvalid
	}
	return c, err
}

// maxMicros is in the year 9999, in microseconds of Unix.
const maxMicros = 253_370_764_800_000_000

// cursorOf reads page[cursor]; the zero value: none is given.
func cursorOf[C any](r *http.Request, read func(text string) (C, error)) (after C, err error) {
	const name = "page[cursor]"
	text := r.URL.Query().Get(name)
	if text == "" {
		return after, nil
	}
	if after, err = read(text); err != nil {
		return after, badParameter(name, "is no cursor of this list")
	}
	return after, nil
}

// limitOf reads page[limit], at most so many.
func limitOf(r *http.Request, most int) (int, error) {
	const name = "page[limit]"
	text := r.URL.Query().Get(name)
	if text == "" {
		return most, nil
	}
	n, ok := number(text)
	if !ok || n < 1 {
		return 0, badParameter(name, "must be a number above 0")
	}
	return min(n, most), nil
}

// number reads digits; of a number that is too large for an int it makes the largest one.
func number(text string) (n int, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ = strconv.Atoi(text)
	return n, true
}

func badParameter(name, problem string) error {
	return &refusal{status: http.StatusBadRequest, title: trigger.InvalidParameter, detail: name + " " + problem, source: &source{Parameter: name}}
}

// nextPage is the link to what follows: this request with another cursor.
func nextPage(r *http.Request, cursor string, limit, usual int) string {
	link := r.URL.EscapedPath() + "?page[cursor]=" + cursor
	if limit != usual {
		link += "&page[limit]=" + strconv.Itoa(limit)
	}
	query := r.URL.Query()
	query.Del("page[cursor]")
	query.Del("page[limit]")
	if rest := query.Encode(); rest != "" {
		link += "&" + rest
	}
	return link
}
