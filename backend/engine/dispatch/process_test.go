package dispatch_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon"
	"carillon/backend/core/cron"
	"carillon/backend/engine/dispatch"
)

// otherProcess starts this test binary as a runner and says where it listens.
func otherProcess(b *testing.B) string {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CARILLON_BENCH_RUNNER=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func TestCallsOverLoopback(t *testing.T) {
	for _, stream := range []bool{true, false} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		runner := benchRunner(listener)
		runner.Token = "secret"
		parts.Go(func() {
			if err := carillon.Serve(ctx, runner); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
		d := dispatch.New(dispatch.Config{Controller: "c1", Token: "secret", Log: quiet})
		parts.Go(func() { d.Run(ctx) })
		d.SetRunners([]dispatch.Runner{{
			Key: runner.Runner, Endpoint: "http://" + listener.Addr().String(), Deployment: "d1", Capacity: 1000, Stream: stream,
		}})
		outs := make(chan dispatch.Outcome, 500)
		for i := range cap(outs) {
			c := call(fmt.Sprintf("v%d", i%100))
			c.Slot = time.Time{}
			d.Dispatch(c, func(o dispatch.Outcome) { outs <- o })
		}
		for range cap(outs) {
			if o := <-outs; o.Verdict != cron.Succeeded {
				t.Errorf("stream %v: %+v", stream, o)
			}
		}
		stop()
		parts.Wait()
	}
}
