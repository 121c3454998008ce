package housekeeping

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// sizesFile is where sizes go without a database.
const sizesFile = "sizes.csv"

// maxSizesFile is the size at which the file starts anew; the one before is kept beside it.
const maxSizesFile = 1 << 20

// maxMeasured bounds the files that one measurement looks at.
const maxMeasured = 100_000

// sizes is one measurement.
type sizes struct {
	at    time.Time
	host  string
	dir   string
	files int
	bytes int64 // of the regular files in dir
	disk  disk
}

// disk is the file system that holds the directory; zero where the system does not tell.
type disk struct{ total, free int64 }

// measure counts the directory, without following links, and asks for its disk.
func measure(dir string, now time.Time) (sizes, error) {
	s := sizes{at: now.UTC().Truncate(time.Millisecond), dir: dir}
	s.host, _ = os.Hostname() // a name to tell the rows apart, nothing more
	seen := 0
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if seen++; seen > maxMeasured {
			return fs.SkipAll
		}
		if err != nil || !e.Type().IsRegular() {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err != nil {
			return ignoreGone(err)
		}
		s.files++
		s.bytes += info.Size()
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("measure %s: %w", dir, err)
	}
	if s.disk, err = diskOf(dir); err != nil {
		return s, fmt.Errorf("measure the disk of %s: %w", dir, err)
	}
	return s, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// recordInFile appends one line to the file in dir.
func recordInFile(dir string, s sizes) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("record sizes: %w", err)
	}
	defer root.Close()
	if info, err := root.Lstat(sizesFile); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("record sizes: %s is no regular file", sizesFile)
		}
		if info.Size() >= maxSizesFile {
			if err := root.Rename(sizesFile, sizesFile+".old"); err != nil {
				return fmt.Errorf("record sizes: %w", err)
			}
		}
	}
	f, err := root.OpenFile(sizesFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("record sizes: %w", err)
	}
	w := csv.NewWriter(f)
	err = w.Write([]string{
		s.at.Format(time.RFC3339Nano), s.host, s.dir, strconv.Itoa(s.files), strconv.FormatInt(s.bytes, 10),
		strconv.FormatInt(s.disk.total, 10), strconv.FormatInt(s.disk.free, 10),
	})
	w.Flush()
	if err := errors.Join(err, w.Error(), f.Close()); err != nil {
		return fmt.Errorf("record sizes: %w", err)
	}
	return nil
}

// keepRows bounds the table of its own that the sizes stand in: older rows go with each new one, a few at a time.
const keepRows = "30 days"

// recordInDatabase writes a row with the size of the database itself. Each run has its own connection: one in ten seconds
// is not worth keeping.
func recordInDatabase(ctx context.Context, url string, s sizes) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("record sizes: connect: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // the row is written or not, whatever the goodbye says
	}()
	if err := ensureTable(ctx, conn); err != nil {
		return fmt.Errorf("record sizes: make the table: %w", err)
	}
	_, err = conn.Exec(ctx, `
		INSERT INTO housekeeping.sizes (host, directory, files, directory_bytes, disk_bytes, disk_free_bytes, database_bytes)
		VALUES ($1, $2, $3, $4, $5, $6, pg_database_size(current_database()))`,
		s.host, s.dir, s.files, s.bytes, s.disk.total, s.disk.free)
	if err != nil {
		return fmt.Errorf("record sizes: %w", err)
	}
	_, err = conn.Exec(ctx, `
		DELETE FROM housekeeping.sizes WHERE id IN (
			SELECT id FROM housekeeping.sizes WHERE at < now() - $1::interval ORDER BY id LIMIT 1000)`, keepRows)
	if err != nil {
		return fmt.Errorf("remove old sizes: %w", err)
	}
	return nil
}

// ensureTable makes the table when it is missing. Two runners that start together would both try, and CREATE .. IF NOT
// EXISTS fails for one of them, so it happens under a lock that ends with the transaction.
func ensureTable(ctx context.Context, conn *pgx.Conn) error {
	var there bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('housekeeping.sizes') IS NOT NULL`).Scan(&there); err != nil || there {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			SELECT pg_advisory_xact_lock(hashtextextended('carillon example housekeeping', 0));
			CREATE SCHEMA IF NOT EXISTS housekeeping;
			CREATE TABLE IF NOT EXISTS housekeeping.sizes (
				id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
				at              timestamptz NOT NULL DEFAULT now(),
				host            text NOT NULL,
				directory       text NOT NULL,
				files           integer NOT NULL,
				directory_bytes bigint NOT NULL,
				disk_bytes      bigint NOT NULL,
				disk_free_bytes bigint NOT NULL,
				database_bytes  bigint NOT NULL
			)`)
		return err
	})
}
