package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"carillon/backend/controller"
)

const (
	startPatience = 30 * time.Second
	stopPatience  = 10 * time.Second
)

// cluster is what runs during one case: controllers and runners, as processes or in this one.
type cluster struct {
	b     *bench
	c     latenessCase
	url   string
	db    *pgx.Conn
	dir   string // logs and begins
	parts []*part
	own   begins // of the runners in this process
}

// part is one controller or runner.
type part struct {
	name string
	stop func()     // asks it to end
	kill func()     // ends it
	done chan error // its end
}

// start brings the cluster up, until its controllers are ready and its runners serve.
func (k *cluster) start(ctx context.Context) error {
	for i := range k.controllers() {
		if err := k.startController(ctx, i); err != nil {
			return err
		}
	}
	urls, err := k.awaitControllers(ctx)
	if err != nil {
		return err
	}
	for i := range k.c.modules() {
		if err := k.startRunner(ctx, i, urls); err != nil {
			return err
		}
	}
	return nil
}

func (k *cluster) controllers() int {
	if k.c.inProcess {
		return 1
	}
	return k.b.Controllers
}

func (k *cluster) startController(ctx context.Context, i int) error {
	name := fmt.Sprintf("controller-%d", i)
	if k.c.inProcess {
		cfg := controller.DefaultConfig()
		cfg.DatabaseURL, cfg.Listen, cfg.Version = k.url, "127.0.0.1:0", "bench"
		cfg.Logger = slog.New(slog.NewTextHandler(k.log(name), &slog.HandlerOptions{Level: slog.LevelWarn}))
		k.here(ctx, name, func(ctx context.Context) error { return controller.Run(ctx, cfg) })
		return nil
	}
	return k.spawn(name, "controller", "--listen", "127.0.0.1:0", "--log-format", "text", "--log-level", "warn")
}

func (k *cluster) startRunner(ctx context.Context, i int, controllers []string) error {
	c := RunnerConfig{
		Module: fmt.Sprintf("bench%d", i), Verbs: min(perModule, k.c.Jobs-i*perModule), Schedule: k.c.schedule(), Controllers: controllers,
		Capacity: k.b.Capacity,
	}
	if c.Capacity == 0 {
		c.Capacity = c.Verbs
	}
	name := "runner-" + c.Module
	if k.c.inProcess {
		c.Log = slog.New(slog.NewTextHandler(k.log(name), &slog.HandlerOptions{Level: slog.LevelWarn}))
		k.here(ctx, name, func(ctx context.Context) error { return serve(ctx, c, &k.own) })
		return nil
	}
	return k.spawn(name, "bench", "runner", "--module", c.Module, "--verbs", strconv.Itoa(c.Verbs), "--schedule", c.Schedule,
		"--controllers", strings.Join(controllers, ","), "--capacity", strconv.Itoa(c.Capacity), "--samples", k.samples(name))
}

func (k *cluster) samples(name string) string { return filepath.Join(k.dir, name+".begins") }

// here runs a part in this process.
func (k *cluster) here(ctx context.Context, name string, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{name: name, stop: stop, kill: stop, done: make(chan error, 1)}
	go func() { p.done <- run(ctx) }()
	k.parts = append(k.parts, p)
}

// spawn runs a part as a process.
func (k *cluster) spawn(name string, args ...string) error {
	log := k.log(name)
	child, err := k.b.Spawn(log, []string{"DATABASE_URL=" + k.url}, args...)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p := &part{name: name, stop: child.Terminate, kill: child.Kill, done: make(chan error, 1)}
	go func() { p.done <- child.Wait() }()
	k.parts = append(k.parts, p)
	return nil
}

// log is a file for what a part says; the end of it stands in the error when the part ends unasked.
func (k *cluster) log(name string) *os.File {
	f, err := os.OpenFile(filepath.Join(k.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return os.Stderr
	}
	return f
}

// said is the end of all logs.
func (k *cluster) said() string {
	var all bytes.Buffer
	for _, p := range k.parts {
		text, _ := os.ReadFile(filepath.Join(k.dir, p.name+".log"))
		if len(text) > 2000 {
			text = text[len(text)-2000:]
		}
		if len(text) > 0 {
			fmt.Fprintf(&all, "\n%s: %s", p.name, bytes.TrimSpace(text))
		}
	}
	return all.String()
}

// alive is nil while no part has ended.
func (k *cluster) alive() error {
	for _, p := range k.parts {
		select {
		case err := <-p.done:
			p.done <- err
			return fmt.Errorf("%s ended: %v%s", p.name, err, k.said())
		default:
		}
	}
	return nil
}

// awaitControllers returns the URLs of all controllers when each is ready.
func (k *cluster) awaitControllers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		rows, err := k.db.Query(ctx, "SELECT endpoint FROM carillon.controllers WHERE state = 'live' ORDER BY key")
		if err != nil {
			return nil, fmt.Errorf("look for the controllers: %w", err)
		}
		urls, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("look for the controllers: %w", err)
		}
		ready := 0
		for _, u := range urls {
			if isReady(ctx, u) {
				ready++
			}
		}
		if ready == k.controllers() {
			return urls, nil
		}
		if err := errors.Join(k.alive(), pause(ctx, 100*time.Millisecond)); err != nil {
			return nil, fmt.Errorf("wait for %d controllers, %d are ready: %w%s", k.controllers(), ready, err, k.said())
		}
	}
}

func isReady(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// stop ends the parts, controllers first: they drain while their runners still answer. A part that does not end is killed.
func (k *cluster) stop() {
	controllers := k.controllers()
	for _, some := range [][]*part{k.parts[:min(controllers, len(k.parts))], k.parts[min(controllers, len(k.parts)):]} {
		var wg sync.WaitGroup
		for _, p := range some {
			wg.Go(func() { p.end() })
		}
		wg.Wait()
	}
	k.parts = nil
}

func (p *part) end() {
	p.stop()
	t := time.NewTimer(stopPatience)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.kill()
		<-p.done
	}
}
