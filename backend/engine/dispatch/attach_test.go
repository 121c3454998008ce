package dispatch_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon"
	"carillon/backend/core/cron"
	"carillon/backend/engine/dispatch"
)

// link is a network in memory: listeners by address. Cutting an address makes its connections swallow everything.
type link struct {
	mu    sync.Mutex
	doors map[string]*door
}

type door struct {
	addr  string
	conns chan net.Conn
	shut  chan struct{}
	once  sync.Once
	cut   atomic.Bool
	dead  atomic.Bool
	mu    sync.Mutex
	open  []net.Conn
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}
func (d *door) Close() error   { d.once.Do(func() { close(d.shut) }); return nil }
func (d *door) Addr() net.Addr { return name(d.addr) }

// kill is the death of the process behind the door.
func (d *door) kill() {
	d.dead.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.open {
		c.Close()
	}
}

type name string

func (n name) Network() string { return "memory" }
func (n name) String() string  { return string(n) }

// hole drops what is written to it while its door is cut, as a partition does.
type hole struct {
	net.Conn
	door *door
}

func (h hole) Write(b []byte) (int, error) {
	if h.door.cut.Load() {
		return len(b), nil
	}
	return h.Conn.Write(b)
}

func (l *link) listen(addr string) *door {
	d := &door{addr: addr, conns: make(chan net.Conn), shut: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doors == nil {
		l.doors = map[string]*door{}
	}
	l.doors[addr] = d
	return d
}

func (l *link) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	l.mu.Lock()
	d := l.doors[addr]
	l.mu.Unlock()
	if d == nil || d.dead.Load() {
		return nil, fmt.Errorf("no route to %s", addr)
	}
	near, far := net.Pipe()
	select {
	case d.conns <- hole{far, d}:
		d.mu.Lock()
		d.open = append(d.open, near, far)
		d.mu.Unlock()
		return hole{near, d}, nil
	case <-d.shut:
		return nil, fmt.Errorf("%s refuses connections", addr)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var quiet = slog.New(slog.DiscardHandler)

// stage is a dispatcher and runners on one link, inside a bubble.
type stage struct {
	*dispatch.Dispatcher
	t       *testing.T
	link    link
	parts   sync.WaitGroup
	runners []dispatch.Runner
	stop    context.CancelFunc
	ctx     context.Context
}

func newStage(t *testing.T, cfg dispatch.Config) *stage {
	s := &stage{t: t}
	s.ctx, s.stop = context.WithCancel(t.Context())
	cfg.Dial, cfg.Log, cfg.Controller = s.link.dial, cmp.Or(cfg.Log, quiet), "c1"
	s.Dispatcher = dispatch.New(cfg)
	s.parts.Go(func() {
		if err := s.Run(s.ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { s.stop(); s.parts.Wait() })
	return s
}

// plain are verbs without request and response.
type plain map[string]func(context.Context) error

func (p plain) verbs() carillon.Verbs {
	out := carillon.Verbs{}
	for name, fn := range p {
		out[name] = carillon.Plain(fn)
	}
	return out
}

// serve starts a real runner (the SDK) of deployment d1 and makes it known; the returned func stops it and waits.
func (s *stage) serve(key string, verbs plain, change ...func(*carillon.Config, *dispatch.Runner)) (*door, context.CancelFunc) {
	d := s.link.listen(key + ":80")
	known := dispatch.Runner{Key: key, Endpoint: "http://" + key + ":80", Deployment: "d1", Capacity: 100, Stream: true}
	cfg := carillon.Config{
		Module: carillon.Module{Name: "m", Language: "go"}, Verbs: verbs.verbs(), Deployment: "d1", Listener: d, Runner: key, Log: quiet,
	}
	for _, f := range change {
		f(&cfg, &known)
	}
	ctx, stop := context.WithCancel(s.ctx)
	s.parts.Go(func() {
		if err := carillon.Serve(ctx, cfg); err != nil {
			s.t.Errorf("Serve: %v", err)
		}
	})
	s.know(known)
	return d, stop
}

func (s *stage) know(r dispatch.Runner) {
	s.runners = append(s.runners, r)
	s.SetRunners(s.runners)
	synctest.Wait()
}

var runs atomic.Uint64

// call is a call of a verb of module m by a fresh run.
func call(verb string) dispatch.Call {
	var id cron.RunID
	binary.BigEndian.PutUint64(id[8:], runs.Add(1))
	return dispatch.Call{
		Run: id, Ref: "m." + verb, Slot: time.Unix(1_700_000_000, 0).UTC(), Kind: cron.SlotRun, Attempt: 1,
		Timeout: time.Minute, GiveUp: 10 * time.Second, Deployment: "d1", IdempotencyKey: "m." + verb + "@2023-11-14T22:13:20Z",
	}
}

func (s *stage) start(c dispatch.Call) <-chan dispatch.Outcome {
	out := make(chan dispatch.Outcome, 1)
	s.Dispatch(c, func(o dispatch.Outcome) { out <- o })
	return out
}

func want(t *testing.T, what string, got dispatch.Outcome, v cron.Verdict, text string) {
	t.Helper()
	if got.Verdict != v || got.Error != text {
		t.Errorf("%s: got %s %q, want %s %q", what, got.Verdict, got.Error, v, text)
	}
}

func BenchmarkAttach(b *testing.B) {
	b.Run("in process", func(b *testing.B) {
		ctx, stop := context.WithCancel(b.Context())
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		var parts sync.WaitGroup
		parts.Go(func() { carillon.Serve(ctx, benchRunner(listener)) })
		measure(b, listener.Addr().String())
		stop()
		parts.Wait()
	})
	b.Run("two processes", func(b *testing.B) {
		measure(b, otherProcess(b))
	})
}

func benchRunner(l net.Listener) carillon.Config {
	verbs := plain{}
	for i := range 100 {
		verbs[fmt.Sprintf("v%d", i)] = func(context.Context) error { return nil }
	}
	return carillon.Config{
		Module: carillon.Module{Name: "m"}, Verbs: verbs.verbs(), Deployment: "d1", Runner: "bench-runner", Listener: l, Capacity: 1000, Log: quiet,
	}
}

// measure keeps 100 calls in flight.
func measure(b *testing.B, addr string) {
	d := dispatch.New(dispatch.Config{Controller: "c1", Log: quiet})
	ctx, stop := context.WithCancel(b.Context())
	var parts sync.WaitGroup
	parts.Go(func() { d.Run(ctx) })
	d.SetRunners([]dispatch.Runner{{Key: "bench-runner", Endpoint: "http://" + addr, Deployment: "d1", Capacity: 1000, Stream: true}})
	if o := d.Call(ctx, call("v0")); o.Verdict != cron.Succeeded {
		b.Fatalf("first call: %+v", o)
	}
	left := atomic.Int64{}
	left.Store(int64(b.N))
	done := make(chan struct{}, 100)
	b.ResetTimer()
	for i := range 100 {
		verb := fmt.Sprintf("v%d", i)
		var next func(dispatch.Outcome)
		next = func(o dispatch.Outcome) {
			if o.Verdict != cron.Succeeded {
				b.Errorf("call: %+v", o)
			}
			if left.Add(-1) < 0 {
				done <- struct{}{}
				return
			}
			d.Dispatch(call(verb), next)
		}
		next(dispatch.Outcome{Verdict: cron.Succeeded})
	}
	for range 100 {
		<-done
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	stop()
	parts.Wait()
}

// TestMain lets the benchmark start this binary as a runner.
func TestMain(m *testing.M) {
	if os.Getenv("CARILLON_BENCH_RUNNER") == "" {
		os.Exit(m.Run())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	ctx, stop := context.WithCancel(context.Background())
	go func() { // ends with its parent
		os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	if err := carillon.Serve(ctx, benchRunner(listener)); err != nil {
		panic(err)
	}
}
