package carillon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
)

// registrar keeps the runner known to the cluster: it registers at any controller that answers, sends heartbeats, goes
// on at another one when that is gone, and takes the runner out when it stops.
type registrar struct {
	cfg     Config
	request *carillonv1.RegisterRequest
	client  *http.Client
	verbs   *Client // what the verbs have; learns the controllers, too
	log     *slog.Logger

	mu  sync.Mutex
	key string // of the deployment; empty until registered

	// Only run's goroutine touches these.
	known []string              // controllers, the one that answered last in front
	beat  time.Duration         // between heartbeats
	begun time.Time             // run
	met   bool                  // it was known to the cluster once
	said  map[string]slog.Level // the troubles of the present outage, each logged once
}

const (
	attempt     = 2 * time.Second // for one RPC
	manyKnown   = 64              // controllers remembered
	firstPause  = 100 * time.Millisecond
	longestPace = 30 * time.Second // between heartbeats, whatever the controller says
	calmFor     = 10 * time.Second // a runner that starts before its controllers is no trouble for so long
	mostSaid    = 20               // troubles of one outage
)

func newRegistrar(cfg Config, schema *carillonv1.Schema) *registrar {
	next := cfg.Client
	if next == nil {
		next = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: attempt}).DialContext,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     time.Minute,
		}
	}
	return &registrar{
		cfg: cfg,
		request: &carillonv1.RegisterRequest{
			Runner: cfg.Runner, Endpoint: cfg.Advertise, Capacity: uint32(cfg.Capacity), Stream: true,
			Schema: schema, Digest: cfg.Module.Digest, Deploy: cfg.Deploy,
		},
		client: &http.Client{
			Transport:     bearer{token: cfg.Token, next: next},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		log:   cfg.Log.With("module", cfg.Module.Name, "runner", cfg.Runner),
		key:   cfg.Deployment,
		known: slices.Clone(cfg.Controllers),
		beat:  time.Second,
	}
}

// bearer adds the cluster token to every request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

func (b bearer) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// deployment is the key that the controllers gave this runner's digest; empty until they did.
func (r *registrar) deployment() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.key
}

// run keeps the runner registered until ctx ends, then takes it out. It returns an error only when the cluster refuses
// a first registration for a reason that trying again cannot mend.
func (r *registrar) run(ctx context.Context) error {
	defer r.client.CloseIdleConnections()
	if len(r.cfg.Controllers) == 0 {
		<-ctx.Done()
		return nil
	}
	registered, pause := false, firstPause
	r.begun = time.Now()
	for ctx.Err() == nil {
		err := r.round(ctx, registered)
		switch code := connect.CodeOf(err); {
		case err == nil:
			registered, pause = true, firstPause
			r.trouble(nil)
			sleep(ctx, r.beat)
		case ctx.Err() != nil:
		case code == connect.CodeNotFound && registered:
			registered = false
		case r.deployment() == "" && hopeless(code):
			return fmt.Errorf("register the runner: %w", err)
		default:
			r.trouble(err)
			sleep(ctx, pause/2+rand.N(pause))
			pause = min(2*pause, 2*time.Second)
		}
	}
	if registered {
		r.deregister(context.WithoutCancel(ctx))
	}
	return nil
}

// hopeless are the answers to a first registration that mean a wrong build or a wrong token.
func hopeless(code connect.Code) bool {
	return code == connect.CodeInvalidArgument || code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied
}

// round asks the known controllers in turn to register the runner or to take its heartbeat, until one answers.
func (r *registrar) round(ctx context.Context, registered bool) error {
	var errs []error
	for _, url := range slices.Clone(r.known) {
		one, cancel := context.WithTimeout(ctx, attempt)
		err := r.ask(one, url, registered)
		cancel()
		if err == nil {
			i := slices.Index(r.known, url)
			if i > 0 {
				r.known[0], r.known[i] = r.known[i], r.known[0]
			}
			return nil
		}
		err = fmt.Errorf("controller %s: %w", url, err)
		if code := connect.CodeOf(err); code == connect.CodeNotFound || hopeless(code) {
			return err // the others read the same database and the same token
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (r *registrar) ask(ctx context.Context, url string, registered bool) error {
	client := r.at(url)
	if registered {
		resp, err := client.Heartbeat(ctx, &carillonv1.HeartbeatRequest{Runner: r.cfg.Runner})
		if err != nil {
			return err
		}
		r.learn(resp.GetControllers())
		return nil
	}
	resp, err := client.Register(ctx, r.request)
	if err != nil {
		return err
	}
	if resp.GetDeployment() == "" {
		return connect.NewError(connect.CodeInternal, errors.New("the controller names no deployment"))
	}
	r.mu.Lock()
	r.key = resp.GetDeployment()
	r.mu.Unlock()
	if d := resp.GetHeartbeat().AsDuration(); d > 0 {
		r.beat = min(max(d, 10*time.Millisecond), longestPace)
	}
	r.learn(resp.GetControllers())
	r.log.Info("runner registered", "controller", url, "deployment", resp.GetDeployment(), "active", resp.GetActive())
	return nil
}

func (r *registrar) at(url string) carillonv1connect.RunnerServiceClient {
	return carillonv1connect.NewRunnerServiceClient(r.client, url,
		connect.WithReadMaxBytes(1<<20), connect.WithAcceptCompression("gzip", nil, nil))
}

// learn replaces the known controllers by the live ones; those of the configuration stay, behind them, so that a
// cluster that was replaced entirely is found again.
func (r *registrar) learn(live []string) {
	var known []string
	add := func(urls []string) {
		for _, u := range urls {
			if len(known) < manyKnown && checkURL(u) == nil && !slices.Contains(known, u) {
				known = append(known, u)
			}
		}
	}
	if len(live) == 0 {
		return
	}
	if slices.Contains(live, r.known[0]) {
		add(r.known[:1]) // the one that answers keeps its place
	}
	add(live)
	add(r.cfg.Controllers)
	r.known = known
	if r.verbs != nil {
		r.verbs.learn(known)
	}
}

// deregister takes the runner out at the first controller that answers within five seconds.
func (r *registrar) deregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, url := range r.known {
		one, cancel := context.WithTimeout(ctx, attempt)
		_, err := r.at(url).Deregister(one, &carillonv1.DeregisterRequest{Runner: r.cfg.Runner})
		cancel()
		if err == nil || connect.CodeOf(err) == connect.CodeNotFound {
			r.log.Info("runner deregistered", "controller", url)
			return
		}
	}
	r.log.Warn("no controller took the deregistration")
}

// trouble logs each kind of trouble once, and once more where it has become a warning; nil is its end.
func (r *registrar) trouble(err error) {
	if err == nil {
		if r.met && len(r.said) > 0 {
			r.log.Info("runner is known again")
		}
		r.met, r.said = true, nil
		return
	}
	level, text := slog.LevelWarn, strings.ReplaceAll(err.Error(), "\n", "; ")
	if !r.met && time.Since(r.begun) < calmFor {
		level = slog.LevelInfo
	}
	if was, known := r.said[text]; known && was >= level || !known && len(r.said) >= mostSaid {
		return
	}
	if r.said == nil {
		r.said = map[string]slog.Level{}
	}
	r.said[text] = level
	r.log.Log(context.Background(), level, "runner is not known to the cluster", "cause", text)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
