package housekeeping

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	now   = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tight = limit{compressAfter: 10 * time.Minute, removeAfter: 24 * time.Hour, files: 100, seen: 1000, bytes: 1 << 20}
)

// put writes a file that was last written so long ago.
func put(t *testing.T, dir, name, text string, age time.Duration) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
		t.Fatal(err)
	}
	return path
}

// names lists all that is below dir but directories.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		list = append(list, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("in the directory: %q, want %q", got, want)
	}
}

func TestOldFilesAreCompressedAndAncientOnesRemoved(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("a line of a log\n", 1000)
	put(t, dir, "young.log", text, tight.compressAfter-time.Second)
	put(t, dir, "sub/old.log", text, tight.compressAfter+time.Second)
	put(t, dir, "sub/ancient.log", text, tight.removeAfter+time.Second)
	put(t, dir, "ancient.log.gz", "zip", tight.removeAfter+time.Second)
	put(t, dir, "old.log.gz", "zip", tight.compressAfter+time.Hour)
	put(t, dir, "empty", "", tight.compressAfter+time.Hour)
	put(t, dir, sizesFile, "1,2", tight.removeAfter+time.Hour)
	put(t, dir, "broken.gz.partial", "zi", tight.compressAfter+time.Hour)
	put(t, dir, "working.gz.partial", "zi", time.Second)

	done, err := prune(t.Context(), dir, tight, now)
	if err != nil {
		t.Fatal(err)
	}
	if done.compressed != 2 || done.removed != 3 || done.more || done.saved < int64(len(text)) {
		t.Errorf("done: %+v", done)
	}
	wantNames(t, dir, "empty.gz", "old.log.gz", sizesFile, "sub/old.log.gz", "working.gz.partial", "young.log")

	path := filepath.Join(dir, "sub", "old.log.gz")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(zip); err != nil || string(got) != text {
		t.Errorf("%d bytes come out of %d: %v", len(got), len(text), err)
	}
	info, err := f.Stat()
	if err != nil || !info.ModTime().Equal(now.Add(-tight.compressAfter-time.Second)) || info.Mode().Perm() != 0o640 {
		t.Errorf("time %v, mode %v: %v", info.ModTime(), info.Mode(), err)
	}

	if done, err := prune(t.Context(), dir, tight, now); err != nil || done != (pruned{}) {
		t.Errorf("a second run does %+v, %v", done, err)
	}
}

func TestLinksAreNeverFollowed(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	ancient := put(t, outside, "deep/ancient.log", "precious", 100*tight.removeAfter)
	for name, target := range map[string]string{"file": ancient, "dir": outside, "up": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := prune(t.Context(), dir, tight, now); err != nil || done != (pruned{}) {
		t.Errorf("done: %+v, %v", done, err)
	}
	wantNames(t, outside, "deep/ancient.log")
	wantNames(t, dir, "dir", "file", "up")

	t.Setenv("HOUSEKEEPING_DIR", filepath.Join(dir, "dir"))
	if err := Prune(t.Context()); err == nil {
		t.Error("a link was taken for the directory itself")
	}
}

func TestAnotherFilesCompressedFormIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.log", "new", time.Hour)
	put(t, dir, "a.log.gz", "old", time.Hour)
	if done, err := prune(t.Context(), dir, tight, now); err != nil || done != (pruned{}) {
		t.Errorf("done: %+v, %v", done, err)
	}
	wantNames(t, dir, "a.log", "a.log.gz")
}

func TestOneRunIsBounded(t *testing.T) {
	fill := func() string {
		dir := t.TempDir()
		for _, name := range []string{"a", "b", "c", "d"} {
			put(t, dir, name, "0123456789", time.Hour)
		}
		return dir
	}
	tests := []struct {
		name  string
		limit func(*limit)
		want  []string
	}{
		{"files", func(l *limit) { l.files = 2 }, []string{"a.gz", "b.gz", "c", "d"}},
		{"seen, the directory being the first", func(l *limit) { l.seen = 2 }, []string{"a.gz", "b", "c", "d"}},
		{"bytes", func(l *limit) { l.bytes = 35 }, []string{"a.gz", "b.gz", "c.gz", "d"}},
		{"a file above the bytes of a run stays", func(l *limit) { l.bytes = 9 }, []string{"a", "b", "c", "d"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, l := fill(), tight
			tt.limit(&l)
			done, err := prune(t.Context(), dir, l, now)
			if err != nil || !done.more {
				t.Errorf("done: %+v, %v", done, err)
			}
			wantNames(t, dir, tt.want...)
		})
	}
}

func TestAnEndedContextStopsTheRun(t *testing.T) {
	dir := t.TempDir()
	path := put(t, dir, "a.log", "text", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := prune(ctx, dir, tight, now); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// Also in the midst of a file: what was begun is taken away again.
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := compress(ctx, root, "a.log", info); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("compressed %t, %v", ok, err)
	}
	wantNames(t, dir, "a.log")
}

func TestAFileThatChangedSinceIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := put(t, dir, "a.log", "text", time.Hour)
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a.log", "text and more", 0)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, ok, err := compress(t.Context(), root, "a.log", before); ok || err != nil {
		t.Errorf("compressed %t, %v", ok, err)
	}
	wantNames(t, dir, "a.log")
}
