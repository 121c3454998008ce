package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// says sends runs on a stream.
func says(s *connect.ServerStream[carillonv1.WatchRunsResponse], runs ...*carillonv1.Run) error {
	return s.Send(&carillonv1.WatchRunsResponse{Runs: runs})
}

// watchOf makes a watcher of fakes, and the channel of what it emits.
func watchOf(since time.Time, fakes ...*fakeController) (*watcher, chan *carillonv1.Run) {
	emitted := make(chan *carillonv1.Run, 100)
	var urls []string
	for _, f := range fakes {
		urls = append(urls, f.url)
	}
	return &watcher{
		endpoints: func() []string { return urls },
		runs: func(url string) (carillonv1connect.RunServiceClient, error) {
			cl, err := newClient(url, "", time.Minute)
			return cl.runs, err
		},
		since: since,
		emit:  func(r *carillonv1.Run) { emitted <- r },
	}, emitted
}

// take waits for that many runs and returns their names in order.
func take(t *testing.T, emitted <-chan *carillonv1.Run, n int) string {
	t.Helper()
	var names []string
	for range n {
		select {
		case r := <-emitted:
			names = append(names, r.GetRunId())
		case <-time.After(30 * time.Second):
			t.Fatalf("only %v came, %d wanted", names, n)
		}
	}
	return strings.Join(names, " ")
}

// Run 3 ends in the gap, 1 and 2 are told by the stream and by the list, 3 and 4 by both controllers, and 4 twice.
func TestAWatchNeitherLosesNorDoublesARunWhenItsControllerDies(t *testing.T) {
	ledger := func(f *fakeController, seconds ...int) {
		for _, s := range seconds {
			f.ledger(aRun(string(rune('0'+s)), s))
		}
	}
	second := &fakeController{}
	first := &fakeController{}
	first.watch = func(ctx context.Context, s *connect.ServerStream[carillonv1.WatchRunsResponse]) error {
		if err := says(s, aRun("1", 1)); err != nil {
			return err
		}
		ledger(first, 1, 2)
		err := says(s, aRun("2", 2))
		ledger(second, 3)
		return err // and it is gone
	}
	second.watch = func(ctx context.Context, s *connect.ServerStream[carillonv1.WatchRunsResponse]) error {
		ledger(second, 4)
		if err := says(s, aRun("4", 4), aRun("4", 4)); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	startFake(t, first)
	startFake(t, second)
	second.ledger(aRun("0", 0), aRun("1", 1), aRun("2", 2), &carillonv1.Run{RunId: "x", Slot: at(4)}) // 0 is history, x executes
	first.ledger(aRun("0", 0))
	w, emitted := watchOf(at(1).AsTime(), first, second)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.run(ctx); close(done) }()
	got := take(t, emitted, 4)
	for _, name := range []string{"1", "2", "3", "4"} {
		if !strings.Contains(got, name) {
			t.Errorf("emitted %q, which lacks %s", got, name)
		}
	}
	cancel()
	<-done
	if len(emitted) > 0 {
		t.Errorf("beside %q also %v", got, <-emitted)
	}
}

// Run 1 ends when the list was read but the stream has not begun.
func TestAWatchSeesWhatEndsWhileItBegins(t *testing.T) {
	f := &fakeController{}
	f.watch = func(ctx context.Context, s *connect.ServerStream[carillonv1.WatchRunsResponse]) error {
		for f.lists() == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Millisecond):
			}
		}
		f.ledger(aRun("1", 1))
		if err := says(s); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	startFake(t, f)
	w, emitted := watchOf(at(0).AsTime(), f)
	ctx, cancel := context.WithTimeout(t.Context(), watchRelist-time.Second) // sooner than the list is read anyway
	defer cancel()
	go w.run(ctx)
	select {
	case r := <-emitted:
		if r.GetRunId() != "1" {
			t.Errorf("emitted %v", r)
		}
	case <-ctx.Done():
		t.Error("run 1 was not seen")
	}
}

func TestSkippedRangesAreRowsOfTheirOwn(t *testing.T) {
	a := &carillonv1.Run{Ref: "a.b", Slot: at(1), Verdict: carillonv1.Verdict_VERDICT_SKIPPED_MISSED}
	b := &carillonv1.Run{Ref: "a.b", Slot: at(2), Verdict: carillonv1.Verdict_VERDICT_SKIPPED_MISSED}
	shown := 0
	w := watcher{emit: func(*carillonv1.Run) { shown++ }}
	for _, r := range []*carillonv1.Run{a, b, a, b} {
		w.show(r)
	}
	if shown != 2 {
		t.Errorf("%d rows shown, want 2", shown)
	}
}

func TestTheMemoryOfAWatchIsBounded(t *testing.T) {
	var m memory
	key := func(i int) string { return aRun(string(rune(i)), 0).GetRunId() }
	for i := range 3 * watchMemory {
		m.add(key(i))
		if i >= 100 && !m.has(key(i-100)) {
			t.Fatalf("forgot a key 100 after it came, at %d", i)
		}
	}
	if n := len(m.young) + len(m.old); n > 2*watchMemory {
		t.Errorf("remembers %d keys", n)
	}
}

func TestRunsWatchPrintsOneObjectOnEachLine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeController{}
	f.watch = func(stream context.Context, s *connect.ServerStream[carillonv1.WatchRunsResponse]) error {
		if err := says(s, aRun("1", 1), aRun("2", 2)); err != nil {
			return err
		}
		// The list is asked again behind the first message, so that when it is, that was printed.
		for f.lists() < 2 {
			select {
			case <-stream.Done():
				return nil
			case <-time.After(time.Millisecond):
			}
		}
		cancel()
		return nil
	}
	startFake(t, f)
	code, stdout, stderr := carillonUntil(t, ctx, "runs", "watch", "-o", "json", "--controller", f.url)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var row runJSON
	if code != 0 || len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &row) != nil || row.RunID != "2" || row.Verdict != "succeeded" {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func (f *fakeController) lists() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func TestALineShowsARun(t *testing.T) {
	var out strings.Builder
	s := newScreen(&app{stdout: &out}, keyWidth)
	s.header()
	r := aRun("1", 2)
	r.Verdict, r.Error = carillonv1.Verdict_VERDICT_FAILED, "disk\nfull"
	s.run(r, time.Now(), ":7800")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := "12:00:02.012"; !strings.HasPrefix(lines[1], want) {
		t.Errorf("line %q, want it to begin with %q", lines[1], want)
	}
	for _, column := range []struct{ header, cell string }{{"REF", "heartbeat.beat"}, {"SLOT", "2026-01-31 12:00:02"}, {"CONTROLLER", ":7800"}, {"VERDICT", "failed"}, {"ERROR", "disk full"}} {
		if strings.Index(lines[0], column.header) != strings.Index(lines[1], column.cell) {
			t.Errorf("%s does not stand above %s:\n%s", column.header, column.cell, out.String())
		}
	}
	for _, cell := range []string{"1.5ms", "10.5ms"} {
		if !strings.Contains(lines[1], cell) {
			t.Errorf("line %q lacks %q", lines[1], cell)
		}
	}
}
