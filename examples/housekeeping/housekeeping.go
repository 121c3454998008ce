// Package housekeeping is a module that does real work: it keeps a directory of log or dump files small, and records how
// full the disk and how large the database are. It knows nothing of the cluster that calls it. What goes wrong is the
// error of that run; the next run starts from what is there then.
//
// Its settings are environment variables, read at each run:
//
//	HOUSEKEEPING_DIR  the directory to look after; a subdirectory of the temporary one by default
//	DATABASE_URL      where sizes go; without it they go to the file sizes.csv in the directory
package housekeeping

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Prune compresses what has not been written for a while and removes what is old.
//
//carillon:cron 15 * * * * *
//carillon:timeout 45s
//carillon:catchup none
func Prune(ctx context.Context) error {
	dir, err := directory()
	if err != nil {
		return err
	}
	done, err := prune(ctx, dir, limits, time.Now())
	slog.InfoContext(ctx, "directory pruned", "dir", dir, "compressed", done.compressed, "removed", done.removed,
		"saved_bytes", done.saved, "left_for_later", done.more)
	return err
}

// Record writes down how full the disk of the directory and how large the database are.
//
//carillon:cron */10 * * * * *
//carillon:timeout 8s
//carillon:catchup none
func Record(ctx context.Context) error {
	dir, err := directory()
	if err != nil {
		return err
	}
	s, err := measure(dir, time.Now())
	if err != nil {
		return err
	}
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return recordInDatabase(ctx, url, s)
	}
	return recordInFile(dir, s)
}

// directory is the one to look after. It is made when it is missing, and must be no link.
func directory() (string, error) {
	dir := cmp.Or(os.Getenv("HOUSEKEEPING_DIR"), filepath.Join(os.TempDir(), "carillon-housekeeping"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory to look after: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("look at the directory: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is no directory of its own", dir)
	}
	return dir, nil
}
