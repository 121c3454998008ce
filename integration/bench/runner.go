package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"carillon"
	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

const (
	module   = "bench"
	verb     = "noop"
	ref      = module + "." + verb
	ringVerb = "ring"
	ringRef  = module + "." + ringVerb
)

// serveRunner is the runner's process: verbs on the SDK that note that they began: one of plain jobs, one of triggers'
// jobs. It answers on stdout what it is asked on stdin, and ends with it.
//
//	count              how many plain runs have begun
//	late N             those after the first N: a number, and each one's nanoseconds since it was sent
//	marked FROM TO     of triggers, those of a slot (Unix seconds) or an event (number) in between: a number, and each one's
//	                   nanoseconds since then
//	doubled FROM TO    how many of them began again
//	strange FROM TO    how many of them were for another trigger
func serveRunner(args []string) error {
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	controllers := flags.String("controllers", "", "")
	capacity := flags.Int("capacity", 1000, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	text, err := protojson.Marshal(&carillonv1.Schema{
		Module: module, Language: schema.Go,
		Verbs: []*carillonv1.Verb{{Name: verb, Request: "Task", Response: schema.Unit}, {Name: ringVerb, Request: "Chime", Response: schema.Unit}},
		Data: []*carillonv1.Data{
			{Name: "Task", Fields: []*carillonv1.Field{{Name: "sent", Type: "Int"}}}, {Name: "Chime", Fields: []*carillonv1.Field{{Name: "trigger", Type: "Int"}}},
		},
	})
	if err != nil {
		return fmt.Errorf("write the schema: %w", err)
	}
	n, m := &notes{}, &marks{}
	go func() {
		answer(os.Stdin, os.Stdout, n, m)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	// As the code does that `carillon build` generates.
	os.Args = append(os.Args[:1], "-controller", *controllers, "-capacity", strconv.Itoa(*capacity), "-deploy", "-drain", "1s")
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	carillon.Main(carillon.Module{Name: module, Language: schema.Go, Digest: "0badcafe0badcafe", Schema: string(text)},
		carillon.Verbs{verb: carillon.Takes(func(_ context.Context, t task) error {
			n.ran(t)
			return nil
		}), ringVerb: carillon.Takes(m.ring)})
	return nil
}

// answer serves the questions until there are no more.
func answer(in io.Reader, out io.Writer, n *notes, m *marks) {
	w := bufio.NewWriter(out)
	list := func(late []time.Duration) {
		fmt.Fprintln(w, len(late))
		for _, d := range late {
			fmt.Fprintln(w, d.Nanoseconds())
		}
	}
	for lines := bufio.NewScanner(in); lines.Scan(); w.Flush() {
		var what string
		var first, to int64
		fmt.Sscanf(lines.Text(), "%s %d %d", &what, &first, &to)
		switch what {
		case "count":
			fmt.Fprintln(w, n.count())
		case "late":
			list(n.since(min(max(int(first), 0), n.count())))
		case "marked":
			var late []time.Duration
			for _, k := range m.within(first, to) {
				late = append(late, k.late)
			}
			list(late)
		case "doubled":
			fmt.Fprintln(w, doubled(m.within(first, to)))
		case "strange":
			fmt.Fprintln(w, strange(m.within(first, to)))
		default:
			fmt.Fprintln(w, "0")
		}
	}
}
