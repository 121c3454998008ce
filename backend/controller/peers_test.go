package controller

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// peer is another controller that hears of cancelled runs.
type peer struct {
	carillonv1connect.UnimplementedPeerServiceHandler
	mu    sync.Mutex
	heard []string
	calls int
	hangs chan struct{} // it does not answer before this is closed
}

func (p *peer) CancelRuns(ctx context.Context, req *carillonv1.CancelRunsRequest) (*carillonv1.CancelRunsResponse, error) {
	p.mu.Lock()
	p.calls++
	p.heard = append(p.heard, req.GetRunIds()...)
	p.mu.Unlock()
	if p.hangs != nil {
		<-p.hangs
	}
	return &carillonv1.CancelRunsResponse{}, nil
}

func (p *peer) serve(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(carillonv1connect.NewPeerServiceHandler(p))
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// Thousands of runs at three controllers, of which one stands still: the others hear of all theirs, in a few calls, and
// the caller waits no longer than its patience.
func TestCancelsReachAllWhileOneStandsStill(t *testing.T) {
	still := &peer{hangs: make(chan struct{})}
	good := []*peer{{}, {}}
	runs := map[string][]string{}
	stillAt := still.serve(t)
	t.Cleanup(func() { close(still.hangs) }) // before its server closes
	for i := range 2500 {
		id := fmt.Sprint("run-", i)
		runs[stillAt] = append(runs[stillAt], id)
	}
	for _, p := range good {
		runs[p.serve(t)] = runs[stillAt]
	}
	p := newPeers("")
	p.patience = 3 * time.Second // a busy machine is no reason to miss a peer
	began := time.Now()
	err := p.cancelRuns(t.Context(), runs, "enough")
	if took := time.Since(began); took > 5*p.patience {
		t.Errorf("it took %s", took)
	}
	if err == nil || !strings.Contains(err.Error(), stillAt) || strings.Count(err.Error(), "tell ") != 1 {
		t.Errorf("error %v, want one of %s", err, stillAt)
	}
	for _, p := range good {
		if len(p.heard) != 2500 || p.calls != 3 || p.heard[2499] != "run-2499" {
			t.Errorf("heard of %d runs in %d calls", len(p.heard), p.calls)
		}
	}
	still.mu.Lock() // who called it has left, not it
	defer still.mu.Unlock()
	if still.calls != 1 {
		t.Errorf("who stands still was called %d times", still.calls)
	}
}
