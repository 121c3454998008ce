package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/authn"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"carillon/backend/face/cozy"
	"carillon/backend/face/rpc"
)

// listen opens the address to serve on, and says under which URL others reach it.
func listen(c Config) (net.Listener, string, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, "", fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	if c.Advertise != "" {
		return l, c.Advertise, nil
	}
	return l, "http://" + l.Addr().String(), nil
}

// serverOf serves Connect over HTTP/1.1 and h2c, and what operators ask for. There is no write timeout, since watches
// are long; they show every 15 s that they live.
func (h *house) serverOf() (*http.Server, error) {
	api, err := rpc.Handler(rpc.Config{
		Key: h.key, Version: h.cfg.Version, Reader: h.store, Runners: h.store, House: h, Deploy: h.deploy, Jobs: h, JobReader: h.store, Triggers: triggers{h},
		TriggerReader: h.store, Events: triggers{h}, TokenStore: h.store, Workers: triggers{h}, Reserved: h.cfg.Reserved,
		Tokens:     rpc.Tokens{Admin: h.cfg.AdminToken, Cluster: h.cfg.ClusterToken, Lookup: h.findToken, Now: h.cluster.Clock().Now},
		RunnerBeat: h.cfg.Timing.RunnerBeat, Logger: h.log,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.metrics.registry, promhttp.HandlerOpts{}))
	mux.Handle("/jobs/", cozy.Handler(cozy.Config{
		House: cozyHouse{triggers{h}}, Reader: h.store, Tokens: bearers{rpc.NewBearers(h.findToken, h.cluster.Clock().Now), h.cfg.AdminToken}, Reserved: h.cfg.Reserved, Logger: h.log,
	}))
	mux.Handle("/", api)
	s := &http.Server{
		Handler:           sameOrigin(mux),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 250, SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s, nil
}

// sameOrigin lets no web page of elsewhere speak for its reader, who may be let in by where he is. A bearer token is
// nothing that a browser adds by itself: a page that sends one speaks for whom gave it the token. What webhooks need is in
// their address, and a page that knows it may deliver.
func sameOrigin(next http.Handler) http.Handler {
	guarded := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given := authn.BearerToken(r); given || cozy.Open(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// readyz says whether work may be sent here: the database answers, the rows are loaded, and it is not draining.
func (h *house) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := h.ready(ctx); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

func (h *house) ready(context.Context) error {
	switch {
	case h.draining.Load():
		return errors.New("draining")
	case h.cluster.Ring() == nil:
		return errors.New("not in the ring yet")
	case h.cluster.Interrupted():
		return errors.New("the database does not answer heartbeats")
	case !h.scheduler.Stats().Loaded:
		return errors.New("the cron jobs are not loaded yet")
	}
	return nil
}
