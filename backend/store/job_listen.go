package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	listenCheck   = 30 * time.Second // a silent connection is asked whether it lives
	listenBackoff = 5 * time.Second  // between two tries to connect, at most
)

// ListenJobs hears of jobs that were enqueued by SQL, on a connection of its own, and calls heard for each transaction
// that made some, and once after each connect: what came before was not heard. It returns nil when ctx ends. heard must
// not block. Behind a pooler in transaction mode nobody can listen; jobs are found by polling then.
func (s *Store) ListenJobs(ctx context.Context, heard func()) error {
	if s.pooler {
		s.log.InfoContext(ctx, "behind a pooler nobody hears of jobs that SQL enqueued: they are found by polling")
		<-ctx.Done()
		return nil
	}
	for failures := 0; ; {
		connected, err := s.listen(ctx, heard)
		if ctx.Err() != nil {
			return nil
		}
		if connected {
			failures = 0
		}
		failures++
		after := min(100*time.Millisecond<<min(failures-1, 10), listenBackoff)
		s.log.WarnContext(ctx, "jobs not listened for", "error", wrap("listen for jobs", err), "again_in", after)
		t := time.NewTimer(after)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// listen works until its connection breaks.
func (s *Store) listen(ctx context.Context, heard func()) (connected bool, err error) {
	cfg := s.api.Config().ConnConfig
	cfg.RuntimeParams["application_name"] = "carillon listen"
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		c.Close(closing)
	}()
	if _, err := c.Exec(ctx, "LISTEN carillon_jobs"); err != nil {
		return false, err
	}
	heard()
	for {
		wait, cancel := context.WithTimeout(ctx, listenCheck)
		_, err := c.WaitForNotification(wait)
		silent := wait.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			heard()
		case !silent:
			return true, err
		default:
			alive, cancel := context.WithTimeout(ctx, listenBackoff)
			err := c.Ping(alive)
			cancel()
			if err != nil {
				return true, err
			}
		}
	}
}
