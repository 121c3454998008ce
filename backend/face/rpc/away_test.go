package rpc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/core/cron"
	"carillon/backend/store"
	"carillon/backend/store/storetest"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// line is a TCP line to a database, that can be cut.
type line struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	cut   bool
}

func newLine(t *testing.T, network, address string) *line {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Listener: listener}
	var copies sync.WaitGroup
	t.Cleanup(func() { l.Cut(); copies.Wait() })
	copies.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial(network, address)
			if err != nil {
				in.Close()
				return
			}
			l.mu.Lock()
			l.conns = append(l.conns, in, out)
			if l.cut {
				in.Close()
				out.Close()
			}
			l.mu.Unlock()
			copies.Go(func() { io.Copy(out, in); out.Close() })
			copies.Go(func() { io.Copy(in, out); in.Close() })
		}
	})
	return l
}

func (l *line) Cut() {
	l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, c := range l.conns {
		c.Close()
	}
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, "")
	db.Deploy(1, db.Now())
	to := db.Pool.Config().ConnConfig
	network, address := "tcp", net.JoinHostPort(to.Host, fmt.Sprint(to.Port))
	if strings.HasPrefix(to.Host, "/") {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", to.Host, to.Port)
	}
	l := newLine(t, network, address)
	through := url.URL{Scheme: "postgres", User: url.UserPassword(to.User, to.Password), Host: l.Addr().String(), Path: "/" + to.Database, RawQuery: "sslmode=disable"}
	s, err := store.Open(t.Context(), store.Config{URL: through.String(), Application: "away"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	face, _ := handler(t, s, Tokens{})
	base, h2c := serve(t, face)
	c := wires(h2c)["connect proto"].clients(base)
	if _, err := c.cron.GetCronJob(t.Context(), &carillonv1.GetCronJobRequest{Ref: "m.v0"}); err != nil {
		t.Fatal(err)
	}
	stream, err := c.runs.WatchRuns(t.Context(), &carillonv1.WatchRunsRequest{})
	if err != nil || !stream.Receive() {
		t.Fatal(err, stream.Err())
	}
	l.Cut()
	before := contents(db)
	for stream.Receive() {
	}
	failures := map[string]error{"watch": stream.Err()}
	for range 2 { // on a connection that broke, and on none
		_, failures["get"] = c.cron.GetCronJob(t.Context(), &carillonv1.GetCronJobRequest{Ref: "m.v0"})
		_, failures["deploy"] = c.deploy.Deploy(t.Context(), &carillonv1.DeployRequest{Schema: goodSchema(), Digest: digest})
		_, failures["pause"] = c.cron.PauseCronJob(t.Context(), &carillonv1.PauseCronJobRequest{Ref: "m.v0"})
		_, failures["run"] = c.cron.RunCronJob(t.Context(), &carillonv1.RunCronJobRequest{Ref: "m.v0"})
		for what, err := range failures {
			d := detailsOf(err)
			if connect.CodeOf(err) != connect.CodeUnavailable || d.retry != time.Second || d.reason != "UNAVAILABLE" || d.request == "" {
				t.Errorf("%s: %v, %+v", what, err, d)
			}
			for _, secret := range []string{to.Database, to.User + " ", l.Addr().String(), "dial", "SQLSTATE"} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s tells %q: %v", what, secret, err)
				}
			}
		}
	}
	if after := contents(db); after != before {
		t.Errorf("something was written:\n%swas\n%s", after, before)
	}
}

// A statement that is cut off because its caller went away, or gave no more time, is no outage of the database.
func TestCallersOwnDeadlineIsNoOutage(t *testing.T) {
	i := &errorInterceptor{log: slog.New(slog.DiscardHandler)}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	cut := fmt.Errorf("list runs: %w: statement cut off", cron.ErrUnavailable)
	for want, ctx := range map[connect.Code]context.Context{connect.CodeCanceled: gone, connect.CodeDeadlineExceeded: late, connect.CodeUnavailable: t.Context()} {
		if err := i.toConnect(ctx, "/p", cut); connect.CodeOf(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if limit(carillonv1connect.DeployServiceDeployProcedure) <= 30*time.Second || limit(carillonv1connect.CronServiceGetCronJobProcedure) > 30*time.Second {
		t.Error("a deploy must be able to wait for its runner, and nothing else for so long")
	}
}
