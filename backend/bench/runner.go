package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"carillon"
	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

// perModule is how many verbs a module may have, so how many cron jobs one runner serves.
const perModule = schema.MaxVerbs

// RunnerConfig of a runner whose verbs do nothing but note when they began.
type RunnerConfig struct {
	Module      string
	Verbs       int
	Schedule    string
	Controllers []string
	Capacity    int
	Samples     string // file to write the begins to at the end; empty: they stay in memory
	Log         *slog.Logger
}

// Begin is when one slot's verb began.
type Begin struct {
	Slot time.Time
	Late time.Duration // by the clock of the runner's machine
}

// begins gathers them.
type begins struct {
	mu  sync.Mutex
	all []Begin
}

func (b *begins) verb(ctx context.Context) error {
	now := time.Now()
	run, ok := carillon.RunFrom(ctx)
	if !ok {
		return errors.New("a verb without a run")
	}
	b.mu.Lock()
	b.all = append(b.all, Begin{Slot: run.Slot, Late: now.Sub(run.Slot)})
	b.mu.Unlock()
	return nil
}

// Runner serves the verbs on the SDK until ctx ends. It deploys its module itself.
func Runner(ctx context.Context, c RunnerConfig) error {
	b := &begins{}
	if err := serve(ctx, c, b); err != nil {
		return err
	}
	if c.Samples == "" {
		return nil
	}
	f, err := os.Create(c.Samples)
	if err != nil {
		return fmt.Errorf("write the begins: %w", err)
	}
	w := bufio.NewWriter(f)
	for _, s := range b.all {
		fmt.Fprintf(w, "%d %d\n", s.Slot.UnixMicro(), s.Late.Nanoseconds())
	}
	return errors.Join(w.Flush(), f.Close())
}

func serve(ctx context.Context, c RunnerConfig, b *begins) error {
	text, err := protojson.Marshal(schemaOf(c))
	if err != nil {
		return fmt.Errorf("write the schema: %w", err)
	}
	verbs := carillon.Verbs{}
	for i := range c.Verbs {
		verbs[verbName(i)] = carillon.Plain(b.verb)
	}
	return carillon.Serve(ctx, carillon.Config{
		Module: carillon.Module{Name: c.Module, Language: schema.Go, Digest: fmt.Sprintf("%016x", c.Verbs), Schema: string(text)},
		Verbs:  verbs, Controllers: c.Controllers, Capacity: c.Capacity, Deploy: true, Drain: time.Second, Log: c.Log,
	})
}

func verbName(i int) string { return fmt.Sprintf("tick%d", i) }

func schemaOf(c RunnerConfig) *carillonv1.Schema {
	out := &carillonv1.Schema{Module: c.Module, Language: schema.Go}
	for i := range c.Verbs {
		out.Verbs = append(out.Verbs, &carillonv1.Verb{
			Name: verbName(i), Request: schema.Unit, Response: schema.Unit, Cron: &carillonv1.Cron{Schedule: c.Schedule},
		})
	}
	return out
}

// readBegins reads what Runner wrote.
func readBegins(file string) ([]Begin, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the begins: %w", err)
	}
	defer f.Close()
	var all []Begin
	for in := bufio.NewReader(f); ; {
		var slot, late int64
		if _, err := fmt.Fscanf(in, "%d %d\n", &slot, &late); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the begins in %s: %w", file, err)
		}
		all = append(all, Begin{Slot: time.UnixMicro(slot).UTC(), Late: time.Duration(late)})
	}
}
