package carillon

import (
	"context"
	"sync"
	"time"

	carillonv1 "carillon/proto/carillon/v1"

	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	talkEvery   = 100 * time.Millisecond // levels and progress
	beatEvery   = 5 * time.Second        // and how long a call executes before it is named
	maxProgress = 1 << 10                // bytes of a text
	maxBeat     = maxMessage - 64<<10    // bytes of the run ids of one beat
)

// talk is what verbs said about themselves since it was passed on: the last text of each.
type talk struct {
	mu     sync.Mutex // taken under desk.mu, or alone
	latest map[*execution]string
}

func (t *talk) say(e *execution, text string) {
	text = cut(text, maxProgress)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest == nil {
		t.latest = map[*execution]string{}
	}
	t.latest[e] = text
}

func (t *talk) takeAll() map[*execution]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.latest
	t.latest = nil
	return all
}

func (t *talk) take(e *execution) (text string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text, ok = t.latest[e]
	delete(t.latest, e)
	return text, ok
}

// tend looks after the sessions until ctx ends: ten times a second at their demand and at what verbs said, and now and
// then it tells them which long calls still execute.
func (d *desk) tend(ctx context.Context) {
	tick, beat := time.NewTicker(talkEvery), time.NewTicker(beatEvery)
	defer tick.Stop()
	defer beat.Stop()
	for {
		select {
		case <-tick.C:
			d.relevel()
			d.passOn()
		case <-beat.C:
			d.beat(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// passOn gives the sessions what verbs said. What was said after the answer is dropped, for nobody waits any more.
func (d *desk) passOn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for e, text := range d.talk.takeAll() {
		e.tell(text)
	}
}

// tell gives a text to the sessions that wait for e; desk.mu is held.
func (e *execution) tell(text string) {
	for _, w := range e.waiters {
		if w.session != nil {
			w.session.tell(e.run.ID, text)
		}
	}
}

// beat tells each session which of its calls have been executing for long and still do. A session without any is told
// so, too: that is how a lost call is missed.
func (d *desk) beat(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	long := make(map[*session][]string, len(d.sessions))
	for id, e := range d.runs {
		if now.Sub(e.begun) <= beatEvery || e.outcome != nil {
			continue
		}
		for _, w := range e.waiters {
			if w.session != nil {
				long[w.session] = append(long[w.session], id)
			}
		}
	}
	for _, s := range d.sessions {
		s.beat(&carillonv1.AttachResponse_Beat{Older: durationpb.New(beatEvery), RunIds: long[s]})
	}
}

func (s *session) tell(run, text string) {
	s.mu.Lock()
	if s.said == nil {
		s.said = map[string]string{}
	}
	s.said[run] = text
	s.mu.Unlock()
	s.signal()
}

func (s *session) beat(b *carillonv1.AttachResponse_Beat) {
	bytes := 0
	for _, id := range b.GetRunIds() {
		bytes += len(id) + 2
	}
	if bytes > maxBeat { // half of a beat would say that the others are lost
		return
	}
	s.mu.Lock()
	s.pulse, s.pulseBytes = b, bytes
	s.mu.Unlock()
	s.signal()
}

// next takes a message's worth of what is to be said; over says that nothing will follow. What a run said last travels
// with its outcome at the latest, and a beat never overtakes an outcome.
func (s *session) next() (msg *carillonv1.AttachResponse, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended && (s.cause != nil || len(s.out) == 0) {
		return nil, true
	}
	if len(s.out) == 0 && s.levels == nil && s.pong == 0 && len(s.said) == 0 && s.pulse == nil {
		return nil, false
	}
	msg = &carillonv1.AttachResponse{Credits: s.levels, Pong: s.pong}
	s.levels, s.pong = nil, 0
	n, bytes := 0, 0
	progress := func(run, text string) {
		msg.Progress = append(msg.Progress, &carillonv1.Progress{RunId: run, Text: text})
		bytes += len(run) + len(text) + 16
		delete(s.said, run)
	}
	for n < min(len(s.out), messageOutcomes) && bytes < messageBytes {
		w := weight(s.out[n])
		bytes += w
		s.queued -= w
		if text, ok := s.said[s.out[n].GetRunId()]; ok {
			progress(s.out[n].GetRunId(), text)
		}
		n++
	}
	msg.Outcomes, s.out = s.out[:n:n], s.out[n:]
	if s.pulse != nil && len(s.out) == 0 && (bytes == 0 || bytes+s.pulseBytes < maxBeat/2) {
		msg.Beat, s.pulse = s.pulse, nil
		bytes += s.pulseBytes
	}
	for run, text := range s.said {
		if bytes >= messageBytes {
			break
		}
		progress(run, text)
	}
	notify(s.room)
	return msg, false
}
