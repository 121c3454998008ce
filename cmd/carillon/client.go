package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	"carillon/proto/carillon/v1/carillonv1connect"
)

// maxAnswer bounds what is read of one answer.
const maxAnswer = 16 << 20

// remote says which cluster a command speaks to, and with which right. Its flags stand at every command.
type remote struct {
	URL       string        `name:"controller" group:"remote" env:"CARILLON_CONTROLLER" default:"http://127.0.0.1:7800" placeholder:"URL" help:"A controller of the cluster (default ${default})."`
	Token     string        `group:"remote" env:"CARILLON_ADMIN_TOKEN" placeholder:"TOKEN" help:"Admin token, or one of 'carillon token create'. Prefer the environment: flags can be read by others."`
	TokenFile string        `group:"remote" env:"CARILLON_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"File that holds the token."`
	Timeout   time.Duration `group:"remote" env:"CARILLON_TIMEOUT" default:"30s" placeholder:"DURATION" help:"How long one request may take (default ${default})."`
}

// client holds the services of one controller.
type client struct {
	url     string
	deploy  carillonv1connect.DeployServiceClient
	cron    carillonv1connect.CronServiceClient
	runs    carillonv1connect.RunServiceClient
	jobs    carillonv1connect.JobServiceClient
	cluster carillonv1connect.ClusterServiceClient

	triggers carillonv1connect.TriggerServiceClient
	events   carillonv1connect.EventServiceClient
	tokens   carillonv1connect.TokenServiceClient
}

// base is the URL to speak to. The variable may hold several, since runners take a list; the first one serves.
func (r *remote) base() string {
	first, _, _ := strings.Cut(r.URL, ",")
	return strings.TrimRight(strings.TrimSpace(first), "/")
}

// dial makes a client of the named controller. It does not connect yet.
func (r *remote) dial() (*client, error) {
	token, err := readToken(r.Token, r.TokenFile)
	if err != nil {
		return nil, err
	}
	return newClient(r.base(), token, r.Timeout)
}

// newClient makes a client of one controller. The timeout bounds each unary call that has no deadline yet; 0 is none.
func newClient(base, token string, timeout time.Duration) (*client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, usage{mend(fmt.Errorf("%q is not the URL of a controller", base),
			"write it as http://host:port (--controller, CARILLON_CONTROLLER)")}
	}
	httpClient := &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout:    5 * time.Second,
			IdleConnTimeout:        30 * time.Second,
			MaxIdleConnsPerHost:    4,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		// A controller does not redirect, and a token must not follow where something else points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(maxAnswer),
		connect.WithInterceptors(&caller{token: token, timeout: timeout}),
	}
	return &client{
		url:     base,
		deploy:  carillonv1connect.NewDeployServiceClient(httpClient, base, opts...),
		cron:    carillonv1connect.NewCronServiceClient(httpClient, base, opts...),
		runs:    carillonv1connect.NewRunServiceClient(httpClient, base, opts...),
		jobs:    carillonv1connect.NewJobServiceClient(httpClient, base, opts...),
		cluster: carillonv1connect.NewClusterServiceClient(httpClient, base, opts...),

		triggers: carillonv1connect.NewTriggerServiceClient(httpClient, base, opts...),
		events:   carillonv1connect.NewEventServiceClient(httpClient, base, opts...),
		tokens:   carillonv1connect.NewTokenServiceClient(httpClient, base, opts...),
	}, nil
}

// caller puts the token on every call and a deadline on every unary one that has none.
type caller struct {
	token   string
	timeout time.Duration
}

func (c *caller) sign(h http.Header) {
	h.Set("User-Agent", "carillon/"+version)
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
}

func (c *caller) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		c.sign(req.Header())
		if _, has := ctx.Deadline(); !has && c.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.timeout)
			defer cancel()
		}
		return next(ctx, req)
	}
}

func (c *caller) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		c.sign(conn.RequestHeader())
		return conn
	}
}

func (c *caller) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// readToken returns the token itself, or the content of the file that holds it. The file is for those who mount secrets.
func readToken(token, file string) (string, error) {
	if token != "" || file == "" {
		return token, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if token = strings.TrimSpace(string(b)); token == "" {
		return "", fmt.Errorf("read the token: %s is empty", file)
	}
	return token, nil
}

// explainRPC puts an RPC's error in words that say what to do. Other errors pass unchanged.
func explainRPC(err error, r *remote) error {
	var ce *connect.Error
	var already *problem
	if !errors.As(err, &ce) || errors.As(err, &already) {
		return err
	}
	tried := strings.TrimSuffix(err.Error(), ce.Error())
	say := func(hint, why string, args ...any) error {
		return mend(fmt.Errorf(tried+"%w", rephrased{fmt.Sprintf(why, args...), ce}), "%s", hint)
	}
	at := r.base()
	message := cmp.Or(clean(strings.TrimPrefix(ce.Message(), "validation error: "), 0), ce.Code().String())
	switch ce.Code() {
	case connect.CodeUnavailable:
		if !connect.IsWireError(ce) {
			return say("is a controller running at "+at+"? Start a cluster with `carillon dev`, or name another with --controller URL (CARILLON_CONTROLLER)",
				"no controller answers at %s: %s", at, message)
		}
		return say("the controller may be draining or without its database: try again, or ask another with --controller", "unavailable: %s", message)
	case connect.CodeUnauthenticated:
		const hint = "give the cluster's admin token by CARILLON_ADMIN_TOKEN, CARILLON_ADMIN_TOKEN_FILE or --token"
		if r.Token == "" && r.TokenFile == "" {
			return say(hint, "%s asks for a token", at)
		}
		return say(hint, "%s does not know this token: %s", at, message)
	case connect.CodePermissionDenied:
		return say("this needs the admin token, or one whose scope allows it (`carillon token create --help`); the cluster token opens nothing here", "not allowed: %s", message)
	case connect.CodeDeadlineExceeded:
		return say("give it more time with --timeout, and see `carillon doctor`", "%s did not answer within %s", at, r.Timeout)
	case connect.CodeUnimplemented:
		return say("is "+at+" a controller, and of this version? `carillon version` and `carillon doctor` tell", "%s does not know this request: %s", at, message)
	case connect.CodeUnknown, connect.CodeInternal:
		if !connect.IsWireError(ce) {
			return say("is "+at+" a controller?", "the answer of %s cannot be understood: %s", at, message)
		}
		return say("the controller's log tells more", "the controller could not do it: %s", message)
	}
	return say("", "%s", message)
}

// rephrased shows other words for an error that stays what it is.
type rephrased struct {
	text string
	err  error
}

func (r rephrased) Error() string { return r.text }
func (r rephrased) Unwrap() error { return r.err }
