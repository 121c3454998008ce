package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"carillon/backend/controller"
	"carillon/backend/devdb"
)

// devCmd starts a whole cluster on one machine.
type devCmd struct {
	database
	Dirs        []string `arg:"" optional:"" name:"dir" help:"Directories of modules to build, run and deploy (default, in a checkout of Carillon: its examples)."`
	DataDir     string   `placeholder:"DIR" help:"Where the database, the logs and the built runners are kept (default: ${dev_data})."`
	Listen      string   `default:"127.0.0.1:7800" placeholder:"ADDR" help:"Address of the first controller; the next ones take the next ports (default ${default})."`
	Controllers int      `default:"3" placeholder:"N" help:"How many controllers (default ${default})."`
	PgBin       string   `env:"CARILLON_PG_BIN" placeholder:"DIR" help:"Where initdb and postgres are, if not somewhere usual."`
	Verbose     bool     `short:"v" help:"Show the logs of all processes, too."`
}

func (c *devCmd) Help() string {
	return `A private Postgres is started (or the one of DATABASE_URL used), then the controllers, each a process of its own, and a
runner for every module. What runs is shown as it happens. A process that dies is started again: kill -9 a controller and
watch nothing happen. A changed source file rebuilds and redeploys its module. Ctrl-C ends everything; the data are kept.
A module that an earlier start deployed and this one does not serve is scaled to 0, and comes back when it is served again.

Examples:

  carillon dev
  carillon dev ./billing ./reports --listen 127.0.0.1:7900
  HOUSEKEEPING_DIR=/var/tmp/logs carillon dev`
}

// dev is a running cluster. Its fields do not change once it runs.
type dev struct {
	cmd     *devCmd
	screen  *screen
	verbose io.Writer // nil: logs go to files alone
	data    string
	self    string // our own binary
	url     string // of the database
	addrs   []string
	began   time.Time
}

func (c *devCmd) Run(ctx context.Context, a *app) error {
	dirs, err := c.modules()
	if err != nil {
		return err
	}
	addrs, err := planPorts(c.Listen, c.Controllers)
	if err != nil {
		return err
	}
	d := &dev{cmd: c, screen: newScreen(a, portWidth), addrs: addrs}
	if c.Verbose {
		d.verbose = a.stderr
	}
	if d.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find our own binary: %w", err)
	}
	if d.data, err = c.dataDir(); err != nil {
		return err
	}
	return d.run(ctx, dirs)
}

// run brings up the database, then everything that needs it, and takes it all down in the other order.
func (d *dev) run(ctx context.Context, dirs []string) error {
	log := slog.New(slog.NewTextHandler(eventWriter{d.screen}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg := devdb.Config{DatabaseURL: d.cmd.DatabaseURL, DataDir: filepath.Join(d.data, "postgres"), BinDir: d.cmd.PgBin, Logger: log}
	db, err := devdb.Start(ctx, cfg)
	if errors.Is(err, devdb.ErrInUse) {
		return mend(err, "does another `carillon dev` run? End it, or give this one a directory of its own: --data-dir DIR")
	}
	if err != nil {
		return err
	}
	d.url, d.began = db.URL(), time.Now()
	if db.Private() {
		d.setAside()
	}
	err = errors.Join(d.serve(ctx, db, dirs), db.Close())
	if ctx.Err() != nil {
		d.screen.text("stopped")
	}
	return err
}

// server is what serve asks of the database's.
type server interface {
	Private() bool
	PID() int
}

// serve runs the processes until the context ends; all of them have ended when it returns.
func (d *dev) serve(ctx context.Context, db server, dirs []string) error {
	if err := controller.Migrate(ctx, d.url, io.Discard); err != nil {
		return ignoreStop(ctx, err)
	}
	if db.Private() {
		d.screen.text(fmt.Sprintf("postgres    pid %d, data in %s", db.PID(), filepath.Join(d.data, "postgres")))
	}
	d.screen.text(fmt.Sprintf("logs        %s", filepath.Join(d.data, "logs")))

	modules := d.build(ctx, dirs)

	idle := d.idler(modules)
	if db.Private() { // in somebody else's database other modules are none of our business
		if err := idle.before(ctx); err != nil {
			return ignoreStop(ctx, fmt.Errorf("scale down what nobody serves: %w", err))
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i, addr := range d.addrs {
		s := d.controller(i, addr)
		all.Go(func() { s.run(ctx) })
	}
	for _, m := range modules {
		all.Go(func() { m.run(ctx) })
	}
	if db.Private() {
		all.Go(func() { idle.run(ctx) })
	}
	if err := d.awaitReady(ctx); err != nil {
		return ignoreStop(ctx, err)
	}
	d.screen.text(fmt.Sprintf("try         carillon cron ls --controller http://%s, or kill -9 a controller; Ctrl-C ends everything", d.addrs[0]))
	d.screen.header()
	w := d.watcher()
	all.Go(func() { w.run(ctx) })
	<-ctx.Done()
	d.screen.text("stopping ...")
	return nil
}

// build makes the modules' first binaries, all at the same time. That comes before the controllers start: what is due then
// finds a runner.
func (d *dev) build(ctx context.Context, dirs []string) []*devModule {
	var building sync.WaitGroup
	defer building.Wait()
	var modules []*devModule
	var names []string
	for _, dir := range dirs {
		m := &devModule{dev: d, dir: dir}
		modules, names = append(modules, m), append(names, filepath.Base(dir))
		building.Go(func() { m.build(ctx) })
	}
	d.screen.text("building    " + strings.Join(names, ", ") + " (the first time takes a minute or two)")
	return modules
}

// controller supervises one controller: this same binary in a process of its own.
func (d *dev) controller(i int, addr string) *supervisor {
	log := fmt.Sprintf("controller-%d", i+1)
	return &supervisor{
		name: "controller " + addr,
		start: func() (process, error) {
			return d.start(log, environ("DATABASE_URL="+d.url), d.self,
				"controller", "--listen", addr, "--advertise", "http://"+addr, "--log-format", "text", "--drain", "2s")
		},
		told: func(c change) {
			if c.running && !c.again {
				d.screen.text(fmt.Sprintf("controller  http://%s, pid %d", addr, c.pid))
				return
			}
			d.report(c, log)
		},
	}
}

// awaitReady waits until one controller answers that it is ready.
func (d *dev) awaitReady(ctx context.Context) error {
	const bound = 30 * time.Second
	deadline := time.Now().Add(bound)
	probe := http.Client{Timeout: time.Second}
	for ctx.Err() == nil {
		for _, addr := range d.addrs {
			resp, err := probe.Get("http://" + addr + "/readyz")
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					return nil
				}
			}
		}
		if time.Now().After(deadline) {
			return mend(fmt.Errorf("no controller became ready within %s", bound), "their logs are in %s", filepath.Join(d.data, "logs"))
		}
		sleep(ctx, 50*time.Millisecond)
	}
	return ctx.Err()
}

// ignoreStop forgets an error that is only the echo of a stop.
func ignoreStop(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// dataDir makes the directory of everything that is kept.
func (c *devCmd) dataDir() (string, error) {
	dir := cmp.Or(c.DataDir, devData())
	if dir == "" {
		return "", mend(errors.New("find a data directory: the user has no home"), "name one with --data-dir")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the data directory: %w", err)
	}
	for _, sub := range []string{"logs", "runners"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", mend(fmt.Errorf("make the data directory: %w", err), "name another with --data-dir")
		}
	}
	return dir, nil
}

// devData is where everything is kept unless another directory is named, or nothing.
func devData() string {
	postgres, err := devdb.DefaultDataDir()
	if err != nil {
		return ""
	}
	return filepath.Dir(postgres)
}

// modules are the directories to deploy, absolute.
func (c *devCmd) modules() ([]string, error) {
	dirs := c.Dirs
	if len(dirs) == 0 {
		root, ok := checkout()
		if !ok {
			return nil, usage{mend(errors.New("no module is named, and this is no checkout of Carillon with examples to run"),
				"name the directories of your modules: carillon dev ./mymodule")}
		}
		dirs = []string{filepath.Join(root, "examples", "heartbeat"), filepath.Join(root, "examples", "housekeeping")}
	}
	for i, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("find module %s: %w", dir, err)
		}
		if fi, err := os.Stat(abs); err != nil || !fi.IsDir() {
			return nil, usage{fmt.Errorf("%s is no directory", dir)}
		}
		dirs[i] = abs
	}
	return dirs, nil
}

// checkout finds the checkout of Carillon that the working directory belongs to.
func checkout() (root string, ok bool) {
	dir, err := os.Getwd()
	for err == nil {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module carillon\n") {
			_, err := os.Stat(filepath.Join(dir, "examples", "heartbeat"))
			return dir, err == nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return "", false
}
