package carillon

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
)

// Serve serves the module's verbs and keeps the runner registered until ctx ends; then it drains: it takes no more
// calls, leaves the controllers' lists, lets the calls in flight finish for cfg.Drain, cancels the rest, and returns
// nil. An error means that it could not serve, or that the cluster refused the runner for good.
func Serve(ctx context.Context, cfg Config) error {
	schema, err := cfg.settle()
	if err != nil {
		return err
	}
	listener, err := cfg.open(ctx)
	if err != nil {
		return err
	}
	reg := newRegistrar(cfg, schema)
	d := newDesk(cfg, reg.deployment)
	if len(cfg.Controllers) > 0 {
		client, err := NewClient("", WithControllers(cfg.Controllers...), WithToken(cfg.Token), WithTransport(cfg.Client))
		if err != nil {
			listener.Close()
			return err
		}
		defer client.Close()
		d.client, reg.verbs = client, client
	}
	server := newServer(cfg, d)
	log := cfg.Log.With("module", cfg.Module.Name, "runner", cfg.Runner)
	log.Info("runner serves", "address", listener.Addr().String(), "advertised", cfg.Advertise, "verbs", len(cfg.Verbs))

	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	asked := context.AfterFunc(ctx, func() { stop(nil) })
	defer asked()
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("serve verbs: %w", err))
		}
	})
	parts.Go(func() {
		if err := reg.run(running); err != nil {
			stop(err)
		}
	})
	levels, stopLevels := context.WithCancel(context.WithoutCancel(ctx))
	parts.Go(func() { d.tend(levels) })

	<-running.Done()
	log.Info("runner drains", "drain", cfg.Drain)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain)
	defer cancel()
	if n := d.drain(late); n > 0 {
		log.Warn("verbs left behind", "count", n)
	}
	close(d.over)
	d.farewell()
	bye, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	if err := server.Shutdown(bye); err != nil {
		server.Close()
	}
	stopLevels()
	parts.Wait()
	log.Info("runner stopped")
	if cause := context.Cause(running); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// newServer answers HTTP/1.1 and HTTP/2 without TLS. Only Attach may send more than one message's worth of body: its
// messages are bounded one by one.
func newServer(cfg Config, d *desk) *http.Server {
	verbs := &verbService{desk: d, runner: cfg.Runner, silence: cfg.Silence}
	path, handler := carillonv1connect.NewVerbServiceHandler(verbs,
		connect.WithReadMaxBytes(maxMessage), connect.WithCompression("gzip", nil, nil))
	bounded := http.MaxBytesHandler(handler, maxMessage+64<<10)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle(path, guarded(cfg.Token, bounded))
	mux.Handle(carillonv1connect.VerbServiceAttachProcedure, guarded(cfg.Token, http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), wireKey{}, http.NewResponseController(w))))
		})))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           http.NewCrossOriginProtection().Handler(mux), // no web page calls a verb
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
		Protocols:         protocols,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}
}

type wireKey struct{}

// guarded demands the cluster token before anything of the body is read; no token, no demand.
func guarded(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want, refuse := sha256.Sum256([]byte(token)), connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			err := connect.NewError(connect.CodeUnauthenticated, errors.New("the cluster token is missing or wrong"))
			if !refuse.IsSupported(r) {
				http.Error(w, err.Message(), http.StatusUnauthorized)
				return
			}
			refuse.Write(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// verbService is the runner's side of carillon.v1.VerbService.
type verbService struct {
	desk    *desk
	runner  string
	silence time.Duration
	unary   atomic.Uint64
}

// Call runs one verb and answers when it ended; a caller that goes away has it cancelled.
func (v *verbService) Call(ctx context.Context, req *carillonv1.CallRequest) (*carillonv1.CallResponse, error) {
	answer := make(chan *carillonv1.CallResponse, 1)
	id := v.unary.Add(1)
	v.desk.take(waiter{id: id, tell: func(resp *carillonv1.CallResponse) { answer <- resp }}, req)
	select {
	case resp := <-answer:
		return resp, nil
	case <-ctx.Done():
		v.desk.leave(func(w waiter) bool { return w.id == id }, errGone)
		return nil, connect.NewError(connect.CodeCanceled, ctx.Err())
	}
}

// Attach serves one controller until one of the two leaves.
func (v *verbService) Attach(ctx context.Context, stream *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse]) error {
	wire, ok := ctx.Value(wireKey{}).(*http.ResponseController)
	if !ok {
		return connect.NewError(connect.CodeInternal, errors.New("no connection to govern"))
	}
	return v.desk.attach(wire, stream, v.runner, v.silence)
}
