package dispatch

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// transport reaches runners: over HTTP/2 without TLS where a stream is needed, over HTTP/1.1 for simple runners. It
// uses no proxy, a connection whose other end has vanished is found by its pings, and when ctx ends every connection
// is closed: a stream whose peer reads no more would not notice the end of its own context.
func (d *Dispatcher) transport(ctx context.Context, stream bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!stream)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(stream)
	dial := d.cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: d.cfg.DialTimeout}).DialContext
	}
	return &http.Transport{
		DialContext: func(dialling context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(dialling, network, address)
			if err != nil {
				return nil, err
			}
			return tied{Conn: conn, loose: context.AfterFunc(ctx, func() { conn.Close() })}, nil
		},
		Protocols:              protocols,
		TLSHandshakeTimeout:    d.cfg.DialTimeout,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    100,
		IdleConnTimeout:        time.Minute,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: d.cfg.Silence / 2, PingTimeout: d.cfg.Silence / 2, WriteByteTimeout: d.cfg.Silence,
		},
	}
}

// tied is a connection that a context closes, unless it was closed before.
type tied struct {
	net.Conn
	loose func() bool
}

func (t tied) Close() error {
	t.loose()
	return t.Conn.Close()
}

// client speaks to one runner: protobuf over a stream, JSON in single RPCs. The answer to one RPC is cut where no honest one goes on; the messages of a stream are
// bounded one by one.
func (d *Dispatcher) client(via http.RoundTripper, endpoint string, stream bool) carillonv1connect.VerbServiceClient {
	way := gateway{token: d.cfg.Token, next: via, most: maxMessage + 64<<10}
	if stream {
		way.most = 0
	}
	options := []connect.ClientOption{connect.WithReadMaxBytes(maxMessage), connect.WithAcceptCompression("gzip", nil, nil)}
	if !stream { // every language has JSON
		options = append(options, connect.WithProtoJSON())
	}
	return carillonv1connect.NewVerbServiceClient(
		&http.Client{
			Transport:     way,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		endpoint, options...)
}

// gateway adds the cluster token to every request and bounds every answer.
type gateway struct {
	token string
	next  http.RoundTripper
	most  int // bytes of an answer; 0 for no bound
}

func (g gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+g.token)
	}
	resp, err := g.next.RoundTrip(r)
	if err == nil && g.most > 0 {
		resp.Body = &capped{ReadCloser: resp.Body, left: g.most}
	}
	return resp, err
}

// capped is a body that fails where it becomes too long. Connect would read such a body to its end, to say how long
// it was.
type capped struct {
	io.ReadCloser
	left int
}

func (c *capped) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := c.ReadCloser.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// request is a call as the wire carries it. It reads only what never changes of c, so it needs no lock.
func request(c *call, now time.Time) *carillonv1.CallRequest {
	req := &carillonv1.CallRequest{
		RunId: c.id, Ref: c.Ref, Attempt: int32(c.Attempt), Timeout: durationpb.New(c.softAt.Sub(now)),
		IdempotencyKey: c.IdempotencyKey, Payload: c.Payload, Deployment: c.Deployment, Traceparent: c.Traceparent,
		JobId: c.Job, Tenant: c.Tenant, Envelope: c.Envelope,
	}
	if !c.Slot.IsZero() {
		req.Slot = timestamppb.New(c.Slot)
	}
	return req
}

// headers say the facts of a call once more, for runners and proxies that do not read bodies.
func headers(h http.Header, c *call) {
	h.Set("Carillon-Run-Id", c.id)
	h.Set("Carillon-Attempt", strconv.Itoa(c.Attempt))
	h.Set("Carillon-Deadline", c.softAt.UTC().Format(time.RFC3339Nano))
	if c.Job != "" {
		h.Set("Carillon-Job-Id", c.Job)
		h.Set("Carillon-Request-Key", "job-"+c.Job+"-"+c.id)
	} else {
		h.Set("Carillon-Request-Key", "cron-"+c.Ref+"-"+c.id)
	}
	if !c.Slot.IsZero() {
		h.Set("Carillon-Slot", c.Slot.UTC().Format(time.RFC3339Nano))
	}
	if c.IdempotencyKey != "" {
		h.Set("Idempotency-Key", c.IdempotencyKey)
	}
	if c.Traceparent != "" {
		h.Set("Traceparent", c.Traceparent)
	}
}
