package housekeeping

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// limit says what may be touched, and how much in one run.
type limit struct {
	compressAfter time.Duration // since the last write
	removeAfter   time.Duration
	files         int   // changed in one run
	seen          int   // looked at in one run
	bytes         int64 // read for compression in one run
}

var limits = limit{
	compressAfter: 10 * time.Minute,
	removeAfter:   7 * 24 * time.Hour,
	files:         500,
	seen:          100_000,
	bytes:         256 << 20,
}

// pruned is what a run did.
type pruned struct {
	compressed, removed int
	saved               int64 // bytes
	more                bool  // a limit ended the run before the work did
}

// errEnough ends the walk.
var errEnough = errors.New("enough for one run")

const (
	zipped = ".gz"
	partly = ".gz.partial" // a compression that is not finished, or was broken off
)

// prune looks after dir. It goes through an os.Root, so that no link, not even one that appears while it works, leads it
// out of the directory; links and special files inside are left alone, and so is every file younger than the limits.
func prune(ctx context.Context, dir string, l limit, now time.Time) (done pruned, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return done, fmt.Errorf("open the directory: %w", err)
	}
	defer root.Close()
	seen, read := 0, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // gone since its directory was read
				return nil
			}
			return err
		}
		if seen++; seen > l.seen || done.compressed+done.removed >= l.files || read >= l.bytes {
			return errEnough
		}
		if !e.Type().IsRegular() || name == sizesFile {
			return nil
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		age := now.Sub(info.ModTime())
		switch {
		case !info.Mode().IsRegular():
		case age > l.removeAfter, age > l.compressAfter && strings.HasSuffix(name, partly):
			if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			done.removed++
			done.saved += info.Size()
		case age > l.compressAfter && !strings.HasSuffix(name, zipped) && !strings.HasSuffix(name, partly):
			if info.Size() > l.bytes-read {
				done.more = true
				return nil // a smaller one may still fit
			}
			read += info.Size()
			saved, ok, err := compress(ctx, root, name, info)
			if err != nil {
				return err
			}
			if ok {
				done.compressed++
				done.saved += saved
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		done.more, err = true, nil
	}
	if err != nil {
		return done, fmt.Errorf("prune %s: %w", dir, err)
	}
	return done, nil
}

// compress replaces a file by its compressed form, which keeps its time and mode. The original goes last, and only when it
// did not change meanwhile; a crash leaves it there and a partial file, which a later run removes. It reports false when
// the file was left as it is.
func compress(ctx context.Context, root *os.Root, name string, info fs.FileInfo) (saved int64, ok bool, err error) {
	if _, err := root.Lstat(name + zipped); err == nil {
		return 0, false, nil // somebody's file: it is not for us to overwrite
	}
	in, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer in.Close()
	if opened, err := in.Stat(); err != nil || !os.SameFile(opened, info) {
		return 0, false, err
	}
	temp := name + partly
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if errors.Is(err, fs.ErrExist) { // another run works on it, or broke off a moment ago
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer func() {
		if !ok {
			err = errors.Join(err, root.Remove(temp))
		}
	}()
	zip := gzip.NewWriter(out)
	zip.Name, zip.ModTime = path.Base(name), info.ModTime()
	_, err = io.Copy(zip, reader{ctx, io.LimitReader(in, info.Size()+1)})
	if err = errors.Join(err, zip.Close(), out.Sync(), out.Close()); err != nil {
		return 0, false, err
	}
	after, err := root.Lstat(name)
	if err != nil || after.Size() != info.Size() || !after.ModTime().Equal(info.ModTime()) || !os.SameFile(after, info) {
		return 0, false, nil // it is being written: next time
	}
	small, err := root.Lstat(temp)
	if err != nil {
		return 0, false, err
	}
	if err := root.Chtimes(temp, time.Time{}, info.ModTime()); err != nil {
		return 0, false, err
	}
	switch err := root.Link(temp, name+zipped); { // unlike a rename, it does not overwrite
	case errors.Is(err, fs.ErrExist):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	}
	ok = true
	return info.Size() - small.Size(), ok, errors.Join(root.Remove(temp), root.Remove(name))
}

// reader stops reading when its context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
