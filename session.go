package carillon

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	carillonv1 "carillon/proto/carillon/v1"

	"connectrpc.com/connect"
)

// session is one attached controller: a stream with a goroutine that reads and one that writes. The writer puts
// everything that gathered while the last message was on its way into the next one, so a busy stream carries many
// outcomes in a message and an idle one carries each at once.
type session struct {
	desk       *desk
	controller string
	wake       chan struct{} // there is something to write, or the session ended
	room       chan struct{} // the writer took what was queued

	wireMu sync.Mutex
	wire   *http.ResponseController // nil when the handler is over

	// Guarded by desk.mu.
	inFlight, peak int
	level          int

	mu     sync.Mutex
	out    []*carillonv1.CallResponse
	queued int               // about the bytes of out
	said   map[string]string // what verbs said last, by run id
	pulse  *carillonv1.AttachResponse_Beat
	levels *uint32 // a level to tell
	pong   uint64
	ended  bool
	cause  error // nil: the runner stops in peace

	pulseBytes int
}

const (
	messageOutcomes = 4096
	messageBytes    = 512 << 10
	queuedOutcomes  = 2 * messageOutcomes // a session with more to write reads no further calls
	queuedBytes     = 16 << 20            // the same
)

// enter counts a call of the session; desk.mu is held.
func (s *session) enter() {
	s.inFlight++
	s.peak = max(s.peak, s.inFlight)
}

// attach serves one controller's stream until it ends, its controller falls silent, or the runner stops.
func (d *desk) attach(wire *http.ResponseController, stream *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse], runner string, silence time.Duration) error {
	s := &session{desk: d, wire: wire, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	watch := time.AfterFunc(silence, func() { s.end(errSilent) })
	defer watch.Stop()
	defer s.release()
	first, err := stream.Receive()
	if err != nil {
		return fmt.Errorf("receive the first message: %w", err)
	}
	hello, mine := first.GetHello(), d.deployment()
	if hello == nil {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("the first message carries no hello"))
	}
	if hello.GetDeployment() != mine {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("this runner serves deployment %q", mine))
	}
	s.controller = hello.GetController()
	if err := stream.Send(&carillonv1.AttachResponse{Welcome: &carillonv1.AttachResponse_Welcome{
		Runner: runner, Deployment: mine, Capacity: uint32(d.capacity),
	}}); err != nil {
		return fmt.Errorf("send the welcome: %w", err)
	}
	if !d.join(s) {
		return connect.NewError(connect.CodeResourceExhausted, errors.New("too many controllers are attached"))
	}
	d.log.Info("controller attached", "controller", s.controller)
	var writer sync.WaitGroup
	writer.Go(func() {
		s.end(s.write(stream))
		s.tear((*http.ResponseController).SetReadDeadline)
	})
	s.read(first, stream, func() { watch.Reset(silence) })
	writer.Wait()
	cause := s.why()
	d.part(s)
	d.leave(func(w waiter) bool { return w.session == s }, cause)
	d.log.Info("controller detached", "controller", s.controller, "cause", cause)
	if errors.Is(cause, errSilent) {
		return connect.NewError(connect.CodeDeadlineExceeded, cause)
	}
	return nil
}

// read takes the controller's messages until the stream ends, which ends the session.
func (s *session) read(msg *carillonv1.AttachRequest, stream *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse], alive func()) {
	var err error
	for ; err == nil; msg, err = stream.Receive() {
		alive()
		s.desk.take(waiter{session: s}, msg.GetCalls()...)
		s.desk.cancel(s, msg.GetCancelRunIds())
		if n := msg.GetPing(); n != 0 {
			s.mu.Lock()
			s.pong = n
			s.mu.Unlock()
			s.signal()
		}
		s.waitForRoom()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.end(gone(err))
}

// gone is errGone with what the connection said.
func gone(err error) error {
	if err == nil {
		return errGone
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// waitForRoom keeps a controller that calls faster than it reads from filling the memory.
func (s *session) waitForRoom() {
	for {
		s.mu.Lock()
		full := (len(s.out) > queuedOutcomes || s.queued > queuedBytes) && !s.ended
		s.mu.Unlock()
		if !full {
			return
		}
		<-s.room
	}
}

func (s *session) answer(resp *carillonv1.CallResponse) {
	s.mu.Lock()
	s.out = append(s.out, resp)
	s.queued += weight(resp)
	s.mu.Unlock()
	s.signal()
}

func (s *session) grant(level int) {
	n := uint32(level)
	s.mu.Lock()
	s.levels = &n
	s.mu.Unlock()
	s.signal()
}

func (s *session) signal() { notify(s.wake) }

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// write sends what gathers until the session ends; in peace only when nothing is left to say. It returns why.
func (s *session) write(stream *connect.BidiStream[carillonv1.AttachRequest, carillonv1.AttachResponse]) error {
	for range s.wake {
		for {
			msg, over := s.next()
			if msg == nil && !over {
				break
			}
			if msg == nil {
				return nil
			}
			if err := stream.Send(msg); err != nil {
				return gone(err)
			}
		}
	}
	return nil
}

// end ends the session, the first call says why: in peace with nil, after which everything queued is still written, or
// with a cause, after which both goroutines are torn from the stream.
func (s *session) end(cause error) {
	s.mu.Lock()
	first := !s.ended
	if first {
		s.ended, s.cause = true, cause
	}
	s.mu.Unlock()
	s.signal()
	notify(s.room)
	if first && cause != nil {
		s.tear((*http.ResponseController).SetWriteDeadline, (*http.ResponseController).SetReadDeadline)
	}
}

// tear ends what blocks on the stream by deadlines that are past; once the handler is about to return, nothing.
func (s *session) tear(ways ...func(*http.ResponseController, time.Time) error) {
	s.wireMu.Lock()
	defer s.wireMu.Unlock()
	for _, way := range ways {
		if s.wire != nil {
			way(s.wire, time.Unix(1, 0))
		}
	}
}

// release keeps a late tear from a stream that is over.
func (s *session) release() {
	s.wireMu.Lock()
	s.wire = nil
	s.wireMu.Unlock()
}

func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		return errStopping
	}
	return s.cause
}

// join makes a session known and gives it its level; false when there are too many.
func (d *desk) join(s *session) bool {
	d.mu.Lock()
	full := len(d.sessions) >= maxStreams
	if !full {
		d.sessions = append(d.sessions, s)
	}
	d.mu.Unlock()
	if !full {
		s.grant(0)
		d.relevel()
	}
	return !full
}

func (d *desk) part(s *session) {
	d.mu.Lock()
	d.sessions = slices.DeleteFunc(d.sessions, func(o *session) bool { return o == s })
	d.mu.Unlock()
	d.relevel()
}

// relevel shares the capacity anew among the sessions and tells those whose level changed.
func (d *desk) relevel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	shown, others := make([]demand, len(d.sessions)), len(d.runs)
	for i, s := range d.sessions {
		shown[i] = demand{level: s.level, inFlight: s.inFlight, peak: s.peak}
		s.peak = s.inFlight
		others -= s.inFlight
	}
	capacity := d.capacity - max(others, 0) // unary calls, verbs that outlived their answer or their stream
	if d.draining {
		capacity = 0
	}
	for i, level := range levels(capacity, shown) {
		if s := d.sessions[i]; level != s.level {
			s.level = level
			s.grant(level)
		}
	}
}

// farewell ends all sessions in peace.
func (d *desk) farewell() {
	d.mu.Lock()
	sessions := slices.Clone(d.sessions)
	d.mu.Unlock()
	for _, s := range sessions {
		s.end(nil)
	}
}
