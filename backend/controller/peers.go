package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/core/ring"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

const hintPatience = time.Second

// peers speaks to the other controllers. All of it is hints: the database is the truth.
type peers struct {
	client   *http.Client
	token    string
	patience time.Duration // all answers together
}

func newPeers(token string) *peers {
	t := &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	return &peers{client: &http.Client{Transport: t}, token: token, patience: hintPatience}
}

func (p *peers) to(endpoint string) carillonv1connect.PeerServiceClient {
	return carillonv1connect.NewPeerServiceClient(p.client, endpoint, connect.WithReadMaxBytes(1<<20),
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithInterceptors(bearer(p.token)))
}

// bearer adds the cluster token.
func bearer(token string) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if token != "" {
				req.Header().Set("Authorization", "Bearer "+token)
			}
			return next(ctx, req)
		}
	})
}

// Interrupted asks another controller whether its own beats fail.
func (p *peers) Interrupted(ctx context.Context, endpoint string) (bool, error) {
	res, err := p.to(endpoint).Interrupted(ctx, &carillonv1.InterruptedRequest{})
	if err != nil {
		return false, err
	}
	return res.GetInterrupted(), nil
}

// hint tells members that rows or runners changed, and waits until all have looked or the patience is over.
func (p *peers) hint(ctx context.Context, members []ring.Member, self string, req *carillonv1.HintRequest) error {
	return p.all(ctx, members, self, func(ctx context.Context, m ring.Member) error {
		_, err := p.to(m.Endpoint).Hint(ctx, req)
		return err
	})
}

// all says something to all members but this one, at the same time, until the patience is over.
func (p *peers) all(ctx context.Context, members []ring.Member, self string, say func(context.Context, ring.Member) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patience)
	defer cancel()
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if m.Key == self {
			continue
		}
		wg.Go(func() {
			if err := say(ctx, m); err != nil {
				errs[i] = fmt.Errorf("hint %s: %w", m.Key, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

const cancelsPerCall = 1000 // as many as CancelRuns accepts

// cancelRuns has other controllers, by their endpoints, end runs of theirs. All are told at the same time, until the
// patience is over.
func (p *peers) cancelRuns(ctx context.Context, runs map[string][]string, reason string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patience)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for endpoint, ids := range runs {
		wg.Go(func() {
			for part := range slices.Chunk(ids, cancelsPerCall) {
				if _, err := p.to(endpoint).CancelRuns(ctx, &carillonv1.CancelRunsRequest{RunIds: part, Reason: reason}); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("tell %s of %d runs, the first %s: %w", endpoint, len(ids), ids[0], err))
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
