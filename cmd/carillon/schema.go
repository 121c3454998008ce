package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/backend/core/schema"
	"carillon/backend/module"
	carillonv1 "carillon/proto/carillon/v1"
)

// schemaCmd prints the schema of a module.
type schemaCmd struct {
	Dir    string `arg:"" help:"Directory of the module's source."`
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"text|json" help:"Form of the output: text or json."`
}

func (c *schemaCmd) Help() string {
	return `Examples:

  carillon schema ./examples/mailroom
  carillon schema ./billing -o json`
}

func (c *schemaCmd) Run(ctx context.Context, a *app) error {
	src, err := readModule(ctx, a.stderr, c.Dir)
	if err != nil {
		return err
	}
	if c.Output == "text" {
		_, err := io.WriteString(a.stdout, src.Module.Text())
		return err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(schemaProto(src.Module))
	if err != nil {
		return fmt.Errorf("print schema: %w", err)
	}
	// protojson changes its blanks at will, so they are set here.
	return a.json(rawJSON(text))
}

// rawJSON is text that is JSON already.
type rawJSON []byte

func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

// checkCmd checks the annotations of modules.
type checkCmd struct {
	Dirs []string `arg:"" name:"dir" help:"Directories of the modules' source, or above several modules."`
}

func (c *checkCmd) Help() string {
	return `Every fault is shown with its place, and the exit code is 1 when there is one. Below a directory all Go packages with a
directive are read, whichever Go modules they belong to, and all Kotlin projects with an annotation; testdata, vendor and
hidden directories are left out.

Examples:

  carillon check ./examples/heartbeat ./examples/housekeeping
  carillon check .`
}

func (c *checkCmd) Run(ctx context.Context, a *app) error {
	faulty := false
	var dirs []string
	for _, dir := range c.Dirs {
		dirs = append(dirs, module.Find(dir)...)
	}
	for _, dir := range dirs {
		src, err := readModule(ctx, a.stderr, dir)
		switch {
		case errors.Is(err, silent):
			faulty = true
		case err != nil:
			fmt.Fprintf(a.stderr, "carillon: %s\n", err)
			faulty = true
		default:
			fmt.Fprintf(a.stdout, "%s: module %s, %s: ok\n", dir, src.Module.Name, plural(len(src.Module.Verbs), "verb"))
		}
	}
	if faulty {
		return silent
	}
	return nil
}

// readModule reads a module's source and shows its faults, with silent as the error then.
func readModule(ctx context.Context, stderr io.Writer, dir string) (module.Source, error) {
	src, err := module.Read(ctx, dir)
	if showFaults(stderr, err) {
		return src, silent
	}
	return src, err
}

// showFaults prints the faults of a source, each with its line and a caret. It reports whether the error was that.
func showFaults(stderr io.Writer, err error) bool {
	var faults schema.Errors
	if !errors.As(err, &faults) {
		return false
	}
	io.WriteString(stderr, faults.Format())
	fmt.Fprintf(stderr, "%s\n", plural(len(faults), "fault"))
	return true
}

// schemaProto is the schema as it travels.
func schemaProto(m schema.Module) *carillonv1.Schema {
	out := &carillonv1.Schema{Module: m.Name, Language: m.Language}
	if out.Language == "" {
		out.Language = schema.Go
	}
	for _, v := range m.Verbs {
		out.Verbs = append(out.Verbs, verbProto(v))
	}
	for _, d := range m.Data {
		data := &carillonv1.Data{Name: d.Name}
		for _, f := range d.Fields {
			data.Fields = append(data.Fields, &carillonv1.Field{Name: f.Name, Type: f.Type, Optional: f.Optional})
		}
		out.Data = append(out.Data, data)
	}
	return out
}

func verbProto(v schema.Verb) *carillonv1.Verb {
	out := &carillonv1.Verb{
		Name: v.Name, Request: orUnit(v.Request), Response: orUnit(v.Response),
		Timeout: unlessZero(v.Timeout), Concurrency: int32(v.Concurrency),
	}
	if c := v.Cron; c != nil {
		out.Cron = &carillonv1.Cron{
			Schedule: c.Schedule, TimeZone: c.TimeZone, Timeout: unlessZero(c.Timeout), Catchup: catchups[c.Catchup], Overlap: overlaps[c.Overlap],
		}
	}
	if r := v.Retry; r != nil {
		out.Retry = &carillonv1.Retry{Attempts: int32(r.Attempts), Backoff: unlessZero(r.Backoff), Ceiling: unlessZero(r.Ceiling)}
	}
	if u := v.Unique; u != nil {
		out.Unique = &carillonv1.Unique{Window: unlessZero(u.Window)}
	}
	return out
}

func unlessZero(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

var (
	catchups = map[schema.Catchup]carillonv1.Catchup{
		schema.CatchupLast: carillonv1.Catchup_CATCHUP_LAST,
		schema.CatchupNone: carillonv1.Catchup_CATCHUP_NONE,
		schema.CatchupAll:  carillonv1.Catchup_CATCHUP_ALL,
	}
	overlaps = map[schema.Overlap]carillonv1.Overlap{
		schema.OverlapSkip:   carillonv1.Overlap_OVERLAP_SKIP,
		schema.OverlapQueue:  carillonv1.Overlap_OVERLAP_QUEUE,
		schema.OverlapAllow:  carillonv1.Overlap_OVERLAP_ALLOW,
		schema.OverlapCancel: carillonv1.Overlap_OVERLAP_CANCEL,
	}
)

func orUnit(s string) string {
	if s == "" {
		return schema.Unit
	}
	return s
}

// digestHex is a digest as it travels: without the name of its algorithm.
func digestHex(digest string) string { return strings.TrimPrefix(digest, "sha256:") }
