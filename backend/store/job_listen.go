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

// ListenJobs hears of jobs that were enqueued by SQL, and ListenAll of events that were published by it, too: on a
// connection of its own. They call jobs and events for each transaction that made some, and once after each connect: what
// came before was not heard. They return nil when ctx ends. The functions must not block. Behind a pooler in transaction
// mode nobody can listen; jobs and events are found by polling then.
func (s *Store) ListenJobs(ctx context.Context, jobs func()) error {
	return s.listenFor(ctx, map[string]func(){"carillon_jobs": jobs})
}

// ListenAll is described with ListenJobs.
func (s *Store) ListenAll(ctx context.Context, jobs, events func()) error {
	return s.listenFor(ctx, map[string]func(){"carillon_jobs": jobs, "carillon_events": events})
}

func (s *Store) listenFor(ctx context.Context, heard map[string]func()) error {
	if s.pooler {
		s.log.InfoContext(ctx, "behind a pooler nobody hears of what SQL made: it is found by polling")
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
		s.log.WarnContext(ctx, "notifications not listened for", "error", wrap("listen for notifications", err), "again_in", after)
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
func (s *Store) listen(ctx context.Context, heard map[string]func()) (connected bool, err error) {
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
	for channel := range heard {
		if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
			return false, err
		}
	}
	for _, tell := range heard {
		tell()
	}
	for {
		wait, cancel := context.WithTimeout(ctx, listenCheck)
		note, err := c.WaitForNotification(wait)
		silent := wait.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			if tell := heard[note.Channel]; tell != nil {
				tell()
			}
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
