// Command drillrunner is the runner of the drills: it serves the verbs of a schema on the SDK and writes down itself
// what it did, as a witness that shares nothing with what it testifies against.
//
// Each verb appends a line when it begins and one when it ends to a file that it opens with O_APPEND, one write each, so
// that the lines of several runners in one file stay whole and a kill -9 loses none. What a verb does is in its name up
// to the first x: nap300x1 takes 300 ms, failx1 returns an error, panicx1 panics, hangx1 waits for its context,
// deafx1 does not even do that (for a minute). Any other returns at once.
//
// A verb with a request does what the task in it says (jobs.go), and writes to a file of its own.
//
// With -garbage it serves no verbs at all: it answers whatever comes with nonsense. It must never know a controller's
// decisions; a file that cannot be written ends it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"carillon"
)

func main() {
	var (
		schema    = flag.String("schema", "", "`file` with the schema as protojson")
		digest    = flag.String("digest", "", "of the deployment")
		record    = flag.String("record", "", "`file` to append to")
		control   = flag.String("controllers", "", "`URLs` of controllers, with commas")
		token     = flag.String("token", "", "cluster token")
		capacity  = flag.Int("capacity", 5000, "calls in flight")
		listen    = flag.String("listen", "127.0.0.1:0", "`address` to serve on")
		key       = flag.String("key", "", "of this process")
		drain     = flag.Duration("drain", 5*time.Second, "how long calls may go on after a stop")
		isGarbage = flag.Bool("garbage", false, "answer nonsense")
	)
	flag.Parse()
	if *isGarbage {
		log.Fatal(garbage(*listen))
	}
	if err := run(*schema, *record, carillon.Config{
		Module:      carillon.Module{Language: "go", Digest: *digest},
		Controllers: strings.Split(*control, ","), Token: *token, Capacity: *capacity, Listen: *listen, Runner: *key, Drain: *drain,
	}); err != nil {
		log.Fatal(err)
	}
}

func run(schema, record string, cfg carillon.Config) error {
	text, err := os.ReadFile(schema)
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	var parsed struct {
		Module string
		Verbs  []struct{ Name, Request string }
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	file, err := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the record: %w", err)
	}
	w := witness{file: file, runner: cfg.Runner}
	cfg.Module.Name, cfg.Module.Schema = parsed.Module, string(text)
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg.Verbs = carillon.Verbs{}
	work, err := newJobs(record, cfg.Runner)
	if err != nil {
		return err
	}
	for _, v := range parsed.Verbs {
		cfg.Verbs[v.Name] = w.verb(behaviour(v.Name))
		if takesTask(v.Request) {
			cfg.Verbs[v.Name] = work.handler()
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return carillon.Serve(ctx, cfg)
}

// witness writes what verbs do.
type witness struct {
	file   *os.File
	runner string
}

// verb records a verb's begin and its end.
func (w witness) verb(do func(context.Context) error) carillon.Handler {
	return carillon.Plain(func(ctx context.Context) error {
		run, ok := carillon.RunFrom(ctx)
		if !ok {
			return errors.New("a verb without a run")
		}
		w.line("begin", run, "")
		text := "panic"
		defer func() { w.line("end", run, text) }() // a panic goes on after it
		err := do(ctx)
		if text = ""; err != nil {
			text = err.Error()
		}
		return err
	})
}

func (w witness) line(what string, run carillon.Run, text string) {
	line := fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", what, w.runner, run.ID, run.Ref, run.Slot.UnixMicro(), run.Attempt,
		time.Now().UnixNano(), strings.NewReplacer("\n", " ", "\t", " ").Replace(text))
	if _, err := w.file.WriteString(line); err != nil {
		log.Fatalf("write the record: %v", err) // a witness that cannot testify must not go on
	}
}

// behaviour reads what a verb does from its name.
func behaviour(name string) func(context.Context) error {
	kind, _, _ := strings.Cut(name, "x")
	if ms, err := strconv.Atoi(strings.TrimPrefix(kind, "nap")); err == nil && kind != strings.TrimPrefix(kind, "nap") {
		return func(ctx context.Context) error { return nap(ctx, time.Duration(ms)*time.Millisecond) }
	}
	switch kind {
	case "fail":
		return func(context.Context) error { return errors.New("the drill asked for it") }
	case "panic":
		return func(context.Context) error { panic("the drill asked for it") }
	case "hang":
		return func(ctx context.Context) error { return nap(ctx, time.Hour) }
	case "deaf":
		return func(context.Context) error { return nap(context.Background(), time.Minute) }
	}
	return func(context.Context) error { return nil }
}

func nap(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
