// Package integration drills whole clusters: real processes and a real Postgres, killed, frozen, cut off and deployed
// over, with a checker at the end of each drill that compares the ledger with an oracle and with what the runners saw.
//
// Each drill has a short form, which `go test` runs, and a long one: CARILLON_DRILL_SECONDS says how long the part under
// load takes, CARILLON_DRILL_SEED which choices are made. All drills of a process share one cluster of three controllers,
// each with modules of its own: first, one after the other, those that break the cluster, then the others side by side. Where no Postgres can be had they are skipped with one line.
package integration

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/backend/devdb"
	"carillon/integration/cluster"
)

func TestMain(m *testing.M) {
	// Drills wait far more than they compute: those that break only their own module may go side by side.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := touchSources(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = cmp.Or(code, 1)
		}
	}
	cluster.Clean()
	os.Exit(code)
}

// touchSources looks at the files of the product, so that the test cache notices a change of them: the drills build them
// in child processes, of which it knows nothing.
func touchSources() error {
	return filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "..":
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".sql"):
			_, err = os.Stat(path)
		}
		return err
	})
}

var shared struct {
	once    sync.Once
	cluster *cluster.Cluster
	err     error
}

const members = 3

// settled is the cluster, whole: three live controllers with a lease behind them.
func settled(t *testing.T) *cluster.Cluster {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // others may hold the machine
		defer cancel()
		shared.cluster, shared.err = cluster.Start(ctx)
	})
	if errors.Is(shared.err, devdb.ErrNoPostgres) && os.Getenv("CARILLON_TEST_POSTGRES") == "" {
		t.Skip("no local Postgres to break: install PostgreSQL 15+ (Debian: apt-get install postgresql)")
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() { shared.cluster.Report(t) })
	shared.cluster.Settle(t, members)
	return shared.cluster
}

// seconds is how long a drill loads the cluster: so many in the short form.
func seconds(t *testing.T, short int) time.Duration {
	if text := os.Getenv("CARILLON_DRILL_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("CARILLON_DRILL_SECONDS: %v", err)
		}
		return time.Duration(max(n, short)) * time.Second
	}
	return time.Duration(short) * time.Second
}

func isLong() bool { return os.Getenv("CARILLON_DRILL_SECONDS") != "" }

// chance makes the choices of a drill, the same for the same seed.
func chance(t *testing.T) *rand.Rand {
	seed := uint64(1)
	if text := os.Getenv("CARILLON_DRILL_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CARILLON_DRILL_SEED: %v", err)
		}
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
