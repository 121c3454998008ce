package dispatch

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"carillon/backend/core/cron"
	"carillon/proto/carillon/v1/carillonv1connect"

	"connectrpc.com/connect"
)

// unary calls a simple runner: one RPC, one goroutine for each call. What failed before its headers were written was
// never sent and goes back to those that wait.
func (d *Dispatcher) unary(ctx context.Context, client carillonv1connect.VerbServiceClient, c *call, r *runner) {
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	ctx, info := connect.NewClientContext(ctx)
	headers(info.RequestHeader(), c)
	resp, err := client.Call(ctx, request(c, time.Now()))
	if err == nil && resp.GetRunId() != "" && resp.GetRunId() != c.id {
		err = errors.New("it answered for another run")
	}
	d.mu.Lock()
	defer d.unlock()
	switch {
	case c.runner != r || (c.state != sent && c.state != ending):
		d.stats.Unknown++ // given up meanwhile
	case err == nil:
		d.settle(c, resp)
	case c.state == ending:
		d.finish(c, Outcome{Verdict: c.verdict, Error: c.reason})
	case d.closed != "":
		d.finish(c, Outcome{Verdict: cron.Cancelled, Error: d.closed})
	case !wrote.Load():
		d.rest(r, cron.SafeText(err.Error()))
		d.retract(c)
		d.pump(r.Deployment)
	default:
		d.finish(c, Outcome{Verdict: cron.Failed, Error: "runner " + r.Key + ": " + err.Error()})
	}
}

// launcher starts unary calls to r under ctx; Dispatcher.mu is held whenever the launch runs.
func (d *Dispatcher) launcher(ctx context.Context, client carillonv1connect.VerbServiceClient, r *runner, run func(func())) func(*call) {
	return func(c *call) {
		ctx, stop := context.WithCancel(ctx)
		c.stop = stop
		d.begin(c)
		run(func() {
			defer stop()
			d.unary(ctx, client, c, r)
		})
	}
}
