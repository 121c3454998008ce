package carillon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
)

// attached is a desk with one session whose messages are looked at here.
func attached(t *testing.T, verbs Verbs) (*desk, *session, func(id, verb string)) {
	d := newDesk(Config{Module: module, Verbs: verbs, Capacity: 10_000, Grace: time.Second, Log: quiet}, func() string { return "d1" })
	s := &session{desk: d, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	d.join(s)
	ctx, stop := context.WithCancel(t.Context())
	go d.tend(ctx)
	t.Cleanup(func() { stop(); close(d.over) })
	return d, s, func(id, verb string) {
		d.take(waiter{session: s}, &carillonv1.CallRequest{RunId: id, Ref: "m." + verb, Deployment: "d1", JobId: "j" + id})
	}
}

// messages takes all that the session has to say.
func messages(s *session) (all []*carillonv1.AttachResponse) {
	for msg, _ := s.next(); msg != nil; msg, _ = s.next() {
		all = append(all, msg)
	}
	return all
}

func TestProgressIsCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, call := attached(t, Verbs{"verb": Plain(func(ctx context.Context) error {
			for i := range 1000 { // one each millisecond
				Progress(ctx, fmt.Sprint(i))
				<-time.After(time.Millisecond)
			}
			Progress(ctx, "done\x00"+strings.Repeat("é", 1000))
			return nil
		})})
		call("r1", "verb")
		var texts []string
		outcomes := 0
		for range 30 {
			<-time.After(50 * time.Millisecond)
			synctest.Wait()
			for _, msg := range messages(s) {
				if outcomes += len(msg.GetOutcomes()); outcomes > 0 && len(msg.GetProgress()) > 0 && len(msg.GetOutcomes()) == 0 {
					t.Error("progress after the outcome")
				}
				for _, p := range msg.GetProgress() {
					if p.GetRunId() != "r1" {
						t.Errorf("progress of %s", p.GetRunId())
					}
					texts = append(texts, p.GetText())
				}
			}
		}
		if outcomes != 1 || len(texts) < 9 || len(texts) > 12 || texts[0] != "99" && texts[0] != "100" {
			t.Errorf("%d outcomes, %d texts, the first %q", outcomes, len(texts), texts[0])
		}
		if last := texts[len(texts)-1]; !strings.HasPrefix(last, "done é") || len(last) > maxProgress {
			t.Errorf("the last text has %d bytes: %.20q", len(last), last)
		}
	})
}

func TestProgressOutsideARunIsNothing(t *testing.T) {
	Progress(t.Context(), "x")
	synctest.Test(t, func(t *testing.T) {
		var late context.Context
		d, s, call := attached(t, Verbs{"verb": Plain(func(ctx context.Context) error { late = ctx; return nil })})
		call("r1", "verb")
		synctest.Wait()
		messages(s)
		Progress(late, "after the end")
		<-time.After(time.Second)
		synctest.Wait()
		for _, msg := range messages(s) {
			if len(msg.GetProgress()) > 0 {
				t.Errorf("got %v", msg)
			}
		}
		if len(d.talk.latest) != 0 || len(s.said) != 0 {
			t.Error("it stays in memory")
		}
		answerOf(t, Plain(func(ctx context.Context) error { Progress(ctx, "unary"); return nil }), &carillonv1.CallRequest{}, nil)
	})
}

// However much is to be said, a message stays below the bound, and a beat is whole and not before the outcomes.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		d, s, call := attached(t, Verbs{
			"talks": Plain(func(ctx context.Context) error { Progress(ctx, strings.Repeat("x", 5000)); <-open; return nil }),
			"gives": Gives(func(context.Context) (string, error) { return strings.Repeat("y", 900<<10), nil }),
		})
		for i := range 5000 {
			call(fmt.Sprintf("%s-%026d", "01234567", i), "talks")
		}
		synctest.Wait()
		<-time.After(6 * time.Second)
		messages(s)
		for i := range 20 {
			call(fmt.Sprint("g", i), "gives")
		}
		synctest.Wait()
		for id := range d.runs {
			s.tell(id, strings.Repeat("z", maxProgress))
		}
		d.beat(time.Now())
		progress, outcomes, beats := 0, 0, 0
		for _, msg := range messages(s) {
			size := 0
			for _, p := range msg.GetProgress() {
				size += len(p.GetText()) + len(p.GetRunId())
			}
			for _, o := range msg.GetOutcomes() {
				size += weight(o)
			}
			for _, id := range msg.GetBeat().GetRunIds() {
				size += len(id)
			}
			if size > maxMessage/2 {
				t.Errorf("a message of %d bytes", size)
			}
			progress, outcomes = progress+len(msg.GetProgress()), outcomes+len(msg.GetOutcomes())
			if msg.Beat != nil {
				if beats++; outcomes != 20 || len(msg.GetBeat().GetRunIds()) != 5000 {
					t.Errorf("a beat of %d after %d outcomes", len(msg.GetBeat().GetRunIds()), outcomes)
				}
			}
		}
		if progress != 5000 || outcomes != 20 || beats != 1 || s.queued != 0 {
			t.Errorf("%d texts, %d outcomes, %d beats, %d bytes left", progress, outcomes, beats, s.queued)
		}
		close(open)
		synctest.Wait()
	})
}

// The last text of a run is in the message of its outcome, however much else there is to tell.
func TestLastProgressTravelsWithTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		_, s, call := attached(t, Verbs{
			"talks": Plain(func(ctx context.Context) error { Progress(ctx, strings.Repeat("x", 1000)); <-open; return nil }),
			"ends":  Plain(func(ctx context.Context) error { Progress(ctx, "last words"); return nil }),
		})
		for i := range 3000 { // more than a message holds
			call(fmt.Sprint("t", i), "talks")
		}
		<-time.After(200 * time.Millisecond)
		for i := range 10 {
			call(fmt.Sprint("e", i), "ends")
		}
		synctest.Wait()
		last := 0
		for _, msg := range messages(s) {
			for _, o := range msg.GetOutcomes() {
				if slices.ContainsFunc(msg.GetProgress(), func(p *carillonv1.Progress) bool {
					return p.GetRunId() == o.GetRunId() && p.GetText() == "last words"
				}) {
					last++
				}
			}
		}
		if last != 10 {
			t.Errorf("%d of 10 outcomes have their last text beside them", last)
		}
		close(open)
		synctest.Wait()
	})
}

func TestBeatNamesLongCallsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		_, s, call := attached(t, Verbs{
			"long": Plain(func(context.Context) error { <-open; return nil }),
			"wait": Plain(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }),
		})
		beat := func() (ids []string, at int) {
			synctest.Wait()
			for _, msg := range messages(s) {
				if msg.Beat != nil {
					if at++; msg.GetBeat().GetOlder().AsDuration() != 5*time.Second {
						t.Errorf("older %v", msg.GetBeat().GetOlder())
					}
					ids = append(ids, msg.GetBeat().GetRunIds()...)
				}
			}
			slices.Sort(ids)
			return ids, at
		}
		<-time.After(time.Second)
		call("r1", "long")
		<-time.After(3 * time.Second)
		call("r2", "long")
		for _, c := range []struct {
			after time.Duration
			want  []string
			n     int
		}{
			{time.Second + time.Millisecond, nil, 1}, // r1 is 4 s old
			{5 * time.Second, []string{"r1", "r2"}, 1},
			{4 * time.Second, nil, 0},
		} {
			<-time.After(c.after)
			if ids, n := beat(); n != c.n || !slices.Equal(ids, c.want) {
				t.Errorf("after %s: %d beats, %v", c.after, n, ids)
			}
		}
		close(open)
		synctest.Wait()
		<-time.After(5 * time.Second)
		if ids, n := beat(); n != 1 || len(ids) != 0 {
			t.Errorf("at the end: %d beats, %v", n, ids)
		}
	})
}
