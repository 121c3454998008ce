package dispatch_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/backend/engine/dispatch"
)

// journal keeps what is logged, as "LEVEL message: cause".
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if !slices.Contains([]string{slog.LevelKey, slog.MessageKey, "cause", "after"}, a.Key) {
			return slog.Attr{}
		}
		return a
	}}))
}

// since are the lines since the last look.
func (j *journal) since() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := strings.TrimSpace(j.text.String())
	j.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func TestAnOutageIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		s := newStage(t, dispatch.Config{Log: log.logger()})
		line := func(level, cause string) string {
			return fmt.Sprintf(`level=%s msg="no stream to a runner" cause=%q`, level, cause)
		}
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := log.since(); !slices.Equal(got, want) {
				t.Errorf("%s:\ngot  %q\nwant %q", when, got, want)
			}
		}
		away := `unavailable: no route to r1:80`
		for capacity := range 8 { // what is known of it may change meanwhile
			s.know(dispatch.Runner{Key: "r1", Endpoint: "http://r1:80", Deployment: "d1", Capacity: capacity + 1, Stream: true})
			<-time.After(time.Second)
		}
		expect("a runner that starts", line("INFO", away))
		<-time.After(time.Minute)
		expect("a runner that does not start", line("WARN", away))

		// until waits for a line, and returns what was told before it: each once.
		until := func(part string) (before []string) {
			t.Helper()
			for range 300 {
				<-time.After(100 * time.Millisecond)
				synctest.Wait()
				before = append(before, log.since()...)
				n := len(before) - 1
				if n < 0 || !strings.Contains(before[n], part) {
					continue
				}
				if sorted := slices.Sorted(slices.Values(before)); len(slices.Compact(sorted)) != n+1 {
					t.Errorf("told more than once: %q", before)
				}
				return before[:n]
			}
			t.Fatalf("%q is never told, only %q", part, before)
			return nil
		}

		s.runners = nil
		door, stop := s.serve("r1", nil)
		if before := until(`level=INFO msg="runner attached" after=1m`); len(before) > 0 {
			t.Errorf("before a runner was attached: %q", before)
		}
		door.cut.Store(true)
		<-time.After(20 * time.Second)
		synctest.Wait()
		broken := log.since() // the connection may say something of its own, too
		if len(broken) == 0 || len(broken) > 3 || !slices.Contains(broken, line("WARN", "no answer to a ping")) {
			t.Errorf("no answer: %q", broken)
		}
		door.cut.Store(false)
		for _, again := range until("runner attached") {
			if slices.Contains(broken, again) {
				t.Errorf("told again: %q after %q", again, broken)
			}
		}

		stop()
		<-time.After(8 * time.Second)
		expect("a runner that stops", line("INFO", "it closed its stream"), line("INFO", "unavailable: r1:80 refuses connections"))
		<-time.After(time.Minute)
		expect("a runner that is still listed", line("WARN", "unavailable: r1:80 refuses connections"))
		s.stop()
		s.parts.Wait()
	})
}
