package carillon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// office is a JobService in memory, over real HTTP: jobs by id and by idempotency key, and faults to come.
type office struct {
	carillonv1connect.UnimplementedJobServiceHandler
	t *testing.T

	mu       sync.Mutex
	jobs     map[string]*carillonv1.Job
	keys     map[string]string
	asked    []*carillonv1.NewJob
	requests int
	faults   []func() error                                                 // before a request is looked at; nil passes
	lose     int                                                            // answers that get lost after the work
	watching func(*connect.ServerStream[carillonv1.WatchJobResponse]) error // instead of what is there
}

func (o *office) enter() error {
	o.requests++
	if len(o.faults) == 0 {
		return nil
	}
	f := o.faults[0]
	o.faults = o.faults[1:]
	if f == nil {
		return nil
	}
	return f()
}

func (o *office) EnqueueJobs(_ context.Context, req *carillonv1.EnqueueJobsRequest) (*carillonv1.EnqueueJobsResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enter(); err != nil {
		return nil, err
	}
	if len(req.GetJobs()) > 1000 || proto.Size(req) > 4<<20 {
		o.t.Errorf("a request of %d jobs and %d bytes", len(req.GetJobs()), proto.Size(req))
	}
	resp := &carillonv1.EnqueueJobsResponse{}
	for _, j := range req.GetJobs() {
		o.asked = append(o.asked, j)
		out := &carillonv1.EnqueuedJob{}
		refuse := func(code, field, text string) {
			out.Error = &carillonv1.EnqueueError{Code: code, Field: field, Message: text}
		}
		id, known := o.keys[j.GetIdempotencyKey()]
		switch {
		case j.GetRef() == "m.none":
			refuse("not_found", "", "no such verb")
		case string(j.GetPayload()) == `{"to":7}`:
			refuse("invalid_argument", "payload.to", "expected string, got number")
		case slices.Contains(j.GetTags(), "flaky") && !known && o.requests < 3:
			refuse("unavailable", "", "the database does not answer")
		case known && j.GetIdempotencyKey() != "":
			out.Id, out.Existing = id, true
		default:
			out.Id = fmt.Sprint("j", len(o.jobs)+1)
			o.jobs[out.Id] = &carillonv1.Job{
				Id: out.Id, Ref: j.GetRef(), Payload: j.GetPayload(), State: carillonv1.JobState_JOB_STATE_READY, ParentId: j.GetParentId(),
				Tenant: cmp.Or(j.GetTenant(), "default"), CreatedAt: timestamppb.Now(),
			}
			if j.GetIdempotencyKey() != "" {
				o.keys[j.GetIdempotencyKey()] = out.Id
			}
		}
		resp.Jobs = append(resp.Jobs, out)
	}
	if o.lose > 0 {
		o.lose--
		panic(http.ErrAbortHandler)
	}
	return resp, nil
}

func (o *office) find(id string) (*carillonv1.Job, error) {
	if j := o.jobs[id]; j != nil {
		return proto.CloneOf(j), nil
	}
	return nil, connect.NewError(connect.CodeNotFound, errors.New("no such job"))
}

func (o *office) GetJob(_ context.Context, req *carillonv1.GetJobRequest) (*carillonv1.GetJobResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enter(); err != nil {
		return nil, err
	}
	j, err := o.find(req.GetId())
	return &carillonv1.GetJobResponse{Job: j}, err
}

func (o *office) CancelJob(_ context.Context, req *carillonv1.CancelJobRequest) (*carillonv1.CancelJobResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enter(); err != nil {
		return nil, err
	}
	if _, err := o.find(req.GetId()); err != nil {
		return nil, err
	}
	j := o.jobs[req.GetId()]
	j.State, j.Progress = carillonv1.JobState_JOB_STATE_CANCELLED, req.GetReason()
	return &carillonv1.CancelJobResponse{State: j.GetState()}, nil
}

func (o *office) RetryJob(_ context.Context, req *carillonv1.RetryJobRequest) (*carillonv1.RetryJobResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.jobs[req.GetId()].GetState() != carillonv1.JobState_JOB_STATE_CANCELLED {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("it is not dead"))
	}
	j, err := o.find(req.GetId())
	return &carillonv1.RetryJobResponse{Job: j}, err
}

// ListJobs has pages of two.
func (o *office) ListJobs(_ context.Context, req *carillonv1.ListJobsRequest) (*carillonv1.ListJobsResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enter(); err != nil {
		return nil, err
	}
	resp := &carillonv1.ListJobsResponse{}
	for i := 1; i <= len(o.jobs); i++ {
		j := o.jobs[fmt.Sprint("j", i)]
		if j.GetParentId() != req.GetParentId() || j.GetId() <= req.GetPageToken() || len(req.GetStates()) > 0 && !slices.Contains(req.GetStates(), j.GetState()) {
			continue
		}
		if len(resp.GetJobs()) == 2 {
			resp.NextPageToken = resp.GetJobs()[1].GetId()
			break
		}
		resp.Jobs = append(resp.Jobs, j)
	}
	return resp, nil
}

func (o *office) WatchJob(_ context.Context, req *carillonv1.WatchJobRequest, stream *connect.ServerStream[carillonv1.WatchJobResponse]) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enter(); err != nil {
		return err
	}
	if o.watching != nil {
		return o.watching(stream)
	}
	j, err := o.find(req.GetId())
	if err != nil {
		return err
	}
	return stream.Send(&carillonv1.WatchJobResponse{Job: j})
}

// settle waits for a handler that was torn off: its answer, which did not come, synchronizes with nobody.
func (o *office) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
}

func newOffice(t *testing.T) (*office, string) {
	o := &office{t: t, jobs: map[string]*carillonv1.Job{}, keys: map[string]string{}}
	_, h := carillonv1connect.NewJobServiceHandler(o)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnauthenticated, errors.New("a valid bearer token is needed")))
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return o, server.URL
}

func clientOf(t *testing.T, url string, opts ...ClientOption) *Client {
	t.Helper()
	c, err := NewClient(url, append([]ClientOption{WithToken(token)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// nobody is a URL at which nobody listens.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func unavailable() error { return connect.NewError(connect.CodeUnavailable, errors.New("draining")) }

func TestClientGoesOnWithTheNextController(t *testing.T) {
	a, urlA := newOffice(t)
	b, urlB := newOffice(t)
	c := clientOf(t, nobody(t)+", "+urlA, WithControllers(urlB))
	if _, err := Enqueue(t.Context(), c, "m.send", Unit{}, Idempotency("")); err != nil { // nobody was asked before: safe
		t.Fatal(err)
	}
	a.faults = []func() error{unavailable, unavailable}
	for range 3 {
		if _, err := Enqueue(t.Context(), c, "m.send", Unit{}); err != nil {
			t.Fatal(err)
		}
	}
	if a.requests != 2 || b.requests != 3 {
		t.Errorf("%d requests at the first, %d at the second: it stays with the one that answered", a.requests, b.requests)
	}
	c.learn([]string{urlA, urlB})
	if got := c.order(); !slices.Equal(got, []string{urlB, urlA}) {
		t.Errorf("it knows %v", got)
	}
	alone := clientOf(t, nobody(t), WithPatience(200*time.Millisecond))
	begun := time.Now()
	if _, err := Enqueue(t.Context(), alone, "m.send", Unit{}); err == nil || connect.CodeOf(err) != connect.CodeUnavailable || time.Since(begun) > 5*time.Second {
		t.Errorf("nobody is there: %v after %s", err, time.Since(begun))
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Enqueue(ctx, c, "m.send", Unit{}); !errors.Is(err, context.Canceled) {
		t.Errorf("its context is over: %v", err)
	}
}

// The token must not follow where something else points.
func TestRedirectsAreNotFollowed(t *testing.T) {
	o, url := newOffice(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, url+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer elsewhere.Close()
	if _, err := Enqueue(t.Context(), clientOf(t, elsewhere.URL), "m.send", Unit{}); err == nil || o.requests != 0 {
		t.Errorf("%v, %d requests elsewhere", err, o.requests)
	}
}

// A controller that hangs is given up after the timeout of one request.
func TestHungControllerIsPassedOver(t *testing.T) {
	_, url := newOffice(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := clientOf(t, "http://"+l.Addr().String()+","+url, WithTimeout(100*time.Millisecond))
	if job, err := Enqueue(t.Context(), c, "m.send", Unit{}); err != nil || job.ID == "" {
		t.Errorf("%+v, %v", job, err)
	}
}

func TestClientFromTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	os.WriteFile(file, []byte(" secret\n"), 0o600)
	for _, c := range []struct {
		env   map[string]string
		urls  []string
		token string
	}{
		{nil, []string{"http://127.0.0.1:7800"}, ""},
		{map[string]string{"CARILLON_URL": "http://a/, http://b", "CARILLON_TOKEN": "t", "CARILLON_ADMIN_TOKEN": "x"}, []string{"http://a", "http://b"}, "t"},
		{map[string]string{"CARILLON_CONTROLLER": "http://c", "CARILLON_CLUSTER_TOKEN_FILE": file}, []string{"http://c"}, "secret"},
		{map[string]string{"CARILLON_CONTROLLER": "c"}, nil, ""},
		{map[string]string{"CARILLON_TOKEN": "a b"}, nil, ""},
		{map[string]string{"CARILLON_TOKEN_FILE": "/nonexistent"}, nil, ""},
	} {
		for _, name := range []string{"URL", "CONTROLLER", "TOKEN", "TOKEN_FILE", "ADMIN_TOKEN", "ADMIN_TOKEN_FILE", "CLUSTER_TOKEN", "CLUSTER_TOKEN_FILE"} {
			t.Setenv("CARILLON_"+name, c.env["CARILLON_"+name])
		}
		got, err := ClientFromEnv()
		if (err == nil) != (c.urls != nil) || err == nil && (!slices.Equal(got.urls, c.urls) || got.token != c.token) {
			t.Errorf("%v: %+v, %v", c.env, got, err)
		}
	}
	if _, err := NewClient(" , "); err == nil {
		t.Error("a client without URL")
	}
}
