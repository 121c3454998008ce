package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"carillon/backend/core/cron"
	carillonv1 "carillon/proto/carillon/v1"

	"connectrpc.com/connect"
)

// Why a stream is torn; context.Cause tells.
var (
	errSilent = errors.New("no answer to a ping")
	errClosed = errors.New("it closed its stream")
	errGone   = errors.New("not among the live runners")
	errStop   = errors.New("the controller stops")
)

const (
	messageCalls = 4096
	messageBytes = 512 << 10
	firstPause   = 100 * time.Millisecond // before dialling again
	longestPause = 5 * time.Second
)

type wire = connect.BidiStreamForClientSimple[carillonv1.AttachRequest, carillonv1.AttachResponse]

// stream is one attached runner. Its writer puts all that gathered while the last message was on its way into the next
// one. Dispatcher.mu guards all fields but wake.
type stream struct {
	d       *Dispatcher
	runner  *runner
	wake    chan struct{}
	pending []*call
	cancels []string
	asked   uint64 // the last ping
	heard   uint64 // the last pong
}

func (s *stream) push(c *call) {
	s.pending = append(s.pending, c)
	notify(s.wake)
}

func (s *stream) cancel(run string) {
	s.cancels = append(s.cancels, run)
	notify(s.wake)
}

// keep holds a stream to r until ctx ends, dialling again when it breaks.
func (d *Dispatcher) keep(ctx context.Context, r *runner) {
	out := outage{began: time.Now(), calm: true}
	for pause := firstPause; ctx.Err() == nil; {
		begun := time.Now()
		err := d.attach(ctx, r, &out)
		if time.Since(begun) > 2*longestPause {
			pause = firstPause
		}
		d.mu.Lock()
		r.trouble = cron.SafeText(err.Error())
		leaving := r.leaving
		d.unlock()
		if leaving || ctx.Err() != nil {
			return
		}
		out.tell(d.cfg.Log, r, err, time.Now())
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, longestPause)
	}
}

// attach dials r and serves the stream until it breaks; the error says why, and is never nil.
func (d *Dispatcher) attach(ctx context.Context, r *runner, out *outage) (err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watch := time.AfterFunc(d.cfg.Silence, func() { stop(errSilent) })
	defer watch.Stop()
	via := d.transport(ctx, true) // of its own: a new stream must not take the connection that an old one broke on
	w, err := d.client(via, r.Endpoint, true).Attach(ctx)
	if err != nil {
		return err
	}
	defer func() {
		stop(nil)
		w.CloseRequest()
		w.CloseResponse()
	}()
	first, err := d.greet(w, r)
	if err != nil {
		return cause(ctx, err)
	}
	s := d.attached(r)
	out.over(d.cfg.Log, r, time.Now())
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := s.write(ctx, w); err != nil {
			stop(err)
		}
	})
	for msg := first; err == nil; msg, err = w.Receive() {
		if s.hear(msg) {
			watch.Reset(d.cfg.Silence)
		}
	}
	err = cause(ctx, err)
	stop(err)
	d.lose(s, err)
	writer.Wait()
	return err
}

// cause prefers the reason for which we tore the stream ourselves.
func cause(ctx context.Context, err error) error {
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return errClosed
	}
	return err
}

// greet says who we are and checks who answers: a port may have passed on to another process.
func (d *Dispatcher) greet(w *wire, r *runner) (*carillonv1.AttachResponse, error) {
	hello := &carillonv1.AttachRequest{Hello: &carillonv1.AttachRequest_Hello{
		Controller: d.cfg.Controller, Deployment: r.Deployment,
	}}
	if err := w.Send(hello); err != nil && !errors.Is(err, io.EOF) { // for EOF, Receive tells the reason
		return nil, err
	}
	msg, err := w.Receive()
	if err != nil {
		return nil, err
	}
	switch welcome := msg.GetWelcome(); {
	case welcome == nil:
		return nil, errors.New("its first message is no welcome")
	case welcome.GetRunner() != r.Key:
		return nil, fmt.Errorf("runner %q answers in its place", cron.SafeText(welcome.GetRunner()))
	case welcome.GetDeployment() != r.Deployment:
		return nil, fmt.Errorf("it serves deployment %q", cron.SafeText(welcome.GetDeployment()))
	}
	return msg, nil
}

func (d *Dispatcher) attached(r *runner) *stream {
	s := &stream{d: d, runner: r, wake: make(chan struct{}, 1)}
	d.mu.Lock()
	r.stream, r.level, r.trouble = s, 0, ""
	d.stats.Streams++
	d.unlock()
	return s
}

// hear takes what a runner said; true when it answered a ping.
func (s *stream) hear(msg *carillonv1.AttachResponse) (alive bool) {
	d, r := s.d, s.runner
	s.progress(msg.GetProgress()) // first: a run's last one comes with its outcome
	d.mu.Lock()
	defer d.unlock()
	for _, resp := range msg.GetOutcomes() {
		id, err := cron.ParseRunID(resp.GetRunId())
		c := d.calls[id]
		if err != nil || c == nil || c.stream != s || (c.state != sent && c.state != ending) {
			d.stats.Unknown++
			continue
		}
		d.settle(c, resp)
	}
	if msg.Beat != nil {
		s.compare(msg.GetBeat())
	}
	if msg.Credits != nil {
		r.level = clampLevel(msg.GetCredits(), r.Capacity)
		d.pump(r.Deployment)
		d.cfg.OnRoom()
	}
	if n := msg.GetPong(); n > s.heard && n <= s.asked {
		s.heard, alive = n, true
	}
	return alive
}

// progress tells what verbs say of themselves.
func (s *stream) progress(all []*carillonv1.Progress) {
	for _, p := range all {
		id, err := cron.ParseRunID(p.GetRunId())
		if err != nil {
			continue
		}
		s.d.mu.Lock()
		c := s.d.calls[id]
		mine := c != nil && c.stream == s
		s.d.mu.Unlock()
		if mine {
			s.d.cfg.OnProgress(id, cron.SafeText(cut(p.GetText(), maxProgress)))
		}
	}
}

const (
	beatMargin = 2 * time.Second // between what we and the runner take for the age of a call
	beatMisses = 2
)

// compare ends calls that the runner does not know of any more: it named those that it executes for some time. One that
// is missing once may have its outcome on the way.
func (s *stream) compare(b *carillonv1.AttachResponse_Beat) {
	named := make(map[string]struct{}, len(b.GetRunIds()))
	for _, id := range b.GetRunIds() {
		named[id] = struct{}{}
	}
	before := time.Now().Add(-max(b.GetOlder().AsDuration(), 0) - beatMargin)
	for c := range s.runner.calls {
		if c.stream != s || c.state != sent || c.sentAt.After(before) {
			continue
		}
		if _, ok := named[c.id]; ok {
			c.missed = 0
		} else if c.missed++; c.missed >= beatMisses {
			s.d.finish(c, Outcome{Verdict: cron.Failed, Error: "runner " + s.runner.Key + " does not execute the run any more"})
		}
	}
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// lose ends what was sent over a stream that is broken and gives the rest to others.
func (d *Dispatcher) lose(s *stream, err error) {
	r := s.runner
	d.mu.Lock()
	defer d.unlock()
	r.stream, r.level = nil, 0
	d.stats.Streams--
	d.stats.Broken++
	for c := range r.calls {
		switch {
		case c.state == assigned:
			d.retract(c)
		case c.state == ending:
			d.finish(c, Outcome{Verdict: c.verdict, Error: c.reason + "; its runner went away"})
		case d.closed != "":
			d.finish(c, Outcome{Verdict: cron.Cancelled, Error: d.closed})
		default:
			d.finish(c, Outcome{Verdict: cron.Failed, Error: "runner " + r.Key + " went away: " + err.Error()})
		}
	}
	d.pump(r.Deployment)
}

// write sends what gathers, and a ping with each beat, until the stream breaks or ctx ends.
func (s *stream) write(ctx context.Context, w *wire) error {
	beat := time.NewTicker(s.d.cfg.Beat)
	defer beat.Stop()
	for {
		ping := false
		select {
		case <-s.wake:
		case <-beat.C:
			ping = true
		case <-ctx.Done():
			return nil
		}
		for {
			msg := s.next(ping)
			if msg == nil {
				break
			}
			ping = false
			if err := w.Send(msg); errors.Is(err, io.EOF) {
				return nil // Receive fails as well, and knows why
			} else if err != nil {
				return err
			}
		}
	}
}

// next takes a message's worth of what is to be said; nil when there is nothing. From here on its calls count as sent.
func (s *stream) next(ping bool) *carillonv1.AttachRequest {
	d := s.d
	d.mu.Lock()
	calls, n, bytes := make([]*call, 0, min(len(s.pending), messageCalls)), 0, 0
	for ; n < len(s.pending) && len(calls) < messageCalls && bytes < messageBytes; n++ {
		if c := s.pending[n]; c.runner == s.runner && d.begin(c) {
			c.stream = s
			calls = append(calls, c)
			bytes += len(c.Payload) + len(c.Envelope) + len(c.Ref) + len(c.IdempotencyKey) + len(c.Deployment) + 128
		}
	}
	if s.pending = s.pending[n:]; len(s.pending) == 0 {
		s.pending = nil
	}
	n = min(len(s.cancels), messageCalls)
	msg := &carillonv1.AttachRequest{CancelRunIds: s.cancels[:n:n]}
	s.cancels = s.cancels[n:]
	if ping {
		s.asked++
		msg.Ping = s.asked
	}
	d.unlock()
	now := time.Now()
	for _, c := range calls {
		msg.Calls = append(msg.Calls, request(c, now))
	}
	if !ping && len(calls) == 0 && n == 0 {
		return nil
	}
	return msg
}
