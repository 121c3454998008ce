package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// Bounds of a watch.
const (
	watchSilence  = 40 * time.Second // a stream that says nothing for so long is broken; an idle one speaks each 15 s
	watchOverlap  = 10 * time.Minute // of slots, that are read again after a gap
	watchPages    = 50               // of those, at most
	watchRelist   = 3 * time.Second  // when the ledger is read again if the stream has not spoken
	watchMemory   = 100_000          // runs of which a generation of the memory knows that they were shown
	watchFirstGap = 100 * time.Millisecond
	watchLastGap  = 2 * time.Second
)

// watcher follows the ledger of a cluster and emits each of its rows once, whichever controllers come and go: it reads the
// stream of one controller, goes to the next one when that breaks, and fills the gap from the list.
//
// Only the goroutine of run touches its fields and calls its functions.
type watcher struct {
	endpoints func() []string // in the order in which to try them; never empty
	runs      func(url string) (carillonv1connect.RunServiceClient, error)
	ref       string
	module    string
	since     time.Time // rows that ended before are history when the watch begins; zero: all that were there
	emit      func(*carillonv1.Run)
	gap       func(url string, err error) // told when a stream broke, may be nil

	shown   memory // emitted
	history memory // there before the watch began
	began   bool
}

// run watches until the context ends.
func (w *watcher) run(ctx context.Context) {
	pause := watchFirstGap
	for try := 0; ctx.Err() == nil; try++ {
		urls := w.endpoints()
		url := urls[try%len(urls)]
		spoke, err := w.session(ctx, url)
		if ctx.Err() != nil {
			return
		}
		if w.gap != nil {
			w.gap(url, err)
		}
		if spoke {
			pause = watchFirstGap
		}
		sleep(ctx, pause)
		pause = min(2*pause, watchLastGap)
	}
}

var errSilent = errors.New("the stream fell silent")

// session follows one stream until it breaks. It reports whether anything was heard.
func (w *watcher) session(ctx context.Context, url string) (spoke bool, err error) {
	cl, err := w.runs(url)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages, broken := w.receive(ctx, cl)
	if err := w.fill(ctx, cl); err != nil {
		return false, err
	}
	// The list above may be older than the beginning of the stream. What fell between is in a second list, read when the
	// stream is known to flow, or must be by now.
	relist := time.NewTimer(watchRelist)
	defer relist.Stop()
	silence := time.NewTimer(watchSilence)
	defer silence.Stop()
	for {
		select {
		case m := <-messages:
			for _, r := range m.GetRuns() {
				w.show(r)
			}
			silence.Reset(watchSilence)
			if !spoke && relist.Stop() {
				relist.Reset(0)
			}
			spoke = true
		case <-relist.C:
			if err := w.fill(ctx, cl); err != nil {
				return spoke, err
			}
		case <-silence.C:
			return spoke, errSilent
		case err := <-broken:
			return spoke, err
		}
	}
}

// receive opens the stream and hands over its messages until the context ends or the stream breaks.
func (w *watcher) receive(ctx context.Context, cl carillonv1connect.RunServiceClient) (<-chan *carillonv1.WatchRunsResponse, <-chan error) {
	messages, broken := make(chan *carillonv1.WatchRunsResponse), make(chan error, 1)
	go func() {
		stream, err := cl.WatchRuns(ctx, &carillonv1.WatchRunsRequest{Ref: w.ref, Module: w.module})
		if err != nil {
			broken <- err
			return
		}
		defer stream.Close()
		for stream.Receive() {
			select {
			case messages <- stream.Msg():
			case <-ctx.Done():
				return
			}
		}
		if err := stream.Err(); err != nil {
			broken <- err
			return
		}
		broken <- errors.New("the stream ended")
	}()
	return messages, broken
}

// fill emits what the list knows and the stream did not bring. The first time, what ended before the watch is noted as
// history instead.
func (w *watcher) fill(ctx context.Context, cl carillonv1connect.RunServiceClient) error {
	req := &carillonv1.ListRunsRequest{
		Ref: w.ref, Module: w.module, PageSize: pageSize, From: timestamppb.New(time.Now().Add(-watchOverlap)),
	}
	var ended []*carillonv1.Run
	for range watchPages {
		page, cancel := context.WithTimeout(ctx, 10*time.Second)
		resp, err := cl.ListRuns(page, req)
		cancel()
		if err != nil {
			return err
		}
		for _, r := range resp.GetRuns() {
			if r.GetVerdict() != carillonv1.Verdict_VERDICT_UNSPECIFIED {
				ended = append(ended, r)
			}
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	slices.SortStableFunc(ended, func(a, b *carillonv1.Run) int {
		return a.GetEndedAt().AsTime().Compare(b.GetEndedAt().AsTime())
	})
	for _, r := range ended {
		switch key := runKey(r); {
		case w.history.has(key):
		case !w.began && (w.since.IsZero() || r.GetEndedAt().AsTime().Before(w.since)):
			w.history.add(key)
		default:
			w.show(r)
		}
	}
	w.began = true
	return nil
}

// show emits a row unless it was.
func (w *watcher) show(r *carillonv1.Run) {
	if key := runKey(r); !w.shown.has(key) {
		w.shown.add(key)
		w.emit(r)
	}
}

// runKey names a row of the ledger: its run, or the range of its skipped slots.
func runKey(r *carillonv1.Run) string {
	if r.GetRunId() != "" {
		return r.GetRunId()
	}
	return r.GetRef() + " " + r.GetSlot().AsTime().Format(time.RFC3339Nano) + " " + r.GetVerdict().String()
}

// memory remembers the latest keys, at least watchMemory of them, in two generations.
type memory struct {
	young, old map[string]struct{}
}

func (m *memory) has(key string) bool {
	_, young := m.young[key]
	_, old := m.old[key]
	return young || old
}

func (m *memory) add(key string) {
	if m.young == nil || len(m.young) >= watchMemory {
		m.young, m.old = map[string]struct{}{}, m.young
	}
	m.young[key] = struct{}{}
}

// sleep waits, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
