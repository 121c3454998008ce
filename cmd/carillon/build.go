package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"carillon/backend/module"
)

// buildCmd makes a runner binary of a module.
type buildCmd struct {
	Dir  string `arg:"" help:"Directory of the module's source."`
	File string `short:"o" name:"out" required:"" placeholder:"FILE" help:"Where the binary goes."`
}

func (c *buildCmd) Help() string {
	return `The binary is static, carries its schema, registers at a cluster and serves the module's verbs; its own --help says how.

Examples:

  carillon build ./examples/heartbeat -o heartbeat
  ./heartbeat --controller http://127.0.0.1:7800 --deploy`
}

func (c *buildCmd) Run(ctx context.Context, a *app) error {
	src, err := buildModule(ctx, a.stderr, c.Dir, c.File)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s: module %s, digest %.12s\n", c.File, src.Module.Name, digestHex(src.Digest))
	return nil
}

// buildModule builds a module and shows the faults of its source, with silent as the error then. What the go command says
// is part of the error.
func buildModule(ctx context.Context, stderr io.Writer, dir, out string) (module.Source, error) {
	var said bytes.Buffer
	src, err := module.Build(ctx, dir, out, &said)
	if showFaults(stderr, err) {
		return src, silent
	}
	if err != nil {
		if text := strings.TrimSpace(said.String()); text != "" {
			err = fmt.Errorf("%w\n%s", err, text)
		}
	}
	return src, err
}
