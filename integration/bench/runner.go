package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"carillon"
	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

const (
	module = "bench"
	verb   = "noop"
	ref    = module + "." + verb
)

// serveRunner is the runner's process: one verb on the SDK that notes that it began. It answers on stdout what it is
// asked on stdin, and ends with it.
//
//	count        how many runs have begun
//	late N       those after the first N: a number, and each one's nanoseconds since it was sent
func serveRunner(args []string) error {
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	controllers := flags.String("controllers", "", "")
	capacity := flags.Int("capacity", 1000, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	text, err := protojson.Marshal(&carillonv1.Schema{
		Module: module, Language: schema.Go,
		Verbs: []*carillonv1.Verb{{Name: verb, Request: "Task", Response: schema.Unit}},
		Data:  []*carillonv1.Data{{Name: "Task", Fields: []*carillonv1.Field{{Name: "sent", Type: "Int"}}}},
	})
	if err != nil {
		return fmt.Errorf("write the schema: %w", err)
	}
	n := &notes{}
	go func() {
		defer stop()
		n.answer(os.Stdin, os.Stdout)
	}()
	return carillon.Serve(ctx, carillon.Config{
		Module: carillon.Module{Name: module, Language: schema.Go, Digest: "0badcafe0badcafe", Schema: string(text)},
		Verbs: carillon.Verbs{verb: carillon.Takes(func(_ context.Context, t task) error {
			n.ran(t)
			return nil
		})},
		Controllers: strings.Split(*controllers, ","), Capacity: *capacity, Deploy: true, Drain: time.Second,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

// answer serves the questions until there are no more.
func (n *notes) answer(in io.Reader, out io.Writer) {
	w := bufio.NewWriter(out)
	for lines := bufio.NewScanner(in); lines.Scan(); w.Flush() {
		var first int
		switch _, err := fmt.Sscanf(lines.Text(), "late %d", &first); {
		case lines.Text() == "count":
			fmt.Fprintln(w, n.count())
		case err == nil:
			late := n.since(min(max(first, 0), n.count()))
			fmt.Fprintln(w, len(late))
			for _, d := range late {
				fmt.Fprintln(w, d.Nanoseconds())
			}
		default:
			fmt.Fprintln(w, "0")
		}
	}
}
