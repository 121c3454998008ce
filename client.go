package carillon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
)

// Client enqueues jobs and looks after them at the controllers of a cluster, and tells it of events. It stays with the controller that answered
// last and goes on with the next one when that cannot be reached. Its methods may be called from anywhere at any time.
type Client struct {
	http     *http.Client
	token    string
	via      http.RoundTripper
	try      time.Duration
	patience time.Duration

	mu       sync.Mutex
	urls     []string // the one that answered last in front
	services map[string]services
}

// services are those of one controller.
type services struct {
	jobs   carillonv1connect.JobServiceClient
	events carillonv1connect.EventServiceClient
}

// ClientOption is a setting of NewClient.
type ClientOption func(*Client)

// WithToken sends a token with every request: the cluster's, the admin's or the processes', or one of a tenant's own.
func WithToken(token string) ClientOption { return func(c *Client) { c.token = token } }

// WithControllers names further controllers, to go on with when the first cannot be reached.
func WithControllers(urls ...string) ClientOption {
	return func(c *Client) { c.urls = append(c.urls, urls...) }
}

// WithTimeout bounds one request to one controller; 10 s unless set.
func WithTimeout(d time.Duration) ClientOption { return func(c *Client) { c.try = d } }

// WithPatience says for how long an RPC that no controller took, or that may be repeated safely, is tried again; 15 s
// unless set, zero or less is once at each controller. The context may end it before.
func WithPatience(d time.Duration) ClientOption { return func(c *Client) { c.patience = d } }

// WithTransport replaces the way to the controllers.
func WithTransport(via http.RoundTripper) ClientOption { return func(c *Client) { c.via = via } }

const (
	maxAnswer    = 16 << 20         // bytes of one answer
	longestPause = 2 * time.Second  // between tries
	watchSilence = 40 * time.Second // a watch in which nothing comes for so long is broken; something comes each 15 s
)

// ErrNotFound is what errors.Is finds in the refusal of an id or a verb that is not there.
var ErrNotFound = errors.New("not found")

// RefusedError is a request or a job that the cluster does not take, for a reason that trying again does not mend.
type RefusedError struct {
	Code    string // a Connect code: invalid_argument, not_found, already_exists, failed_precondition, unauthenticated ..
	Field   string // what is wrong with a job, such as payload.to; empty where no field is
	Message string
	err     error
}

func (e *RefusedError) Error() string {
	switch {
	case e.Message == "":
		return e.Code
	case e.Field == "" || strings.Contains(e.Message, e.Field):
		return e.Code + ": " + e.Message
	}
	return e.Code + ": " + e.Field + ": " + e.Message
}

func (e *RefusedError) Unwrap() error        { return e.err }
func (e *RefusedError) Is(target error) bool { return target == ErrNotFound && e.Code == "not_found" }

// NewClient makes a client of the controller at url, or of several with commas between them. It does not connect yet.
func NewClient(url string, opts ...ClientOption) (*Client, error) {
	c := &Client{try: 10 * time.Second, patience: 15 * time.Second, services: map[string]services{}}
	for u := range strings.SplitSeq(url, ",") {
		if u = strings.TrimSpace(u); u != "" {
			c.urls = append(c.urls, u)
		}
	}
	for _, o := range opts {
		o(c)
	}
	if len(c.urls) == 0 {
		return nil, errors.New("the client has no URL of a controller such as http://127.0.0.1:7800")
	}
	for i, u := range c.urls {
		if err := checkURL(u); err != nil {
			return nil, err
		}
		c.urls[i] = strings.TrimRight(u, "/")
	}
	if strings.ContainsFunc(c.token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("the token holds a character that no header may carry")
	}
	if c.via == nil {
		c.via = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: 100,
			IdleConnTimeout:     time.Minute,
			ForceAttemptHTTP2:   true,
		}
	}
	c.http = &http.Client{
		Transport:     bearer{token: c.token, next: c.via},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// ClientFromEnv makes a client of what the environment says: the URLs in CARILLON_URL, or in CARILLON_CONTROLLER as for
// the command line (http://127.0.0.1:7800 without), and the first token of CARILLON_TOKEN, CARILLON_ADMIN_TOKEN and
// CARILLON_CLUSTER_TOKEN, each of which may be given as the name of a file in CARILLON_.._FILE instead.
func ClientFromEnv(opts ...ClientOption) (*Client, error) {
	token := ""
	for _, name := range []string{"CARILLON_TOKEN", "CARILLON_ADMIN_TOKEN", "CARILLON_CLUSTER_TOKEN"} {
		if token = os.Getenv(name); token != "" {
			break
		}
		if file := os.Getenv(name + "_FILE"); file != "" {
			raw, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read the token of %s_FILE: %w", name, err)
			}
			if token = strings.TrimSpace(string(raw)); token == "" {
				return nil, fmt.Errorf("the token file %s is empty", file)
			}
			break
		}
	}
	url := cmp.Or(os.Getenv("CARILLON_URL"), os.Getenv("CARILLON_CONTROLLER"), "http://127.0.0.1:7800")
	return NewClient(url, append([]ClientOption{WithToken(token)}, opts...)...)
}

// ClientFrom is the client that a verb may use: it goes to the controllers that its runner knows, with the cluster's
// token. Nil outside a runner.
func ClientFrom(ctx context.Context) *Client { return insideOf(ctx).client }

// WithClient is a context in which ClientFrom tells c, for calling a verb without a cluster, in a test for example.
func WithClient(ctx context.Context, c *Client) context.Context {
	in := insideOf(ctx)
	in.client = c
	return context.WithValue(ctx, insideKey{}, in)
}

// pick is c, or the verb's client where c is nil.
func pick(ctx context.Context, c *Client) (*Client, error) {
	if c == nil {
		c = ClientFrom(ctx)
	}
	if c == nil {
		return nil, errors.New("no client: make one with NewClient, or call this from a verb whose runner knows a controller")
	}
	return c, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// learn replaces the controllers, by those that a runner has heard of.
func (c *Client) learn(urls []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.urls[0]
	c.urls = slices.Clone(urls)
	if i := slices.Index(c.urls, first); i > 0 { // keeps its place
		c.urls[0], c.urls[i] = c.urls[i], c.urls[0]
	}
	for u := range c.services {
		if !slices.Contains(c.urls, u) {
			delete(c.services, u)
		}
	}
}

// prefer puts the controller that answered in front.
func (c *Client) prefer(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.urls, url); i > 0 {
		c.urls[0], c.urls[i] = c.urls[i], c.urls[0]
	}
}

func (c *Client) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.urls)
}

func (c *Client) at(url string) services {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.services[url]
	if !known {
		options := connect.WithClientOptions(connect.WithReadMaxBytes(maxAnswer), connect.WithAcceptCompression("gzip", nil, nil))
		s = services{carillonv1connect.NewJobServiceClient(c.http, url, options), carillonv1connect.NewEventServiceClient(c.http, url, options)}
		c.services[url] = s
	}
	return s
}

// do is ask for the job queue.
func (c *Client) do(ctx context.Context, what string, safe bool, do func(context.Context, carillonv1connect.JobServiceClient) error) error {
	return c.ask(ctx, what, safe, func(ctx context.Context, s services) error { return do(ctx, s.jobs) })
}

// ask asks one controller after the other until one answers, and all of them again after a pause while the patience
// lasts. What may have been done already is repeated only where that is safe.
func (c *Client) ask(ctx context.Context, what string, safe bool, ask func(context.Context, services) error) error {
	begun, pause := time.Now(), 50*time.Millisecond
	for {
		again, err := c.round(ctx, safe, ask)
		if err == nil {
			return nil
		}
		wait := pause/2 + rand.N(pause)
		if !again || ctx.Err() != nil || time.Since(begun)+wait > c.patience {
			return fmt.Errorf("%s: %w", what, err)
		}
		sleep(ctx, wait)
		pause = min(2*pause, longestPause)
	}
}

// round asks each controller once, until one answers; again says that all of them may be asked once more.
func (c *Client) round(ctx context.Context, safe bool, ask func(context.Context, services) error) (again bool, err error) {
	var errs []error
	for _, url := range c.order() {
		one, cancel := context.WithTimeout(ctx, c.try)
		err := ask(one, c.at(url))
		cancel()
		switch {
		case err == nil:
			c.prefer(url)
			return false, nil
		case ctx.Err() != nil:
			return false, err
		case unsent(err), safe && unclear(err):
			errs = append(errs, fmt.Errorf("controller %s: %w", url, err))
		default:
			return false, refused(err)
		}
	}
	return true, errors.Join(errs...)
}

// unsent says that a request reached nobody.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// unclear says that a request may have been done or not, or was not for a reason that passes.
func unclear(err error) bool {
	switch code := connect.CodeOf(err); {
	case code == connect.CodeUnavailable:
		return true
	case connect.IsWireError(err):
		return code == connect.CodeDeadlineExceeded
	case code == connect.CodeDeadlineExceeded:
		return true
	}
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// refused makes a RefusedError of what a controller said; other errors stay.
func refused(err error) error {
	var ce *connect.Error
	if !errors.As(err, &ce) || !connect.IsWireError(err) {
		return err
	}
	switch ce.Code() {
	case connect.CodeUnavailable, connect.CodeInternal, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return err
	}
	return &RefusedError{Code: ce.Code().String(), Message: ce.Message(), err: err}
}
