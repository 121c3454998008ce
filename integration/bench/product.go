package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// product is Carillon: controllers and a runner in processes of their own, jobs by RPC. Work is held by pausing the verb.
type product struct {
	controllers int

	b       *bench
	url     string
	db      *pgx.Conn
	parts   []*process // controllers, then the runner
	runner  *process
	clients []carillonv1connect.JobServiceClient
	http    *http.Client
	next    atomic.Uint64
}

func (p *product) open(ctx context.Context, b *bench, url string) (err error) {
	p.b, p.url = b, url
	if p.db, err = pgx.Connect(ctx, url); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	for i := range p.controllers {
		// One after the other: the first one migrates.
		c, err := p.startController(i)
		if err != nil {
			return err
		}
		p.parts = append(p.parts, c)
		if err := eventually(ctx, c.name, p.ready); err != nil {
			return fmt.Errorf("%w%s", err, c.said())
		}
	}
	urls, err := p.urls(ctx)
	if err != nil {
		return err
	}
	p.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}
	for _, u := range urls {
		p.clients = append(p.clients, carillonv1connect.NewJobServiceClient(p.http, u, connect.WithAcceptCompression("gzip", nil, nil)))
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if p.runner, err = spawn(b.dir, "runner", nil, self, "runner", "-controllers", strings.Join(urls, ","), "-capacity", strconv.Itoa(b.capacity)); err != nil {
		return err
	}
	p.parts = append(p.parts, p.runner)
	if err := eventually(ctx, "the first job", p.firstJob); err != nil {
		return fmt.Errorf("%w%s", err, p.said())
	}
	return p.hold(ctx)
}

func (p *product) startController(i int) (*process, error) {
	return spawn(p.b.dir, fmt.Sprintf("controller-%d", i), []string{"DATABASE_URL=" + p.url}, p.b.binary,
		"controller", "--migrate", "--listen", "127.0.0.1:0", "--log-format", "text", "--log-level", "warn")
}

func (p *product) said() string {
	var all string
	for _, part := range p.parts {
		all += part.said()
	}
	return all
}

// ready says whether all controllers that were started are in the ring and ready.
func (p *product) ready(ctx context.Context) error {
	for _, part := range p.parts {
		if err := part.alive(); err != nil {
			return err
		}
	}
	urls, err := p.urls(ctx)
	if err != nil {
		return err
	}
	if len(urls) != len(p.parts) {
		return fmt.Errorf("%d of %d controllers are live", len(urls), len(p.parts))
	}
	for _, u := range urls {
		if _, err := get(ctx, u+"/readyz"); err != nil {
			return err
		}
		metrics, err := get(ctx, u+"/metrics")
		if err != nil {
			return err
		}
		if sees := fmt.Sprintf("\ncarillon_ring_members %d\n", len(urls)); !strings.Contains(metrics, sees) {
			return fmt.Errorf("%s does not see a ring of %d yet", u, len(urls))
		}
	}
	return nil
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}

func (p *product) urls(ctx context.Context) ([]string, error) {
	rows, err := p.db.Query(ctx, "SELECT endpoint FROM carillon.controllers WHERE state = 'live' ORDER BY key")
	if err != nil {
		return nil, fmt.Errorf("look for the controllers: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// firstJob has one job done through each controller, so that module, queue and streams are there, and forgets it.
func (p *product) firstJob(ctx context.Context) error {
	for i := range p.clients {
		before, err := p.begun(ctx)
		if err != nil {
			return err
		}
		if err := p.send(ctx, p.clients[i], 1); err != nil {
			return err
		}
		if err := eventually(ctx, "its run", func(ctx context.Context) error {
			if n, err := p.begun(ctx); err != nil || n <= before {
				return errors.Join(err, errors.New("no run yet"))
			}
			live, err := p.live(ctx, p.db)
			if err == nil && live {
				err = errors.New("it has not ended")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (p *product) send(ctx context.Context, client carillonv1connect.JobServiceClient, n int) error {
	req := &carillonv1.EnqueueJobsRequest{Jobs: make([]*carillonv1.NewJob, n)}
	for i := range req.Jobs {
		req.Jobs[i] = &carillonv1.NewJob{Ref: ref, Payload: payload()}
	}
	resp, err := client.EnqueueJobs(ctx, req)
	if err != nil {
		return err
	}
	for _, j := range resp.GetJobs() {
		if e := j.GetError(); e != nil {
			return fmt.Errorf("refused: %s: %s: %s", e.GetCode(), e.GetField(), e.GetMessage())
		}
	}
	if len(resp.GetJobs()) != n {
		return fmt.Errorf("%d answers to %d jobs", len(resp.GetJobs()), n)
	}
	return nil
}

// any is the controllers in turn.
func (p *product) any() carillonv1connect.JobServiceClient {
	return p.clients[p.next.Add(1)%uint64(len(p.clients))]
}

func (p *product) bulk(ctx context.Context, n int) error { return p.send(ctx, p.any(), n) }

func (p *product) enqueue(ctx context.Context, _ int) error { return p.send(ctx, p.any(), 1) }

func (p *product) work(ctx context.Context) error {
	_, err := p.clients[0].ResumeJobs(ctx, &carillonv1.ResumeJobsRequest{Ref: ref})
	return err
}

func (p *product) hold(ctx context.Context) error {
	if _, err := p.clients[0].PauseJobs(ctx, &carillonv1.PauseJobsRequest{Ref: ref, Reason: "bench"}); err != nil {
		return err
	}
	return pause(ctx, 50*time.Millisecond) // the others hear of it
}

func (p *product) begun(context.Context) (int, error) {
	n, _, err := p.runner.ask("count", false)
	return n - p.forgotten(), err
}

// forgotten are the first jobs, through each controller.
func (p *product) forgotten() int { return len(p.clients) }

func (p *product) late(_ context.Context, first int) ([]time.Duration, error) {
	_, all, err := p.runner.ask(fmt.Sprintf("late %d", first+p.forgotten()), true)
	return all, err
}

func (p *product) live(ctx context.Context, db *pgx.Conn) (bool, error) { return jobsLive(ctx, db) }

func (p *product) verify(ctx context.Context, db *pgx.Conn, jobs int) error {
	runs, err := p.begun(ctx)
	if err != nil {
		return err
	}
	return jobsEnded(ctx, db, jobs+p.forgotten(), runs+p.forgotten())
}

func (p *product) cpu() (total time.Duration) {
	for _, part := range p.parts {
		total += treeCPU(part.cmd.Process.Pid)
	}
	return total
}

func (p *product) hot() string { return "carillon.jobs" }

// close ends the processes, controllers first: they drain while the runner answers.
func (p *product) close(ctx context.Context) {
	controllers := p.parts[:min(p.controllers, len(p.parts))]
	_ = together(len(controllers), func(i int) error {
		controllers[i].end(10 * time.Second)
		return nil
	})
	if p.runner != nil {
		p.runner.end(5 * time.Second)
	}
	if p.http != nil {
		p.http.CloseIdleConnections()
	}
	if p.db != nil {
		p.db.Close(ctx)
	}
}
